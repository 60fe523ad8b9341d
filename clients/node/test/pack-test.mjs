// The packages, installed into a clean folder without a network.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { findBinary } from "@changefeed/client";
import { fresh, server } from "./world.mjs";

const exec = promisify(execFile);
const here = dirname(fileURLToPath(import.meta.url));
const goNames = { win32: "windows", x64: "amd64" };
const goName = (name) => goNames[name] ?? name;

test("the packages can be installed offline, and the example of the README runs", { timeout: 80_000 }, async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "changefeed-"));
  t.after(() => rm(dir, { recursive: true }));
  const platform = `${goName(process.platform)}/${goName(process.arch)}`;
  await exec(process.execPath, [join(here, "..", "pack.mjs"), join(dir, "packages"), `${platform}=${findBinary()}`]);
  const files = (await readdir(join(dir, "packages"))).map((name) => join(dir, "packages", name));
  assert.equal(files.length, 2);

  const shell = process.platform === "win32";
  const { CHANGEFEED_BINARY: _, ...env } = process.env;
  const flags = ["--offline", "--cache", join(dir, "cache"), "--no-audit", "--no-fund", "--loglevel=error"];
  await writeFile(join(dir, "package.json"), JSON.stringify({ type: "module" }));
  await exec("npm", ["install", ...flags, ...files], { cwd: dir, env, shell });

  const source = await fresh({ partitionKey: "/city" });
  await source.container.items.create({ id: "1", city: "Oslo" });
  const readme = await readFile(join(here, "..", "README.md"), "utf8");
  const example = /```js\n(.*?)```/s.exec(readme)[1].replaceAll(/https:\S+?"/g, `${source.address}"`);
  assert.match(example, /processor/);
  await writeFile(join(dir, "app.mjs"), example.replaceAll("await p.run(", "setTimeout(() => p.stop(), 1500); $&"));
  const { stdout } = await exec(process.execPath, ["app.mjs"], { cwd: dir, env: { ...env, COSMOS_KEY: server.key } });
  assert.match(stdout, /Oslo/);
  const where = await exec(process.execPath, ["--input-type=module", "-e",
    'import { findBinary } from "@changefeed/client"; console.log(findBinary())'], { cwd: dir, env });
  assert.ok(where.stdout.includes(join("node_modules", "@changefeed")), where.stdout);
});
