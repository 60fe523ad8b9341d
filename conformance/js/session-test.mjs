// Session consistency: a client reads its own writes, and a token from the future is refused.

import assert from "node:assert/strict";
import test from "node:test";
import { again, container, database, names, repartition } from "./account.mjs";

const db = await database("js-session");
const session = { consistencyLevel: "Session" };
const undiscovering = { connectionPolicy: { enableEndpointDiscovery: false } }; // such a client does not ask again without its token

test("a client reads its own writes", async () => {
  const c = again(await container(db, "own", { throughput: 30_000 }), session);
  for (let n = 0; n < 20; n++) {
    const pk = `key ${n % 5}`;
    await c.items.upsert({ id: "it", pk, n });
    assert.equal((await c.item("it", pk).read()).resource.n, n);
    assert.equal((await c.items.query("SELECT * FROM c", { partitionKey: pk }).fetchAll()).resources[0].n, n);
  }
  assert.equal((await c.items.query("SELECT VALUE COUNT(1) FROM c").fetchAll()).resources[0], 5);
});

test("a session token that another client passes on", async () => {
  const made = await container(db, "passed");
  const { headers } = await made.items.create({ id: "1", pk: "a" });
  const sessionToken = headers["x-ms-session-token"];
  assert.match(sessionToken, /^0:-1#[1-9][0-9]*$/);
  const { resource } = await again(made, session).item("1", "a").read({ sessionToken });
  assert.equal(resource.id, "1");
});

test("a token that is ahead of the server is a 404 of sub-status 1002", async () => {
  const made = await container(db, "ahead");
  await made.items.create({ id: "1", pk: "a" });
  const c = again(made, { ...session, ...undiscovering });
  const future = { sessionToken: "0:-1#1000000" };
  await assert.rejects(c.items.query("SELECT * FROM c", { partitionKey: "a", ...future }).fetchAll(), { code: 404, substatus: 1002 });
  const { statusCode, substatus } = await c.item("1", "a").read(future);
  assert.deepEqual([statusCode, substatus], [404, 1002]);
});

test("a client that may retry forgets such a token and reads", async () => {
  const made = await container(db, "retry");
  await made.items.create({ id: "1", pk: "a" });
  const { statusCode, resource } = await again(made, session).item("1", "a").read({ sessionToken: "0:-1#1000000" });
  assert.deepEqual([statusCode, resource.id], [200, "1"]);
});

test("tokens of several ranges, and of a parent, after a split", async () => {
  const c = again(await container(db, "split"), session);
  await c.items.create({ id: "1", pk: "a" });
  await repartition(c, { operation: "split", id: "0" });
  for (const pk of ["a", "b", "c", "d"]) await c.items.create({ id: "2", pk });
  assert.deepEqual(names((await c.items.query("SELECT * FROM c", { partitionKey: "a" }).fetchAll()).resources), ["1", "2"]);
  assert.equal((await c.item("2", "d").read()).statusCode, 200);
});

for (const consistencyLevel of ["Eventual", "ConsistentPrefix"]) {
  test(`a client of consistency ${consistencyLevel} is served`, async () => {
    const c = again(await container(db, consistencyLevel), { consistencyLevel });
    await c.items.create({ id: "1", pk: "a" });
    assert.equal((await c.item("1", "a").read()).resource.id, "1");
    assert.deepEqual(names((await c.items.readAll().fetchAll()).resources), ["1"]);
  });
}

for (const consistencyLevel of ["BoundedStaleness", "Strong"]) {
  test(`a client of consistency ${consistencyLevel}, which is above the account's, is refused`, async () => {
    const c = again(await container(db, consistencyLevel), { consistencyLevel });
    await assert.rejects(c.items.create({ id: "1", pk: "a" }), { code: 400, message: /not stronger than the service consistency level/ });
  });
}
