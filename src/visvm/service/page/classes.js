// Classes: what is known, with small pictures; rename, forget, take photos out, download.
import { change, request, token } from './api.js';
import {
  $, announce, ErrorLine, field, focusIsLost, h, inOrder, messageOf, openDialog,
} from './dom.js';
import { Cancelled, runJob } from './jobs.js';
import { removeKept, renameKept } from './kept.js';
import { menuButton } from './menu.js';
import { isKnown, knownModel, labelOf, labelProblem, onModel, refreshModel } from './model.js';
import { isPhoto, messageWithNames, photoForm } from './photos.js';
import {
  loadPictures, onPictures, picturesOf, picturesWanted, removePictures, renamePictures,
  wantPictures,
} from './pictures.js';
import { bytes, number, photos } from './words.js';

/**
 * @template R
 * @typedef {import('./jobs.js').Start<R>} Start
 */
/** @typedef {{file: File, label: string}} Item */

/** @type {Map<string, Row>} */
const rows = new Map();
let shownBefore = false;

/** The row of one class. */
class Row {
  static made = 0;

  /** @param {string} label */
  constructor(label) {
    Row.made += 1;
    this.label = label;
    this.n = 0;
    this.error = new ErrorLine(`class-error-${Row.made}`);
    this.name = h('span', { class: 'class-name', testid: 'class-name' }, label);
    this.pictures = h('span', { class: 'pictures', 'aria-hidden': 'true', testid: 'class-pictures' });
    this.line = h('div', { class: 'class-line' }, this.pictures, this.name);
    this.place = h('div', { class: 'row-place' });
    this.number = h('span', { testid: 'class-count' });
    this.share = h('span', { class: 'share', 'aria-hidden': 'true' });
    const { place, button } = menuButton(`Actions for ${label}`, 'class-menu', () => [
      { text: 'Rename', testid: 'rename', run: () => this.edit() },
      { text: 'Take photos out…', testid: 'take-out', run: () => this.takeOut() },
      { text: 'Forget…', testid: 'forget', grave: true, run: () => this.forget() },
    ]);
    this.menu = button;
    this.actions = place;
    this.tr = h('tr', { role: 'row', testid: 'class-row' },
      h('td', { role: 'cell', class: 'name-cell' }, this.line, this.place),
      h('td', { role: 'cell', class: 'number' }, this.number, this.share),
      h('td', { role: 'cell', class: 'actions' }, this.actions));
    this.showPictures();
  }

  /** @param {number} n @param {number} most photos of any class */
  show(n, most) {
    this.n = n;
    this.number.textContent = number(n);
    this.share.style.setProperty('--share', String(100 * n / Math.max(1, most)));
  }

  showPictures() {
    this.pictures.replaceChildren(...picturesOf(this.label).map((src) =>
      h('img', { src, alt: '', width: 44, height: 44 })));
    this.pictures.hidden = !this.pictures.children.length;
  }

