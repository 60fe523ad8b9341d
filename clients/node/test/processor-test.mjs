import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Outage, Poison, processor } from "@changefeed/client";
import { client, collect, fresh, server, signalled, start } from "./world.mjs";

test("each change is handled once, and a later processor goes on after it", async (t) => {
  const source = await fresh({}, "a", "b");
  const first = collect();
  const { p, run } = await start(t, source, { handler: first.handler });
  await p.caughtUp();
  await p.stop();
  await run;
  await source.container.items.create({ id: "c", pk: "c" });
  const second = collect();
  const { p: q } = await start(t, source, { handler: second.handler });
  await q.caughtUp();
  assert.deepEqual([first.seen, second.seen], [["a", "b"], ["c"]]);
});

test("a change has its members", async (t) => {
  const source = await fresh({ retentionMs: 600_000 });
  const changes = [];
  const { p } = await start(t, source, {
    mode: "all", decode: (d) => ({ ...d, isDecoded: true }), handler: async (b) => { changes.push(...b.changes); },
  });
  await source.container.items.create({ id: "a", pk: "k" });
  await source.container.item("a", "k").delete();
  await p.caughtUp();
  const [created, deleted] = changes;
  assert.deepEqual([created.op, deleted.op, created.id, created.key], ["create", "delete", "a", ["k"]]);
  assert.equal(created.value.isDecoded, true);
  assert.equal(deleted.value, undefined);
  assert.equal(deleted.previous.isDecoded, true);
  assert.ok(deleted.lsn > created.lsn && deleted.previousLsn === created.lsn);
  assert.ok(Math.abs(created.time.getTime() - Date.now()) < 60_000);
});

test("only the changes that a result names come again", async (t) => {
  const source = await fresh({}, "a", "b", "c");
  const tries = [];
  const { p } = await start(t, source, {
    keyed: 4,
    handler: async (batch) => {
      tries.push(...batch.changes.map((c) => c.id));
      const change = batch.changes.find((c) => c.id === "b");
      if (change && tries.filter((id) => id === "b").length < 3) return { failed: [{ change, error: new Error("no") }] };
    },
  });
  await p.caughtUp();
  assert.deepEqual(tries.filter((id) => id !== "b").sort(), ["a", "c"]);
  assert.equal(tries.filter((id) => id === "b").length, 3);
});

test("a result that says how many are done has the others come again", async (t) => {
  const source = await fresh({}, "a", "b", "c");
  const seen = [];
  const { p } = await start(t, source, {
    handler: async (batch) => {
      seen.push(batch.changes.map((c) => c.id).join(""));
      if (seen.length === 1) return { done: 2, error: new Error("no more") };
    },
  });
  await p.caughtUp();
  assert.deepEqual(seen, ["abc", "c"]);
});

test("a poison change and one that cannot be decoded are parked at once, and no other", async (t) => {
  const source = await fresh({}, "good", "poison", "bad", "fine");
  const { seen, handler } = collect();
  const { p } = await start(t, source, {
    maxAttempts: 50, deadLetters: new URL("letters", source.address.replace("/items", "/")).href,
    decode: (d) => {
      if (d.id === "bad") throw new Error("no such shape");
      return d;
    },
    handler: async (batch) => {
      await handler(batch);
      const change = batch.changes.find((c) => c.id === "poison");
      if (change) return { failed: [{ change, error: new Poison("never") }] };
    },
  });
  await p.caughtUp();
  const letters = client.database(source.database).container("letters");
  const { resources } = await letters.items.readAll().fetchAll();
  const text = JSON.stringify(resources);
  assert.match(text, /never/);
  assert.match(text, /no such shape/);
  assert.ok(!seen.includes("bad"));
  assert.deepEqual(["good", "poison", "fine"].filter((id) => seen.filter((s) => s === id).length !== 1), []);
});

