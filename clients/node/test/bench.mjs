// Measures how many small changes a second a handler receives on one lease, beside an own loop of @azure/cosmos:
//
//	node test/bench.mjs [DOCUMENTS] [ROUNDS]
//
// Everything is read from the beginning of a container in a server of its own. The time of the client begins with run(),
// before its binary is started; that of the loop with its first page.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { ChangeFeedStartFrom, CosmosClient } from "@azure/cosmos";
import { findBinary, processor, startServer } from "@changefeed/client";

const documents = Number(process.argv[2] ?? 50_000);
const rounds = Number(process.argv[3] ?? 3);
const server = await startServer();
const source = await server.freshContainer({ partitionKey: "/pk" });
await fill();
const container = new CosmosClient({ endpoint: server.endpoint, key: server.key })
  .database(source.database).container(source.id);
let units = 0;

/** fill writes the documents, of about 100 bytes, each with a key of its own, so that none shares a transaction. */
async function fill() {
  const child = spawn(findBinary(), ["import", "-", source.address, "--pk", "/pk"], {
    stdio: ["pipe", "ignore", "inherit"], env: { ...process.env, COSMOS_KEY: server.key, COSMOS_ENDPOINT: server.endpoint },
  });
  let lines = "";
  for (let i = 0; i < documents; i++) {
    lines += JSON.stringify({ id: `item-${i}`, pk: `key-${i}`, n: i, text: "x".repeat(50) }) + "\n";
  }
  child.stdin.end(lines);
  const [code] = await once(child, "close");
  if (code !== 0) throw new Error(`changefeed import has ended with ${code}`);
}

/** byClient returns the seconds until the handler has had all changes. */
async function byClient(maxItems) {
  let seen = 0;
  let sum = 0;
  let all;
  const done = new Promise((resolve) => { all = resolve; });
  const p = processor({
    source: source.address, name: `bench-${++units}`, createLeases: true, auth: { key: server.key }, maxItems,
    handler: async (batch) => {
      for (const change of batch.changes) sum += change.value.n;
      if ((seen += batch.changes.length) >= documents) all();
    },
  });
  const began = performance.now();
  const run = p.run();
  await Promise.race([done, run]);
  const seconds = (performance.now() - began) / 1000;
  await p.stop();
  check(seen, sum);
  return seconds;
}

/** byLoop returns the seconds until an own loop of the SDK has had all changes. With a container for positions it
 * stores its position after each page, as a loop has to that goes on after a restart. */
async function byLoop(maxItemCount, positions) {
  let seen = 0;
  let sum = 0;
  const iterator = container.items.getChangeFeedIterator({
    maxItemCount, changeFeedStartFrom: ChangeFeedStartFrom.Beginning(),
  });
  const began = performance.now();
  while (iterator.hasMoreResults && seen < documents) {
    const page = await iterator.readNext();
    for (const document of page.result ?? []) sum += document.n;
    seen += page.result?.length ?? 0;
    if (positions) await positions.items.upsert({ id: "position", pk: "position", continuation: page.continuationToken });
  }
  const seconds = (performance.now() - began) / 1000;
  check(seen, sum);
  return seconds;
}

function check(seen, sum) {
  if (seen !== documents || sum !== documents * (documents - 1) / 2) throw new Error(`${seen} changes of ${documents}`);
}

const kept = await server.freshContainer({ partitionKey: "/pk" });
const positions = new CosmosClient({ endpoint: server.endpoint, key: server.key }).database(kept.database).container(kept.id);
const kinds = {
  "client": byClient,
  "loop": (size) => byLoop(size, positions),
  "loop without positions": (size) => byLoop(size),
};
for (const size of [100, 1000]) {
  const rates = Object.fromEntries(Object.keys(kinds).map((kind) => [kind, []]));
  for (let i = 0; i < rounds; i++) { // in turns, because the machine may be busier at times
    for (const [kind, measure] of Object.entries(kinds)) rates[kind].push(documents / await measure(size));
  }
  for (const [kind, all] of Object.entries(rates)) {
    all.sort((a, b) => a - b);
    const text = all.map((rate) => Math.round(rate)).join(" ");
    console.log(`${kind}, ${size}: median ${Math.round(all[all.length >> 1])} changes/s of ${text}`);
  }
}
await server.stop();
