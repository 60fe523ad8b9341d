// Single items: create, read, upsert, replace, delete, their conditions and their refusals.

import assert from "node:assert/strict";
import test from "node:test";
import { container, database, names, plain, sorted } from "./account.mjs";

const db = await database("js-items");
const items = await container(db, "items");

test("create answers the item with its system properties", async () => {
  const { resource, statusCode, etag, headers, requestCharge } = await items.items.create({ id: "create", pk: "a", n: 1 });
  assert.equal(statusCode, 201);
  assert.deepEqual(plain(resource), { id: "create", pk: "a", n: 1 });
  assert.deepEqual(sorted(Object.keys(resource)), ["_attachments", "_etag", "_rid", "_self", "_ts", "id", "n", "pk"]);
  assert.equal(etag, resource._etag);
  assert.ok(Math.abs(Date.now() / 1000 - resource._ts) < 10, `_ts is ${resource._ts}`);
  const { resource: parent } = await items.read();
  assert.equal(headers["x-ms-content-path"], parent._rid);
  assert.ok(resource._self.startsWith(parent._self), resource._self);
  assert.ok(requestCharge > 0);
});

test("create gives an id to an item that has none", async () => {
  const { resource } = await items.items.create({ pk: "no id" });
  assert.match(resource.id, /^[0-9a-f-]{36}$/);
  assert.deepEqual((await items.item(resource.id, "no id").read()).resource, resource);
});

test("create refuses an id that is taken in its partition key", async () => {
  await items.items.create({ id: "taken", pk: "a" });
  await assert.rejects(items.items.create({ id: "taken", pk: "a" }), { code: 409 });
  assert.equal((await items.items.create({ id: "taken", pk: "b" })).statusCode, 201);
});

test("read answers what was written, byte for byte a JSON value", async () => {
  const wide = { id: "wide", pk: "a", list: [1, "two", null, { three: [] }], float: 1.5e-7, big: 9007199254740991, text: "\u0000 \u2028 \"ünï\" 😀", no: false };
  await items.items.create(wide);
  const { resource, statusCode } = await items.item("wide", "a").read();
  assert.equal(statusCode, 200);
  assert.deepEqual(plain(resource), wide);
});

test("read of what is not there is a 404", async () => {
  for (const [id, pk] of [["absent", "a"], ["wide", "other key"]]) {
    const { resource, statusCode } = await items.item(id, pk).read();
    assert.deepEqual({ resource, statusCode }, { resource: undefined, statusCode: 404 });
  }
});

test("read is a 304 while the ETag is the one given", async () => {
  const { etag } = await items.items.create({ id: "cached", pk: "a" });
  const read = () => items.item("cached", "a").read({ accessCondition: { type: "IfNoneMatch", condition: etag } });
  assert.equal((await read()).statusCode, 304);
  await items.items.upsert({ id: "cached", pk: "a", n: 2 });
  const { statusCode, resource } = await read();
  assert.equal(statusCode, 200);
  assert.equal(resource.n, 2);
});

test("upsert creates, then replaces", async () => {
  const first = await items.items.upsert({ id: "upsert", pk: "a", n: 1 });
  const second = await items.items.upsert({ id: "upsert", pk: "a", m: 2 });
  assert.deepEqual([first.statusCode, second.statusCode], [201, 200]);
  assert.notEqual(first.etag, second.etag);
  assert.equal(first.resource._rid, second.resource._rid);
  assert.deepEqual(plain((await items.item("upsert", "a").read()).resource), { id: "upsert", pk: "a", m: 2 });
});

test("upsert with an ETag that is stale is a 412", async () => {
  const { etag } = await items.items.create({ id: "guarded", pk: "a", n: 1 });
  const accessCondition = { type: "IfMatch", condition: etag };
  assert.equal((await items.items.upsert({ id: "guarded", pk: "a", n: 2 }, { accessCondition })).statusCode, 200);
  await assert.rejects(items.items.upsert({ id: "guarded", pk: "a", n: 3 }, { accessCondition }), { code: 412 });
  assert.equal((await items.item("guarded", "a").read()).resource.n, 2);
});

test("replace and delete heed the ETag", async () => {
  const { etag } = await items.items.create({ id: "etag", pk: "a", n: 1 });
  const item = items.item("etag", "a");
  const stale = { accessCondition: { type: "IfMatch", condition: '"00000000-0000-0000-0000-000000000000"' } };
  await assert.rejects(item.replace({ id: "etag", pk: "a", n: 2 }, stale), { code: 412 });
  const replaced = await item.replace({ id: "etag", pk: "a", n: 2 }, { accessCondition: { type: "IfMatch", condition: etag } });
  assert.equal(replaced.statusCode, 200);
  assert.equal(replaced.resource.n, 2);
  await assert.rejects(item.delete(stale), { code: 412 });
  const deleted = await item.delete({ accessCondition: { type: "IfMatch", condition: replaced.etag } });
  assert.deepEqual([deleted.statusCode, deleted.resource], [204, null]);
  assert.equal((await item.read()).statusCode, 404);
});

test("replace and delete of what is not there are 404", async () => {
  await assert.rejects(items.item("absent", "a").replace({ id: "absent", pk: "a" }), { code: 404 });
  await assert.rejects(items.item("absent", "a").delete(), { code: 404 });
});

