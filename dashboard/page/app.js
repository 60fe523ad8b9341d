import { isolated, make, say, shown } from './dom.js';
import { offerTheme } from './theme.js';
import { clock } from './words.js';
import { Unit } from './unit.js';

// The page: the stream of states and events, and what it says while there is none.

const at = (id) => document.getElementById(id);
const units = new Map();
const mostEvents = 200;
let lostSince = null;
let last = { run: 0, id: 0 };

function showStatus(status) {
  at('placeholder')?.remove();
  at('units').setAttribute('aria-busy', 'false');
  say(at('process'), shown([status.name, status.program].filter(Boolean).join(' · ')));
  at('pages').hidden = !status.store;
  document.title = titleOf(status);
  const seen = new Set();
  let before = null;
  for (const unit of status.units) {
    const key = JSON.stringify([unit.name, unit.container]);
    seen.add(key);
    if (!units.has(key)) units.set(key, new Unit(unit));
    const { element } = units.get(key);
    const place = before ? before.nextSibling : at('units').firstChild;
    if (place !== element) at('units').insertBefore(element, place);
    before = element;
    units.get(key).show(unit, Date.parse(status.at), status.write);
  }
  for (const [key, unit] of units) {
    if (!seen.has(key)) {
      unit.element.remove();
      units.delete(key);
    }
  }
  const nothing = at('nothing');
  if (status.units.length === 0 && !nothing) {
    at('units').append(make('p', { id: 'nothing' }, 'This process shows no unit.'));
  } else if (status.units.length > 0) {
    nothing?.remove();
  }
  say(at('may'), status.write ? 'You can steer units on this page: each button says first what it would do.'
    : 'This page only reads: start the command with --ui-write, or with a key, to steer units here.');
  const wrong = status.health.checks.filter((c) => !c.ok).map((c) => `${c.name}: ${c.why}`);
  if (status.error !== null) wrong.push(`the units cannot be found: ${status.error}`);
  say(at('connection'), `As of ${clock(status.at)} UTC`);
  at('wrong').hidden = wrong.length === 0;
  say(at('wrong'), shown(wrong.join('; ')));
}

// titleOf names the worst, so that the tab of a browser shows it.
function titleOf(status) {
  const failures = status.units.flatMap((u) => u.findings).filter((f) => f.grade === 'failure').length;
  const unknown = status.units.some((u) => u.error !== null);
  const mark = unknown ? '? ' : failures > 0 ? `(${failures}) ` : '';
  return shown(`${mark}${status.units.map((u) => u.name).join(', ') || status.name} – changefeed`);
}

function showEvent(event) {
  if (event.run === last.run && event.id <= last.id) return;
  last = event;
  at('quiet')?.remove();
  const facts = event.facts.filter((f) => f.value !== '').flatMap((f) => [` ${f.name} `, isolated(f.value)]);
  at('events').prepend(make('li', { class: event.level }, `${clock(event.at)} `,
    make('span', { class: 'level' }, event.level === 'INFO' ? '' : `${event.level} `), isolated(event.unit), ': ',
    isolated(event.text), make('span', { class: 'quiet' }, ...facts)));
  while (at('events').children.length > mostEvents) at('events').lastChild.remove();
}

// showLost says that the page is old, and for how long.
function showLost(isLost) {
  if (isLost === (lostSince !== null)) return;
  lostSince = isLost ? new Date() : null;
  at('units').classList.toggle('stale', isLost);
  at('lost').hidden = !isLost;
  say(at('lost'), isLost ? `Connection lost at ${clock(lostSince)} UTC: what you see is from before. Trying again…` : '');
  if (isLost) say(at('connection'), 'Not connected');
}

function connect() {
  const stream = new EventSource('events');
  stream.addEventListener('open', () => {
    showLost(false);
    if (units.size === 0) say(at('connection'), 'Connected');
  });
  stream.addEventListener('status', (e) => showStatus(JSON.parse(e.data)));
  stream.addEventListener('event', (e) => showEvent(JSON.parse(e.data)));
  stream.addEventListener('error', () => {
    showLost(true);
    // A refused stream does not connect again by itself.
    if (stream.readyState === EventSource.CLOSED) setTimeout(connect, 2000);
  });
}

offerTheme(at('theme'));
connect();
