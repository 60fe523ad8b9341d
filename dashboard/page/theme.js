import { say } from './dom.js';

// The theme is that of the system until somebody chooses another one. The choice is kept as long as the tab is open.

const system = matchMedia('(prefers-color-scheme: dark)');
const kept = 'theme';

function show(button) {
  const chosen = sessionStorage.getItem(kept);
  const isDark = chosen === null ? system.matches : chosen === 'dark';
  document.documentElement.dataset.theme = isDark ? 'dark' : 'light';
  say(button, isDark ? 'Light' : 'Dark');
  button.setAttribute('aria-label', isDark ? 'Light colours' : 'Dark colours');
}

// offer makes a button change the theme.
export function offerTheme(button) {
  system.addEventListener('change', () => show(button));
  button.addEventListener('click', () => {
    sessionStorage.setItem(kept, document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark');
    show(button);
  });
  show(button);
}
