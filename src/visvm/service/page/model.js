// What the server's model knows now: asked every two seconds, passed on when it changed.
import { call, request, sleep } from './api.js';

/**
 * @typedef {{upload_bytes: number, files: number, pixels: number, label_length: number}} Limits
 * @typedef {{name: string, revision: number, can_learn: boolean, can_write: boolean,
 *   can_undo: string|null, n_images: number, n_bytes: number, n_sessions: number, version: string,
 *   transform: string, limits: Limits,
 *   classes: {label: string, n_images: number}[]}} Model
 * @typedef {{n: number, accuracy: number, accuracy_before: number|null,
 *   old_accuracy: number|null}} Test
 * @typedef {{session: number, learned_at: string, n_images: number, n_classes: number,
 *   new_classes: string[], returning_classes: string[], seconds: Record<string, number>,
 *   notes: string[], test: Test|null}} Session
 */

/** @type {Model|null} */
let current = null;
let etag = '';
/** @type {((model: Model) => void)[]} */
const listeners = [];

export const model = () => current;

/** The model, where it was seen already: before that, nothing can be pressed. */
export function knownModel() {
  if (!current) throw new Error('The server has not said yet what it knows. Please try again.');
  return current;
}

/** @param {string} label */
export const isKnown = (label) => Boolean(current?.classes.some((each) => each.label === label));

/** @typedef {{at: string, after_session: number, said: string}} Event */

/** @returns {Promise<{sessions: Session[], events: Event[]}>} */
export const history = () => call('api/history', { background: true });

/** What a person typed, as a label. @param {HTMLInputElement} input */
export const labelOf = (input) => input.value.normalize().trim();

/** What is wrong with a label, or "". @param {string} label */
export function labelProblem(label) {
  const most = knownModel().limits.label_length;
  if (!label) return 'Please type a name.';
  return label.length > most ? `This name is longer than ${most} letters.` : '';
}

/** @param {(model: Model) => void} listener called at once if there is a model, and on changes */
export function onModel(listener) {
  listeners.push(listener);
  if (current) listener(current);
}

export async function refreshModel(background = false) {
  /** @type {Record<string, string>} */
  const headers = etag ? { 'If-None-Match': etag } : {};
  const response = await request('api/model', { background, headers });
  if (response.status === 304) return;
  /** @type {Model} */
  const next = await response.json();
  for (const each of next.classes) each.label = String(each.label); // which may be a number
  current = next;
  etag = response.headers.get('ETag') ?? '';
  for (const listener of listeners) listener(next);
}

/** Keep asking while the page is seen. @param {(background: boolean) => Promise<void>} connect */
export async function pollModel(connect) {
  for (;;) {
    if (!document.hidden) await connect(true);
    await sleep(2);
  }
}
