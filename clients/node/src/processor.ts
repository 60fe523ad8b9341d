import { spawn, type ChildProcess } from "node:child_process";
import type { Batch } from "./batch.js";
import { environment, errorOf, findBinary, isCredential, parseSaid, type Said, tokenOf } from "./binary.js";
import { Connection, type Handler } from "./contract.js";
import { ChangefeedError, messageOf, type Result, stackOf } from "./failures.js";
import { callEvents } from "./events.js";
import { awaitCaughtUp, beside, type Lag, lagIn, lagOf } from "./lag.js";
import { type Box, type Letter, listLetters, releaseKey, retryLetter } from "./letters.js";
import { readLines } from "./lines.js";
import { addressOf, checkOptions, drainOf, type LogEntry, type Options, resolve, type Resolved, runArguments } from "./options.js";
import { BatchQueue, type OpenBatch } from "./queue.js";

const settleMs = 2000; // for a handler whose signal is aborted, at the end
const defaultBatches = 16;

/** Processor is an instance of a unit. */
export class Processor<T> implements AsyncDisposable {
  readonly #options: Options<T>;
  readonly #queue = new BatchQueue<T>();
  #where: Promise<Resolved> | undefined;
  #running: Promise<void> | undefined;
  #child: ChildProcess | undefined;
  #connection: Connection<T> | undefined;
  #stop: { drainMs?: number } | undefined;
  #setReady!: () => void;
  #failReady!: (error: Error) => void;

  /** Resolves when the unit has its leases, and a new unit its start; rejects if run() ends before. */
  readonly ready: Promise<void>;

  #setConnected!: (connection: Connection<T> | undefined) => void;
  readonly #connected = new Promise<Connection<T> | undefined>((resolve) => { this.#setConnected = resolve; });

  constructor(options: Options<T>) {
    checkOptions(options);
    this.#options = options;
    this.ready = new Promise((resolve, reject) => {
      this.#setReady = resolve;
      this.#failReady = reject;
    });
    this.ready.catch(() => {}); // run() rejects, too
  }

  /**
   * run runs the processor until stop() or the signal, then resolves. It rejects with a ChangefeedError if the
   * processor cannot go on. A processor runs once; further calls return the same promise.
   */
  run(signal?: AbortSignal): Promise<void> {
    const { handler } = this.#options;
    if (handler) return this.#start(handler, signal);
    const error = new ChangefeedError("the option handler is missing: want one, or batches() in place of run()", "usage");
    this.#failReady(error);
    return Promise.reject(error);
  }

