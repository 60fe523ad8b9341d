import { Chart, History } from './chart.js';
import { isolated, make, say, shown, table } from './dom.js';
import { buttonFor } from './steer.js';
import { clock, count, pending, range, rate, seconds, things } from './words.js';
import { Windowed } from './window.js';

// A unit: its sentence, what is wrong, the key space, lag and rate, leases, instances and dead letters.

const leaseColumns = [
  { title: 'Lease' }, { title: 'Owner' }, { title: 'State' }, { title: 'Written', kind: 'wide' },
  { title: 'Behind', kind: 'number' }, { title: 'Oldest', kind: 'number' }, { title: 'Each second', kind: 'number wide' },
  { title: 'Done in', kind: 'number wide' }, { title: 'Attempts', kind: 'number wide' }, { title: 'Now', kind: 'wide' },
  { title: 'Notes', kind: 'note' },
];

const instanceColumns = [
  { title: 'Instance' }, { title: 'Presence' }, { title: 'Leases', kind: 'number' }, { title: 'Seen', kind: 'number' },
  { title: 'Handler' }, { title: 'Program', kind: 'wide' }, { title: 'Options', kind: 'wide' }, { title: 'Notes', kind: 'note' },
];

// The colours of owners: each has a contrast of at least 3 to both backgrounds.
const colours = ['#2f7fc1', '#c2571a', '#2e8b57', '#a04ec0', '#b8860b', '#c2406b', '#1f8a8a', '#6a6fd1'];

// explainEvery is after how many milliseconds the lease that is open is explained again, which costs a listing.
const explainEvery = 10_000;

// The words of findings about failures, whose cause this process may know.
const failures = new Set(['failing', 'outage', 'aside']);

// Work on a lease that is not as it should be.
const troubled = new Set(['expired', 'silent', 'stopped', 'broken', 'hole']);

export class Unit {
  constructor(first) {
    this.name = first.name;
    this.container = first.container;
    this.histories = new Map();
    this.chosen = null;
    this.build();
  }

  build() {
    const id = `u${Math.random().toString(36).slice(2)}`;
    this.sentence = make('p', { class: 'sentence', role: 'status' });
    this.findings = make('ul', { class: 'findings', 'aria-label': 'What is wrong' });
    this.bar = make('svg', { class: 'bar', viewBox: '0 0 1000 28', preserveAspectRatio: 'none', role: 'img' });
    this.legend = make('ul', { class: 'legend', 'aria-label': 'Owners' });
    this.behind = new Chart('Behind', (n) => things(n, 'change'));
    this.pace = new Chart('Handled a second', rate);
    const leases = table(`Leases of ${this.name}`, leaseColumns, [], { class: 'windowed' });
    this.leases = new Windowed(leases.region, leases.body, leaseColumns.length, (l, row) => this.leaseRow(l, row));
    this.instances = table(`Instances of ${this.name}`, instanceColumns, [], { class: 'short' });
    this.detail = make('div', { class: 'detail', role: 'region', 'aria-label': 'One lease', hidden: true,
      keydown: (e) => { if (e.key === 'Escape') this.close(); } });
    this.letters = make('details', { toggle: () => this.loadLetters() }, make('summary', {}, 'Dead letters'));
    this.cost = make('p', { class: 'quiet' });
    this.acts = make('p', { class: 'buttons', hidden: true }, ...['pause', 'resume', 'reset'].map((a) => buttonFor(a, this)));
    this.says = make('ul', { class: 'says', 'aria-label': 'What this process says' });
    this.leasesTitle = make('h3', {}, 'Leases');
    this.instancesTitle = make('h3', {}, 'Instances');
    this.element = make('section', { class: 'unit', 'aria-labelledby': id },
      make('h2', { id }, isolated(this.name), ' on ', isolated(this.container)), this.sentence, this.acts, this.findings,
      this.bar, this.legend, make('div', { class: 'charts' }, this.behind.figure, this.pace.figure),
      this.says, this.leasesTitle, leases.region, this.detail, this.instancesTitle, this.instances.region, this.letters, this.cost);
  }

