// History: a chart and a time line of everything that was learned.
import { drawChart } from './chart.js';
import { $, ErrorLine, h } from './dom.js';
import { history, onModel } from './model.js';
import { classes, percent, photos, some, testWords } from './words.js';

/**
 * @typedef {{session: number, learned_at: string, n_images: number, new_classes: string[], returning_classes: string[],
 *   n_classes: number, test: null|{n: number, accuracy: number, accuracy_before: number|null}}} Session
 */

const error = new ErrorLine('history-error-line');
const date = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'short' });
/** @type {Session[]} */
let sessions = [];
let stale = true;
let width = 0;

/** @param {Session} session */
function item({ learned_at: at, new_classes: fresh, returning_classes: known, n_images: n, n_classes: total, test }) {
  return h('li', { testid: 'history-item' },
    h('time', { datetime: at, class: 'muted small' }, date.format(new Date(at))),
    h('p', { class: 'what' }, fresh.length ? `New: ${some(fresh, 20)}` : `More photos of ${some(known, 20)}`),
    fresh.length && known.length ? h('p', {}, `More photos of ${some(known, 20)}`) : null,
    h('p', { class: 'muted small' }, [`${photos(n)}, ${classes(total)} known after it.`, testWords(test)].join(' ')));
}

/** What the chart shows, in words. */
function caption() {
  const [first, last] = [sessions[0], sessions.at(-1)];
  const tested = sessions.filter(({ test }) => test?.n);
  const known = sessions.length === 1 ? `It knew ${classes(last.n_classes)} after the first time.`
    : `It learned ${sessions.length} times: ${classes(first.n_classes)} after the first, ${last.n_classes} after the last.`;
  if (!tested.length) return `${known} There is no accuracy yet: keep every fifth photo for testing when you teach.`;
  const [before, now] = [tested[0], tested.at(-1)].map(({ test }) => percent(test.accuracy));
  return `${known} Accuracy on test photos: ${tested.length > 1 ? `${before} at first, ${now} at last` : now}.`;
}

function draw() {
  width = $('history-chart').clientWidth;
  if (width && sessions.length) $('history-chart').replaceChildren(drawChart(sessions, width, $('history-caption').textContent));
}

function show() {
  $('history-empty').hidden = sessions.length > 0;
  $('history-figure').hidden = !sessions.length;
  $('history-caption').textContent = sessions.length ? caption() : '';
  $('history-list').replaceChildren(...sessions.map(item).reverse());
  draw();
}

async function load() {
  if (!stale || $('panel-history').hidden) return;
  stale = false;
  try {
    ({ sessions } = await history());
    error.clear();
    show();
  } catch (failure) {
    stale = true;
    error.show($('history-error'), failure.message);
  }
}

/** Set the view up. @returns {{shown: () => void}} */
export function historyView() {
  onModel(() => {
    stale = true;
    load();
  });
  new ResizeObserver(() => { if ($('history-chart').clientWidth !== width) draw(); }).observe($('history-chart'));
  return { shown: load };
}
