// Model files of visvm: a safetensors file whose metadata carry a JSON header with a digest
// (model/container.py).

/** @typedef {{shape: number[], bytes: Uint8Array<ArrayBuffer>}} Tensor */

/** @param {BufferSource} bytes */
async function digest(bytes) {
  const found = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return Array.from(found, (each) => each.toString(16).padStart(2, "0")).join("");
}

/** The digest of a random map, as its entry in a header. @param {Float64Array<ArrayBuffer>} map @param {number} d @param {number} width */
export async function mapDigest(map, d, width) {
  const name = new TextEncoder().encode(`visvm kernel map 1 ${d}x${width}\n`);
  const whole = new Uint8Array(name.length + map.byteLength);
  whole.set(name);
  whole.set(new Uint8Array(map.buffer), name.length);
  return digest(whole);
}

/** @param {ArrayBuffer} content @returns {{header: any, tensors: Record<string, Tensor>}} */
export function read(content) {
  const length = Number(new DataView(content).getBigUint64(0, true));
  const { __metadata__: said, ...listed } = JSON.parse(new TextDecoder().decode(new Uint8Array(content, 8, length)));
  /** @type {Record<string, Tensor>} */
  const tensors = {};
  for (const [name, { shape, data_offsets: [begin, end] }] of Object.entries(listed))
    tensors[name] = { shape, bytes: new Uint8Array(content.slice(8 + length + begin, 8 + length + end)) };
  return { header: JSON.parse(said.visvm), tensors };
}

/** @param {any} header @param {Record<string, Tensor>} tensors @returns {Promise<Blob>} */
export async function written(header, tensors) {
  /** @type {Record<string, string>} */
  const digests = {};
  for (const [name, { bytes }] of Object.entries(tensors)) digests[name] = await digest(bytes);
  const text = JSON.stringify({ ...header, tensors: digests });
  const sha256 = await digest(new TextEncoder().encode(text));
  /** @type {Record<string, any>} */
  const listed = { __metadata__: { visvm: text, sha256 } };
  let offset = 0;
  for (const [name, { shape, bytes }] of Object.entries(tensors)) {
    listed[name] = { dtype: "F64", shape, data_offsets: [offset, offset + bytes.length] };
    offset += bytes.length;
  }
  const bare = new TextEncoder().encode(JSON.stringify(listed));
  const padded = new Uint8Array(Math.ceil(bare.length / 8) * 8).fill(32); // tensors begin at a multiple of 8
  padded.set(bare);
  const length = new DataView(new ArrayBuffer(8));
  length.setBigUint64(0, BigInt(padded.length), true);
  return new Blob([length, padded, ...Object.values(tensors).map(({ bytes }) => bytes)]);
}

/** @param {Float64Array<ArrayBuffer>} values @param {number[]} shape @returns {Tensor} */
export const tensor = (values, ...shape) => ({ shape, bytes: new Uint8Array(values.buffer, values.byteOffset, values.byteLength) });
