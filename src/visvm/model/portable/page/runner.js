// Runs the model, beside the page, so that the page never stands still.

import { answering } from "./calls.js";

/** @typedef {import("./answers.js").About} About */

/** @type {any} */
let ort = null;
/** @type {any} */
let session = null;

/**
 * The content of a file, from the browser's cache where it is there.
 * @param {string} url
 * @param {string} cacheName
 * @param {(bytes: number) => void} more how many bytes have come
 * @returns {Promise<Blob>}
 */
async function fetched(url, cacheName, more) {
  const cache = "caches" in self ? await caches.open(cacheName) : null;
  const kept = await cache?.match(url);
  if (kept) {
    const blob = await kept.blob();
    more(blob.size);
    return blob;
  }
  const response = await fetch(url, { cache: "no-cache" });
  if (!response.ok || !response.body) throw new Error(`${url} is missing on the server`);
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

/** What a file holds, also if the server has called its compression one of the transfer. @param {Blob} file */
async function unpacked(file) {
  const [first, second] = new Uint8Array(await file.slice(0, 2).arrayBuffer());
  const packed = first === 0x1f && second === 0x8b;
  return new Response(packed ? file.stream().pipeThrough(new DecompressionStream("gzip")) : file).arrayBuffer();
}

/** Start the model; return what it runs on. @param {About} said @param {(share: number) => void} progress */
async function load(said, progress) {
  // another model has another cache
  const name = `visvm ${new URL("./", location.href)} ${said.digest}`;
  const whole = said.bytes.model + said.bytes.wasm;
  let bytes = 0;
  const more = (/** @type {number} */ each) => progress(Math.min(1, (bytes += each) / whole));
  const [model, wasm] = await Promise.all([said.files.model, said.files.wasm].map((url) => fetched(url, name, more)));
  ort = await import(said.files.runtime);
  ort.env.wasm.wasmBinary = await unpacked(wasm);
  ort.env.wasm.numThreads = self.crossOriginIsolated ? 0 : 1;
  const content = new Uint8Array(await unpacked(model));
  const gpu = /** @type {any} */ (navigator).gpu;
  if (gpu && (await gpu.requestAdapter().catch(() => null))) {
    try {
      session = await ort.InferenceSession.create(content, { executionProviders: ["webgpu", "wasm"] });
      return "WebGPU";
    } catch (error) {
      console.warn("WebGPU cannot run this model; WebAssembly does.", error);
    }
  }
  session = await ort.InferenceSession.create(content, { executionProviders: ["wasm"] });
  return "WebAssembly";
}

/** Outputs of the model by name. @param {Uint8Array} rgb @param {number} width @param {number} height @param {string[]} names */
async function run(rgb, width, height, names) {
  const image = new ort.Tensor("uint8", rgb, [1, height, width, 3]);
  const wanted = names.filter((name) => session.outputNames.includes(name));
  const found = await session.run({ image }, wanted);
  return Object.fromEntries(wanted.map((name) => [name, found[name].data]));
}

answering((what, progress) => ("said" in what ? load(what.said, progress) : run(what.rgb, what.width, what.height, what.names)));
