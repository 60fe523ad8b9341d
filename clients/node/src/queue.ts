import type { Batch } from "./batch.js";
import type { Handler } from "./contract.js";
import { Canceled, type Result } from "./failures.js";

/** OpenBatch is a batch of batches(), which its receiver acknowledges. */
export type OpenBatch<T> = Batch<T> & {
  /** Aborted when the batch is to be given up. */
  readonly signal: AbortSignal;
  /** Acknowledges the batch, or a part of it. */
  done(result?: Result<T>): void;
  /** Says that the whole batch has failed. */
  fail(error: unknown): void;
  /** Gives the batch up without an acknowledgement: it comes again. */
  giveUp(): void;
};

/** BatchQueue hands the batches of a processor to a loop. */
export class BatchQueue<T> {
  #waiting: OpenBatch<T>[] = [];
  #wake: ((next: OpenBatch<T> | undefined) => void) | undefined;
  #isClosed = false;

  /** handler puts a batch into the queue and waits until it is acknowledged. */
  readonly handler: Handler<T> = (batch, signal) => new Promise<void | Result<T>>((resolve, reject) => {
    if (this.#isClosed) return reject(new Canceled("stopped"));
    const open = Object.assign(batch, {
      signal, done: (result?: Result<T>) => resolve(result ?? { done: batch.changes.length }), fail: reject,
      giveUp: () => reject(signal.aborted ? signal.reason as Canceled : new Canceled("stopped")),
    });
    signal.addEventListener("abort", () => {
      const at = this.#waiting.indexOf(open);
      if (at < 0) return; // the loop has it
      this.#waiting.splice(at, 1);
      open.giveUp();
    });
    if (!this.#wake) {
      this.#waiting.push(open);
      return;
    }
    this.#wake(open);
    this.#wake = undefined;
  });

  /** next returns the next batch; undefined if the queue is closed. */
  next(): Promise<OpenBatch<T> | undefined> {
    const first = this.#waiting.shift();
    if (first || this.#isClosed) return Promise.resolve(first);
    return new Promise((resolve) => { this.#wake = resolve; });
  }

  /** close gives up what waits. */
  close(): void {
    this.#isClosed = true;
    this.#waiting.splice(0).forEach((b) => b.giveUp());
    this.#wake?.(undefined);
  }
}
