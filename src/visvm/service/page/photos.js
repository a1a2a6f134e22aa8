// Photos as files: read from drops and folders, sorted into groups, drawn small.
import { codeOf, IMAGES_UNREADABLE } from './api.js';
import { h, inOrder, messageOf } from './dom.js';

/**
 * @typedef {{file: File, path: string}} Found a file and its path below what was dropped or chosen
 * @typedef {{file: File, label?: string}} Item
 */

const NAMES = /\.(jpe?g|png|gif|webp|bmp|tiff?|heic|heif|avif)$/i;
const SYSTEM = /^(\..*|thumbs\.db|desktop\.ini)$/i;
const SIDE = 160;

/** @param {File} file */
export function isPhoto({ size, name, type }) {
  return size > 0 && (NAMES.test(name) || (type.startsWith('image/') && !type.includes('svg')));
}

/** @param {FileList|null} list @returns {Found[]} */
export const fromInput = (list) =>
  [...list ?? []].map((file) => ({ file, path: file.webkitRelativePath || file.name }));

/** One that cannot be read counts as empty, and is refused by its name.
 * @param {FileSystemFileEntry} entry @returns {Promise<File>} */
const fileOf = (entry) =>
  new Promise((good) => { entry.file(good, () => good(new File([], entry.name))); });

/** @param {FileSystemDirectoryReader} reader @returns {Promise<FileSystemEntry[]>} */
const entriesOf = (reader) =>
  new Promise((good) => { reader.readEntries(good, () => good([])); });

/** @param {FileSystemEntry} entry @param {string} path @returns {Promise<Found[]>} */
async function walk(entry, path) {
  if (entry.isFile) {
    const file = await fileOf(/** @type {FileSystemFileEntry} */ (entry));
    return [{ file, path: path + entry.name }];
  }
  const reader = /** @type {FileSystemDirectoryEntry} */ (entry).createReader();
  const inside = [];
  for (let more = await entriesOf(reader); more.length; more = await entriesOf(reader)) {
    inside.push(...more);
  }
  const found = [];
  for (const child of inside) found.push(...await walk(child, `${path}${entry.name}/`));
  return found;
}

/** Files and folders of a drop, to any depth. @param {DataTransfer} data */
export async function fromDrop(data) {
  const things = [...data.items].filter((item) => item.kind === 'file')
    .map((item) => item.webkitGetAsEntry() ?? item.getAsFile());
  /** @type {Found[]} */
  const found = [];
  for (const thing of things) {
    if (thing instanceof File) found.push({ file: thing, path: thing.name });
    else if (thing) found.push(...await walk(thing, ''));
  }
  return found;
}

/**
 * One group for each folder (its first sub-folder names the class) and one for loose photos.
 * @param {Found[]} found
 * @returns {{groups: {label: string, files: File[]}[], refused: string[]}}
 */
export function toGroups(found) {
  const wanted = found.filter(({ file }) => !SYSTEM.test(file.name))
    .sort((a, b) => inOrder(a.path, b.path));
  const good = wanted.filter(({ file }) => isPhoto(file))
    .map(({ file, path }) => ({ file, parts: path.split('/') }));
  const sorted = new Set(good.filter(({ parts }) => parts.length > 2).map(({ parts }) => parts[0]));
  /** @type {Map<string, File[]>} */
  const groups = new Map();
  for (const { file, parts } of good) {
    const [root, below] = parts;
    const label = parts.length > 2 ? below : parts.length === 2 && !sorted.has(root) ? root : '';
    const group = groups.get(label) ?? [];
    group.push(file);
    groups.set(label, group);
  }
  return {
    groups: [...groups].map(([label, files]) => ({ label: label.normalize().trim(), files })),
    refused: wanted.filter(({ file }) => !isPhoto(file)).map(({ path }) => path),
  };
}

/** The fields of an upload. @param {Item[]} items @param {Item[]} tests */
export function photoForm(items, tests = []) {
  const form = new FormData();
  for (const [prefix, list] of /** @type {const} */ ([['', items], ['test_', tests]])) {
    for (const { file, label } of list) {
      form.append(`${prefix}images`, file, file.name);
      if (label !== undefined) form.append(`${prefix}labels`, label);
    }
  }
  return form;
}

/**
 * What an error says, with the names of the files that the server calls "photo 3".
 * @param {unknown} error @param {Item[]} items @param {Item[]} tests
 */
export function messageWithNames(error, items, tests = []) {
  if (codeOf(error) !== IMAGES_UNREADABLE) return messageOf(error);
  return messageOf(error).replace(/\b(test )?photo (\d+)(?= \()/g,
    (place, test, number) => (test ? tests : items)[number - 1]?.file.name ?? place);
}

/** @param {Element} tile @param {File} file */
async function draw(tile, file) {
  try {
    const options = /** @type {const} */ ({ resizeWidth: SIDE * 1.5, resizeQuality: 'medium' });
    const bitmap = await createImageBitmap(file, options);
    const canvas = h('canvas',
      { width: SIDE, height: SIDE, role: 'img', 'aria-label': file.name });
    const scale = SIDE / Math.min(bitmap.width, bitmap.height);
    const [width, height] = [bitmap.width * scale, bitmap.height * scale];
    const [x, y] = [(SIDE - width) / 2, (SIDE - height) / 2];
    canvas.getContext('2d')?.drawImage(bitmap, x, y, width, height);
    bitmap.close();
    tile.prepend(canvas);
  } catch {
    tile.prepend(h('span', { class: 'tile-name' }, file.name));
  }
}

/** @type {Element[]} */
const queue = [];
/** @type {WeakMap<Element, File>} */
const files = new WeakMap();
let drawing = 0;

async function drawNext() {
  if (drawing >= 2) return;
  drawing += 1;
  for (let tile = queue.shift(); tile; tile = queue.shift()) {
    const file = files.get(tile);
    if (!tile.isConnected) seen.observe(tile);
    else if (file) await draw(tile, file);
  }
  drawing -= 1;
}

const seen = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (!isIntersecting) continue;
    seen.unobserve(target);
    queue.push(target);
    drawNext();
  }
}, { rootMargin: '200px' });

/** A square tile, drawn when it comes into sight. @param {File} file @param {Node} button */
export function thumbnail(file, button) {
  const tile = h('li', { class: 'tile', title: file.name }, button);
  files.set(tile, file);
  seen.observe(tile);
  return tile;
}
