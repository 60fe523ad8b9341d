// Splits and merges: tokens from before go on after, and nothing is lost or comes twice.

import assert from "node:assert/strict";
import test from "node:test";
import { ChangeFeedMode, ChangeFeedPolicy, ChangeFeedRetentionTimeSpan, ChangeFeedStartFrom } from "@azure/cosmos";
import { again, container, database, drain, names, repartition, sorted } from "./account.mjs";

const db = await database("js-split");
const keys = Array.from({ length: 12 }, (_, i) => `key ${i}`);
const changeFeedPolicy = new ChangeFeedPolicy(ChangeFeedRetentionTimeSpan.fromMinutes(10));

const feed = (container, changeFeedStartFrom, options = {}) =>
  container.items.getChangeFeedIterator({ changeFeedStartFrom, ...options });

/** write makes one item a key; their ids begin with the name of the round. */
async function write(container, round) {
  for (const pk of keys) await container.items.create({ id: `${round} ${pk}`, pk });
  return keys.map((pk) => `${round} ${pk}`);
}

/** ids of the changes, sorted: each is there as often as it was read. */
const ids = (result) => sorted(names(result.changes));

/** ranges are the range ids of a container, as a new client sees them. */
async function ranges(container) {
  const { resources } = await again(container).readPartitionKeyRanges().fetchAll();
  return resources;
}

test("a split makes two children that tile the parent and name it", async () => {
  const c = await container(db, "children");
  const [parent] = await ranges(c);
  assert.deepEqual([parent.id, parent.minInclusive, parent.maxExclusive], ["0", "", "FF"]);
  await repartition(c, { operation: "split", id: "0", at: "20" });
  const children = await ranges(c);
  assert.deepEqual(children.map((r) => [r.minInclusive, r.maxExclusive, r.parents]), [["", "20", ["0"]], ["20", "FF", ["0"]]]);
  assert.equal(new Set([parent, ...children].map((r) => r.id)).size, 3);
});

for (const [who, next] of [["the same iterator", (c, r) => r.iterator], ["another client with the token", (c, r) => feed(again(c), ChangeFeedStartFrom.Continuation(r.token))]]) {
  test(`${who} goes on after splits and a merge`, async () => {
    const c = await container(db, `goes on ${who}`);
    const iterator = feed(c, ChangeFeedStartFrom.Beginning());
    const first = await write(c, "first");
    const before = await drain(iterator);
    assert.deepEqual(ids(before), sorted(first));

    const between = await write(c, "between");
    await repartition(c, { operation: "split", id: "0" });
    const after = await write(c, "after");
    const split = await drain(next(c, { iterator, token: before.token }));
    assert.deepEqual(ids(split), sorted([...between, ...after]));

    const children = await ranges(c);
    await repartition(c, { operation: "split", id: children[1].id });
    const deeper = await write(c, "deeper");
    const grand = await drain(next(c, { iterator, token: split.token }));
    assert.deepEqual(ids(grand), sorted(deeper));

    const three = await ranges(c);
    assert.equal(three.length, 3);
    await repartition(c, { operation: "merge", ids: [three[0].id, three[1].id] });
    const merged = await write(c, "merged");
    assert.deepEqual(ids(await drain(next(c, { iterator, token: grand.token }))), sorted(merged));
    assert.equal((await ranges(c)).length, 2);
    const all = await drain(feed(again(c), ChangeFeedStartFrom.Beginning()));
    assert.deepEqual(ids(all), sorted([...first, ...between, ...after, ...deeper, ...merged]));
  });
}

test("a split in the middle of pages", async () => {
  const c = await container(db, "middle");
  const want = [...await write(c, "one"), ...await write(c, "two"), ...await write(c, "three")];
  const iterator = feed(c, ChangeFeedStartFrom.Beginning(), { maxItemCount: 5 });
  const first = await iterator.readNext();
  assert.equal(first.count, 5);
  await repartition(c, { operation: "split", id: "0" });
  const rest = await drain(iterator);
  assert.deepEqual(sorted([...names(first.result), ...ids(rest)]), sorted(want));
  for (const pk of keys) {
    const rounds = [...first.result, ...rest.changes].filter((d) => d.pk === pk).map((d) => d.id.split(" ")[0]);
    assert.deepEqual(rounds, ["one", "two", "three"]);
  }
});

