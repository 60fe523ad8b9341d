// The handler of docs/program.md for `changefeed program test -- node test/steered.mjs`: the documents say what it does.
// With the argument --tokens it gives tokens, as the client does for a processor that it has started.
import { Socket } from "node:net";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { Outage, Poison, program, Unit } from "@changefeed/client";
import { Connection } from "../dist/contract.js";

const unit = new Unit();
const heard = { texts: [], ...deferred() };
const counts = new Map();
let meeting = { present: 0, ...deferred() };

function deferred() {
  let resolve;
  const promise = new Promise((r) => { resolve = r; });
  return { promise, resolve };
}

async function meet(n, signal) {
  const mine = meeting;
  if (++mine.present === n) {
    meeting = { present: 0, ...deferred() };
    mine.resolve();
  }
  await Promise.race([mine.promise, once(signal, "abort")]);
}

/** hear notes the text of an event. */
function hear(text) {
  heard.texts.push(text);
  heard.resolve();
  Object.assign(heard, deferred());
}

const on = {
  lease: (e) => hear(`lease ${e.lease} ${e.what}`),
  parked: (letter) => hear(`parked ${letter.item}: ${letter.cause}`),
  outage: (isOutage) => hear(`outage ${isOutage ? "began" : "ended"}`),
  error: (error) => hear(`problem ${error.code}: ${error.message}`),
};

/** askStatus throws the answer of the processor. */
async function askStatus() {
  const { total, leases } = await unit.lag();
  throw new Error([`pending ${total}`, ...leases.map((l) => `${l.lease} ${l.lag}`)].join("; "));
}

/** withText throws an error of a call with its text alone. */
const withText = (call) => call.catch((error) => { throw new Error(error.message); });

/** handle does what the documents say. */
async function handle(batch, signal) {
  const failed = [];
  for (const [index, change] of batch.changes.entries()) {
    const { do: order, error, seconds = 0, code, key, n } = change.value ?? {};
    switch (order) {
      case "fail":
        failed.push({ change, error: new Error(error) });
        break;
      case "poison":
        failed.push({ change, error: new Poison(error) });
        break;
      case "stop":
        return { done: index, error: new Error(error) };
      case "outage":
        return { done: index, error: new Outage(error, seconds * 1000) };
      case "fail all":
        throw new Error(error);
      case "poison all":
        throw new Poison(error);
      case "sleep":
        await sleep(seconds * 1000, undefined, { signal });
        break;
      case "wait":
        if (!signal.aborted) await once(signal, "abort");
        break;
      case "exit":
        process.exit(code);
        break;
      case "print":
        console.log(error);
        break;
      case "count":
        if (n !== (counts.get(key) ?? 0) + 1) throw new Error(`${key}: ${n} comes after ${counts.get(key) ?? 0}`);
        counts.set(key, n);
        break;
      case "meet":
        await meet(n, signal);
        break;
      case "checkpoint":
        await batch.checkpoint();
        break;
      case "heard":
        while (heard.texts.length < n && !signal.aborted) await Promise.race([heard.promise, once(signal, "abort")]);
        throw new Error(heard.texts.join("; "));
      case "status":
        await withText(askStatus());
        break;
      case "caughtup":
        await withText(unit.caughtUp({ timeoutMs: seconds * 1000 }));
        break;
    }
    signal.throwIfAborted();
  }
  if (failed.length > 0) return { failed };
}

/** token gives the scope as a token. */
async function token(scope) {
  if (scope === "none") throw new Error("no token");
  return { token: scope, expires: new Date("2040-01-02T03:04:05Z") };
}

if (process.argv.includes("--tokens")) {
  const from = new Socket({ fd: Number(process.env.CHANGEFEED_READ_FD), readable: true, writable: false });
  const to = new Socket({ fd: Number(process.env.CHANGEFEED_WRITE_FD), readable: false, writable: true });
  await new Connection(from, to, { handler: handle, batches: 2, heartbeatMs: 0, token }).ended;
  to.end();
} else {
  await program(handle, { heartbeatMs: 1000, on, unit });
}
