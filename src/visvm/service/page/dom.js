// Small helpers: build elements, speak to screen readers, show errors and dialogs.

/**
 * @typedef {string|number|boolean|null|undefined|((event: Event) => void)} Prop
 * @typedef {Node|string|null} Child
 * @typedef {{text: string, value: string, kind?: string, testid?: string}} Action
 */

/**
 * The element with this id, which must be of this kind.
 * @template {HTMLElement} T @param {string} id @param {new () => T} kind @returns {T}
 */
export function find(id, kind) {
  const found = document.getElementById(id);
  if (!(found instanceof kind)) throw new TypeError(`The page has no ${kind.name} ${id}.`);
  return found;
}

/** @param {string} id */
export const $ = (id) => find(id, HTMLElement);
/** @param {string} id */
export const field = (id) => find(id, HTMLInputElement);

/** Names in the order people expect: 2 before 10. */
export const inOrder = new Intl.Collator(undefined, { numeric: true }).compare;

/** @param {unknown} error */
export const messageOf = (error) => (error instanceof Error ? error.message : String(error));

/**
 * @template {Element} T
 * @param {T} element @param {Record<string, Prop>} props @param {Child[]} children
 */
function fill(element, props, children) {
  for (const [key, value] of Object.entries(props)) {
    if (value === false || value == null) continue;
    if (typeof value === 'function') element.addEventListener(key.slice(2), value);
    else {
      const text = value === true ? '' : String(value);
      element.setAttribute(key === 'testid' ? 'data-testid' : key, text);
    }
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

/**
 * An HTML element with attributes, listeners (onclick …) and children; text is always plain text.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag @param {Record<string, Prop>} [props] @param {Child[]} children
 */
export const h = (tag, props = {}, ...children) =>
  fill(document.createElement(tag), props, children);

/**
 * The same for SVG.
 * @template {keyof SVGElementTagNameMap} K
 * @param {K} tag @param {Record<string, Prop>} [props] @param {Child[]} children
 */
export const svg = (tag, props = {}, ...children) =>
  fill(document.createElementNS('http://www.w3.org/2000/svg', tag), props, children);

/** Whether nothing has the focus. */
export const focusIsLost = () => document.activeElement === document.body;

let hiding = 0;
/**
 * Speak to screen readers; with `show` also as a short message at the foot of the window.
 * @param {string} text
 */
export function announce(text, show = false) {
  const status = $('status');
  clearTimeout(hiding);
  status.className = show ? 'toast' : 'visually-hidden';
  status.textContent = text;
  if (show) hiding = setTimeout(() => { status.className = 'visually-hidden'; }, 7000);
}

/** One error line that is moved to where the error happened. */
export class ErrorLine {
  /** @type {HTMLInputElement|null} */
  input = null;

  /** @param {string} id also its data-testid */
  constructor(id) {
    this.line = h('p', { class: 'error', role: 'alert', id, testid: id });
  }

  /**
   * @param {Element} place @param {string} text
   * @param {HTMLInputElement} [input] the field at fault, which gets the focus
   */
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
 * Show a modal dialog; resolves with the value of the pressed action, or null if it was left.
 * @param {{title: string, body: Child[], actions: Action[], testid?: string,
 *   cancelTestid?: string}} options
 * @returns {Promise<string|null>}
 */
export function openDialog({ title, body, actions, testid, cancelTestid }) {
  const close = () => dialog.close();
  const cancel = h('button', { type: 'button', testid: cancelTestid, onclick: close }, 'Cancel');
  const buttons = actions.map(({ text, value, kind, testid: id }) =>
    h('button', { type: 'submit', class: kind, value, testid: id }, text));
  const form = h('form', {}, h('h2', { id: 'dialog-title' }, title), ...body,
    h('div', { class: 'dialog-actions' }, ...buttons, cancel));
  const dialog = h('dialog', { 'aria-labelledby': 'dialog-title', testid }, form);
  /** @type {string|null} */
  let answer = null;
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    const pressed = event.submitter instanceof HTMLButtonElement ? event.submitter : buttons[0];
    answer = pressed.value;
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

/**
 * One stop for the Tab key in a row of buttons; arrow keys, Home and End move among them.
 * @param {HTMLElement} container @param {string} selector
 * @param {(item: HTMLElement) => void} onMove
 */
export function roving(container, selector, onMove = () => {}) {
  container.addEventListener('keydown', (event) => {
    /** @type {NodeListOf<HTMLElement>} */
    const found = container.querySelectorAll(selector);
    const items = [...found];
    const now = items.findIndex((item) => item === document.activeElement);
    const places = new Map([['Home', 0], ['End', -1], ['ArrowRight', now + 1],
      ['ArrowDown', now + 1], ['ArrowLeft', now - 1], ['ArrowUp', now - 1]]);
    const next = places.get(event.key);
    if (now < 0 || next === undefined) return;
    event.preventDefault();
    const item = items.at(next % items.length);
    for (const other of items) other.tabIndex = other === item ? 0 : -1;
    item?.focus();
    if (item) onMove(item);
  });
}