  // show shows the unit as it is at a time. If people may act, there are buttons for that.
  show(unit, at, mayAct) {
    this.mayAct = mayAct;
    this.acts.hidden = !mayAct;
    if (unit.error !== null && this.seenAt) return this.showUnknown(unit);
    this.last = unit;
    if (unit.error === null) this.seenAt = at;
    this.record('', unit, at);
    for (const l of unit.leases) this.record(l.lease, l, at);
    const kept = new Set(['', this.chosen, ...unit.leases.map((l) => l.lease)]);
    for (const token of this.histories.keys()) if (!kept.has(token)) this.histories.delete(token);
    this.draw();
  }

  // showUnknown says why the unit cannot be listed. What was known before stays, and looks old.
  showUnknown(unit) {
    this.element.classList.add('stale');
    this.sentence.classList.add('failed');
    say(this.sentence, shown(this.seenAt ? `${unit.sentence} – below is what was known at ${clock(this.seenAt)} UTC`
      : unit.sentence));
  }

  // draw shows the unit as it was last.
  draw() {
    const unit = this.last;
    this.element.classList.remove('stale');
    this.sentence.classList.toggle('failed', unit.error !== null);
    say(this.sentence, shown(unit.sentence));
    this.showFindings(unit.findings);
    this.colourOf = colouring(unit);
    this.behind.show(this.historyOf('').pending);
    this.pace.show(this.historyOf('').rate);
    this.showBar(unit);
    say(this.leasesTitle, unit.error === null ? `Leases (${count(unit.leases.length)})` : 'Leases');
    this.leases.show([...unit.leases.map((l) => ({ key: l.lease, ...l })), ...unit.holes.map(holeRow)]
      .sort((a, b) => a.from - b.from));
    this.showInstances(unit.instances);
    const held = JSON.stringify(unit.leases.map((l) => l.held_keys));
    if (held !== this.held) this.loadLetters();
    this.held = held;
    this.showSays(unit.says);
    say(this.cost, costsOf(unit));
    if (this.chosen !== null) {
      this.showDetailCharts();
      if (this.facts && Date.now() - this.explainedAt > explainEvery) this.explain();
    }
  }

  // showSays shows sentences of the process.
  showSays(says) {
    this.says.hidden = says.length === 0;
    while (this.says.children.length > says.length) this.says.lastChild.remove();
    says.forEach((text, i) => {
      if (!this.says.children[i]) this.says.append(make('li', {}));
      say(this.says.children[i], shown(text));
    });
  }

  // record keeps the figures of a lease, or of the unit as a whole.
  record(token, lag, at) {
    const history = this.historyOf(token);
    history.pending.add(at, lag.pending);
    history.rate.add(at, lag.per_second);
  }

  historyOf(token) {
    if (!this.histories.has(token)) this.histories.set(token, { pending: new History(), rate: new History() });
    return this.histories.get(token);
  }

  showFindings(findings) {
    const errors = new Map(this.last.leases.map((l) => [l.lease, l.here?.error]));
    const key = JSON.stringify([findings, [...errors]]);
    if (key === this.found) return;
    this.found = key;
    const most = 20;
    const all = grouped(findings);
    const rows = all.slice(0, most).map((f) => make('li', { class: f.grade },
      make('span', { class: 'grade' }, `${f.grade}: `),
      ...f.lease && errors.has(f.lease) ? [this.tokenOf(f.lease, f.lease), ': '] : [], isolated(f.text),
      failures.has(f.word) && errors.get(f.lease) ? make('div', {}, isolated(`The last failure: ${errors.get(f.lease)}`)) : null,
      make('div', { class: 'quiet' }, isolated([f.text.includes(f.means) ? '' : f.means, f.next].filter(Boolean).join(': ')))));
    if (all.length > most) rows.push(make('li', {}, `and ${things(all.length - most, 'more finding')}`));
    this.findings.replaceChildren(...rows);
    this.findings.hidden = rows.length === 0;
  }

