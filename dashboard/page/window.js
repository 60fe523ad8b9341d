import { make } from './dom.js';

// Rows of a long table: only those that can be seen exist.

const height = 34; // pixels of a row, as style.css makes them
const spare = 8; // rows beyond both edges, so that a step by keyboard finds the next row

// Windowed shows items as rows of a table body within a region that scrolls. It calls onDraw, if there is one, with the
// first of the rows that exist, and with the one after the last.
export class Windowed {
  constructor(region, body, columns, row) {
    Object.assign(this, { region, body, columns, row, items: [], rows: new Map() });
    this.above = this.space();
    this.below = this.space();
    body.append(this.above, this.below);
    region.addEventListener('scroll', () => requestAnimationFrame(() => this.draw()));
    new ResizeObserver(() => this.draw()).observe(region);
  }

  space() {
    return make('tr', { class: 'space', 'aria-hidden': 'true' }, make('td', { colspan: this.columns }));
  }

  show(items) {
    this.items = items;
    this.body.closest('table').setAttribute('aria-rowcount', items.length + 1);
    this.draw();
  }

  // draw makes the rows that can be seen, keeps those that are there, and drops the others. If one of them has the focus,
  // the region gets it, so that the keyboard goes on from there.
  draw() {
    const first = Math.max(0, Math.floor(this.region.scrollTop / height) - spare);
    const last = Math.min(this.items.length, first + Math.ceil((this.region.clientHeight || 400) / height) + 2 * spare);
    const drawn = new Map();
    let before = this.above;
    for (let i = first; i < last; i++) {
      const item = this.items[i];
      const key = item.key ?? i; // what is not loaded has no key
      const row = this.row(item, this.rows.get(key));
      row.setAttribute('aria-rowindex', i + 2);
      if (before.nextSibling !== row) before.after(row);
      drawn.set(key, row);
      before = row;
    }
    for (const [key, row] of this.rows) {
      if (drawn.get(key) === row) continue;
      if (row.contains(document.activeElement)) this.region.focus({ preventScroll: true });
      row.remove();
    }
    this.rows = drawn;
    this.above.firstChild.style.height = `${first * height}px`;
    this.below.firstChild.style.height = `${Math.max(0, this.items.length - last) * height}px`;
    this.onDraw?.(first, last);
  }

  // reveal scrolls to an item, and returns its row.
  reveal(key) {
    const i = this.items.findIndex((item) => item.key === key);
    if (i < 0) return null;
    const top = i * height;
    if (top < this.region.scrollTop || top + 2 * height > this.region.scrollTop + this.region.clientHeight) {
      this.region.scrollTop = Math.max(0, top - this.region.clientHeight / 2);
    }
    this.draw();
    return this.rows.get(key);
  }
}
