// History: a chart and a time line of everything that was learned.
import { drawChart } from './chart.js';
import { $, ErrorLine, h, messageOf } from './dom.js';
import { history, onModel } from './model.js';
import { undoLast } from './undo.js';
import { classes, percent, photos, some, testWords } from './words.js';

/** @typedef {import('./model.js').Session} Session */

const EACH = 'Each time it learned or was changed, from the newest to the first.';
const error = new ErrorLine('history-error-line');
const date = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'short' });
/** @type {Session[]} */
let sessions = [];
/** @type {import('./model.js').Event[]} */
let events = [];
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
    ...[numbers, testWords(session.test), ...session.notes].filter(Boolean)
      .map((words) => h('p', { class: 'muted small' }, words)));
}

/** @param {import('./model.js').Event} event */
const eventItem = ({ at, said }) => h('li', { class: 'changed', testid: 'history-event' },
  h('time', { datetime: at, class: 'muted small' }, date.format(new Date(at))),
  h('p', { class: 'what' }, said.charAt(0).toUpperCase() + said.slice(1)));

/** Sessions and other changes, the first one first. */
function items() {
  const all = [...sessions.map((each) => ({ at: Date.parse(each.learned_at), made: item(each) })),
    ...events.map((each) => ({ at: Date.parse(each.at), made: eventItem(each) }))];
  return all.sort((a, b) => a.at - b.at).map(({ made }) => made);
}

/** What the chart shows, in words. */
function caption() {
  const [first, last] = [sessions[0].n_classes, sessions[sessions.length - 1].n_classes];
  const shares = sessions.flatMap(({ test }) => (test?.n ? [percent(test.accuracy)] : []));
  const known = sessions.length === 1 ? `It knew ${classes(last)} after the first time.`
    : `It learned ${sessions.length} times: ${classes(first)} after the first, ${last} after `
      + 'the last.';
  if (!shares.length) {
    return `${known} To see how often it is right, keep every fifth photo for testing when you `
      + 'teach.';
  }
  const now = shares[shares.length - 1];
  const change = shares.length > 1 ? `${shares[0]} at first, ${now} now` : now;
  return `${known} Accuracy on test photos: ${change}.`;
}

function draw() {
  width = $('history-chart').clientWidth;
  if (!width || sessions.length < 2) return;
  $('history-chart').replaceChildren(drawChart(sessions, width, caption()));
}

function show() {
  $('history-empty').hidden = sessions.length > 0;
  // one point is no line: a sentence says more
  const line = sessions.length > 1;
  $('history-figure').hidden = !line;
  $('history-caption').textContent = line ? caption() : '';
  $('history-sentence').textContent = sessions.length === 1 ? caption() : EACH;
  $('history-list').replaceChildren(...items().reverse());
  draw();
}

async function load() {
  if (!stale || $('panel-history').hidden) return;
  stale = false;
  try {
    ({ sessions, events } = await history());
    error.clear();
    show();
  } catch (failure) {
    stale = true;
    error.show($('history-error'), messageOf(failure));
  }
}

/** Set the view up. @returns {import('./app.js').View} */
export function historyView() {
  $('undo').addEventListener('click', undoLast);
  onModel((now) => {
    $('undo-place').hidden = !now.can_undo || !now.can_write;
    $('undo-what').textContent = now.can_undo ? `It ${now.can_undo}.` : '';
    stale = true;
    load();
  });
  const chart = $('history-chart');
  new ResizeObserver(() => { if (chart.clientWidth !== width) draw(); }).observe(chart);
  return { shown: load };
}
