// Numbers and times as people read them. What is not known is a question mark, and never 0.

const counts = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const rates = new Intl.NumberFormat('en', { maximumSignificantDigits: 3 });

export function count(n) {
  return n === null || n === undefined ? '?' : counts.format(n);
}

export function rate(n) {
  return n === null || n === undefined ? '?' : rates.format(n);
}

// pending is a lag with the mark of what is no count.
export function pending(lag) {
  if (lag.pending === null) return '?';
  return (lag.pending_exact ? '' : lag.pending_shared ? '≤' : '~') + count(lag.pending);
}

export function seconds(s) {
  if (s === null || s === undefined) return '?';
  if (s < 9.95) return rates.format(Math.round(s * 10) / 10) + ' s';
  const whole = Math.round(s);
  if (whole < 120) return whole + ' s';
  if (whole < 7200) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor(whole % 3600 / 60)} min`;
}

// range is a range of effective partition keys without the digits that say nothing to people.
export function range(text) {
  const edge = (digits) => {
    return digits.replace(/(?<=^..)0{3,}$|(?<=^.{8}).{3,}$/, '…');
  };
  const parts = /^([0-9A-F]*)-([0-9A-F]*)$/.exec(text);
  return parts ? `${edge(parts[1])}-${edge(parts[2])}` : text;
}

// clock is a time in UTC, as the sentences of the dashboard have it.
export function clock(time) {
  const [date, rest] = new Date(time).toISOString().split('T');
  const day = date === new Date().toISOString().slice(0, 10) ? '' : date + ' ';
  return day + rest.slice(0, 8);
}

export function things(n, thing) {
  return `${count(n)} ${thing}${n === 1 ? '' : 's'}`;
}
