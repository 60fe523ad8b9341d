// The program's end of the contract of docs/program.md.

import type { Readable, Writable } from "node:stream";
import { Batch, decodeChanges, type RawBatch } from "./batch.js";
import {
  type Answer, answerOf, Canceled, type Cause, ChangefeedError, failedAnswer, isOnPurpose, messageOf, type Result,
} from "./failures.js";
import { readLines } from "./lines.js";
import { client } from "./version.js";

/** A handler is called for each batch. If it throws, the whole batch has failed. */
export type Handler<T> = (batch: Batch<T>, signal: AbortSignal) => Promise<void | Result<T>> | void | Result<T>;

export interface ConnectionSettings<T> {
  handler: Handler<T>;
  decode?: ((document: unknown) => T) | undefined;
  batches: number;
  heartbeatMs: number;
  onHello?: ((hello: { unit?: string; instance?: string }) => void) | undefined;
  /** Called with each event of the processor. Without it, none is asked for. */
  onEvent?: ((event: RawEvent) => void) | undefined;
  /** Hears of an error that a handler throws at the first attempt, and not on purpose. */
  onThrown?: ((error: unknown) => void) | undefined;
  /** Gives a token of a scope. Without it, none is offered. */
  token?: ((scope: string) => Promise<{ token: string; expires: Date }>) | undefined;
}

/** RawEvent is an event of the processor, as docs/program.md has it. */
export interface RawEvent {
  type: "ready" | "lease" | "parked" | "outage" | "problem";
  [member: string]: unknown;
}

const eventTypes = ["ready", "lease", "parked", "outage", "problem"];

interface Incoming {
  type: string;
  id: number;
  version?: number;
  unit?: string;
  instance?: string;
  cause?: Cause;
  error?: string;
  code?: string;
  reason?: string;
  hint?: string;
  can?: string[];
  scope?: string;
  status?: Record<string, unknown>;
}

interface Waiting<R = void> {
  resolve(result: R): void;
  reject(error: Error): void;
}

const version = 1;
const maxWaitMs = 24 * 3600 * 1000; // of a question; the processor refuses a longer one
const otherRelease = "use the binary of the release of this package";

/** Connection is a connection to the processor. */
export class Connection<T> {
  readonly #settings: ConnectionSettings<T>;
  readonly #to: Writable;
  readonly #inHand = new Map<number, AbortController>();
  readonly #confirming = new Map<number, Waiting[]>();
  readonly #asking = new Map<number, Waiting<Incoming>>();
  readonly #hello: Promise<string[]>;
  #setHello!: (can: string[]) => void;
  #failHello!: (error: Error) => void;
  #lastQuestion = 0;
  #isOver = false;
  readonly #calls = new Set<Promise<void>>();
  #greeted = false;
  #stopping = false;
  #failure: Error | undefined;
  #beat: NodeJS.Timeout | undefined;

  /**
   * Resolves when the processor has closed the connection after a stop; rejects if it has closed it without one. The
   * signals of the batches in hand are then aborted.
   */
  readonly ended: Promise<void>;

