// The teaching page: photos of new classes in, a model file out.

import { about, Model, opened, row, showLoading } from "./answers.js";
import { asking } from "./calls.js";

/** @template {HTMLElement} T @param {string} id @returns {T} */
const at = (id) => /** @type {T} */ (document.getElementById(id));
/** @param {string} id @returns {HTMLInputElement} */
const input = (id) => at(id);

const status = at("status");
const bar = /** @type {HTMLProgressElement} */ (at("progress"));
const width = /** @type {HTMLSelectElement} */ (at("width"));
const learn = /** @type {HTMLButtonElement} */ (at("learn"));
const download = /** @type {HTMLAnchorElement} */ (at("download"));
const photo = /** @type {HTMLImageElement} */ (at("photo"));

const WIDTHS = [2000, 5000]; // beside the model's own
const MOST = 2000; // photos: time grows with their number cubed
/** How many photos a map may have: two thirds of D is visvm's thin form. */
const most = () => Math.min(MOST, Math.floor((2 / 3) * Number(width.value)));

/** @type {Map<string, Float32Array[]>} fused features by class */
const taught = new Map();
const done = asking(new Worker("worker.js", { type: "module" }));

/** @param {string} text */
const say = (text) => (status.textContent = text);
/** @param {unknown} error */
const explain = (error) => (error instanceof Error ? error.message : String(error));

async function start() {
  const said = await about();
  if (!said.teach) throw new Error("it was exported without --teach");
  const own = said.teach.width;
  const settled = await (await fetch(said.teach.file)).arrayBuffer();
  for (const each of [...new Set([...WIDTHS, own])].sort((a, b) => a - b)) width.add(new Option(String(each)));
  width.value = String(WIDTHS[1]);
  const model = await Model.load(said, showLoading(said, status, bar));
  bar.hidden = true;
  say(`Ready (${model.engine}).`);
  input("photos").onchange = () => add(model, Array.from(input("photos").files ?? [], (file) => [input("name").value, file]));
  input("folder").onchange = () => add(model, Array.from(input("folder").files ?? [], named).filter(([, file]) => file.type.startsWith("image/")));
  learn.onclick = () => solve(settled);
  input("file").onchange = () => ask(model, input("file").files?.[0]);
  for (const id of ["photos", "folder"]) input(id).disabled = false;
}

/** @param {File} file @returns {[string, File]} its folder's name, and itself */
const named = (file) => [file.webkitRelativePath.split("/").at(-2) ?? "", file];

/** @param {Model} model @param {[string, File][]} given */
async function add(model, given) {
  const failed = [];
  if (given.some(([label]) => !label.trim())) return say("Type the name of the class first.");
  learn.disabled = true;
  bar.hidden = false;
  for (const [place, [label, file]] of given.entries()) {
    bar.value = place / given.length;
    say(`Looking at photo ${place + 1} of ${given.length}.`);
    try {
      const features = await featuresOf(model, file);
      taught.set(label.trim(), [...(taught.get(label.trim()) ?? []), features]);
    } catch (error) {
      failed.push(`${file.name} (${explain(error)})`);
    }
  }
  bar.hidden = true;
  input("name").value = ""; // the next photos are of another class
  show();
  return say(failed.length ? `Skipped, as they cannot be read as images: ${failed.join(", ")}.` : "Ready.");
}

/** @param {Model} model @param {File} file */
async function featuresOf(model, file) {
  const bitmap = await opened(file);
  return model.fused(bitmap, bitmap.width, bitmap.height);
}

function show() {
  at("classes").replaceChildren(
    ...[...taught].map(([label, each]) => {
      const item = document.createElement("li");
      const remove = document.createElement("button");
      remove.textContent = "Remove";
      remove.type = "button";
      remove.ariaLabel = `Remove ${label}`;
      remove.onclick = () => taught.delete(label) && show();
      item.append(`${label}: ${each.length} photo${each.length > 1 ? "s" : ""} `, remove);
      return item;
    }),
  );
  learn.disabled = taught.size < 2;
}

/** @param {ArrayBuffer} settled */
async function solve(settled) {
  const labels = [...taught].flatMap(([label, each]) => each.map(() => label));
  if (labels.length > most()) return say(`This map takes at most ${most()} photos. Choose a wider one, or learn with visvm.`);
  learn.disabled = true;
  bar.hidden = false;
  say("Learning.");
  try {
    const fused = new Float32Array(await new Blob([...taught.values()].flat().map((each) => new Float32Array(each))).arrayBuffer());
    /** @type {import("./worker.js").Learned} */
    const made = await done({ kind: "learn", settled, fused, labels, width: Number(width.value) }, (share) => (bar.value = share));
    URL.revokeObjectURL(download.href);
    download.href = URL.createObjectURL(made.file);
    const percent = (100 * made.accuracy).toFixed(0);
    at("verdict").textContent =
      `Learned ${labels.length} photos of ${taught.size} classes in ${made.seconds.toFixed(1)} s; ${percent} % of them would be recognised by the others.`;
    at("learned").hidden = false;
    say("Ready.");
  } catch (error) {
    say(`Learning failed (${explain(error)}). Choose a narrower map, or fewer photos.`);
  }
  bar.hidden = true;
  learn.disabled = false;
  return undefined;
}

/** @param {Model} model @param {File|undefined} chosen */
async function ask(model, chosen) {
  if (!chosen) return;
  try {
    at("answers").replaceChildren();
    /** @type {import("./worker.js").Answers} */
    const answers = await done({ kind: "ask", fused: await featuresOf(model, chosen) });
    URL.revokeObjectURL(photo.src);
    photo.src = URL.createObjectURL(chosen);
    at("result").hidden = false;
    at("answers").replaceChildren(...answers.map((each) => row(each.label, each.share)));
  } catch (error) {
    say(`${chosen.name} cannot be asked about (${explain(error)}). Choose another photo.`);
  }
}

start().catch((error) => {
  bar.hidden = true;
  say(`The model cannot be loaded (${explain(error)}). Reload the page.`);
});
