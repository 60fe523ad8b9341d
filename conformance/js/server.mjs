// Builds changefeed, and starts and stops its server, for the programs that run tests against it.

import { spawn, spawnSync } from "node:child_process";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const startLimit = 10_000; // milliseconds
const stopLimit = 10_000;

/** build makes the binary that is tested, and answers where it is. */
export function build(dir) {
  const binary = join(dir, "changefeed");
  const made = spawnSync("go", ["build", "-o", binary, "./cmd/changefeed"], { cwd: join(here, "..", ".."), stdio: "inherit" });
  if (made.status !== 0) throw new Error(`build changefeed: ${made.error?.message ?? `status ${made.status}`}`);
  return binary;
}

/** serve starts the server on a free port, and waits until it says where it listens. */
export async function serve(binary, flags) {
  const args = ["serve", ...flags, "--listen", "127.0.0.1:0", "-o", "json"];
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
export async function stop(server) {
  server.child.kill("SIGTERM");
  const status = await Promise.race([server.ended, late(stopLimit)]);
  if (status === undefined) server.child.kill("SIGKILL");
  return status;
}

const late = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds).unref());