  #start(handler: Handler<T>, signal?: AbortSignal): Promise<void> {
    const stop = () => void this.stop();
    if (signal?.aborted) stop();
    signal?.addEventListener("abort", stop, { once: true });
    this.#running ??= this.#run(handler).finally(() => {
      signal?.removeEventListener("abort", stop);
    });
    return this.#running;
  }

  /**
   * batches runs the processor and yields its batches, one at a time. The end of the loop's body acknowledges a batch,
   * unless batch.done() or batch.fail(error) has. If the loop is left by break or throw, the batch in hand is given up
   * without an acknowledgement, and the processor stops.
   */
  async *batches(signal?: AbortSignal): AsyncGenerator<OpenBatch<T>, void, void> {
    if (this.#options.handler) {
      throw new ChangefeedError("batches() is called beside the option handler: want one", "usage");
    }
    const running = this.#start(this.#queue.handler, signal);
    const close = () => this.#queue.close();
    running.then(close, close);
    try {
      for (let next = await this.#queue.next(); next; next = await this.#queue.next()) {
        let isFinished = false;
        try {
          yield next;
          isFinished = true;
        } finally {
          if (isFinished) next.done();
          else next.giveUp();
        }
      }
      await running; // it says why it has ended
    } finally {
      close();
      await this.stop();
    }
  }

  /**
   * stop ends the processor: the batches in hand have drainMs (at most the option's) to finish, and then their signals
   * are aborted. It resolves when the leases are free.
   */
  async stop(o: { drainMs?: number } = {}): Promise<void> {
    this.#stop ??= o;
    if (this.#connection) this.#drain(this.#connection);
    await this.#running?.catch(() => {}); // run() says it
  }

  /** caughtUp waits until every change that was written before the call is handled. */
  async caughtUp(o: { timeoutMs?: number } = {}): Promise<void> {
    const { timeoutMs = 30_000 } = o;
    const end = Date.now() + timeoutMs;
    const running = await this.#open();
    try {
      if (running) {
        await running.caughtUp(timeoutMs);
        return;
      }
    } catch (error) {
      if (!running?.isOver) throw error;
    }
    await awaitCaughtUp(() => this.lag(), Math.max(0, end - Date.now()));
  }

  /** #open returns the connection of a processor that runs. */
  async #open(): Promise<Connection<T> | undefined> {
    const connection = this.#running ? await this.#connected : undefined;
    return connection?.isOver ? undefined : connection;
  }

  /** The process of the binary, while it runs. */
  get pid(): number | undefined { return this.#child?.exitCode === null ? this.#child.pid : undefined; }

  /** lag returns how far behind the unit is, with all its instances. What is not known is null. */
  async lag(): Promise<Lag> {
    const running = await this.#open();
    try {
      if (running) return lagIn(await running.status());
    } catch (error) {
      if (!running?.isOver) throw error;
    }
    return lagOf(findBinary(this.#options.binary), await this.#resolve(), this.#options.name);
  }

  /** letters lists the parked changes of the unit. */
  async *letters(): AsyncGenerator<Letter, void, void> { yield* listLetters(await this.#box()); }

  /** retry has a letter handled again, in order with the other changes of its key. It rejects if that fails again. */
  async retry(id: string): Promise<void> { await retryLetter(await this.#box(), id); }

  /** release lets a held key continue without the change that has failed. */
  async release(key: readonly unknown[]): Promise<void> { await releaseKey(await this.#box(), key); }

  async #box(): Promise<Box> {
    const { source, leases = beside(source), access } = await this.#resolve();
    const { deadLetters, binary, name } = this.#options;
    const address = deadLetters === undefined ? undefined : await addressOf(deadLetters);
    return { binary: findBinary(binary), address, source, leases, name, access };
  }

  async [Symbol.asyncDispose](): Promise<void> { await this.stop(); }

  #resolve(): Promise<Resolved> { return this.#where ??= resolve(this.#options); }

  async #run(handler: Handler<T>): Promise<void> {
    try {
      const where = await this.#resolve();
      const binary = findBinary(this.#options.binary);
      const args = await runArguments(this.#options, where);
      if (this.#stop) return;
      await this.#speak(binary, args, where, handler);
    } catch (error) {
      this.#failReady(error as Error);
      throw error;
    } finally {
      this.#setConnected(undefined);
    }
    this.#failReady(new ChangefeedError("the processor has stopped", "died"));
  }

  /** #speak starts the binary and speaks the contract with it until it ends. */
  async #speak(binary: string, args: string[], where: Resolved, handler: Handler<T>): Promise<void> {
    const { auth, decode, keyed = 1, batches = this.#options.handler ? Math.max(defaultBatches, keyed) : 1 } = this.#options;
    // In a group of its own, Ctrl-C reaches this process alone. If this process is killed, the pipes end.
    const child = spawn(binary, args, {
      env: environment(where.access), stdio: ["pipe", "pipe", "pipe"], detached: process.platform !== "win32",
      windowsHide: true,
    });
    this.#child = child;
    const ended = new Promise<[number | null, NodeJS.Signals | null]>((resolve, reject) => {
      child.once("error", (error) => reject(new ChangefeedError(`start ${binary}: ${messageOf(error)}`, "binary")));
      child.once("close", (code, signal) => resolve([code, signal]));
    });
    let failure: Said | undefined;
    let last: string | undefined;
    readLines(child.stderr, (line) => {
      const said = parseSaid(line);
      if (said.kind === "error") failure = said;
      else if (said.kind === "notice") this.#hear({ ...said, level: "INFO", msg: String(said.text) });
      else this.#hear({ level: "ERROR", msg: "", ...said });
      if (said.msg === line) last = line; // no line of the log: it is of a panic, or of the system
    });
    const connection = new Connection<T>(child.stdout, child.stdin, {
      handler, decode, batches, heartbeatMs: this.#options.heartbeatMs ?? 5000,
      onHello: () => {
        if (this.#stop) this.#drain(connection);
      },
      onEvent: (event) => {
        if (event.type === "ready") this.#setReady();
        callEvents(this.#options.on, event, (name, thrown) => {
          this.#hear({ level: "ERROR", msg: `${name} has failed`, stack: stackOf(thrown) });
        });
      },
      onThrown: (thrown) => {
        this.#hear({ level: "WARN", msg: "the handler has failed", stack: stackOf(thrown) });
      },
      token: isCredential(auth) ? (scope) => tokenOf(auth, scope) : undefined,
    });
    this.#connection = connection;
    this.#setConnected(connection);
    const [code, signal] = await ended;
    const broken = await connection.ended.then(() => undefined, (error: unknown) => error);
    await connection.settled(settleMs);
    const error = broken instanceof ChangefeedError && broken.code !== "died" ? broken
      : errorOf(failure, code, signal, last);
    if (error) throw error;
  }

  /** #drain stops the processor in order, and ends it if a handler does not settle. */
  #drain(connection: Connection<T>): void {
    const drainMs = Math.min(this.#stop?.drainMs ?? Infinity, drainOf(this.#options));
    connection.stop();
    const draining = setTimeout(() => connection.cancelAll("stopped"), drainMs);
    const settling = setTimeout(() => connection.close(), drainMs + settleMs);
    this.#child?.once("close", () => {
      clearTimeout(draining);
      clearTimeout(settling);
    });
  }

  /** #hear hands an entry of the log on. */
  #hear(entry: LogEntry): void {
    const { on } = this.#options;
    if (on?.log) on.log(entry);
    else if (entry.level !== "INFO" && entry.level !== "DEBUG") console.warn(`changefeed: ${describe(entry)}`);
  }
}

/** describe makes a line of an entry of the log. */
function describe({ msg, level, time: _, name: __, instance: ___, stack, ...others }: LogEntry): string {
  const members = Object.entries(others).map(([key, value]) => `${key}=${JSON.stringify(value)}`);
  const line = [level.toLowerCase(), msg, ...members].join(" ");
  return stack === undefined ? line : `${line}\n${typeof stack === "string" ? stack : JSON.stringify(stack)}`;
}

/** processor makes a processor, which begins at run(). */
export function processor<T = unknown>(options: Options<T>): Processor<T> {
  return new Processor(options);
}

export type { Batch, Result };
