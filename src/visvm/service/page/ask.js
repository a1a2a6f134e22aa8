// Ask: show photos, get the likeliest classes, say whether they are right.
import { codeOf, IMAGES_UNREADABLE, post } from './api.js';
import { askedBefore, keepAsked, removeAsked } from './asked.js';
import { offerCamera } from './camera.js';
import { $, announce, ErrorLine, field, find, focusIsLost, h } from './dom.js';
import { Cancelled, learnPhotos, runJob } from './jobs.js';
import { keptFor } from './kept.js';
import { knownModel, labelOf, labelProblem, model, onModel } from './model.js';
import { isPhoto, messageWithNames, photoForm } from './photos.js';
import { remember } from './pictures.js';
import { saveTable, showSeveral } from './several.js';
import { undoButton } from './undo.js';
import { answerOf, inWords, showVerdict, surenessOf } from './verdict.js';
import { forgetWhy, offerWhy, toggleWhy } from './why.js';
import { count, percent } from './words.js';

/** @typedef {import('./asked.js').Entry} Entry */
/** @typedef {import('./verdict.js').Prediction} Prediction */

const AT_ONCE = 4; // photos in one request, so that answers come one after the other
const error = new ErrorLine('ask-error');
const wrong = find('wrong', HTMLFormElement);
const rate = find('ask-rate', HTMLSelectElement);
/** @type {Entry[]} */
let entries = [];
/** @type {Entry|undefined} */
let current;
let url = '';

/** Show the photo, large; its name if the browser cannot draw it. @param {File} file */
function showPhoto(file) {
  URL.revokeObjectURL(url);
  url = URL.createObjectURL(file);
  const image = h('img', { src: url, alt: `Your photo ${file.name}`, draggable: 'false' });
  const name = h('p', { class: 'drop-title' }, file.name);
  image.addEventListener('error', () => image.replaceWith(name));
  $('ask-stage').replaceChildren(image);
  $('ask-choose').textContent = 'Choose others';
}

/** @param {boolean} open */
function openWrong(open) {
  wrong.hidden = !open;
  $('wrong-open').setAttribute('aria-expanded', String(open));
}

/** What may be done with the answer that is shown. */
function showActions() {
  const prediction = current?.prediction;
  const open = Boolean(prediction && !current?.taught);
  $('ask-actions').hidden = !open;
  $('right').hidden = Boolean(prediction?.unknown);
  if (!prediction) return;
  const { label } = prediction.top[0];
  const group = String(answerOf(prediction).label) !== String(label);
  $('right').textContent = group ? `Yes, it is ${label}` : 'Yes, right';
  $('wrong-open').textContent = prediction.unknown ? 'Say what it is' : 'That’s wrong';
  const others = prediction.unknown || group ? prediction.top : prediction.top.slice(1);
  $('wrong-chips').replaceChildren(...others.slice(0, 4).map((other) => h('button', {
    type: 'button', testid: 'chip', onclick: () => teachIt(String(other.label), false) },
  String(other.label))));
}

/** The answer of the photo that is shown, as far as there is one. */
function showCurrent() {
  const prediction = current?.prediction ?? null;
  showVerdict(prediction);
  showActions();
  showStale();
  $('ask-empty').hidden = Boolean(prediction || current?.problem);
  $('ask-empty').textContent = current ? 'Looking…' : 'Your answer will appear here.';
  $('answers').removeAttribute('aria-busy');
  if (current?.problem) error.show($('ask-error-place'), current.problem);
  else error.clear();
  if (prediction) offerWhy();
  showSeveral(entries, current, pick);
}

/** Whether an answer is older than what the model knows. */
const isStale = (/** @type {Entry} */ { prediction, revision }) =>
  Boolean(prediction && model() && revision !== model()?.revision);

function showStale() {
  $('ask-stale').hidden = !current || !isStale(current)
    || $('answers').hasAttribute('aria-busy') || $('ask-jobs').children.length > 0;
}

