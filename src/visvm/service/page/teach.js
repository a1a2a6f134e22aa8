// Teach: gather photos in groups, name them, learn them.
import { post } from './api.js';
import { $, announce, ErrorLine, h, openDialog, roving } from './dom.js';
import { Cancelled, runJob, sessionOf } from './jobs.js';
import { keep, kept, keptFor, loadKept, onKept, removeKept } from './kept.js';
import { labelOf, labelProblem, model, onModel } from './model.js';
import { fromDrop, fromInput, photoForm, thumbnail, toGroups, withNames } from './photos.js';
import { bytes, classes, count, learnWords, photos, some, testWords } from './words.js';

const SHOWN = 60;
const RESTARTED = 'The server was restarted before this was learned. Your photos are still here: press Learn again.';
const error = new ErrorLine('teach-error');
/** @type {Group[]} */
let groups = [];

/** Some photos of one class. */
class Group {
  static made = 0;

  constructor(label, files) {
    const id = `group-${Group.made += 1}`;
    this.files = files;
    this.input = h('input', { id, type: 'text', list: 'known-classes', autocomplete: 'off', testid: 'group-label' });
    this.input.addEventListener('input', () => {
      if (error.input === this.input) error.clear();
      update();
    });
    this.input.value = label;
    this.count = h('p', { class: 'muted', id: `${id}-count` });
    this.tiles = h('ul', { class: 'tiles', 'aria-label': 'Photos: the arrow keys move among them' });
    this.more = h('p', { class: 'muted small' });
    this.field = h('div', { class: 'field' }, h('label', { for: id }, 'What do these photos show?'), this.input);
    this.card = h('section', { class: 'card group', 'aria-labelledby': `${id}-count`, testid: 'group' },
      h('div', { class: 'group-head' }, this.field, this.count,
        h('button', { type: 'button', class: 'quiet', testid: 'group-remove', onclick: () => this.remove() }, 'Remove all')),
      this.tiles, this.more);
    roving(this.tiles, 'button');
    this.tiles.addEventListener('click', (event) => this.removePhoto(event.target.closest('button')?.closest('li')));
    this.show();
  }

  get label() { return labelOf(this.input); }

  /** Fill up the tiles to the first sixty and tell the numbers. */
  show() {
    for (let i = this.tiles.children.length; i < Math.min(SHOWN, this.files.length); i += 1) {
      const { name } = this.files[i];
      const button = h('button', { type: 'button', class: 'tile-remove', 'aria-label': `Remove ${name}`, tabindex: i ? -1 : 0 },
        h('span', { 'aria-hidden': 'true' }, '×'));
      this.tiles.append(thumbnail(this.files[i], button));
    }
    this.count.textContent = photos(this.files.length);
    this.more.textContent = this.files.length > SHOWN ? `and ${(this.files.length - SHOWN).toLocaleString('en')} more` : '';
  }

  removePhoto(tile) {
    if (!tile) return null;
    const at = [...this.tiles.children].indexOf(tile);
    this.files.splice(at, 1);
    tile.remove();
    if (!this.files.length) return this.remove();
    this.show();
    const next = this.tiles.children[Math.min(at, this.tiles.children.length - 1)].querySelector('button');
    for (const button of this.tiles.querySelectorAll('button')) button.tabIndex = button === next ? 0 : -1;
    next.focus();
    return update();
  }

  remove() {
    groups = groups.filter((group) => group !== this);
    this.card.remove();
    if (error.input === this.input) error.clear();
    update();
    (groups.at(-1)?.input ?? $('teach-photos')).focus();
  }
}

/** Summary and Learn follow what is gathered. */
function update() {
  const n = groups.reduce((sum, group) => sum + group.files.length, 0);
  const labels = new Set(groups.map((group) => group.label).filter(Boolean));
  const now = model();
  $('learn').disabled = !n || !now?.can_learn || !now.can_write;
  $('teach-summary').textContent = n ? `${photos(n)}${labels.size ? ` in ${classes(labels.size)}` : ''}` : 'No photos yet';
}

/** @param {import('./photos.js').Found[]} found */
function gather(found) {
  error.clear();
  const { groups: fresh, refused } = toGroups(found);
  const made = fresh.map(({ label, files }) => new Group(label, files));
  groups.push(...made);
  $('teach-groups').append(...made.map((group) => group.card));
  update();
  if (refused.length) {
    error.show($('teach-drop-error'), `Left out, because they are not photos: ${some(refused, 5)}.`);
  } else if (!made.length) {
    error.show($('teach-drop-error'), 'There are no photos in it.');
  }
  const unnamed = made.find((group) => !group.label);
  if (unnamed && !refused.length) unnamed.input.focus();
}

/** What to learn and, if wanted, every fifth photo of each class to test with. */
function split(chosen) {
  const seen = new Map();
  const parts = { items: [], tests: [] };
  for (const { label, files } of chosen) {
    for (const file of files) {
      seen.set(label, (seen.get(label) ?? 0) + 1);
      const test = $('keep-test').checked && seen.get(label) % 5 === 0;
      parts[test ? 'tests' : 'items'].push({ label, file });
    }
  }
  return parts;
}

/** Point at a missing or too long name. @returns {boolean} all names are fine */
function named() {
  const wrong = groups.find(({ label }) => labelProblem(label));
  if (wrong) error.show(wrong.field, labelProblem(wrong.label), wrong.input);
  return !wrong;
}

