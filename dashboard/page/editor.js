import { ask, State } from './api.js';
import { copyAs } from './copy.js';
import { isolated, make, say, shown } from './dom.js';
import { around, difference, pretty } from './json.js';
import { clock, rate } from './words.js';

// One document: read, edited as text, written and deleted. The text stays what it is, so numbers keep all their digits.

// visible is JSON in lines, with each invisible character by its number, as JSON may have it too: it means the same.
const visible = (text) => shown(pretty(text));

// differenceOf shows the difference of two texts.
export function differenceOf(before, after, label) {
  const lines = around(difference(visible(before), visible(after))).map(({ op, text }) => {
    const tag = { '+': 'ins', '-': 'del' }[op] ?? 'span';
    return make(tag, {}, `${op} ${text}`);
  });
  return make('pre', { class: 'difference', tabindex: 0, 'aria-label': label }, ...lines);
}

export class Editor {
  // The document is that of id and key, or a new one with a text if there is no id.
  constructor({ where, signal, canWrite, close, written }, { id, key, text = '' }) {
    Object.assign(this, { where, signal, canWrite, written, leave: close, id, key, etag: '' });
    this.title = make('h3', { tabindex: -1 }, ...id === undefined ? ['New document'] : ['Document ', isolated(id)]);
    this.state = new State();
    this.facts = make('p', { class: 'facts' });
    this.text = make('textarea', { class: 'document', spellcheck: 'false', autocapitalize: 'off', autocomplete: 'off',
      'aria-label': 'Document as JSON', readonly: !canWrite, input: () => this.state.clear() });
    this.text.value = text;
    this.stored = id === undefined ? '' : null;
    this.conflict = make('div', {});
    this.save = make('button', { type: 'button', class: 'main', click: () => this.write() }, id === undefined ? 'Create' : 'Save');
    this.remove = make('button', { type: 'button', class: 'grave', click: () => this.askDelete() }, 'Delete');
    this.twin = make('button', { type: 'button', click: () => this.duplicate() }, 'Copy as a new document');
    this.buttons = make('div', { class: 'buttons' });
    this.copy = copyAs(where, signal, () => ({ view: 'item', id: this.id, key: this.key }));
    this.element = make('div', { class: 'detail', role: 'region', 'aria-label': 'One document', keydown: (e) => this.key_(e) },
      this.title, this.buttons, this.state.element, this.conflict, this.facts, this.text, this.copy.element);
    this.showButtons();
    if (id !== undefined) this.load();
  }

  key_(e) {
    if (e.key === 'Escape') this.close();
    if (e.key === 's' && (e.ctrlKey || e.metaKey) && this.canWrite) {
      e.preventDefault();
      this.write();
    }
  }

  focus() { this.title.focus(); }

  // isChanged reports whether there is something that is not saved.
  isChanged() { return this.canWrite && this.stored !== null && this.text.value !== this.stored; }

  showButtons() {
    const isNew = this.id === undefined;
    this.copy.element.hidden = isNew;
    say(this.save, isNew ? 'Create' : 'Save');
    this.buttons.replaceChildren(...this.canWrite ? [this.save, ...isNew ? [] : [this.remove, this.twin]] : [],
      make('button', { type: 'button', click: () => this.close() }, 'Close'));
  }

  async load() {
    this.text.disabled = true;
    try {
      const got = await this.state.read(this.signal, () => ask('GET', 'item', { ...this.where, id: this.id, key: this.key },
        { signal: this.signal }));
      this.take(got.document, got.etag);
      say(this.facts, shown(`Partition key ${got.key}, written ${clock(Number(got.at) * 1000)} UTC, etag ${got.etag}`));
    } catch { // the state says why
    }
    this.text.disabled = false;
  }

  // take shows a version as the one that is stored.
  take(text, etag) {
    this.etag = etag;
    this.stored = visible(text);
    this.text.value = this.stored;
    this.conflict.replaceChildren();
  }

  async write() {
    const text = this.text.value;
    this.save.disabled = true;
    try {
      const done = await this.state.write(() => this.id === undefined
        ? ask('POST', 'item', this.where, { body: text })
        : ask('PUT', 'item', { ...this.where, id: this.id, key: this.key }, { body: text, etag: this.etag }));
      Object.assign(this, { id: done.id, key: done.key, etag: done.etag, stored: text });
      this.title.replaceChildren('Document ', isolated(done.id));
      say(this.facts, shown(`Partition key ${done.key}, etag ${done.etag}`));
      this.conflict.replaceChildren();
      this.showButtons();
      this.state.say(`Saved for ${rate(done.charge)} RU.`, 'good');
      this.written({ id: done.id, partition: done.key, text: done.document, etag: done.etag });
    } catch (error) {
      this.showConflict(error);
    }
    this.save.disabled = false;
  }

  // showConflict shows what somebody else has written meanwhile, beside what is here.
  showConflict(error) {
    if (!error.answer?.current) return;
    const { current, etag } = error.answer;
    const parts = [make('h4', { tabindex: -1 }, 'The stored version (−) and yours (+)'),
      differenceOf(current, this.text.value, 'The stored version and yours')];
    if (this.id !== undefined) {
      parts.push(make('div', { class: 'buttons' },
        make('button', { type: 'button', click: () => { this.take(current, etag); this.state.clear(); this.focus(); } },
          'Take the stored version'),
        make('button', { type: 'button', class: 'grave', click: () => { this.etag = etag; this.write(); } },
          'Write mine over it')));
    }
    this.conflict.replaceChildren(...parts);
    this.conflict.firstChild.focus();
  }

  askDelete() {
    const yes = make('button', { type: 'button', class: 'grave', click: () => this.delete() }, 'Delete for good');
    const no = make('button', { type: 'button', click: () => { this.showButtons(); this.remove.focus(); } }, 'Keep');
    this.buttons.replaceChildren(make('span', {}, 'Delete this document?'), yes, no);
    no.focus();
  }

  async delete() {
    try {
      const done = await this.state.write(() => ask('DELETE', 'item', { ...this.where, id: this.id, key: this.key },
        { etag: this.etag }));
      this.written({ id: this.id, isGone: true });
      this.leave(`Deleted document ${this.id} for ${rate(done.charge)} RU.`);
    } catch (error) {
      this.showButtons();
      this.showConflict(error);
    }
  }

  duplicate() {
    this.id = undefined;
    this.stored = '';
    this.title.replaceChildren('New document');
    say(this.facts, '');
    this.showButtons();
    this.state.say('Give it another id, then create it.');
    this.text.focus();
  }

  // close leaves the document, if there is nothing to lose, or the second time.
  close() {
    if (!this.isChanged() || this.isWarned) return this.leave('');
    this.isWarned = true;
    this.state.say('There are changes that are not saved. Close again to drop them.', 'throttled');
    setTimeout(() => { this.isWarned = false; }, 5000);
  }
}
