// A change of the model that the server is working on: its progress, and its end.
import {
  ApiError, call, change, codeOf, JOB_UNKNOWN, newKey, NO_ANSWER, post, request, sleep,
} from './api.js';
import { announce, h, messageOf } from './dom.js';
import { refreshModel } from './model.js';
import { doneWords, duration, jobWords, leftWords } from './words.js';

/** @typedef {import('./model.js').Session} Session */
/**
 * @template R
 * @typedef {{id: string, kind: string, stage: string, done: number, total: number, ahead: number,
 *   state: 'waiting'|'running'|'done'|'failed'|'cancelled', result: R|null,
 *   problem: import('./api.js').Problem|null}} Job
 */
/** @typedef {ReturnType<typeof progressCard>} Card */
/** @typedef {import('./api.js').Sent} Sent */
/**
 * @template R
 * @typedef {(signal: AbortSignal, key: string, sent: Sent) => Promise<Job<R>>} Start
 */

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
 * @param {Sent} sent @returns {Promise<Job<Session>>} */
export const learnPhotos = (body, signal, key, sent) =>
  change('api/learn', key, { body, signal, sent });

/**
 * Start a job, and once more where no answer came: the server may have stopped between making the
 * change and saying so, and then it only tells how it ended.
 * @template R @param {Start<R>} start @param {AbortSignal} signal @param {Sent} sent
 */
async function begin(start, signal, sent) {
  const key = newKey();
  try {
    return await start(signal, key, sent);
  } catch (error) {
    if (codeOf(error) !== NO_ANSWER) throw error;
    await sleep(1);
    return start(signal, key, sent);
  }
}

/**
 * How long a stage still takes, by how long it took so far; says nothing at its beginning.
 * @returns {(stage: string, share: number) => string}
 */
function estimating() {
  let [of, since, first] = ['', 0, 0];
  return (stage, share) => {
    const now = Date.now();
    if (stage !== of) [of, since, first] = [stage, now, share];
    const [took, done] = [(now - since) / 1000, share - first];
    if (took < 1.5 || done < 0.05 || share >= 1) return '';
    return leftWords(took / done * (1 - share));
  };
}

/** The parts of a card that shows how far a job is. @param {string} title */
function progressParts(title) {
  const words = h('span', {}, 'Sending');
  const time = h('span', { class: 'muted time', 'aria-hidden': 'true' }, '0 s');
  const meter = h('progress', { max: 1, 'aria-label': title });
  const cancel = h('button', { type: 'button', testid: 'cancel' }, 'Cancel');
  const done = h('ul', { class: 'job-done small' });
  const card = h('div', { class: 'card job', tabindex: -1, role: 'group', 'aria-label': title,
    testid: 'progress' }, h('p', { class: 'job-title' }, title), meter,
  h('p', { class: 'job-words' }, words, time), done, cancel);
  return { words, time, meter, cancel, done, card };
}

/** @param {string} title */
function progressCard(title) {
  const { words, time, meter, cancel, done, card } = progressParts(title);
  const [begun, left] = [Date.now(), estimating()];
  let [now, since, hint] = ['', begun, ''];
  const tick = () => {
    const seconds = Math.round((Date.now() - begun) / 1000);
    time.textContent = [hint, duration(seconds)].filter(Boolean).join(' · ');
  };
  const timer = setInterval(tick, 1000);
  /** @param {string} stage @param {number|null} share null where nobody knows */
  const move = (stage, share) => {
    if (stage !== now) {
      const past = doneWords(now);
      const took = (Date.now() - since) / 1000;
      if (past) done.append(h('li', {}, `${past}, ${duration(took)}`));
      [now, since] = [stage, Date.now()];
    }
    hint = share === null ? '' : left(stage, share);
    if (share === null) meter.removeAttribute('value');
    else meter.value = share;
    tick();
  };
  let spoken = '';
  /** @param {Job<unknown>} job */
  const show = (job) => {
    words.textContent = jobWords(job);
    const counts = job.state === 'running' && job.total > 1 && job.done > 0;
    move(job.state === 'running' ? job.stage : now, counts ? job.done / job.total : null);
    const stage = `${job.state} ${job.stage} ${job.ahead}`;
    if (stage !== spoken && !ended(job)) announce(jobWords({ ...job, total: 1 }));
    spoken = stage;
  };
  /** @param {number} share */
  const sent = (share) => {
    words.textContent = share < 1 ? `Sending: ${Math.floor(share * 100)} %` : 'Sent';
    move('sending', share < 1 ? share : null);
  };
  const close = () => {
    clearInterval(timer);
    card.remove();
  };
  return { card, cancel, words, show, sent, close };
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
 * @param {(job: Job<R>) => void} [begun] called once the server has taken it
 * @returns {Promise<R>} the job's result; throws Cancelled or ApiError otherwise
 */
export async function runJob(host, title, start, begun = () => {}) {
  const view = progressCard(title);
  const upload = new AbortController();
  /** @type {Job<R>|null} */
  let job = null;
  wireCancel(view, upload, () => job);
  host.prepend(view.card);
  view.card.focus();
  try {
    job = await begin(start, upload.signal, view.sent);
    begun(job);
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
