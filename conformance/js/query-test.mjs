// Queries that the server answers by itself: filters, projections, joins, paging, and ORDER BY within one key.

import assert from "node:assert/strict";
import { before, test } from "node:test";
import { again, container, database, names, plain, sorted } from "./account.mjs";

const db = await database("js-query");
const colours = ["red", "green", "blue"];
const docs = Array.from({ length: 30 }, (_, i) => ({
  id: `d${String(i).padStart(2, "0")}`,
  pk: `k${i % 5}`,
  n: i,
  half: i / 2,
  colour: colours[i % 3],
  name: `Name ${i}`,
  tags: [`t${i % 4}`, `u${i % 2}`],
  at: { city: i % 2 ? "Zürich" : "Oslo", "post code": 1000 + i },
  ...(i % 10 === 0 ? { rare: null } : {}),
  ...(i % 7 === 0 ? { extra: { list: [{ v: i }, { v: 0 - i }] } } : {}),
}));
const where = (test) => names(docs.filter(test));
const sortedBy = {
  compositeIndexes: [
    [{ path: "/colour", order: "ascending" }, { path: "/n", order: "descending" }],
    [{ path: "/at/city", order: "descending" }, { path: "/half", order: "ascending" }],
  ],
};
let items;

before(async () => {
  items = await container(db, "items", { throughput: 30_000, indexingPolicy: sortedBy });
  for (const doc of docs) await items.items.create(doc);
});

/** all is the whole answer to a query. */
const all = async (query, options) => (await items.items.query(query, options).fetchAll()).resources;

const filters = [
  ["c.n = 7", (d) => d.n === 7],
  ["c.n > 7 AND c.n <= 11", (d) => d.n > 7 && d.n <= 11],
  ["c.colour = 'red' OR c.n < 3", (d) => d.colour === "red" || d.n < 3],
  ["NOT (c.colour = 'red')", (d) => d.colour !== "red"],
  ["c.colour != 'red'", (d) => d.colour !== "red"],
  ["c.n IN (1, 2, 99)", (d) => [1, 2].includes(d.n)],
  ["c.n NOT IN (1, 2, 99)", (d) => ![1, 2].includes(d.n)],
  ["c.n BETWEEN 5 AND 8", (d) => d.n >= 5 && d.n <= 8],
  ["c.half * 2 + 1 = 8", (d) => d.n === 7],
  ["c.n % 10 = 3", (d) => d.n % 10 === 3],
  ["c.at.city = 'Zürich'", (d) => d.n % 2 === 1],
  ["c.at['post code'] >= 1028", (d) => d.n >= 28],
  ["c.tags[0] = 't3'", (d) => d.n % 4 === 3],
  ["c.name LIKE '%me 1_'", (d) => /^Name 1.$/.test(d.name)],
  ["STARTSWITH(c.name, 'name 2', true)", (d) => d.name.startsWith("Name 2")],
  ["STARTSWITH(c.name, 'name 2')", () => false],
  ["CONTAINS(UPPER(c.name), 'ME 2')", (d) => d.name.includes("me 2")],
  ["ENDSWITH(c.name, '5')", (d) => d.name.endsWith("5")],
  ["RegexMatch(c.name, '^name [0-4]$', 'i')", (d) => d.n < 5],
  ["LENGTH(c.name) = 6", (d) => d.n < 10],
  ["ARRAY_CONTAINS(c.tags, 'u1')", (d) => d.n % 2 === 1],
  ["ARRAY_CONTAINS(c.extra.list, {v: -14}, true)", (d) => d.n === 14],
  ["ARRAY_LENGTH(c.extra.list) = 2", (d) => d.n % 7 === 0],
  ["EXISTS(SELECT VALUE e FROM e IN c.extra.list WHERE e.v > 20)", (d) => d.n % 7 === 0 && d.n > 20],
  ["IS_DEFINED(c.rare)", (d) => d.n % 10 === 0],
  ["IS_NULL(c.rare)", (d) => d.n % 10 === 0],
  ["c.rare = null", (d) => d.n % 10 === 0],
  ["NOT IS_DEFINED(c.rare) AND c.n < 3", (d) => d.n === 1 || d.n === 2],
  ["c.extra = {list: [{v: 7}, {v: -7}]}", (d) => d.n === 7],
  ["c.absent = 1", () => false],
  ["c.absent != 1", () => false],
  ["NOT (c.absent = 1)", () => false],
  ["c.n = '7'", () => false],
  ["c.n > '7'", () => false],
  ["IS_STRING(c.n) OR IS_BOOL(c.n)", () => false],
  ["(c.absent ?? c.n) = 4", (d) => d.n === 4],
  ["(c.n > 27 ? 'high' : 'low') = 'high'", (d) => d.n > 27],
  ["c._ts > 0", () => true],
];

