import type { Readable } from "node:stream";

const lineEnd = 0x0a;

/** readLines calls each with every line of a stream. A last line without an end is dropped: its writer has died. */
export function readLines(from: Readable, each: (line: string) => void): void {
  let parts: Buffer[] = []; // of the line that has begun
  from.on("data", (chunk: Buffer) => {
    let begin = 0;
    for (let end = chunk.indexOf(lineEnd); end >= 0; end = chunk.indexOf(lineEnd, begin)) {
      if (parts.length === 0) {
        each(chunk.toString("utf8", begin, end));
      } else {
        parts.push(chunk.subarray(begin, end));
        const whole = Buffer.concat(parts);
        parts = [];
        each(whole.toString("utf8"));
      }
      begin = end + 1;
    }
    if (begin < chunk.length) parts.push(begin === 0 ? chunk : chunk.subarray(begin));
  });
}
