import { ask, State } from './api.js';
import { make, say, shown, table } from './dom.js';
import { pretty } from './json.js';
import { clock, count, rate, seconds, things } from './words.js';
import { Windowed } from './window.js';

// The rows of a query, page by page: a page comes when somebody scrolls to its rows, and goes when others are seen.

const rowsOfPage = 100;
const mostPages = 20; // that are kept
const mostRows = 500_000; // browsers show no higher list
const listed = 400; // bytes of a document in a list

const columns = [{ title: '#', kind: 'number wide' }, { title: 'Id' }, { title: 'Partition key', kind: 'key' },
  { title: 'Written', kind: 'wide' }, { title: 'Bytes', kind: 'number wide' }, { title: 'Row' }];

export class Results {
  // open is called with a row that somebody chooses.
  constructor(label, where, signal, open) {
    Object.assign(this, { where, signal, open });
    this.state = new State();
    this.facts = make('p', { class: 'facts', role: 'status' });
    this.plan = make('p', { class: 'facts' });
    const { region, body } = table(label, columns, [], { class: 'windowed' });
    region.classList.add('tall');
    this.region = region;
    this.rows = new Windowed(region, body, columns.length, (item, row) => this.row(item, row));
    this.rows.onDraw = (first, last) => this.seen(first, last);
    this.more = make('button', { type: 'button', hidden: true, click: () => this.goOn() }, 'Go on from here');
    this.element = make('div', {}, this.state.element, this.facts, this.plan, region, this.more);
    region.hidden = true;
  }

  // show asks a question from its first page on. Details asks also for the plan, and for whole rows.
  async show(question, { details = false, after = '', before = 0 } = {}) {
    this.running?.abort();
    this.running = new AbortController();
    this.signal.addEventListener('abort', () => this.running.abort());
    Object.assign(this, { question, details, before, pages: [], items: [], next: after, isOver: false, loading: null });
    Object.assign(this, { charge: 0, seconds: 0, read: 0, chosen: null });
    this.more.hidden = true;
    this.region.hidden = true;
    this.region.scrollTop = 0;
    say(this.facts, '');
    say(this.plan, '');
    await this.load({ after, from: 0, rows: 0, isNew: true });
  }

  // stop ends the question with what there is.
  stop() {
    this.running?.abort();
    this.isOver = true;
    this.state.say('Stopped: these are the rows until then.');
  }

  // load reads a page, and puts its rows where they belong.
  async load(page) {
    const { running } = this;
    this.loading = page;
    this.region.setAttribute('aria-busy', 'true');
    const question = { ...this.where, ...this.question, after: page.after, max: rowsOfPage,
      cut: this.details ? null : listed, plan: this.details && page.isNew && page.from === 0 ? 1 : null };
    let answer;
    try {
      answer = await this.state.read(running.signal, () => ask('GET', 'query', question, { signal: running.signal }));
    } catch (error) {
      if (running === this.running) this.isOver = true;
      return;
    } finally {
      if (running === this.running) {
        this.loading = null;
        this.region.removeAttribute('aria-busy');
      }
    }
    if (running.signal.aborted) return;
    this.charge += answer.charge ?? 0;
    this.seconds += answer.seconds;
    this.read++;
    if (page.isNew) {
      page.isNew = false;
      page.rows = answer.rows.length;
      this.pages.push(page);
      this.next = answer.next;
      this.isOver = answer.next === '' || this.items.length + page.rows >= mostRows;
    }
    page.isLoaded = true;
    for (let i = 0; i < page.rows; i++) {
      const at = page.from + i;
      this.items[at] = answer.rows[i] ? { ...answer.rows[i], key: at, partition: answer.rows[i].key } : { page, isGone: true };
    }
    if (answer.plan) say(this.plan, shown(`Plan: ${answer.plan}`));
    this.tell();
    this.region.hidden = this.items.length === 0;
    this.rows.show(this.items);
    if (!this.isOver) this.region.querySelector('table').setAttribute('aria-rowcount', -1);
  }