/** @param {Entry} entry */
function pick(entry) {
  if (entry === current) return;
  current = entry;
  error.clear();
  forgetWhy();
  openWrong(false);
  wrong.reset();
  $('ask-note').hidden = true;
  showPhoto(entry.file);
  showCurrent();
}

/** @param {Entry[]} some @returns {Promise<void>} */
async function predict(some) {
  const body = photoForm(some);
  /** @type {{revision: number, predictions: Prediction[]}} */
  const { revision, predictions } = await post(`api/predict?top=5&unknown=${rate.value}`, { body });
  for (const [i, entry] of some.entries()) {
    Object.assign(entry, { revision, prediction: predictions[i], problem: '' });
  }
}

/** What the camera sees, in a few words; nothing is kept of it. @param {File} file */
async function glance(file) {
  const path = `api/predict?top=1&unknown=${rate.value}`;
  /** @type {{predictions: Prediction[]}} */
  const { predictions: [seen] } = await post(path, { body: photoForm([{ file }]) });
  return inWords(seen);
}

/** Ask about some photos together; about each alone where one of them cannot be read.
 * @param {Entry[]} some */
async function predictAll(some) {
  try {
    await predict(some);
  } catch (failure) {
    if (some.length > 1 && codeOf(failure) === IMAGES_UNREADABLE) {
      for (const each of some) await predictAll([each]);
    } else {
      const problem = messageWithNames(failure, some);
      for (const entry of some) Object.assign(entry, { prediction: null, problem });
    }
  }
}

/** @param {Entry[]} given those that are still on the page are asked */
async function askAll(given) {
  $('answers').setAttribute('aria-busy', 'true');
  if (!current?.prediction) showCurrent();
  for (let i = 0; i < given.length; i += AT_ONCE) {
    const some = given.slice(i, i + AT_ONCE).filter((entry) => entries.includes(entry));
    if (!some.length) continue;
    await predictAll(some);
    for (const entry of some) if (entries.includes(entry)) keep(entry);
    if (current && some.includes(current)) {
      showCurrent();
      if (current.prediction) announce(`Answer: ${inWords(current.prediction)}.`);
    } else showSeveral(entries, current, pick);
  }
  const done = given.filter((entry) => entries.includes(entry));
  if (done.length > 1) announce(`${count(done.length, 'photo')} answered.`);
}

/** @param {Entry} entry */
const keep = (entry) => keepAsked(entry, entries.indexOf(entry)).catch(() => {});

/** @param {Iterable<File>} files the photos among them are asked */
function choose(files) {
  error.clear();
  const given = [...files];
  const most = knownModel().limits.files;
  const next = given.filter(isPhoto).slice(0, most);
  if (!next.length) {
    if (given.length) error.show($('ask-error-place'), `${given[0].name} is not a photo.`);
    return;
  }
  current = undefined;
  entries = next.map((file) =>
    ({ file, prediction: null, problem: '', revision: 0, taught: '' }));
  const first = entries;
  pick(first[0]);
  removeAsked().catch(() => {}).then(() => askAll(first));
}

function clearAll() {
  entries = [];
  current = undefined;
  error.clear();
  forgetWhy();
  removeAsked().catch(() => {});
  const words = h('p', { class: 'drop-title' }, 'No photo yet');
  $('ask-stage').replaceChildren(words);
  $('ask-note').hidden = true;
  openWrong(false);
  showCurrent();
  announce('Cleared.', true);
}

/** @param {Event} event */
function correct(event) {
  event.preventDefault();
  error.clear();
  const input = field('wrong-label');
  const label = labelOf(input);
  const problem = labelProblem(label);
  if (problem) error.show($('wrong-error'), problem, input);
  else teachIt(label, false);
}

