// Numbers and states as plain English.

const STAGES = {
  encoding: 'Looking at photos',
  'encoding test images': 'Looking at test photos',
  'choosing λ and blocks': 'Finding out what to look for',
  learning: 'Learning',
  calibrating: 'Finding out how sure it can be',
  'writing the model': 'Saving',
  beginning: 'Beginning',
  forgetting: 'Forgetting',
  renaming: 'Renaming',
  'waiting for another program': 'Another program is changing the model: waiting for it',
};

/** "1 photo", "1,200 photos" */
export const count = (n, one, many = `${one}s`) => `${n.toLocaleString('en')} ${n === 1 ? one : many}`;
export const photos = (n) => count(n, 'photo');
export const classes = (n) => count(n, 'class', 'classes');

/** 0.96 as "96 %"; never rounds up to 100 or down to 0. */
export function percent(share) {
  const whole = Math.round(share * 100);
  if (whole === 100 && share < 1) return `${Math.floor(share * 1000) / 10} %`;
  return whole === 0 && share > 0 ? '<1 %' : `${whole} %`;
}

/** 4.13 as "4.1 s", 125 as "2 min 5 s" */
export function duration(seconds) {
  if (seconds < 60) return `${Number(seconds.toFixed(1))} s`;
  return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
}

export function bytes(n) {
  const units = ['bytes', 'kB', 'MB', 'GB'];
  const power = Math.min(3, Math.floor(Math.log10(Math.max(n, 1)) / 3));
  return `${Number((n / 1000 ** power).toPrecision(3))} ${units[power]}`;
}

/** "a, b, c and 4 more" */
export function some(names, most) {
  const rest = names.length - most;
  return names.slice(0, most).join(', ') + (rest > 0 ? ` and ${rest.toLocaleString('en')} more` : '');
}

/** What a job is doing. @param {import('./jobs.js').Job} job */
export function jobWords(job) {
  if (job.state === 'waiting') {
    if (!job.ahead) return 'Waiting to start';
    return job.ahead === 1 ? 'Waiting: 1 change is before yours' : `Waiting: ${job.ahead} changes are before yours`;
  }
  const word = STAGES[job.stage] ?? (job.stage || 'Starting');
  return job.total > 1 ? `${word} ${job.done} of ${job.total}` : word;
}

/** The sentence of a test, or "" without one. */
export function testWords(test) {
  if (!test?.n) return '';
  const old = test.accuracy_before == null || test.old_accuracy == null ? ''
    : ` On the classes it knew: ${percent(test.old_accuracy)}, before ${percent(test.accuracy_before)}.`;
  return `Accuracy on your ${count(test.n, 'test photo')}: ${percent(test.accuracy)}.${old}`;
}

/** "3 new classes, 45 photos, 4.1 s." */
export function learnWords({ new_classes: fresh, returning_classes: known, n_images: n, seconds }) {
  const parts = [];
  if (fresh.length) parts.push(count(fresh.length, 'new class', 'new classes'));
  if (known.length) parts.push(count(known.length, 'class it knew', 'classes it knew'));
  const total = Object.values(seconds ?? {}).reduce((sum, each) => sum + each, 0);
  return `${[...parts, photos(n), duration(total)].join(', ')}.`;
}
