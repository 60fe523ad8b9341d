// The account under test, and what many tests ask of it. run.mjs starts it and says where it is.

import assert from "node:assert/strict";
import { after } from "node:test";
import { setTimeout } from "node:timers/promises";
import { CosmosClient, setAuthorizationTokenHeaderUsingMasterKey } from "@azure/cosmos";

export const endpoint = process.env.COSMOS_ENDPOINT;
export const key = process.env.COSMOS_KEY;

/** connect is a client of its own, which knows nothing of what others have seen. */
export const connect = (options = {}) => new CosmosClient({ endpoint, key, ...options });

/** database makes a database that lives as long as the tests of a file. */
export async function database(id) {
  const { database } = await connect().databases.create({ id });
  after(() => database.delete());
  return database;
}

/** container makes a container, partitioned by /pk unless the definition says otherwise. */
export async function container(database, id, definition = {}, options = {}) {
  const partitionKey = { paths: ["/pk"], version: 2 };
  const { container } = await database.containers.create({ id, partitionKey, ...definition }, options);
  return container;
}

/** again is the same container, seen by a client of its own. */
export const again = (container, options) =>
  connect(options).database(container.database.id).container(container.id);

/** plain is an item without what the server adds to it. */
export function plain({ _rid, _self, _etag, _attachments, _ts, _lsn, ...rest }) {
  return rest;
}

/** names are the ids of some items, in their order. */
export const names = (items) => items.map((item) => item.id);

/** sorted sorts a copy as JavaScript compares. */
export const sorted = (values) => [...values].sort((a, b) => (a < b ? -1 : a > b ? 1 : 0));

/** drain reads a change feed to its end: until it answers 304. */
export async function drain(iterator) {
  const changes = [];
  const pages = [];
  for (;;) {
    const page = await iterator.readNext();
    if (page.statusCode === 304) return { changes, pages, token: page.continuationToken };
    assert.equal(page.statusCode, 200);
    assert.equal(page.count, page.result.length);
    changes.push(...page.result);
    pages.push(page.count);
  }
}

/** until asks every few milliseconds until the answer is true or the limit is over. */
export async function until(ask, limit = 20_000) {
  for (const end = Date.now() + limit; !(await ask()); await setTimeout(25)) {
    assert.ok(Date.now() < end, `not true within ${limit} ms: ${ask}`);
  }
}

/** repartition asks the server, as a test may, to split a partition or merge two; it answers the new ones. */
export async function repartition(container, request) {
  const link = `dbs/${container.database.id}/colls/${container.id}`;
  const headers = { "content-type": "application/json" };
  await setAuthorizationTokenHeaderUsingMasterKey("POST", link, "partitions", headers, key);
  const answer = await fetch(new URL(`${link}/partitions`, endpoint), { method: "POST", headers, body: JSON.stringify(request) });
  const text = await answer.text();
  assert.ok(answer.ok, `${answer.status} ${text}`);
  return JSON.parse(text);
}
