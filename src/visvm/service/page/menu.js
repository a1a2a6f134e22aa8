// A button that opens a menu of actions.
import { h, roving } from './dom.js';

/** @typedef {{text: string, testid?: string, grave?: boolean, run: () => void}} Choice */

/** @type {(() => void)|null} */
let closeOpen = null;

/** @param {string} name of a symbol in the page */
export function icon(name) {
  const drawn = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  const use = document.createElementNS('http://www.w3.org/2000/svg', 'use');
  drawn.setAttribute('class', 'icon');
  drawn.setAttribute('aria-hidden', 'true');
  use.setAttribute('href', `#i-${name}`);
  drawn.append(use);
  return drawn;
}

/**
 * @param {string} name for screen readers @param {string} testid
 * @param {() => Choice[]} choices asked when it opens
 */
export function menuButton(name, testid, choices) {
  const button = h('button', { type: 'button', class: 'icon-button', testid, 'aria-label': name,
    'aria-haspopup': 'menu', 'aria-expanded': 'false' }, icon('more'));
  const place = h('div', { class: 'menu-place' }, button);
  /** @type {HTMLElement|null} */
  let menu = null;
  const close = () => {
    menu?.remove();
    menu = null;
    closeOpen = null;
    button.setAttribute('aria-expanded', 'false');
  };
  const open = () => {
    closeOpen?.();
    const items = choices().map(({ text, testid: id, grave, run }, i) => h('button', {
      type: 'button', role: 'menuitem', testid: id, class: grave && 'grave', tabindex: i ? -1 : 0,
      onclick: () => {
        close();
        button.focus();
        run();
      } }, text));
    menu = h('div', { class: 'menu', role: 'menu', 'aria-label': name }, ...items);
    roving(menu, 'button');
    place.append(menu);
    button.setAttribute('aria-expanded', 'true');
    closeOpen = close;
    items[0]?.focus();
    menu.scrollIntoView({ block: 'nearest' });
  };
  button.addEventListener('click', () => (menu ? close() : open()));
  place.addEventListener('keydown', (event) => {
    if (event.key !== 'Escape' || !menu) return;
    event.stopPropagation();
    close();
    button.focus();
  });
  place.addEventListener('focusout', ({ relatedTarget }) => {
    if (menu && relatedTarget instanceof Node && !place.contains(relatedTarget)) close();
  });
  return { place, button };
}

addEventListener('pointerdown', ({ target }) => {
  if (closeOpen && target instanceof Element && !target.closest('.menu-place')) closeOpen();
});
