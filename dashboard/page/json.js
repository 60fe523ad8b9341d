// JSON as text. Nothing is parsed into numbers, because a browser rounds those of more than 53 bits.

const deepest = 40; // levels that are indented

// pretty breaks JSON into lines, and changes nothing but the space between its parts. What is no JSON may look odd.
export function pretty(text) {
  const parts = text.match(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+|"/g) ?? [];
  const out = [];
  let depth = 0;
  const line = () => '\n' + '  '.repeat(Math.min(Math.max(depth, 0), deepest));
  parts.forEach((part, i) => {
    if (part === '{' || part === '[') {
      depth++;
      out.push(part, parts[i + 1] === '}' || parts[i + 1] === ']' ? '' : line());
    } else if (part === '}' || part === ']') {
      depth--;
      out.push(parts[i - 1] === '{' || parts[i - 1] === '[' ? '' : line(), part);
    } else if (part === ',') out.push(part, line());
    else out.push(part === ':' ? ': ' : part);
  });
  return out.join('');
}

const mostCompared = 4e6; // pairs of lines

// difference returns the lines of two texts, each with ' ', '-' or '+' before it.
export function difference(before, after) {
  const a = before.split('\n');
  const b = after.split('\n');
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a.at(-1 - tail) === b.at(-1 - tail)) tail++;
  const same = (lines) => lines.map((text) => ({ op: ' ', text }));
  return [...same(a.slice(0, head)), ...between(a.slice(head, a.length - tail), b.slice(head, b.length - tail)),
    ...same(a.slice(a.length - tail))];
}

// between compares lines by their longest common part, if that is not too much work.
function between(a, b) {
  const gone = a.map((text) => ({ op: '-', text }));
  const come = b.map((text) => ({ op: '+', text }));
  if (a.length * b.length > mostCompared) return [...gone, ...come];
  const width = b.length + 1;
  const longest = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      longest[i * width + j] = a[i] === b[j] ? longest[(i + 1) * width + j + 1] + 1
        : Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
    }
  }
  const lines = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      lines.push({ op: ' ', text: a[i] });
      [i, j] = [i + 1, j + 1];
    } else if (j >= b.length || i < a.length && longest[(i + 1) * width + j] >= longest[i * width + j + 1]) {
      lines.push(gone[i++]);
    } else lines.push(come[j++]);
  }
  return lines;
}

// around leaves out lines that are the same, except for some beside those that are not.
export function around(lines, beside = 2) {
  const near = new Set();
  lines.forEach((line, i) => {
    if (line.op !== ' ') for (let k = i - beside; k <= i + beside; k++) near.add(k);
  });
  const kept = [];
  lines.forEach((line, i) => {
    if (near.has(i)) kept.push(line);
    else if (kept.at(-1)?.op !== '…') kept.push({ op: '…', text: '' });
  });
  return kept;
}
