// Ask: show one photo, get the likeliest classes, correct the answer.
import { post } from './api.js';
import { $, announce, ErrorLine, field, find, focusIsLost, h } from './dom.js';
import { Cancelled, learnPhotos, runJob } from './jobs.js';
import { keptFor } from './kept.js';
import { labelOf, labelProblem, onModel } from './model.js';
import { isPhoto, messageWithNames, photoForm } from './photos.js';
import { forgetWhy, offerWhy, toggleWhy } from './why.js';
import { percent } from './words.js';

/** @typedef {{label: string, score: number}} Answer */
/** @typedef {{top: Answer[], unknown: boolean, level: string|null, level_score: number|null}}
 *   Prediction the likeliest class first; the class or group that is probable enough */

const error = new ErrorLine('ask-error');
const wrong = find('wrong', HTMLFormElement);
const rate = find('ask-rate', HTMLSelectElement);
/** @type {File|null} */
let photo = null;
let likeliest = '';
let url = '';

/** Show the photo, large; its name if the browser cannot draw it. @param {File} file */
function showPhoto(file) {
  URL.revokeObjectURL(url);
  url = URL.createObjectURL(file);
  const image = h('img', { src: url, alt: `Your photo ${file.name}`, draggable: 'false' });
  const name = h('p', { class: 'drop-title' }, file.name);
  image.addEventListener('error', () => image.replaceWith(name));
  $('ask-stage').replaceChildren(image);
  $('ask-choose').textContent = 'Choose another photo';
}

/** @param {Answer} answer */
function answerRow({ label, score }) {
  const fill = h('span', { class: 'meter-fill' });
  fill.style.width = `${score * 100}%`;
  return h('li', { testid: 'answer' }, h('span', { class: 'answer-label' }, String(label)),
    h('span', { class: 'answer-score' }, percent(score)),
    h('span', { class: 'meter', 'aria-hidden': 'true' }, fill));
}

/** @param {File} file @returns {Promise<Prediction>} */
async function predictionFor(file) {
  const body = photoForm([{ file }]);
  /** @type {{predictions: Prediction[]}} */
  const { predictions } = await post(`api/predict?top=5&unknown=${rate.value}`, { body });
  return predictions[0];
}

/** @param {Prediction} prediction @returns {Answer|null} a group that says more than a class */
const groupOf = ({ top, level, level_score: score }) =>
  (level !== null && level !== String(top[0].label) ? { label: level, score: score ?? 0 } : null);

/** @param {Prediction} prediction @returns {string} what it says, in a few words */
function inWords(prediction) {
  const { top, unknown } = prediction;
  const { label, score } = groupOf(prediction) ?? top[0];
  const best = `${label}, ${percent(score)}`;
  return unknown ? `none of these (closest: ${best})` : best;
}

/** @param {File} asked @returns {Promise<Prediction|null>} null if it failed or another came */
async function ask(asked) {
  $('ask-empty').hidden = $('answers').children.length > 0;
  $('ask-empty').textContent = 'Looking…';
  $('answers').setAttribute('aria-busy', 'true');
  try {
    const prediction = await predictionFor(asked);
    if (asked !== photo) return null;
    const group = prediction.unknown ? null : groupOf(prediction);
    $('answers').replaceChildren(...prediction.top.map(answerRow));
    $('ask-level').textContent = group ? `${group.label}, ${percent(group.score)}` : '';
    $('ask-level').hidden = group === null;
    $('answers').hidden = false;
    $('ask-unknown').hidden = !prediction.unknown;
    likeliest = String(prediction.top[0].label);
    offerWhy();
    wrong.hidden = false;
    announce(`Answer: ${inWords(prediction)}.`);
    return prediction;
  } catch (failure) {
    if (asked !== photo) return null;
    $('answers').hidden = true;
    $('ask-level').hidden = true;
    $('ask-unknown').hidden = true;
    wrong.hidden = true;
    error.show($('ask-error-place'), messageWithNames(failure, [{ file: asked }]));
    return null;
  } finally {
    if (asked === photo) {
      $('ask-empty').hidden = true;
      $('answers').removeAttribute('aria-busy');
    }
  }
}

/** @param {Iterable<File>} files the first photo among them is asked */
function choose(files) {
  error.clear();
  const given = [...files];
  const next = given.find(isPhoto);
  if (!next) {
    if (given.length) error.show($('ask-error-place'), `${given[0].name} is not a photo.`);
    return;
  }
  photo = next;
  forgetWhy();
  $('ask-note').hidden = true;
  $('ask-level').hidden = true;
  $('ask-unknown').hidden = true;
  wrong.hidden = true;
  wrong.reset();
  $('answers').replaceChildren();
  showPhoto(next);
  ask(next);
}

/** @param {Event} event */
async function correct(event) {
  event.preventDefault();
  error.clear();
  const [taught, input] = [photo, field('wrong-label')];
  const label = labelOf(input);
  const problem = labelProblem(label);
  if (problem) error.show($('wrong-error'), problem, input);
  if (!taught || problem) return;
  wrong.hidden = true;
  $('ask-note').hidden = true;
  if (!await learnOne(taught, label)) return;
  if (taught !== photo) announce(`Learned: ${taught.name} is ${label}.`, true);
  else await askAgain(taught);
}

/** @param {File} file @param {string} label @returns {Promise<boolean>} whether it was learned */
async function learnOne(file, label) {
  const tests = keptFor(new Set([label]));
  try {
    const body = photoForm([{ file, label }], tests);
    await runJob($('ask-jobs'), `Learning that this is ${label}`,
      (signal, key) => learnPhotos(body, signal, key));
    return true;
  } catch (failure) {
    if (file !== photo) {
      announce(`${file.name} was not learned.`, true);
      return false;
    }
    wrong.hidden = false;
    if (failure instanceof Cancelled) announce('Cancelled. Nothing was learned.', true);
    else {
      const message = messageWithNames(failure, [{ file }], tests);
      error.show($('wrong-error'), message, field('wrong-label'));
    }
    return false;
  }
}

/** After the correction. @param {File} file */
async function askAgain(file) {
  wrong.reset();
  const prediction = await ask(file);
  if (!prediction) return;
  const note = $('ask-note');
  note.textContent = `Learned. Its answer is now ${inWords(prediction)}.`;
  note.hidden = false;
  announce(note.textContent);
  if (focusIsLost()) note.focus();
}

/** What the answer rests on, or the photo again. */
async function why() {
  const asked = photo;
  if (!asked) return;
  error.clear();
  try {
    await toggleWhy(asked, likeliest, () => asked === photo);
  } catch (failure) {
    if (asked !== photo) return;
    error.show($('ask-error-place'), messageWithNames(failure, [{ file: asked }]));
  }
}

/** Set the view up. @returns {import('./app.js').View} */
export function askView() {
  const input = field('ask-input');
  input.addEventListener('change', () => {
    choose(input.files ?? []);
    input.value = '';
  });
  rate.addEventListener('change', () => { if (photo) ask(photo); });
  wrong.addEventListener('submit', correct);
  $('why').addEventListener('click', why);
  onModel((now) => { wrong.classList.toggle('locked', !now.can_learn || !now.can_write); });
  return { drop: (data) => choose(data.files), paste: (data) => choose(data.files) };
}
