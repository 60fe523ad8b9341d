import type { Change } from "./batch.js";

// The processor keeps no more of the text of an error, and refuses a message of more than 16 MB.
const mostText = 8 << 10;
const mostTexts = 2 << 20; // of all items: a character has up to 6 bytes
const mostAfter = 24 * 3600; // seconds

/** messageOf returns the text of whatever was thrown. It never throws, whatever that was. */
export function messageOf(thrown: unknown): string {
  try {
    const text: unknown = thrown instanceof Error ? thrown.message : thrown;
    return String(text).slice(0, mostText);
  } catch {
    return "an error whose text cannot be read";
  }
}

/** nameOf returns the class of an error; empty for Error itself, and for what is no error. */
function nameOf(thrown: unknown): string {
  try {
    const name: unknown = thrown instanceof Error ? thrown.name : "";
    return typeof name === "string" && name !== "Error" ? name.slice(0, mostText) : "";
  } catch {
    return "";
  }
}

/** stackOf returns the text of whatever was thrown, with its stack if it has one. It never throws. */
export function stackOf(thrown: unknown): string {
  try {
    return thrown instanceof Error && thrown.stack ? thrown.stack : messageOf(thrown);
  } catch {
    return messageOf(thrown);
  }
}

/** isOnPurpose says whether a handler throws an error to answer a batch, and not because of a mistake. */
export function isOnPurpose(thrown: unknown): boolean {
  return thrown instanceof Poison || thrown instanceof Outage || thrown instanceof Canceled;
}

/** causeOf returns the text of an error of a handler, with its class: "x is undefined" alone does not say enough. */
export function causeOf(thrown: unknown): string {
  return [isOnPurpose(thrown) ? "" : nameOf(thrown), messageOf(thrown)].filter(Boolean).join(": ");
}

/** Poison says that a retry cannot help. Throw it for the whole batch, or name it in the result for a change. */
export class Poison extends Error {
  override name = "Poison";
  constructor(cause: unknown) {
    super(messageOf(cause), { cause });
  }
}

/** Outage says that no change is at fault: a dependency does not answer. Nothing counts as an attempt. */
export class Outage extends Error {
  override name = "Outage";
  /** The shortest pause before the next attempt, in milliseconds. */
  readonly afterMs: number | undefined;
  constructor(cause: unknown, afterMs?: number) {
    super(messageOf(cause), { cause });
    this.afterMs = afterMs;
  }
}

/** Why the signal of a batch is aborted. */
export type Cause = "lost" | "timeout" | "stopped";

const meanings: Partial<Record<string, string>> = {
  lost: "the lease is lost: another instance may own it soon, so have no further effect",
  timeout: "the batch takes longer than it may",
  stopped: "the processor stops or gives the lease away",
};

/** Canceled is the reason of the AbortSignal of a batch that is canceled. */
export class Canceled extends Error {
  override name = "Canceled";
  readonly reason: Cause;
  constructor(reason: Cause) {
    super(`${reason}: ${meanings[reason] ?? "the batch is canceled"}`);
    this.reason = reason;
  }
}

/**
 * ChangefeedError is an error of the processor. Its code is that of the binary (failed, usage, missing, refused, found,
 * interrupted), or one of the client: binary (there is none), died (the binary has ended without an error), contract
 * (its messages are not understood) or timeout.
 */
export class ChangefeedError extends Error {
  override name = "ChangefeedError";
  readonly code: string;
  /** What to do next, if that is known. */
  readonly hint: string | null;
  /** A word for the cause, such as no-start, start-ignored, leases-gone or throttled; null if there is none. */
  readonly reason: string | null;
  constructor(message: string, code: string, hint: string | null = null, reason: string | null = null) {
    super(message);
    this.code = code;
    this.hint = hint;
    this.reason = reason;
  }
}

/**
 * What a handler can return. Nothing: all changes are handled. `failed`: exactly these changes have failed, and all
 * others are handled. `done`: the first changes are handled, and the others are not.
 */
