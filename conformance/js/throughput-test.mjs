// Offers, and what a container does whose offer is used up.

import assert from "node:assert/strict";
import test from "node:test";
import { again, container, database, names, sorted } from "./account.mjs";

const db = await database("js-throughput");

test("a container's offer is read and replaced", async () => {
  const c = await container(db, "manual", { throughput: 400 });
  const { resource, offer } = await c.readOffer();
  assert.equal(resource.content.offerThroughput, 400);
  assert.equal(resource.resource, (await c.read()).resource._self);
  assert.equal(resource.offerVersion, "V2");
  resource.content.offerThroughput = 700;
  const replaced = await offer.replace(resource);
  assert.equal(replaced.statusCode, 200);
  assert.equal(replaced.resource.content.offerThroughput, 700);
  assert.equal((await c.readOffer()).resource.content.offerThroughput, 700);
  assert.equal((await offer.read()).resource.content.offerThroughput, 700);
});

test("an offer that scales by itself", async () => {
  const c = await container(db, "autoscale", { maxThroughput: 4000 });
  const { resource, offer } = await c.readOffer();
  assert.equal(resource.content.offerAutopilotSettings.maxThroughput, 4000);
  resource.content.offerAutopilotSettings = { maxThroughput: 8000 };
  await offer.replace(resource);
  assert.equal((await c.readOffer()).resource.content.offerAutopilotSettings.maxThroughput, 8000);
});

test("a database's offer", async () => {
  const { database: shared } = await db.client.databases.create({ id: "js-throughput-shared", throughput: 500 });
  try {
    const { resource } = await shared.readOffer();
    assert.equal(resource.content.offerThroughput, 500);
    assert.equal((await db.readOffer()).resource, undefined);
  } finally {
    await shared.delete();
  }
});

test("offers that the service does not sell are a 400", async () => {
  for (const throughput of [100, 450]) {
    await assert.rejects(container(db, `offer of ${throughput}`, { throughput }), { code: 400 });
  }
  const { resource, offer } = await (await container(db, "unsold", { throughput: 400 })).readOffer();
  await assert.rejects(offer.replace({ ...resource, content: { ...resource.content, offerThroughput: 50 } }), { code: 400 });
});

test("all offers", async () => {
  await container(db, "listed", { throughput: 400 });
  const { resources } = await db.client.offers.readAll().fetchAll();
  const self = (await db.container("listed").read()).resource._self;
  assert.equal(resources.filter((offer) => offer.resource === self).length, 1);
});

/** load is 60 writes of about 55 request units each, all at once. */
const load = (container) =>
  Promise.all(Array.from({ length: 60 }, (_, i) => container.items.upsert({ id: `d${i}`, pk: `k${i % 3}`, text: "x".repeat(10_000) })));

test("over the budget: 429 of sub-status 3200, which says when to come back", async () => {
  const c = await container(db, "refused", { throughput: 400 });
  const impatient = again(c, { connectionPolicy: { retryOptions: { maxRetryAttemptCount: 0 } } });
  await assert.rejects(load(impatient), (err) => {
    assert.deepEqual([err.code, err.substatus], [429, 3200]);
    assert.ok(err.retryAfterInMs > 0 && err.retryAfterInMs < 60_000, `retry after ${err.retryAfterInMs}`);
    return true;
  });
});

test("over the budget: the SDK waits as told, and all succeed", async () => {
  const c = await container(db, "waited", { throughput: 400 });
  const patient = again(c, { connectionPolicy: { retryOptions: { maxRetryAttemptCount: 100, maxWaitTimeInSeconds: 50 } } });
  const answers = await load(patient);
  assert.deepEqual(new Set(answers.map((a) => a.statusCode)), new Set([201]));
  assert.ok(answers.some((a) => a.headers["x-ms-throttle-retry-count"] > 0), "nothing was throttled");
  const { resources } = await patient.items.query("SELECT c.id FROM c").fetchAll();
  assert.deepEqual(sorted(names(resources)), sorted(Array.from({ length: 60 }, (_, i) => `d${i}`)));
});

test("over the budget: bulk tries the refused operations again", async () => {
  const c = await container(db, "bulk", { throughput: 1000 });
  const operations = Array.from({ length: 60 }, (_, i) => ({
    operationType: "Create", partitionKey: "a", resourceBody: { id: `d${i}`, pk: "a", text: "x".repeat(10_000) },
  }));
  const results = await c.items.executeBulkOperations(operations);
  assert.deepEqual(results.map((r) => r.error ?? r.response.statusCode), Array(60).fill(201));
  assert.equal((await c.items.readAll().fetchAll()).resources.length, 60);
});

test("a raised offer is in force at once", async () => {
  const c = await container(db, "raised", { throughput: 400 });
  const { resource, offer } = await c.readOffer();
  await offer.replace({ ...resource, content: { ...resource.content, offerThroughput: 100_000 } });
  const impatient = again(c, { connectionPolicy: { retryOptions: { maxRetryAttemptCount: 0 } } });
  assert.deepEqual(new Set((await load(impatient)).map((a) => a.statusCode)), new Set([201]));
});