test("a feed range from before the split", async () => {
  const c = await container(db, "old-range");
  const [whole] = await c.getFeedRanges();
  const first = await write(c, "first");
  const before = await drain(feed(c, ChangeFeedStartFrom.Beginning(whole)));
  assert.deepEqual(ids(before), sorted(first));
  await repartition(c, { operation: "split", id: "0" });
  const second = await write(c, "second");
  assert.deepEqual(ids(await drain(feed(c, ChangeFeedStartFrom.Continuation(before.token)))), sorted(second));
  assert.deepEqual(ids(await drain(feed(c, ChangeFeedStartFrom.Beginning(whole)))), sorted([...first, ...second]));
});

test("one key goes on after a split", async () => {
  const c = await container(db, "one-key");
  await write(c, "first");
  const { token } = await drain(feed(c, ChangeFeedStartFrom.Beginning("key 3")));
  await repartition(c, { operation: "split", id: "0" });
  await write(c, "second");
  assert.deepEqual(ids(await drain(feed(again(c), ChangeFeedStartFrom.Continuation(token)))), ["second key 3"]);
});

test("from now, then split: the children go on from there", async () => {
  const c = await container(db, "from-now");
  await write(c, "before");
  const iterator = feed(c, ChangeFeedStartFrom.Now());
  assert.equal((await iterator.readNext()).statusCode, 304);
  const between = await write(c, "between");
  await repartition(c, { operation: "split", id: "0" });
  assert.deepEqual(ids(await drain(iterator)), sorted(between));
});

test("all versions and deletes over a split", async () => {
  const c = await container(db, "versions", { changeFeedPolicy });
  const iterator = feed(c, ChangeFeedStartFrom.Now(), { changeFeedMode: ChangeFeedMode.AllVersionsAndDeletes });
  assert.equal((await iterator.readNext()).statusCode, 304);
  await write(c, "it");
  await repartition(c, { operation: "split", id: "0" });
  for (const pk of keys) await c.item(`it ${pk}`, pk).delete();
  const { changes } = await drain(iterator);
  assert.equal(changes.length, 2 * keys.length);
  for (const pk of keys) {
    const of = changes.filter((change) => (change.metadata.id ?? change.current.id) === `it ${pk}`);
    assert.deepEqual(of.map((change) => change.metadata.operationType), ["create", "delete"]);
  }
});

test("queries, reads and tokens of queries survive a split", async () => {
  const c = await container(db, "queries");
  const want = await write(c, "item");
  const page = await c.items.query("SELECT * FROM c WHERE c.pk = 'key 1' OR c.pk != 'key 1'", { maxItemCount: 5 }).fetchNext();
  assert.equal(page.resources.length, 5);
  await repartition(c, { operation: "split", id: "0" });
  const rest = await c.items.query("SELECT * FROM c WHERE c.pk = 'key 1' OR c.pk != 'key 1'", { continuationToken: page.continuationToken }).fetchAll();
  assert.deepEqual(sorted([...names(page.resources), ...names(rest.resources)]), sorted(want));
  assert.deepEqual(names((await c.items.query("SELECT * FROM c ORDER BY c.id").fetchAll()).resources), sorted(want));
  for (const pk of keys) assert.equal((await c.item(`item ${pk}`, pk).read()).statusCode, 200);
});

test("a split or merge that makes no sense is refused", async () => {
  const c = await container(db, "nonsense");
  for (const request of [{ operation: "split", id: "7" }, { operation: "merge", ids: ["0"] }, { operation: "fold" }]) {
    await assert.rejects(repartition(c, request), /^AssertionError.* 4\d\d /);
  }
  assert.equal((await ranges(c)).length, 1);
});
