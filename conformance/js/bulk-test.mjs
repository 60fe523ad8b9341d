// Bulk: many operations of many keys. The SDK hashes the keys itself and asks range by range, so the server's
// ranges have to agree with its hash.

import assert from "node:assert/strict";
import test from "node:test";
import { again, container, database, names, plain, repartition, sorted } from "./account.mjs";

const db = await database("js-bulk");
const threeRanges = { throughput: 30_000 };

/** documents are of many keys, each of which a few share. */
const documents = (count, pk = (i) => `key ${i % 37}`) =>
  Array.from({ length: count }, (_, i) => ({ id: `d${String(i).padStart(4, "0")}`, pk: pk(i), n: i }));

const creates = (docs) => docs.map((resourceBody) => ({ operationType: "Create", partitionKey: resourceBody.pk, resourceBody }));

/** stored is what a container holds, by id. */
const stored = async (container) =>
  sorted((await container.items.readAll().fetchAll()).resources.map(plain).map((d) => JSON.stringify(d))).map((text) => JSON.parse(text));

test("items.bulk writes 500 documents over three ranges", async () => {
  const many = await container(db, "bulk", threeRanges);
  assert.equal((await many.getFeedRanges()).length, 3);
  const docs = documents(500);
  for (let i = 0; i < docs.length; i += 100) {
    const answers = await many.items.bulk(creates(docs.slice(i, i + 100)));
    assert.deepEqual(answers.map((a) => a.statusCode), Array(100).fill(201));
    assert.deepEqual(answers.map((a) => plain(a.resourceBody)), docs.slice(i, i + 100));
  }
  assert.deepEqual(await stored(many), docs);
});

test("executeBulkOperations writes 500 documents over three ranges", async () => {
  const many = await container(db, "execute", threeRanges);
  const docs = documents(500);
  const results = await many.items.executeBulkOperations(creates(docs));
  assert.deepEqual(results.map((r) => r.error ?? r.response.statusCode), Array(500).fill(201));
  assert.deepEqual(await stored(many), docs);
});

const keyed = {
  "hash version 1": { partitionKey: { paths: ["/pk"], version: 1 }, pk: (i) => [`text ${i}`, i, -i / 3, `${"long ".repeat(40)}${i}`][i % 4] },
  "hash version 2": { partitionKey: { paths: ["/pk"], version: 2 }, pk: (i) => [`ünï ${i}`, i, i * 1e10, i % 8 === 3, null, `${"long ".repeat(40)}${i}`][i % 6] },
};
for (const [name, { partitionKey, pk }] of Object.entries(keyed)) {
  test(`the ranges agree with the SDK's ${name}`, async () => {
    const many = await container(db, name, { partitionKey, ...threeRanges });
    const docs = documents(120, pk);
    const results = await many.items.executeBulkOperations(creates(docs));
    assert.deepEqual(results.map((r) => r.error ?? r.response.statusCode), Array(docs.length).fill(201));
    assert.deepEqual(await stored(many), docs);
    for (const doc of docs) assert.deepEqual(plain((await many.item(doc.id, doc.pk).read()).resource), doc);
  });
}

test("the ranges agree with the SDK's hash of hierarchical keys", async () => {
  const partitionKey = { paths: ["/tenant", "/user", "/session"], kind: "MultiHash", version: 2 };
  const many = await container(db, "hierarchical", { partitionKey, ...threeRanges });
  const docs = Array.from({ length: 120 }, (_, i) => ({ id: `d${String(i).padStart(4, "0")}`, tenant: `t${i % 7}`, user: i % 11, session: `s${i}` }));
  const operations = docs.map((resourceBody) => ({ operationType: "Create", resourceBody, partitionKey: [resourceBody.tenant, resourceBody.user, resourceBody.session] }));
  const results = await many.items.executeBulkOperations(operations);
  assert.deepEqual(results.map((r) => r.error ?? r.response.statusCode), Array(docs.length).fill(201));
  assert.deepEqual(await stored(many), docs);
});

const mixed = (etag) => [
  [{ operationType: "Create", partitionKey: "b", resourceBody: { id: "new", pk: "b" } }, 201],
  [{ operationType: "Create", partitionKey: "a", resourceBody: { id: "here", pk: "a" } }, 409],
  [{ operationType: "Upsert", partitionKey: "a", resourceBody: { id: "here", pk: "a", n: 2 } }, 200],
  [{ operationType: "Read", id: "here", partitionKey: "a" }, 200],
  [{ operationType: "Read", id: "absent", partitionKey: "c" }, 404],
  [{ operationType: "Replace", id: "here", partitionKey: "a", ifMatch: etag, resourceBody: { id: "here", pk: "a", n: 3 } }, 412],
  [{ operationType: "Replace", id: "here", partitionKey: "a", resourceBody: { id: "here", pk: "a", n: 4 } }, 200],
  [{ operationType: "Patch", id: "here", partitionKey: "a", resourceBody: { operations: [{ op: "incr", path: "/n", value: 1 }] } }, 200],
  [{ operationType: "Delete", id: "gone", partitionKey: "d" }, 204],
  [{ operationType: "Delete", id: "gone", partitionKey: "e" }, 404],
];

for (const call of ["bulk", "executeBulkOperations"]) {
  test(`${call} tells for each operation how it went, and goes on`, async () => {
    const few = await container(db, `mixed ${call}`, threeRanges);
    const { etag } = await few.items.create({ id: "here", pk: "a", n: 1 });
    await few.items.create({ id: "gone", pk: "d" });
    const operations = mixed(etag);
    const answers = await few.items[call](operations.map(([operation]) => operation));
    const statuses = answers.map((a) => a.statusCode ?? a.response?.statusCode ?? a.error.code);
    assert.deepEqual(statuses, operations.map(([, status]) => status));
    assert.deepEqual(await stored(few), [{ id: "here", pk: "a", n: 5 }, { id: "new", pk: "b" }]);
  });

  test(`${call} finds the children of a range that was split`, async () => {
    const grown = await container(db, `split ${call}`);
    const docs = documents(60);
    await grown.items[call](creates(docs.slice(0, 30)));
    await repartition(grown, { operation: "split", id: "0" });
    const answers = await grown.items[call](creates(docs.slice(30)));
    assert.deepEqual(answers.map((a) => a.statusCode ?? a.response?.statusCode ?? a.error), Array(30).fill(201));
    assert.deepEqual(await stored(grown), docs);
    assert.equal((await again(grown).getFeedRanges()).length, 2);
  });
}

test("items of one key keep the order in which a bulk call names them", async () => {
  const ordered = await container(db, "ordered", threeRanges);
  const docs = documents(100, () => "one");
  await ordered.items.bulk(creates(docs));
  assert.deepEqual(names((await ordered.items.readAll({ partitionKey: "one" }).fetchAll()).resources), names(docs));
});
