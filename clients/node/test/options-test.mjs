// What the binary gets of the options and of the environment, and how a lag is read.
import assert from "node:assert/strict";
import { test } from "node:test";
import { environment } from "../dist/binary.js";
import { lagIn } from "../dist/lag.js";
import { runArguments } from "../dist/options.js";

test("each option has its flag", async () => {
  const options = {
    name: "unit", instance: "one", variant: "v2", from: new Date(0), ca: "ca.pem", mode: "all", maxItems: 1, keyed: 2,
    maxAttempts: 3, maxSetAside: 4, minLeases: 5, weight: 6, deadLetters: "letters.jsonl", maxAgeMs: 7, handlerTimeoutMs: 8,
    drainMs: 10, expirationMs: 11, pollMs: 12, acquireMs: 13, renewMs: 14, createLeases: true, hold: true, once: true,
    manual: true, shareByLoad: true, auth: { getToken() {} },
  };
  const args = await runArguments(options, { source: "http://h/a/b", leases: "http://h/a/l" });
  assert.deepEqual(args, [
    "run", "--stdio", "-o", "json", "-v", "--source=http://h/a/b", "--leases=http://h/a/l", "--name=unit", "--instance=one",
    "--variant=v2", "--from=1970-01-01T00:00:00.000Z", "--ca=ca.pem", "--mode=all", "--batch-size=1", "--concurrency=2",
    "--max-attempts=3", "--max-set-aside=4", "--min-leases=5", "--weight=6", "--dead-letters=letters.jsonl", "--max-age=7ms",
    "--timeout=8ms", "--drain=10ms", "--expiration=11ms", "--poll=12ms", "--acquire=13ms", "--renew=14ms", "--grace=5ms",
    "--token-from-program", "--create-leases", "--hold", "--once", "--manual", "--share-by-load",
  ]);
});

test("who is given is not mixed with who is in the environment", (t) => {
  const variables = ["COSMOS_ENDPOINT", "COSMOS_KEY", "COSMOS_CONNECTION_STRING", "CHANGEFEED_CONTEXT"];
  const before = { ...process.env };
  t.after(() => {
    for (const name of variables) delete process.env[name];
    Object.assign(process.env, before);
  });
  for (const name of variables) process.env[name] = "of the environment";
  const endpoint = "https://h/";
  const of = (access) => variables.map((name) => environment(access)[name]);
  assert.deepEqual(of({ auth: { key: "k" }, endpoint }), [endpoint, "k", undefined, undefined]);
  assert.deepEqual(of({ auth: { connectionString: "c" }, endpoint }), [undefined, undefined, "c", undefined]);
  assert.deepEqual(of({ auth: { getToken() {} }, endpoint }), [endpoint, undefined, undefined, undefined]);
  assert.deepEqual(of({ endpoint }), variables.map(() => "of the environment"));
});

test("a lag has milliseconds, and null for what is not known", () => {
  const row = {
    lease: "-7F", owner: "one", state: "reading", position: "3", attempts: 1, held: 2, set_aside: 3, stuck: ["paused"],
    notes: ["n"], lag: 4, lag_seconds: 2.5,
  };
  const known = {
    lease: "-7F", owner: "one", state: "reading", position: "3", attempts: 1, held: 2, setAside: 3, stuck: ["paused"],
    notes: ["n"], lag: 4, oldestMs: 2500,
  };
  const unknown = {
    lease: "7F-FF", owner: null, state: "unknown", position: null, attempts: null, held: null, setAside: null, stuck: [],
    notes: [], lag: null, oldestMs: null,
  };
  const none = { lease: "7F-FF", owner: null, lag: null, lag_seconds: 2.5 };
  assert.deepEqual(lagIn({ pending: 4, leases: [row, none] }), { total: 4, leases: [known, unknown] });
  assert.deepEqual(lagIn({ pending: null }), { total: null, leases: [] });
});
