// Requests to the service: token, retries, and errors as one sentence with a code.
import { h, openDialog } from './dom.js';

/**
 * @typedef {{method?: string, body?: FormData, json?: object, headers?: Record<string, string>,
 *   signal?: AbortSignal, background?: boolean, sent?: Sent}} Options
 *   background: nobody pressed anything, so do not insist on a token
 * @typedef {(share: number) => void} Sent called while a body is sent, with the share that was
 * @typedef {{detail: string, code: string, status: number}} Problem
 */

const TOKEN = 'visvm-token';
const DENIED = 'This server asks for a token, and none was given.';

/** Codes that the page acts on. The first one is its own: the server did not answer. */
export const NO_ANSWER = 'no-answer';
export const TOKEN_REQUIRED = 'token-required';
export const JOB_UNKNOWN = 'job-unknown';
export const IMAGES_UNREADABLE = 'images-unreadable';

export class ApiError extends Error {
  /** @param {string} message @param {string} code @param {number} status 0 without an answer */
  constructor(message, code, status = 0) {
    super(message);
    this.code = code;
    this.status = status;
  }
}

/** The code of an error, "" where it has none. @param {unknown} error */
export const codeOf = (error) => (error instanceof ApiError ? error.code : '');

export const token = () => sessionStorage.getItem(TOKEN) ?? '';

/** @param {number} seconds @returns {Promise<void>} */
export const sleep = (seconds) =>
  new Promise((resolve) => { setTimeout(resolve, seconds * 1000); });

/** @type {Promise<boolean>|null} */
let asking = null;
let declined = false;

/** @param {boolean} refused whether a token was refused before */
async function tokenDialog(refused) {
  const input = h('input', { id: 'token', type: 'password', autocomplete: 'off', required: true,
    pattern: '\\s*[!-~]+\\s*', testid: 'token-input', 'aria-describedby': 'token-help' });
  const help = refused ? 'That token was not accepted. Please check it and try again.'
    : 'The person who runs the server can give it to you. It is kept until you close this tab.';
  const answer = await openDialog({
    title: 'This server asks for a token',
    body: [
      h('p', { id: 'token-help' }, help),
      h('div', { class: 'field' }, h('label', { for: 'token' }, 'Token'), input),
    ],
    actions: [{ text: 'Continue', value: 'save', kind: 'primary', testid: 'token-save' }],
    testid: 'token-dialog',
  });
  declined = !answer;
  if (answer) sessionStorage.setItem(TOKEN, input.value.trim());
  return Boolean(answer);
}

/**
 * Ask once for all requests that wait; true when there is another token to try.
 * @param {string} used @param {boolean} background
 */
async function newToken(used, background) {
  if (token() !== used) return true;
  if (background && declined) return false;
  asking ??= tokenDialog(Boolean(used)).finally(() => { asking = null; });
  return asking;
}

/**
 * Send a body and say how far it is, which `fetch` does not.
 * @param {string} path @param {string} method @param {Headers} headers @param {FormData} body
 * @param {Sent} sent @param {AbortSignal} [signal] @returns {Promise<Response>}
 */
const upload = (path, method, headers, body, sent, signal) => new Promise((resolve, reject) => {
  const sending = new XMLHttpRequest();
  sending.open(method, path);
  for (const [name, value] of headers) sending.setRequestHeader(name, value);
  sending.upload.onprogress = ({ loaded, total }) => sent(total ? loaded / total : 1);
  sending.onload = () => {
    const given = sending.getAllResponseHeaders().trim().split(/[\r\n]+/).filter(Boolean)
      .map((line) => /** @type {[string, string]} */ (line.split(/:\s*(.*)/s, 2)));
    resolve(new Response(sending.responseText, { status: sending.status, headers: given }));
  };
  sending.onerror = () => reject(new TypeError('no answer'));
  sending.onabort = () => reject(new DOMException('', 'AbortError'));
  signal?.addEventListener('abort', () => sending.abort());
  if (signal?.aborted) sending.onabort(new ProgressEvent('abort'));
  else sending.send(body);
});

/** @param {string} path @param {Options} options @param {string} bearer */
async function send(path, { method = 'GET', body, json, headers, signal, sent }, bearer) {
  const all = new Headers(headers);
  if (bearer) all.set('Authorization', `Bearer ${bearer}`);
  if (json) all.set('Content-Type', 'application/json');
  const content = json ? JSON.stringify(json) : body;
  try {
    if (body && sent) return await upload(path, method, all, body, sent, signal);
    return await fetch(path, { method, headers: all, body: content, signal, cache: 'no-store' });
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error;
    throw new ApiError(body
      ? 'The photos could not be sent. Is the server running, and are the photos still there?'
      : 'The server does not answer. Is it still running?', NO_ANSWER);
  }
}

/** @param {Response} response */
async function problem(response) {
  /** @type {Partial<Problem>} */
  const { detail, code } = await response.json().catch(() => ({}));
  const words = detail || `The server answered with an error (${response.status}).`;
  return new ApiError(words, code ?? '', response.status);
}

/**
 * @param {string} path @param {Options} options
 * @returns {Promise<Response>} an answer that is fine (or 304)
 */
export async function request(path, options = {}) {
  for (let retries = 0; ;) {
    const used = token();
    const response = await send(path, options, used);
    if (response.ok || response.status === 304) return response;
    if (response.status === 401) {
      const another = await newToken(used, options.background ?? false);
      if (!another) throw new ApiError(DENIED, TOKEN_REQUIRED, 401);
    } else if (response.status === 503 && retries < 3) {
      retries += 1;
      await sleep(Math.min(Number(response.headers.get('Retry-After')) || 1, 60));
      options.signal?.throwIfAborted();
    } else {
      throw await problem(response);
    }
  }
}

/**
 * The same, for a JSON answer.
 * @template T @param {string} path @param {Options} [options] @returns {Promise<T>}
 */
export const call = async (path, options) => (await request(path, options)).json();

/** @template T @param {string} path @param {Options} [options] @returns {Promise<T>} */
export const post = (path, options) => call(path, { method: 'POST', ...options });

/** A key that tells one change from all others; `randomUUID` would need https. */
export const newKey = () => crypto.getRandomValues(new Uint32Array(4)).join('-');

/**
 * Ask for a change of the model: under one key it is made once, however often it is sent.
 * @template T @param {string} path @param {string} key @param {Options} [options]
 * @returns {Promise<T>}
 */
export const change = (path, key, options) =>
  post(path, { ...options, headers: { 'Idempotency-Key': key } });