for (const [filter, holds] of filters) {
  test(`WHERE ${filter}`, async () => {
    assert.deepEqual(sorted(names(await all(`SELECT * FROM c WHERE ${filter}`))), where(holds));
  });
}

test("parameters of every type", async () => {
  const cases = [
    ["c.n = @p", 7, (d) => d.n === 7],
    ["c.colour = @p", "blue", (d) => d.colour === "blue"],
    ["c.rare = @p", null, (d) => d.n % 10 === 0],
    ["ARRAY_CONTAINS(@p, c.n)", [1, 2, 3], (d) => [1, 2, 3].includes(d.n)],
    ["c.extra = @p", { list: [{ v: 7 }, { v: -7 }] }, (d) => d.n === 7],
    ["(c.n < 2) = @p", true, (d) => d.n < 2],
    ["c.name = @p", "' OR true --", () => false],
  ];
  for (const [filter, value, holds] of cases) {
    const query = { query: `SELECT * FROM c WHERE ${filter}`, parameters: [{ name: "@p", value }] };
    assert.deepEqual(sorted(names(await all(query))), where(holds), filter);
  }
});

const projections = [
  ["SELECT c.id, c.n FROM c", { id: "d07", n: 7 }],
  ["SELECT c.n AS number, c.at.city FROM c", { number: 7, city: "Zürich" }],
  ["SELECT c.id, c.absent FROM c", { id: "d07" }],
  ["SELECT VALUE c.name FROM c", "Name 7"],
  ["SELECT VALUE c.at FROM c", { city: "Zürich", "post code": 1007 }],
  ["SELECT VALUE {a: c.n, b: [c.half, c.absent, 'x']} FROM c", { a: 7, b: [3.5, "x"] }],
  ["SELECT VALUE CONCAT(c.id, '/', c.colour) FROM c", "d07/green"],
  ["SELECT c.n + 1, c.n * 2 FROM c", { $1: 8, $2: 14 }],
  ["SELECT c.extra.list[1].v FROM c", { v: -7 }],
  ["SELECT VALUE ARRAY(SELECT VALUE e.v FROM e IN c.extra.list) FROM c", [7, -7]],
  ["SELECT TOP 1 VALUE c.half FROM c", 3.5],
];

for (const [query, want] of projections) {
  test(query, async () => assert.deepEqual(await all(`${query} WHERE c.n = 7`, { partitionKey: "k2" }), [want]));
}

test("rows of undefined are left out of SELECT VALUE", async () => {
  assert.deepEqual(sorted(await all("SELECT VALUE c.extra.list[0].v FROM c WHERE c.n < 10")), [0, 7]);
});

test("JOIN makes a row of each element", async () => {
  const rows = await all("SELECT c.id, t AS tag FROM c JOIN t IN c.tags WHERE c.n IN (3, 4) AND t != 'u0'");
  assert.deepEqual(sorted(rows.map((r) => `${r.id} ${r.tag}`)), ["d03 t3", "d03 u1", "d04 t0"]);
});

