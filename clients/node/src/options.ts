import { type Access, type Auth, isCredential, type Said } from "./binary.js";
import type { Handler } from "./contract.js";
import type { ProcessorEvents } from "./events.js";
import { ChangefeedError } from "./failures.js";

/** ContainerLike is a Container of \@azure/cosmos. */
export interface ContainerLike {
  id: string;
  database: { id: string; client: { getWriteEndpoint(): Promise<string> } };
}

/** An entry of the processor's log. */
export interface LogEntry extends Said {
  level: string;
  msg: string;
}

/** Events of the processor. */
export interface Events extends ProcessorEvents {
  /** Each entry of the binary's log. Without it, warnings and errors go to console.warn. */
  log?(entry: LogEntry): void;
}

/** The options of a processor. Those with a flag behind them are those of `changefeed run`. */
export interface Options<T> {
  /** The monitored container: its address, such as "https://host/database/container", or a Container of the SDK. */
  source: string | ContainerLike;
  /** The lease container; the default is "leases" beside the source. */
  leases?: string | ContainerLike;
  /** Make the lease container, and that of deadLetters, if missing. */
  createLeases?: boolean;
  /** The name of the unit: processes with the same name share the work. */
  name: string;
  instance?: string;
  variant?: string;
  /** Where a new unit begins; the default is "beginning", or "now" in mode "all". */
  from?: "beginning" | "now" | Date;
  /** The key of the account, or a credential of \@azure/identity. The default is the key of the environment, or the
   * identity of the machine. */
  auth?: Auth;
  /** A file with the certificate that a server made itself. */
  ca?: string;
  /** Called for each batch. Without it, use batches(). */
  handler?: Handler<T>;
  /** Decodes a document. If it throws, that change alone is poison. */
  decode?: (document: unknown) => T;
  mode?: "latest" | "all";
  /** The most changes of a batch; the default is a whole page. */
  maxItems?: number;
  /** Batches of a lease at once, with different keys; the default is 1. */
  keyed?: number;
  /** Batches in the handler at once, of all leases; the default is 16, or keyed if that is more. */
  batches?: number;
  maxAttempts?: number;
  maxAgeMs?: number;
  maxSetAside?: number;
  /** Where failing changes are parked: a container, or a file. */
  deadLetters?: string | ContainerLike;
  hold?: boolean;
  /** End when all changes are handled. */
  once?: boolean;
  /** The position of a batch is stored by batch.checkpoint(), not at the end of the handler. */
  manual?: boolean;
  handlerTimeoutMs?: number;
  drainMs?: number;
  expirationMs?: number;
  pollMs?: number;
  acquireMs?: number;
  renewMs?: number;
  minLeases?: number;
  weight?: number;
  shareByLoad?: boolean;
  /** Time between heartbeats; the default is 5 s, and 0 is none. */
  heartbeatMs?: number;
  on?: Events;
  /** The binary. The default is CHANGEFEED_BINARY, then the package for this platform, then PATH. */
  binary?: string;
}

/** All options, so that the compiler knows when one is missing here. */
const known: Record<keyof Options<unknown>, true> = {
  source: true, leases: true, createLeases: true, name: true, instance: true, variant: true, from: true, auth: true,
  ca: true, handler: true, decode: true, mode: true, maxItems: true, keyed: true, batches: true, maxAttempts: true,
  maxAgeMs: true, maxSetAside: true, deadLetters: true, hold: true, once: true, manual: true, handlerTimeoutMs: true,
  drainMs: true, expirationMs: true, pollMs: true, acquireMs: true, renewMs: true, minLeases: true, weight: true,
  shareByLoad: true, heartbeatMs: true, on: true, binary: true,
};

/** All events. */
const knownEvents: Record<keyof Events, true> = { log: true, lease: true, parked: true, outage: true, error: true };

