// Lines of a stream, however it is cut into chunks.
import assert from "node:assert/strict";
import { PassThrough } from "node:stream";
import { test } from "node:test";
import { readLines } from "../dist/lines.js";

/** linesOf returns the lines that are read from chunks. */
function linesOf(chunks) {
  const from = new PassThrough();
  const lines = [];
  readLines(from, (line) => lines.push(line));
  for (const chunk of chunks) from.emit("data", chunk);
  return lines;
}

/** cut cuts bytes into chunks of a size. */
function cut(bytes, size) {
  const chunks = [];
  for (let i = 0; i < bytes.length; i += size) chunks.push(Buffer.from(bytes.subarray(i, i + size)));
  return chunks;
}

test("a line is whole, whatever its chunks are, and has nothing of the line before", () => {
  const lines = ["first é", "", "x".repeat(500), "é".repeat(1000), "y", "é😀".repeat(40), "", "z".repeat(1500), "last"];
  const bytes = Buffer.from(lines.map((line) => `${line}\n`).join(""));
  for (const size of [1, 2, 3, 7, 64, 999, 4096, bytes.length]) assert.deepEqual(linesOf(cut(bytes, size)), lines);
});

test("a line of several MB leaves the next ones as they are", () => {
  const lines = ["a".repeat(10), "é".repeat(1_500_000), "b".repeat(70_000), "c", "é".repeat(70_000)];
  const bytes = Buffer.from(lines.map((line) => `${line}\n`).join(""));
  assert.deepEqual(linesOf(cut(bytes, 65_536)), lines);
});

test("a last line without an end is dropped", () => {
  assert.deepEqual(linesOf([Buffer.from("whole\nha"), Buffer.from("lf")]), ["whole"]);
});
