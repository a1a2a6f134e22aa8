// Learns from features, beside the page: draws the map, solves, and writes the model file.

import { answering } from "./calls.js";
import { randomMap } from "./draw.js";
import { mapDigest, read, tensor, written } from "./file.js";
import { lifted, probabilities, scores, solve } from "./solve.js";

/**
 * @typedef {{kind: "learn", settled: ArrayBuffer, fused: Float32Array, labels: string[], width: number}} Learn
 * @typedef {{kind: "ask", fused: Float32Array}} Ask
 * @typedef {{file: Blob, accuracy: number, seconds: number}} Learned
 * @typedef {{label: string, share: number}[]} Answers
 */

/** @type {{map: Float64Array<ArrayBuffer>, d: number, width: number, classes: string[], solved: import("./solve.js").Solved}|null} */
let known = null;

/** Names in the order of their letters' numbers, as Python sorts. @param {string} a @param {string} b */
function compared(a, b) {
  const [one, two] = [Array.from(a), Array.from(b)];
  const at = one.findIndex((letter, place) => letter !== two[place]);
  if (at < 0) return one.length - two.length;
  return at < two.length ? (one[at].codePointAt(0) ?? 0) - (two[at].codePointAt(0) ?? 0) : 1;
}

/** @param {Learn} given @param {(share: number) => void} progress @returns {Promise<Learned>} */
async function learn({ settled, fused, labels, width }, progress) {
  const start = performance.now();
  const { header, tensors } = read(settled);
  const d = header.head.layer_dims.at(-1), own = header.head.n_components;
  const classes = [...new Set(labels)].sort(compared), n = labels.length;
  const places = labels.map((label) => classes.indexOf(label));
  const counts = classes.map((_, place) => places.filter((each) => each === place).length);
  const map = randomMap(header.head.kernel_map.seed, d, width);
  progress(0.2);
  const rows = lifted(fused, map, d);
  progress(0.4);
  // inner products of φ grow with D, and so must λ
  const ridge = (header.head.chosen_ridge * width) / own;
  const solved = solve(rows, places, classes.length, ridge / header.head.svm_cost, (share) => progress(0.4 + 0.5 * share));
  known = { map, d, width, classes, solved };
  const head = {
    ...header.head, n_components: width, chosen_ridge: ridge, form: "thin", solved: true,
    ridge: typeof header.head.ridge === "number" ? ridge : header.head.ridge,
    kernel_map: { seed: header.head.kernel_map.seed, digest: await mapDigest(map, d, width) },
  };
  const session = {
    session: 1, learned_at: new Date().toISOString(), n_images: n, new_classes: classes, returning_classes: [],
    n_classes: classes.length, ridge, layers: head.layers,
  };
  const whole = { ...header, head, classes, counts, sessions: [session], calibrated_classes: classes.length, kind: "whole" };
  const file = await written(whole, {
    ...tensors,
    coefficients: tensor(solved.coefficients, width + 1, classes.length),
    class_sums: tensor(solved.classSums, width + 1, classes.length),
    "factor.0": tensor(solved.factor, n - 1, width),
    targets: tensor(solved.targets, n - 1, classes.length),
    calibration: tensor(solved.calibration, solved.calibration.length),
  });
  return { file, accuracy: solved.accuracy, seconds: (performance.now() - start) / 1000 };
}

/** @param {Ask} given @returns {Answers} */
function ask({ fused }) {
  if (!known) throw new Error("Nothing was learned yet.");
  const { map, d, width, classes, solved } = known;
  const shares = probabilities(scores(lifted(fused, map, d), solved.coefficients, width), solved.calibration);
  return classes.map((label, place) => ({ label, share: shares[place] })).sort((a, b) => b.share - a.share).slice(0, 5);
}

answering((what, progress) => (what.kind === "learn" ? learn(what, progress) : ask(what)));
