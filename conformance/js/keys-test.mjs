// Hierarchical partition keys: points need all levels, queries and feeds may name the first few.

import assert from "node:assert/strict";
import { before, test } from "node:test";
import { ChangeFeedStartFrom } from "@azure/cosmos";
import { container, database, drain, names, plain, sorted } from "./account.mjs";

const db = await database("js-keys");
const partitionKey = { paths: ["/tenant", "/user", "/session"], kind: "MultiHash", version: 2 };
const docs = Array.from({ length: 24 }, (_, i) => ({
  id: `d${String(i).padStart(2, "0")}`, tenant: `t${i % 2}`, user: `u${i % 4}`, session: i % 8, n: i,
}));
const keyOf = (d) => [d.tenant, d.user, d.session];
const places = {};

before(async () => {
  for (const [name, throughput] of [["one range", 10_000], ["three ranges", 30_000]]) {
    places[name] = await container(db, name, { partitionKey, throughput });
    for (const doc of docs) await places[name].items.create(doc);
  }
});

test("the definition is kept", async () => {
  const { resource } = await places["one range"].getPartitionKeyDefinition();
  assert.deepEqual(resource, partitionKey);
});

for (const place of ["one range", "three ranges"]) {
  test(`points by all levels (${place})`, async () => {
    for (const doc of docs) assert.deepEqual(plain((await places[place].item(doc.id, keyOf(doc)).read()).resource), doc);
    assert.equal((await places[place].item("d00", ["t0", "u0", 4]).read()).statusCode, 404);
  });

  test(`queries by one, two and all levels (${place})`, async () => {
    for (const partitionKey of [["t1"], ["t1", "u3"], ["t1", "u3", 7], ["t9"]]) {
      const want = names(docs.filter((d) => partitionKey.every((v, i) => keyOf(d)[i] === v)));
      const { resources } = await places[place].items.query("SELECT * FROM c", { partitionKey }).fetchAll();
      assert.deepEqual(sorted(names(resources)), want, `${partitionKey}`);
      const { resources: few } = await places[place].items.query("SELECT VALUE c.n FROM c WHERE c.n > 10", { partitionKey, maxItemCount: 2 }).fetchAll();
      assert.deepEqual(few.sort((a, b) => a - b), docs.filter((d) => d.n > 10 && want.includes(d.id)).map((d) => d.n), `${partitionKey}`);
    }
  });

  test(`queries whose filter names levels (${place})`, async () => {
    const { resources } = await places[place].items.query("SELECT * FROM c WHERE c.tenant = 't0' AND c.user = 'u2' AND c.session = 6").fetchAll();
    assert.deepEqual(names(resources), ["d06", "d14", "d22"]);
    const { resources: wide } = await places[place].items.query("SELECT * FROM c WHERE c.tenant = 't0'").fetchAll();
    assert.deepEqual(sorted(names(wide)), names(docs.filter((d) => d.tenant === "t0")));
  });

  test(`the change feed by one, two and all levels (${place})`, async () => {
    for (const key of [["t1"], ["t1", "u3"], ["t1", "u3", 7]]) {
      const want = names(docs.filter((d) => key.every((v, i) => keyOf(d)[i] === v)));
      const { changes } = await drain(places[place].items.getChangeFeedIterator({ changeFeedStartFrom: ChangeFeedStartFrom.Beginning(key) }));
      assert.deepEqual(sorted(names(changes)), want, `${key}`);
    }
  });
}

test("a batch in a hierarchical key", async () => {
  const key = ["batch", "u", 1];
  const body = { tenant: "batch", user: "u", session: 1 };
  const answer = await places["three ranges"].items.batch([
    { operationType: "Create", resourceBody: { id: "a", ...body } },
    { operationType: "Upsert", resourceBody: { id: "b", ...body } },
    { operationType: "Read", id: "a" },
  ], key);
  assert.deepEqual([answer.code, ...answer.result.map((r) => r.statusCode)], [200, 201, 201, 200]);
});
