import { ask, State } from './api.js';
import { documentsView, queryView } from './documents.js';
import { isolated, make, say, shown, table } from './dom.js';
import { importView } from './importer.js';
import { feedView } from './live.js';
import { partitionsView } from './partitions.js';
import { offerTheme } from './theme.js';
import { Windowed } from './window.js';
import { count, seconds, things } from './words.js';

// The explorer: which container and which view of it is in the address after #, so that it can be kept and gone back to.

const at = (id) => document.getElementById(id);
const main = at('store');
let canWrite = false;
let leave = new AbortController();

const containerColumns = [{ title: 'Container' }, { title: 'Partition key' }, { title: 'Partitions', kind: 'number wide' },
  { title: 'Documents', kind: 'number' }, { title: 'Expire after', kind: 'wide' }, { title: 'Versions kept', kind: 'wide' },
  { title: 'RU/s', kind: 'number wide' }];

const views = [
  { name: 'documents', title: 'Documents', show: documentsView },
  { name: 'query', title: 'Query', show: queryView },
  { name: 'feed', title: 'Feed', show: feedView },
  { name: 'partitions', title: 'Partitions', show: partitionsView },
  { name: 'import', title: 'Import', show: importView, writes: true },
  { name: 'delete', title: 'Delete', show: deleteView, writes: true },
];

// linkTo is the address of a view.
function linkTo(place) {
  return `#${new URLSearchParams(Object.entries(place).filter(([, value]) => value))}`;
}

async function route() {
  leave.abort();
  leave = new AbortController();
  const { signal } = leave;
  const place = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  try {
    if (place.container) await showContainer(place, signal);
    else await showContainers(signal);
  } catch (error) {
    if (!signal.aborted && error.status === undefined) throw error;
  }
}

// showContainers lists the containers of all stores and accounts.
async function showContainers(signal) {
  document.title = 'Documents – changefeed';
  const state = new State();
  const title = make('h2', { tabindex: -1 }, 'Containers');
  main.replaceChildren(title, state.element);
  const { places } = await state.read(signal, () => ask('GET', 'containers', {}, { signal }));
  for (const place of places) main.append(...placeParts(place, places.length, signal));
}

// placeParts are the parts of the page about one store or account.
function placeParts(place, places, signal) {
  const parts = [make('h3', {}, isolated(place.in))];
  if (place.error !== null) parts.push(make('p', { class: 'state wrong' }, isolated(place.error)));
  const { region, body } = table(`Containers of ${place.in}`, containerColumns, [], { class: 'windowed' });
  const rows = new Windowed(region, body, containerColumns.length, (c, row) => row ?? make('tr', {},
    make('td', {}, make('a', { href: linkTo({ in: places > 1 ? place.in : '', container: c.name, view: 'documents' }) }, shown(c.name))),
    make('td', {}, isolated(c.partition_key.join(', '))), make('td', { class: 'number wide' }, count(c.partitions)),
    make('td', { class: 'number' }, count(c.documents)), make('td', { class: 'wide' }, expiryOf(c)),
    make('td', { class: 'wide' }, c.retention_seconds === null ? '' : seconds(c.retention_seconds)),
    make('td', { class: 'number wide' }, c.throughput === null ? '' : count(c.throughput))));
  if (place.containers.length > 0) {
    parts.push(region);
    rows.show(place.containers.map((c) => ({ key: c.name, ...c })));
  } else if (place.error === null) parts.push(make('p', { class: 'state' }, 'There is no container yet.'));
  if (canWrite) parts.push(createForm(place, places, signal));
  return parts;
}

function expiryOf(c) {
  if (c.ttl_seconds === null) return 'never';
  return c.ttl_seconds < 0 ? 'if a document says so' : seconds(c.ttl_seconds);
}

