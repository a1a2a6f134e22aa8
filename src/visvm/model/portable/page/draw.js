// The fixed random map R from its seed, bit for bit as visvm draws it (head/lift.py): Philox4x64
// integers, Marsaglia's polar method, and a logarithm of basic operations only.

const BLOCK = 1 << 16;
const LOG_2 = 0.6931471805599453;
const SQRT_HALF = 0.7071067811865476;
const TWO_32 = 2 ** 32;

/** @param {number} a @param {number} b @returns {[number, number]} high and low half of a · b, all of 32 bits */
function times(a, b) {
  const a0 = a & 0xffff, a1 = a >>> 16, b0 = b & 0xffff, b1 = b >>> 16;
  const first = a1 * b0 + Math.floor((a0 * b0) / 65536);
  const second = a0 * b1 + (first % 65536);
  return [a1 * b1 + Math.floor(first / 65536) + Math.floor(second / 65536), Math.imul(a, b) >>> 0];
}

/** The product of two numbers of 64 bits, as four of 32, the highest first.
 * @param {number} a1 @param {number} a0 @param {number} b1 @param {number} b0 */
function product(a1, a0, b1, b0) {
  const [h00, l00] = times(a0, b0), [h01, l01] = times(a0, b1);
  const [h10, l10] = times(a1, b0), [h11, l11] = times(a1, b1);
  const second = h00 + l01 + l10;
  const third = h01 + h10 + l11 + Math.floor(second / TWO_32);
  return [(h11 + Math.floor(third / TWO_32)) >>> 0, third >>> 0, second >>> 0, l00];
}

/** Four numbers of 64 bits, high half first, for a counter; Philox4x64 with ten rounds.
 * @param {number} counter @param {number} seed both below 2^53 */
function philox(counter, seed) {
  let x = [Math.floor(counter / TWO_32), counter >>> 0, 0, 0, 0, 0, 0, 0];
  let key = [Math.floor(seed / TWO_32), seed >>> 0, 0, 0];
  for (let round = 0; round < 10; round++) {
    const a = product(0xd2e7470e, 0xe14c6c93, x[0], x[1]);
    const b = product(0xca5a8263, 0x95121157, x[4], x[5]);
    x = [
      (b[0] ^ x[2] ^ key[0]) >>> 0, (b[1] ^ x[3] ^ key[1]) >>> 0, b[2], b[3],
      (a[0] ^ x[6] ^ key[2]) >>> 0, (a[1] ^ x[7] ^ key[3]) >>> 0, a[2], a[3],
    ];
    const low = key[1] + 0x7f4a7c15, other = key[3] + 0x84caa73b;
    key = [
      (key[0] + 0x9e3779b9 + Math.floor(low / TWO_32)) >>> 0, low >>> 0,
      (key[2] + 0xbb67ae85 + Math.floor(other / TWO_32)) >>> 0, other >>> 0,
    ];
  }
  return x;
}

const bits = new DataView(new ArrayBuffer(8));

/** @param {number} x above 0, and no subnormal */
function log(x) {
  bits.setFloat64(0, x);
  const high = bits.getUint32(0);
  let exponent = (high >>> 20) - 1022;
  bits.setUint32(0, (high & 0xfffff) | (1022 << 20));
  let mantissa = bits.getFloat64(0);
  if (mantissa < SQRT_HALF) {
    mantissa *= 2;
    exponent -= 1;
  }
  const t = (mantissa - 1) / (mantissa + 1), square = t * t;
  let series = 1 / 21;
  for (let denominator = 19; denominator > 0; denominator -= 2) series = series * square + 1 / denominator;
  return exponent * LOG_2 + 2 * t * series;
}

/**
 * R, row by row.
 * @param {number} seed
 * @param {number} nInputs d
 * @param {number} nComponents D
 * @returns {Float64Array<ArrayBuffer>}
 */
export function randomMap(seed, nInputs, nComponents) {
  const drawn = new Float64Array(nInputs * nComponents), scale = Math.sqrt(nInputs);
  const raw = new Float64Array(2 * BLOCK);
  let found = 0, counter = 0;
  while (found < drawn.length) {
    for (let place = 0; place < raw.length; place += 4) {
      const four = philox(++counter, seed);
      for (let each = 0; each < 4; each++) {
        const whole = four[2 * each] * 2 ** 21 + (four[2 * each + 1] >>> 11);
        raw[place + each] = whole * 2 ** -52 - 1;
      }
    }
    for (let place = 0; place < BLOCK && found < drawn.length; place++) {
      const x = raw[place], y = raw[BLOCK + place], s = x * x + y * y;
      if (!(s > 0 && s < 1)) continue;
      const radius = Math.sqrt((-2 * log(s)) / s);
      drawn[found++] = (x * radius) / scale;
      if (found < drawn.length) drawn[found++] = (y * radius) / scale;
    }
  }
  return drawn;
}