  constructor(from: Readable, to: Writable, settings: ConnectionSettings<T>) {
    this.#settings = settings;
    this.#to = to;
    this.#hello = new Promise((resolve, reject) => {
      this.#setHello = resolve;
      this.#failHello = reject;
    });
    this.#hello.catch(() => {}); // whoever asks hears of it
    to.on("error", () => {}); // the end of the other pipe says the same
    this.#send({
      type: "hello", version, client, batches: settings.batches, columns: true,
      ...(settings.heartbeatMs > 0 ? { heartbeat: settings.heartbeatMs / 1000 } : {}),
      ...(settings.onEvent ? { events: true } : {}), ...(settings.token ? { tokens: true } : {}),
    });
    if (settings.heartbeatMs > 0) {
      this.#beat = setInterval(() => this.#send({ type: "heartbeat" }), settings.heartbeatMs);
    }
    this.ended = new Promise((resolve, reject) => {
      const end = () => {
        clearInterval(this.#beat);
        this.#failure ??= this.#stopping ? undefined
          : new ChangefeedError("the processor has closed the connection", "died");
        this.cancelAll(this.#stopping ? "stopped" : "lost"); // another instance takes the leases of a dead one
        for (const waiting of this.#confirming.values()) waiting.forEach((w) => w.reject(this.#whyGone()));
        this.#confirming.clear();
        this.#isOver = true;
        for (const waiting of this.#asking.values()) waiting.reject(this.#whyOver());
        this.#asking.clear();
        this.#failHello(this.#whyOver());
        if (this.#failure) reject(this.#failure);
        else resolve();
      };
      from.once("end", end);
      from.once("close", end);
      from.on("error", () => {}); // close follows
    });
    this.ended.catch(() => {}); // whoever waits for it hears of it
    readLines(from, (line) => this.#read(line));
  }

  /** stop asks for the end of the processor: the batches in hand are finished. */
  stop(): void { this.#send({ type: "stop" }); }

  /** Whether the connection has ended. */
  get isOver(): boolean { return this.#isOver; }

  /** #whyOver is the error of a question to a connection that has ended. */
  #whyOver(): Error {
    return this.#failure ?? new ChangefeedError("the processor has closed the connection", "died");
  }

  /** #whyGone is the error of a checkpoint on a connection that has ended. */
  #whyGone(): Error { return this.#failure ?? new Canceled("stopped"); }

  /** status asks how far behind the unit is. */
  async status(): Promise<Record<string, unknown>> { return (await this.#ask("status", 0)).status ?? {}; }

  /** caughtUp waits until the unit has handled everything that was written before the call. */
  async caughtUp(timeoutMs: number): Promise<void> { await this.#ask("caughtup", timeoutMs); }

  async #ask(type: "status" | "caughtup", timeoutMs: number): Promise<Incoming> {
    const can = await this.#hello;
    if (!can.includes(type)) {
      throw new ChangefeedError(`the processor does not answer ${type}`, "contract", otherRelease);
    }
    if (this.#isOver) throw this.#whyOver();
    return new Promise((resolve, reject) => {
      const id = ++this.#lastQuestion;
      this.#asking.set(id, { resolve, reject });
      this.#send({ type, id, ...(timeoutMs > 0 && timeoutMs <= maxWaitMs ? { seconds: timeoutMs / 1000 } : {}) });
    });
  }

  #answered(message: Incoming): void {
    const waiting = this.#asking.get(message.id);
    this.#asking.delete(message.id);
    if (message.error !== undefined) {
      waiting?.reject(new ChangefeedError(message.error, message.code ?? "failed"));
    } else {
      waiting?.resolve(message);
    }
  }

  async #giveToken(id: number, scope: string): Promise<void> {
    try {
      if (!this.#settings.token) throw new Error("this program gives no tokens");
      const { token, expires } = await this.#settings.token(scope);
      this.#send({ type: "token", id, token, expires: expires.toISOString() });
    } catch (error) {
      this.#send({ type: "token", id, error: messageOf(error) || "the credential gives no token" });
    }
  }

  /** close closes our end: the processor ends, and the batches in hand have failed. */
  close(): void { this.#to.end(); }

  /** settled waits until all calls of the handler have ended, at most for a while. */
  async settled(atMostMs: number): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<void>((resolve) => { timer = setTimeout(resolve, atMostMs); });
    await Promise.race([Promise.allSettled([...this.#calls]), late]);
    clearTimeout(timer);
  }

  /** cancelAll aborts the signals of all batches. */
  cancelAll(cause: Cause): void {
    for (const inHand of this.#inHand.values()) inHand.abort(new Canceled(cause));
  }

  #send(message: object): void {
    if (!this.#to.writableEnded && !this.#to.destroyed) this.#to.write(JSON.stringify(message) + "\n");
  }

  #read(line: string): void {
    if (this.#failure) return;
    try {
      this.#obey(JSON.parse(line) as Incoming);
    } catch (error) {
      this.#failure = error instanceof ChangefeedError ? error
        : new ChangefeedError(`read a message of the processor: ${(error as Error).message}`, "contract");
      this.close();
    }
  }

  #obey(message: Incoming): void {
    if (!this.#greeted && message.type !== "error" && (message.type !== "hello" || message.version !== version)) {
      throw new ChangefeedError(`the processor does not speak version ${version} of the contract`, "contract",
        otherRelease);
    }
    if (eventTypes.includes(message.type)) {
      this.#settings.onEvent?.(message as unknown as RawEvent);
      return;
    }
    switch (message.type) {
      case "hello":
        this.#greeted = true;
        if (!message.can?.includes("columns")) {
          throw new ChangefeedError("the processor sends no columns", "contract", otherRelease);
        }
        if (this.#settings.onEvent && !message.can.includes("events")) {
          throw new ChangefeedError("the processor sends no events", "contract", otherRelease);
        }
        this.#setHello(message.can ?? []);
        this.#settings.onHello?.(message);
        break;
      case "batch":
        this.#begin(message as Incoming & RawBatch);
        break;
      case "cancel":
        this.#inHand.get(message.id)?.abort(new Canceled(message.cause ?? "stopped"));
        break;
      case "checkpointed":
        this.#confirmed(message);
        break;
      case "stop":
        this.#stopping = true;
        break;
      case "status":
      case "caughtup":
        this.#answered(message);
        break;
      case "token":
        void this.#giveToken(message.id, message.scope ?? "");
        break;
      case "error":
        throw new ChangefeedError(message.error ?? "the contract is broken", message.code ?? "contract",
          message.hint ?? null, message.reason ?? null);
    }
  }

  #begin(raw: RawBatch): void {
    const controller = new AbortController();
    this.#inHand.set(raw.id, controller);
    const call = this.#handle(raw, controller.signal).then((answer) => {
      this.#inHand.delete(raw.id);
      this.#send(answer);
    });
    this.#calls.add(call);
    void call.finally(() => this.#calls.delete(call));
  }

  /** #handle calls the handler and returns the answer. It never rejects. */
  async #handle(raw: RawBatch, signal: AbortSignal): Promise<Answer> {
    try {
      const { changes, undecoded, places } = decodeChanges(raw.changes, this.#settings.decode);
      const batch = new Batch(raw, changes, () => this.#confirm(raw.id));
      const hasWork = changes.length > 0 || undecoded.length === 0;
      const result = hasWork ? await this.#settings.handler(batch, signal) : undefined;
      if (signal.aborted && !result) return { type: "released", id: raw.id };
      return answerOf(raw.id, result, changes, undecoded, places);
    } catch (error) {
      if (signal.aborted) return { type: "released", id: raw.id };
      // Later, because it calls a function of the user: if that throws, the batch has its answer all the same.
      if (raw.attempt === 1 && !isOnPurpose(error)) queueMicrotask(() => this.#settings.onThrown?.(error));
      return failedAnswer(raw.id, error);
    }
  }

  #confirm(id: number): Promise<void> {
    if (this.#isOver) return Promise.reject(this.#whyGone());
    return new Promise((resolve, reject) => {
      this.#confirming.set(id, [...(this.#confirming.get(id) ?? []), { resolve, reject }]);
      this.#send({ type: "checkpoint", id });
    });
  }

  #confirmed(message: Incoming): void {
    const [first, ...others] = this.#confirming.get(message.id) ?? [];
    if (others.length > 0) this.#confirming.set(message.id, others);
    else this.#confirming.delete(message.id);
    if (message.error) first?.reject(new ChangefeedError(message.error, "failed"));
    else first?.resolve();
  }
}
