import { make, say } from './dom.js';

// A line over the last minutes.

const kept = 300; // samples

// History are the samples of one figure.
export class History {
  times = [];
  values = [];

  add(time, value) {
    if (value === null || value === undefined) return;
    if (time < this.times.at(-1)) [this.times, this.values] = [[], []]; // the clock was set back
    this.times.push(time);
    this.values.push(value);
    if (this.times.length > kept) {
      this.times.shift();
      this.values.shift();
    }
  }
}

// Chart shows a history. Its caption says the last and the largest value, for those who do not see the line.
export class Chart {
  constructor(title, words) {
    this.title = title;
    this.words = words;
    this.line = make('polyline', { points: '' });
    this.caption = make('figcaption', {});
    this.figure = make('figure', {},
      make('svg', { class: 'chart', viewBox: '0 0 300 100', preserveAspectRatio: 'none', 'aria-hidden': 'true' }, this.line),
      this.caption);
  }

  show(history) {
    const { times, values } = history;
    if (times.length === 0) {
      say(this.caption, `${this.title}: not known yet`);
      this.line.setAttribute('points', '');
      return;
    }
    const most = Math.max(...values);
    const first = times[0];
    const span = Math.max(1, times.at(-1) - first);
    this.line.setAttribute('points', times.map((t, i) =>
      `${((t - first) / span * 300).toFixed(1)},${(97 - 94 * values[i] / (most || 1)).toFixed(1)}`).join(' '));
    say(this.caption, `${this.title}: ${this.words(values.at(-1))}; at most ${this.words(most)} in ` +
      `${Math.max(1, Math.round(span / 60000))} min`);
  }
}
