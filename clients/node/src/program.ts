import { Socket } from "node:net";
import type { Readable, Writable } from "node:stream";
import { Connection, type Handler } from "./contract.js";
import { callEvents, type ProcessorEvents } from "./events.js";
import { ChangefeedError, stackOf } from "./failures.js";
import { type Lag, lagIn } from "./lag.js";

export interface ProgramOptions<T> {
  /** How many batches the handler has at once; the default is 16. */
  batches?: number;
  /** Time between heartbeats; the default is 5 s, and 0 is none. */
  heartbeatMs?: number;
  /** Decodes a document. If it throws, that change alone is poison. */
  decode?: (document: unknown) => T;
  /** Called with the events of the processor. */
  on?: ProcessorEvents;
  /** Asks the processor about its unit, while the program runs. */
  unit?: Unit;
}

const connections = new WeakMap<Unit, Pick<Connection<unknown>, "status" | "caughtUp">>(); // of units in a program

/** Unit asks the processor of a program about its unit: all its instances. Give it to program() in the options. */
export class Unit {
  /** lag returns how far behind the unit is. What is not known is null. */
  async lag(): Promise<Lag> { return lagIn(await connectionOf(this).status()); }

  /** caughtUp waits until every change that was written before the call is handled. Without timeoutMs it has no limit. */
  async caughtUp(o: { timeoutMs?: number } = {}): Promise<void> { await connectionOf(this).caughtUp(o.timeoutMs ?? 0); }
}

function connectionOf(unit: Unit): Pick<Connection<unknown>, "status" | "caughtUp"> {
  const connection = connections.get(unit);
  if (connection) return connection;
  throw new ChangefeedError("no program has this unit", "usage", "give it to program(handler, { unit }) before");
}

const settleMs = 2000; // for a handler whose signal is aborted, at the end

/**
 * program handles batches in a program that `changefeed run --long-lived -- node app.mjs` has started. The promise
 * resolves when the processor has stopped in order, and rejects if it has died: exit then.
 */
export async function program<T = unknown>(handler: Handler<T>, options: ProgramOptions<T> = {}): Promise<void> {
  const [from, to] = pipes();
  const { batches = 16, heartbeatMs = 5000, decode, on, unit } = options;
  const connection = new Connection<T>(from, to, {
    handler, decode, batches, heartbeatMs, onEvent: on ? (event) => callEvents(on, event, tell) : undefined,
  });
  if (unit) connections.set(unit, connection);
  try {
    await connection.ended;
  } finally {
    await connection.settled(settleMs);
    connection.close();
  }
}

/** tell writes to the standard error, which becomes a warning in the processor's log. */
const tell = (name: string, thrown: unknown): void => console.error(`${name} has failed: ${stackOf(thrown)}`);

/** descriptorOf returns the number of a descriptor; NaN if there is none. */
const descriptorOf = (text: string | undefined): number => text ? Number(text) : NaN;

/** pipes returns the pipes to the processor. */
function pipes(): [Readable, Writable] {
  const read = descriptorOf(process.env.CHANGEFEED_READ_FD);
  const write = descriptorOf(process.env.CHANGEFEED_WRITE_FD);
  if (Number.isNaN(read) || Number.isNaN(write)) {
    throw new ChangefeedError("CHANGEFEED_READ_FD and CHANGEFEED_WRITE_FD are not set", "usage",
      "start the program by changefeed run --long-lived -- node app.mjs, or use processor()");
  }
  if (read === 0) return [process.stdin, process.stdout];
  return [
    new Socket({ fd: read, readable: true, writable: false }),
    new Socket({ fd: write, readable: false, writable: true }),
  ];
}
