// Time to live: the container's default, the item's own, and never.

import assert from "node:assert/strict";
import test from "node:test";
import { ChangeFeedStartFrom } from "@azure/cosmos";
import { container, database, drain, names, sorted, until } from "./account.mjs";

const db = await database("js-ttl");
const left = async (c) => sorted(names((await c.items.readAll().fetchAll()).resources));

test("items expire by the container's default, unless they say otherwise", async () => {
  const c = await container(db, "default", { defaultTtl: 1 });
  await c.items.create({ id: "default", pk: "a" });
  await c.items.create({ id: "never", pk: "a", ttl: -1 });
  await c.items.create({ id: "later", pk: "a", ttl: 3600 });
  await until(async () => (await c.item("default", "a").read()).statusCode === 404);
  assert.deepEqual(await left(c), ["later", "never"]);
  assert.deepEqual(sorted(names((await drain(c.items.getChangeFeedIterator({ changeFeedStartFrom: ChangeFeedStartFrom.Beginning() }))).changes)), ["later", "never"]);
  assert.equal((await c.items.create({ id: "default", pk: "a" })).statusCode, 201);
});

test("with a default of -1 only items with a time of their own expire", async () => {
  const c = await container(db, "own", { defaultTtl: -1 });
  await c.items.create({ id: "stays", pk: "a" });
  await c.items.create({ id: "goes", pk: "a", ttl: 1 });
  await until(async () => (await c.item("goes", "a").read()).statusCode === 404);
  assert.deepEqual(await left(c), ["stays"]);
  await assert.rejects(c.item("goes", "a").replace({ id: "goes", pk: "a" }), { code: 404 });
});

test("without a default nothing expires", async () => {
  const [off, on] = [await container(db, "off"), await container(db, "on", { defaultTtl: -1 })];
  await off.items.create({ id: "1", pk: "a", ttl: 1 });
  await on.items.create({ id: "1", pk: "a", ttl: 1 });
  await until(async () => (await on.item("1", "a").read()).statusCode === 404);
  assert.deepEqual(await left(off), ["1"]);
});

test("a write starts the time anew", async () => {
  const c = await container(db, "renewed", { defaultTtl: -1 });
  await c.items.create({ id: "renewed", pk: "a", ttl: 1 });
  await c.items.upsert({ id: "renewed", pk: "a", ttl: 3600 });
  await c.items.create({ id: "witness", pk: "a", ttl: 1 });
  await until(async () => (await c.item("witness", "a").read()).statusCode === 404);
  assert.deepEqual(await left(c), ["renewed"]);
});

test("a time that is none is a 400", async () => {
  const c = await container(db, "bad", { defaultTtl: 10 });
  for (const ttl of [0, -2, 1.5, "1"]) {
    await assert.rejects(c.items.create({ id: "bad", pk: "a", ttl }), { code: 400 }, `ttl ${ttl}`);
  }
  for (const defaultTtl of [0, -5]) {
    await assert.rejects(container(db, `bad ${defaultTtl}`, { defaultTtl }), { code: 400 }, `defaultTtl ${defaultTtl}`);
  }
});

test("the default is changed by replacing the container", async () => {
  const c = await container(db, "changed");
  await c.items.create({ id: "1", pk: "a" });
  const { resource } = await c.read();
  assert.equal(resource.defaultTtl, undefined);
  assert.equal((await c.replace({ ...resource, defaultTtl: 1 })).resource.defaultTtl, 1);
  await until(async () => (await c.item("1", "a").read()).statusCode === 404);
});