test("letters are listed, retried and released", async (t) => {
  const source = await fresh();
  let isMended = false;
  const { seen, handler } = collect();
  const { p } = await start(t, source, {
    maxAttempts: 1, hold: true, deadLetters: new URL("letters", source.address.replace("/items", "/")).href,
    handler: async (batch) => {
      if (!isMended && batch.changes.some((c) => c.value.isBad)) throw new Poison("not yet");
      await handler(batch);
    },
  });
  const letters = async () => {
    const all = [];
    for await (const letter of p.letters()) all.push(letter);
    return all;
  };
  for (const pk of ["a", "b"]) {
    await source.container.items.create({ id: `${pk}1`, pk, isBad: true });
    while ((await letters()).length === 0);
    await source.container.items.create({ id: `${pk}2`, pk });
    let all;
    while ((all = await letters()).length < 2);
    assert.deepEqual(all.map((l) => [l.item, l.disposition]), [[`${pk}1`, "poison"], [`${pk}2`, "held"]]);
    assert.match(all[0].cause, /not yet/);
    if (pk === "a") {
      await assert.rejects(p.retry(all[0].id), { code: "failed" });
      isMended = true;
      await p.retry(all[0].id);
      isMended = false;
    } else {
      await p.release([pk]);
    }
    while ((await letters()).some((l) => l.disposition === "held"));
  }
  assert.deepEqual(seen, ["a1", "a2", "b2"]);
});

test("an outage counts as no attempt, and an error does", async (t) => {
  const source = await fresh({}, "a");
  const attempts = [];
  const { p } = await start(t, source, {
    maxAttempts: 2, deadLetters: new URL("letters", source.address.replace("/items", "/")).href,
    handler: async (batch) => {
      attempts.push(batch.attempt);
      if (attempts.length <= 4) throw new Outage("the database is away", 10);
      throw new Error("no");
    },
  });
  await p.caughtUp();
  assert.deepEqual(attempts, [1, 2, 3, 4, 5, 6]);
});

test("the log has the stack of a first attempt, and of no error on purpose", async (t) => {
  const source = await fresh({}, "a");
  const told = [];
  let calls = 0;
  const { p } = await start(t, source, {
    on: { log: (entry) => { if (entry.msg === "the handler has failed") told.push(entry); } },
    handler: async () => {
      calls++;
      if (calls < 3) throw new TypeError("x is undefined");
      if (calls === 3) throw new Outage("away", 10);
    },
  });
  await p.caughtUp();
  assert.equal(calls, 4);
  assert.deepEqual(told.map((entry) => entry.level), ["WARN"]);
  assert.match(told[0].stack, /^TypeError: x is undefined\n +at .*processor-test/);
});

test("a function of an event that throws is told, and the processor goes on", async (t) => {
  const source = await fresh({}, "a");
  const { seen, handler } = collect();
  const told = [];
  const { p } = await start(t, source, {
    handler,
    on: {
      lease() { throw new TypeError("a bad callback"); },
      log: (entry) => { if (entry.msg === "on.lease has failed") told.push(entry); },
    },
  });
  await p.caughtUp();
  assert.deepEqual([seen, told[0]?.level], [["a"], "ERROR"]);
  assert.match(told[0].stack, /^TypeError: a bad callback\n +at /);
});

test("a batch that takes too long is aborted, and comes again", async (t) => {
  const source = await fresh({}, "a");
  const reasons = [];
  const { p } = await start(t, source, {
    handlerTimeoutMs: 100,
    handler: async (batch, signal) => {
      if (batch.attempt > 1) return;
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
      reasons.push(signal.reason.reason);
    },
  });
  await p.caughtUp();
  assert.deepEqual(reasons, ["timeout"]);
});

test("a batch of a lost lease is aborted", async (t) => {
  const source = await fresh({}, "a");
  const begun = signalled();
  const aborted = signalled();
  const lost = signalled();
  await start(t, source, {
    renewMs: 200, acquireMs: 100, expirationMs: 1000,
    on: { log() {}, lease: (e) => { if (e.what === "lost") lost.resolve(e.lease); } },
    handler: async (_, signal) => {
      begun.resolve();
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
      aborted.resolve(signal.reason);
    },
  });
  await begun.promise;
  const leases = client.database(source.database).container("leases");
  const { resources } = await leases.items.readAll().fetchAll();
  const lease = resources.find((r) => r.LeaseToken);
  await leases.items.upsert({ ...lease, Owner: "another" });
  assert.equal((await aborted.promise).reason, "lost");
  assert.equal(await lost.promise, lease.LeaseToken);
});

