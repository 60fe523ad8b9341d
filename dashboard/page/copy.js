import { ask, State } from './api.js';
import { make, say, shown } from './dom.js';

// copyAs offers what a view does now as text for other tools. Describe returns the view as the explorer asks for it.
export function copyAs(where, signal, describe) {
  const state = new State();
  const text = make('pre', { tabindex: 0, 'aria-label': 'Text to copy' });
  const languages = make('select', { change: () => choose() });
  const done = make('span', { role: 'status' });
  let copies = [];
  const choose = () => {
    say(text, shown(copies[languages.selectedIndex]?.text ?? ''));
    say(done, '');
  };
  const load = async () => {
    const before = languages.value;
    try {
      ({ copies } = await state.read(signal, () => ask('GET', 'copy', { ...where, ...describe() }, { signal })));
    } catch {
      copies = [];
    }
    languages.replaceChildren(...copies.map((c) => make('option', {}, c.language)));
    if (before) languages.value = before;
    choose();
  };
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(copies[languages.selectedIndex].text);
      say(done, 'Copied.');
    } catch { // a page that is not from this machine may not write there
      getSelection().selectAllChildren(text);
      say(done, 'Selected: press Ctrl+C.');
    }
  };
  const details = make('details', { class: 'copy', toggle: () => { if (details.open) load(); } },
    make('summary', {}, 'Copy as'), state.element, make('div', { class: 'buttons' },
      make('label', {}, 'Language ', languages), make('button', { type: 'button', click: copy }, 'Copy'), done), text);
  return { element: details, again: () => { if (details.open) load(); } };
}
