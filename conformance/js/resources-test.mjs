// Users, permissions and their tokens, the deletion of a partition key, conflicts, and a throughput that splits.

import assert from "node:assert/strict";
import { test } from "node:test";
import { CosmosClient, PermissionMode } from "@azure/cosmos";
import { container, database, endpoint, until } from "./account.mjs";

const db = await database("resources");

test("tokens do what the permission says", async () => {
  const c = await container(db, "permitted");
  await c.items.create({ id: "1", pk: "a" });
  await c.items.create({ id: "2", pk: "b" });
  const { user } = await db.users.create({ id: "ada" });
  assert.deepEqual((await db.users.readAll().fetchAll()).resources.map((u) => u.id), ["ada"]);
  const resource = c.url;
  const { resource: reads } = await user.permissions.create({ id: "reads", permissionMode: PermissionMode.Read, resource });
  await assert.rejects(user.permissions.create({ id: "again", permissionMode: PermissionMode.All, resource }), { code: 409 });
  const seen = (options) => new CosmosClient({ endpoint, ...options }).database(db.id).container(c.id);
  for (const reader of [seen({ resourceTokens: { [resource]: reads._token } }), seen({ permissionFeed: [reads] })]) {
    assert.equal((await reader.item("1", "a").read()).resource.id, "1");
    assert.equal((await reader.items.query("SELECT * FROM c").fetchAll()).resources.length, 2);
    await assert.rejects(reader.items.create({ id: "3", pk: "a" }), { code: 403 });
    await assert.rejects(reader.item("1", "a").delete(), { code: 403 });
  }
  const { resource: writes } = await user.permission("reads").replace({
    id: "writes", permissionMode: PermissionMode.All, resource, resourcePartitionKey: ["a"],
  });
  const writer = seen({ resourceTokens: { [resource]: writes._token } });
  await writer.items.create({ id: "3", pk: "a" });
  await assert.rejects(writer.items.create({ id: "4", pk: "b" }), { code: 403 });
  await assert.rejects(writer.item("2", "b").read(), { code: 403 });
  await user.permission("writes").delete();
  await assert.rejects(user.permission("writes").read(), { code: 404 });
  await user.delete();
  assert.deepEqual((await db.users.readAll().fetchAll()).resources, []);
});

test("all items of a key are deleted", async () => {
  const c = await container(db, "emptied");
  for (const item of [{ id: "1", pk: "a" }, { id: "2", pk: "a" }, { id: "3", pk: "b" }]) await c.items.create(item);
  await c.deleteAllItemsForPartitionKey("a");
  assert.deepEqual((await c.items.readAll().fetchAll()).resources.map((item) => item.id), ["3"]);
  assert.deepEqual((await c.conflicts.readAll().fetchAll()).resources, []);
});

test("an id with a question mark is read", async () => {
  const c = await container(db, "questions");
  await c.items.create({ id: "a?b", pk: "a" });
  assert.equal((await c.item("a?b", "a").read()).resource.id, "a?b");
});

test("a higher throughput splits", async () => {
  const c = await container(db, "grows", {}, {});
  await c.items.create({ id: "1", pk: "a" });
  const { resource, offer } = await c.readOffer();
  assert.equal(resource.content.offerThroughput, 400);
  await offer.replace({ ...resource, content: { ...resource.content, offerThroughput: 20_100 } });
  await until(async () => !(await offer.read()).resource.content.isOfferReplacePending);
  assert.equal((await c.readPartitionKeyRanges().fetchAll()).resources.length, 3);
  assert.equal((await c.items.query("SELECT * FROM c").fetchAll()).resources.length, 1);
});