export type Result<T> =
  | { failed: readonly { change: Change<T>; error?: unknown; untried?: boolean }[] }
  | { done: number; error?: unknown };

interface Item {
  index: number;
  error?: string;
  poison?: boolean;
  untried?: boolean;
}

/** The answer to a batch, as the contract has it. */
export interface Answer {
  type: "done" | "failed" | "released";
  id: number;
  done?: number;
  items?: Item[];
  error?: string;
  poison?: boolean;
  outage?: boolean;
  after?: number;
}

/** failedAnswer is the answer for an error of the whole batch. */
export function failedAnswer(id: number, error: unknown): Answer {
  const answer: Answer = { type: "failed", id, error: causeOf(error) || "the handler has failed and says no reason" };
  if (error instanceof Poison) answer.poison = true;
  if (error instanceof Canceled) answer.outage = true; // given up, and not failed
  if (error instanceof Outage) {
    answer.outage = true;
    const after = Number(error.afterMs) / 1000;
    if (after >= 0) answer.after = Math.min(after, mostAfter);
  }
  return answer;
}

const itemOf = (index: number, error: unknown): Item => ({
  index,
  error: causeOf(error),
  ...(error instanceof Poison ? { poison: true } : {}),
});

/** Undecoded is a change that could not be decoded: its place in the batch, and why. */
export interface Undecoded {
  index: number;
  error: unknown;
}

/**
 * answerOf is the answer for what a handler has returned. places has the places of the handler's changes among those of
 * the batch; it is undefined if the handler had all of them.
 */
export function answerOf<T>(
  id: number, result: void | Result<T>, changes: readonly Change<T>[], undecoded: readonly Undecoded[],
  places: readonly number[] | undefined,
): Answer {
  const items = undecoded.map(({ index, error }): Item => ({ ...itemOf(index, error), poison: true }));
  const place = (i: number) => places?.[i] ?? i;
  if (result && "failed" in result) {
    const named = new Set<Change<T>>();
    for (const { change, error, untried } of result.failed) {
      const i = changes.indexOf(change);
      if (i < 0) return failedAnswer(id, new Error("the handler has named a failed change that is not in the batch"));
      if (named.has(change)) continue; // named twice, it has failed once
      named.add(change);
      items.push(untried ? { index: place(i), untried: true } : itemOf(place(i), error));
    }
  } else if (result && !(Number.isInteger(result.done) && result.done >= 0 && result.done <= changes.length)) {
    return failedAnswer(id, new Error(`done is ${result.done}: the batch has ${changes.length} changes`));
  } else if (result && (result.error !== undefined || result.done < changes.length)) {
    const error = result.error ?? new Error(`the handler has handled ${result.done} of ${changes.length} changes`);
    const answer = failedAnswer(id, error);
    if (result.done > 0 && result.done === changes.length && undecoded.length === 0) {
      const want = `done is ${result.done}, want 0 to ${result.done - 1} beside an error`;
      return { ...answer, error: `${answer.error} (the whole batch has failed: ${want})` };
    }
    if (items.length === 0 || answer.outage) {
      return result.done > 0 ? { ...answer, done: firstDone(result.done) } : answer;
    }
    for (let i = result.done; i < changes.length; i++) {
      items.push(i === result.done ? itemOf(place(i), error) : { index: place(i), untried: true });
    }
  }
  if (items.length === 0) return { type: "done", id };
  const most = Math.floor(mostTexts / items.length);
  for (const item of items) if (item.error) item.error = item.error.slice(0, most);
  return { type: "failed", id, items: items.sort((a, b) => a.index - b.index) };

  /** firstDone is how many changes of the batch are handled: those before the first that could not be decoded. */
  function firstDone(done: number): number {
    const next = done < changes.length ? place(done) : done;
    return Math.min(next, ...undecoded.map((u) => u.index));
  }
}
