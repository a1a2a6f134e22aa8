// Fused features and labels → coefficients and sums, as the thin form of visvm has them.

/** @typedef {Float64Array<ArrayBuffer>} Numbers */
/**
 * @typedef {{
 *   coefficients: Numbers, classSums: Numbers, factor: Numbers, targets: Numbers,
 *   calibration: Numbers, accuracy: number}} Solved
 *   coefficients and class sums (D + 1, C), factor (N - 1, D), targets (N - 1, C), calibration (49,)
 */

/**
 * φ = relu(uR), (n, D).
 * @param {ArrayLike<number>} fused (n, d)
 * @param {Numbers} map (d, D)
 * @param {number} d
 */
export function lifted(fused, map, d) {
  const n = fused.length / d, width = map.length / d;
  const rows = new Float64Array(n * width);
  for (let i = 0; i < n; i++) {
    const row = rows.subarray(i * width, (i + 1) * width);
    for (let k = 0; k < d; k++) {
      const value = fused[i * d + k], from = k * width;
      for (let j = 0; j < width; j++) row[j] += value * map[from + j];
    }
    for (let j = 0; j < width; j++) if (row[j] < 0) row[j] = 0;
  }
  return rows;
}

/** The scores of lifted rows, (n, C). @param {Numbers} rows @param {Numbers} coefficients @param {number} width */
export function scores(rows, coefficients, width) {
  const n = rows.length / width, nClasses = coefficients.length / (width + 1);
  const found = new Float64Array(n * nClasses);
  for (let i = 0; i < n; i++) {
    for (let c = 0; c < nClasses; c++) found[i * nClasses + c] = coefficients[width * nClasses + c];
    for (let j = 0; j < width; j++) {
      const value = rows[i * width + j];
      if (value) for (let c = 0; c < nClasses; c++) found[i * nClasses + c] += value * coefficients[j * nClasses + c];
    }
  }
  return found;
}

/**
 * Solve for one-hot targets of ±1: W = Φᵀ(ΦΦᵀ + μI)⁻¹Y over the rows [φ, 1].
 * @param {Numbers} rows lifted, (N, D)
 * @param {number[]} places the class of each row
 * @param {number} nClasses
 * @param {number} shift μ = λ / C_svm
 * @param {(share: number) => void} progress
 * @returns {Solved}
 */
export function solve(rows, places, nClasses, shift, progress) {
  const n = places.length, width = rows.length / n;
  const inverse = inverted(kernel(rows, n, width, shift, progress), n);
  const alpha = new Float64Array(n * nClasses);
  for (let i = 0; i < n; i++)
    for (let j = 0; j < n; j++)
      for (let c = 0; c < nClasses; c++) alpha[i * nClasses + c] += inverse[i * n + j] * (places[j] === c ? 1 : -1);
  const coefficients = new Float64Array((width + 1) * nClasses), classSums = new Float64Array((width + 1) * nClasses);
  for (let i = 0; i < n; i++)
    for (let j = 0; j <= width; j++) {
      const value = j === width ? 1 : rows[i * width + j];
      classSums[j * nClasses + places[i]] += value;
      for (let c = 0; c < nClasses; c++) coefficients[j * nClasses + c] += value * alpha[i * nClasses + c];
    }
  // what a row would get without itself: y - [K⁻¹Y]ᵢ / [K⁻¹]ᵢᵢ
  const without = alpha.map((value, place) => {
    const i = Math.floor(place / nClasses), y = place % nClasses === places[i] ? 1 : -1;
    return y - value / inverse[i * n + i];
  });
  return { coefficients, classSums, ...scatter(rows, places, nClasses), ...calibrated(without, places, nClasses) };
}

/** ΦΦᵀ + μI, (N, N). @param {Numbers} rows @param {number} n @param {number} width @param {number} shift
 * @param {(share: number) => void} progress */
function kernel(rows, n, width, shift, progress) {
  const found = new Float64Array(n * n);
  for (let i = 0; i < n; i++) {
    const mine = rows.subarray(i * width, (i + 1) * width);
    for (let j = 0; j <= i; j++) {
      const other = rows.subarray(j * width, (j + 1) * width);
      let sum = 1;
      for (let k = 0; k < width; k++) sum += mine[k] * other[k];
      found[i * n + j] = found[j * n + i] = sum;
    }
    found[i * n + i] += shift;
    if (i % 50 === 0) progress((i / n) ** 2);
  }
  return found;
}