test("stop gives a batch its time, then aborts it, and it comes again", async (t) => {
  const source = await fresh({}, "a");
  const begun = signalled();
  let reason;
  const { p, run } = await start(t, source, {
    handler: async (_, signal) => {
      begun.resolve();
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
      reason = signal.reason.reason;
    },
  });
  await begun.promise;
  await p.stop({ drainMs: 50 });
  await run;
  assert.equal(reason, "stopped");
  const { seen, handler } = collect();
  const { p: q } = await start(t, source, { handler });
  await q.caughtUp();
  assert.deepEqual(seen, ["a"]);
});

test("a batch that ends within its time is stored at the stop", async (t) => {
  const source = await fresh({}, "a");
  const begun = signalled();
  const goOn = signalled();
  const { p, run } = await start(t, source, {
    handler: async () => {
      begun.resolve();
      await goOn.promise;
    },
  });
  await begun.promise;
  const stopped = p.stop();
  goOn.resolve();
  await Promise.all([stopped, run]);
  assert.equal((await p.lag()).total, 0);
});

test("a handler that never settles does not keep the processor", async (t) => {
  const source = await fresh({}, "a");
  const begun = signalled();
  const { p, run } = await start(t, source, { handler: () => new Promise(() => begun.resolve()) });
  await begun.promise;
  const began = Date.now();
  await p.stop({ drainMs: 50 });
  await run.catch(() => {});
  assert.ok(Date.now() - began < 9_000, `${Date.now() - began} ms`);
});

test("the signal of run stops the processor", async () => {
  const source = await fresh();
  const controller = new AbortController();
  const p = processor({
    source: source.address, name: "unit", createLeases: true, auth: { key: server.key }, handler() {}, on: { log() {} },
  });
  const run = p.run(controller.signal);
  await p.ready;
  controller.abort();
  await run;
  assert.equal(p.pid, undefined);
});

test("a signal that is aborted already lets nothing begin", { timeout: 20_000 }, async (t) => {
  const source = await fresh({}, "a");
  const { seen, handler } = collect();
  const p = processor({
    source: source.address, name: "unit", createLeases: true, auth: { key: server.key }, handler, on: { log() {} },
  });
  t.after(() => p.stop());
  await p.run(AbortSignal.abort());
  assert.deepEqual([p.pid, seen], [undefined, []]);
});

test("the loop over batches acknowledges them", async () => {
  const source = await fresh({}, "a", "b", "c");
  const options = {
    source: source.address, name: "unit", createLeases: true, auth: { key: server.key }, maxItems: 1, on: { log() {} },
  };
  const seen = [];
  for await (const batch of processor(options).batches()) {
    seen.push(`${batch.changes[0].id}${batch.attempt}`);
    if (seen.length === 1) batch.fail(new Error("once more"));
    if (seen.at(-1) === "c1") break; // without an acknowledgement
  }
  assert.deepEqual(seen, ["a1", "a2", "b1", "c1"]);
  for await (const batch of processor(options).batches()) {
    assert.equal(batch.changes[0].id, "c");
    batch.done();
    break;
  }
  assert.equal((await processor(options).lag()).total, 0);
  const wrong = processor({ ...options, source: "http://127.0.0.1:1/a/b" });
  await assert.rejects(wrong.batches().next(), { code: "refused" });
});

test("keys are at work at once", async (t) => {
  const source = await fresh({}, "a", "b", "c");
  const all = signalled();
  let inHand = 0;
  const { p } = await start(t, source, {
    keyed: 3, maxItems: 1,
    handler: async () => {
      if (++inHand === 3) all.resolve();
      await all.promise;
    },
  });
  await p.caughtUp();
  assert.equal(inHand, 3);
});

