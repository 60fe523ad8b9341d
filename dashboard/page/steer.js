import { isolated, make, say, shown } from './dom.js';
import { range } from './words.js';

// What people do to a unit: a dialog that says what would be done, asks, and says what was done.

// words are those of each action: its button, what the dialog is about, and what it warns of.
const words = {
  pause: { button: 'Pause', about: 'Pause', note: 'No instance delivers these changes until you resume. A batch in a ' +
    'handler is finished first.' },
  resume: { button: 'Resume', about: 'Resume', note: 'The instances go on after the last change that was handled.' },
  reset: { button: 'Reset', about: 'Reset', note: 'Changes after an earlier position are delivered again; changes before ' +
    'a later one are skipped. Failed attempts and held keys are forgotten; dead letters stay.' },
  skip: { button: 'Skip', about: 'Skip what fails of', note: 'The handler does not get these changes any more.' },
  retry: { button: 'Retry', about: 'Retry a dead letter of', note: 'The instance that has the key calls the handler once.' },
  release: { button: 'Release', about: 'Release a key of', note: '' },
  drop: { button: 'Remove', about: 'Remove a dead letter of', note: '' },
};

// buttonFor makes the button that opens the dialog of an action.
export function buttonFor(action, unit, more = {}, title = words[action].button) {
  return make('button', { type: 'button', class: 'act', click: (e) => new Dialog(action, unit, more, e.target).open() },
    action === 'pause' || action === 'resume' || action === 'release' ? title : `${title}…`);
}

class Dialog {
  constructor(action, unit, more, opener) {
    Object.assign(this, { action, unit, more, opener, words: words[action], controller: new AbortController() });
    const id = `d${Math.random().toString(36).slice(2)}`;
    const of = more.range ? ` lease ${range(more.range)} of` : '';
    this.title = make('h2', { id, tabindex: -1 }, `${this.words.about}${of} `, isolated(unit.name));
    this.reason = make('input', { type: 'text', maxlength: 200, autocomplete: 'off' });
    this.said = make('ul', { class: 'lines', 'aria-label': 'What would be done' });
    this.state = make('p', { role: 'status' });
    this.act = make('button', { type: 'submit', disabled: true }, this.words.button);
    this.end = make('button', { type: 'button', click: () => this.element.close() }, 'Cancel');
    const fields = action === 'reset' ? this.resetFields() : [];
    this.element = make('dialog', { 'aria-labelledby': id, close: () => this.close() },
      make('form', { submit: (e) => { e.preventDefault(); this.carryOut(); } }, this.title,
        this.words.note ? make('p', { class: 'quiet' }, this.words.note) : null, ...fields,
        make('label', {}, 'Reason, for the history ', this.reason), this.said, this.state,
        make('p', { class: 'buttons' }, this.act, this.end)));
  }

  // resetFields are where a reset continues, and its key if it is about one.
  resetFields() {
    const look = () => { // once nobody has typed for half a second
      this.act.disabled = true;
      clearTimeout(this.soon);
      this.soon = setTimeout(() => this.preview(), 500);
    };
    this.to = make('input', { type: 'text', list: 'starts', autocomplete: 'off', required: true, input: look });
    this.key = make('input', { type: 'text', autocomplete: 'off', input: look, placeholder: '["oslo"]' });
    const starts = make('datalist', { id: 'starts' }, ...['beginning', 'now', '15m', '24h'].map((v) => make('option', { value: v })));
    return [
      make('label', {}, 'Continue at: beginning, now, how long ago such as 15m, or a time ', this.to), starts,
      this.more.range ? null : make('label', {}, 'Only the changes of this partition key (empty: all keys) ', this.key),
    ];
  }

  open() {
    document.body.append(this.element);
    this.element.showModal();
    this.title.focus();
    this.preview();
  }

  close() {
    clearTimeout(this.soon);
    this.controller.abort();
    this.element.remove();
    (this.opener.isConnected ? this.opener : this.unit.letters.firstChild).focus();
  }

