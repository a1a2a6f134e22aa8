// What this browser keeps, in one place, with a button to remove each.
import { token } from './api.js';
import { allAsked, removeAsked } from './asked.js';
import { announce, h, messageOf } from './dom.js';
import { kept, removeKept } from './kept.js';
import { keptPictures, removePictures } from './pictures.js';
import { count } from './words.js';

/** @typedef {{words: string, n: number, remove: () => Promise<void>}} Thing */

/** @returns {Promise<Thing[]>} */
async function things() {
  const asked = await allAsked();
  return [
    { words: count(kept().length, 'test photo'), n: kept().length, remove: () => removeKept() },
    { words: `${count(keptPictures().length, 'small picture')} of classes`,
      n: keptPictures().length, remove: () => removePictures() },
    { words: `${count(asked.length, 'photo')} that you asked about, with the answers`,
      n: asked.length, remove: () => removeAsked(true) },
    { words: 'Your token, until you close this tab', n: token() ? 1 : 0,
      remove: async () => { sessionStorage.removeItem('visvm-token'); } },
  ];
}

/** @param {Thing} thing @param {() => void} after */
function row({ words, n, remove }, after) {
  const button = h('button', { type: 'button', class: 'quiet', testid: 'keeps-remove',
    'aria-label': `Remove ${words}`, onclick: async () => {
      await remove().then(() => announce('Removed.'), (error) => announce(messageOf(error), true));
      after();
    } }, 'Remove');
  return h('li', {}, h('span', {}, words), n ? button : null);
}

/** Show it in a dialog. */
export async function openKeeps() {
  const list = h('ul', { class: 'keeps', testid: 'keeps-list' });
  const show = async () => {
    const found = (await things()).filter(({ n }) => n);
    list.replaceChildren(...found.map((thing) => row(thing, show)));
    none.hidden = found.length > 0;
    close.focus();
  };
  const none = h('p', { hidden: true }, 'Nothing.');
  const close = h('button', { type: 'button', onclick: () => dialog.close() }, 'Close');
  const dialog = h('dialog', { 'aria-labelledby': 'keeps-title', testid: 'keeps-dialog' },
    h('h2', { id: 'keeps-title' }, 'What this browser keeps'),
    h('p', { class: 'muted' }, 'For this model, on this device. Only test photos are ever sent, '
      + 'to test with.'),
    list, none, h('div', { class: 'dialog-actions' }, close));
  document.body.append(dialog);
  dialog.addEventListener('close', () => dialog.remove());
  dialog.showModal();
  await show().catch(() => { none.hidden = false; });
}
