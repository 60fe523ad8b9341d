import { setTimeout as sleep } from "node:timers/promises";
import { ask, type Access, type Said } from "./binary.js";
import { ChangefeedError } from "./failures.js";

/** A lease of a unit. What is not known is null, and never 0. */
export interface Lease {
  lease: string;
  owner: string | null;
  state: string;
  position: string | null;
  /** Changes after the position. */
  lag: number | null;
  /** How long the oldest of them has waited. */
  oldestMs: number | null;
  attempts: number | null;
  held: number | null;
  /** Keys that fail, and that are read again by key. */
  setAside: number | null;
  /** Why nobody handles the changes; empty if somebody does. */
  stuck: string[];
  notes: string[];
}

/** Lag is how far behind a unit is. */
export interface Lag {
  total: number | null;
  leases: Lease[];
}

const numberOf = (value: unknown): number | null => typeof value === "number" ? value : null;
const textOf = (value: unknown): string | null => typeof value === "string" ? value : null;

/** lagOf asks how far behind a unit is. */
export async function lagOf(
  binary: string, where: { source: string; leases: string | undefined; access: Access }, name: string,
): Promise<Lag> {
  const leases = where.leases ?? beside(where.source);
  const said = await ask(binary, ["leases", leases, "--source", where.source], where.access);
  const container = where.source.replace(/^docstore:[^#]*#/, "").split("/").at(-1);
  const isOurs = (row: Said) => row.processor === name &&
    (row.container === null || textOf(row.container)?.split("/").at(-1) === container);
  const unit = said.find((row) => row.kind === "unit" && isOurs(row));
  return {
    total: numberOf(unit?.pending),
    leases: said.filter((row) => row.kind === "lease" && isOurs(row)).map(leaseOf),
  };
}

/** lagIn returns the lag in the answer of a processor. */
export function lagIn(status: Record<string, unknown>): Lag {
  const leases = Array.isArray(status.leases) ? status.leases as Said[] : [];
  return { total: numberOf(status.pending), leases: leases.map(leaseOf) };
}

/** beside returns the address of the container "leases" beside another. */
export function beside(source: string): string {
  const cut = Math.max(source.lastIndexOf("/"), source.lastIndexOf("#"), source.lastIndexOf(":"));
  return `${source.slice(0, cut + 1)}leases`;
}

function leaseOf(row: Said): Lease {
  const lag = numberOf(row.lag);
  const seconds = numberOf(row.lag_seconds);
  return {
    lease: textOf(row.lease) ?? "", owner: textOf(row.owner), state: textOf(row.state) ?? "unknown",
    position: textOf(row.position), lag, oldestMs: lag === null || seconds === null ? null : seconds * 1000,
    attempts: numberOf(row.attempts), held: numberOf(row.held), setAside: numberOf(row.set_aside),
    stuck: Array.isArray(row.stuck) ? row.stuck.map(String) : [],
    notes: Array.isArray(row.notes) ? row.notes.map(String) : [],
  };
}

const firstPauseMs = 20;
const lastPauseMs = 1000;

/** awaitCaughtUp waits until nothing is behind. */
export async function awaitCaughtUp(lag: () => Promise<Lag>, timeoutMs: number, signal?: AbortSignal): Promise<void> {
  const end = Date.now() + timeoutMs;
  for (let pauseMs = firstPauseMs; ; pauseMs = Math.min(2 * pauseMs, lastPauseMs)) {
    const { total } = await lag().catch((error: unknown) => {
      const isMissing = error instanceof ChangefeedError && error.code === "missing";
      if (isMissing && !error.message.startsWith("--ca ")) return { total: null }; // no leases yet
      throw error;
    });
    if (total === 0) return;
    if (Date.now() + pauseMs > end) {
      const behind = total === null ? "the lag is not known" : `${total} changes are behind`;
      throw new ChangefeedError(`not caught up after ${timeoutMs} ms: ${behind}`, "timeout");
    }
    await sleep(pauseMs, undefined, signal ? { signal } : {});
  }
}
