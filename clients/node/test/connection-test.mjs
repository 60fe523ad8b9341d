// The program's end of the contract, message by message, and the batches of a loop.
import assert from "node:assert/strict";
import { PassThrough } from "node:stream";
import { test } from "node:test";
import { Connection } from "../dist/contract.js";
import { BatchQueue } from "../dist/queue.js";

const hello = { type: "hello", version: 1, can: ["status", "caughtup"] };
const batch = {
  type: "batch", id: 1, lease: "-FF", range: "-FF", instance: "one", epoch: 1, attempt: 1, manual: true, changes: [],
};

/** signalled returns a promise and its function. */
function signalled() {
  let resolve;
  const promise = new Promise((r) => { resolve = r; });
  return { promise, resolve };
}

/** connect makes a connection that hears messages. */
function connect(handler, ...messages) {
  const from = new PassThrough();
  const connection = new Connection(from, new PassThrough(), { handler, batches: 1, heartbeatMs: 0 });
  from.write(messages.map((m) => `${JSON.stringify(m)}\n`).join(""));
  return { from, connection };
}

test("what waits for an answer ends with the connection, and what comes later does not wait", { timeout: 10_000 }, async () => {
  const { promise: begun, resolve } = signalled();
  const { from, connection } = connect(resolve, hello, batch);
  const received = await begun;
  const waiting = [received.checkpoint(), received.checkpoint(), connection.caughtUp(0), connection.status()];
  const refused = waiting.map((outcome) => assert.rejects(outcome, { code: "died" }));
  from.end();
  await Promise.all([assert.rejects(connection.ended, { code: "died" }), ...refused]);
  const later = [received.checkpoint(), connection.caughtUp(0), connection.status()];
  await Promise.all(later.map((outcome) => assert.rejects(outcome, { code: "died" })));
});

test("after a stop, a checkpoint that waits is canceled", { timeout: 10_000 }, async () => {
  const { promise: begun, resolve } = signalled();
  const { from, connection } = connect(resolve, hello, batch, { type: "stop", seconds: 1 });
  const received = await begun;
  const refused = assert.rejects(received.checkpoint(), { name: "Canceled", reason: "stopped" });
  from.end();
  await connection.ended;
  await refused;
  await assert.rejects(received.checkpoint(), { name: "Canceled", reason: "stopped" });
});

test("a batch that waits for a loop is given up when the loop is left", { timeout: 10_000 }, async () => {
  const queue = new BatchQueue();
  const { signal } = new AbortController();
  const [first, second, third] = [1, 2, 3].map(() => ({ changes: [] }));
  const outcomes = [queue.handler(first, signal), queue.handler(second, signal)];
  const taken = await queue.next();
  queue.close();
  await assert.rejects(outcomes[1], { name: "Canceled", reason: "stopped" });
  await assert.rejects(queue.handler(third, signal), { name: "Canceled" });
  taken.done(); // the loop had it
  assert.deepEqual(await outcomes[0], { done: 0 });
  assert.equal(await queue.next(), undefined);
});