  // command is what the dialog asks for.
  command(more) {
    const key = this.key?.value.trim() ? { key: this.key.value.trim() } : {};
    if (key.key) {
      try {
        key.key = JSON.parse(key.key);
      } catch { // a plain text is a key of one text
        key.key = [key.key];
      }
      if (!Array.isArray(key.key)) key.key = [key.key];
    }
    return { unit: this.unit.name, container: this.unit.container, action: this.action, reason: this.reason.value,
      ...this.to ? { to: this.to.value.trim() } : {}, ...key, ...this.more, ...more };
  }

  // preview says what would be done, and lets it be done unless that is impossible.
  async preview() {
    this.act.disabled = true;
    const round = this.round = {};
    if (this.to && this.to.value.trim() === '') {
      this.tell({});
      say(this.state, 'Say where to continue.');
      return;
    }
    say(this.state, 'Looking…');
    const answer = await this.send({ preview: true });
    if (this.round !== round) return;
    this.tell(answer);
    const isNothing = !answer.error && answer.lines.length === 0;
    say(this.state, answer.error ? shown(answer.error) : isNothing ? 'There is nothing to do.' : 'Nothing is done yet.');
    this.state.classList.toggle('failed', Boolean(answer.error));
    this.act.disabled = Boolean(answer.error) || isNothing;
    if (this.action === 'skip' && !answer.error) this.choose(answer);
  }

  // choose lets people choose which changes of a batch are skipped: the others of the batch may be good.
  choose({ changes, lines }) {
    this.changes = changes.length === 1 ? changes : [];
    if (changes.length === 1) return;
    const all = make('input', { type: 'checkbox', change: () => { for (const [, box] of boxes) box.checked = all.checked; } });
    const single = () => make('input', { type: 'checkbox', change: (e) => { all.checked &&= e.target.checked; } });
    const boxes = changes.slice(0, 20).map((c, i) => [c, single(), lines[i]]);
    this.said.replaceChildren(make('li', {}, make('label', {}, all, ` all ${changes.length} changes of the batch`)),
      ...boxes.map(([, box, line]) => make('li', {}, make('label', {}, box, isolated(line)))));
    this.said.onchange = () => {
      this.changes = all.checked ? changes : boxes.filter(([, box]) => box.checked).map(([c]) => c);
      this.act.disabled = this.changes.length === 0;
      say(this.state, `${this.changes.length} of ${changes.length} changes are chosen. Nothing is done yet.`);
    };
    this.act.disabled = true;
    say(this.state, 'Choose the changes to skip. Nothing is done yet.');
  }

  // carryOut does what the preview has shown. A field that has changed since is previewed first.
  async carryOut() {
    if (this.act.disabled) return;
    this.act.disabled = true;
    for (const field of [this.reason, this.to, this.key]) if (field) field.disabled = true;
    this.said.setAttribute('aria-label', 'What was done');
    say(this.state, 'Waiting for the instances of the unit, for up to 30 s…');
    const answer = await this.send(this.action === 'skip' ? { changes: this.changes } : {});
    this.tell(answer);
    this.state.classList.toggle('failed', Boolean(answer.error));
    say(this.state, answer.error ? shown(answer.error) : 'Done.');
    this.act.hidden = true;
    say(this.end, 'Close');
    this.end.focus();
    this.unit.acted?.(this.action);
  }

  tell(answer) {
    this.said.onchange = null;
    this.said.replaceChildren(...(answer.lines ?? []).map((l) => make('li', {}, isolated(l))));
    this.said.hidden = this.said.children.length === 0;
  }

  // send sends the command. If the dialog is closed, the dashboard withdraws what it has asked of the instances.
  async send(more) {
    try {
      const response = await fetch(`${location.origin}/steer`, { method: 'POST', signal: this.controller.signal,
        headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(this.command(more)) });
      return await response.json();
    } catch (error) {
      return { error: `no answer: ${error.message}`, lines: [] };
    }
  }
}