/** checkOptions refuses what is no option, which would be ignored, and a time that is no number. */
export function checkOptions(o: object): void {
  refuseUnknown(o, known, "option");
  const { on } = o as { on?: unknown };
  if (on) refuseUnknown(on, knownEvents, "event");
  const { handler } = o as { handler?: unknown };
  if (handler !== undefined && typeof handler !== "function") {
    throw new ChangefeedError(`handler is ${JSON.stringify(handler)}: want a function of a batch`, "usage");
  }
  for (const [name, value] of Object.entries(o)) {
    if (name.endsWith("Ms") && value !== undefined && !Number.isFinite(value)) {
      throw new ChangefeedError(`${name} is ${String(value)}: want a number of milliseconds`, "usage");
    }
  }
}

function refuseUnknown(o: object, names: object, what: string): void {
  for (const [name, value] of Object.entries(o)) {
    if (value !== undefined && !Object.hasOwn(names, name)) {
      throw new ChangefeedError(`there is no ${what} ${name}: want one of ${Object.keys(names).join(", ")}`, "usage");
    }
  }
}

/** addressOf returns the address of a container. */
export async function addressOf(container: string | ContainerLike): Promise<string> {
  if (typeof container === "string") return container;
  const endpoint = await container.database.client.getWriteEndpoint();
  return new URL(`${container.database.id}/${container.id}`, endpoint.endsWith("/") ? endpoint : `${endpoint}/`).href;
}

/** endpointOf returns the endpoint of the account of an address; undefined if the address does not name it. */
export function endpointOf(address: string): string | undefined {
  return /^https?:\/\//.test(address) ? new URL("/", address).href : undefined;
}

const defaultDrainMs = 10_000;

/** drainOf returns how long a batch in hand may take at the end. */
export const drainOf = (o: { drainMs?: number }): number => o.drainMs ?? defaultDrainMs;

/** Resolved is where the containers of a processor are. */
export interface Resolved {
  source: string;
  leases: string | undefined;
  access: Access;
}

/** resolve finds the addresses of the containers. */
export async function resolve<T>(o: Options<T>): Promise<Resolved> {
  const missing = (["source", "name"] as const).find((option) => !o[option]);
  if (missing) throw new ChangefeedError(`the option ${missing} is missing`, "usage");
  const source = await addressOf(o.source);
  const leases = o.leases === undefined ? undefined : await addressOf(o.leases);
  return { source, leases, access: { auth: o.auth, ca: o.ca, endpoint: endpointOf(source) } };
}

/** runArguments returns the arguments of `changefeed run` for options. */
export async function runArguments<T>(o: Options<T>, where: Resolved): Promise<string[]> {
  const args = ["run", "--stdio", "-o", "json", "-v"];
  const add = (flag: string, value: string | number | undefined) => {
    if (value !== undefined) args.push(`--${flag}=${value}`);
  };
  const addTime = (flag: string, ms: number | undefined) => add(flag, ms === undefined ? undefined : `${ms}ms`);
  const addIf = (flag: string, isSet: boolean | undefined) => {
    if (isSet) args.push(`--${flag}`);
  };
  add("source", where.source);
  add("leases", where.leases);
  add("name", o.name);
  add("instance", o.instance);
  add("variant", o.variant);
  add("from", o.from instanceof Date ? o.from.toISOString() : o.from);
  add("ca", o.ca);
  add("mode", o.mode);
  add("batch-size", o.maxItems);
  add("concurrency", o.keyed);
  add("max-attempts", o.maxAttempts);
  add("max-set-aside", o.maxSetAside);
  add("min-leases", o.minLeases);
  add("weight", o.weight);
  add("dead-letters", o.deadLetters === undefined ? undefined : await addressOf(o.deadLetters));
  addTime("max-age", o.maxAgeMs);
  addTime("timeout", o.handlerTimeoutMs);
  addTime("drain", o.drainMs);
  addTime("expiration", o.expirationMs);
  addTime("poll", o.pollMs);
  addTime("acquire", o.acquireMs);
  addTime("renew", o.renewMs);
  // It means nothing beside --stdio, and has to be less than --drain.
  if (o.drainMs !== undefined) addTime("grace", o.drainMs / 2);
  addIf("token-from-program", isCredential(o.auth));
  addIf("create-leases", o.createLeases);
  addIf("hold", o.hold);
  addIf("once", o.once);
  addIf("manual", o.manual);
  addIf("share-by-load", o.shareByLoad);
  return args;
}
