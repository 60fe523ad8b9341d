// Packs the client and a package for each platform:
//
//	node pack.mjs DIR GOOS/GOARCH=BINARY...
//
// It writes .tgz files to DIR. The client must have been built (npm run build). Its package names those of all platforms
// as optional dependencies, so that npm installs the one that fits.

import { execFileSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, "..", "..");
const systems = { linux: "linux", darwin: "darwin", windows: "win32" };
const processors = { amd64: "x64", arm64: "arm64" };
const platforms = ["linux/amd64", "linux/arm64", "darwin/arm64", "darwin/amd64", "windows/amd64"];

/** nameOf returns the name of a platform's package. */
function nameOf(platform) {
  const [os, cpu] = platform.split("/");
  if (!systems[os] || !processors[cpu]) throw new Error(`${platform} is not one of ${platforms.join(", ")}`);
  return { os: systems[os], cpu: processors[cpu], name: `@changefeed/${systems[os]}-${processors[cpu]}` };
}

/** pack makes a .tgz file of a description and files, and prints its size. */
function pack(dir, description, files) {
  const scratch = mkdtempSync(join(tmpdir(), "changefeed-pack-"));
  try {
    writeFileSync(join(scratch, "package.json"), JSON.stringify(description, undefined, 2) + "\n");
    for (const [to, from] of Object.entries(files)) {
      mkdirSync(dirname(join(scratch, to)), { recursive: true });
      cpSync(from, join(scratch, to), { recursive: true });
    }
    const out = execFileSync("npm", ["pack", "--silent", "--ignore-scripts", "--pack-destination", dir], {
      cwd: scratch, encoding: "utf8", shell: process.platform === "win32",
    });
    const file = join(dir, basename(out.trim().split("\n").at(-1)));
    console.log(`== ${file} ${(statSync(file).size / 1e6).toFixed(2)} MB`);
  } finally {
    rmSync(scratch, { recursive: true });
  }
}

const [to, ...pairs] = process.argv.slice(2);
if (!to || pairs.some((p) => !p.includes("="))) throw new Error("want: node pack.mjs DIR GOOS/GOARCH=BINARY...");
const dir = resolve(to);
mkdirSync(dir, { recursive: true });
const { devDependencies: _, scripts: __, ...main } = JSON.parse(readFileSync(join(here, "package.json"), "utf8"));
if (!existsSync(join(here, "dist", "index.js"))) throw new Error("dist is missing: npm run build");
const licences = {
  LICENSE: join(root, "LICENSE"),
  "NOTICES.txt": join(root, "cmd/changefeed/internal/notices/notices.txt"),
};
for (const pair of pairs) {
  const [platform, binary] = pair.split("=");
  const { name, os, cpu } = nameOf(platform);
  const executable = os === "win32" ? "changefeed.exe" : "changefeed";
  pack(dir, {
    name, version: main.version, description: `The binary of ${main.name} for ${os} on ${cpu}`, license: main.license,
    os: [os], cpu: [cpu], files: ["bin", "NOTICES.txt"],
  }, { [`bin/${executable}`]: binary, ...licences });
}
pack(dir, {
  ...main, optionalDependencies: Object.fromEntries(platforms.map((p) => [nameOf(p).name, main.version])),
}, { dist: join(here, "dist"), "README.md": join(here, "README.md"), LICENSE: licences.LICENSE });
