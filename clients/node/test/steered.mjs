// The handler of docs/program.md for `changefeed program test -- node test/steered.mjs`: the documents say what it does.
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { Outage, Poison, program } from "@changefeed/client";

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

await program(async (batch, signal) => {
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
    }
    signal.throwIfAborted();
  }
  if (failed.length > 0) return { failed };
}, { heartbeatMs: 1000 });