test("JOIN of JOIN", async () => {
  const rows = await all("SELECT VALUE [e.v, t] FROM c JOIN e IN c.extra.list JOIN t IN c.tags WHERE c.n = 14", { partitionKey: "k4" });
  assert.deepEqual(rows, [[14, "t2"], [14, "u0"], [-14, "t2"], [-14, "u0"]]);
});

test("FROM over an array inside the items", async () => {
  assert.deepEqual(sorted(await all("SELECT VALUE e.v FROM e IN c.extra.list WHERE e.v > 0")), sorted([7, 14, 21, 28]));
});

/** paged reads a query page by page, each with a client and an iterator of its own that continue from a token. */
async function paged(query, options) {
  const pages = [];
  let continuationToken;
  do {
    const page = await again(items).items.query(query, { ...options, continuationToken }).fetchNext();
    pages.push(page.resources);
    continuationToken = page.continuationToken;
    assert.ok((continuationToken ?? "").length <= 1024, "the SDK allows tokens 1 KB"); // which it says in each request
    assert.ok(page.requestCharge > 0);
    assert.ok(pages.length <= docs.length + 5, "paging does not end");
  } while (continuationToken);
  return pages;
}

for (const [name, query, options] of [
  ["over all ranges", "SELECT * FROM c", {}],
  ["with a filter over all ranges", "SELECT * FROM c WHERE c.n >= 4", {}],
  ["of one key", "SELECT * FROM c", { partitionKey: "k1" }],
  ["ORDER BY of one key", "SELECT * FROM c ORDER BY c.n DESC", { partitionKey: "k1" }],
  ["ORDER BY of one key, which the filter names", "SELECT * FROM c WHERE c.pk = 'k1' ORDER BY c.n DESC", {}],
  ["OFFSET LIMIT of one key", "SELECT * FROM c ORDER BY c.n OFFSET 1 LIMIT 4", { partitionKey: "k1" }],
  ["JOIN", "SELECT c.id, t FROM c JOIN t IN c.tags", { partitionKey: "k1" }],
]) {
  for (const maxItemCount of [1, 4, 6, 100]) {
    test(`${name} in pages of ${maxItemCount}, resumed from tokens`, async () => {
      const whole = await all(query, options);
      const pages = await paged(query, { ...options, maxItemCount });
      assert.deepEqual(pages.flat(), whole);
      for (const page of pages) assert.ok(page.length <= maxItemCount, `a page of ${page.length}`);
      const one = items.items.query(query, { ...options, maxItemCount });
      const rows = [];
      for await (const page of one.getAsyncIterator()) rows.push(...page.resources);
      assert.deepEqual(rows, whole);
    });
  }
}

test("a token of another query or of nobody is a 400", async () => {
  for (const continuationToken of ["nonsense", "AAAA", '{"token":"x"}']) {
    await assert.rejects(items.items.query("SELECT * FROM c", { partitionKey: "k1", continuationToken }).fetchNext(), { code: 400 });
  }
  const { continuationToken } = await items.items.query("SELECT * FROM c ORDER BY c.n", { partitionKey: "k1", maxItemCount: 2 }).fetchNext();
  await assert.rejects(items.items.query("SELECT c.id FROM c", { partitionKey: "k1", continuationToken }).fetchNext(), { code: 400 });
});

const ordered = [
  ["c.n", (a, b) => a.n - b.n],
  ["c.n DESC", (a, b) => b.n - a.n],
  ["c.colour, c.n DESC", (a, b) => (a.colour < b.colour ? -1 : a.colour > b.colour ? 1 : b.n - a.n)],
  ["c.at.city DESC, c.half", (a, b) => (a.at.city > b.at.city ? -1 : a.at.city < b.at.city ? 1 : a.n - b.n)],
];
for (const [by, compare] of ordered) {
  test(`ORDER BY ${by} within one key`, async () => {
    const want = names(docs.filter((d) => d.pk === "k3").sort(compare));
    assert.deepEqual(names(await all(`SELECT * FROM c ORDER BY ${by}`, { partitionKey: "k3" })), want);
  });
}

