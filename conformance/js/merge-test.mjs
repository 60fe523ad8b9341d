// Queries over several ranges that the gateway refuses: the SDK asks for a plan, asks each range, and merges.
// What it merges has to be what one sorted, grouped, counted list of all items would give.

import assert from "node:assert/strict";
import { before, test } from "node:test";
import { container, database, names, sorted } from "./account.mjs";

const db = await database("js-merge");
const colours = ["red", "green", "blue", "black"];
const docs = Array.from({ length: 60 }, (_, i) => ({
  id: `d${String(i).padStart(2, "0")}`,
  pk: `key ${i % 23}`,
  n: (i * 7) % 60,
  colour: colours[i % 4],
  city: `city ${i % 6}`,
  price: i / 4,
  tags: [`t${i % 3}`, `u${i % 2}`],
  ...(i % 2 ? { odd: i } : {}),
}));
const byN = [...docs].sort((a, b) => a.n - b.n);
const sum = (values) => values.reduce((a, b) => a + b, 0);
const places = {};
const sortedBy = { compositeIndexes: [[{ path: "/colour", order: "ascending" }, { path: "/n", order: "descending" }]] };

before(async () => {
  for (const [name, throughput] of [["one range", 400], ["three ranges", 30_000]]) {
    places[name] = await container(db, name, { throughput: Math.max(throughput, 10_000), indexingPolicy: sortedBy });
    await places[name].items.executeBulkOperations(docs.map((resourceBody) => ({ operationType: "Create", partitionKey: resourceBody.pk, resourceBody })));
  }
  assert.equal((await places["one range"].getFeedRanges()).length, 1);
  assert.equal((await places["three ranges"].getFeedRanges()).length, 3);
});

const exact = [
  ["SELECT * FROM c ORDER BY c.n", names(byN), names],
  ["SELECT * FROM c ORDER BY c.n DESC", names(byN).reverse(), names],
  ["SELECT * FROM c WHERE c.n >= 50 ORDER BY c.n", names(byN.slice(50)), names],
  ["SELECT c.id FROM c ORDER BY c.n", names(byN), names],
  ["SELECT VALUE c.n FROM c ORDER BY c.n", byN.map((d) => d.n)],
  ["SELECT VALUE c.id FROM c ORDER BY c.id DESC", names(docs).reverse()],
  ["SELECT * FROM c ORDER BY c.colour, c.n DESC", names([...docs].sort((a, b) => (a.colour < b.colour ? -1 : a.colour > b.colour ? 1 : b.n - a.n))), names],
  ["SELECT TOP 5 * FROM c ORDER BY c.n", names(byN.slice(0, 5)), names],
  ["SELECT TOP 0 * FROM c ORDER BY c.n", []],
  ["SELECT * FROM c ORDER BY c.n OFFSET 10 LIMIT 7", names(byN.slice(10, 17)), names],
  ["SELECT VALUE c.n FROM c ORDER BY c.n DESC OFFSET 55 LIMIT 20", [4, 3, 2, 1, 0]],
  ["SELECT DISTINCT VALUE c.colour FROM c ORDER BY c.colour", ["black", "blue", "green", "red"]],
  ["SELECT DISTINCT c.city FROM c ORDER BY c.city DESC", [5, 4, 3, 2, 1, 0].map((i) => ({ city: `city ${i}` }))],
  ["SELECT VALUE COUNT(1) FROM c", [60]],
  ["SELECT VALUE COUNT(c.odd) FROM c", [30]],
  ["SELECT VALUE SUM(c.price) FROM c", [sum(docs.map((d) => d.price))]],
  ["SELECT VALUE AVG(c.n) FROM c", [29.5]],
  ["SELECT VALUE MIN(c.id) FROM c WHERE c.n > 30", [sorted(names(docs.filter((d) => d.n > 30)))[0]]],
  ["SELECT VALUE MAX(c.price) FROM c", [14.75]],
  ["SELECT VALUE COUNT(1) FROM c WHERE c.n > 1000", [0]],
  ["SELECT VALUE SUM(c.n) FROM c WHERE c.n > 1000", [0]],
  ["SELECT VALUE COUNT(1) FROM c JOIN t IN c.tags WHERE t = 'u1'", [30]],
  ["SELECT VALUE SUM(1) FROM c WHERE c.pk IN ('key 1', 'key 2')", [6]],
];

