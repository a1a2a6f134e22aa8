// Test photos that stay in this browser (IndexedDB), by model and class.
import { isKnown, model } from './model.js';

/** @typedef {{label: string, file: File}} Labelled */

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

/** Those whose class is known, or will be with the given labels: the ones worth testing. @param {Set<string>} labels */
export const keptFor = (labels) => kept().filter(({ label }) => isKnown(label) || labels.has(label));

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