/** Why this is too much for the server, or "". */
function tooMuch(items, tests) {
  const { files, upload_bytes: most } = model().limits;
  const all = [...items, ...tests];
  const size = all.reduce((sum, { file }) => sum + file.size + 300, 0); // each part has a small header
  const sent = photos(all.length) + (tests.length ? ` (${count(tests.length, 'test photo')} among them)` : '');
  if (all.length > files) return `These are ${sent}. The server takes ${photos(files)} at a time: please remove some.`;
  return size > most ? `These are ${sent}, ${bytes(size)}. The server takes ${bytes(most)} at a time: please remove some.` : '';
}

function resultCard(result, notes) {
  const close = h('button', { type: 'button', class: 'quiet', onclick: () => card.remove() }, 'Close');
  const sentence = [learnWords(result), testWords(result.test)].filter(Boolean).join(' ');
  const card = h('div', { class: 'card result', tabindex: -1, testid: 'result' },
    h('h3', {}, 'Learned'), h('p', {}, sentence),
    result.new_classes.length ? h('p', { class: 'muted small' }, `New: ${some(result.new_classes, 12)}`) : null,
    notes.length ? h('ul', { class: 'small' }, ...notes.map((note) => h('li', {}, note))) : null,
    h('div', { class: 'row' }, h('a', { class: 'button', href: '#ask' }, 'Try it'), close));
  announce(`Learned. ${sentence}`, $('panel-teach').hidden);
  return card;
}

/** @returns {Promise<string[]>} what to tell if they could not be kept */
async function keepTests(tests) {
  if (!tests.length) return [];
  return keep(tests).then(() => [], () => ['The test photos could not be kept: this browser has no room for them.']);
}

/** The first session settles how the model looks at photos, for good. @returns {Promise<boolean>} enough of both, or wanted */
async function enoughToBegin(items) {
  const n = new Set(items.map(({ label }) => label)).size;
  if (model().n_sessions || (n > 1 && items.length >= 5 * n)) return true;
  const answer = await openDialog({
    title: 'Begin with so little?',
    body: [h('p', {}, `${photos(items.length)} of ${classes(n)} are little to begin with. What it learns first decides how well it `
      + 'sees, and cannot be made better later. Two or more classes with five or more photos each are a good start.')],
    actions: [{ text: 'Learn anyway', value: 'learn', kind: 'primary', testid: 'learn-anyway' }],
  });
  return Boolean(answer);
}

async function learn() {
  error.clear();
  if (!named()) return;
  const { items, tests } = split(groups);
  if (!await enoughToBegin(items)) return;
  const all = [...keptFor(new Set(items.map(({ label }) => label))), ...tests];
  const problem = tooMuch(items, all);
  if (problem) {
    error.show($('teach-bar-error'), problem);
    return;
  }
  const taken = groups;
  const before = model().n_sessions;
  groups = [];
  $('teach-groups').replaceChildren();
  for (const old of $('teach-jobs').querySelectorAll('.result')) old.remove();
  update();
  const title = `Learning ${photos(items.length)}: ${some([...new Set(taken.map(({ label }) => label))], 4)}`;
  try {
    const start = (signal) => post('api/learn', { body: photoForm(items, all), signal });
    const result = await runJob($('teach-jobs'), title, start, () => sessionOf(items, before));
    const card = resultCard(result, [...result.notes ?? [], ...await keepTests(tests)]);
    $('teach-jobs').prepend(card);
    if (document.activeElement === document.body) card.focus();
  } catch (failure) {
    failure.message = withNames(failure.message, items, all);
    giveBack(taken, failure);
  }
}

/** Nothing was learned: the photos stay on the page. */
function giveBack(taken, failure) {
  groups.unshift(...taken);
  $('teach-groups').prepend(...taken.map((group) => group.card));
  update();
  if (failure instanceof Cancelled) {
    announce('Cancelled. Nothing was learned, your photos are still here.', true);
  } else {
    error.show($('teach-bar-error'), failure.status === 404 ? RESTARTED : failure.message);
    if ($('panel-teach').hidden) announce(`Not learned. ${failure.message}`, true);
  }
  if (document.activeElement === document.body) $('learn').focus();
}

async function removeTests() {
  const n = count(kept().length, 'test photo');
  const answer = await openDialog({
    title: `Remove the ${n}?`,
    body: [h('p', {}, 'This browser will no longer keep them. What was learned stays, but its accuracy is not measured.')],
    actions: [{ text: 'Remove them', value: 'remove', kind: 'danger' }],
  });
  if (answer) await removeKept().then(() => announce(`${n} removed.`, true));
}

function showKept() {
  $('kept-line').hidden = !kept().length;
  $('kept-count').textContent = `This browser keeps ${count(kept().length, 'test photo')}.`;
}

/** @param {import('./model.js').Model} now */
function showModel(now) {
  const locked = $('teach-locked');
  locked.hidden = now.can_learn && now.can_write;
  const why = now.can_learn ? 'you may not change anything' : 'it can no longer learn';
  locked.textContent = `You can ask about photos here, but ${why}.`;
  $('teach-hint').hidden = now.classes.length > 0 || !locked.hidden;
  for (const id of ['teach-photos', 'teach-folder', 'keep-test']) $(id).disabled = !locked.hidden;
  update();
}

/** Set the view up. @returns {{drop: (data: DataTransfer) => void}} */
export function teachView() {
  for (const id of ['teach-photos', 'teach-folder']) {
    $(id).addEventListener('change', ({ target }) => {
      gather(fromInput(target.files));
      target.value = '';
    });
  }
  $('learn').addEventListener('click', learn);
  $('kept-remove').addEventListener('click', removeTests);
  onKept(showKept);
  let name;
  onModel((now) => {
    showModel(now);
    if (name !== now.name) loadKept().catch(() => {});
    name = now.name;
  });
  return {
    drop: async (data) => {
      const found = fromDrop(data);
      if ($('teach-locked').hidden) gather(await found);
    },
  };
}
