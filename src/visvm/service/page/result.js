// What the last session did: a card that a reload does not lose, nor the job while it runs.
import { call } from './api.js';
import { announce, h } from './dom.js';
import { knownModel } from './model.js';
import { undoButton } from './undo.js';
import { learnWords, some, testWords } from './words.js';

/** @typedef {import('./model.js').Session} Session */
/** @typedef {{model: string, title: string, id: string}} Running */

const RESULT = 'visvm-result';
const JOB = 'visvm-job';

/** @template T @param {string} key @returns {T|null} what this tab keeps of this model */
function stored(key) {
  const found = JSON.parse(sessionStorage.getItem(key) ?? 'null');
  return found?.model === knownModel().name ? found : null;
}

/** @param {string} key @param {object} value */
const store = (key, value) =>
  sessionStorage.setItem(key, JSON.stringify({ model: knownModel().name, ...value }));

export const forgetResult = () => sessionStorage.removeItem(RESULT);

/** @param {Session} result @param {string[]} notes @param {boolean} [quiet] seen before */
export function resultCard(result, notes, quiet = false) {
  const { new_classes: fresh } = result;
  const close = h('button', { type: 'button', class: 'quiet', onclick: () => {
    forgetResult();
    card.remove();
  } }, 'Close');
  const sentence = [learnWords(result), testWords(result.test)].filter(Boolean).join(' ');
  const card = h('div', { class: 'card result', tabindex: -1, testid: 'result' },
    h('h3', {}, 'Learned'), h('p', {}, sentence),
    fresh.length ? h('p', { class: 'muted small' }, `New: ${some(fresh, 12)}`) : null,
    notes.length ? h('ul', { class: 'small' }, ...notes.map((note) => h('li', {}, note))) : null,
    h('div', { class: 'row' }, h('a', { class: 'button', href: '#ask' }, 'Try it'), undoButton(),
      close));
  if (!quiet) {
    store(RESULT, { result, notes });
    announce(`Learned. ${sentence}`, document.getElementById('panel-teach')?.hidden);
  }
  return card;
}

/** The card of before a reload, where nothing was learned or undone since. */
export function lastResult() {
  /** @type {{result: Session, notes: string[]}|null} */
  const kept = stored(RESULT);
  if (!kept || kept.result.session !== knownModel().n_sessions) return null;
  return resultCard(kept.result, kept.notes, true);
}

/** @param {string} title @param {string} id of a job that was taken */
export const keepJob = (title, id) => store(JOB, { title, id });
export const forgetJob = () => sessionStorage.removeItem(JOB);

/** The job that ran when the page was loaded anew.
 * @returns {{title: string, start: () => Promise<import('./jobs.js').Job<Session>>}|null} */
export function lastJob() {
  /** @type {Running|null} */
  const kept = stored(JOB);
  return kept && { title: kept.title, start: () => call(`api/jobs/${kept.id}`) };
}