  showBar(unit) {
    const parts = [...unit.leases.filter((l) => l.range), ...unit.holes.map(holeRow)].sort((a, b) => a.from - b.from);
    // A container with the first hash uses a small part of the key space: then all leases are as wide as each other.
    const isEven = parts.some((p) => p.to - p.from < 0.0005);
    this.bar.replaceChildren(...parts.map((p, i) => {
      const from = isEven ? i / parts.length : p.from;
      const width = isEven ? 1 / parts.length : p.to - p.from;
      return make('rect', {
        x: from * 1000, y: 0, width: width * 1000, height: 28, fill: this.colourOf(p.owner),
        class: p.lease === this.chosen ? 'chosen' : null, 'data-lease': p.lease, click: () => this.open(p.lease),
      }, make('title', {}, shown(`${p.range}: ${p.owner || p.state}`)));
    }));
    const owned = new Map();
    for (const p of parts) owned.set(p.owner || '', (owned.get(p.owner || '') ?? 0) + 1);
    const names = [...owned].sort(([a], [b]) => a.localeCompare(b));
    const words = names.map(([owner, n]) => `${owner || 'nobody'} ${n}`).join(', ');
    this.bar.setAttribute('aria-label', shown(`Key space, leases by owner: ${words || 'none'}`));
    this.legend.replaceChildren(...names.map(([owner, n]) => {
      const swatch = make('span', { class: 'swatch', 'aria-hidden': 'true' });
      swatch.style.background = this.colourOf(owner);
      return make('li', {}, swatch, isolated(owner || 'nobody'), `: ${n}`);
    }));
  }

  leaseRow(l, row) {
    const text = JSON.stringify(l) + (l.key === this.chosen);
    if (row?.text === text) return row;
    const cells = [l.owner, l.state, null, pending(l), seconds(l.oldest_seconds), rate(l.per_second),
      l.pending === 0 ? '' : seconds(l.seconds_left), l.attempts ? count(l.attempts) : '', workOf(l), (l.notes ?? []).join('; ')];
    if (!row) {
      row = make('tr', {}, make('td', { title: l.key }, l.lease === null ? isolated(range(l.range))
        : this.tokenOf(l.lease, l.lease)),
      ...leaseColumns.slice(1).map((c) => make('td', { class: c.title === 'State' ? 'state' : c.kind ?? null })));
      row.cells[3].append(make('span', { class: 'beat', role: 'img' }, make('i')));
    }
    cells.forEach((value, i) => { if (value !== null) say(row.cells[i + 1], shown(value)); });
    row.cells[10].title = shown(cells[9]);
    const beat = row.cells[3].firstChild;
    beat.hidden = !l.expiration_seconds || !l.owner;
    beat.setAttribute('aria-label', `${seconds(l.silent_seconds)} ago, expires after ${seconds(l.expiration_seconds)}`);
    beat.title = beat.getAttribute('aria-label');
    beat.firstChild.style.width = `${Math.min(100, 100 * l.silent_seconds / (l.expiration_seconds || 1))}%`;
    row.classList.toggle('bad', troubled.has(l.state));
    row.classList.toggle('ill', l.attempts >= 5 || l.outage_seconds !== null);
    row.classList.toggle('chosen', l.key === this.chosen);
    row.text = text;
    return row;
  }

  showInstances(instances) {
    const key = JSON.stringify([instances, this.last.error]);
    if (key === this.seen) return;
    this.seen = key;
    const running = instances.filter((i) => i.presence === 'running').length;
    say(this.instancesTitle, this.last.error === null ? `Instances (${count(running)} running)` : 'Instances');
    const byName = instances.toSorted((a, b) => a.name.localeCompare(b.name));
    this.instances.body.replaceChildren(...byName.map((i) => {
      const swatch = make('span', { class: 'swatch', 'aria-hidden': 'true' });
      swatch.style.background = this.colourOf(i.name);
      return make('tr', { class: i.presence === 'gone' ? 'bad' : null },
        make('td', {}, swatch, isolated(i.name), i.is_here ? ' (this process)' : ''),
        make('td', { class: 'state' }, i.presence), make('td', { class: 'number' }, count(i.leases)),
        make('td', { class: 'number' }, `${seconds(i.silent_seconds)} ago`), make('td', {}, isolated(i.handler)),
        make('td', { class: 'wide' }, isolated(i.program)), make('td', { class: 'wide' }, isolated(i.options)),
        make('td', { class: 'note', title: shown(i.notes.join('; ')) }, isolated(i.notes.join('; '))));
    }));
  }

  // tokenOf makes the button that opens a lease.
  tokenOf(token, text) {
    return make('button', { type: 'button', class: 'token', click: () => this.open(token) }, shown(range(text)));
  }

