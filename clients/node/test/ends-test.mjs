// How the binary ends with its parent, and where it is found.
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { mkdtemp, rm, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { findBinary, processor, startServer } from "@changefeed/client";
import { fresh, isAlive, server } from "./world.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const tokenCases = ["gives tokens of its identity", "says why it has no token"];
const isWindows = process.platform === "win32";

/** untilGone waits for the end of a process. */
async function untilGone(pid) {
  while (isAlive(pid)) await sleep(10);
}

test("a client that is killed leaves no binary behind", { timeout: 20_000 }, async () => {
  const source = await fresh({}, "a");
  const child = spawn(process.execPath, [join(here, "child.mjs")], {
    env: { ...process.env, SOURCE: source.address, KEY: server.key }, stdio: ["ignore", "pipe", "inherit"],
  });
  const [line] = await new Promise((resolve) => createInterface(child.stdout).once("line", (l) => resolve([l])));
  const pids = JSON.parse(line);
  assert.deepEqual(Object.values(pids).map(isAlive), [true, true]);
  child.kill("SIGKILL");
  await Promise.all(Object.values(pids).map(untilGone));
});

test("run rejects if the binary is killed", async (t) => {
  const source = await fresh();
  const p = processor({
    source: source.address, name: "unit", createLeases: true, auth: { key: server.key }, handler() {}, on: { log() {} },
  });
  const run = p.run();
  t.after(() => p.stop());
  await p.ready;
  process.kill(p.pid, "SIGKILL");
  await assert.rejects(run, { code: "died", message: /(SIGKILL|exit code \d+)$/ });
});

test("the binary is found where it is named, or else in PATH", { skip: isWindows && "links" }, async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "changefeed-"));
  t.after(() => rm(dir, { recursive: true }));
  const real = findBinary();
  await symlink(real, join(dir, "changefeed"));
  const before = { ...process.env };
  t.after(() => { Object.assign(process.env, before); });
  assert.equal(findBinary(join(dir, "changefeed")), join(dir, "changefeed"));
  process.env.CHANGEFEED_BINARY = join(dir, "missing");
  assert.throws(() => findBinary(), { code: "binary", message: /CHANGEFEED_BINARY is .*missing/ });
  delete process.env.CHANGEFEED_BINARY;
  process.env.PATH = [join(dir, "nowhere"), dir].join(delimiter);
  assert.equal(findBinary(), join(dir, "changefeed"));
  process.env.PATH = join(dir, "nowhere");
  assert.throws(() => findBinary(), { code: "binary", hint: /install @changefeed\// });
  await assert.rejects(startServer(), { code: "binary" });
});

test("changefeed program test has no failure", { timeout: 80_000 }, async () => {
  const command = ["program", "test", "--", process.execPath, join(here, "steered.mjs")];
  const { stdout } = await promisify(execFile)(findBinary(), command);
  const lines = stdout.trim().split("\n");
  const skipped = lines.filter((line) => line.startsWith("skip")).map((line) => line.replace(/^skip /, ""));
  assert.ok(lines.length > 25 && lines.every((line) => isWindows || /^(ok|skip) /.test(line)), stdout);
  if (!isWindows) {
    assert.deepEqual(skipped, tokenCases.map((name) => `${name}: its hello offers no tokens`), "a program has no identity");
  }
});

test("a client that gives tokens passes the cases about them", { skip: isWindows && "descriptors" }, async () => {
  const cases = tokenCases.flatMap((name) => ["--case", name]);
  const command = ["program", "test", ...cases, "--", process.execPath, join(here, "steered.mjs"), "--tokens"];
  const { stdout } = await promisify(execFile)(findBinary(), command);
  assert.deepEqual(stdout.trim().split("\n"), tokenCases.map((name) => `ok   ${name}`));
});
