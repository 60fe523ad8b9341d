import type { Readable } from "node:stream";

const lineEnd = 0x0a;
const keptBytes = 1 << 20; // of a line, whose memory is used again

/** readLines calls each with every line of a stream. A last line without an end is dropped: its writer has died. */
export function readLines(from: Readable, each: (line: string) => void): void {
  let begun = Buffer.alloc(0); // its first bytes are the line that has begun
  let length = 0;
  const add = (part: Buffer) => {
    if (length + part.length > begun.length) {
      const larger = Buffer.allocUnsafe(2 * (length + part.length));
      begun.copy(larger, 0, 0, length);
      begun = larger;
    }
    begun.set(part, length);
    length += part.length;
  };
  from.on("data", (chunk: Buffer) => {
    let begin = 0;
    for (let end = chunk.indexOf(lineEnd); end >= 0; end = chunk.indexOf(lineEnd, begin)) {
      if (length === 0) {
        each(chunk.toString("utf8", begin, end));
      } else {
        add(chunk.subarray(begin, end));
        const line = begun.toString("utf8", 0, length);
        length = 0;
        if (begun.length > keptBytes) begun = Buffer.alloc(0);
        each(line);
      }
      begin = end + 1;
    }
    if (begin < chunk.length) add(chunk.subarray(begin));
  });
}