  // open shows one lease, and closes it if it is open.
  async open(token) {
    if (token === null) return;
    if (token === this.chosen) return this.close();
    this.chosen = token;
    const title = make('h3', { tabindex: -1 }, 'Lease ', isolated(token));
    this.own = { behind: new Chart('Behind', (n) => things(n, 'change')), pace: new Chart('Handled a second', rate) };
    const facts = make('div', { 'aria-busy': 'true' }, 'Loading…');
    const range = this.last.leases.find((l) => l.lease === token)?.range;
    const acts = this.mayAct && range ? ['pause', 'resume', 'reset', 'skip'].map((a) => buttonFor(a, this, { range })) : [];
    this.detail.replaceChildren(title, make('p', { class: 'buttons' },
      make('button', { type: 'button', click: () => this.close() }, 'Close'), ...acts),
      make('div', { class: 'charts' }, this.own.behind.figure, this.own.pace.figure), facts);
    this.detail.hidden = false;
    this.leases.reveal(token);
    this.draw();
    title.focus();
    this.facts = facts;
    await this.explain();
  }

  // explain says what is known of the lease that is open.
  async explain() {
    const { chosen, facts } = this;
    if (chosen === null) return;
    this.explainedAt = Date.now();
    const answer = await ask('explain', { unit: this.name, container: this.container, lease: chosen });
    if (this.facts !== facts) return;
    facts.removeAttribute('aria-busy');
    const lease = this.last.leases.find((l) => l.lease === chosen);
    const parts = [];
    if (lease?.here?.error) parts.push(make('h4', {}, 'The last failure'), make('p', {}, isolated(lease.here.error)));
    if (this.mayAct && lease?.held_keys?.length > 0) parts.push(this.heldActs(lease.held_keys));
    parts.push(...explained(answer), make('p', { class: 'quiet' }, `As of ${clock(Date.now())} UTC.`));
    if (!facts.contains(document.activeElement)) facts.replaceChildren(...parts);
  }

  // heldActs are the buttons that release held keys.
  heldActs(keys) {
    return make('p', { class: 'buttons' }, 'Held keys:', ...keys.map((key) => {
      try {
        return buttonFor('release', this, { key: JSON.parse(key) }, `Release ${shown(key)}`);
      } catch { // no JSON, so nothing can be asked about it
        return isolated(key);
      }
    }));
  }

  close() {
    const token = this.chosen;
    this.chosen = this.facts = null;
    this.detail.hidden = true;
    this.detail.replaceChildren();
    this.leases.reveal(token)?.querySelector('button')?.focus();
    this.draw();
  }

  showDetailCharts() {
    const history = this.historyOf(this.chosen);
    this.own.behind.show(history.pending);
    this.own.pace.show(history.rate);
  }

  async loadLetters() {
    if (!this.letters.open) return;
    const summary = this.letters.firstChild;
    this.letters.replaceChildren(summary, make('p', {}, 'Loading…'));
    const answer = await ask('letters', { unit: this.name, container: this.container });
    this.letters.replaceChildren(summary, ...this.lettersOf(answer),
      make('button', { type: 'button', click: () => this.loadLetters() }, 'Load again'));
  }

  lettersOf(answer) {
    if (answer.error) return [make('p', {}, isolated(answer.error))];
    if (answer.letters === null) {
      return [make('p', {}, 'This process has no access to the dead letters of the unit: changefeed dlq list shows them.')];
    }
    const held = this.last.leases.flatMap((l) => l.held_keys ?? []);
    const keys = this.mayAct && held.length > 0 ? [this.heldActs(held.slice(0, 20))] : [];
    const at = answer.at ? [' in ', isolated(answer.at)] : [];
    if (answer.letters.length === 0) return [make('p', {}, 'No dead letter is waiting', ...at, '.'), ...keys];
    const columns = [{ title: 'Parked' }, { title: 'Key' }, { title: 'Item' }, { title: 'Why' },
      { title: 'Attempts', kind: 'number' }, { title: 'Cause and document', kind: 'note' }];
    if (this.mayAct) columns.push({ title: 'What to do' });
    const rows = answer.letters.map((l) => make('tr', {}, make('td', {}, clock(l.parked)),
      make('td', {}, isolated(JSON.stringify(l.key))), make('td', {}, isolated(l.item)), make('td', {}, l.disposition),
      make('td', { class: 'number' }, count(l.attempts)),
      make('td', { class: 'note' }, isolated(l.cause), make('details', {}, make('summary', {}, 'Document'),
        make('pre', { tabindex: 0 }, shown(l.document) + (l.cut ? '…' : '')))),
      this.mayAct ? make('td', { class: 'buttons' }, ...this.letterActs(l)) : null));
    const parts = [...keys, table(`Dead letters of ${this.name}`, columns, rows).region];
    if (answer.more) parts.push(make('p', {}, `These are the first ${answer.letters.length}: changefeed dlq list has all.`));
    return parts;
  }

