// Small pictures of classes, kept in this browser alone, and only if the person wants them.
import { inStore } from './database.js';
import { h } from './dom.js';
import { knownModel, model } from './model.js';

/** @typedef {{id: number, model: string, label: string, picture: Blob}} Picture */
/** @typedef {import('./kept.js').Labelled} Labelled */

const WANTED = 'visvm-pictures';
const MOST = 4; // of a class
const SIDE = 96;

/** @type {Picture[]} */
let pictures = [];
let loaded = '';
/** @type {Map<string, File[]>} learned since the page was opened, the last of each class */
const recent = new Map();
/** @type {Map<number, string>} */
const addresses = new Map();
/** @type {(() => void)[]} */
const listeners = [];

export const picturesWanted = () => localStorage.getItem(WANTED) === 'on';

/** @param {() => void} listener called when the pictures changed */
export const onPictures = (listener) => listeners.push(listener);

/** All that are kept for this model. */
export const keptPictures = () => (loaded === model()?.name ? pictures : []);

/** @param {(store: IDBObjectStore, name: string) => void} work */
async function change(work) {
  const { name } = knownModel();
  pictures = await inStore('pictures', name, (store) => work(store, name));
  loaded = name;
  const ids = new Set(pictures.map(({ id }) => id));
  for (const [id, address] of addresses) {
    if (ids.has(id)) continue;
    URL.revokeObjectURL(address);
    addresses.delete(id);
  }
  for (const listener of listeners) listener();
}

export const loadPictures = () => change(() => {});

/** Where the pictures of a class can be drawn from. @param {string} label */
export const picturesOf = (label) => keptPictures().filter((each) => each.label === label)
  .map(({ id, picture }) => {
    const address = addresses.get(id) ?? URL.createObjectURL(picture);
    addresses.set(id, address);
    return address;
  });

/** The middle of a photo, small; null where the browser cannot draw it.
 * @param {File} file @returns {Promise<Blob|null>} */
async function small(file) {
  const bitmap = await createImageBitmap(file).catch(() => null);
  if (!bitmap) return null;
  const side = Math.min(bitmap.width, bitmap.height);
  const canvas = h('canvas', { width: SIDE, height: SIDE });
  canvas.getContext('2d')?.drawImage(bitmap, (bitmap.width - side) / 2,
    (bitmap.height - side) / 2, side, side, 0, 0, SIDE, SIDE);
  bitmap.close();
  return new Promise((resolve) => { canvas.toBlob(resolve, 'image/webp', 0.8); });
}

/** @param {Map<string, File[]>} files by label */
async function add(files) {
  const { name } = knownModel();
  /** @type {Omit<Picture, 'id'>[]} */
  const made = [];
  for (const [label, some] of files) {
    const had = keptPictures().filter((each) => each.label === label).length;
    for (const file of some.slice(0, Math.max(0, MOST - had))) {
      const picture = await small(file);
      if (picture) made.push({ model: name, label, picture });
    }
  }
  if (made.length) await change((store) => { for (const each of made) store.add(each); });
}

/** What was learned just now. @param {Labelled[]} items */
export async function remember(items) {
  /** @type {Map<string, File[]>} */
  const fresh = new Map();
  for (const { label, file } of items) {
    const few = fresh.get(label) ?? [];
    if (few.length < MOST) few.push(file);
    fresh.set(label, few);
  }
  for (const [label, files] of fresh) recent.set(label, files);
  if (picturesWanted()) await add(fresh);
}

/** Begin to keep pictures, or stop and remove them. @param {boolean} on */
export async function wantPictures(on) {
  localStorage.setItem(WANTED, on ? 'on' : 'off');
  await (on ? add(recent) : removePictures());
}

/** @param {string} old @param {string} label */
export async function renamePictures(old, label) {
  const files = recent.get(old);
  recent.delete(old);
  if (files && !recent.has(label)) recent.set(label, files);
  await change((store) => {
    for (const each of keptPictures()) if (each.label === old) store.put({ ...each, label });
  });
}

/** Of one class, or all of this model's. @param {string} [label] */
export async function removePictures(label) {
  if (label !== undefined) recent.delete(label);
  await change((store) => {
    for (const each of keptPictures()) {
      if (label === undefined || each.label === label) store.delete(each.id);
    }
  });
}
