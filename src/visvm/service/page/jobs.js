// A change of the model that the server is working on: its progress, and its end.
import {
  ApiError, call, change, codeOf, JOB_UNKNOWN, newKey, NO_ANSWER, post, request, sleep,
} from './api.js';
import { announce, h, messageOf } from './dom.js';
import { refreshModel } from './model.js';
import { duration, jobWords } from './words.js';

/** @typedef {import('./model.js').Session} Session */
/**
 * @template R
 * @typedef {{id: string, kind: string, stage: string, done: number, total: number, ahead: number,
 *   state: 'waiting'|'running'|'done'|'failed'|'cancelled', result: R|null,
 *   problem: import('./api.js').Problem|null}} Job
 */
/** @typedef {ReturnType<typeof progressCard>} Card */
/** @template R @typedef {(signal: AbortSignal, key: string) => Promise<Job<R>>} Start */

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

/** Send photos to learn. @param {FormData} body @param {AbortSignal} signal @param {string} key
 * @returns {Promise<Job<Session>>} */
export const learnPhotos = (body, signal, key) => change('api/learn', key, { body, signal });

/**
 * Start a job, and once more where no answer came: the server may have stopped between making the
 * change and saying so, and then it only tells how it ended.
 * @template R @param {Start<R>} start @param {AbortSignal} signal
 */
async function begin(start, signal) {
  const key = newKey();
  try {
    return await start(signal, key);
  } catch (error) {
    if (codeOf(error) !== NO_ANSWER) throw error;
    await sleep(1);
    return start(signal, key);
  }
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
 * @param {Element} host @param {string} title @param {Start<R>} start
 * @returns {Promise<R>} the job's result; throws Cancelled or ApiError otherwise
 */
export async function runJob(host, title, start) {
  const view = progressCard(title);
  const upload = new AbortController();
  /** @type {Job<R>|null} */
  let job = null;
  wireCancel(view, upload, () => job);
  host.prepend(view.card);
  view.card.focus();
  try {
    job = await begin(start, upload.signal);
    view.show(job);
    job = await follow(job, view.show);
    const result = resultOf(job);
    await refreshModel().catch(() => {});
    return result;
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw new Cancelled();
    const lost = job && codeOf(error) === JOB_UNKNOWN;
    throw lost ? new ApiError(RESTARTED, JOB_UNKNOWN, 404) : error;
  } finally {
    view.close();
  }
}