  // letterActs are what can be done with a letter: a held one waits for those before it.
  letterActs(l) {
    const of = { key: l.key, letter: l.id };
    return [l.disposition === 'held' ? buttonFor('release', this, { key: l.key }) : buttonFor('retry', this, of),
      buttonFor('drop', this, of)];
  }

  // acted shows what an action has changed.
  acted(action) {
    if (['retry', 'release', 'drop'].includes(action)) this.loadLetters();
    this.explain();
  }
}

// ask asks the dashboard, and returns the answer or an error in its place.
async function ask(what, question) {
  try {
    // without the name and the password that the address of the page may have, which fetch refuses
    const response = await fetch(`${location.origin}/${what}?${new URLSearchParams(question)}`);
    return await response.json();
  } catch (error) {
    return { error: `no answer: ${error.message}` };
  }
}

function explained(answer) {
  if (answer.error) return [make('p', {}, isolated(answer.error))];
  const list = (title, texts) => texts.length === 0 ? []
    : [make('h4', {}, title), make('ul', {}, ...texts.map((t) => make('li', {}, isolated(t))))];
  const done = answer.history.map((a) => `${clock(a.at)} ${a.action}${a.by ? ` by ${a.by}` : ''}: ${a.done} of ` +
    `${a.count}${a.reason ? `, ${a.reason}` : ''}${a.failed ? `; failed: ${a.failed}` : ''}`);
  return [...list('What is known', answer.facts), ...list('What to do', answer.next), ...list('What was done', done)];
}

// grouped joins findings of one word if there are more than three of them.
function grouped(findings) {
  const of = new Map();
  for (const f of findings) of.set(f.word + f.means, [...of.get(f.word + f.means) ?? [], f]);
  return [...of.values()].flatMap((group) => {
    const isSame = group.every((f) => f.text === group[0].text);
    if (group.length === 1 || group.length <= 3 && !isSame) return group;
    const text = isSame ? group[0].text : group[0].means;
    return [{ ...group[0], lease: '', text: `${count(group.length)} leases: ${text}` }];
  });
}

// costsOf says what this listing and this process have cost. A store in a directory sends no requests.
function costsOf(unit) {
  if (unit.error !== null) return '';
  if (unit.requests === 0) return 'This listing has cost no request.';
  const names = { reads: `reads of ${unit.container}`, leases: 'writes of leases', listings: 'listings for this page' };
  const spent = unit.costs.map((c) => `${names[c.for] ?? c.for} ${rate(c.request_units)} (${things(c.requests, 'request')})`);
  return shown(`This listing has cost ${things(unit.requests, 'request')} and ${rate(unit.request_units)} request units.` +
    (spent.length > 0 ? ` Request units of this process since it began: ${spent.join(', ')}.` : ''));
}

// holeRow is a part of the key space without a lease, as a row of the leases.
function holeRow(hole) {
  return { key: `hole ${hole.range}`, lease: null, owner: '', state: 'hole', pending: null, oldest_seconds: null,
    per_second: null, seconds_left: null, outage_seconds: null, silent_seconds: 0, expiration_seconds: 0, attempts: 0, ...hole };
}

// workOf says what is done with a lease now.
function workOf(l) {
  const words = [];
  if (l.here) words.push(`${l.here.activity} for ${seconds(l.here.since_seconds)}`);
  if (l.in_hand_seconds !== null && l.in_hand_seconds !== undefined) words.push(`in the handler for ${seconds(l.in_hand_seconds)}`);
  if (l.here?.buffered) words.push(`${count(l.here.buffered)} read`);
  if (l.held) words.push(`${things(l.held, 'key')} held`);
  if (l.set_aside) words.push(`${things(l.set_aside, 'key')} set aside`);
  return words.join(', ');
}

// colouring gives each owner a colour, and nobody grey.
function colouring(unit) {
  const names = [...new Set([...unit.instances.map((i) => i.name), ...unit.leases.map((l) => l.owner)])].filter(Boolean).sort();
  return (owner) => owner ? colours[names.indexOf(owner) % colours.length] : 'var(--free)';
}
