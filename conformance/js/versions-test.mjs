// The change feed of all versions and deletes.

import assert from "node:assert/strict";
import test from "node:test";
import { ChangeFeedMode, ChangeFeedPolicy, ChangeFeedRetentionTimeSpan, ChangeFeedStartFrom } from "@azure/cosmos";
import { again, container, database, drain, plain, until } from "./account.mjs";

const db = await database("js-versions");
const changeFeedPolicy = new ChangeFeedPolicy(ChangeFeedRetentionTimeSpan.fromMinutes(10));
const keeping = { changeFeedPolicy, throughput: 30_000 };

const versions = (container, changeFeedStartFrom, options = {}) =>
  container.items.getChangeFeedIterator({ changeFeedMode: ChangeFeedMode.AllVersionsAndDeletes, changeFeedStartFrom, ...options });

/** started is an iterator that has its positions: it is told that there is nothing yet. */
async function started(container, from) {
  const iterator = versions(container, ChangeFeedStartFrom.Now(from));
  const page = await iterator.readNext();
  assert.equal(page.statusCode, 304);
  return { iterator, token: page.continuationToken };
}

/** told is the short of a change: what happened to which state. */
const told = ({ metadata, current }) => [metadata.operationType, current && Object.keys(current).length > 0 ? plain(current) : undefined];

test("the policy is kept", async () => {
  const c = await container(db, "policy", keeping);
  assert.deepEqual((await c.read()).resource.changeFeedPolicy, { retentionDuration: 10 });
});

for (const [name, from] of [["the whole container"], ["one key", "a"]]) {
  test(`every write and the delete, in order: ${name}`, async () => {
    const c = await container(db, `all ${name}`, keeping);
    const { iterator, token } = await started(c, from);
    await c.items.create({ id: "1", pk: "a", n: 1 });
    await c.items.upsert({ id: "1", pk: "a", n: 2 });
    await c.item("1", "a").patch([{ op: "incr", path: "/n", value: 1 }]);
    const { resource: last } = await c.item("1", "a").replace({ id: "1", pk: "a", n: 4 });
    await c.item("1", "a").delete();
    const want = [
      ["create", { id: "1", pk: "a", n: 1 }],
      ["replace", { id: "1", pk: "a", n: 2 }],
      ["replace", { id: "1", pk: "a", n: 3 }],
      ["replace", { id: "1", pk: "a", n: 4 }],
      ["delete", undefined],
    ];
    const { changes } = await drain(iterator);
    assert.deepEqual(changes.map(told), want);
    assert.deepEqual((await drain(versions(again(c), ChangeFeedStartFrom.Continuation(token)))).changes, changes);

    const lsns = changes.map((change) => change.metadata.lsn);
    assert.deepEqual(lsns, [...new Set(lsns)].sort((a, b) => a - b));
    assert.deepEqual(changes.slice(1).map((change) => change.metadata.previousImageLSN), lsns.slice(0, -1));
    for (const { metadata } of changes) assert.ok(Math.abs(Date.now() / 1000 - metadata.crts) < 60, `crts is ${metadata.crts}`);
    const gone = changes.at(-1);
    assert.deepEqual([gone.metadata.id, gone.metadata.partitionKey], ["1", { pk: "a" }]);
    assert.deepEqual(gone.previous, last);
    assert.notEqual(gone.metadata.timeToLiveExpired, true);
  });
}

test("a feed range sees its own", async () => {
  const c = await container(db, "range", keeping);
  const feeds = await Promise.all((await c.getFeedRanges()).map((range) => started(c, range)));
  assert.equal(feeds.length, 3);
  const docs = Array.from({ length: 20 }, (_, i) => ({ id: `d${i}`, pk: `k${i}` }));
  for (const doc of docs) await c.items.create(doc);
  for (const doc of docs) await c.item(doc.id, doc.pk).delete();
  const read = (await Promise.all(feeds.map((f) => drain(f.iterator)))).map((r) => r.changes);
  for (const changes of read) assert.ok(changes.length > 0 && changes.length < 40, `a range of ${changes.length} changes`);
  const all = read.flat();
  assert.equal(all.length, 40);
  for (const { id } of docs) {
    const of = all.filter((change) => (change.metadata.id ?? change.current.id) === id);
    assert.deepEqual(of.map((change) => change.metadata.operationType), ["create", "delete"]);
  }
});

test("expiry is a delete that says so", async () => {
  const c = await container(db, "expiry", { ...keeping, defaultTtl: -1 });
  const { iterator } = await started(c);
  const { resource } = await c.items.create({ id: "1", pk: "a", ttl: 1 });
  await c.items.create({ id: "2", pk: "a" });
  const changes = [];
  await until(async () => changes.push(...(await drain(iterator)).changes) >= 3);
  assert.deepEqual(changes.map(told), [
    ["create", { id: "1", pk: "a", ttl: 1 }],
    ["create", { id: "2", pk: "a" }],
    ["delete", undefined],
  ]);
  const gone = changes.at(-1);
  assert.equal(gone.metadata.timeToLiveExpired, true);
  assert.equal(gone.metadata.id, "1");
  assert.equal(gone.previous, undefined); // no account has it for an item that expired
});

test("a batch is one step of the feed", async () => {
  const c = await container(db, "batch", keeping);
  await c.items.create({ id: "1", pk: "a" });
  const { iterator } = await started(c);
  await c.items.batch([
    { operationType: "Delete", id: "1" },
    { operationType: "Create", resourceBody: { id: "2", pk: "a" } },
    { operationType: "Upsert", resourceBody: { id: "2", pk: "a", n: 1 } },
  ], "a");
  const { changes } = await drain(iterator);
  assert.equal(new Set(changes.map((change) => change.metadata.lsn)).size, 1);
  assert.deepEqual(changes[0].metadata.operationType, "delete");
  assert.deepEqual(plain(changes.at(-1).current), { id: "2", pk: "a", n: 1 });
});

test("small pages make the same whole", async () => {
  const c = await container(db, "pages", keeping);
  const { token } = await started(c);
  for (let n = 0; n < 10; n++) await c.items.upsert({ id: "1", pk: "a", n });
  const { changes, pages } = await drain(versions(c, ChangeFeedStartFrom.Continuation(token), { maxItemCount: 3 }));
  assert.deepEqual(changes.map((change) => change.current.n), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  assert.deepEqual(pages, [3, 3, 3, 1]);
});

test("from the beginning or from a time is a 400", async () => {
  const c = await container(db, "starts", keeping);
  for (const start of [ChangeFeedStartFrom.Beginning(), ChangeFeedStartFrom.Time(new Date(Date.now() - 60_000)), ChangeFeedStartFrom.Beginning("a")]) {
    await assert.rejects(versions(c, start).readNext(), { code: 400 });
  }
});

test("a plain container has the versions that the account keeps", async () => {
  const c = await container(db, "plain");
  const { iterator } = await started(c);
  await c.items.create({ id: "1", pk: "a" });
  await c.item("1", "a").delete();
  const { changes } = await drain(iterator);
  assert.deepEqual(changes.map(told), [["create", { id: "1", pk: "a" }], ["delete", undefined]]);
  assert.equal((await c.read()).resource.changeFeedPolicy, undefined);
});