test("a split in the middle loses nothing", async (t) => {
  const source = await fresh({}, "a", "b");
  const { seen, handler } = collect();
  const { p } = await start(t, source, { handler, maxItems: 1, acquireMs: 100 });
  await p.caughtUp();
  await server.split(source);
  for (const id of ["c", "d", "e", "f"]) await source.container.items.create({ id, pk: id });
  await p.caughtUp();
  assert.deepEqual(seen.sort(), ["a", "b", "c", "d", "e", "f"]);
  assert.equal((await p.lag()).leases.length, 2);
});

test("positions are stored by hand with the option manual", async (t) => {
  const source = await fresh({}, "a", "b");
  const { p, run } = await start(t, source, {
    manual: true, maxItems: 1,
    handler: async (batch) => { if (batch.changes[0].id === "a") await batch.checkpoint(); },
  });
  await source.container.items.create({ id: "c", pk: "c" });
  while ((await p.lag()).total !== 2); // a is stored
  await p.stop();
  await run;
  assert.equal((await p.lag()).total, 2);
});

test("a lag that is not known is null", async () => {
  const source = await fresh({ partitionKey: "/id" }); // it can have leases, and has none
  const p = processor({ source: source.address, name: "nobody", leases: source.address, auth: { key: server.key } });
  assert.deepEqual(await p.lag(), { total: null, leases: [] });
  await assert.rejects(p.caughtUp({ timeoutMs: 100 }), { code: "timeout", message: /not known/ });
});

test("a certificate that is not there is no unit without leases", async () => {
  const source = await fresh();
  const p = processor({ source: source.address, name: "unit", ca: "/nowhere/ca.pem", auth: { key: server.key } });
  await assert.rejects(p.caughtUp({ timeoutMs: 3000 }), { code: "missing", message: /nowhere/ });
});

test("the key is in no argument", { skip: process.platform !== "linux" && "this needs /proc" }, async (t) => {
  const source = await fresh();
  const { p } = await start(t, source, { handler() {} });
  const args = readFileSync(`/proc/${p.pid}/cmdline`, "utf8");
  assert.match(args, /--stdio/);
  assert.ok(!args.includes(server.key));
  assert.match(readFileSync(`/proc/${p.pid}/environ`, "utf8"), /COSMOS_KEY=/);
});

test("a blocked event loop is reported", async (t) => {
  const source = await fresh({}, "a");
  const silent = signalled();
  await start(t, source, {
    heartbeatMs: 100, on: { log: (e) => { if (/event loop/.test(e.msg)) silent.resolve(e.level); } },
    handler() { Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1500); },
  });
  assert.equal(await silent.promise, "WARN");
});

test("run rejects with the code and the hint of the binary", async () => {
  const source = await fresh();
  const options = { source: source.address, name: "unit", auth: { key: server.key }, handler() {}, on: { log() {} } };
  const run = (more) => {
    const p = processor({ ...options, ...more });
    return Promise.all([p.run(), assert.rejects(p.ready)]);
  };
  await assert.rejects(run({ source: "http://127.0.0.1:1/a/b" }), { code: "refused", hint: /nothing listens/ });
  await assert.rejects(run({ source: `${source.address}-missing` }), { code: "missing" });
  await assert.rejects(run({ maxAttempts: 3 }), { code: "usage", message: /dead-letters/ });
  await assert.rejects(run({ auth: { key: "AAAA" } }), { code: "refused" });
  await assert.rejects(run({ binary: "/no/such/program" }), { code: "binary" });
  await assert.rejects(run({ handler: undefined }), { code: "usage", message: /handler is missing: want one, or batches/ });
  await assert.rejects(run({ name: "" }), { code: "usage", message: "the option name is missing" });
});

test("what is no option is refused, and not ignored", () => {
  const options = { source: "http://127.0.0.1:1/a/b", name: "unit" };
  for (const [more, message] of [
    [{ start: "now" }, /there is no option start: want one of source, .*from/],
    [{ on: { errors() {} } }, /there is no event errors: want one of log, /],
    [{ handler: "mail" }, /handler is "mail": want a function of a batch/],
    [{ pollMs: "5s" }, /pollMs is 5s: want a number of milliseconds/],
  ]) {
    assert.throws(() => processor({ ...options, ...more }), { code: "usage", message });
  }
  processor({ ...options, start: undefined, pollMs: 5000, on: { log() {} } });
});
