// Test photos that stay in this browser (IndexedDB), by model and class.
import { isKnown, model } from './model.js';

/** @typedef {{label: string, file: File}} Labelled */

const MOST = 200; // sent with every session

/** @type {({id: number, model: string} & Labelled)[]} */
let photos = [];
let loaded = '';
let opened;
const listeners = [];

const finished = (thing) => new Promise((resolve, reject) => {
  thing.onsuccess = thing.oncomplete = () => resolve(thing.result);
  thing.onerror = thing.onabort = () => reject(thing.error);
});

function database() {
  const opening = indexedDB.open('visvm', 1);
  opening.onupgradeneeded = () => opening.result
    .createObjectStore('test-photos', { keyPath: 'id', autoIncrement: true }).createIndex('model', 'model');
  return finished(opening);
}

/** Do one thing with the store, wait until it is on disk, and read the model's photos anew. */
async function change(work) {
  const { name } = model();
  opened ??= database();
  const transaction = (await opened).transaction('test-photos', 'readwrite');
  const store = transaction.objectStore('test-photos');
  work(store, name);
  const reading = store.index('model').getAll(name);
  await finished(transaction);
  photos = reading.result;
  loaded = name;
  for (const listener of listeners) listener();
}

/** @param {() => void} listener called when the kept photos changed */
export const onKept = (listener) => listeners.push(listener);

/** All that are kept for this model. */
export const kept = () => (loaded === model()?.name ? photos : []);

/** Those to test with: their class is known, or will be with the given labels; not too many of any. @param {Set<string>} labels */
export function keptFor(labels) {
  const useful = kept().filter(({ label }) => isKnown(label) || labels.has(label));
  const most = Math.max(1, Math.floor(MOST / new Set(useful.map(({ label }) => label)).size));
  const seen = new Map();
  return useful.filter(({ label }) => {
    seen.set(label, (seen.get(label) ?? 0) + 1);
    return seen.get(label) <= most;
  }).slice(0, MOST);
}

export const loadKept = () => change(() => {});

/** @param {Labelled[]} items */
export const keep = (items) => change((store, name) => {
  for (const { label, file } of items) store.add({ model: name, label, file });
});

export const renameKept = (old, label) => change((store) => {
  for (const photo of kept()) if (photo.label === old) store.put({ ...photo, label });
});

/** Of one class, or all of this model's. @param {string} [label] */
export const removeKept = (label) => change((store) => {
  for (const photo of kept()) if (label === undefined || photo.label === label) store.delete(photo.id);
});
