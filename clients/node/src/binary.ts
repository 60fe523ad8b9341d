import { spawn } from "node:child_process";
import { accessSync, constants, statSync } from "node:fs";
import { createRequire } from "node:module";
import { delimiter, join } from "node:path";
import { ChangefeedError } from "./failures.js";

const require = createRequire(import.meta.url);
const executable = process.platform === "win32" ? "changefeed.exe" : "changefeed";

/**
 * findBinary returns the path of the binary: the given one, that of CHANGEFEED_BINARY, that of the optional dependency
 * for this platform, or the first in PATH.
 */
export function findBinary(given?: string): string {
  const named = given ?? process.env.CHANGEFEED_BINARY;
  if (named) {
    if (isProgram(named)) return named;
    const from = given ? "the option binary" : "CHANGEFEED_BINARY";
    throw new ChangefeedError(`${from} is ${named}: there is no such program`, "binary");
  }
  const optional = `@changefeed/${process.platform}-${process.arch}`;
  try {
    return require.resolve(`${optional}/bin/${executable}`);
  } catch {
    // not installed
  }
  for (const dir of (process.env.PATH ?? "").split(delimiter)) {
    if (dir && isProgram(join(dir, executable))) return join(dir, executable);
  }
  throw new ChangefeedError(
    `there is no binary changefeed: CHANGEFEED_BINARY is not set, the package ${optional} is not installed, and PATH ` +
      "has none",
    "binary", `install ${optional} (npm install without --omit=optional), or let CHANGEFEED_BINARY name the binary`,
  );
}

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}

/** TokenCredential is that of \@azure/core-auth. */
export interface TokenCredential {
  getToken(scopes: string | string[]): Promise<{ token: string; expiresOnTimestamp: number } | null>;
}

/** Auth is who asks an account. */
export type Auth = { key: string } | { connectionString: string } | TokenCredential;

/** isCredential reports whether tokens are used. */
export function isCredential(auth: Auth | undefined): auth is TokenCredential {
  return auth !== undefined && "getToken" in auth;
}

/** tokenOf asks a credential for a token. */
export async function tokenOf(credential: TokenCredential, scope: string): Promise<{ token: string; expires: Date }> {
  const got = await credential.getToken(scope);
  if (!got) throw new Error("the credential gives no token");
  return { token: got.token, expires: new Date(got.expiresOnTimestamp) };
}

/** Access is how the binary reaches an account. */
export interface Access {
  auth?: Auth | undefined;
  ca?: string | undefined;
  endpoint?: string | undefined; // of the account to which the key belongs
}

const accountVariables = ["COSMOS_ENDPOINT", "COSMOS_KEY", "COSMOS_CONNECTION_STRING", "CHANGEFEED_CONTEXT"];

/** environment returns the environment of the binary. Secrets are here, because every user can see arguments. */
export function environment({ auth, endpoint }: Access): NodeJS.ProcessEnv {
  if (!auth) return { ...process.env };
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !accountVariables.includes(name)));
  if (isCredential(auth)) return { ...env, ...(endpoint ? { COSMOS_ENDPOINT: endpoint } : {}) };
  if ("connectionString" in auth) return { ...env, COSMOS_CONNECTION_STRING: auth.connectionString };
  return { ...env, COSMOS_KEY: auth.key, ...(endpoint ? { COSMOS_ENDPOINT: endpoint } : {}) };
}

/** The members of an error that the binary writes, and of a line of its log. */
export interface Said {
  kind?: string;
  error?: string;
  code?: string;
  hint?: string | null;
  reason?: string | null;
  time?: string;
  level?: string;
  msg?: string;
  [member: string]: unknown;
}

/** parseSaid parses a line of the binary's standard error. */
export function parseSaid(line: string): Said {
  try {
    const said: unknown = JSON.parse(line);
    if (typeof said === "object" && said !== null) return said as Said;
  } catch {
    // a line of a panic, for example
  }
  return { level: "ERROR", msg: line };
}

/** errorOf returns the error with which the binary has ended; undefined if it has ended in order. */
export function errorOf(
  said: Said | undefined, code: number | null, signal: NodeJS.Signals | null, last?: string,
): ChangefeedError | undefined {
  if (said) {
    return new ChangefeedError(said.error ?? "changefeed has failed", said.code ?? "failed", said.hint ?? null,
      said.reason ?? null);
  }
  if (code === 0) return undefined;
  const how = signal ? `by ${signal}` : `with the exit code ${code}`;
  return new ChangefeedError(`changefeed has ended ${how}${last ? `: ${last}` : ""}`, "died");
}

/** ask runs a command of the binary and returns the objects that it prints. */
export async function ask(binary: string, args: string[], access: Access, timeoutMs = 60_000): Promise<Said[]> {
  if (isCredential(access.auth)) {
    throw new ChangefeedError(`changefeed ${args[0]} cannot use the credential of this process`, "usage",
      "call it while the processor runs, or give it a key");
  }
  const ca = access.ca ? ["--ca", access.ca] : [];
  const child = spawn(binary, [...args, ...ca, "-o", "json"], {
    env: environment(access), stdio: ["ignore", "pipe", "pipe"], windowsHide: true, timeout: timeoutMs,
  });
  const out: Buffer[] = [];
  const err: Buffer[] = [];
  child.stdout.on("data", (chunk: Buffer) => out.push(chunk));
  child.stderr.on("data", (chunk: Buffer) => err.push(chunk));
  const [code, signal] = await new Promise<[number | null, NodeJS.Signals | null]>((resolve, reject) => {
    child.once("error", (error) => reject(new ChangefeedError(`start ${binary}: ${error.message}`, "binary")));
    child.once("close", (code, signal) => resolve([code, signal]));
  });
  const lines = (chunks: Buffer[]) => Buffer.concat(chunks).toString("utf8").split("\n").filter(Boolean);
  const complaints = lines(err);
  const failure = errorOf(complaints.map(parseSaid).find((s) => s.kind === "error"), code, signal, complaints.at(-1));
  if (failure) throw failure;
  return lines(out).map(parseSaid);
}
