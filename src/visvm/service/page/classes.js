// Classes: what is known; rename, forget, take photos out, download.
import { post, request, token } from './api.js';
import { $, announce, ErrorLine, h, inOrder, openDialog } from './dom.js';
import { Cancelled, runJob } from './jobs.js';
import { removeKept, renameKept } from './kept.js';
import { isKnown, labelOf, labelProblem, model, onModel, refreshModel } from './model.js';
import { isPhoto, photoForm } from './photos.js';
import { bytes, photos } from './words.js';

/** @type {Map<string, Row>} */
const rows = new Map();

/** The row of one class. */
class Row {
  static made = 0;

  constructor(label) {
    this.label = label;
    this.error = new ErrorLine(`class-error-${Row.made += 1}`);
    this.name = h('span', { class: 'class-name', testid: 'class-name' }, label);
    this.place = h('div', { class: 'row-place' });
    this.count = h('td', { role: 'cell', class: 'number', testid: 'class-count' });
    this.renameButton = h('button', { type: 'button', class: 'quiet', testid: 'rename', 'aria-label': `Rename ${label}`,
      onclick: () => this.edit() }, 'Rename');
    this.actions = h('div', { class: 'row' }, this.renameButton,
      h('button', { type: 'button', class: 'quiet', testid: 'forget', 'aria-label': `Forget ${label}`,
        onclick: () => this.forget() }, 'Forget'));
    this.tr = h('tr', { role: 'row', testid: 'class-row' },
      h('td', { role: 'cell', class: 'name-cell' }, this.name, this.place), this.count,
      h('td', { role: 'cell', class: 'actions' }, this.actions));
  }

  show(n) {
    this.n = n;
    this.count.textContent = n.toLocaleString('en');
  }

  /** The name becomes a field. */
  edit() {
    this.error.clear();
    const input = h('input', { type: 'text', value: this.label, 'aria-label': `New name of ${this.label}`, autocomplete: 'off',
      testid: 'rename-input' });
    const form = h('form', { class: 'rename' }, input, h('div', { class: 'row' },
      h('button', { type: 'submit', class: 'primary', testid: 'rename-save' }, 'Save'),
      h('button', { type: 'button', onclick: () => this.closeEdit() }, 'Cancel')));
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      this.rename(input);
    });
    form.addEventListener('keydown', (event) => { if (event.key === 'Escape') this.closeEdit(); });
    this.busy(true);
    this.name.hidden = true;
    this.place.replaceChildren(form);
    input.focus();
    input.select();
  }

  closeEdit() {
    this.error.clear();
    this.place.replaceChildren();
    this.name.hidden = false;
    this.busy(false);
    this.renameButton.focus();
  }

  busy(on) {
    this.tr.classList.toggle('busy', on);
    this.actions.hidden = on;
  }

  async rename(input) {
    this.error.clear();
    const label = labelOf(input);
    const problem = labelProblem(label);
    if (problem) return this.error.show(this.place, problem, input);
    if (label === this.label) return this.closeEdit();
    await refreshModel().catch(() => {});
    const merge = isKnown(label);
    if (merge && !await confirmMerge(this.label, label)) return input.focus();
    const json = merge ? { old: this.label, new: label, merge } : { old: this.label, new: label };
    const fine = await this.change(`Renaming ${this.label}`, () => post('api/classes/rename', { json }));
    if (!fine) return null;
    await renameKept(this.label, label).catch(() => {});
    announce(merge ? `${this.label} and ${label} are one class now.` : `${this.label} is now called ${label}.`, true);
    return rows.get(label)?.renameButton.focus();
  }

  async forget() {
    this.error.clear();
    const answer = await confirmForget(this.label, this.n);
    if (answer === 'photos') return this.takeOut();
    if (!answer) return null;
    const start = () => post('api/classes/forget', { json: { label: this.label } });
    if (!await this.change(`Forgetting ${this.label}`, start)) return null;
    await removeKept(this.label).catch(() => {});
    announce(`${this.label} is forgotten.`, true);
    return restoreFocus();
  }

  async takeOut() {
    const files = await pickPhotos(this.label);
    if (!files) return;
    const body = photoForm(files.map((file) => ({ file, label: this.label })));
    const result = await this.change(`Taking ${photos(files.length)} out of ${this.label}`,
      (signal) => post('api/forget', { body, signal }));
    if (!result) return;
    announce(`${photos(result.n_images)} taken out of ${this.label}.`, true);
    restoreFocus();
  }

  /** Run a job in this row; its result, or null after telling why not. */
  async change(title, start) {
    this.name.hidden = false;
    this.place.replaceChildren();
    this.busy(true);
    try {
      return await runJob(this.place, title, start);
    } catch (failure) {
      if (failure instanceof Cancelled) announce('Cancelled. Nothing was changed.', true);
      else this.error.show(this.place, failure.message);
      return null;
    } finally {
      this.busy(false);
      if (document.activeElement === document.body) this.renameButton.focus();
    }
  }
}

