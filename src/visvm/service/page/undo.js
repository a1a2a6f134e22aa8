// Undo: takes the last change back, whoever made it, after asking.
import { change } from './api.js';
import { $, announce, ErrorLine, h, messageOf, openDialog } from './dom.js';
import { Cancelled, runJob } from './jobs.js';
import { knownModel } from './model.js';

const error = new ErrorLine('undo-error-line');

/** Whether there is something to undo, and this person may. */
export const canUndo = () => Boolean(knownModel().can_undo && knownModel().can_write);

export async function undoLast() {
  const now = knownModel();
  error.clear();
  const answer = await openDialog({
    title: 'Undo the last change?',
    body: [h('p', {}, `It ${now.can_undo}. It will be as it was before. This cannot be undone.`)],
    actions: [{ text: 'Undo it', value: 'undo', kind: 'danger', testid: 'undo-confirm' }],
  });
  if (!answer) return;
  const json = { revision: now.revision };
  try {
    await runJob($('undo-jobs'), 'Undoing the last change',
      (_, key) => change('api/undo', key, { json }));
    announce('The last change is undone.', true);
  } catch (failure) {
    if (!(failure instanceof Cancelled)) error.show($('undo-error'), messageOf(failure));
  }
}

/** A button beside what was just changed, or nothing. */
export const undoButton = () => (canUndo() ? h('button',
  { type: 'button', class: 'quiet', testid: 'undo-this', onclick: undoLast }, 'Undo') : null);
