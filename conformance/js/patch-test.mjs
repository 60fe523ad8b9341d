// Patch: every operation, conditions and refusals.

import assert from "node:assert/strict";
import test from "node:test";
import { container, database, plain } from "./account.mjs";

const items = await container(await database("js-patch"), "items");

/** patch makes an item, patches it, and answers what became of it. */
async function patch(item, request, options) {
  await items.items.upsert({ pk: "a", ...item });
  const { resource, statusCode } = await items.item(item.id, "a").patch(request, options);
  assert.equal(statusCode, 200);
  assert.deepEqual((await items.item(item.id, "a").read()).resource, resource);
  const { id, pk, ...rest } = plain(resource);
  return rest;
}

const operations = [
  ["add a property", {}, [{ op: "add", path: "/n", value: 1 }], { n: 1 }],
  ["add over a property", { n: 1 }, [{ op: "add", path: "/n", value: 2 }], { n: 2 }],
  ["add into an array", { list: [1, 3] }, [{ op: "add", path: "/list/1", value: 2 }], { list: [1, 2, 3] }],
  ["add to the end of an array", { list: [1] }, [{ op: "add", path: "/list/-", value: { x: 2 } }], { list: [1, { x: 2 }] }],
  ["set a property", { deep: { n: 1 } }, [{ op: "set", path: "/deep/n", value: "x" }], { deep: { n: "x" } }],
  ["set an element", { list: [1, 2] }, [{ op: "set", path: "/list/0", value: 9 }], { list: [9, 2] }],
  ["set null", { n: 1 }, [{ op: "set", path: "/n", value: null }], { n: null }],
  ["replace", { n: 1 }, [{ op: "replace", path: "/n", value: [2] }], { n: [2] }],
  ["remove a property", { n: 1, m: 2 }, [{ op: "remove", path: "/n" }], { m: 2 }],
  ["remove an element", { list: [1, 2, 3] }, [{ op: "remove", path: "/list/1" }], { list: [1, 3] }],
  ["increment", { n: 40 }, [{ op: "incr", path: "/n", value: 2 }], { n: 42 }],
  ["decrement by a fraction", { n: 1 }, [{ op: "incr", path: "/n", value: -1.5 }], { n: -0.5 }],
  ["increment what is absent", {}, [{ op: "incr", path: "/n", value: 3 }], { n: 3 }],
  ["move", { from: { x: 1 } }, [{ op: "move", from: "/from", path: "/to" }], { to: { x: 1 } }],
  ["several, in order", { n: 1 }, [{ op: "incr", path: "/n", value: 1 }, { op: "add", path: "/m", value: 0 }, { op: "remove", path: "/n" }], { m: 0 }],
  ["escaped names", { "a/b": 1 }, [{ op: "set", path: "/a~1b", value: 2 }], { "a/b": 2 }],
];

operations.forEach(([name, before, request, after], i) =>
  test(name, async () => assert.deepEqual(await patch({ id: `op${i}`, ...before }, request), after)),
);

const refusals = [
  ["increment of text", [{ op: "incr", path: "/text", value: 1 }], 400],
  ["remove of what is absent", [{ op: "remove", path: "/absent" }], 400],
  ["replace of what is absent", [{ op: "replace", path: "/absent", value: 1 }], 400],
  ["a path into nothing", [{ op: "set", path: "/absent/deep", value: 1 }], 400],
  ["an index beyond the array", [{ op: "add", path: "/list/7", value: 1 }], 400],
  ["the id", [{ op: "set", path: "/id", value: "other" }], 400],
  ["the partition key", [{ op: "set", path: "/pk", value: "other" }], 400],
  ["more than ten operations", Array.from({ length: 11 }, () => ({ op: "incr", path: "/n", value: 1 })), 400],
  ["a failing operation after a good one", [{ op: "set", path: "/n", value: 5 }, { op: "remove", path: "/absent" }], 400],
];

refusals.forEach(([name, request, code], i) =>
  test(`refuses ${name}`, async () => {
    const { resource } = await items.items.upsert({ id: `no${i}`, pk: "a", text: "x", list: [1], n: 1 });
    await assert.rejects(items.item(`no${i}`, "a").patch(request), { code });
    assert.deepEqual((await items.item(`no${i}`, "a").read()).resource, resource);
  }),
);

test("a condition that holds lets the patch through", async () => {
  const request = { condition: "from c where c.stock >= 2 and c.state = 'open'", operations: [{ op: "incr", path: "/stock", value: -2 }] };
  assert.deepEqual(await patch({ id: "when", stock: 2, state: "open" }, request), { stock: 0, state: "open" });
});

test("a condition that does not hold is a 412 and changes nothing", async () => {
  const { resource } = await items.items.create({ id: "unless", pk: "a", stock: 1 });
  for (const condition of ["from c where c.stock >= 2", "from c where c.absent = 1"]) {
    const request = { condition, operations: [{ op: "incr", path: "/stock", value: -2 }] };
    await assert.rejects(items.item("unless", "a").patch(request), { code: 412 });
  }
  assert.deepEqual((await items.item("unless", "a").read()).resource, resource);
});

test("a condition that cannot be read is a 400", async () => {
  await items.items.create({ id: "garbled", pk: "a" });
  const request = { condition: "from c where where", operations: [{ op: "set", path: "/n", value: 1 }] };
  await assert.rejects(items.item("garbled", "a").patch(request), { code: 400 });
});

test("a stale ETag is a 412, an absent item a 404", async () => {
  const { etag } = await items.items.create({ id: "etag", pk: "a", n: 1 });
  const request = [{ op: "incr", path: "/n", value: 1 }];
  const accessCondition = { type: "IfMatch", condition: etag };
  assert.equal((await items.item("etag", "a").patch(request, { accessCondition })).resource.n, 2);
  await assert.rejects(items.item("etag", "a").patch(request, { accessCondition }), { code: 412 });
  await assert.rejects(items.item("absent", "a").patch(request), { code: 404 });
});

test("increments that meet are all counted", async () => {
  await items.items.create({ id: "counter", pk: "a", n: 0 });
  await Promise.all(Array.from({ length: 50 }, () => items.item("counter", "a").patch([{ op: "incr", path: "/n", value: 1 }])));
  assert.equal((await items.item("counter", "a").read()).resource.n, 50);
});
