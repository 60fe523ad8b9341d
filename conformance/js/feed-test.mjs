// The change feed of latest versions: from the beginning, from now, from a time; of a container, a key, a feed range.

import assert from "node:assert/strict";
import test from "node:test";
import { ChangeFeedMode, ChangeFeedStartFrom } from "@azure/cosmos";
import { again, container, database, drain, names, plain, sorted, until } from "./account.mjs";

const db = await database("js-feed");
const keys = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];

/** feed is an iterator over a container's changes. */
const feed = (container, changeFeedStartFrom, options = {}) =>
  container.items.getChangeFeedIterator({ changeFeedStartFrom, ...options });

/** resume goes on from a token with a client that knows nothing else. */
const resume = (container, token, options) => feed(again(container), ChangeFeedStartFrom.Continuation(token), options);

/** within copies a feed range with other ends, which the SDK has no constructor for. */
const within = (range, ends) => Object.assign(Object.create(Object.getPrototypeOf(range)), range, ends);

for (const [place, throughput] of [["one range", 10_000], ["three ranges", 30_000]]) {
  test(`a container of ${place}`, async (t) => {
    const c = await container(db, place, { throughput });
    const now = feed(c, ChangeFeedStartFrom.Now());
    assert.equal((await now.readNext()).statusCode, 304);
    const docs = keys.flatMap((pk) => [1, 2, 3].map((n) => ({ id: `${pk}${n}`, pk, n })));
    for (const doc of docs) await c.items.create(doc);

    await t.test("from the beginning: every item once, each key in the order of its writes", async () => {
      const { changes } = await drain(feed(c, ChangeFeedStartFrom.Beginning()));
      assert.deepEqual(changes.map(plain).sort((x, y) => (x.id < y.id ? -1 : 1)), docs);
      for (const pk of keys) assert.deepEqual(names(changes.filter((d) => d.pk === pk)), [1, 2, 3].map((n) => `${pk}${n}`));
      for (const change of changes) assert.equal(change._etag, (await c.item(change.id, change.pk).read()).etag);
    });

    await t.test("from now: what came after the first read", async () => {
      const { changes } = await drain(now);
      assert.deepEqual(sorted(names(changes)), names(docs));
      assert.deepEqual((await drain(feed(c, ChangeFeedStartFrom.Now()))).changes, []);
    });

    await t.test("in pages, which together are the whole", async () => {
      const { changes, pages } = await drain(feed(c, ChangeFeedStartFrom.Beginning(), { maxItemCount: 4 }));
      assert.deepEqual(sorted(names(changes)), names(docs));
      for (const count of pages) assert.ok(count >= 1 && count <= 4, `a page of ${count}`);
    });

    await t.test("page by page, each resumed from the token of the last by another client", async () => {
      const seen = [];
      let page = await feed(c, ChangeFeedStartFrom.Beginning(), { maxItemCount: 2 }).readNext();
      for (; page.statusCode === 200; page = await resume(c, page.continuationToken, { maxItemCount: 2 }).readNext()) seen.push(...page.result);
      assert.deepEqual(sorted(names(seen)), names(docs));
    });

    await t.test("one partition key", async () => {
      const { changes, token } = await drain(feed(c, ChangeFeedStartFrom.Beginning("d"), { maxItemCount: 2 }));
      assert.deepEqual(names(changes), ["d1", "d2", "d3"]);
      await c.items.upsert({ id: "d2", pk: "d", n: 20 });
      await c.items.upsert({ id: "e2", pk: "e", n: 20 });
      assert.deepEqual((await drain(resume(c, token))).changes.map(plain), [{ id: "d2", pk: "d", n: 20 }]);
      assert.deepEqual(names((await drain(feed(c, ChangeFeedStartFrom.Beginning("d")))).changes), ["d1", "d3", "d2"]);
      assert.deepEqual((await drain(feed(c, ChangeFeedStartFrom.Beginning("absent")))).changes, []);
    });

    await t.test("the feed ranges, and parts of them, share the container without overlap", async () => {
      const ranges = await c.getFeedRanges();
      const whole = await Promise.all(ranges.map((r) => drain(feed(c, ChangeFeedStartFrom.Beginning(r)))));
      assert.deepEqual(sorted(names(whole.flatMap((r) => r.changes))), names(docs));
      const cuts = ["", "08", "10", "1A", "20", "2F", "35", "FF"];
      const parts = cuts.slice(1).map((max, i) => within(ranges[0], { minInclusive: cuts[i], maxExclusive: max }));
      const read = await Promise.all(parts.map((r) => drain(feed(c, ChangeFeedStartFrom.Beginning(r)))));
      assert.deepEqual(sorted(names(read.flatMap((r) => r.changes))), names(docs));
      assert.ok(read.filter((r) => r.changes.length > 0).length >= 3, "the keys all hash into few parts");
    });

    await t.test("an item that changes is moved to the end, once", async () => {
      const { token } = await drain(feed(c, ChangeFeedStartFrom.Beginning()));
      for (const n of [10, 11, 12]) await c.items.upsert({ id: "a1", pk: "a", n });
      await c.items.create({ id: "a4", pk: "a" });
      await c.item("a1", "a").patch([{ op: "incr", path: "/n", value: 1 }]);
      await c.item("b1", "b").delete();
      const { changes } = await drain(resume(c, token));
      assert.deepEqual(changes.map(plain), [{ id: "a4", pk: "a" }, { id: "a1", pk: "a", n: 13 }]);
    });
  });
}

