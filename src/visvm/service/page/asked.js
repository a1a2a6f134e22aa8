// Photos that were asked about, with their answers: a reload of the page does not lose them.
import { inStore } from './database.js';
import { knownModel } from './model.js';

/**
 * @typedef {import('./verdict.js').Prediction} Prediction
 * @typedef {{file: File, prediction: Prediction|null, problem: string, revision: number,
 *   taught: string}} Entry  the answer or why there is none; the label that it was taught as
 * @typedef {{id: string, model: string, tab: string, at: number, place: number} & Entry} Kept
 */

const MOST = 60;
const HOURS = 12; // after which what closed tabs have left is removed
const TAB = 'visvm-tab';

/** This tab: a reload is the same one. */
function tab() {
  const known = sessionStorage.getItem(TAB);
  if (known) return known;
  const made = crypto.getRandomValues(new Uint32Array(2)).join('-');
  sessionStorage.setItem(TAB, made);
  return made;
}

/** @param {Entry} entry @param {number} place among those that were asked together */
export async function keepAsked(entry, place) {
  if (place >= MOST) return;
  const { name } = knownModel();
  const id = `${tab()} ${place}`;
  await inStore('asked', name, (store) =>
    store.put({ ...entry, id, model: name, tab: tab(), at: Date.now(), place }));
}

/** All of this model, whichever tab asked. @returns {Promise<Kept[]>} */
export const allAsked = () => inStore('asked', knownModel().name, () => {});

/** Of all tabs, or only of this one. @param {boolean} [all] */
export async function removeAsked(all = false) {
  const kept = await allAsked();
  await inStore('asked', knownModel().name, (store) => {
    for (const { id, tab: of } of kept) if (all || of === tab()) store.delete(id);
  });
}

/** What this tab asked before it was loaded anew. @returns {Promise<Entry[]>} */
export async function askedBefore() {
  const old = Date.now() - HOURS * 3600e3;
  const kept = await allAsked();
  await inStore('asked', knownModel().name, (store) => {
    for (const { id, tab: of, at } of kept) if (of !== tab() && at < old) store.delete(id);
  });
  return kept.filter((each) => each.tab === tab()).sort((a, b) => a.place - b.place)
    .map(({ file, prediction, problem, revision, taught }) =>
      ({ file, prediction, problem, revision, taught }));
}
