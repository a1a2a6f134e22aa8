// A model exported by visvm, in the browser: its files, and what it says of a photo.

import { asking } from "./calls.js";

/**
 * @typedef {{labels: (string|number)[], unknown: number, digest: string,
 *   names: string[],
 *   teach: {file: string, width: number}|null, files: {model: string, wasm: string, runtime: string}, bytes: {model: number, wasm: number}}} About
 * @typedef {{label: string, share: number}} Answer
 * @typedef {{answers: Answer[], known: number|null, unknown: boolean, milliseconds: number}} Said
 */

/** @returns {Promise<About>} */
export async function about() {
  return (await fetch("model.json", { cache: "no-cache" })).json();
}

export class Model {
  /** @param {About} said @param {import("./calls.js").Asked} run @param {string} engine */
  constructor(said, run, engine) {
    this.said = said;
    this.run = run;
    this.engine = engine;
  }

  /**
   * Fetch the model and its runtime, and start them in a worker.
   * @param {About} said
   * @param {(share: number) => void} progress
   */
  static async load(said, progress) {
    const run = asking(new Worker(new URL("runner.js", import.meta.url), { type: "module" }));
    return new Model(said, run, await run({ said }, progress));
  }

  /**
   * The features that a new model learns from, where the page can teach.
   * @param {CanvasImageSource} photo upright
   * @param {number} width
   * @param {number} height
   * @returns {Promise<Float32Array>}
   */
  async fused(photo, width, height) {
    return (await this.outputs(photo, width, height, ["fused"])).fused;
  }

  /**
   * Say what a photo shows.
   * @param {CanvasImageSource} photo upright
   * @param {number} width
   * @param {number} height
   * @returns {Promise<Said>}
   */
  async ask(photo, width, height) {
    const start = performance.now();
    const found = await this.outputs(photo, width, height, ["probabilities", "top", "known"]);
    const known = found.known ? found.known[0] : null;
    const answers = Array.from(found.top, (place) => ({
      label: String(this.said.labels[Number(place)]),
      share: found.probabilities[Number(place)],
    }));
    const unknown = known !== null && known < this.said.unknown;
    return { answers, known, unknown, milliseconds: performance.now() - start };
  }

  /** @param {CanvasImageSource} photo @param {number} width @param {number} height @param {string[]} names @returns {Promise<any>} */
  outputs(photo, width, height, names) {
    const rgb = pixels(photo, width, height);
    return this.run({ rgb, width, height, names }, undefined, [rgb.buffer]);
  }
}

/** A photo, upright, in the colours that are stored, as visvm reads photos. @param {Blob} file */
export const opened = (file) => createImageBitmap(file, { imageOrientation: "from-image", colorSpaceConversion: "none" });

/** Return what shows how far the loading of a model is. @param {About} said @param {HTMLElement} status @param {HTMLProgressElement} bar */
export function showLoading(said, status, bar) {
  const megabytes = Math.ceil((said.bytes.model + said.bytes.wasm) / 1e6);
  bar.hidden = false;
  return (/** @type {number} */ share) => {
    bar.value = share;
    status.textContent = `Loading: ${Math.floor(share * megabytes)} of ${megabytes} MB.`;
    if (share < 1) return;
    status.textContent = "Starting the model.";
    bar.removeAttribute("value"); // how long it takes is not known
  };
}

/** An answer as an item of a list. @param {string} label @param {number} share */
export function row(label, share) {
  const item = document.createElement("li");
  const name = document.createElement("span");
  const value = document.createElement("span");
  const meter = document.createElement("meter");
  name.textContent = label;
  value.textContent = `${(100 * share).toFixed(1)} %`;
  meter.value = share;
  meter.ariaLabel = label;
  item.append(name, value, meter);
  return item;
}

/**
 * The red, green and blue of a photo, row by row; what is transparent is white.
 * @param {CanvasImageSource} photo
 * @param {number} width
 * @param {number} height
 */
function pixels(photo, width, height) {
  const canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext("2d", { willReadFrequently: true });
  if (!context) throw new Error("This browser gives no canvas.");
  context.fillStyle = "white";
  context.fillRect(0, 0, width, height);
  context.drawImage(photo, 0, 0);
  const { data } = context.getImageData(0, 0, width, height);
  const rgb = new Uint8Array(width * height * 3);
  for (let from = 0, to = 0; from < data.length; from += 4) {
    rgb[to++] = data[from];
    rgb[to++] = data[from + 1];
    rgb[to++] = data[from + 2];
  }
  return rgb;
}
