// What the server's model knows now: asked every two seconds, told to whoever listens when it changed.
import { call, request, sleep } from './api.js';

/**
 * @typedef {{name: string, revision: number, can_learn: boolean, can_write: boolean, n_images: number, n_bytes: number,
 *   n_sessions: number, classes: {label: string, n_images: number}[], version: string,
 *   limits: {upload_bytes: number, files: number, pixels: number, label_length: number}}} Model
 */

/** @type {Model|null} */
let current = null;
let etag = '';
const listeners = [];

export const model = () => current;
export const isKnown = (label) => Boolean(current?.classes.some((each) => each.label === label));
export const history = () => call('api/history', { background: true });

/** What a person typed, as a label. @param {HTMLInputElement} input */
export const labelOf = (input) => input.value.normalize().trim();

/** What is wrong with a label, or "". */
export function labelProblem(label) {
  const most = current.limits.label_length;
  if (!label) return 'Please type a name.';
  return label.length > most ? `This name is longer than ${most} letters.` : '';
}

/** @param {(model: Model) => void} listener called at once if there is a model, and after each change */
export function onModel(listener) {
  listeners.push(listener);
  if (current) listener(current);
}

export async function refreshModel(background = false) {
  const response = await request('api/model', { background, headers: etag ? { 'If-None-Match': etag } : {} });
  if (response.status === 304) return;
  const next = await response.json();
  for (const each of next.classes) each.label = String(each.label); // which may be a number
  current = next;
  etag = response.headers.get('ETag') ?? '';
  for (const listener of listeners) listener(current);
}

/** Keep asking while the page is seen. @param {(background: boolean) => Promise<void>} connect */
export async function pollModel(connect) {
  for (;;) {
    if (!document.hidden) await connect(true);
    await sleep(2);
  }
}
