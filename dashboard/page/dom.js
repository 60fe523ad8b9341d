// Elements. Everything from elsewhere becomes text, never markup.

// make makes an element with attributes and children. Attributes of null are left out; functions are listeners.
export function make(tag, attributes = {}, ...children) {
  const svg = ['svg', 'rect', 'polyline', 'title'].includes(tag);
  const element = svg ? document.createElementNS('http://www.w3.org/2000/svg', tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === 'function') element.addEventListener(name, value);
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

// say changes the text of an element, if the text is another one: a screen reader repeats what changes.
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// isolated is a text of unknown direction, which must not turn the text around it.
export function isolated(text) {
  return make('bdi', {}, shown(text));
}

// shown makes characters visible that would change how the text beside them looks.
export function shown(text) {
  return String(text).replace(/(?![\t\n])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0]/gu,
    (c) => [...Array(c.length).keys()].map((i) => '\\u' + c.charCodeAt(i).toString(16).padStart(4, '0')).join(''));
}

// table makes a table in a region that scrolls, also by keyboard.
export function table(label, columns, rows, attributes = {}) {
  const head = make('tr', {}, ...columns.map((c) => make('th', { scope: 'col', class: c.kind ?? null }, c.title)));
  const body = make('tbody', {}, ...rows);
  const region = make('div', { class: 'scroll', role: 'region', tabindex: 0, 'aria-label': label },
    make('table', attributes, make('thead', {}, head), body));
  return { region, body };
}
