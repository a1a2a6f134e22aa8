// The page: tabs, what is dropped or pasted, the model's name and the connection.
import { askView } from './ask.js';
import { classesView } from './classes.js';
import { $, h, roving } from './dom.js';
import { historyView } from './history.js';
import { onModel, pollModel, refreshModel } from './model.js';
import { teachView } from './teach.js';
import { classes, photos } from './words.js';

const views = { teach: teachView(), ask: askView(), classes: classesView(), history: historyView() };
const NAMES = { teach: 'Teach', ask: 'Ask', classes: 'Classes', history: 'History' };
const seen = () => (Object.hasOwn(views, location.hash.slice(1)) ? location.hash.slice(1) : 'teach');

function showView() {
  const now = seen();
  for (const name of Object.keys(views)) {
    const tab = $(`tab-${name}`);
    tab.setAttribute('aria-selected', String(name === now));
    tab.tabIndex = name === now ? 0 : -1;
    $(`panel-${name}`).hidden = name !== now;
  }
  titlePage();
  $('status').className = 'visually-hidden';
  views[now].shown?.();
}

let modelName = 'visvm';
function titlePage() {
  document.title = `${NAMES[seen()]} · ${modelName}`;
}

/** @param {import('./model.js').Model} now */
function showModel(now) {
  modelName = now.name;
  titlePage();
  $('model-name').textContent = now.name;
  const n = now.classes.length;
  $('model-summary').textContent = n ? `Knows ${classes(n)} from ${photos(now.n_images)}` : 'Knows nothing yet';
  $('about').textContent = `visvm ${now.version}`;
  $('known-classes').replaceChildren(...now.classes.map(({ label }) => h('option', { value: label })));
}

/** @param {Error|null} error of the last request for the model */
function showConnection(error) {
  const place = $('connection');
  const text = !error ? '' : error.status ? error.message : 'The server does not answer. Trying again every two seconds.';
  if (place.dataset.text === text) return;
  place.dataset.text = text;
  place.hidden = !text;
  const button = error?.status === 401 ? h('button', { type: 'button', onclick: () => connect() }, 'Enter the token') : null;
  place.replaceChildren(...[h('p', {}, text), button].filter(Boolean));
}

const connect = (background) => refreshModel(background).then(() => showConnection(null), showConnection);

/** Drops count anywhere in the window, so that a near miss does not leave the page. */
function listenForDrops() {
  let leaving;
  addEventListener('dragover', (event) => {
    event.preventDefault();
    document.body.classList.add('dragging');
    clearTimeout(leaving);
    leaving = setTimeout(() => document.body.classList.remove('dragging'), 200);
  });
  addEventListener('drop', (event) => {
    event.preventDefault();
    document.body.classList.remove('dragging');
    if (!document.querySelector('dialog[open]') && event.dataTransfer.files.length) views[seen()].drop?.(event.dataTransfer);
  });
  addEventListener('paste', (event) => {
    if (!document.querySelector('dialog[open]') && event.clipboardData.files.length) views[seen()].paste?.(event.clipboardData);
  });
}

const tabs = document.querySelector('[role=tablist]');
const open = (tab) => {
  location.hash = tab.id.replace('tab-', '');
  showView();
};
tabs.addEventListener('click', (event) => { if (event.target.matches('[role=tab]')) open(event.target); });
roving(tabs, '[role=tab]', open);
addEventListener('hashchange', showView);
document.addEventListener('visibilitychange', () => { if (!document.hidden) connect(true); });
listenForDrops();
onModel(showModel);
showView();
pollModel(connect);
