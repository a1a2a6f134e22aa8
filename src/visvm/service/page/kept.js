// Test photos that stay in this browser (IndexedDB), by model and class.
import { inStore } from './database.js';
import { isKnown, knownModel, model } from './model.js';

/**
 * @typedef {{label: string, file: File}} Labelled
 * @typedef {{id: number, model: string} & Labelled} Kept
 */

const MOST = 200; // sent with every session

/** @type {Kept[]} */
let photos = [];
let loaded = '';
/** @type {(() => void)[]} */
const listeners = [];

/** Do one thing with the store, and read the model's photos anew.
 * @param {(store: IDBObjectStore, name: string) => void} work */
async function change(work) {
  const { name } = knownModel();
  photos = await inStore('test-photos', name, (store) => work(store, name));
  loaded = name;
  for (const listener of listeners) listener();
}

/** @param {() => void} listener called when the kept photos changed */
export const onKept = (listener) => listeners.push(listener);

/** All that are kept for this model. */
export const kept = () => (loaded === model()?.name ? photos : []);

/**
 * Those to test with: their class is known, or will be with these labels; not too many of any.
 * @param {Set<string>} labels
 */
export function keptFor(labels) {
  const useful = kept().filter(({ label }) => isKnown(label) || labels.has(label));
  const most = Math.max(1, Math.floor(MOST / new Set(useful.map(({ label }) => label)).size));
  /** @type {Map<string, number>} */
  const seen = new Map();
  return useful.filter(({ label }) => {
    const n = (seen.get(label) ?? 0) + 1;
    seen.set(label, n);
    return n <= most;
  }).slice(0, MOST);
}

export const loadKept = () => change(() => {});

/** @param {Labelled[]} items */
export const keep = (items) => change((store, name) => {
  for (const { label, file } of items) store.add({ model: name, label, file });
});

/** @param {string} old @param {string} label */
export const renameKept = (old, label) => change((store) => {
  for (const photo of kept()) if (photo.label === old) store.put({ ...photo, label });
});

/** Of one class, or all of this model's. @param {string} [label] */
export const removeKept = (label) => change((store) => {
  for (const photo of kept()) {
    if (label === undefined || photo.label === label) store.delete(photo.id);
  }
});
