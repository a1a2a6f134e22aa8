// The chart of the history: classes known as steps, accuracy as a line, one above the other.
import { svg } from './dom.js';
import { classes, percent } from './words.js';

const LEFT = 48;
const RIGHT = 56;
const PANEL = 116;
const TOP = 36;

const middle = (x, y, text) => svg('text', { class: 'mark', x, y, 'text-anchor': 'middle' }, text);

/** Whole numbers from 0 to at least `most`, about five of them. */
function ticks(most) {
  const raw = Math.max(1, most / 4);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find((each) => each * power >= raw) * power;
  return Array.from({ length: Math.ceil(most / step) + 1 }, (_, i) => i * step);
}

/** A titled panel with its horizontal lines; `y` maps a value to a height. */
function panel(title, marks, write, top, width) {
  const most = marks.at(-1) || 1;
  const y = (value) => top + PANEL * (1 - value / most);
  const lines = marks.flatMap((mark) => [
    svg('line', { class: 'grid', x1: LEFT, x2: width - RIGHT, y1: y(mark), y2: y(mark) }),
    svg('text', { class: 'mark', x: LEFT - 8, y: y(mark) + 4, 'text-anchor': 'end' }, write(mark)),
  ]);
  return { y, group: svg('g', {}, svg('text', { class: 'chart-title', x: 0, y: top - 16 }, title), ...lines) };
}

function steps(sessions, x, { y, group }) {
  const path = sessions.map(({ n_classes: n }, i) => `${i ? 'V' : `M${x(0)} `}${y(n)}H${x(i + 1)}`).join('');
  const last = sessions.at(-1).n_classes;
  group.append(
    svg('path', { class: 'area', d: `${path}V${y(0)}H${x(0)}Z` }), svg('path', { class: 'step', d: path }),
    svg('text', { class: 'value', x: x(sessions.length) + 8, y: y(last) + 4 }, last.toLocaleString('en')),
  );
}

function accuracy(sessions, x, { y, group }) {
  const points = sessions.map(({ test }, i) => ({ x: x(i + 0.5), y: y(100 * test?.accuracy), share: test?.accuracy }))
    .filter(({ share }) => share != null);
  if (!points.length) return group.append(middle(x(sessions.length / 2), y(50) - 10, 'No test photos yet'));
  const last = points.at(-1);
  const room = x(1) - x(0);
  const dot = room < 8 ? { class: 'dot tiny', r: 1.5 } : { class: 'dot', r: room < 14 ? 2.5 : 4 };
  return group.append(
    svg('path', { class: 'line', d: `M${points.map((point) => `${point.x} ${point.y}`).join('L')}` }),
    ...points.map((point) => svg('circle', { ...dot, cx: point.x, cy: point.y })),
    svg('text', { class: 'value', x: Math.max(last.x + 10, x(sessions.length) + 8), y: last.y + 4 }, percent(last.share)),
  );
}

/** Session numbers below, as many as there is room for, and the details of each when pointed at. */
function foot(sessions, x, bottom) {
  const every = ticks(Math.max(4, sessions.length / (x(sessions.length) - x(0)) * 40 * 4))[1];
  return sessions.flatMap(({ session, n_classes: n, test }, i) => [
    session % every === 0 || (every > 1 && i === 0)
      ? middle(x(i + 0.5), bottom + 20, String(session)) : '',
    svg('rect', { class: 'hover', x: x(i), y: TOP, width: x(1) - x(0), height: bottom - TOP },
      svg('title', {}, `Session ${session}: ${classes(n)}${test?.n ? `, accuracy ${percent(test.accuracy)}` : ''}`)),
  ]);
}

/**
 * @param {import('./history.js').Session[]} sessions at least one
 * @param {number} width in pixels
 * @param {string} words the text alternative
 */
export function drawChart(sessions, width, words) {
  const second = TOP + PANEL + 56;
  const x = (i) => LEFT + (width - LEFT - RIGHT) * i / sessions.length;
  const above = panel('Classes known', ticks(Math.max(...sessions.map((each) => each.n_classes))), String, TOP, width);
  const below = panel('Accuracy on test photos', [0, 50, 100], (mark) => `${mark} %`, second, width);
  steps(sessions, x, above);
  accuracy(sessions, x, below);
  const height = second + PANEL + 44;
  const box = { viewBox: `0 0 ${width} ${height}`, width, height };
  return svg('svg', { ...box, role: 'img', 'aria-label': words, testid: 'history-chart' },
    above.group, below.group, ...foot(sessions, x, second + PANEL),
    middle(x(sessions.length / 2), height - 4, 'Times it learned'));
}
