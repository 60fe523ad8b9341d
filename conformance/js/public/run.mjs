// Runs the tests that the JavaScript SDK publishes in its package, unmodified, against this server, and writes the
// outcome of each into a file: one JSON object a line, for tools/suites.
//
//	node run.mjs results.ndjson            all the tests
//	node run.mjs results.ndjson "TTL"      those whose names contain "TTL"
//
// 3.0.0 is the newest version of the SDK whose package has tests. One of them says ".only", so it would run alone: here
// ".only" has no effect. The server is a new store in memory on a free port; containers are not throttled.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Mocha from "mocha";
import { build, serve, stop } from "../server.mjs";

/** leftOut is a suite whose own proxy now and then writes to a closed connection, which ends the whole run. */
const leftOut = "Validate http proxy setting in environment variable";
const testLimit = 60_000; // milliseconds, of one test
const runLimit = 900_000; // of all

/** said is what a test failed with, on one line: errors of this SDK are objects, which mocha writes as text. */
function said(err) {
  const text = String(err?.message ?? JSON.stringify(err)).replace(/\s+/g, " ");
  return text.replace(/^the object \{.*?"body": /, "");
}

/** test runs the suite, and answers the outcome of each test. A hook that fails counts as a test. */
function test(only) {
  const mocha = new Mocha({ timeout: testLimit, reporter: "min", grep: only });
  mocha.suite.on("pre-require", (context) => {
    for (const make of [context.it, context.describe]) make.only = make;
  });
  mocha.addFile(createRequire(import.meta.url).resolve("@azure/cosmos/dist-test/index.js"));
  mocha.loadFiles();
  mocha.files = []; // loaded
  mocha.suite.suites = mocha.suite.suites.filter((suite) => suite.title !== leftOut);
  const outcomes = [];
  const add = (outcome) => (t, err) =>
    outcomes.push({ test: t.titlePath().join(" > "), outcome, message: err === undefined ? "" : said(err) });
  return new Promise((resolve) => {
    const run = mocha.run(() => resolve(outcomes));
    run.on("pass", add("passed")).on("fail", add("failed")).on("pending", add("skipped"));
  });
}

async function main(file, only) {
  if (file === undefined) throw new Error("want the name of the file for the results");
  const dir = mkdtempSync(join(tmpdir(), "conformance-js-public-"));
  process.once("exit", () => rmSync(dir, { recursive: true, force: true }));
  const server = await serve(build(dir), ["--ru", "-1", "--insecure-aad"]);
  // The suite trusts each server on "https://localhost", and has limits of its own for slow tests.
  process.env.ACCOUNT_HOST = server.endpoint.replace("127.0.0.1", "localhost").replace(/\/$/, "");
  process.env.ACCOUNT_KEY = server.key;
  process.env.MOCHA_TIMEOUT = String(testLimit);
  const outcomes = await test(only);
  const status = await stop(server);
  if (status !== 0) throw new Error(`changefeed serve ended with ${status ?? "a kill"}`);
  writeFileSync(file, outcomes.map((o) => JSON.stringify(o) + "\n").join(""));
}

setTimeout(() => {
  console.error(`conformance-js: the suite has not ended within ${runLimit / 60_000} minutes`);
  process.exit(1);
}, runLimit).unref();
for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => process.exit(1));

const status = await main(process.argv[2], process.argv[3]).then(() => 0, (err) => {
  console.error(`conformance-js: ${err.message}`);
  return 1;
});
process.exit(status);
