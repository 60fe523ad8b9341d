// Atomic batches within one partition key.

import assert from "node:assert/strict";
import test from "node:test";
import { ChangeFeedStartFrom } from "@azure/cosmos";
import { container, database, drain, names, plain } from "./account.mjs";

const items = await container(await database("js-batch"), "items");
const statuses = (answer) => answer.result.map((r) => r.statusCode);

test("all six operations in one transaction", async () => {
  const pk = "six";
  await items.items.create({ id: "old", pk, n: 1 });
  await items.items.create({ id: "gone", pk });
  const answer = await items.items.batch([
    { operationType: "Create", resourceBody: { id: "new", pk, n: 1 } },
    { operationType: "Upsert", resourceBody: { id: "up", pk, n: 2 } },
    { operationType: "Replace", id: "old", resourceBody: { id: "old", pk, n: 3 } },
    { operationType: "Patch", id: "new", resourceBody: { operations: [{ op: "incr", path: "/n", value: 10 }] } },
    { operationType: "Read", id: "new" },
    { operationType: "Delete", id: "gone" },
  ], pk);
  assert.equal(answer.code, 200);
  assert.deepEqual(statuses(answer), [201, 201, 200, 200, 200, 204]);
  assert.deepEqual(answer.result.slice(0, 5).map((r) => r.resourceBody.n), [1, 2, 3, 11, 11]);
  assert.equal(answer.result[5].resourceBody, undefined);
  for (const r of answer.result) assert.ok(r.requestCharge > 0);
  assert.equal(answer.result[4].eTag, (await items.item("new", pk).read()).etag);
  assert.deepEqual(names((await items.items.query("SELECT * FROM c ORDER BY c.id", { partitionKey: pk }).fetchAll()).resources), ["new", "old", "up"]);
});

test("one failure undoes the rest: 207 with 424 around the culprit", async () => {
  const pk = "undone";
  await items.items.create({ id: "taken", pk });
  const answer = await items.items.batch([
    { operationType: "Create", resourceBody: { id: "before", pk } },
    { operationType: "Create", resourceBody: { id: "taken", pk } },
    { operationType: "Create", resourceBody: { id: "after", pk } },
  ], pk);
  assert.equal(answer.code, 207);
  assert.deepEqual(statuses(answer), [424, 409, 424]);
  assert.deepEqual(names((await items.items.readAll({ partitionKey: pk }).fetchAll()).resources), ["taken"]);
});

test("each kind of failure keeps its status", async () => {
  const pk = "failures";
  const { etag } = await items.items.create({ id: "here", pk, n: 1 });
  await items.items.upsert({ id: "here", pk, n: 2 });
  const failing = [
    [{ operationType: "Read", id: "absent" }, 404],
    [{ operationType: "Delete", id: "absent" }, 404],
    [{ operationType: "Replace", id: "absent", resourceBody: { id: "absent", pk } }, 404],
    [{ operationType: "Replace", id: "here", ifMatch: etag, resourceBody: { id: "here", pk } }, 412],
    [{ operationType: "Patch", id: "here", resourceBody: { condition: "from c where c.n = 1", operations: [{ op: "set", path: "/n", value: 3 }] } }, 412],
    [{ operationType: "Patch", id: "here", resourceBody: { operations: [{ op: "remove", path: "/absent" }] } }, 400],
  ];
  for (const [operation, status] of failing) {
    const answer = await items.items.batch([{ operationType: "Upsert", resourceBody: { id: "other", pk } }, operation], pk);
    assert.deepEqual([answer.code, ...statuses(answer)], [207, 424, status], operation.operationType);
  }
  assert.deepEqual((await items.items.readAll({ partitionKey: pk }).fetchAll()).resources.map(plain), [{ id: "here", pk, n: 2 }]);
});

test("ifMatch lets through what is current", async () => {
  const pk = "match";
  const { etag } = await items.items.create({ id: "here", pk });
  const answer = await items.items.batch([{ operationType: "Upsert", ifMatch: etag, resourceBody: { id: "here", pk, n: 1 } }], pk);
  assert.deepEqual([answer.code, ...statuses(answer)], [200, 200]);
});

test("no bodies when none are wanted", async () => {
  const pk = "minimal";
  const answer = await items.items.batch([
    { operationType: "Create", resourceBody: { id: "a", pk } },
    { operationType: "Upsert", resourceBody: { id: "b", pk } },
  ], pk, { contentResponseOnWriteEnabled: false });
  assert.deepEqual(answer.result.map((r) => [r.statusCode, r.resourceBody]), [[201, undefined], [201, undefined]]);
  assert.equal(answer.result[1].eTag, (await items.item("b", pk).read()).etag);
});

test("a hundred operations are one transaction, which the change feed does not cut", async () => {
  const pk = "hundred";
  const ids = Array.from({ length: 100 }, (_, i) => `i${i}`);
  const answer = await items.items.batch(ids.map((id) => ({ operationType: "Create", resourceBody: { id, pk } })), pk);
  assert.equal(answer.code, 200);
  const { changes, pages } = await drain(items.items.getChangeFeedIterator({ maxItemCount: 10, changeFeedStartFrom: ChangeFeedStartFrom.Beginning(pk) }));
  assert.deepEqual(names(changes), ids);
  assert.deepEqual(pages, [100]);
  assert.equal(new Set(changes.map((c) => c._lsn)).size, 1);
});

test("an operation whose body has another partition key fails the batch", async () => {
  const body = (id, pk) => ({ operationType: "Create", resourceBody: { id, pk } });
  const answer = await items.items.batch([body("good", "here"), body("bad", "elsewhere")], "here");
  assert.deepEqual([answer.code, ...statuses(answer)], [207, 424, 400]);
  assert.equal((await items.item("good", "here").read()).statusCode, 404);
});
