import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { CosmosClient } from "@azure/cosmos";
import { processor, startServer } from "@changefeed/client";
import { collect, fresh, server, start } from "./world.mjs";

test("the SDK works with the connection string", async () => {
  const sdk = new CosmosClient(server.connectionString);
  const { database } = await sdk.databases.create({ id: "shop" });
  const { container } = await database.containers.create({ id: "orders", partitionKey: "/city" });
  await container.items.create({ id: "1", city: "Oslo" });
  const { resource } = await container.item("1", "Oslo").read();
  assert.equal(resource.city, "Oslo");
});

test("the SDK's Container is a source", async (t) => {
  const { container } = await fresh({}, "a");
  const { seen, handler } = collect();
  const { p } = await start(t, {}, { source: container, handler });
  await p.caughtUp();
  assert.deepEqual(seen, ["a"]);
});

test("fresh containers are apart", async () => {
  const [a, b] = await Promise.all([fresh({}, "1"), fresh({ partitionKey: ["/tenant", "/pk"], ranges: 3 })]);
  assert.notEqual(a.database, b.database);
  assert.equal((await server.partitions(b)).length, 3);
  const { resource } = await b.container.read();
  assert.deepEqual(resource.partitionKey.paths, ["/tenant", "/pk"]);
});

test("partitions are split and merged", async () => {
  const source = await fresh();
  await server.split(source);
  const two = await server.partitions(source);
  assert.equal(two.length, 2);
  await server.split(source.container, two[1]);
  const three = await server.partitions(source);
  assert.equal(three.length, 3);
  await server.merge(source, three[0], three[1]);
  assert.equal((await server.partitions(source)).length, 2);
  await assert.rejects(server.split(source, "999"), { name: "ChangefeedError" });
});

test("caughtUp waits for a unit", async (t) => {
  const source = await fresh({}, "a");
  await assert.rejects(server.caughtUp(source, "unit", { timeoutMs: 60 }), { code: "timeout" });
  const { seen, handler } = collect();
  await start(t, source, { handler });
  await server.caughtUp(source, "unit");
  assert.deepEqual(seen, ["a"]);
  assert.equal((await server.lag(source, "unit")).total, 0);
});

test("requests fail on order", async () => {
  const [source, other] = [await fresh(), await fresh()];
  const sdk = new CosmosClient({
    endpoint: server.endpoint, key: server.key,
    connectionPolicy: {
      retryOptions: { maxRetryAttemptCount: 0, fixedRetryIntervalInMilliseconds: 0, maxWaitTimeInSeconds: 0 },
    },
  });
  const items = ({ database, id }) => sdk.database(database).container(id).items;
  await server.fail({ container: source, method: "POST", status: 429, subStatus: 3200, retryAfterMs: 1 });
  await items(other).create({ id: "a", pk: "a" });
  await assert.rejects(items(source).create({ id: "a", pk: "a" }), { code: 429, substatus: 3200 });
  await items(source).create({ id: "a", pk: "a" });
  await server.fail({ container: source, status: 503 });
  await server.clearFaults();
  await items(source).create({ id: "b", pk: "b" });
  await assert.rejects(server.fail({ status: 1 }), { code: "usage" });
});

test("an order has its times in seconds", async () => {
  const source = await fresh();
  const fault = { container: source, method: "DELETE", status: 429, subStatus: 3200, retryAfterMs: 1500, delayMs: 250, times: 2 };
  await server.fail(fault);
  const headers = { authorization: `Bearer ${server.key}` };
  const [left] = await (await fetch(new URL("_faults", server.endpoint), { headers })).json();
  await server.clearFaults();
  const { retry_after, delay, times, status, sub_status, method } = left;
  assert.deepEqual([retry_after, delay, times, status, sub_status, method], [1.5, 0.25, 2, 429, 3200, "DELETE"]);
});

test("the lag of a unit is not that of another beside it", async () => {
  const source = await fresh({}, "a", "b");
  const options = { source: source.address, createLeases: true, auth: { key: server.key }, on: { log() {} } };
  await processor({ ...options, name: "first", once: true, handler() {} }).run();
  await source.container.items.create({ id: "c", pk: "c" });
  await processor({ ...options, name: "second", once: true, handler() {} }).run();
  const lags = await Promise.all(["first", "second"].map((name) => server.lag(source, name)));
  assert.deepEqual(lags.map(({ total, leases }) => [total, leases.map((l) => l.lag)]), [[1, [1]], [0, [0]]]);
});

test("a processor goes on after throttling, a lost answer and a slow one", async (t) => {
  const source = await fresh();
  const { seen, handler } = collect();
  const { p } = await start(t, source, { handler });
  await server.fail({ container: source, status: 429, subStatus: 3200, retryAfterMs: 10, times: 3 });
  await server.fail({ container: new URL("leases", source.address).href, method: "PUT", lose: true });
  await server.fail({ container: source, delayMs: 50 });
  await source.container.items.create({ id: "a", pk: "a" });
  await p.caughtUp();
  assert.deepEqual([...new Set(seen)], ["a"]);
});

test("a store in a directory stays", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "changefeed-"));
  t.after(() => rm(dir, { recursive: true }));
  const first = await startServer({ dir });
  const made = await first.freshContainer();
  await new CosmosClient(first.connectionString).database(made.database).container(made.id).items.create({ id: "a" });
  await first[Symbol.asyncDispose]();
  const second = await startServer({ dir, flags: ["--no-sync"] });
  t.after(() => second.stop());
  const { resource } = await new CosmosClient(second.connectionString).database(made.database).container(made.id)
    .item("a", "a").read();
  assert.equal(resource.id, "a");
});

test("a server restarts with its address and data, and a processor goes on", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "changefeed-"));
  t.after(() => rm(dir, { recursive: true }));
  const own = await startServer({ dir });
  t.after(() => own.stop());
  const source = await own.freshContainer();
  const { items } = new CosmosClient(own.connectionString).database(source.database).container(source.id);
  await items.create({ id: "a" });
  const { seen, handler } = collect();
  const { p } = await start(t, source, { auth: { key: own.key }, handler, pollMs: 100 });
  await p.caughtUp();
  await own.restart({ kill: true });
  await items.create({ id: "b" });
  await p.caughtUp();
  assert.deepEqual(seen, ["a", "b"]);
  await assert.rejects(server.restart(), { code: "usage" });
});

test("a server that cannot start says why", async () => {
  await assert.rejects(startServer({ flags: ["--bogus"] }), { code: "usage", message: /--bogus/ });
  await assert.rejects(startServer({ flags: ["--listen", new URL(server.endpoint).host] }), { message: /in use/ });
});

test("the key of the server is needed", async () => {
  const source = await fresh();
  const p = processor({ source: source.address, name: "unit", auth: { key: "d3Jvbmc=" }, handler() {}, on: { log() {} } });
  await assert.rejects(p.run(), { code: "refused" });
});
