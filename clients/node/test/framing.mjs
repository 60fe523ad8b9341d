// Measures lines beside length prefixes as the framing of messages, in one process and without a pipe, so that nothing
// else is measured:
//
//	node test/framing.mjs
//
// A message is a batch as the processor sends it. It arrives in chunks of 64 KB, as from a pipe.

import { Readable } from "node:stream";
import { readLines } from "../dist/lines.js";

const chunkSize = 64 << 10;
const seconds = 2; // of each measurement

/** batch is the text of a batch with n changes. */
function batch(n) {
  const changes = Array.from({ length: n }, (_, i) => ({
    lsn: 1000 + i, time: "2026-01-31T15:00:00Z", op: "upsert", id: `item-${i}`, key: [`key-${i}`], range: "-FF",
    document: { id: `item-${i}`, pk: `key-${i}`, n: i, text: "x".repeat(50), _rid: "kDivHoAAAAE=", _ts: 1790000000 },
  }));
  return JSON.stringify({ type: "batch", id: 1, lease: "-FF", range: "-FF", instance: "a", epoch: 1, attempt: 1, changes });
}

/** chunksOf cuts a stream of messages into chunks. */
function chunksOf(messages) {
  const all = Buffer.concat(messages);
  const chunks = [];
  for (let i = 0; i < all.length; i += chunkSize) chunks.push(all.subarray(i, i + chunkSize));
  return chunks;
}

/** readPrefixed is readLines for messages with their length before them. */
function readPrefixed(from, each) {
  let parts = [];
  let have = 0;
  from.on("data", (chunk) => {
    parts.push(chunk);
    have += chunk.length;
    while (have >= 4) {
      if (parts[0].length < 4) parts = [Buffer.concat(parts)];
      const want = 4 + parts[0].readUInt32LE(0);
      if (have < want) return;
      const whole = parts.length === 1 ? parts[0] : Buffer.concat(parts);
      each(whole.toString("utf8", 4, want));
      have -= want;
      parts = have > 0 ? [whole.subarray(want)] : [];
    }
  });
}

const prefixed = (text) => {
  const body = Buffer.from(text);
  const head = Buffer.alloc(4);
  head.writeUInt32LE(body.length);
  return Buffer.concat([head, body]);
};

/** measure returns the microseconds of a message. */
function measure(read, message, each) {
  const count = Math.max(1, Math.ceil((1 << 20) / message.length));
  const chunks = chunksOf(Array(count).fill(message));
  const from = new Readable({ read() {} });
  let seen = 0;
  read(from, (text) => {
    each(text);
    seen++;
  });
  const began = performance.now();
  while (performance.now() - began < seconds * 1000) for (const chunk of chunks) from.emit("data", chunk);
  return (performance.now() - began) * 1000 / seen;
}

for (const n of [1, 100, 1000]) {
  const text = batch(n);
  const line = Buffer.from(text + "\n");
  const us = (value) => value.toFixed(1);
  console.log(`${n} changes, ${line.length} bytes: lines ${us(measure(readLines, line, () => {}))} µs, ` +
    `prefixes ${us(measure(readPrefixed, prefixed(text), () => {}))} µs, ` +
    `lines and JSON.parse ${us(measure(readLines, line, JSON.parse))} µs`);
}
