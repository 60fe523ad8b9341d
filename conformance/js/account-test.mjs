// The account, its databases and its containers.

import assert from "node:assert/strict";
import test, { after } from "node:test";
import { CosmosClient } from "@azure/cosmos";
import { connect, container, database, endpoint, names, sorted } from "./account.mjs";

const client = connect();
const db = await database("js-account");

test("the account names the address that the client used", async () => {
  const { resource } = await client.getDatabaseAccount();
  for (const [location] of [resource.writableLocations, resource.readableLocations]) {
    assert.equal(new URL(location.databaseAccountEndpoint).origin, new URL(endpoint).origin);
  }
  assert.equal(resource.enableMultipleWritableLocations, false);
  assert.equal(await client.getReadEndpoint(), await client.getWriteEndpoint());
});

test("a wrong key is a 401", async () => {
  const stranger = new CosmosClient({ endpoint, key: Buffer.from("another key").toString("base64") });
  await assert.rejects(stranger.databases.readAll().fetchAll(), { code: 401 });
});

test("databases: create, read, list, query, delete", async () => {
  const id = "js-account ünï";
  const made = await client.databases.create({ id });
  assert.deepEqual([made.statusCode, made.resource.id], [201, id]);
  assert.equal(made.resource._self, `dbs/${made.resource._rid}/`);
  await assert.rejects(client.databases.create({ id }), { code: 409 });
  const { resource } = await client.database(id).read();
  assert.deepEqual(resource, made.resource);
  const all = names((await client.databases.readAll().fetchAll()).resources);
  assert.deepEqual(all.filter((name) => name.startsWith("js-account")), ["js-account", id]);
  const query = { query: "SELECT * FROM root r WHERE r.id = @id", parameters: [{ name: "@id", value: id }] };
  assert.deepEqual((await client.databases.query(query).fetchAll()).resources, [resource]);
  assert.equal((await client.database(id).delete()).statusCode, 204);
  await assert.rejects(client.database(id).read(), { code: 404 });
  await assert.rejects(client.database(id).delete(), { code: 404 });
});

test("createIfNotExists creates once", async () => {
  const id = "js-account-once";
  after(() => client.database(id).delete());
  assert.equal((await client.databases.createIfNotExists({ id })).statusCode, 201);
  const { statusCode, database } = await client.databases.createIfNotExists({ id });
  assert.equal(statusCode, 200);
  const definition = { id: "c", partitionKey: "/pk" };
  assert.equal((await database.containers.createIfNotExists(definition)).statusCode, 201);
  assert.equal((await database.containers.createIfNotExists(definition)).statusCode, 200);
});

test("a container keeps what it was made with", async () => {
  const definition = {
    id: "kept ünï",
    partitionKey: { paths: ["/a/b"], kind: "Hash", version: 2 },
    defaultTtl: 3600,
    uniqueKeyPolicy: { uniqueKeys: [{ paths: ["/mail"] }] },
    indexingPolicy: {
      indexingMode: "consistent",
      automatic: true,
      includedPaths: [{ path: "/*" }],
      excludedPaths: [{ path: '/"_etag"/?' }, { path: "/text/*" }],
      compositeIndexes: [[{ path: "/x", order: "ascending" }, { path: "/y", order: "descending" }]],
    },
    conflictResolutionPolicy: { mode: "LastWriterWins", conflictResolutionPath: "/_ts", conflictResolutionProcedure: "" },
    computedProperties: [{ name: "lower", query: "SELECT VALUE LOWER(c.name) FROM c" }],
  };
  const { statusCode, resource } = await db.containers.create(definition);
  assert.equal(statusCode, 201);
  for (const [name, value] of Object.entries(definition)) assert.deepEqual(resource[name], value, name);
  assert.deepEqual((await db.container(definition.id).read()).resource, resource);
  assert.equal(resource._self, `${(await db.read()).resource._self}colls/${resource._rid}/`);
  await assert.rejects(db.containers.create(definition), { code: 409 });
});

test("containers: list, query, replace, delete", async () => {
  const { database: own } = await client.databases.create({ id: "js-account-containers" });
  after(() => own.delete());
  for (const id of ["one", "two", "three"]) await container(own, id);
  assert.deepEqual(sorted(names((await own.containers.readAll().fetchAll()).resources)), ["one", "three", "two"]);
  const pages = [];
  for await (const { resources } of own.containers.readAll({ maxItemCount: 2 }).getAsyncIterator()) pages.push(resources.length);
  assert.deepEqual(pages.filter((count) => count > 0), [2, 1]);
  const query = { query: "SELECT * FROM c WHERE c.id = @id", parameters: [{ name: "@id", value: "two" }] };
  assert.deepEqual(names((await own.containers.query(query).fetchAll()).resources), ["two"]);

  const two = own.container("two");
  const { resource, etag } = await two.read();
  const indexingPolicy = { indexingMode: "none", automatic: false, includedPaths: [], excludedPaths: [] };
  const accessCondition = { type: "IfMatch", condition: etag };
  const replaced = await two.replace({ ...resource, indexingPolicy }, { accessCondition });
  assert.equal(replaced.statusCode, 200);
  assert.equal(replaced.resource.indexingPolicy.indexingMode, "none");
  assert.equal(replaced.resource._rid, resource._rid);
  await assert.rejects(two.replace({ ...resource, defaultTtl: 5 }, { accessCondition }), { code: 412 });
  await assert.rejects(two.replace({ ...resource, partitionKey: { paths: ["/other"], kind: "Hash" } }), { code: 400 });

  assert.equal((await two.delete()).statusCode, 204);
  await assert.rejects(two.read(), { code: 404 });
  await assert.rejects(two.items.create({ id: "1", pk: "a" }), { code: 404 });
  assert.deepEqual(sorted(names((await own.containers.readAll().fetchAll()).resources)), ["one", "three"]);
});

test("a container made anew is another one, and empty", async () => {
  const old = await container(db, "anew");
  await old.items.create({ id: "1", pk: "a" });
  const before = (await old.read()).resource._rid;
  await old.delete();
  const made = await container(db, "anew");
  assert.notEqual((await made.read()).resource._rid, before);
  assert.deepEqual((await made.items.readAll().fetchAll()).resources, []);
});

test("names and definitions that cannot be are a 400", async () => {
  await assert.rejects(client.databases.create({ id: "x".repeat(256) }), { code: 400 });
  for (const partitionKey of [{ paths: [] }, { paths: ["pk"] }, { paths: ["/a", "/b"], kind: "Hash" }, { paths: ["/a", "/b", "/c", "/d"], kind: "MultiHash", version: 2 }]) {
    await assert.rejects(db.containers.create({ id: "impossible", partitionKey }), { code: 400 }, JSON.stringify(partitionKey));
  }
  await assert.rejects(db.container("impossible").read(), { code: 404 });
});

test("what is missing is a 404 that names it", async () => {
  await assert.rejects(client.database("absent").read(), { code: 404 });
  await assert.rejects(client.database("absent").containers.create({ id: "c", partitionKey: "/pk" }), { code: 404 });
  await assert.rejects(db.container("absent").items.create({ id: "1", pk: "a" }), { code: 404 });
  await assert.rejects(db.container("absent").items.query("SELECT * FROM c").fetchAll(), { code: 404 });
});
