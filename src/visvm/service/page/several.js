// Several photos asked at once: a table, and the same as a CSV file.
import { $, h } from './dom.js';
import { thumbnail } from './photos.js';
import { answerOf, surenessOf } from './verdict.js';
import { count, percent, photos } from './words.js';

/** @typedef {import('./asked.js').Entry} Entry */

const FLAGS = { sure: '', unsure: 'not sure', unknown: 'none of these; closest' };

/** @type {Map<Entry, {row: HTMLElement, answer: HTMLElement, score: HTMLElement,
 *   pick: HTMLElement}>} */
const rows = new Map();

/** @param {Entry} entry @param {(entry: Entry) => void} pick */
function newRow(entry, pick) {
  const button = h('button', { type: 'button', class: 'pick', onclick: () => pick(entry) },
    h('span', {}, entry.file.name));
  const answer = h('td', { role: 'cell', testid: 'asked-answer' });
  const score = h('td', { role: 'cell', class: 'number' });
  const tile = h('ul', { class: 'one', 'aria-hidden': 'true' }, thumbnail(entry.file, h('span')));
  const row = h('tr', { role: 'row', testid: 'asked-row' },
    h('td', { role: 'cell' }, h('div', { class: 'class-line' }, tile, button)), answer, score);
  return { row, answer, score, pick: button };
}

/** What a row says. @param {Entry} entry @returns {(Node|string)[]} */
function answerCell({ prediction, problem, taught }) {
  if (taught) return [h('strong', {}, taught), h('span', { class: 'muted small' }, ' learned')];
  if (problem) return [h('span', { class: 'flag bad' }, problem)];
  if (!prediction) return [h('span', { class: 'muted' }, 'Looking…')];
  const flag = FLAGS[surenessOf(prediction)];
  const name = h('strong', {}, String(answerOf(prediction).label));
  return flag ? [h('span', { class: 'flag' }, flag), name] : [name];
}

/** The sentence above the table. @param {Entry[]} entries */
function summary(entries) {
  const answered = entries.filter(({ prediction }) => prediction);
  const rest = entries.filter(({ prediction, problem }) => !prediction && !problem).length;
  const doubtful = answered.filter(({ prediction: each }) => each && surenessOf(each) !== 'sure');
  const words = [`${photos(entries.length)}.`];
  if (rest) words.push(`${count(rest, 'is', 'are')} still to come.`);
  if (doubtful.length) words.push(`${count(doubtful.length, 'answer')} to look at yourself.`);
  return words.join(' ');
}

/**
 * Show the table where there is more than one photo.
 * @param {Entry[]} entries @param {Entry|undefined} current
 * @param {(entry: Entry) => void} pick
 */
export function showSeveral(entries, current, pick) {
  $('ask-several').hidden = entries.length < 2;
  for (const entry of rows.keys()) if (!entries.includes(entry)) rows.delete(entry);
  for (const entry of entries) {
    const cells = rows.get(entry) ?? newRow(entry, pick);
    rows.set(entry, cells);
    cells.answer.replaceChildren(...answerCell(entry));
    const shown = entry.prediction && !entry.taught ? percent(answerOf(entry.prediction).score) : '';
    cells.score.textContent = shown;
    cells.pick.setAttribute('aria-current', String(entry === current));
  }
  const wanted = entries.flatMap((entry) => rows.get(entry)?.row ?? []);
  const place = $('asked-rows');
  if (wanted.some((row, i) => place.children[i] !== row) || place.children.length > wanted.length) {
    place.replaceChildren(...wanted);
  }
  $('several-summary').textContent = summary(entries);
}

/** A text that no spreadsheet takes for a formula, in quotes where it needs them.
 * @param {string} text */
function cell(text) {
  const safe = /^'*[=+\-@\t\r\n＝＋－＠]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** The table of `visvm predict --csv`. @param {Entry[]} entries */
function table(entries) {
  const lines = entries.flatMap(({ file, prediction }) => {
    if (!prediction) return [];
    const { top: [{ label, score }], known, unknown } = prediction;
    return [[cell(file.name), cell(String(label)), score, known ?? '', Number(unknown)].join(',')];
  });
  return ['path,label,score,known,unknown', ...lines, ''].join('\n');
}

/** @param {Entry[]} entries */
export function saveTable(entries) {
  const url = URL.createObjectURL(new Blob([table(entries)], { type: 'text/csv' }));
  h('a', { href: url, download: 'answers.csv' }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
}
