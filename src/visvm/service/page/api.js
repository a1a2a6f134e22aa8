// Requests to the service: token, retries and errors as one clear sentence.
import { h, openDialog } from './dom.js';

const TOKEN = 'visvm-token';
const DENIED = 'This server asks for a token, and none was given.';

export class ApiError extends Error {
  /** @param {string} message @param {number} status 0 when the server did not answer */
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

export const token = () => sessionStorage.getItem(TOKEN) ?? '';
export const sleep = (seconds) => new Promise((resolve) => { setTimeout(resolve, seconds * 1000); });

/** @type {Promise<boolean>|null} */
let asking = null;
let declined = false;

async function tokenDialog(refused) {
  const input = h('input', { id: 'token', type: 'password', autocomplete: 'off', required: true, pattern: '\\s*[!-~]+\\s*',
    testid: 'token-input', 'aria-describedby': 'token-help' });
  const answer = await openDialog({
    title: 'This server asks for a token',
    body: [
      h('p', { id: 'token-help' }, refused ? 'That token was not accepted. Please check it and try again.'
        : 'The person who runs the server can give it to you. It is kept until you close this tab.'),
      h('div', { class: 'field' }, h('label', { for: 'token' }, 'Token'), input),
    ],
    actions: [{ text: 'Continue', value: 'save', kind: 'primary', testid: 'token-save' }],
    testid: 'token-dialog',
  });
  declined = !answer;
  if (answer) sessionStorage.setItem(TOKEN, input.value.trim());
  return Boolean(answer);
}

/** Ask once for everybody who waits; true when there is another token to try. */
function newToken(used, background) {
  if (token() !== used) return true;
  if (background && declined) return false;
  asking ??= tokenDialog(Boolean(used)).finally(() => { asking = null; });
  return asking;
}

async function send(path, { method = 'GET', body, json, headers, signal }, bearer) {
  const all = new Headers(headers);
  if (bearer) all.set('Authorization', `Bearer ${bearer}`);
  if (json) all.set('Content-Type', 'application/json');
  try {
    return await fetch(path, { method, headers: all, body: json ? JSON.stringify(json) : body, signal, cache: 'no-store' });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ApiError(body ? 'The photos could not be sent. Is the server still running, and are the photos where they were?'
      : 'The server does not answer. Is it still running?', 0);
  }
}

async function problem(response) {
  const answer = await response.json().catch(() => ({}));
  const detail = typeof answer.detail === 'string' ? answer.detail : answer.title;
  return new ApiError(detail || `The server answered with an error (${response.status}).`, response.status);
}

/**
 * @param {string} path
 * @param {{method?: string, body?: FormData, json?: object, headers?: object, signal?: AbortSignal,
 *   background?: boolean}} options background: nobody pressed anything, so do not insist on a token
 * @returns {Promise<Response>} an answer that is fine (or 304)
 */
export async function request(path, options = {}) {
  for (let retries = 0; ;) {
    const used = token();
    const response = await send(path, options, used);
    if (response.ok || response.status === 304) return response;
    if (response.status === 401) {
      if (!await newToken(used, options.background)) throw new ApiError(DENIED, 401);
    } else if (response.status === 503 && retries < 3) {
      retries += 1;
      await sleep(Math.min(Number(response.headers.get('Retry-After')) || 1, 60));
      options.signal?.throwIfAborted();
    } else {
      throw await problem(response);
    }
  }
}

/** The same, for a JSON answer. */
export const call = async (path, options) => (await request(path, options)).json();
export const post = (path, options) => call(path, { method: 'POST', ...options });
