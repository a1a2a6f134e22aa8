// Ask: show one photo, get the likeliest classes, correct the answer.
import { post } from './api.js';
import { $, announce, ErrorLine, h } from './dom.js';
import { Cancelled, runJob, sessionOf } from './jobs.js';
import { keptFor } from './kept.js';
import { labelOf, labelProblem, model, onModel } from './model.js';
import { isPhoto, photoForm } from './photos.js';
import { percent } from './words.js';

const error = new ErrorLine('ask-error');
/** @type {File|null} */
let photo = null;
let url = '';

/** The photo, large; its name if the browser cannot draw it. */
function showPhoto() {
  URL.revokeObjectURL(url);
  url = URL.createObjectURL(photo);
  const { name } = photo;
  const image = h('img', { src: url, alt: `Your photo ${name}`, draggable: 'false' });
  image.addEventListener('error', () => image.replaceWith(h('p', { class: 'drop-title' }, name)));
  $('ask-stage').replaceChildren(image);
  $('ask-choose').textContent = 'Choose another photo';
}

function answerRow({ label, score }) {
  const fill = h('span', { class: 'meter-fill' });
  fill.style.width = `${score * 100}%`;
  return h('li', { testid: 'answer' },
    h('span', { class: 'answer-label' }, label), h('span', { class: 'answer-score' }, percent(score)),
    h('span', { class: 'meter', 'aria-hidden': 'true' }, fill));
}

/** @returns {Promise<{label: string, score: number}|null>} the first answer, null if it failed or another photo came */
async function ask() {
  const asked = photo;
  $('ask-empty').hidden = $('answers').children.length > 0;
  $('ask-empty').textContent = 'Looking…';
  $('answers').setAttribute('aria-busy', 'true');
  try {
    const { predictions: [{ top }] } = await post('api/predict?top=5', { body: photoForm([{ file: asked }]) });
    if (asked !== photo) return null;
    $('answers').replaceChildren(...top.map(answerRow));
    $('answers').hidden = false;
    $('wrong').hidden = false;
    announce(`Answer: ${top[0].label}, ${percent(top[0].score)}.`);
    return top[0];
  } catch (failure) {
    if (asked !== photo) return null;
    $('answers').hidden = true;
    $('wrong').hidden = true;
    error.show($('ask-error-place'), failure.message);
    return null;
  } finally {
    if (asked === photo) {
      $('ask-empty').hidden = true;
      $('answers').removeAttribute('aria-busy');
    }
  }
}

/** @param {File[]} files the first photo among them is asked */
function choose(files) {
  error.clear();
  const next = files.find(isPhoto);
  if (!next) {
    if (files.length) error.show($('ask-error-place'), `${files[0].name} is not a photo.`);
    return;
  }
  photo = next;
  $('ask-note').hidden = true;
  $('wrong').hidden = true;
  $('wrong').reset();
  $('answers').replaceChildren();
  showPhoto();
  ask();
}

async function teachIt(event) {
  event.preventDefault();
  error.clear();
  const taught = photo;
  const label = labelOf($('wrong-label'));
  const problem = labelProblem(label);
  if (problem) return error.show($('wrong-error'), problem, $('wrong-label'));
  $('wrong').hidden = true;
  $('ask-note').hidden = true;
  try {
    const body = photoForm([{ file: taught, label }], keptFor(new Set([label])));
    const before = model().n_sessions;
    const start = (signal) => post('api/learn', { body, signal });
    await runJob($('ask-jobs'), `Learning that this is ${label}`, start, () => sessionOf([{ label }], before));
  } catch (failure) {
    if (taught !== photo) return announce(`${taught.name} was not learned.`, true);
    $('wrong').hidden = false;
    if (failure instanceof Cancelled) return announce('Cancelled. Nothing was learned.', true);
    return error.show($('wrong-error'), failure.message, $('wrong-label'));
  }
  if (taught !== photo) return announce(`Learned: ${taught.name} is ${label}.`, true);
  return askAgain();
}

/** After the correction. */
async function askAgain() {
  $('wrong').reset();
  const answer = await ask();
  if (!answer) return;
  const note = $('ask-note');
  note.textContent = `Learned. Its answer is now ${answer.label}, ${percent(answer.score)}.`;
  note.hidden = false;
  announce(note.textContent);
  if (document.activeElement === document.body) note.focus();
}

/** Set the view up. @returns {{drop: (data: DataTransfer) => void, paste: (data: DataTransfer) => void}} */
export function askView() {
  $('ask-input').addEventListener('change', ({ target }) => {
    choose([...target.files]);
    target.value = '';
  });
  $('wrong').addEventListener('submit', teachIt);
  onModel((now) => $('wrong').classList.toggle('locked', !now.can_learn || !now.can_write));
  return { drop: (data) => choose([...data.files]), paste: (data) => choose([...data.files]) };
}
