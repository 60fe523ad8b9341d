import { ask, State } from './api.js';
import { isolated, make, say, shown, table } from './dom.js';
import { Unit } from './unit.js';
import { Windowed } from './window.js';
import { clock, count, range, things } from './words.js';

// The partitions of a container in its key space, to split and to merge them, and the units whose leases follow.

const columns = [{ title: 'Partition' }, { title: 'Change' }, { title: 'Range' }, { title: 'Of the key space', kind: 'number' },
  { title: 'From', kind: 'wide' }];

export function partitionsView({ where, signal, canWrite, container, changed }) {
  const state = new State();
  const facts = make('p', { class: 'facts', role: 'status' });
  const bar = make('svg', { class: 'bar', viewBox: '0 0 1000 28', preserveAspectRatio: 'none', role: 'img' });
  const { region, body } = table('Partitions', columns, [], { class: 'windowed' });
  const rows = new Windowed(region, body, columns.length, (p, row) => row?.item === p ? row : partitionRow(p));
  const rights = make('p', { class: 'quiet' });
  const units = make('div', { id: 'units' });
  const connection = make('p', { class: 'facts', role: 'status' }, 'Waiting for the units…');
  let cuts = false;

  const load = async () => {
    const now = await state.read(signal, () => ask('GET', 'container', where, { signal }));
    cuts = now.cuts_partitions;
    const parts = now.physical_partitions.sort((a, b) => a.from - b.from);
    say(facts, `${things(parts.length, 'partition')}, ${now.documents === null ? 'an unknown number of documents'
      : things(now.documents, 'document')}.`);
    say(rights, cuts ? '' : 'The account splits and merges by itself: only a store of changefeed does it on demand.');
    parts.forEach((p, i) => Object.assign(p, { key: p.id, next: parts[i + 1] ?? null }));
    bar.replaceChildren(...parts.map((p, i) => make('rect', { x: p.from * 1000, y: 0, width: (p.to - p.from) * 1000, height: 28,
      class: i % 2 ? 'odd' : 'even' }, make('title', {}, shown(`${p.id}: ${p.range}`)))));
    bar.setAttribute('aria-label', `Key space with ${things(parts.length, 'partition')}`);
    rows.show(parts);
  };

  const change = async (what, body_, say_) => {
    try {
      const { made } = await state.write(() => ask('POST', what, where, { body: JSON.stringify(body_) }));
      changed();
      await load();
      state.say(say_(made.map((p) => p.id).join(' and ')), 'good');
      rows.reveal(made[0].id)?.querySelector('button')?.focus();
    } catch { // the state says why
    }
  };

  const partitionRow = (p) => {
    const buttons = make('div', {});
    if (canWrite && cuts) {
      buttons.append(make('button', { type: 'button', 'aria-label': `Split partition ${p.id}`,
        click: () => change('split', { id: p.id, at: '' }, (ids) => `Partition ${p.id} is split into ${ids}.`) }, 'Split'));
      if (p.next) {
        buttons.append(' ', make('button', { type: 'button', 'aria-label': `Merge partitions ${p.id} and ${p.next.id}`,
          click: () => change('merge', { ids: [p.id, p.next.id] },
            (ids) => `Partitions ${p.id} and ${p.next.id} are merged into ${ids}.`) }, 'Merge with the next'));
      }
    }
    const row = make('tr', {}, make('td', {}, isolated(p.id)), make('td', {}, buttons), make('td', { title: p.range }, isolated(range(p.range))),
      make('td', { class: 'number' }, `${count(100 * (p.to - p.from))} %`),
      make('td', { class: 'wide' }, p.parents.length === 0 ? '' : isolated(p.parents.join(', '))));
    row.item = p;
    return row;
  };

  follow(units, connection, container, signal);
  load().catch(() => {});
  return [state.element, facts, bar, rights, region, make('h3', {}, 'Units on this container'), connection, units];
}

// follow shows the units of a container for as long as they are looked at.
function follow(place, connection, container, signal) {
  const units = new Map();
  let stream = null;
  const connect = () => {
    if (signal.aborted) return;
    stream = new EventSource('events');
    stream.addEventListener('status', (e) => {
      const status = JSON.parse(e.data);
      const here = status.units.filter((u) => container.includes(u.container));
      say(connection, here.length === 0 ? 'This process knows no unit that reads this container.'
        : `As of ${clock(status.at)} UTC`);
      const seen = new Set();
      for (const unit of here) {
        const key = JSON.stringify([unit.name, unit.container]);
        seen.add(key);
        if (!units.has(key)) {
          units.set(key, new Unit(unit));
          place.append(units.get(key).element);
        }
        units.get(key).show(unit, Date.parse(status.at));
      }
      for (const [key, unit] of units) {
        if (seen.has(key)) continue;
        unit.element.remove();
        units.delete(key);
      }
    });
    stream.addEventListener('error', () => {
      say(connection, `Connection lost at ${clock(new Date())} UTC: what you see is from before. Trying again…`);
      if (stream.readyState === EventSource.CLOSED) setTimeout(connect, 2000);
    });
  };
  signal.addEventListener('abort', () => stream?.close());
  connect();
}