// createForm makes a container.
function createForm(place, places, signal) {
  const state = new State();
  const name = make('input', { type: 'text', required: true, placeholder: 'database/container' });
  const key = make('input', { type: 'text', required: true, value: '/id' });
  const partitions = make('input', { type: 'number', min: 1, value: 1 });
  const retention = make('input', { type: 'number', min: 0, placeholder: 'none' });
  const ttl = make('input', { type: 'number', min: -1, placeholder: 'never' });
  const create = async (e) => {
    e.preventDefault();
    const body = { partition_key: key.value.split(',').map((p) => p.trim()), partitions: Number(partitions.value) };
    if (retention.value) body.retention_seconds = 60 * Number(retention.value);
    if (ttl.value) body.ttl_seconds = Number(ttl.value);
    try {
      const made = await state.write(() => ask('POST', 'containers', { in: place.in, container: name.value.trim() },
        { body: JSON.stringify(body), signal }));
      location.hash = linkTo({ in: places > 1 ? place.in : '', container: made.name, view: 'documents' });
    } catch { // the state says why
    }
  };
  return make('details', {}, make('summary', {}, 'New container'), make('form', { submit: create },
    make('div', { class: 'fields' }, make('label', {}, 'Name', name), make('label', {}, 'Partition key, as /city or /a,/b', key),
      make('label', {}, 'Partitions', partitions), make('label', {}, 'Minutes that versions are kept', retention),
      make('label', {}, 'Seconds after which documents expire', ttl), make('button', { type: 'submit', class: 'main' }, 'Create'))),
  state.element);
}

// showContainer shows a view of a container.
async function showContainer(place, signal) {
  const view = views.find((v) => v.name === place.view && (canWrite || !v.writes)) ?? views[0];
  document.title = shown(`${place.container} – ${view.title} – changefeed`);
  const state = new State();
  const title = make('h2', { tabindex: -1 }, isolated(place.container));
  const links = make('nav', { id: 'views', 'aria-label': 'Views of the container' }, ...views.filter((v) => canWrite || !v.writes)
    .map((v) => make('a', { href: linkTo({ ...place, view: v.name }), 'aria-current': v === view ? 'page' : null }, v.title)));
  const facts = make('p', { class: 'facts' });
  main.replaceChildren(make('p', {}, make('a', { href: '#' }, 'All containers')), title, links, facts, state.element);
  const where = { in: place.in ?? '', container: place.container };
  const describe = (container) => say(facts, shown(`Partition key ${container.partition_key.join(', ')}, ${container.documents === null ? ''
    : `${things(container.documents, 'document')}, `}${things(container.physical_partitions.length, 'partition')}, expire: ${
    expiryOf(container)}${container.retention_seconds === null ? '' : `, versions are kept for ${seconds(container.retention_seconds)}`}`));
  const container = await state.read(signal, () => ask('GET', 'container', where, { signal }));
  describe(container);
  // what a view has changed is told at once; if that fails, the facts stay as they were
  const changed = () => ask('GET', 'container', where, { signal }).then(describe, () => {});
  main.append(...view.show({
    changed,
    where, signal, canWrite, paths: container.partition_key, retention: container.retention_seconds,
    container: [container.name, container.unit_container],
  }));
}

// deleteView deletes the container, if its name is typed.
function deleteView({ where, signal }) {
  const state = new State();
  const name = make('input', { type: 'text', autocomplete: 'off', size: 30,
    input: () => { button.disabled = name.value !== where.container; } });
  const button = make('button', { type: 'submit', class: 'grave', disabled: true }, 'Delete for good');
  const remove = async (e) => {
    e.preventDefault();
    if (button.disabled) return;
    try {
      await state.write(() => ask('DELETE', 'containers', { ...where, confirm: name.value }, { signal }));
      location.hash = '';
    } catch { // the state says why
    }
  };
  return [make('p', {}, 'The container is deleted with its documents and its change feed. Type its name to delete it.'),
    make('form', { submit: remove }, make('div', { class: 'fields' }, make('label', {}, 'Name of the container', name), button)),
    state.element];
}

// begin finds out what may be done here, before anything is shown.
async function begin() {
  offerTheme(at('theme'));
  at('skip').addEventListener('click', (e) => { // an address after # is a view here
    e.preventDefault();
    main.focus();
  });
  const state = new State();
  main.append(state.element);
  const status = await state.read(leave.signal, async () => {
    try {
      return await (await fetch(`${location.origin}/status`)).json();
    } catch (error) {
      throw Object.assign(error, { status: 0 });
    }
  });
  canWrite = status.write;
  say(at('process'), shown([status.name, status.program].filter(Boolean).join(' · ')));
  say(at('rights'), canWrite ? 'This page can change documents and containers.'
    : 'This page only reads, because its process was started without --ui-write and without a key in $CHANGEFEED_UI_KEY.');
  if (!status.store) {
    state.say('This process has no store or account that could be shown.');
    return;
  }
  addEventListener('hashchange', async () => {
    await route();
    main.querySelector('h2')?.focus();
  });
  await route();
}

begin();
