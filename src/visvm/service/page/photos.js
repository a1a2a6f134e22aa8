// Photos as files: read from drops and folders, sorted into groups, drawn small.
import { h, inOrder } from './dom.js';

/** @typedef {{file: File, path: string}} Found a file and its path below what was dropped or chosen */

const NAMES = /\.(jpe?g|png|gif|webp|bmp|tiff?|heic|heif|avif)$/i;
const SYSTEM = /^(\..*|thumbs\.db|desktop\.ini)$/i;
const SIDE = 160;

/** @param {File} file */
export function isPhoto(file) {
  return file.size > 0 && (NAMES.test(file.name) || (file.type.startsWith('image/') && !file.type.includes('svg')));
}

/** @param {FileList} list @returns {Found[]} */
export const fromInput = (list) => [...list].map((file) => ({ file, path: file.webkitRelativePath || file.name }));

async function walk(entry, path) {
  if (entry.isFile) { // one that cannot be read counts as empty, and is refused by its name
    const file = await new Promise((good) => { entry.file(good, () => good(new File([], entry.name))); });
    return [{ file, path: path + entry.name }];
  }
  const reader = entry.createReader();
  const inside = [];
  for (let more = [null]; more.length; inside.push(...more)) {
    more = await new Promise((good) => { reader.readEntries(good, () => good([])); });
  }
  const found = [];
  for (const child of inside) found.push(...await walk(child, `${path}${entry.name}/`));
  return found;
}

/** Files and folders of a drop, to any depth. @param {DataTransfer} data @returns {Promise<Found[]>} */
export async function fromDrop(data) {
  const things = [...data.items].filter((item) => item.kind === 'file')
    .map((item) => item.webkitGetAsEntry?.() ?? item.getAsFile());
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
  const wanted = found.filter(({ file }) => !SYSTEM.test(file.name)).sort((a, b) => inOrder(a.path, b.path));
  const good = wanted.filter(({ file }) => isPhoto(file)).map(({ file, path }) => ({ file, parts: path.split('/') }));
  const sorted = new Set(good.filter(({ parts }) => parts.length > 2).map(({ parts }) => parts[0]));
  const groups = new Map();
  for (const { file, parts } of good) {
    const [root, below] = parts;
    const label = parts.length > 2 ? below : parts.length === 2 && !sorted.has(root) ? root : '';
    if (!groups.has(label)) groups.set(label, []);
    groups.get(label).push(file);
  }
  return {
    groups: [...groups].map(([label, files]) => ({ label: label.normalize().trim(), files })),
    refused: wanted.filter(({ file }) => !isPhoto(file)).map(({ path }) => path),
  };
}

/** The fields of an upload. @param {import('./kept.js').Labelled[]} items @param {import('./kept.js').Labelled[]} tests */
export function photoForm(items, tests = []) {
  const form = new FormData();
  for (const [prefix, list] of [['', items], ['test_', tests]]) {
    for (const { file, label } of list) {
      form.append(`${prefix}images`, file, file.name);
      if (label !== undefined) form.append(`${prefix}labels`, label);
    }
  }
  return form;
}

/** What the server says of "photo 3" of an upload, with the name of that file. @param {string} text */
export const withNames = (text, items, tests = []) => text.replace(/\b(test )?photo (\d+)(?= \()/g,
  (place, test, number) => (test ? tests : items)[number - 1]?.file.name ?? place);

async function draw(tile, file) {
  try {
    const bitmap = await createImageBitmap(file, { resizeWidth: SIDE * 1.5, resizeQuality: 'medium' });
    const canvas = h('canvas', { width: SIDE, height: SIDE, role: 'img', 'aria-label': file.name });
    const scale = SIDE / Math.min(bitmap.width, bitmap.height);
    const [width, height] = [bitmap.width * scale, bitmap.height * scale];
    canvas.getContext('2d').drawImage(bitmap, (SIDE - width) / 2, (SIDE - height) / 2, width, height);
    bitmap.close();
    tile.prepend(canvas);
  } catch {
    tile.prepend(h('span', { class: 'tile-name' }, file.name));
  }
}

const queue = [];
let drawing = 0;

async function drawNext() {
  if (drawing >= 2) return;
  drawing += 1;
  for (let tile = queue.shift(); tile; tile = queue.shift()) {
    if (tile.isConnected) await draw(tile, files.get(tile));
    else seen.observe(tile);
  }
  drawing -= 1;
}

const files = new WeakMap();
const seen = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (!isIntersecting) continue;
    seen.unobserve(target);
    queue.push(target);
    drawNext();
  }
}, { rootMargin: '200px' });

/** A square tile whose picture is drawn when it comes into sight. @param {File} file @param {Node} button */
export function thumbnail(file, button) {
  const tile = h('li', { class: 'tile', title: file.name }, button);
  files.set(tile, file);
  seen.observe(tile);
  return tile;
}
