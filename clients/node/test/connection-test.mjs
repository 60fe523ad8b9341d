// The program's end of the contract, message by message, and the batches of a loop.
import assert from "node:assert/strict";
import { PassThrough } from "node:stream";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { Connection } from "../dist/contract.js";
import { BatchQueue } from "../dist/queue.js";
import { columnsOf } from "./columns.mjs";

const hello = { type: "hello", version: 1, can: ["columns", "status", "caughtup"] };
const batch = {
  type: "batch", id: 1, lease: "-FF", range: "-FF", instance: "one", epoch: 1, attempt: 1, manual: true,
  changes: columnsOf([]),
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
  const to = new PassThrough();
  const connection = new Connection(from, to, { handler, batches: 1, heartbeatMs: 0 });
  const hear = (...more) => from.write(more.map((m) => `${JSON.stringify(m)}\n`).join(""));
  hear(...messages);
  return { from, connection, hear, said: createInterface(to)[Symbol.asyncIterator]() };
}

/** untilAborted is a handler that keeps its batch until the batch is canceled. */
const untilAborted = (begun) => async (received, signal) => {
  begun([received, signal]);
  await new Promise((resolve) => { signal.addEventListener("abort", resolve); });
};

/** next returns the next message that a connection says. */
const next = async (said) => JSON.parse((await said.next()).value);

test("what waits for an answer ends with the connection, and what comes later does not wait", { timeout: 10_000 }, async () => {
  const { promise: begun, resolve } = signalled();
  const { from, connection } = connect(untilAborted(resolve), hello, batch);
  const [received, signal] = await begun;
  const waiting = [received.checkpoint(), received.checkpoint(), connection.caughtUp(0), connection.status()];
  const refused = waiting.map((outcome) => assert.rejects(outcome, { code: "died" }));
  from.end();
  await Promise.all([assert.rejects(connection.ended, { code: "died" }), ...refused]);
  assert.equal(signal.reason.reason, "lost"); // nobody renews the lease any more
  const later = [received.checkpoint(), connection.caughtUp(0), connection.status()];
  await Promise.all(later.map((outcome) => assert.rejects(outcome, { code: "died" })));
});

test("after a stop, a checkpoint that waits is canceled", { timeout: 10_000 }, async () => {
  const { promise: begun, resolve } = signalled();
  const { from, connection } = connect(untilAborted(resolve), hello, batch, { type: "stop", seconds: 1 });
  const [received, signal] = await begun;
  const refused = assert.rejects(received.checkpoint(), { name: "Canceled", reason: "stopped" });
  from.end();
  await connection.ended;
  assert.equal(signal.reason.reason, "stopped");
  await refused;
  await assert.rejects(received.checkpoint(), { name: "Canceled", reason: "stopped" });
});

test("a processor without columns, of an older release, is refused", { timeout: 10_000 }, async () => {
  const { from, connection } = connect(() => {}, { ...hello, can: ["status"] });
  from.end(); // it ends when it reads the end of its pipe
  await assert.rejects(connection.ended, { code: "contract", message: /sends no columns/ });
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

test("after a cancel, only a result counts", { timeout: 10_000 }, async () => {
  const change = { lsn: 1, time: "", op: "upsert", id: "a", key: ["a"], range: "-FF", document: {} };
  const aborted = (signal) => new Promise((resolve) => { signal.addEventListener("abort", resolve); });
  for (const [result, want] of [
    [() => ({ done: 1, error: "cut short" }), { type: "failed", id: 1, done: 1, error: "cut short" }],
    [() => ({ done: 2 }), { type: "done", id: 1 }],
    [() => undefined, { type: "released", id: 1 }],
    [() => { throw new Error("given up"); }, { type: "released", id: 1 }],
  ]) {
    const handler = async (_, signal) => {
      await aborted(signal);
      return result();
    };
    const { said, hear } = connect(handler, hello, { ...batch, changes: columnsOf([change, { ...change, id: "b" }]) });
    assert.equal((await next(said)).type, "hello");
    hear({ type: "cancel", id: 1, cause: "lost" });
    assert.deepEqual(await next(said), want);
  }
});

test("the answer of a loop is what it says of the batch", { timeout: 10_000 }, async () => {
  const queue = new BatchQueue();
  const { signal } = new AbortController();
  const [all, part, none] = [1, 2, 3].map(() => ({ changes: [1, 2] }));
  const outcomes = [all, part, none].map((one) => queue.handler(one, signal));
  (await queue.next()).done();
  (await queue.next()).done({ done: 1, error: "full" });
  (await queue.next()).fail("no");
  assert.deepEqual([await outcomes[0], await outcomes[1]], [{ done: 2 }, { done: 1, error: "full" }]);
  await assert.rejects(outcomes[2], (error) => error === "no");
});

test("a wait of more than a day, which the contract refuses, has no limit", { timeout: 10_000 }, async () => {
  const { connection, said } = connect(() => {}, hello);
  await next(said);
  const waits = [86_400_000, 86_400_001, Infinity, 0].map((ms) => connection.caughtUp(ms));
  const seconds = [];
  for (const wait of waits) {
    wait.catch(() => {}); // the connection stays until the test ends
    seconds.push((await next(said)).seconds);
  }
  assert.deepEqual(seconds, [86_400, undefined, undefined, undefined]);
});