/** Teach the photo that is shown. @param {string} label @param {boolean} right as it answered */
async function teachIt(label, right) {
  const entry = current;
  if (!entry) return;
  error.clear();
  openWrong(false);
  $('ask-actions').hidden = true;
  $('ask-note').hidden = true;
  if (!await learnOne(entry, label)) return;
  entry.taught = label;
  remember([{ file: entry.file, label }]).catch(() => {});
  if (entry === current) await askAgain(entry, label, right);
  else announce(`Learned: ${entry.file.name} is ${label}.`, true);
}

/** @param {Entry} entry @param {string} label @returns {Promise<boolean>} whether it was learned */
async function learnOne(entry, label) {
  const { file } = entry;
  const tests = keptFor(new Set([label]));
  try {
    const body = photoForm([{ file, label }], tests);
    await runJob($('ask-jobs'), `Learning that this is ${label}`,
      (signal, key, sent) => learnPhotos(body, signal, key, sent));
    return true;
  } catch (failure) {
    if (entry !== current) {
      announce(`${file.name} was not learned.`, true);
      return false;
    }
    showActions();
    openWrong(true);
    if (failure instanceof Cancelled) announce('Cancelled. Nothing was learned.', true);
    else {
      const message = messageWithNames(failure, [{ file }], tests);
      error.show($('wrong-error'), message, field('wrong-label'));
    }
    return false;
  }
}

/** After it was taught. @param {Entry} entry @param {string} label @param {boolean} right */
async function askAgain(entry, label, right) {
  wrong.reset();
  await predictAll([entry]);
  keep(entry);
  if (entry !== current || !entry.prediction) return;
  showCurrent();
  const { label: now, score } = answerOf(entry.prediction);
  const after = surenessOf(entry.prediction) === 'unknown' ? 'It still looks unfamiliar to it.'
    : `Its answer is now ${now}, ${percent(score)}.`;
  const words = right ? `Learned: one more photo of ${label}.` : `Learned. ${after}`;
  const note = $('ask-note');
  note.replaceChildren(...[h('span', {}, words), undoButton()].filter((each) => each !== null));
  note.hidden = false;
  announce(words);
  if (focusIsLost()) note.focus();
}

/** What the answer rests on, or the photo again. */
async function why() {
  const asked = current;
  if (!asked?.prediction) return;
  error.clear();
  try {
    const label = String(asked.prediction.top[0].label);
    await toggleWhy(asked.file, label, () => asked === current);
  } catch (failure) {
    if (asked !== current) return;
    error.show($('ask-error-place'), messageWithNames(failure, [{ file: asked.file }]));
  }
}

/** What this tab asked before it was loaded anew. */
async function restore() {
  const before = await askedBefore();
  if (!before.length || entries.length) return;
  entries = before;
  pick(before[0]);
  const open = before.filter(({ prediction, problem }) => !prediction && !problem);
  if (open.length) askAll(open);
}

function again() {
  for (const entry of entries) entry.taught = '';
  askAll(entries);
}

/** Set the view up. @returns {import('./app.js').View} */
export function askView() {
  const input = field('ask-input');
  input.addEventListener('change', () => {
    choose(input.files ?? []);
    input.value = '';
  });
  offerCamera('ask', choose, glance);
  rate.addEventListener('change', () => { if (entries.length) askAll(entries); });
  wrong.addEventListener('submit', correct);
  $('wrong-open').addEventListener('click', () => {
    openWrong(wrong.hidden);
    if (!wrong.hidden) field('wrong-label').focus();
  });
  $('right').addEventListener('click', () => {
    const label = current?.prediction?.top[0].label;
    if (label !== undefined) teachIt(String(label), true);
  });
  $('why').addEventListener('click', why);
  $('csv').addEventListener('click', () => saveTable(entries));
  $('ask-clear').addEventListener('click', clearAll);
  $('ask-again').addEventListener('click', again);
  let name = '';
  onModel((now) => {
    $('panel-ask').classList.toggle('locked', !now.can_learn || !now.can_write);
    showStale();
    if (name !== now.name) restore().catch(() => {});
    name = now.name;
  });
  return { drop: (data) => choose(data.files), paste: (data) => choose(data.files) };
}
