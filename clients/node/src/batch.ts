import type { Undecoded } from "./failures.js";

/** A change as the contract has it. */
export interface RawChange {
  lsn: number;
  time: string;
  op: "upsert" | "create" | "replace" | "delete";
  id: string;
  key: unknown[];
  range: string;
  document?: unknown;
  previous?: unknown;
  previous_lsn?: number;
  expired?: boolean;
}

/** A batch as the contract has it. */
export interface RawBatch {
  type: "batch";
  id: number;
  lease: string;
  range: string;
  instance: string;
  epoch: number;
  attempt: number;
  cut?: boolean;
  redriven?: boolean;
  manual?: boolean;
  session?: string;
  position?: string;
  head?: number;
  charge?: number;
  seconds?: number;
  changes: RawChange[];
}

/** Change is a change of a document. */
export class Change<T> {
  readonly #raw: RawChange;
  /** The document; undefined if the change is a delete, which comes only in mode "all". */
  readonly value: T;
  /** The version before, if the container keeps it. */
  readonly previous: T | undefined;

  constructor(raw: RawChange, value: T, previous: T | undefined) {
    this.#raw = raw;
    this.value = value;
    this.previous = previous;
  }

  /** The id of the document. */
  get id(): string { return this.#raw.id; }
  /** The partition key: several values if it is hierarchical. */
  get key(): readonly unknown[] { return this.#raw.key; }
  /** The number of the commit. For a key, it only grows. */
  get lsn(): number { return this.#raw.lsn; }
  /** "upsert" in mode "latest"; "create", "replace" or "delete" in mode "all". */
  get op(): RawChange["op"] { return this.#raw.op; }
  /** When the change was committed. */
  get time(): Date { return new Date(this.#raw.time); }
  /** True if the time to live has deleted the document. */
  get expired(): boolean { return this.#raw.expired ?? false; }
  /** The lsn of the version before. */
  get previousLsn(): number | undefined { return this.#raw.previous_lsn; }
}

/** Batch is what a handler receives: changes of a lease, those of each key in order. */
export class Batch<T> {
  readonly #raw: RawBatch;
  readonly #confirm: () => Promise<void>;
  readonly changes: readonly Change<T>[];

  constructor(raw: RawBatch, changes: Change<T>[], confirm: () => Promise<void>) {
    this.#raw = raw;
    this.changes = changes;
    this.#confirm = confirm;
  }

  /** The token of the lease. */
  get lease(): string { return this.#raw.lease; }
  /** The range of effective partition keys of the lease, in hex. */
  get range(): [min: string, max: string] {
    const [min = "", max = ""] = this.#raw.range.split("-");
    return [min, max];
  }
  /** The name of the instance. */
  get instance(): string { return this.#raw.instance; }
  /** The number of the owner of the lease: each later owner has a higher one. */
  get epoch(): number { return this.#raw.epoch; }
  /** 1 at first, then one more after each failure. */
  get attempt(): number { return this.#raw.attempt; }
  /** True if the batch is a part of a transaction that has failed as a whole. */
  get cut(): boolean { return this.#raw.cut ?? false; }
  /** True if the change was among the dead letters. */
  get redriven(): boolean { return this.#raw.redriven ?? false; }
  /** The session token of the read. */
  get session(): string | undefined { return this.#raw.session; }
  /** The position after the page. */
  get position(): string | undefined { return this.#raw.position; }
  /** The LSN of the newest change at the read. */
  get head(): number | undefined { return this.#raw.head; }
  /** The request units of the read. */
  get charge(): number { return this.#raw.charge ?? 0; }

  /** checkpoint stores the position of the batch. It works only with the option manual. */
  checkpoint(): Promise<void> { return this.#confirm(); }
}

/** The changes that a handler receives, and those that it does not. */
export interface Decoded<T> {
  changes: Change<T>[];
  undecoded: Undecoded[];
  places: number[] | undefined; // of the changes in the batch; undefined if all are there
}

/** decodeChanges decodes the documents of a batch. */
export function decodeChanges<T>(
  raw: readonly RawChange[], decode: ((document: unknown) => T) | undefined,
): Decoded<T> {
  if (!decode) {
    const changes = raw.map((c) => new Change<T>(c, c.document as T, c.previous as T | undefined));
    return { changes, undecoded: [], places: undefined };
  }
  const decodeIf = (document: unknown) => document === undefined ? undefined : decode(document);
  const all: Decoded<T> = { changes: [], undecoded: [], places: [] };
  raw.forEach((c, index) => {
    try {
      all.changes.push(new Change<T>(c, decodeIf(c.document) as T, decodeIf(c.previous)));
      all.places?.push(index);
    } catch (error) {
      all.undecoded.push({ index, error });
    }
  });
  if (all.undecoded.length === 0) all.places = undefined;
  return all;
}
