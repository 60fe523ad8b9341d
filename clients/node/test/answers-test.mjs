// What becomes of the result of a handler beside changes that could not be decoded.
import assert from "node:assert/strict";
import { test } from "node:test";
import { decodeChanges } from "../dist/batch.js";
import { columnsOf } from "./columns.mjs";
import { answerOf, failedAnswer } from "../dist/failures.js";
import { Canceled, Outage, Poison } from "@changefeed/client";

const changesOf = (ids) => columnsOf(ids.map((id, i) => ({ lsn: i, time: "", op: "upsert", id, key: [], document: id })));
const raw = changesOf(["a", "bad", "b", "worse", "c"]);
const decode = (id) => {
  if (id.length > 1) throw new Error(`no ${id}`);
  return id;
};
const { changes, undecoded, places } = decodeChanges(raw, decode);
const all = decodeChanges(raw, undefined);
const [bad, worse] = [{ index: 1, error: "no bad", poison: true }, { index: 3, error: "no worse", poison: true }];
const answer = (result) => answerOf(7, result, changes, undecoded, places);
const plain = (result) => answerOf(7, result, all.changes, all.undecoded, all.places);

test("the handler has what could be decoded, and the others are poison", () => {
  assert.deepEqual(changes.map((c) => c.value), ["a", "b", "c"]);
  assert.deepEqual(answer(undefined), { type: "failed", id: 7, items: [bad, worse] });
  assert.deepEqual(answer({ done: 3 }), { type: "failed", id: 7, items: [bad, worse] });
  const items = [bad, { index: 2, error: "no", poison: true }, worse];
  assert.deepEqual(answer({ failed: [{ change: changes[1], error: new Poison("no") }] }), { type: "failed", id: 7, items });
  assert.deepEqual(answer({ failed: [{ change: changes[1], untried: true }] }).items, [bad, { index: 2, untried: true }, worse]);
  const untried = [{ index: 0, error: "no" }, bad, { index: 2, untried: true }, worse, { index: 4, untried: true }];
  assert.deepEqual(answer({ done: 0, error: new Error("no") }), { type: "failed", id: 7, items: untried });
  assert.deepEqual(answer({ done: 2, error: new Outage("away", 500) }),
    { type: "failed", id: 7, done: 1, outage: true, after: 0.5, error: "away" });
});

test("without them, the answer is what the handler says", () => {
  assert.deepEqual(plain(undefined), { type: "done", id: 7 });
  assert.deepEqual(plain({ done: 5 }), { type: "done", id: 7 });
  assert.deepEqual(plain({ failed: [] }), { type: "done", id: 7 });
  assert.deepEqual(plain({ done: 2, error: "no" }), { type: "failed", id: 7, done: 2, error: "no" });
  assert.match(plain({ done: 2 }).error, /2 of 5 changes/);
  assert.deepEqual(plain({ failed: [{ change: all.changes[4], untried: true }] }),
    { type: "failed", id: 7, items: [{ index: 4, untried: true }] });
});

test("a wrong result fails the batch and says why", () => {
  assert.match(plain({ done: 6 }).error, /done is 6/);
  assert.deepEqual(plain({ done: 5, error: new Poison("no") }), {
    type: "failed", id: 7, poison: true, error: "no (the whole batch has failed: done is 5, want 0 to 4 beside an error)",
  });
  assert.match(plain({ done: -1 }).error, /done is -1/);
  assert.match(plain({ failed: [{ change: changes[0], error: "no" }] }).error, /not in the batch/);
});

test("a change without a version before has no number of one", () => {
  const columns = columnsOf([{ lsn: 5, id: "a", document: {}, previous_lsn: 3 }, { lsn: 6, id: "b", document: {}, previous_lsn: 0 }]);
  assert.deepEqual(decodeChanges(columns, undefined).changes.map((c) => c.previousLsn), [3, undefined]);
});

test("what is thrown is an answer", () => {
  assert.deepEqual(failedAnswer(7, "text"), { type: "failed", id: 7, error: "text" });
  assert.deepEqual(failedAnswer(7, new Poison(new Error("no"))), { type: "failed", id: 7, error: "no", poison: true });
  assert.equal(failedAnswer(7, new Canceled("stopped")).outage, true);
  assert.match(failedAnswer(7, new Error("")).error, /no reason/);
  const afters = [-1, NaN, Infinity, 1e9].map((afterMs) => failedAnswer(7, new Outage("away", afterMs)).after);
  assert.deepEqual(afters, [undefined, undefined, 86_400, 86_400], "the contract refuses other pauses");
  const long = new Error("x".repeat(100_000)); // the errors of a batch have to fit into a message
  const { items } = plain({ failed: [{ change: all.changes[0], error: long }] });
  assert.deepEqual([failedAnswer(7, long).error.length, items[0].error.length], [8192, 8192]);
  assert.equal(failedAnswer(7, new TypeError("x is undefined")).error, "TypeError: x is undefined");
  assert.equal(failedAnswer(7, new RangeError("")).error, "RangeError");
});

test("whatever is thrown, the answer keeps the contract", () => {
  const odd = [
    Object.create(null), { toString() { throw new Error("no"); } }, Object.assign(new Error("x"), { message: { code: 5 } }),
    Object.assign(new Error("x"), { name: Symbol("s") }), Symbol("s"), undefined, null, 5n,
    Object.defineProperty(new Error("x"), "message", { get() { throw new Error("no"); } }),
    Object.defineProperty(new Error("x"), "name", { get() { throw new Error("no"); } }),
  ];
  for (const thrown of odd) {
    const { error } = failedAnswer(7, thrown);
    assert.equal(typeof error, "string");
    assert.notEqual(error, "");
    assert.deepEqual(plain({ failed: [{ change: all.changes[0], error: thrown }] }).items, [{ index: 0, error }]);
    assert.equal(failedAnswer(7, new Poison(thrown)).poison, true);
  }
  for (const [afterMs, after] of [[-1, undefined], [NaN, undefined], [1e300, 86400], [undefined, undefined], [0, 0]]) {
    assert.equal(failedAnswer(7, new Outage("away", afterMs)).after, after);
  }
});

test("no answer is longer than the processor reads", () => {
  assert.equal(failedAnswer(7, new Error("x".repeat(17e6))).error.length, 8192);
  const many = decodeChanges(changesOf(Array(20_000).fill("a")), undefined);
  const failed = many.changes.map((change) => ({ change, error: "\u0000".repeat(9000) }));
  const answered = answerOf(7, { failed }, many.changes, [], undefined);
  assert.equal(answered.items.length, 20_000);
  assert.ok(JSON.stringify(answered).length < 16 << 20);
});

test("a change that is named twice has failed once", () => {
  const [change] = all.changes;
  const failed = [{ change, error: "first" }, { change, error: "second" }];
  assert.deepEqual(plain({ failed }).items, [{ index: 0, error: "first" }]);
});
