// Small helpers: build elements, tell a screen reader, show errors and dialogs.

/** @param {string} id @returns {HTMLElement} */
export const $ = (id) => document.getElementById(id);

/** Names in the order people expect: 2 before 10. */
export const inOrder = new Intl.Collator(undefined, { numeric: true }).compare;

function fill(element, props, children) {
  for (const [key, value] of Object.entries(props)) {
    if (value === false || value == null) continue;
    if (key.startsWith('on')) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key === 'testid' ? 'data-testid' : key, value === true ? '' : value);
  }
  element.append(...children.filter((child) => child != null));
  return element;
}

/** An HTML element with attributes, listeners (onclick …) and children; text is always plain text. */
export const h = (tag, props = {}, ...children) => fill(document.createElement(tag), props, children);

/** The same for SVG. */
export const svg = (tag, props = {}, ...children) =>
  fill(document.createElementNS('http://www.w3.org/2000/svg', tag), props, children);

let hiding;
/** Tell the live region; with `show` also as a short message at the foot of the window. */
export function announce(text, show = false) {
  const status = $('status');
  clearTimeout(hiding);
  status.className = show ? 'toast' : 'visually-hidden';
  status.textContent = text;
  if (show) hiding = setTimeout(() => { status.className = 'visually-hidden'; }, 7000);
}

/** One error line that is moved to where the error happened. */
export class ErrorLine {
  /** @param {string} id also its data-testid */
  constructor(id) {
    this.line = h('p', { class: 'error', role: 'alert', id, testid: id });
  }

  /** @param {Element} place @param {string} text @param {HTMLInputElement} [input] the field at fault gets the focus */
  show(place, text, input) {
    this.clear();
    place.append(this.line);
    this.line.textContent = text;
    this.line.scrollIntoView({ block: 'nearest' });
    if (!input) return;
    this.input = input;
    input.setAttribute('aria-invalid', 'true');
    input.setAttribute('aria-describedby', this.line.id);
    input.focus();
  }

  clear() {
    this.line.remove();
    this.line.textContent = '';
    this.input?.removeAttribute('aria-invalid');
    this.input?.removeAttribute('aria-describedby');
    this.input = null;
  }
}

/**
 * A modal dialog; resolves with the pressed action's value, or null when it was left.
 * @param {{title: string, body: (Node|string)[], actions: {text: string, value: string, kind?: string, testid?: string}[],
 *   testid?: string, cancelTestid?: string}} options
 * @returns {Promise<string|null>}
 */
export function openDialog({ title, body, actions, testid, cancelTestid }) {
  const cancel = h('button', { type: 'button', testid: cancelTestid, onclick: () => dialog.close() }, 'Cancel');
  const buttons = actions.map(({ text, value, kind, testid: id }) =>
    h('button', { type: 'submit', class: kind, value, testid: id }, text));
  const form = h('form', {}, h('h2', { id: 'dialog-title' }, title), ...body,
    h('div', { class: 'dialog-actions' }, ...buttons, cancel));
  const dialog = h('dialog', { 'aria-labelledby': 'dialog-title', testid }, form);
  let answer = null;
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    answer = (event.submitter ?? buttons[0]).value;
    dialog.close();
  });
  document.body.append(dialog);
  dialog.showModal();
  (form.querySelector('input') ?? cancel).focus();
  return new Promise((resolve) => {
    dialog.addEventListener('close', () => {
      dialog.remove();
      resolve(answer);
    });
  });
}

/** One stop for the Tab key in a row of buttons; arrow keys, Home and End move among them. */
export function roving(container, selector, onMove = () => {}) {
  container.addEventListener('keydown', (event) => {
    const items = [...container.querySelectorAll(selector)];
    const now = items.indexOf(document.activeElement);
    const next = { ArrowRight: now + 1, ArrowDown: now + 1, ArrowLeft: now - 1, ArrowUp: now - 1, Home: 0, End: -1 }[event.key];
    if (now < 0 || next === undefined) return;
    event.preventDefault();
    const item = items.at(next % items.length);
    for (const other of items) other.tabIndex = other === item ? 0 : -1;
    item.focus();
    onMove(item);
  });
}
