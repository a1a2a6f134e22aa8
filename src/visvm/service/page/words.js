// Numbers and states as plain English.

/** @type {Record<string, string>} */
const STAGES = {
  encoding: 'Looking at photos',
  'encoding test images': 'Looking at test photos',
  'choosing λ and blocks': 'Finding out what to look for',
  learning: 'Learning',
  checking: 'Looking for mistakes',
  calibrating: 'Finding out how sure it can be',
  'writing the model': 'Saving',
  beginning: 'Starting',
  forgetting: 'Forgetting',
  renaming: 'Renaming',
  undoing: 'Undoing',
  'waiting for another program': 'Waiting for another program that is changing the model',
};

/** @type {Record<string, string>} */
const DONE = {
  sending: 'Sent',
  encoding: 'Looked at them',
  'encoding test images': 'Looked at test photos',
  'choosing λ and blocks': 'Found out what to look for',
  learning: 'Learned',
  checking: 'Looked for mistakes',
  calibrating: 'Found out how sure it can be',
};

/** A whole number with its commas. @param {number} n */
export const number = (n) => n.toLocaleString('en');

/** "1 photo", "1,200 photos" @param {number} n @param {string} one */
export const count = (n, one, many = `${one}s`) => `${number(n)} ${n === 1 ? one : many}`;
/** @param {number} n */
export const photos = (n) => count(n, 'photo');
/** @param {number} n */
export const classes = (n) => count(n, 'class', 'classes');

/** 0.96 as "96 %"; never rounds up to 100 or down to 0. @param {number} share */
export function percent(share) {
  const whole = Math.round(share * 100);
  if (whole === 100 && share < 1) return `${Math.floor(share * 1000) / 10} %`;
  return whole === 0 && share > 0 ? '<1 %' : `${whole} %`;
}

/** 4.13 as "4.1 s", 125 as "2 min 5 s" @param {number} seconds */
export function duration(seconds) {
  if (seconds < 60) return `${Number(seconds.toFixed(1))} s`;
  return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
}

/** How much longer something takes, roughly, as nobody can know it. @param {number} seconds */
export function leftWords(seconds) {
  if (seconds < 1.5) return 'almost done';
  if (seconds < 10) return `about ${Math.round(seconds)} s left`;
  if (seconds < 90) return `about ${Math.ceil(seconds / 5) * 5} s left`;
  return `about ${Math.round(seconds / 60)} min left`;
}

/** 1234567 as "1.23 MB" @param {number} n */
export function bytes(n) {
  const units = ['bytes', 'kB', 'MB', 'GB'];
  const power = Math.min(3, Math.floor(Math.log10(Math.max(n, 1)) / 3));
  return `${Number((n / 1000 ** power).toPrecision(3))} ${units[power]}`;
}

/** "a, b, c and 4 more" @param {string[]} names @param {number} most */
export function some(names, most) {
  const rest = names.length - most;
  return names.slice(0, most).join(', ') + (rest > 0 ? ` and ${number(rest)} more` : '');
}

/** What a job is doing. @param {import('./jobs.js').Job<unknown>} job */
export function jobWords(job) {
  if (job.state === 'waiting') {
    if (!job.ahead) return 'Waiting to start';
    return `Waiting for ${count(job.ahead, 'earlier change')}`;
  }
  const word = STAGES[job.stage] ?? (job.stage || 'Starting');
  return job.total > 1 ? `${word}: ${job.done} of ${job.total}` : word;
}

/** What a job has done, by its stage: short, for a list. @param {string} stage */
export const doneWords = (stage) => DONE[stage] ?? '';

/** The sentence of a test, or "" without one. @param {import('./model.js').Test|null} test */
export function testWords(test) {
  if (!test?.n) return '';
  const { accuracy_before: before, old_accuracy: now } = test;
  const old = before == null || now == null ? ''
    : ` On the classes it knew: ${percent(now)}, before ${percent(before)}.`;
  return `Accuracy on your ${count(test.n, 'test photo')}: ${percent(test.accuracy)}.${old}`;
}

/** "3 new classes, 45 photos, 4.1 s." @param {import('./model.js').Session} session */
export function learnWords({ new_classes: fresh, returning_classes: known, n_images: n, seconds }) {
  const parts = [];
  if (fresh.length) parts.push(count(fresh.length, 'new class', 'new classes'));
  if (known.length) parts.push(count(known.length, 'class it knew', 'classes it knew'));
  const total = Object.values(seconds).reduce((sum, each) => sum + each, 0);
  return `${[...parts, photos(n), duration(total)].join(', ')}.`;
}
