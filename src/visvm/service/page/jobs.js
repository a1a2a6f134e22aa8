// A change of the model that the server is working on: its progress, and its end.
import { ApiError, call, post, request, sleep } from './api.js';
import { announce, h } from './dom.js';
import { refreshModel } from './model.js';
import { duration, jobWords } from './words.js';

/**
 * @typedef {{id: string, kind: string, state: 'waiting'|'running'|'done'|'failed'|'cancelled', stage: string,
 *   done: number, total: number, ahead: number, result: object|null, problem: {detail?: string, title?: string}|null}} Job
 */

const RESTARTED = 'The server was restarted before this was finished. Please try again.';
const ended = (job) => ['done', 'failed', 'cancelled'].includes(job.state);
let streams = 0;

/** The person pressed Cancel. */
export class Cancelled extends Error {}

async function* events(path) {
  const reader = (await request(path)).body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  try {
    for (let chunk = await reader.read(); !chunk.done; chunk = await reader.read()) {
      const lines = (text + chunk.value).split('\n');
      text = lines.pop();
      for (const line of lines) if (line.startsWith('data:')) yield JSON.parse(line.slice(5));
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** Follow by server-sent events as long as they come (a browser has few connections: no more than three at once). */
async function stream(job, show) {
  if (streams >= 3) return job;
  streams += 1;
  let last = job;
  try {
    for await (const update of events(`api/jobs/${job.id}/events`)) {
      last = update;
      show(last);
      if (ended(last)) break;
    }
  } catch (error) {
    if (error.status === 404) throw error;
  } finally {
    streams -= 1;
  }
  return last;
}

/** @param {Job} job @param {(job: Job) => void} show @returns {Promise<Job>} the job at its end */
async function follow(job, show) {
  let last = ended(job) ? job : await stream(job, show);
  while (!ended(last)) {
    await sleep(1);
    try {
      last = await call(`api/jobs/${job.id}`);
      show(last);
    } catch (error) {
      if (error.status && error.status !== 503) throw error;
      show({ ...last, state: 'running', stage: 'The server does not answer. Trying again', total: 1 });
    }
  }
  return last;
}

/**
 * Look for the session that learned photos: the server may have stopped after writing it and before telling.
 * @param {{label: string}[]} items
 * @param {number} before so many sessions there were
 */
export async function sessionOf(items, before) {
  const labels = new Set(items.map(({ label }) => label));
  const ours = ({ session, n_images: n, new_classes: fresh, returning_classes: again }) => session > before
    && n === items.length && fresh.length + again.length === labels.size && [...fresh, ...again].every((one) => labels.has(`${one}`));
  return (await call('api/history')).sessions.find(ours) ?? null;
}

function progressCard(title) {
  const words = h('span', {}, 'Sending');
  const time = h('span', { class: 'muted time', 'aria-hidden': 'true' }, '0 s');
  const meter = h('progress', { max: 1, 'aria-label': title });
  const cancel = h('button', { type: 'button', testid: 'cancel' }, 'Cancel');
  const card = h('div', { class: 'card job', tabindex: -1, role: 'group', 'aria-label': title, testid: 'progress' },
    h('p', { class: 'job-title' }, title), meter, h('p', { class: 'job-words' }, words, time), cancel);
  const begun = Date.now();
  const timer = setInterval(() => { time.textContent = duration(Math.round((Date.now() - begun) / 1000)); }, 1000);
  let told = '';
  const show = (job) => {
    words.textContent = jobWords(job);
    if (job.state === 'running' && job.total > 1) meter.value = job.done / job.total;
    else meter.removeAttribute('value');
    const stage = `${job.state} ${job.stage} ${job.ahead}`;
    if (stage !== told && !ended(job)) announce(jobWords({ ...job, total: 1 }));
    told = stage;
  };
  return { card, cancel, words, show, close: () => { clearInterval(timer); card.remove(); } };
}

/** Cancel: stops the upload, or asks the server to stop. */
function wireCancel(view, upload, job) {
  view.cancel.addEventListener('click', async () => {
    view.cancel.disabled = true;
    if (!job()) return upload.abort();
    view.words.textContent = 'Stopping';
    return post(`api/jobs/${job().id}/cancel`).catch((error) => {
      view.words.textContent = error.message;
      view.cancel.disabled = false;
    });
  });
}

/**
 * Start a job, show its progress in `host` and wait for its end.
 * @param {Element} host
 * @param {string} title
 * @param {(signal: AbortSignal) => Promise<Job>} start
 * @param {() => Promise<object|null>} found its result, if a server that was restarted had finished it
 * @returns {Promise<object>} the job's result; throws Cancelled or ApiError otherwise
 */
export async function runJob(host, title, start, found = async () => null) {
  const view = progressCard(title);
  const upload = new AbortController();
  let job = null;
  wireCancel(view, upload, () => job);
  host.prepend(view.card);
  view.card.focus();
  try {
    job = await start(upload.signal);
    view.show(job);
    job = await follow(job, view.show);
    if (job.state === 'cancelled') throw new Cancelled();
    if (job.state === 'failed') throw new ApiError(job.problem?.detail ?? job.problem?.title ?? 'This did not work.', 500);
    await refreshModel().catch(() => {});
    return job.result ?? {};
  } catch (error) {
    if (error.name === 'AbortError') throw new Cancelled();
    const lost = (error.status === 404 && job) || (!error.status && !job); // by a restart, or on the way
    const result = lost ? await found().catch(() => null) : null;
    if (!lost || (!result && !job)) throw error;
    if (!result) throw new ApiError(RESTARTED, 404);
    await refreshModel().catch(() => {});
    return result;
  } finally {
    view.close();
  }
}