test("replace refuses another partition key", async () => {
  await items.items.create({ id: "mover", pk: "a" });
  await assert.rejects(items.item("mover", "a").replace({ id: "mover", pk: "b" }), { code: 400 });
});

test("writes answer no body when none is wanted", async () => {
  await items.items.create({ id: "minimal", pk: "a" });
  const options = { initialHeaders: { prefer: "return=minimal" } }; // the SDK's own option is for batches only
  const replaced = await items.item("minimal", "a").replace({ id: "minimal", pk: "a", n: 1 }, options);
  const patched = await items.item("minimal", "a").patch([{ op: "incr", path: "/n", value: 1 }], options);
  assert.deepEqual([replaced, patched].map((r) => [r.statusCode, r.resource]), [[200, null], [200, null]]);
  const { resource } = await items.item("minimal", "a").read();
  assert.equal(patched.etag, resource._etag);
  assert.deepEqual(plain(resource), { id: "minimal", pk: "a", n: 2 });
});

test("partition keys of every type keep apart", async () => {
  const keys = await container(db, "keys");
  const values = ["1", 1, -0.5, true, false, null, "", "ünï 日本 😀", "x".repeat(1000)];
  for (const pk of values) await keys.items.create({ id: "same", pk });
  await keys.items.create({ id: "same" });
  for (const pk of values) assert.deepEqual(plain((await keys.item("same", pk).read()).resource), { id: "same", pk });
  assert.deepEqual(plain((await keys.item("same", undefined).read()).resource), { id: "same" });
  assert.equal((await keys.items.readAll().fetchAll()).resources.length, values.length + 1);
});

test("ids with blanks, signs and every script", async () => {
  const ids = ["two words", " leading", "ünïcødé", "日本語", "😀😀", "it's", 'a "quote"', "a+b&c=d;e", "100€", "[x]{y}(z)^~", "a:b,c@d!e$f", "x".repeat(255)];
  const strange = await container(db, "ids");
  for (const id of ids) {
    assert.equal((await strange.items.create({ id, pk: "a" })).statusCode, 201, id);
    assert.deepEqual(plain((await strange.item(id, "a").read()).resource), { id, pk: "a" });
    assert.equal((await strange.item(id, "a").replace({ id, pk: "a", n: 1 })).statusCode, 200, id);
    const { resources } = await strange.items.query({ query: "SELECT * FROM c WHERE c.id = @id", parameters: [{ name: "@id", value: id }] }, { partitionKey: "a" }).fetchAll();
    assert.deepEqual(resources.map(plain), [{ id, pk: "a", n: 1 }]);
  }
  assert.deepEqual(names((await strange.items.readAll({ partitionKey: "a" }).fetchAll()).resources), ids);
  for (const id of ids) assert.equal((await strange.item(id, "a").delete()).statusCode, 204, id);
});

test("a burst of 1,000 creates from one address loses none", async () => {
  const burst = await container(db, "burst");
  const answers = await Promise.allSettled(Array.from({ length: 1000 }, (_, n) => burst.items.create({ id: `${n}`, pk: `key ${n}` })));
  assert.deepEqual(answers.filter((answer) => answer.status === "rejected"), []);
  assert.deepEqual((await burst.items.query("SELECT VALUE COUNT(1) FROM c").fetchAll()).resources, [1000]);
});

test("an id of more than 1023 bytes is a 400, an item of more than 2 MB a 413", async () => {
  await assert.rejects(items.items.create({ id: "x".repeat(1024), pk: "a" }), { code: 400 });
  await assert.rejects(items.items.create({ id: "huge", pk: "a", text: "x".repeat(2 * 1024 * 1024) }), { code: 413 });
  assert.equal((await items.item("huge", "a").read()).statusCode, 404);
  assert.equal((await items.items.create({ id: "big", pk: "a", text: "x".repeat(1_900_000) })).statusCode, 201);
});

test("a unique key keeps others out, within its partition key", async () => {
  const unique = await container(db, "unique", { uniqueKeyPolicy: { uniqueKeys: [{ paths: ["/mail", "/tenant/id"] }] } });
  const person = { pk: "a", mail: "x@example.org", tenant: { id: 1 } };
  await unique.items.create({ id: "1", ...person });
  await assert.rejects(unique.items.create({ id: "2", ...person }), { code: 409 });
  await assert.rejects(unique.items.upsert({ id: "2", ...person }), { code: 409 });
  assert.equal((await unique.items.create({ id: "2", ...person, tenant: { id: 2 } })).statusCode, 201);
  assert.equal((await unique.items.create({ id: "2", ...person, pk: "b" })).statusCode, 201);
  await assert.rejects(unique.item("2", "a").replace({ id: "2", ...person }), { code: 409 });
});

test("errors carry a code, an activity id and a message that names the trouble", async () => {
  await items.items.create({ id: "said", pk: "a" });
  await assert.rejects(items.items.create({ id: "said", pk: "a" }), (err) => {
    assert.equal(err.body.code, "Conflict");
    assert.match(err.message, /said.*exists/);
    assert.match(err.activityId, /^[0-9a-f-]{36}$/);
    assert.ok(err.message.includes(err.activityId), err.message);
    return true;
  });
});
