// A model exported by visvm, in the browser: its files, and what it says of a photo.

/**
 * @typedef {{labels: (string|number)[], unknown: number, digest: string, pixels: string,
 *   names: string[],
 *   teach: {file: string, width: number}|null, files: {model: string, wasm: string, runtime: string}, bytes: {model: number, wasm: number}}} About
 * @typedef {{label: string, share: number}} Answer
 * @typedef {{answers: Answer[], known: number|null, unknown: boolean, milliseconds: number}} Said
 */

/** @returns {Promise<About>} */
export async function about() {
  return (await fetch("model.json", { cache: "no-cache" })).json();
}

/**
 * The content of a file, from the browser's cache where it is there.
 * @param {string} url
 * @param {string} cacheName
 * @param {(bytes: number) => void} more how many bytes have come
 * @returns {Promise<Blob>}
 */
async function fetched(url, cacheName, more) {
  const cache = "caches" in window ? await caches.open(cacheName) : null;
  const kept = await cache?.match(url);
  if (kept) {
    const blob = await kept.blob();
    more(blob.size);
    return blob;
  }
  const response = await fetch(url, { cache: "no-cache" });
  if (!response.ok || !response.body) throw new Error(`${url} is missing on the server.`);
  const reader = response.body.getReader();
  /** @type {Uint8Array<ArrayBuffer>[]} */
  const parts = [];
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    parts.push(part.value);
    more(part.value.length);
  }
  const blob = new Blob(parts);
  // A browser that is short of room may refuse: then it is fetched again next time.
  await cache?.put(url, new Response(blob)).catch(() => undefined);
  return blob;
}

/** Name of the cache of this page's files; another model has another one. @param {About} model */
export function cacheName(model) {
  return `visvm ${new URL("./", location.href)} ${model.digest}`;
}

export class Model {
  /** @param {About} said @param {any} ort @param {any} session @param {string} engine */
  constructor(said, ort, session, engine) {
    this.said = said;
    this.ort = ort;
    this.session = session;
    this.engine = engine;
  }

  /**
   * Fetch the model and its runtime, and start them.
   * @param {About} said
   * @param {(share: number) => void} progress
   */
  static async load(said, progress) {
    let bytes = 0;
    const whole = said.bytes.model + said.bytes.wasm;
    const more = (/** @type {number} */ each) => progress((bytes += each) / whole);
    const [model, packed] = await Promise.all(
      [said.files.model, said.files.wasm].map((url) => fetched(url, cacheName(said), more)),
    );
    const wasm = packed.stream().pipeThrough(new DecompressionStream("gzip"));
    const ort = await import(said.files.runtime);
    ort.env.wasm.wasmBinary = await new Response(wasm).arrayBuffer();
    ort.env.wasm.numThreads = globalThis.crossOriginIsolated ? 0 : 1;
    const content = new Uint8Array(await model.arrayBuffer());
    const gpu = /** @type {any} */ (navigator).gpu;
    if (gpu && (await gpu.requestAdapter().catch(() => null))) {
      try {
        const made = await ort.InferenceSession.create(content, { executionProviders: ["webgpu", "wasm"] });
        return new Model(said, ort, made, "WebGPU");
      } catch (error) {
        console.warn("WebGPU cannot run this model; WebAssembly does.", error);
      }
    }
    const made = await ort.InferenceSession.create(content, { executionProviders: ["wasm"] });
    return new Model(said, ort, made, "WebAssembly");
  }

  /**
   * The features that a new model learns from, where the page can teach.
   * @param {CanvasImageSource} photo upright
   * @param {number} width
   * @param {number} height
   * @returns {Promise<Float32Array>}
   */
  async fused(photo, width, height) {
    const image = new this.ort.Tensor("uint8", pixels(photo, width, height), [1, height, width, 3]);
    return (await this.session.run({ image }, ["fused"])).fused.data;
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
    const image = new this.ort.Tensor("uint8", pixels(photo, width, height), [1, height, width, 3]);
    const found = await this.session.run({ image });
    const known = found.known ? found.known.data[0] : null;
    const answers = Array.from(found.top.data, (place) => ({
      label: String(this.said.labels[Number(place)]),
      share: found.probabilities.data[Number(place)],
    }));
    const unknown = known !== null && known < this.said.unknown;
    return { answers, known, unknown, milliseconds: performance.now() - start };
  }
}

/** A photo, upright, in the colours that are stored, as visvm reads photos. @param {File} file */
export const opened = (file) => createImageBitmap(file, { imageOrientation: "from-image", colorSpaceConversion: "none" });

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
