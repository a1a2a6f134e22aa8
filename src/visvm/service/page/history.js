// History: a chart and a time line of everything that was learned.
import { drawChart } from './chart.js';
import { $, ErrorLine, h, messageOf } from './dom.js';
import { history, onModel } from './model.js';
import { classes, percent, photos, some, testWords } from './words.js';

/** @typedef {import('./model.js').Session} Session */

const error = new ErrorLine('history-error-line');
const date = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'short' });
/** @type {Session[]} */
let sessions = [];
let stale = true;
let width = 0;

/** @param {Session} session */
function item({ learned_at: at, new_classes: fresh, returning_classes: known, ...session }) {
  const more = `More photos of ${some(known, 20)}`;
  const numbers = `${photos(session.n_images)}, ${classes(session.n_classes)} known after it.`;
  return h('li', { testid: 'history-item' },
    h('time', { datetime: at, class: 'muted small' }, date.format(new Date(at))),
    h('p', { class: 'what' }, fresh.length ? `New: ${some(fresh, 20)}` : more),
    fresh.length && known.length ? h('p', {}, more) : null,
    h('p', { class: 'muted small' }, [numbers, testWords(session.test), ...session.notes].join(' ')));
}

/** What the chart shows, in words. */
function caption() {
  const [first, last] = [sessions[0].n_classes, sessions[sessions.length - 1].n_classes];
  const shares = sessions.flatMap(({ test }) => (test?.n ? [percent(test.accuracy)] : []));
  const known = sessions.length === 1 ? `It knew ${classes(last)} after the first time.`
    : `It learned ${sessions.length} times: ${classes(first)} after the first, ${last} after `
      + 'the last.';
  if (!shares.length) {
    return `${known} There is no accuracy yet: keep every fifth photo for testing when you teach.`;
  }
  const now = shares[shares.length - 1];
  const change = shares.length > 1 ? `${shares[0]} at first, ${now} at last` : now;
  return `${known} Accuracy on test photos: ${change}.`;
}

function draw() {
  width = $('history-chart').clientWidth;
  if (!width || !sessions.length) return;
  $('history-chart').replaceChildren(drawChart(sessions, width, caption()));
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
    error.show($('history-error'), messageOf(failure));
  }
}

/** Set the view up. @returns {import('./app.js').View} */
export function historyView() {
  onModel(() => {
    stale = true;
    load();
  });
  const chart = $('history-chart');
  new ResizeObserver(() => { if (chart.clientWidth !== width) draw(); }).observe(chart);
  return { shown: load };
}
