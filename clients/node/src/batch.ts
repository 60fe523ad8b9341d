import type { Undecoded } from "./failures.js";

/** The operation of a change: "upsert" in mode "latest"; the others in mode "all". */
type Op = "upsert" | "create" | "replace" | "delete";

/**
 * The changes of a batch as the contract has them: for each member an array with the values of all changes. A column
 * that is not there: op is "upsert", and no change has the others.
 */
export interface Columns {
  lsn: number[];
  time: string[];
  op?: Op[];
  id: string[];
  key: unknown[][];
  expired?: boolean[];
  document: unknown[]; // null of a delete
  previous?: unknown[];
  previous_lsn?: number[];
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
  changes: Columns;
}

/** Change is a change of a document. */
export class Change<T> {
  readonly #of: Columns;
  readonly #index: number;
  /** The document; undefined if the change is a delete, which comes only in mode "all". */
  readonly value: T;
  /** The version before, if the container keeps it. */
  readonly previous: T | undefined;

  constructor(of: Columns, index: number, value: T, previous: T | undefined) {
    this.#of = of;
    this.#index = index;
    this.value = value;
    this.previous = previous;
  }

  /** The id of the document. */
  get id(): string { return this.#of.id[this.#index] ?? ""; }
  /** The partition key: several values if it is hierarchical. */
  get key(): readonly unknown[] { return this.#of.key[this.#index] ?? []; }
  /** The number of the commit. For a key, it only grows. */
  get lsn(): number { return this.#of.lsn[this.#index] ?? 0; }
  /** "upsert" in mode "latest"; "create", "replace" or "delete" in mode "all". */
  get op(): Op { return this.#of.op?.[this.#index] ?? "upsert"; }
  /** When the change was committed. */
  get time(): Date { return new Date(this.#of.time[this.#index] ?? NaN); }
  /** True if the time to live has deleted the document. */
  get expired(): boolean { return this.#of.expired?.[this.#index] ?? false; }
  /** The lsn of the version before. */
  get previousLsn(): number | undefined {
    const lsn = this.#of.previous_lsn?.[this.#index];
    return lsn === 0 ? undefined : lsn; // 0 of a change without one
  }
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
  /** The position after the newest change of the batch. */
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
export function decodeChanges<T>(of: Columns, decode: ((document: unknown) => T) | undefined): Decoded<T> {
  const valueOf = (document: unknown) => document ?? undefined;
  if (!decode) {
    const changes = of.document.map((document, index) =>
      new Change<T>(of, index, valueOf(document) as T, valueOf(of.previous?.[index]) as T | undefined));
    return { changes, undecoded: [], places: undefined };
  }
  const decodeIf = (document: unknown) => valueOf(document) === undefined ? undefined : decode(document);
  const all: Decoded<T> = { changes: [], undecoded: [], places: [] };
  of.document.forEach((document, index) => {
    try {
      all.changes.push(new Change<T>(of, index, decodeIf(document) as T, decodeIf(of.previous?.[index])));
      all.places?.push(index);
    } catch (error) {
      all.undecoded.push({ index, error });
    }
  });
  if (all.undecoded.length === 0) all.places = undefined;
  return all;
}
