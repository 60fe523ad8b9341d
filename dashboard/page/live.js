import { addressOf, State } from './api.js';
import { copyAs } from './copy.js';
import { isolated, make, say, shown } from './dom.js';
import { differenceOf } from './editor.js';
import { pretty } from './json.js';
import { clock, things } from './words.js';

// The feed of a container while it comes, with the difference to the version before.

const mostChanges = 200; // that are shown
const mostSeen = 2000; // documents whose last version is kept, to show a difference
const mostSeenText = 20e6; // characters of them

// Seen keeps the last versions of documents, the oldest of which go.
class Seen {
  constructor() {
    this.texts = new Map();
    this.size = 0;
  }

  // swap returns the version before, and keeps a new one.
  swap(change) {
    const key = `${change.key} ${change.id}`;
    const before = this.texts.get(key) ?? '';
    this.texts.delete(key);
    this.size -= before.length;
    if (change.op !== 'delete') {
      this.texts.set(key, change.document);
      this.size += change.document.length;
    }
    for (const [old, text] of this.texts) {
      if (this.texts.size <= mostSeen && this.size <= mostSeenText) break;
      this.texts.delete(old);
      this.size -= text.length;
    }
    return before;
  }
}

export function feedView({ where, signal, retention }) {
  const mode = make('select', {}, make('option', { value: 'latest' }, 'latest version'),
    make('option', { value: 'all' }, 'all versions and deletes'));
  const from = make('select', {}, make('option', { value: 'now' }, 'now'), make('option', { value: 'beginning' }, 'beginning'));
  const key = make('input', { type: 'text', size: 24, placeholder: 'all' });
  const state = new State();
  const facts = make('p', { class: 'facts' });
  const list = make('ol', { class: 'feed' });
  const region = make('div', { class: 'scroll tall', role: 'log', 'aria-label': 'Changes', tabindex: 0, hidden: true }, list);
  const describe = () => ({ mode: mode.value, from: from.value, key: key.value.trim() });
  const copy = copyAs(where, signal, () => ({ view: 'feed', ...describe() }));
  const button = make('button', { type: 'submit', class: 'main' }, 'Follow');
  let [stream, seen, total, waiting, last] = [null, new Seen(), 0, [], ''];

  const draw = () => {
    const fresh = waiting.slice(-mostChanges).reverse().map(changeRow);
    waiting = [];
    list.prepend(...fresh);
    while (list.children.length > mostChanges) list.lastChild.remove();
    say(facts, `${things(total, 'change')}${total > mostChanges ? `; below are the last ${mostChanges}` : ''}.`);
  };

  const take = (e) => {
    const change = JSON.parse(e.data); // its documents are texts
    const name = JSON.stringify([change.lsn, change.key, change.id]);
    if (name === last) return; // again, after the connection was lost
    last = name;
    change.before = change.previous || seen.swap(change);
    if (change.previous) seen.swap(change);
    total++;
    if (waiting.push(change) === 1) requestAnimationFrame(draw);
    if (waiting.length > 2 * mostChanges) waiting.splice(0, mostChanges);
    state.say(`Following since ${clock(since)} UTC.`, 'good');
  };

  let since = new Date();
  const stop = (text) => {
    stream?.close();
    stream = null;
    say(button, 'Follow');
    for (const field of [mode, from, key]) field.disabled = false;
    if (text) state.say(text);
  };

  const follow = () => {
    stop('');
    [seen, total, waiting, last, since] = [new Seen(), 0, [], '', new Date()];
    list.replaceChildren();
    region.hidden = false;
    say(facts, '');
    say(button, 'Stop');
    for (const field of [mode, from, key]) field.disabled = true;
    state.say('Loading…', 'loading');
    const own = new EventSource(addressOf('feed', { ...where, ...describe() }));
    stream = own;
    own.addEventListener('open', () => state.say(`Following since ${clock(since)} UTC. Nothing has changed since.`, 'good'));
    own.addEventListener('change', take);
    own.addEventListener('problem', (e) => {
      stop('');
      state.say(JSON.parse(e.data).error, 'wrong');
    });
    own.addEventListener('error', () => {
      if (own.readyState === EventSource.CLOSED) refused(own);
      else state.say(`Connection lost at ${clock(new Date())} UTC. Trying again…${mode.value === 'all'
        ? ' Changes until then are not shown.' : ''}`, 'lost');
    });
    copy.again();
  };

  // refused says why there is no feed: a stream does not tell.
  const refused = async (own) => {
    let text = 'The feed has ended.';
    try {
      const answer = await fetch(own.url, { signal: AbortSignal.any([signal, AbortSignal.timeout(5000)]) });
      if (!answer.ok) text = (await answer.json()).error;
    } catch (error) {
      text = `Connection lost: ${error.message}`;
    }
    if (own !== stream) return;
    stop('');
    state.say(text, 'wrong');
  };

  signal.addEventListener('abort', () => stop(''));
  mode.addEventListener('change', () => {
    const isAll = mode.value === 'all';
    from.lastChild.disabled = isAll;
    if (isAll) from.value = 'now';
  });
  const form = make('form', { submit: (e) => {
    e.preventDefault();
    if (stream) stop('Stopped.');
    else follow();
  } }, make('div', { class: 'fields' }, make('label', {}, 'Mode', mode), make('label', {}, 'From', from),
    make('label', {}, 'Only this partition key', key), button));
  const note = retention === null ? make('p', { class: 'quiet' },
    'The container has no retention of its own: only some servers have its feed of all versions.') : '';
  return [form, note, state.element, facts, region, copy.element];
}

// changeRow shows a change.
function changeRow(change) {
  const words = change.expired ? 'delete (expired)' : change.op;
  const head = make('div', {}, `${clock(change.time)} `, make('span', { class: 'level' }, words), ' ', isolated(change.id), ' ',
    make('span', { class: 'quiet' }, isolated(change.key), ` lsn ${change.lsn}`, change.cut ? ', cut' : ''));
  const label = `Difference of ${change.id}`;
  if (change.before || change.op === 'delete') {
    return make('li', {}, head, change.before || change.document ? differenceOf(change.before, change.document, label) : '');
  }
  return make('li', {}, head, make('details', {}, make('summary', {}, change.op === 'create' ? 'The new document'
    : 'The document, seen here for the first time'),
  make('pre', { tabindex: 0, 'aria-label': 'Document' }, shown(pretty(change.document)))));
}
