// An answer: what it says, how sure it is, and how both look.
import { $, h } from './dom.js';
import { percent } from './words.js';

/** @typedef {{label: string, score: number}} Answer */
/** @typedef {{top: Answer[], known: number|null, unknown: boolean, level: string|null,
 *   level_score: number|null}} Prediction
 *   the likeliest class first; the class or group that is probable enough */
/** @typedef {'sure'|'unsure'|'unknown'} Sureness */

const SURE = 0.6; // below it, another class may be as likely

/** @param {Prediction} prediction @returns {Answer|null} a group that says more than a class */
const groupOf = ({ top, level, level_score: score }) =>
  (level !== null && level !== String(top[0].label) ? { label: level, score: score ?? 0 } : null);

/** What it says: a class, or a group of classes. @param {Prediction} prediction */
export const answerOf = (prediction) => groupOf(prediction) ?? prediction.top[0];

/** @param {Prediction} prediction @returns {Sureness} */
export const surenessOf = (prediction) => (prediction.unknown ? 'unknown'
  : answerOf(prediction).score < SURE ? 'unsure' : 'sure');

/** @param {Prediction} prediction @returns {string} what it says, in a few words */
export function inWords(prediction) {
  const { label, score } = answerOf(prediction);
  const best = `${label}, ${percent(score)}`;
  return { unknown: `none of these (closest: ${best})`, unsure: `not sure, perhaps ${best}`,
    sure: best }[surenessOf(prediction)];
}

/** The line above the answer. @param {Prediction} prediction */
function kindWords(prediction) {
  if (prediction.unknown) return 'This looks like nothing that it knows.';
  const { score } = answerOf(prediction);
  return score < SURE ? 'Not sure. Perhaps' : score < 0.9 ? 'Probably' : 'This looks like';
}

/** The line below it. @param {Prediction} prediction */
function moreWords(prediction) {
  const [best, second] = prediction.top;
  const closest = `${best.label}, ${percent(best.score)}`;
  if (prediction.unknown) return `Closest: ${closest}.`;
  if (groupOf(prediction)) return `The likeliest of them: ${closest}.`;
  if (surenessOf(prediction) === 'sure' || !second) return '';
  return `It may as well be ${second.label}. A few more photos of both would help.`;
}

/** @param {Answer} answer */
function answerRow({ label, score }) {
  const fill = h('span', { class: 'meter-fill' });
  fill.style.width = `${score * 100}%`;
  return h('li', { testid: 'answer' }, h('span', { class: 'answer-label' }, String(label)),
    h('span', { class: 'answer-score' }, percent(score)),
    h('span', { class: 'meter', 'aria-hidden': 'true' }, fill));
}

/** Show an answer, or none. @param {Prediction|null} prediction */
export function showVerdict(prediction) {
  $('verdict').hidden = $('answers').hidden = !prediction;
  $('answers').replaceChildren(...(prediction?.top ?? []).map(answerRow));
  if (!prediction) return;
  const sureness = surenessOf(prediction);
  $('verdict').className = `verdict ${sureness}`;
  $('answers').className = `answers ${sureness}`;
  $('verdict-kind').textContent = kindWords(prediction);
  const { label, score } = answerOf(prediction);
  $('verdict-name').replaceChildren(...(sureness === 'unknown' ? ['None of these']
    : [`${label} `, h('span', { class: 'answer-score' }, percent(score))]));
  $('verdict-more').textContent = moreWords(prediction);
}
