// Teach: gather photos in groups, name them, learn them.
import { codeOf, JOB_UNKNOWN, post } from './api.js';
import { offerCamera } from './camera.js';
import { checkCard } from './check.js';
import {
  $, announce, ErrorLine, field, find, focusIsLost, h, openDialog, roving,
} from './dom.js';
import { Cancelled, learnPhotos, runJob } from './jobs.js';
import { keep, kept, keptFor, loadKept, onKept, removeKept } from './kept.js';
import { knownModel, labelOf, labelProblem, model, onModel } from './model.js';
import {
  fromDrop, fromInput, isPhoto, messageWithNames, photoForm, thumbnail, toGroups,
} from './photos.js';
import { remember } from './pictures.js';
import { forgetJob, forgetResult, keepJob, lastJob, lastResult, resultCard } from './result.js';
import { bytes, classes, count, number, photos, some } from './words.js';

/** @typedef {import('./kept.js').Labelled} Labelled */

const SHOWN = 60;
const RESTARTED = 'The server was restarted before this was learned. '
  + 'Your photos are still here: press Learn again.';
const LITTLE = 'What it learns first decides how well it sees, and cannot be made better later. '
  + 'Two or more classes with five or more photos each are a good start.';
const error = new ErrorLine('teach-error');
/** @type {Group[]} */
let groups = [];

/** Some photos of one class. */
class Group {
  static made = 0;

  /** @param {string} label @param {File[]} files */
  constructor(label, files) {
    Group.made += 1;
    const id = `group-${Group.made}`;
    this.files = files;
    this.input = h('input', { id, type: 'text', list: 'known-classes', autocomplete: 'off',
      testid: 'group-label' });
    this.input.addEventListener('input', () => {
      if (error.input === this.input) error.clear();
      update();
    });
    this.input.value = label;
    this.count = h('p', { class: 'muted', id: `${id}-count` });
    this.tiles = h('ul',
      { class: 'tiles', 'aria-label': 'Photos: the arrow keys move among them' });
    this.more = h('p', { class: 'muted small' });
    this.field = h('div', { class: 'field' },
      h('label', { for: id }, 'What do these photos show?'), this.input);
    this.card = h('div',
      { class: 'card group', role: 'group', 'aria-labelledby': `${id}-count`, testid: 'group' },
      h('div', { class: 'group-head' }, this.field, this.count,
        h('button', { type: 'button', class: 'quiet', testid: 'group-remove',
          onclick: () => this.remove() }, 'Remove all')),
      this.tiles, h('div', { class: 'group-foot' }, this.adder(), this.more));
    roving(this.tiles, 'button');
    this.tiles.addEventListener('click', ({ target }) => {
      const tile = target instanceof Element && target.closest('button')?.closest('li');
      if (tile) this.removePhoto(tile);
    });
    this.show();
  }

  get label() { return labelOf(this.input); }

  /** More photos of the same. */
  adder() {
    const input = h('input', { type: 'file', multiple: true, class: 'visually-hidden',
      accept: field('teach-photos').accept, testid: 'group-add' });
    input.addEventListener('change', () => {
      for (const file of [...input.files ?? []].filter(isPhoto)) this.files.push(file);
      input.value = '';
      this.show();
      update();
    });
    return h('label', { class: 'button quiet' }, input, 'Add more of these');
  }

  /** Fill up the tiles to the first sixty and show the numbers. */
  show() {
    for (let i = this.tiles.children.length; i < Math.min(SHOWN, this.files.length); i += 1) {
      const { name } = this.files[i];
      const button = h('button', { type: 'button', class: 'tile-remove',
        'aria-label': `Remove ${name}`, tabindex: i ? -1 : 0 },
      h('span', { 'aria-hidden': 'true' }, '×'));
      this.tiles.append(thumbnail(this.files[i], button));
    }
    const hidden = this.files.length - SHOWN;
    this.count.textContent = photos(this.files.length);
    this.more.textContent = hidden > 0 ? `and ${number(hidden)} more` : '';
  }

  /** @param {Element} tile */
  removePhoto(tile) {
    const at = [...this.tiles.children].indexOf(tile);
    this.files.splice(at, 1);
    tile.remove();
    if (!this.files.length) {
      this.remove();
      return;
    }
    this.show();
    const buttons = [...this.tiles.querySelectorAll('button')];
    const next = buttons[Math.min(at, buttons.length - 1)];
    for (const button of buttons) button.tabIndex = button === next ? 0 : -1;
    next.focus();
    update();
  }

