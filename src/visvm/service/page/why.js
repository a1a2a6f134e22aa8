// Why: what an answer rests on, drawn over the photo.
import { request } from './api.js';
import { $, announce, find, h } from './dom.js';
import { model } from './model.js';
import { photoForm } from './photos.js';

const button = find('why', HTMLButtonElement);
/** @type {HTMLElement|null} */
let plain = null; // the photo, while the map is shown in its place

/** No answer, or another one: nothing to explain yet. */
export function forgetWhy() {
  plain = null;
  button.hidden = true;
  button.textContent = 'Why?';
  button.disabled = false;
  $('why-help').hidden = true;
}

export const offerWhy = () => { button.hidden = false; };

/**
 * The server draws the square that it looked at: squeezed, or only the middle of the photo.
 * @param {Blob} picture @param {string} label @param {Element|null} shown
 */
async function canvasOf(picture, label, shown) {
  const square = await createImageBitmap(picture);
  const squeezed = model()?.transform === 'squash' && shown instanceof HTMLImageElement;
  const aspect = squeezed && shown.naturalHeight ? shown.naturalWidth / shown.naturalHeight : 1;
  const canvas = h('canvas', { role: 'img', testid: 'heat',
    'aria-label': `What speaks for ${label} in your photo`,
    width: Math.round(square.width * Math.sqrt(aspect)),
    height: Math.round(square.height / Math.sqrt(aspect)) });
  canvas.getContext('2d')?.drawImage(square, 0, 0, canvas.width, canvas.height);
  return canvas;
}

/**
 * Show the map of an answer, or the photo again.
 * @param {File} photo @param {string} label @param {() => boolean} isShown
 */
export async function toggleWhy(photo, label, isShown) {
  const stage = $('ask-stage');
  if (plain) {
    stage.replaceChildren(plain);
    forgetWhy();
    offerWhy();
    return;
  }
  button.disabled = true;
  button.textContent = 'Looking…';
  try {
    const path = `api/explain?label=${encodeURIComponent(label)}`;
    const answer = await request(path, { method: 'POST', body: photoForm([{ file: photo }]) });
    const canvas = await canvasOf(await answer.blob(), label, stage.firstElementChild);
    if (!isShown()) return;
    plain = /** @type {HTMLElement|null} */ (stage.firstElementChild);
    stage.replaceChildren(canvas);
    button.textContent = 'Show the photo';
    $('why-help').hidden = false;
    announce(`Red parts of the photo speak for ${label}, blue ones against it.`);
  } finally {
    if (isShown()) {
      button.disabled = false;
      if (!plain) button.textContent = 'Why?';
    }
  }
}
