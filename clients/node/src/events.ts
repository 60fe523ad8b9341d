import type { RawEvent } from "./contract.js";
import { ChangefeedError } from "./failures.js";
import type { Letter } from "./letters.js";

/** What has failed, and where. The processor goes on. */
export interface ProblemPlace {
  /** handler, source, lease store, balancer or dead letters. */
  origin: string;
  lease?: string;
  /** Of the batch that has failed. */
  attempt?: number;
}

/** Events of the processor, which come over the pipe. */
export interface ProcessorEvents {
  lease?(event: { lease: string; what: "acquired" | "released" | "lost"; reason?: string }): void;
  /** A change was parked. */
  parked?(letter: Letter): void;
  outage?(isOutage: boolean): void;
  /** The code of the error is a word that stays, such as throttled or too-old; otherwise failed. */
  error?(error: ChangefeedError, at: ProblemPlace): void;
}

const textOf = (value: unknown): string => typeof value === "string" ? value : "";
const numberOf = (value: unknown): number => typeof value === "number" ? value : 0;

/** callEvents calls the function of an event. If that throws, it tells the name and the error, and nothing else ends. */
export function callEvents(
  on: ProcessorEvents | undefined, e: RawEvent, tell: (name: string, thrown: unknown) => void,
): void {
  try {
    callEvent(on, e);
  } catch (error) {
    tell(`on.${e.type === "problem" ? "error" : e.type}`, error);
  }
}

function callEvent(on: ProcessorEvents | undefined, e: RawEvent): void {
  const lease = textOf(e.lease);
  switch (e.type) {
    case "lease":
      on?.lease?.({
        lease, what: e.what as "acquired" | "released" | "lost", ...(e.reason ? { reason: textOf(e.reason) } : {}),
      });
      break;
    case "parked":
      on?.parked?.({
        id: textOf(e.letter), key: Array.isArray(e.key) ? e.key : [], item: textOf(e.item), lease,
        cause: textOf(e.cause), attempts: numberOf(e.attempts), disposition: textOf(e.disposition), parked: new Date(),
      });
      break;
    case "outage":
      on?.outage?.(e.what === "began");
      break;
    case "problem":
      on?.error?.(new ChangefeedError(textOf(e.error), textOf(e.code), textOf(e.hint) || null), {
        origin: textOf(e.origin), ...(lease ? { lease } : {}),
        ...(e.attempt ? { attempt: numberOf(e.attempt) } : {}),
      });
  }
}