  /** Take a photo out of the group. @param {File} file */
  take(file) {
    const at = this.files.indexOf(file);
    if (at < 0) return;
    const tile = this.tiles.children[at];
    if (tile) this.removePhoto(tile);
    else {
      this.files.splice(at, 1);
      this.show();
      update();
    }
  }

  /** @param {File} file */
  add(file) {
    this.files.push(file);
    this.show();
    update();
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
  find('learn', HTMLButtonElement).disabled = !n || !now?.can_learn || !now.can_write;
  find('check', HTMLButtonElement).disabled = !n || !now?.can_learn;
  const summary = `${photos(n)}${labels.size ? ` in ${classes(labels.size)}` : ''}`;
  $('teach-summary').textContent = n ? summary : 'No photos yet';
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
    const words = `Left out, because they are not photos: ${some(refused, 5)}.`;
    error.show($('teach-drop-error'), words);
  } else if (!made.length) {
    error.show($('teach-drop-error'), 'There are no photos in it.');
  }
  const unnamed = made.find((group) => !group.label);
  if (unnamed && !refused.length) unnamed.input.focus();
}

/** What to learn and, if wanted, every fifth photo of each class to test with. */
function split() {
  /** @type {Map<string, number>} */
  const seen = new Map();
  /** @type {{items: Labelled[], tests: Labelled[]}} */
  const parts = { items: [], tests: [] };
  const keeps = field('keep-test').checked;
  for (const { label, files } of groups) {
    for (const file of files) {
      const n = (seen.get(label) ?? 0) + 1;
      seen.set(label, n);
      parts[keeps && n % 5 === 0 ? 'tests' : 'items'].push({ label, file });
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

/**
 * Why this is too much for the server, or "".
 * @param {Labelled[]} items @param {Labelled[]} tests
 */
function tooMuch(items, tests) {
  const { files, upload_bytes: most } = knownModel().limits;
  const all = [...items, ...tests];
  const size = all.reduce((sum, { file }) => sum + file.size + 300, 0); // with a small header each
  const among = tests.length ? ` (${count(tests.length, 'test photo')} among them)` : '';
  const these = `These are ${photos(all.length)}${among}`;
  const takes = (/** @type {string} */ what) =>
    `The server takes ${what} at a time: please remove some.`;
  if (all.length > files) return `${these}. ${takes(photos(files))}`;
  return size > most ? `${these}, ${bytes(size)}. ${takes(bytes(most))}` : '';
}

/** @param {Labelled[]} tests @returns {Promise<string[]>} what to say if they could not be kept */
async function keepTests(tests) {
  if (!tests.length) return [];
  const failed = 'The test photos could not be kept: this browser has no room for them.';
  return keep(tests).then(() => [], () => [failed]);
}

/**
 * The first session settles how the model looks at photos, for good.
 * @param {Labelled[]} items @returns {Promise<boolean>} enough photos and classes, or wanted
 */
async function enoughToBegin(items) {
  const n = new Set(items.map(({ label }) => label)).size;
  if (knownModel().n_sessions || (n > 1 && items.length >= 5 * n)) return true;
  const are = `${photos(items.length)} of ${classes(n)} ${items.length === 1 ? 'is' : 'are'}`;
  const answer = await openDialog({
    title: 'Begin with so little?',
    body: [h('p', {}, `${are} very little to begin with. ${LITTLE}`)],
    actions: [{ text: 'Learn anyway', value: 'learn', kind: 'primary', testid: 'learn-anyway' }],
  });
  return Boolean(answer);
}

/** Give a photo another name, or none: then it is not learned. @type {import('./check.js').Fix} */
function fix({ file }, label) {
  const old = groups.find(({ files }) => files.includes(file));
  if (!old) return;
  old.take(file);
  if (label === null) return;
  const known = groups.find((group) => group.label === label);
  if (known) known.add(file);
  else {
    const group = new Group(label, [file]);
    groups.push(group);
    $('teach-groups').append(group.card);
    update();
  }
}

/** Say what looks wrong with the photos; nothing is learned. */
async function check() {
  error.clear();
  if (!named()) return;
  const items = groups.flatMap(({ label, files }) => files.map((file) => ({ label, file })));
  const problem = tooMuch(items, []);
  if (problem) {
    error.show($('teach-bar-error'), problem);
    return;
  }
  removeResults();
  try {
    /** @type {import('./check.js').Check} */
    const found = await runJob($('teach-jobs'), `Checking ${photos(items.length)}`,
      (signal, _, sent) => post('api/check', { body: photoForm(items), signal, sent }));
    const card = checkCard(found, items, fix);
    $('teach-jobs').prepend(card);
    card.focus();
  } catch (failure) {
    if (failure instanceof Cancelled) return;
    error.show($('teach-bar-error'), messageWithNames(failure, items));
  }
}

async function learn() {
  error.clear();
  if (!named()) return;
  const { items, tests } = split();
  if (!await enoughToBegin(items)) return;
  const all = [...keptFor(new Set(items.map(({ label }) => label))), ...tests];
  const problem = tooMuch(items, all);
  if (problem) {
    error.show($('teach-bar-error'), problem);
    return;
  }
  const taken = groups;
  groups = [];
  $('teach-groups').replaceChildren();
  removeResults();
  update();
  const labels = some([...new Set(taken.map(({ label }) => label))], 4);
  const title = `Learning ${photos(items.length)}: ${labels}`;
  try {
    const result = await runJob($('teach-jobs'), title,
      (signal, key, sent) => learnPhotos(photoForm(items, all), signal, key, sent),
      ({ id }) => keepJob(title, id));
    remember(items).catch(() => {});
    const card = resultCard(result, [...result.notes, ...await keepTests(tests)]);
    $('teach-jobs').prepend(card);
    if (focusIsLost()) card.focus();
  } catch (failure) {
    const restarted = codeOf(failure) === JOB_UNKNOWN;
    const message = restarted ? RESTARTED : messageWithNames(failure, items, all);
    giveBack(taken, failure instanceof Cancelled ? '' : message);
  } finally {
    forgetJob();
  }
}

/** What this tab learned, or was learning, before it was loaded anew. */
async function restore() {
  const card = lastResult();
  if (card) $('teach-jobs').append(card);
  const job = lastJob();
  if (!job) return;
  try {
    const result = await runJob($('teach-jobs'), job.title, job.start);
    removeResults();
    $('teach-jobs').append(resultCard(result, result.notes));
  } catch (failure) {
    if (failure instanceof Cancelled || codeOf(failure) === JOB_UNKNOWN) return;
    error.show($('teach-bar-error'), messageWithNames(failure, []));
  } finally {
    forgetJob();
  }
}

function removeResults() {
  forgetResult();
  for (const old of $('teach-jobs').querySelectorAll('.result')) old.remove();
}

/**
 * Nothing was learned: the photos stay on the page.
 * @param {Group[]} taken @param {string} problem "" if the person cancelled it
 */
function giveBack(taken, problem) {
  groups.unshift(...taken);
  $('teach-groups').prepend(...taken.map((group) => group.card));
  update();
  if (problem) {
    error.show($('teach-bar-error'), problem);
    if ($('panel-teach').hidden) announce(`Not learned. ${problem}`, true);
  } else {
    announce('Cancelled. Nothing was learned, and your photos are still here.', true);
  }
  if (focusIsLost()) $('learn').focus();
}

async function removeTests() {
  const n = count(kept().length, 'test photo');
  const answer = await openDialog({
    title: `Remove the ${n}?`,
    body: [h('p', {}, 'This browser will no longer keep them. '
      + 'What was learned stays, but its accuracy will not be measured.')],
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
  const first = !$('teach-hint').hidden;
  $('teach-lead').hidden = first;
  $('teach-title').textContent = first ? 'Start with two things' : 'Show it something new';
  for (const id of ['teach-photos', 'teach-folder', 'teach-capture-input', 'keep-test']) {
    field(id).disabled = !locked.hidden;
  }
  find('teach-camera', HTMLButtonElement).disabled = !locked.hidden;
  update();
}

/** Set the view up. @returns {import('./app.js').View} */
export function teachView() {
  for (const input of [field('teach-photos'), field('teach-folder')]) {
    input.addEventListener('change', () => {
      gather(fromInput(input.files));
      input.value = '';
    });
  }
  offerCamera('teach', (files) => gather(files.map((file) => ({ file, path: file.name }))));
  $('learn').addEventListener('click', learn);
  $('check').addEventListener('click', check);
  $('kept-remove').addEventListener('click', removeTests);
  onKept(showKept);
  addEventListener('beforeunload', (event) => { if (groups.length) event.preventDefault(); });
  let name = '';
  onModel((now) => {
    showModel(now);
    if (name !== now.name) {
      loadKept().catch(() => {});
      restore();
    }
    name = now.name;
  });
  return {
    drop: async (data) => {
      const found = fromDrop(data);
      if ($('teach-locked').hidden) gather(await found);
    },
  };
}
