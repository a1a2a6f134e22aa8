// Check: what looks wrong with photos and their names, before they are learned.
import { announce, h } from './dom.js';
import { thumbnail } from './photos.js';
import { percent, some } from './words.js';

/** @typedef {import('./kept.js').Labelled} Labelled */
/**
 * @typedef {{place: number, label: string|number}} Photo
 * @typedef {Photo & {suggested: string|number, confidence: number, score: number}} Wrong
 * @typedef {{photos: Photo[], exact: boolean}} Alike
 * @typedef {{notes: string[], sure: number, mislabelled: Wrong[], unlike: Photo[],
 *   duplicates: Alike[]}} Check
 * @typedef {(item: Labelled, label: string|null) => void} Fix  null removes the photo
 */

const SHOWN = 60;

/**
 * What is to be said of photos, the surest first: each with the label to put right, if there is one.
 * @param {Check} found @param {Labelled[]} items
 * @returns {{item: Labelled, words: string, label: string|null}[]}
 */
function doubts({ mislabelled, sure, duplicates, unlike }, items) {
  const wrong = mislabelled.filter(({ confidence }) => confidence >= sure)
    .map(({ place, label, suggested, score }) => ({ item: items[place], label: `${suggested}`,
      words: `labelled ${label}, looks like ${suggested} (${percent(score)})` }));
  const twice = duplicates.flatMap(({ photos: [first, ...others], exact }) =>
    others.map(({ place }) => ({ item: items[place], label: null,
      words: `${exact ? 'the same photo as' : 'nearly the same photo as'} `
        + `${items[first.place].file.name} (${first.label})` })));
  const odd = unlike.map(({ place, label }) => ({ item: items[place], label: null,
    words: `labelled ${label}, unlike all others` }));
  return [...wrong, ...twice, ...odd];
}

/**
 * The card that shows it, with a button to put each photo right.
 * @param {Check} found @param {Labelled[]} items as they were sent @param {Fix} fix
 */
export function checkCard(found, items, fix) {
  const close = h('button',
    { type: 'button', class: 'quiet', onclick: () => card.remove() }, 'Close');
  const all = doubts(found, items);
  const rows = all.slice(0, SHOWN).map(({ item, words, label }) => {
    const settle = (/** @type {string|null} */ to) => () => {
      fix(item, to);
      row.remove();
      if (!list.children.length) card.remove();
    };
    const tile = thumbnail(item.file, h('span', {}));
    const row = h('li', { class: 'doubt', testid: 'doubt' }, h('ul', { class: 'one' }, tile),
      h('p', {}, h('b', {}, item.file.name), ` ${words}`),
      h('div', { class: 'row' },
        label === null ? null : h('button', { type: 'button', testid: 'doubt-label',
          onclick: settle(label) }, `Call it ${label}`),
        h('button', { type: 'button', class: 'quiet', testid: 'doubt-remove',
          onclick: settle(null) }, 'Remove')));
    return row;
  });
  const list = h('ul', { class: 'doubts' }, ...rows);
  const notes = found.notes.length ? found.notes : ['Nothing looks wrong.'];
  const hidden = all.slice(SHOWN).map(({ item }) => item.file.name);
  const card = h('div', { class: 'card result checked', tabindex: -1, testid: 'checked' },
    h('h3', {}, 'Checked'), h('ul', { class: 'small' }, ...notes.map((note) => h('li', {}, note))),
    list, hidden.length ? h('p', { class: 'muted small' }, some(hidden, 10)) : null,
    h('div', { class: 'row' }, close));
  announce(`Checked. ${notes.join(' ')}`);
  return card;
}