test("from a time: what was written after that second", async () => {
  const c = await container(db, "time", { throughput: 30_000 });
  let last = 0;
  for (const pk of keys) last = (await c.items.create({ id: `early ${pk}`, pk })).resource._ts;
  let stamp = last;
  await until(async () => (stamp = (await c.items.upsert({ id: "probe", pk: "probe" })).resource._ts) > last);
  for (const pk of keys) await c.items.create({ id: `late ${pk}`, pk });
  const since = (seconds) => drain(feed(c, ChangeFeedStartFrom.Time(new Date(seconds * 1000)))).then((r) => sorted(names(r.changes)));
  const late = [...keys.map((pk) => `late ${pk}`), "probe"];
  assert.deepEqual(await since(last), late);
  assert.deepEqual(await since(last - 3600), sorted([...late, ...keys.map((pk) => `early ${pk}`)]));
  assert.deepEqual(await since(stamp + 3600), []);
  const { changes } = await drain(feed(c, ChangeFeedStartFrom.Time(new Date(last * 1000), "c"), { maxItemCount: 1 }));
  assert.deepEqual(names(changes), ["late c"]);
});

test("a token from a time goes on where it was", async () => {
  const c = await container(db, "time-token");
  const start = new Date(Date.now() - 3_600_000);
  await c.items.create({ id: "1", pk: "a" });
  const { token } = await drain(feed(c, ChangeFeedStartFrom.Time(start)));
  await c.items.create({ id: "2", pk: "a" });
  assert.deepEqual(names((await drain(resume(c, token))).changes), ["2"]);
});

test("a transaction is not cut into pages", async () => {
  const c = await container(db, "transaction");
  await c.items.create({ id: "0", pk: "a" });
  await c.items.batch(["1", "2", "3"].map((id) => ({ operationType: "Create", resourceBody: { id, pk: "a" } })), "a");
  const { changes, pages } = await drain(feed(c, ChangeFeedStartFrom.Beginning(), { maxItemCount: 2 }));
  assert.deepEqual(names(changes), ["0", "1", "2", "3"]);
  assert.deepEqual(new Set(changes.slice(1).map((d) => d._lsn)).size, 1);
  assert.ok(pages.includes(3) || pages.includes(4), `pages of ${pages}`);
});

test("pages of feeds and queries stay below 4 MB", async () => {
  const c = await container(db, "big");
  const ids = Array.from({ length: 9 }, (_, i) => `big ${i}`);
  for (const id of ids) await c.items.create({ id, pk: "a", text: "x".repeat(1_500_000) });
  const { changes, pages } = await drain(feed(c, ChangeFeedStartFrom.Beginning()));
  assert.deepEqual(names(changes), ids);
  assert.deepEqual(pages, [2, 2, 2, 2, 1]);
  const found = [];
  for await (const { resources } of c.items.query("SELECT * FROM c", { partitionKey: "a", maxItemCount: -1 }).getAsyncIterator()) {
    assert.ok(resources.length <= 2, `a page of ${resources.length}`);
    found.push(...names(resources));
  }
  assert.deepEqual(found, ids);
});

test("a token of another container is refused", async () => {
  const [one, two] = [await container(db, "token-one"), await container(db, "token-two")];
  const { token } = await drain(feed(one, ChangeFeedStartFrom.Beginning()));
  await assert.rejects(resume(two, token).readNext(), /continuation token is not for the current container/);
});

test("pages tell LSNs that rise, a session token and a charge", async () => {
  const c = await container(db, "headers");
  for (const id of ["1", "2", "3"]) await c.items.create({ id, pk: "a" });
  const page = await feed(c, ChangeFeedStartFrom.Beginning()).readNext();
  const lsns = page.result.map((d) => d._lsn);
  assert.deepEqual(lsns, [...new Set(lsns)].sort((a, b) => a - b));
  assert.equal(page.headers.etag, `"${lsns.at(-1)}"`);
  assert.equal(page.headers["x-ms-session-token"], `0:-1#${lsns.at(-1)}`);
  assert.equal(page.headers["x-ms-item-count"], "3");
  assert.ok(page.requestCharge > 0);
});

test("an explicit mode of latest versions, and the default start, which is now", async () => {
  const c = await container(db, "defaults");
  await c.items.create({ id: "1", pk: "a" });
  const iterator = c.items.getChangeFeedIterator({ changeFeedMode: ChangeFeedMode.LatestVersion });
  assert.equal((await iterator.readNext()).statusCode, 304);
  await c.items.create({ id: "2", pk: "a" });
  assert.deepEqual(names((await drain(iterator)).changes), ["2"]);
});

test("the older API: items.changeFeed of one key", async (t) => {
  const c = await container(db, "older", { throughput: 30_000 });
  for (const id of ["1", "2", "3"]) await c.items.create({ id, pk: "a" });
  await c.items.create({ id: "1", pk: "b" });

  await t.test("from the beginning, in pages", async () => {
    const found = [];
    for await (const page of c.items.changeFeed("a", { startFromBeginning: true, maxItemCount: 2 }).getAsyncIterator()) found.push(page.result);
    assert.deepEqual(found.map(names), [["1", "2"], ["3"]]);
  });

  await t.test("from now, then from its token", async () => {
    const now = c.items.changeFeed("a");
    const { headers, statusCode } = await now.fetchNext();
    assert.equal(statusCode, 304);
    await c.items.create({ id: "4", pk: "a" });
    await c.items.create({ id: "4", pk: "b" });
    assert.deepEqual(names((await c.items.changeFeed("a", { continuation: headers.etag }).fetchNext()).result), ["4"]);
    assert.deepEqual(names((await now.fetchNext()).result), ["4"]);
  });

  await t.test("from a time", async () => {
    const { result } = await c.items.changeFeed("b", { startTime: new Date(Date.now() - 3_600_000) }).fetchNext();
    assert.deepEqual(names(result), ["1", "4"]);
  });
});
