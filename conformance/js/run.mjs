// Runs the JavaScript SDK, unmodified, against this server: builds changefeed, serves a new store
// on a free port with a certificate of its own, runs the tests against it, and stops it.
//
//	node run.mjs            all the tests
//	node run.mjs query      those of the files whose names contain "query"
//
// It ends with a line such as "80 passed, 0 failed", and with status 1 unless every test passed.

import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { run } from "node:test";
import { fileURLToPath } from "node:url";
import { inspect } from "node:util";

const here = dirname(fileURLToPath(import.meta.url));
const startLimit = 10_000; // milliseconds
const stopLimit = 10_000;
const testLimit = 60_000; // of one test
const filesAtOnce = 2;

/** build makes the binary that is tested, and answers where it is. */
function build(dir) {
  const binary = join(dir, "changefeed");
  const made = spawnSync("go", ["build", "-o", binary, "./cmd/changefeed"], { cwd: join(here, "..", ".."), stdio: "inherit" });
  if (made.status !== 0) throw new Error(`build changefeed: ${made.error?.message ?? `status ${made.status}`}`);
  return binary;
}

/** serve starts the server and waits until it says where it listens. */
async function serve(binary, dir) {
  const args = ["serve", "--db", join(dir, "store"), "--listen", "127.0.0.1:0", "-o", "json"];
  const child = spawn(binary, args, { stdio: ["ignore", "pipe", "inherit"] });
  process.once("exit", () => child.kill("SIGKILL")); // if it is still there
  const ended = new Promise((resolve) => child.once("exit", (code, signal) => resolve(code ?? signal)));
  const said = new Promise((resolve) => createInterface(child.stdout).once("line", resolve));
  const line = await Promise.race([said, ended, late(startLimit)]);
  if (typeof line !== "string" || !line.startsWith("{")) {
    throw new Error(`start changefeed serve: ${line ?? `it said nothing for ${startLimit} ms`}`);
  }
  return { child, ended, ...JSON.parse(line) };
}

/** stop asks the server to end, and answers how it did. */
async function stop(server) {
  server.child.kill("SIGTERM");
  const status = await Promise.race([server.ended, late(stopLimit)]);
  if (status === undefined) server.child.kill("SIGKILL");
  return status;
}

const late = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds).unref());

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
  const server = await serve(build(dir), dir);
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