/** The row that had the focus may be gone. */
function restoreFocus() {
  if (document.activeElement === document.body) document.querySelector('#panel-classes h2').focus();
}

const confirmMerge = (old, label) => openDialog({
  title: `Put “${old}” and “${label}” together?`,
  body: [h('p', {}, `“${label}” is a class already. Both become one class of that name. This cannot be undone.`)],
  actions: [{ text: 'Put together', value: 'merge', kind: 'primary' }],
});

const confirmForget = (label, n) => openDialog({
  title: `Forget “${label}”?`,
  body: [
    h('p', {}, `It was learned from ${photos(n)}. It will never be an answer again. This cannot be undone.`),
    h('p', {}, 'The answers for the other classes stay as they are. Should you teach it again later, it needs many more photos.'),
    h('p', { class: 'muted' }, 'Only some photos were wrong? If you still have them, you can take just these out.'),
  ],
  actions: [
    { text: 'Forget the class', value: 'forget', kind: 'danger', testid: 'forget-confirm' },
    { text: 'Take photos out…', value: 'photos' },
  ],
  cancelTestid: 'forget-cancel',
});

/** @returns {Promise<File[]|null>} */
async function pickPhotos(label) {
  const input = h('input', { id: 'take-out', type: 'file', multiple: true, required: true, accept: $('ask-input').accept });
  const answer = await openDialog({
    title: `Take photos out of “${label}”`,
    body: [
      h('p', {}, 'Choose the very photos that were learned. It will be as if they had never been shown.'),
      h('div', { class: 'field' }, h('label', { for: 'take-out' }, 'Photos'), input),
    ],
    actions: [{ text: 'Take them out', value: 'photos', kind: 'danger' }],
  });
  const files = [...input.files].filter(isPhoto);
  return answer && files.length ? files : null;
}

/** Put the rows in order, touching only what changed (a field being edited keeps its focus). */
function arrange(parent, wanted) {
  const stay = new Set(wanted);
  for (const child of [...parent.children]) if (!stay.has(child)) child.remove();
  wanted.forEach((child, i) => {
    if (parent.children[i] !== child) parent.insertBefore(child, parent.children[i] ?? null);
  });
}

function filter() {
  const text = $('class-filter').value.trim().toLocaleLowerCase();
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
  for (const label of rows.keys()) if (!labels.has(label)) rows.delete(label);
  for (const { label, n_images: n } of now.classes) {
    if (!rows.has(label)) rows.set(label, new Row(label));
    rows.get(label).show(n);
  }
  arrange($('class-rows'), [...labels].sort(inOrder).map((label) => rows.get(label).tr));
  $('class-table').hidden = !labels.size;
  $('class-table').classList.toggle('locked', !now.can_write);
  $('classes-locked').hidden = now.can_write;
  $('classes-locked').textContent = 'You can look at the classes, but not change them.';
  $('classes-empty').hidden = labels.size > 0;
  $('filter-field').hidden = labels.size <= 10;
  $('download-place').hidden = !now.n_bytes;
  $('model-size').textContent = bytes(now.n_bytes);
  filter();
}

/** A plain link cannot send the token: fetch the file then. */
async function download(event) {
  if (!token()) return;
  event.preventDefault();
  const error = new ErrorLine('download-error-line');
  $('download-error').replaceChildren();
  try {
    const url = URL.createObjectURL(await (await request('api/model/file')).blob());
    h('a', { href: url, download: model().name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 60000);
  } catch (failure) {
    error.show($('download-error'), failure.message);
  }
}

/** Set the view up. */
export function classesView() {
  $('class-filter').addEventListener('input', filter);
  $('download').addEventListener('click', download);
  onModel(showModel);
  return {};
}
