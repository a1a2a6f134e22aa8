// The page: tabs, what is dropped or pasted, the model's name and the connection.
import { codeOf, NO_ANSWER, TOKEN_REQUIRED } from './api.js';
import { askView } from './ask.js';
import { classesView } from './classes.js';
import { $, h, messageOf, roving } from './dom.js';
import { historyView } from './history.js';
import { openKeeps } from './keeps.js';
import { menuButton } from './menu.js';
import { model, onModel, pollModel, refreshModel } from './model.js';
import { teachView } from './teach.js';
import { canUndo, undoLast } from './undo.js';
import { classes, photos } from './words.js';

/**
 * @typedef {{shown?: () => void, drop?: (data: DataTransfer) => void,
 *   paste?: (data: DataTransfer) => void}} View what a view does when it is shown, or given files
 */

/** @type {Map<string, {name: string, view: View}>} */
const views = new Map([
  ['teach', { name: 'Teach', view: teachView() }],
  ['ask', { name: 'Ask', view: askView() }],
  ['classes', { name: 'Classes', view: classesView() }],
  ['history', { name: 'History', view: historyView() }],
]);
const seen = () => (views.has(location.hash.slice(1)) ? location.hash.slice(1) : 'teach');
const viewSeen = () => views.get(seen())?.view;

function showView() {
  const now = seen();
  for (const name of views.keys()) {
    const tab = $(`tab-${name}`);
    tab.setAttribute('aria-selected', String(name === now));
    tab.tabIndex = name === now ? 0 : -1;
    $(`panel-${name}`).hidden = name !== now;
  }
  titlePage();
  $('status').className = 'visually-hidden';
  viewSeen()?.shown?.();
}

let modelName = 'visvm';
function titlePage() {
  document.title = `${views.get(seen())?.name} · ${modelName}`;
}

/** @param {import('./model.js').Model} now */
function showModel(now) {
  modelName = now.name;
  titlePage();
  $('model-name').textContent = now.name;
  const n = now.classes.length;
  const known = `Knows ${classes(n)} from ${photos(now.n_images)}`;
  $('model-summary').textContent = n ? known : 'Knows nothing yet';
  $('about').textContent = `visvm ${now.version}`;
  const options = now.classes.map(({ label }) => h('option', { value: label }));
  $('known-classes').replaceChildren(...options);
}

/** @param {unknown} error of the last request for the model, null if there was none */
function showConnection(error) {
  const place = $('connection');
  const text = error === null ? '' : codeOf(error) !== NO_ANSWER ? messageOf(error)
    : 'The server does not answer. Trying again every two seconds.';
  if (place.dataset.text === text) return;
  place.dataset.text = text;
  place.hidden = !text;
  place.replaceChildren(h('p', {}, text));
  if (codeOf(error) !== TOKEN_REQUIRED) return;
  place.append(h('button', { type: 'button', onclick: () => connect() }, 'Enter the token'));
}

const connect = (background = false) =>
  refreshModel(background).then(() => showConnection(null), showConnection);

/** Whether files may be dropped or pasted now. @param {DataTransfer|null} data */
const isGiven = (data) => data?.files.length && !document.querySelector('dialog[open]');

/** Drops count anywhere in the window, so that a near miss does not leave the page. */
function listenForDrops() {
  let leaving = 0;
  addEventListener('dragover', (event) => {
    event.preventDefault();
    document.body.classList.add('dragging');
    clearTimeout(leaving);
    leaving = setTimeout(() => document.body.classList.remove('dragging'), 200);
  });
  addEventListener('drop', (event) => {
    event.preventDefault();
    document.body.classList.remove('dragging');
    const data = event.dataTransfer;
    if (data && isGiven(data)) viewSeen()?.drop?.(data);
  });
  addEventListener('paste', ({ clipboardData: data }) => {
    if (data && isGiven(data)) viewSeen()?.paste?.(data);
  });
}

/** @param {Element} tab */
const open = (tab) => {
  location.hash = tab.id.replace('tab-', '');
  showView();
};
const tabs = $('tabs');
tabs.addEventListener('click', ({ target }) => {
  const tab = target instanceof Element && target.closest('[role=tab]'); // not the icon in it
  if (tab) open(tab);
});
roving(tabs, '[role=tab]', open);
addEventListener('hashchange', showView);
document.addEventListener('visibilitychange', () => { if (!document.hidden) connect(true); });
/** What is wanted from every view. @returns {import('./menu.js').Choice[]} */
const moreChoices = () => [
  ...(model() && canUndo()
    ? [{ text: 'Undo the last change…', testid: 'menu-undo', run: undoLast }] : []),
  { text: 'What this browser keeps…', testid: 'menu-keeps', run: openKeeps },
];
$('more').append(menuButton('More', 'more', moreChoices).place);
$('keeps').addEventListener('click', openKeeps);
listenForDrops();
onModel(showModel);
showView();
pollModel(connect);