  /** The name becomes a field. */
  edit() {
    this.error.clear();
    const input = h('input', { type: 'text', value: this.label, autocomplete: 'off',
      'aria-label': `New name of ${this.label}`, testid: 'rename-input' });
    const form = h('form', { class: 'rename' }, input, h('div', { class: 'row' },
      h('button', { type: 'submit', class: 'primary', testid: 'rename-save' }, 'Save'),
      h('button', { type: 'button', onclick: () => this.closeEdit() }, 'Cancel')));
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      this.rename(input);
    });
    form.addEventListener('keydown', (event) => { if (event.key === 'Escape') this.closeEdit(); });
    this.busy(true);
    this.line.hidden = true;
    this.place.replaceChildren(form);
    input.focus();
    input.select();
  }

  closeEdit() {
    this.error.clear();
    this.place.replaceChildren();
    this.line.hidden = false;
    this.busy(false);
    this.menu.focus();
  }

  /** @param {boolean} on */
  busy(on) {
    this.tr.classList.toggle('busy', on);
    this.actions.hidden = on;
  }

  /** @param {HTMLInputElement} input */
  async rename(input) {
    this.error.clear();
    const label = labelOf(input);
    const problem = labelProblem(label);
    if (problem) this.error.show(this.place, problem, input);
    else if (label === this.label) this.closeEdit();
    else {
      await refreshModel().catch(() => {});
      const merge = isKnown(label);
      if (merge && !await confirmMerge(this.label, label)) input.focus();
      else await this.renameTo(label, merge);
    }
  }

  /** @param {string} label @param {boolean} merge */
  async renameTo(label, merge) {
    const json = { old: this.label, new: label, merge };
    const renamed = await this.change(`Renaming ${this.label}`,
      (_, key) => change('api/classes/rename', key, { json }));
    if (!renamed) return;
    await renameKept(this.label, label).catch(() => {});
    await renamePictures(this.label, label).catch(() => {});
    announce(merge ? `${this.label} and ${label} are one class now.`
      : `${this.label} is now called ${label}.`, true);
    rows.get(label)?.menu.focus();
  }

  async forget() {
    this.error.clear();
    const answer = await confirmForget(this.label, this.n);
    if (answer === 'photos') await this.takeOut();
    if (answer !== 'forget') return;
    const forgotten = await this.change(`Forgetting ${this.label}`,
      (_, key) => change('api/classes/forget', key, { json: { label: this.label } }));
    if (!forgotten) return;
    await removeKept(this.label).catch(() => {});
    await removePictures(this.label).catch(() => {});
    announce(`${this.label} is forgotten.`, true);
    restoreFocus();
  }

  async takeOut() {
    this.error.clear();
    const files = await pickPhotos(this.label);
    if (!files) return;
    const items = files.map((file) => ({ file, label: this.label }));
    const body = photoForm(items);
    /** @type {Start<{n_images: number}>} */
    const start = (signal, key) => change('api/forget', key, { body, signal });
    const title = `Taking ${photos(files.length)} out of ${this.label}`;
    const result = await this.change(title, start, items);
    if (!result) return;
    announce(`${photos(result.n_images)} taken out of ${this.label}.`, true);
    restoreFocus();
  }

  /**
   * Run a job in this row; its result, or null after saying why not.
   * @template R @param {string} title @param {Start<R>} start @param {Item[]} items that are sent
   */
  async change(title, start, items = []) {
    this.line.hidden = false;
    this.place.replaceChildren();
    this.busy(true);
    try {
      return await runJob(this.place, title, start);
    } catch (failure) {
      if (failure instanceof Cancelled) announce('Cancelled. Nothing was changed.', true);
      else this.error.show(this.place, messageWithNames(failure, items));
      return null;
    } finally {
      this.busy(false);
      if (focusIsLost()) this.menu.focus();
    }
  }
}

/** The row that had the focus may be gone. */
function restoreFocus() {
  if (focusIsLost()) $('classes-title').focus();
}

/** @param {string} old @param {string} label */
const confirmMerge = (old, label) => openDialog({
  title: `Put “${old}” and “${label}” together?`,
  body: [h('p', {}, `“${label}” is a class already. Both become one class of that name. `
    + 'History can undo this until the next change.')],
  actions: [{ text: 'Put together', value: 'merge', kind: 'primary' }],
});

/** @param {string} label @param {number} n */
const confirmForget = (label, n) => openDialog({
  title: `Forget “${label}”?`,
  body: [
    h('p', {}, `It was learned from ${photos(n)}. It will never be an answer again. `
      + 'History can undo this until the next change.'),
    h('p', {}, 'The answers for the other classes do not change. '
      + 'If you teach it again later, it will need many more photos.'),
    h('p', { class: 'muted' }, 'Were only some photos wrong? '
      + 'If you still have them, you can take out just these.'),
  ],
  actions: [
    { text: 'Forget the class', value: 'forget', kind: 'danger', testid: 'forget-confirm' },
    { text: 'Take photos out…', value: 'photos' },
  ],
  cancelTestid: 'forget-cancel',
});