const unordered = [
  ["SELECT DISTINCT VALUE c.colour FROM c", colours],
  ["SELECT DISTINCT c.colour, c.city FROM c", distinct(docs.map(({ colour, city }) => ({ colour, city })))],
  ["SELECT DISTINCT VALUE t FROM c JOIN t IN c.tags", ["t0", "t1", "t2", "u0", "u1"]],
  ["SELECT c.colour, COUNT(1) AS count FROM c GROUP BY c.colour", colours.map((colour) => ({ colour, count: 15 }))],
  ["SELECT c.city, SUM(c.n) AS total, AVG(c.price) AS mean, MIN(c.n) AS least, MAX(c.id) AS last FROM c GROUP BY c.city", grouped((d) => d.city, (city, of) => ({
    city, total: sum(of.map((d) => d.n)), mean: sum(of.map((d) => d.price)) / of.length, least: Math.min(...of.map((d) => d.n)), last: sorted(names(of)).at(-1),
  }))],
  ["SELECT c.colour, c.city, COUNT(1) AS count FROM c WHERE c.n < 30 GROUP BY c.colour, c.city", grouped((d) => `${d.colour}/${d.city}`, (_, of) => ({ colour: of[0].colour, city: of[0].city, count: of.length }), docs.filter((d) => d.n < 30))],
  ["SELECT c.colour FROM c GROUP BY c.colour", colours.map((colour) => ({ colour }))],
  ["SELECT c.colour, COUNT(1) AS count FROM c GROUP BY c.colour ORDER BY c.colour DESC", colours.map((colour) => ({ colour, count: 15 }))],
  ["SELECT VALUE COUNT(1) FROM c GROUP BY c.colour", [15, 15, 15, 15]],
  ["SELECT c.odd > 0 AS odd, COUNT(1) AS count FROM c GROUP BY c.odd > 0", [{ count: 30 }, { odd: true, count: 30 }]],
];

function distinct(rows) {
  return [...new Set(rows.map((row) => JSON.stringify(row)))].map((text) => JSON.parse(text));
}

function grouped(by, row, rows = docs) {
  return [...new Set(rows.map(by))].map((value) => row(value, rows.filter((d) => by(d) === value)));
}

/** bag is the rows in an order of their own. */
const bag = (rows) => sorted(rows.map((row) => JSON.stringify(row, Object.keys(Object(row)).sort())));

for (const place of ["one range", "three ranges"]) {
  for (const maxItemCount of [undefined, 7]) {
    const size = maxItemCount ? `pages of ${maxItemCount}` : "pages of any size";
    for (const [query, want, of = (rows) => rows] of exact) {
      test(`${query} (${place}, ${size})`, async () => assert.deepEqual(of(await rows(place, query, maxItemCount)), want));
    }
    for (const [query, want] of unordered) {
      test(`${query} (${place}, ${size})`, async () => assert.deepEqual(bag(await rows(place, query, maxItemCount)), bag(want)));
    }
  }

  test(`TOP and OFFSET LIMIT without ORDER BY take as many as they say (${place})`, async () => {
    for (const [query, count] of [["SELECT TOP 9 * FROM c", 9], ["SELECT * FROM c OFFSET 50 LIMIT 100", 10], ["SELECT * FROM c OFFSET 3 LIMIT 4", 4]]) {
      const found = names(await rows(place, query));
      assert.equal(new Set(found).size, count, query);
      assert.equal(found.length, count, query);
    }
  });
}

/** rows reads a query page by page. */
async function rows(place, query, maxItemCount) {
  const iterator = places[place].items.query(query, { maxItemCount });
  const found = [];
  do {
    const { resources } = await iterator.fetchNext();
    if (maxItemCount) assert.ok((resources ?? []).length <= maxItemCount, `a page of ${resources?.length}`);
    found.push(...(resources ?? []));
  } while (iterator.hasMoreResults());
  return found;
}

test("ORDER BY over several ranges resumes from a token in a new iterator", async () => {
  const found = [];
  let continuationToken;
  do {
    const options = { maxItemCount: 7, enableQueryControl: true, continuationToken };
    const page = await places["three ranges"].items.query("SELECT * FROM c ORDER BY c.n", options).fetchNext();
    found.push(...page.resources);
    continuationToken = page.continuationToken;
    assert.ok(found.length <= docs.length, "paging repeats");
  } while (continuationToken);
  assert.deepEqual(names(found), names(byN));
});

test("getQueryPlan tells what the SDK has to merge", async () => {
  const { result } = await places["three ranges"].getQueryPlan("SELECT TOP 3 c.id FROM c ORDER BY c.n DESC");
  assert.equal(result.partitionedQueryExecutionInfoVersion, 2);
  const { top, orderBy, orderByExpressions, distinctType, aggregates, hasSelectValue } = result.queryInfo;
  assert.deepEqual({ top, orderBy, orderByExpressions, distinctType, aggregates, hasSelectValue }, {
    top: 3, orderBy: ["Descending"], orderByExpressions: ["c.n"], distinctType: "None", aggregates: [], hasSelectValue: false,
  });
  assert.deepEqual(result.queryRanges, [{ min: "", max: "FF", isMinInclusive: true, isMaxInclusive: false }]);
});
