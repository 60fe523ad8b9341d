import { addressOf, State } from './api.js';
import { make, say, shown, table } from './dom.js';
import { count, rate, things } from './words.js';

// Documents from a file that somebody drops or chooses.

export function importView({ where, signal, changed }) {
  const state = new State();
  const chosen = make('input', { type: 'file', accept: '.json,.jsonl,.ndjson,application/json,application/x-ndjson',
    change: () => take(chosen.files[0]) });
  const progress = make('progress', { max: 1, value: 0, hidden: true, 'aria-label': 'Import' });
  const result = make('div', {});
  const start = make('button', { type: 'button', class: 'main', disabled: true, click: () => send() }, 'Import');
  const end = make('button', { type: 'button', hidden: true, click: () => request?.abort() }, 'Stop');
  let [file, request] = [null, null];

  const take = (one) => {
    if (!one || request) return;
    file = one;
    start.disabled = false;
    result.replaceChildren();
    state.say(`${file.name} has ${things(file.size, 'byte')}. Documents with the same id and partition key are replaced.`);
    start.focus();
  };

  const over = (text, kind) => {
    request = null;
    progress.hidden = true;
    end.hidden = true;
    start.disabled = false;
    state.say(text, kind);
  };

  const send = () => {
    request = new XMLHttpRequest(); // fetch does not tell how much was sent
    request.upload.addEventListener('progress', (e) => { progress.value = e.total ? e.loaded / e.total : 0; });
    request.addEventListener('abort', () => over('Stopped: documents before that were written.', 'wrong'));
    request.addEventListener('error', () => over('Connection lost: nobody knows what was written. Import the file again: the same documents are replaced.', 'lost'));
    request.addEventListener('load', () => {
      let answer;
      try {
        answer = JSON.parse(request.responseText);
      } catch {
        answer = { error: `the answer has the status ${request.status}` };
      }
      if (request.status !== 200) return over(answer.error, 'wrong');
      over(`Written: ${things(answer.written, 'document')}, for ${rate(answer.charge)} RU. Refused: ${count(answer.refused)}.` +
        (answer.error ? ` The rest was not read: ${answer.error}` : ''), answer.refused || answer.error ? 'wrong' : 'good');
      showRefused(answer);
      changed();
    });
    request.open('POST', addressOf('import', where));
    request.setRequestHeader('Content-Type', 'application/x-ndjson');
    request.send(file);
    progress.hidden = false;
    progress.value = 0;
    end.hidden = false;
    start.disabled = true;
    result.replaceChildren();
    state.say(`Importing ${file.name}…`, 'loading');
  };

  const showRefused = (answer) => {
    if (answer.first_refused.length === 0) return;
    const rows = answer.first_refused.sort((a, b) => a.line - b.line).map((r) => make('tr', {},
      make('td', { class: 'number' }, count(r.line)), make('td', { class: 'note' }, make('bdi', {}, shown(r.error)))));
    result.replaceChildren(make('h3', {}, answer.refused > rows.length ? `The first ${rows.length} that were refused` : 'Refused'),
      table('Refused', [{ title: 'Line', kind: 'number' }, { title: 'Why', kind: 'note' }], rows).region);
  };

  const drop = make('div', { class: 'drop',
    dragover: (e) => { e.preventDefault(); drop.classList.add('over'); },
    dragleave: () => drop.classList.remove('over'),
    drop: (e) => {
      e.preventDefault();
      drop.classList.remove('over');
      take(e.dataTransfer.files[0]);
    } },
  make('label', {}, 'Drop a file here, or choose one: ', chosen),
  make('p', { class: 'quiet' }, 'One JSON document a line (NDJSON), or one JSON array of documents.'));
  signal.addEventListener('abort', () => request?.abort());
  say(result, '');
  return [drop, make('div', { class: 'buttons' }, start, end, progress), state.element, result];
}