/** The inverse of a symmetric positive matrix, by Cholesky. @param {Numbers} matrix (n, n), overwritten @param {number} n */
function inverted(matrix, n) {
  for (let i = 0; i < n; i++)
    for (let j = 0; j <= i; j++) {
      let sum = matrix[i * n + j];
      for (let k = 0; k < j; k++) sum -= matrix[i * n + k] * matrix[j * n + k];
      matrix[i * n + j] = i === j ? Math.sqrt(sum) : sum / matrix[j * n + j];
    }
  // rows of L⁻ᵀ: entry (j, i) of L⁻¹ for j ≥ i
  const lower = new Float64Array(n * n);
  for (let i = 0; i < n; i++)
    for (let j = i; j < n; j++) {
      let sum = i === j ? 1 : 0;
      for (let k = i; k < j; k++) sum -= matrix[j * n + k] * lower[i * n + k];
      lower[i * n + j] = sum / matrix[j * n + j];
    }
  const found = new Float64Array(n * n);
  for (let i = 0; i < n; i++)
    for (let j = 0; j <= i; j++) {
      let sum = 0;
      for (let k = i; k < n; k++) sum += lower[i * n + k] * lower[j * n + k];
      found[i * n + j] = found[j * n + i] = sum;
    }
  return found;
}

/**
 * The scatter about the mean as a factor: rows and one-hot targets, reflected so that the first is
 * √N times the mean, which is dropped; the others are mixed by reflections that are not kept.
 * @param {Numbers} rows @param {number[]} places @param {number} nClasses
 */
function scatter(rows, places, nClasses) {
  const n = places.length, width = rows.length / n;
  const factor = rows.slice(), targets = new Float64Array(n * nClasses);
  places.forEach((place, i) => (targets[i * nClasses + place] = 1));
  const direction = new Float64Array(n).fill(-1 / Math.sqrt(n));
  direction[0] += 1;
  const both = [[factor, width], [targets, nClasses]];
  for (const [values, wide] of both) reflect(/** @type {Numbers} */ (values), /** @type {number} */ (wide), direction, 0);
  const group = 64;
  for (let first = 1; first < n; first += group) {
    const size = Math.min(group, n - first);
    for (let each = 0; each < size; each++) {
      const random = Float64Array.from({ length: size }, normal);
      for (const [values, wide] of both) reflect(/** @type {Numbers} */ (values), /** @type {number} */ (wide), random, first);
    }
  }
  return { factor: factor.slice(width), targets: targets.slice(nClasses) };
}

/** Reflect some rows, in place. @param {Numbers} values @param {number} wide @param {Numbers} direction @param {number} first */
function reflect(values, wide, direction, first) {
  const size = direction.reduce((sum, each) => sum + each * each, 0);
  if (!size) return;
  const along = new Float64Array(wide);
  direction.forEach((each, i) => {
    for (let j = 0, at = (first + i) * wide; j < wide; j++) along[j] += each * values[at + j];
  });
  direction.forEach((each, i) => {
    const much = (2 * each) / size;
    for (let j = 0, at = (first + i) * wide; j < wide; j++) values[at + j] -= much * along[j];
  });
}

/** A normal number, for directions that nobody has to draw again. */
function normal() {
  return Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());
}

/** The grid of β (head/calibration.py). */
const BETAS = Array.from({ length: 49 }, (_, i) => 0.25 * 256 ** (i / 48));

/**
 * Log-likelihoods of the labels under every β, and the share of rows that are recognised.
 * @param {Numbers} found scores, (N, C) @param {number[]} places @param {number} nClasses
 */
function calibrated(found, places, nClasses) {
  const n = places.length, doubt = 1 / (n + 2), calibration = new Float64Array(BETAS.length);
  let right = 0;
  places.forEach((place, i) => {
    const row = found.subarray(i * nClasses, (i + 1) * nClasses), best = Math.max(...row);
    if (row[place] === best) right += 1;
    BETAS.forEach((beta, at) => {
      const whole = Math.log(row.reduce((sum, each) => sum + Math.exp(beta * (each - best)), 0));
      const logs = row.map((each) => beta * (each - best) - whole);
      const mean = logs.reduce((sum, each) => sum + each, 0) / nClasses;
      calibration[at] += (1 - doubt) * logs[place] + doubt * mean;
    });
  });
  return { calibration, accuracy: right / n };
}

/** Probabilities of one row of scores. @param {ArrayLike<number>} row @param {Numbers} calibration */
export function probabilities(row, calibration) {
  const beta = BETAS[calibration.indexOf(Math.max(...calibration))], best = Math.max(...Array.from(row));
  const shares = Array.from(row, (each) => Math.exp(beta * (each - best)));
  const whole = shares.reduce((sum, each) => sum + each, 0);
  return shares.map((share) => share / whole);
}