  // tell says what there is, and what it has cost.
  tell() {
    const whole = this.next === '' ? '' : ' so far; more come when you scroll to the end';
    say(this.facts, this.items.length === 0 && this.isOver ? `No rows. ${this.cost()}`
      : `${things(this.before + this.items.length, 'row')}${whole}. ${this.cost()}`);
    this.more.hidden = !(this.isOver && this.next !== '' && this.items.length >= mostRows);
  }

  cost() {
    return `${things(this.read, 'page')}, ${rate(this.charge)} RU, ${this.seconds < 1
      ? `${rate(this.seconds * 1000)} ms` : seconds(this.seconds)}.`;
  }

  // goOn begins a list anew after the last row.
  goOn() {
    this.show(this.question, { details: this.details, after: this.next, before: this.before + this.items.length });
  }

  // seen reads the pages of the rows that are seen, and drops those that are far from them.
  seen(first, last) {
    if (this.loading || !this.pages) return;
    const missing = this.pages.find((p) => !p.isLoaded && p.from < last && p.from + p.rows > first);
    if (missing) {
      this.load(missing);
      return;
    }
    const kept = this.pages.filter((p) => p.isLoaded);
    const middle = (first + last) / 2;
    kept.sort((a, b) => Math.abs(a.from - middle) - Math.abs(b.from - middle));
    for (const page of kept.slice(mostPages)) {
      page.isLoaded = false;
      const away = { page };
      for (let i = 0; i < page.rows; i++) this.items[page.from + i] = away;
    }
    if (!this.isOver && last >= this.items.length - rowsOfPage / 4) {
      this.load({ after: this.next, from: this.items.length, rows: 0, isNew: true });
    }
  }

  row(item, row) {
    if (row && row.item === item && row.isChosen === (item === this.chosen)) return row;
    const number = make('td', { class: 'number wide' });
    row = make('tr', { class: item === this.chosen ? 'chosen' : null });
    row.item = item;
    row.isChosen = item === this.chosen;
    if (item.key === undefined) {
      row.append(make('td', { colspan: columns.length, class: 'quiet' }, item.isGone ? 'no more there' : 'Loading…'));
      return row;
    }
    say(number, count(this.before + item.key + 1));
    const name = item.id ?? 'open';
    const label = item.id === undefined ? `Row ${this.before + item.key + 1}` : null;
    row.append(number,
      make('td', {}, make('button', { type: 'button', class: 'token', 'aria-label': label, click: () => this.choose(item) },
        shown(name))),
      make('td', { class: 'key' }, make('bdi', {}, shown(item.partition ?? ''))),
      make('td', { class: 'wide' }, item.at ? clock(Number(item.at) * 1000) : ''),
      make('td', { class: 'number wide' }, count(item.bytes)),
      make('td', { class: 'text' }, make('bdi', {}, shown(item.text.slice(0, listed)))));
    return row;
  }

  choose(item) {
    this.chosen = item;
    this.rows.draw();
    this.open(item);
  }

  // focus returns to the row that was chosen.
  focus() {
    const { chosen } = this;
    this.chosen = null;
    this.rows.draw();
    if (chosen) this.rows.reveal(chosen.key)?.querySelector('button')?.focus();
  }
}

// rowPanel shows a row that is no document.
export function rowPanel(item, close) {
  const title = make('h3', { tabindex: -1 }, 'Row');
  const panel = make('div', { class: 'detail', role: 'region', 'aria-label': 'One row',
    keydown: (e) => { if (e.key === 'Escape') close(); } },
  title, make('div', { class: 'buttons' }, make('button', { type: 'button', click: close }, 'Close')),
  make('pre', { tabindex: 0, 'aria-label': 'Row as JSON' }, shown(pretty(item.text)) + (item.cut ? '…' : '')));
  return { element: panel, focus: () => title.focus() };
}