test("ORDER BY sorts by type, then by value", async () => { // within one key: the SDK merges no mixed types
  const values = [undefined, null, false, true, -3, 2.5, 10, "", "B", "a", "ä"];
  const mixed = values.map((v, i) => ({ id: `m${i}`, pk: "mixed", v }));
  for (const i of [5, 0, 8, 3, 10, 1, 7, 9, 2, 6, 4]) await items.items.create(mixed[i]);
  const of = (direction) => all(`SELECT * FROM c ORDER BY c.v ${direction}`, { partitionKey: "mixed" });
  assert.deepEqual(names(await of("ASC")), names(mixed));
  assert.deepEqual(names(await of("DESC")), names(mixed).reverse());
  for (const { id } of mixed) await items.item(id, "mixed").delete();
});

test("aggregates, DISTINCT and GROUP BY within one key", async () => {
  const of = (query) => all(query, { partitionKey: "k0" }); // n is 0, 5, 10, 15, 20, 25
  assert.deepEqual(await of("SELECT VALUE COUNT(1) FROM c"), [6]);
  assert.deepEqual(await of("SELECT VALUE SUM(c.n) FROM c"), [75]);
  assert.deepEqual(await of("SELECT COUNT(1) AS count, AVG(c.n) AS mean, MIN(c.n) AS least, MAX(c.name) AS most FROM c"), [{ count: 6, mean: 12.5, least: 0, most: "Name 5" }]);
  assert.deepEqual(sorted(await of("SELECT DISTINCT VALUE c.at.city FROM c")), ["Oslo", "Zürich"]);
  const groups = await of("SELECT c.colour, COUNT(1) AS count FROM c GROUP BY c.colour");
  assert.deepEqual(sorted(groups.map((g) => `${g.colour} ${g.count}`)), ["blue 2", "green 2", "red 2"]);
  const descending = await of("SELECT c.colour, COUNT(1) AS count FROM c GROUP BY c.colour ORDER BY c.colour DESC");
  assert.deepEqual(descending.map((g) => g.colour), ["red", "green", "blue"]);
});

test("readAll reads all, or all of a key in the order of writing", async () => {
  const { resources } = await items.items.readAll().fetchAll();
  assert.deepEqual(resources.map(plain).sort((a, b) => a.n - b.n), docs);
  const { resources: one } = await items.items.readAll({ partitionKey: "k2", maxItemCount: 2 }).fetchAll();
  assert.deepEqual(one.map(plain), docs.filter((d) => d.pk === "k2"));
});

test("a query that cannot be read is a 400 that shows where", async () => {
  for (const [query, near] of [["SELECT * FORM c", /FORM|c/], ["SELECT * FROM c WHERE", /end|syntax/i], ["SELECT NOSUCH(c.n) FROM c", /NOSUCH/], ["SELECT * FROM c WHERE d.n = 1", /\bd\b/]]) {
    await assert.rejects(items.items.query(query, { partitionKey: "k1" }).fetchAll(), (err) => {
      assert.equal(err.code, 400, `${query}: ${err.code} ${err.message}`);
      assert.match(err.message, near);
      return true;
    });
  }
});

test("a parameter that is not given is undefined", async () => {
  const { resources } = await items.items.query("SELECT * FROM c WHERE c.n = @absent", { partitionKey: "k1" }).fetchAll();
  assert.deepEqual(resources, []);
});

test("query metrics are told when asked for", async () => {
  const { headers } = await items.items.query("SELECT * FROM c WHERE c.n > 100", { partitionKey: "k1", populateQueryMetrics: true }).fetchNext();
  const metrics = headers["x-ms-documentdb-query-metrics"];
  assert.equal(metrics[0].retrievedDocumentCount ?? metrics[0]._retrievedDocumentCount, 6);
  assert.equal(metrics[0].outputDocumentCount ?? metrics[0]._outputDocumentCount, 0);
});
