// A change of the model that the server is working on: its progress, and its end.
import { ApiError, call, codeOf, JOB_UNKNOWN, NO_ANSWER, post, request, sleep } from './api.js';
import { announce, h, messageOf } from './dom.js';
import { history, refreshModel } from './model.js';
import { duration, jobWords } from './words.js';

/** @typedef {import('./model.js').Session} Session */
/**
 * @template R
 * @typedef {{id: string, kind: string, stage: string, done: number, total: number, ahead: number,
 *   state: 'waiting'|'running'|'done'|'failed'|'cancelled', result: R|null,
 *   problem: import('./api.js').Problem|null}} Job
 */
/** @typedef {ReturnType<typeof progressCard>} Card */

const RESTARTED = 'The server was restarted before this was finished. Please try again.';
/** @param {Job<unknown>} job */
const ended = (job) => ['done', 'failed', 'cancelled'].includes(job.state);
let streams = 0;

/** The person pressed Cancel. */
export class Cancelled extends Error {}

/** @template R @param {string} path @returns {AsyncGenerator<Job<R>>} */
async function* events(path) {
  const { body } = await request(path);
  if (!body) return;
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  try {
    for (let chunk = await reader.read(); !chunk.done; chunk = await reader.read()) {
      const lines = (text + chunk.value).split('\n');
      text = lines.pop() ?? '';
      for (const line of lines) if (line.startsWith('data:')) yield JSON.parse(line.slice(5));
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/**
 * Follow by server-sent events as long as they come: by three at most, as a browser has few
 * connections.
 * @template R @param {Job<R>} job @param {(job: Job<R>) => void} show @returns {Promise<Job<R>>}
 */
async function stream(job, show) {
  if (streams >= 3) return job;
  streams += 1;
  let last = job;
  try {
    /** @type {AsyncGenerator<Job<R>>} */
    const updates = events(`api/jobs/${job.id}/events`);
    for await (const update of updates) {
      last = update;
      show(last);
      if (ended(last)) break;
    }
  } catch (error) {
    if (codeOf(error) === JOB_UNKNOWN) throw error;
  } finally {
    streams -= 1;
  }
  return last;
}

/**
 * @template R @param {Job<R>} job @param {(job: Job<R>) => void} show
 * @returns {Promise<Job<R>>} the job at its end
 */
async function follow(job, show) {
  let last = ended(job) ? job : await stream(job, show);
  while (!ended(last)) {
    await sleep(1);
    try {
      last = await call(`api/jobs/${job.id}`);
      show(last);
    } catch (error) {
      if (!(error instanceof ApiError) || ![0, 503].includes(error.status)) throw error;
      const stage = 'The server does not answer. Trying again';
      show({ ...last, state: 'running', stage, total: 1 });
    }
  }
  return last;
}

/** Send photos to learn. @param {FormData} body @param {AbortSignal} signal
 * @returns {Promise<Job<Session>>} */
export const learnPhotos = (body, signal) => post('api/learn', { body, signal });

/**
 * Look for the session that learned photos: the server may have stopped between writing it and
 * saying so.
 * @param {{label: string}[]} items @param {number} before so many sessions there were
 */
export async function sessionOf(items, before) {
  const labels = new Set(items.map(({ label }) => label));
  const { sessions } = await history();
  return sessions.find(({ session, n_images: n, new_classes: fresh, returning_classes: again }) => {
    const learned = [...fresh, ...again];
    return session > before && n === items.length && learned.length === labels.size
      && learned.every((label) => labels.has(String(label))); // which may be a number
  }) ?? null;
}

/** @param {string} title */
function progressCard(title) {
  const words = h('span', {}, 'Sending');
  const time = h('span', { class: 'muted time', 'aria-hidden': 'true' }, '0 s');
  const meter = h('progress', { max: 1, 'aria-label': title });
  const cancel = h('button', { type: 'button', testid: 'cancel' }, 'Cancel');
  const card = h('div', { class: 'card job', tabindex: -1, role: 'group', 'aria-label': title,
    testid: 'progress' }, h('p', { class: 'job-title' }, title), meter,
  h('p', { class: 'job-words' }, words, time), cancel);
  const begun = Date.now();
  const timer = setInterval(() => {
    time.textContent = duration(Math.round((Date.now() - begun) / 1000));
  }, 1000);
  let spoken = '';
  /** @param {Job<unknown>} job */
  const show = (job) => {
    words.textContent = jobWords(job);
    if (job.state === 'running' && job.total > 1) meter.value = job.done / job.total;
    else meter.removeAttribute('value');
    const stage = `${job.state} ${job.stage} ${job.ahead}`;
    if (stage !== spoken && !ended(job)) announce(jobWords({ ...job, total: 1 }));
    spoken = stage;
  };
  const close = () => {
    clearInterval(timer);
    card.remove();
  };
  return { card, cancel, words, show, close };
}

/**
 * Cancel: stops the upload, or asks the server to stop.
 * @param {Card} view @param {AbortController} upload @param {() => Job<unknown>|null} current
 */
function wireCancel(view, upload, current) {
  view.cancel.addEventListener('click', () => {
    const job = current();
    view.cancel.disabled = true;
    if (!job) {
      upload.abort();
      return;
    }
    view.words.textContent = 'Stopping';
    post(`api/jobs/${job.id}/cancel`).catch((error) => {
      view.words.textContent = messageOf(error);
      view.cancel.disabled = false;
    });
  });
}

/** @template R @param {Job<R>} job @returns {R} the result of a job that has ended well */
function resultOf(job) {
  if (job.state === 'cancelled') throw new Cancelled();
  if (job.state === 'done' && job.result) return job.result;
  const { detail = 'This did not work.', code = '', status = 500 } = job.problem ?? {};
  throw new ApiError(detail, code, status);
}

/**
 * Start a job, show its progress in `host` and wait for its end.
 * @template R
 * @param {Element} host @param {string} title
 * @param {(signal: AbortSignal) => Promise<Job<R>>} start
 * @param {() => Promise<R|null>} found its result, if a server that was restarted had finished it
 * @returns {Promise<R>} the job's result; throws Cancelled or ApiError otherwise
 */
export async function runJob(host, title, start, found = async () => null) {
  const view = progressCard(title);
  const upload = new AbortController();
  /** @type {Job<R>|null} */
  let job = null;
  wireCancel(view, upload, () => job);
  host.prepend(view.card);
  view.card.focus();
  try {
    job = await start(upload.signal);
    view.show(job);
    job = await follow(job, view.show);
    const result = resultOf(job);
    await refreshModel().catch(() => {});
    return result;
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw new Cancelled();
    // by a restart of the server, or on the way to it
    const lost = codeOf(error) === (job ? JOB_UNKNOWN : NO_ANSWER);
    const result = lost ? await found().catch(() => null) : null;
    if (!result) throw lost && job ? new ApiError(RESTARTED, JOB_UNKNOWN, 404) : error;
    await refreshModel().catch(() => {});
    return result;
  } finally {
    view.close();
  }
}