/** @param {string} label @returns {Promise<File[]|null>} */
async function pickPhotos(label) {
  const { accept } = field('ask-input');
  const input = h('input',
    { id: 'take-out', type: 'file', multiple: true, required: true, accept });
  const answer = await openDialog({
    title: `Take photos out of “${label}”`,
    body: [
      h('p', {}, 'Choose the very photos that were learned. '
        + 'It will be as if they had never been shown. Until the next change, the server keeps the '
        + 'model from before, with them, so that this can be undone.'),
      h('div', { class: 'field' }, h('label', { for: 'take-out' }, 'Photos'), input),
    ],
    actions: [{ text: 'Take them out', value: 'photos', kind: 'danger' }],
  });
  const files = [...input.files ?? []].filter(isPhoto);
  return answer && files.length ? files : null;
}

/**
 * Put the rows in order, touching only what changed: a field being edited keeps its focus.
 * @param {Element} parent @param {Element[]} wanted
 */
function arrange(parent, wanted) {
  const stay = new Set(wanted);
  for (const child of [...parent.children]) if (!stay.has(child)) child.remove();
  wanted.forEach((child, i) => {
    if (parent.children[i] !== child) parent.insertBefore(child, parent.children[i] ?? null);
  });
}

function filter() {
  const text = field('class-filter').value.trim().toLocaleLowerCase();
  let found = 0;
  for (const { label, tr } of rows.values()) {
    tr.hidden = !$('filter-field').hidden && !label.toLocaleLowerCase().includes(text);
    if (!tr.hidden) found += 1;
  }
  $('filter-none').textContent = text && !found ? 'No class has this in its name.' : '';
}

/** @param {import('./model.js').Model} now */
function showModel(now) {
  const labels = new Set(now.classes.map(({ label }) => label));
  const most = Math.max(0, ...now.classes.map(({ n_images: n }) => n));
  for (const label of rows.keys()) if (!labels.has(label)) rows.delete(label);
  for (const { label, n_images: n } of now.classes) {
    const row = rows.get(label) ?? new Row(label);
    row.tr.classList.toggle('fresh', shownBefore && !rows.has(label));
    rows.set(label, row);
    row.show(n, most);
  }
  shownBefore = true;
  const sorted = [...rows.values()].sort((a, b) => inOrder(a.label, b.label));
  arrange($('class-rows'), sorted.map(({ tr }) => tr));
  $('class-table').hidden = !labels.size;
  $('class-table').classList.toggle('locked', !now.can_write);
  $('classes-locked').hidden = now.can_write;
  $('classes-locked').textContent = 'You can look at the classes, but not change them.';
  $('classes-empty').hidden = labels.size > 0;
  $('filter-field').hidden = labels.size <= 10;
  $('class-tools').hidden = !labels.size;
  $('download-place').hidden = !now.n_bytes || !now.can_write;
  $('model-size').textContent = bytes(now.n_bytes);
  filter();
}

/** A plain link cannot send the token: fetch the file then. @param {Event} event */
async function download(event) {
  if (!token()) return;
  event.preventDefault();
  const error = new ErrorLine('download-error-line');
  $('download-error').replaceChildren();
  try {
    const url = URL.createObjectURL(await (await request('api/model/file')).blob());
    h('a', { href: url, download: knownModel().name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 60000);
  } catch (failure) {
    error.show($('download-error'), messageOf(failure));
  }
}

/** Set the view up. @returns {import('./app.js').View} */
export function classesView() {
  $('class-filter').addEventListener('input', filter);
  $('download').addEventListener('click', download);
  const wanted = field('pictures');
  const showPictures = () => {
    wanted.checked = picturesWanted();
    for (const row of rows.values()) row.showPictures();
  };
  wanted.addEventListener('change', () => wantPictures(wanted.checked).then(() => announce(
    wanted.checked ? 'Photos that you teach here get small pictures from now on.'
      : 'The small pictures are removed.', true),
  () => announce('This browser has no room for pictures.', true)).finally(showPictures));
  onPictures(showPictures);
  let name = '';
  onModel((now) => {
    showModel(now);
    if (name !== now.name) loadPictures().catch(showPictures);
    name = now.name;
  });
  return {};
}
