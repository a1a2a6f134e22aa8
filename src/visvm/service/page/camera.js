// The camera: photos taken on the page, or, where a page may not have it, by the phone's own app.
import { sleep } from './api.js';
import { $, field, h, messageOf } from './dom.js';

/** @typedef {(photo: File) => Promise<string>} Look says in a few words what a photo shows */

/** Whether this page may use the camera itself: browsers allow it here, and on https. */
const usable = () => Boolean(navigator.mediaDevices?.getUserMedia);

/** @param {'user'|'environment'} facing */
const stream = (facing) => navigator.mediaDevices.getUserMedia({
  video: { facingMode: facing, width: { ideal: 1280 }, height: { ideal: 960 } } });

/** @param {MediaProvider|null} source */
function stop(source) {
  if (source instanceof MediaStream) for (const track of source.getTracks()) track.stop();
}

/** @param {HTMLVideoElement} video @param {number} number @returns {Promise<File|null>} */
async function frame(video, number) {
  const canvas = h('canvas', { width: video.videoWidth, height: video.videoHeight });
  canvas.getContext('2d')?.drawImage(video, 0, 0);
  /** @type {Blob|null} */
  const blob = await new Promise((resolve) => { canvas.toBlob(resolve, 'image/jpeg', 0.92); });
  const name = `camera-${Date.now()}-${number}.jpg`;
  return blob && new File([blob], name, { type: 'image/jpeg' });
}

/**
 * Say what the camera sees, again and again, until it is closed or there is no answer.
 * @param {HTMLVideoElement} video @param {HTMLElement} place @param {Look} look
 */
async function watch(video, place, look) {
  while (video.isConnected) {
    const photo = video.videoWidth ? await frame(video, 0) : null;
    const words = photo && await look(photo).catch(() => null);
    if (photo && words === null) break;
    place.textContent = words ?? '';
    place.hidden = !words;
    await sleep(0.4);
  }
}

/** @param {boolean} many */
function finder(many) {
  const video = h('video', { autoplay: true, muted: true, playsinline: true,
    'aria-label': 'What the camera sees' });
  video.muted = true;
  const said = h('p', { class: 'muted small', role: 'status' }, 'Starting the camera…');
  // not for screen readers, which would read every change: they get the answer of the photo
  const live = h('p', { class: 'live', 'aria-hidden': 'true', testid: 'live', hidden: true });
  const shutter = h('button', { type: 'button', class: 'shutter', disabled: true,
    'aria-label': 'Take the photo', testid: 'shutter' });
  const turn = h('button', { type: 'button', class: 'quiet', hidden: true }, 'Turn around');
  const done = h('button', { type: 'button', testid: 'camera-done' }, many ? 'Done' : 'Cancel');
  const dialog = h('dialog', { class: 'camera', 'aria-label': 'Camera', testid: 'camera' },
    h('form', { method: 'dialog' }, h('div', { class: 'finder' }, video, live), said,
      h('div', { class: 'camera-foot' }, turn, shutter, done)));
  return { video, live, said, shutter, turn, done, dialog };
}

/**
 * Open the camera; resolves with the photos that were taken, none if it was left.
 * @param {Look} [look] says what it sees meanwhile, and the first photo closes it
 * @returns {Promise<File[]>}
 */
function takePhotos(look) {
  const many = !look;
  const { video, live, said, shutter, turn, done, dialog } = finder(many);
  /** @type {File[]} */
  const taken = [];
  /** @type {'user'|'environment'} */
  let facing = 'environment';
  const start = async () => {
    stop(video.srcObject);
    shutter.disabled = true;
    try {
      const source = await stream(facing);
      if (!dialog.open) return stop(source); // it was left before the camera was allowed
      const seen = new Promise((resolve) => {
        video.addEventListener('loadeddata', resolve, { once: true });
      });
      video.srcObject = source;
      await seen; // before, there is nothing to take
      shutter.disabled = false;
      said.textContent = many ? 'Take a few, from several sides.' : '';
      const all = await navigator.mediaDevices.enumerateDevices();
      turn.hidden = all.filter(({ kind }) => kind === 'videoinput').length < 2;
    } catch (error) {
      said.textContent = `The camera cannot be used (${messageOf(error)}). Allow it in the `
        + 'browser, or choose photos.';
    }
  };
  turn.addEventListener('click', () => {
    facing = facing === 'user' ? 'environment' : 'user';
    start();
  });
  shutter.addEventListener('click', async () => {
    const file = await frame(video, taken.length + 1);
    if (file) taken.push(file);
    said.textContent = `${taken.length} taken`;
    if (!many) dialog.close();
  });
  done.addEventListener('click', () => dialog.close());
  document.body.append(dialog);
  dialog.showModal();
  start().then(() => { if (look) watch(video, live, look); });
  return new Promise((resolve) => {
    dialog.addEventListener('close', () => {
      stop(video.srcObject);
      dialog.remove();
      resolve(taken);
    });
  });
}

/**
 * Set the buttons of a view up: the page's own camera, or on a phone without it the phone's app.
 * @param {'teach'|'ask'} view @param {(files: File[]) => void} give
 * @param {Look} [look] says what the camera sees before a photo is taken
 */
export function offerCamera(view, give, look) {
  const button = $(`${view}-camera`);
  button.hidden = !usable();
  $(`${view}-capture`).hidden = usable() || !matchMedia('(pointer: coarse)').matches;
  button.addEventListener('click', async () => {
    const taken = await takePhotos(look);
    button.focus();
    if (taken.length) give(taken);
  });
  const input = field(`${view}-capture-input`);
  input.addEventListener('change', () => {
    give([...input.files ?? []]);
    input.value = '';
  });
}
