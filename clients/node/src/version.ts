import { readFileSync } from "node:fs";

const { name, version } = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8")) as
  { name: string; version: string };

/** client is the name and version of this library, for the processor's log. */
export const client = `${name} ${version}`;
