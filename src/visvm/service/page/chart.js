// The chart of the history: classes known as steps, accuracy as a line, one above the other.
import { svg } from './dom.js';
import { classes, number, percent } from './words.js';

/** @typedef {import('./model.js').Session} Session */
/** @typedef {(value: number) => number} Scale */
/** @typedef {{y: Scale, group: SVGGElement}} Panel `y` maps a value to a height */

const LEFT = 48;
const RIGHT = 56;
const PANEL = 116;
const TOP = 36;

/** @param {number} x @param {number} y @param {string} text */
const middle = (x, y, text) => svg('text', { class: 'mark', x, y, 'text-anchor': 'middle' }, text);

/** The distance of about four whole numbers from 0 to `most`. @param {number} most */
function stepOf(most) {
  const raw = Math.max(1, most / 4);
  const power = 10 ** Math.floor(Math.log10(raw));
  return power * ([1, 2, 5].find((each) => each * power >= raw) ?? 10);
}

/** Whole numbers from 0 to at least `most`, about five of them. @param {number} most */
function ticks(most) {
  const step = stepOf(most);
  return Array.from({ length: Math.ceil(most / step) + 1 }, (_, i) => i * step);
}

/**
 * A titled panel with its horizontal lines.
 * @param {string} title @param {number[]} marks @param {(mark: number) => string} write
 * @param {number} top @param {number} width
 * @returns {Panel}
 */
function panel(title, marks, write, top, width) {
  const most = marks.at(-1) || 1;
  /** @type {Scale} */
  const y = (value) => top + PANEL * (1 - value / most);
  const lines = marks.flatMap((mark) => [
    svg('line', { class: 'grid', x1: LEFT, x2: width - RIGHT, y1: y(mark), y2: y(mark) }),
    svg('text', { class: 'mark', x: LEFT - 8, y: y(mark) + 4, 'text-anchor': 'end' }, write(mark)),
  ]);
  const name = svg('text', { class: 'chart-title', x: 0, y: top - 16 }, title);
  return { y, group: svg('g', {}, name, ...lines) };
}

/** @param {Session[]} sessions @param {Scale} x @param {Panel} panel */
function drawSteps(sessions, x, { y, group }) {
  const path = sessions
    .map(({ n_classes: n }, i) => `${i ? 'V' : `M${x(0)} `}${y(n)}H${x(i + 1)}`).join('');
  const last = sessions[sessions.length - 1].n_classes;
  group.append(
    svg('path', { class: 'area', d: `${path}V${y(0)}H${x(0)}Z` }),
    svg('path', { class: 'step', d: path }),
    svg('text', { class: 'value', x: x(sessions.length) + 8, y: y(last) + 4 }, number(last)),
  );
}

/** @param {Session[]} sessions, some of them tested @param {Scale} x @param {Panel} panel */
function drawAccuracy(sessions, x, { y, group }) {
  const points = sessions.flatMap(({ test }, i) =>
    (test?.n ? [{ x: x(i + 0.5), y: y(100 * test.accuracy), share: test.accuracy }] : []));
  const last = points[points.length - 1];
  const room = x(1) - x(0);
  const dot = room < 8 ? { class: 'dot tiny', r: 1.5 } : { class: 'dot', r: room < 14 ? 2.5 : 4 };
  const line = points.map((point) => `${point.x} ${point.y}`).join('L');
  const end = Math.max(last.x + 10, x(sessions.length) + 8);
  group.append(
    svg('path', { class: 'line', d: `M${line}` }),
    ...points.map((point) => svg('circle', { ...dot, cx: point.x, cy: point.y })),
    svg('text', { class: 'value', x: end, y: last.y + 4 }, percent(last.share)),
  );
}

/**
 * Session numbers below, as many as there is room for, and the details of each when pointed at.
 * @param {Session[]} sessions @param {Scale} x @param {number} bottom
 */
function foot(sessions, x, bottom) {
  const every = stepOf(Math.max(4, sessions.length / (x(sessions.length) - x(0)) * 40 * 4));
  return sessions.flatMap(({ session, n_classes: n, test }, i) => {
    const accuracy = test?.n ? `, accuracy ${percent(test.accuracy)}` : '';
    const marked = session % every === 0 || (every > 1 && i === 0);
    return [
      marked ? middle(x(i + 0.5), bottom + 20, String(session)) : '',
      svg('rect', { class: 'hover', x: x(i), y: TOP, width: x(1) - x(0), height: bottom - TOP },
        svg('title', {}, `Session ${session}: ${classes(n)}${accuracy}`)),
    ];
  });
}

/**
 * @param {Session[]} sessions at least one
 * @param {number} width in pixels
 * @param {string} words the text alternative
 */
export function drawChart(sessions, width, words) {
  const second = TOP + PANEL + 56;
  /** @type {Scale} */
  const x = (i) => LEFT + (width - LEFT - RIGHT) * i / sessions.length;
  const most = Math.max(...sessions.map((each) => each.n_classes));
  const above = panel('Classes known', ticks(most), String, TOP, width);
  const share = (/** @type {number} */ mark) => `${mark} %`;
  const below = panel('Accuracy on test photos', [0, 50, 100], share, second, width);
  drawSteps(sessions, x, above);
  const tested = sessions.some(({ test }) => test?.n);
  if (tested) drawAccuracy(sessions, x, below);
  const bottom = (tested ? second : TOP) + PANEL;
  const height = bottom + 44;
  const box = { viewBox: `0 0 ${width} ${height}`, width, height };
  return svg('svg', { ...box, role: 'img', 'aria-label': words, testid: 'history-chart' },
    above.group, ...(tested ? [below.group] : []), ...foot(sessions, x, bottom),
    middle(x(sessions.length / 2), height - 4, 'Times it learned'));
}
