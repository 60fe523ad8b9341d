import { State } from './api.js';
import { copyAs } from './copy.js';
import { make } from './dom.js';
import { Editor } from './editor.js';
import { Results, rowPanel } from './rows.js';

// The documents of a container, all of them or those of a query.

// Panels shows one row or document at a time below the results.
class Panels {
  constructor(context) {
    this.context = context;
    this.state = new State();
    this.place = make('div', {});
    this.element = make('div', {}, this.state.element, this.place);
  }

  // show replaces what is shown, unless that has changes that are not saved.
  show(panel, back) {
    if (this.editor?.isChanged()) {
      this.editor.close();
      this.editor.focus();
      return;
    }
    this.editor = panel instanceof Editor ? panel : null;
    this.back = back;
    this.state.clear();
    this.place.replaceChildren(panel.element);
    panel.focus();
  }

  close(text) {
    this.editor = null;
    this.place.replaceChildren();
    if (text) this.state.say(text, 'good');
    this.back?.();
  }

  edit(document, back, written) {
    this.show(new Editor({ ...this.context, close: (text) => this.close(text), written }, document), back);
  }
}

// openRow opens a row of results: as a document if it is a whole one.
function openRow(panels, results, item) {
  const back = () => results.focus();
  if (item.id === undefined) return panels.show(rowPanel(item, () => panels.close('')), back);
  panels.edit({ id: item.id, key: item.partition }, back, (now) => {
    if (now.isGone) results.items[item.key] = { isGone: true };
    else if (now.id === item.id) Object.assign(item, { text: now.text, etag: now.etag });
    results.rows.rows.clear(); // makes them anew
    for (const row of results.rows.body.querySelectorAll('tr:not(.space)')) row.remove();
    results.rows.draw();
  });
}

// documentsView shows all documents, or those of a partition key.
export function documentsView(context) {
  const { where, signal, canWrite, paths } = context;
  const key = make('input', { type: 'text', size: 24, placeholder: 'all' });
  const results = new Results('Documents', where, signal, (item) => openRow(panels, results, item));
  const panels = new Panels(context);
  const question = () => ({ sql: 'SELECT * FROM c', key: key.value.trim() });
  const copy = copyAs(where, signal, () => ({ view: 'query', ...question() }));
  const show = (e) => {
    e?.preventDefault();
    results.show(question());
    copy.again();
  };
  const fresh = make('button', { type: 'button', click: () => panels.edit({ text: templateOf(paths) },
    () => fresh.focus(), () => show()) }, 'New document');
  const form = make('form', { submit: show }, make('div', { class: 'fields' },
    make('label', {}, `Partition key (${paths.join(', ')})`, key), make('button', { type: 'submit' }, 'Show'),
    canWrite ? fresh : ''));
  show();
  return [form, results.element, panels.element, copy.element];
}

// templateOf is a new document with the members that it must have.
function templateOf(paths) {
  const members = ['id', ...paths.map((p) => p.slice(1).split('/')[0])];
  return `{\n${[...new Set(members)].map((m) => `  ${JSON.stringify(m)}: ""`).join(',\n')}\n}`;
}

// queryView runs a query.
export function queryView(context) {
  const { where, signal } = context;
  const sql = make('textarea', { rows: 4, spellcheck: 'false', autocapitalize: 'off', keydown: (e) => {
    if (e.key === 'Enter' && (e.ctrlKey || e.metaKey)) run(e);
  } });
  sql.value = 'SELECT * FROM c';
  const parameters = make('textarea', { rows: 2, spellcheck: 'false', placeholder: 'city=Oslo' });
  const key = make('input', { type: 'text', size: 24, placeholder: 'all' });
  const results = new Results('Rows', where, signal, (item) => openRow(panels, results, item));
  const panels = new Panels(context);
  const question = () => ({ sql: sql.value, key: key.value.trim(),
    param: parameters.value.split('\n').map((p) => p.trim()).filter(Boolean) });
  const copy = copyAs(where, signal, () => ({ view: 'query', ...question() }));
  const run = (e) => {
    e.preventDefault();
    results.show(question(), { details: true });
    copy.again();
  };
  const form = make('form', { submit: run },
    make('label', { class: 'whole' }, 'SQL (Ctrl+Enter runs it)', sql),
    make('label', { class: 'whole' }, 'Parameters of the query, one a line: name=value', parameters),
    make('div', { class: 'fields' }, make('label', {}, 'Only this partition key', key),
      make('button', { type: 'submit', class: 'main' }, 'Run'),
      make('button', { type: 'button', click: () => results.stop() }, 'Stop')));
  return [form, results.element, panels.element, copy.element];
}
