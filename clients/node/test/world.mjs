// What the tests share: a server for each file, containers, and processors that end with their test.
import { after } from "node:test";
import { CosmosClient } from "@azure/cosmos";
import { processor, startServer } from "@changefeed/client";

export const server = await startServer();
after(() => server.stop());
export const client = new CosmosClient({ endpoint: server.endpoint, key: server.key });

/** fresh makes a container with documents {id, pk}, by name. */
export async function fresh(spec = {}, ...ids) {
  const made = await server.freshContainer({ partitionKey: "/pk", ...spec });
  const container = client.database(made.database).container(made.id);
  for (const id of ids) await container.items.create({ id, pk: id });
  return { ...made, container };
}

/** start runs a processor until the test ends. Its run() is awaited then. */
export async function start(t, source, options) {
  const p = processor({
    source: source.address, name: "unit", createLeases: true, auth: { key: server.key }, on: { log() {} }, ...options,
  });
  const run = p.run();
  run.catch(() => {}); // the test looks at it, or ready rejects
  t.after(() => p.stop({ drainMs: 0 }));
  await p.ready;
  return { p, run };
}

/** collect returns a handler that notes the ids of its changes, and the list. */
export function collect() {
  const seen = [];
  return { seen, handler: async (batch) => { for (const c of batch.changes) seen.push(c.id); } };
}

/** signalled returns a promise and its function. */
export function signalled() {
  let resolve;
  const promise = new Promise((r) => { resolve = r; });
  return { promise, resolve };
}

/** isAlive reports whether a process is there. */
export function isAlive(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
