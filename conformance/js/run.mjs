// Runs the JavaScript SDK, unmodified, against this server: builds changefeed, serves a new store
// on a free port with a certificate of its own, runs the tests against it, and stops it.
//
//	node run.mjs            all the tests
//	node run.mjs query      those of the files whose names contain "query"
//
// It ends with a line such as "80 passed, 0 failed", and with status 1 unless every test passed.

import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { run } from "node:test";
import { fileURLToPath } from "node:url";
import { inspect } from "node:util";
import { build, serve, stop } from "./server.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const testLimit = 60_000; // milliseconds, of one test
const filesAtOnce = 2;

/** test runs the files, shows what fails, and counts. A file that does not load counts as failed. */
async function test(files) {
  const count = { passed: 0, failed: 0 };
  for await (const { type, data } of run({ files, concurrency: filesAtOnce, timeout: testLimit })) {
    const wholeFile = data.name?.endsWith(".mjs");
    if (type === "test:pass" && !wholeFile) count.passed++;
    if (type === "test:fail") {
      count.failed++;
      console.log(`FAIL ${basename(data.file ?? data.name)}: ${data.name}\n${inspect(data.details.error.cause ?? data.details.error)}\n`);
    }
    if (type === "test:stdout" || type === "test:stderr") process.stdout.write(data.message);
  }
  return count;
}

async function main(only) {
  const files = readdirSync(here)
    .filter((name) => name.endsWith("-test.mjs") && name.includes(only))
    .map((name) => join(here, name));
  if (files.length === 0) throw new Error(`no file is named *${only}*-test.mjs`);
  const dir = mkdtempSync(join(tmpdir(), "conformance-js-"));
  process.once("exit", () => rmSync(dir, { recursive: true, force: true }));
  const server = await serve(build(dir), ["--db", join(dir, "store")]);
  Object.assign(process.env, {
    NODE_EXTRA_CA_CERTS: server.certificate, // read when a process starts: the tests run in children
    COSMOS_ENDPOINT: server.endpoint,
    COSMOS_KEY: server.key,
  });
  const count = await test(files);
  const status = await stop(server);
  if (status !== 0) throw new Error(`changefeed serve ended with ${status ?? "a kill"}`);
  console.log(`${count.passed} passed, ${count.failed} failed`);
  return count.failed === 0 && count.passed > 0 ? 0 : 1;
}

for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => process.exit(1));

const status = await main(process.argv[2] ?? "").catch((err) => {
  console.error(`conformance-js: ${err.message}`);
  return 1;
});
process.exit(status);
