// The page: photos and the camera in, answers out.

import { about, Model, opened, row, showLoading } from "./answers.js";

/** @template {HTMLElement} T @param {string} id @returns {T} */
const at = (id) => /** @type {T} */ (document.getElementById(id));

const drop = at("drop");
const status = at("status");
const bar = /** @type {HTMLProgressElement} */ (at("progress"));
const file = /** @type {HTMLInputElement} */ (at("file"));
const video = /** @type {HTMLVideoElement} */ (at("video"));
const photo = /** @type {HTMLImageElement} */ (at("photo"));
const camera = /** @type {HTMLButtonElement} */ (at("camera"));
const shoot = /** @type {HTMLButtonElement} */ (at("shoot"));
const result = at("result");

const NAMED = 5; // classes in one line

/** @param {string} text */
const say = (text) => (status.textContent = text);

/** @param {unknown} error */
const explain = (error) => (error instanceof Error ? error.message : String(error));

async function start() {
  const said = await about();
  if ("serviceWorker" in navigator) {
    navigator.serviceWorker.register(`sw.js?model=${said.digest}`).catch(() => undefined); // it needs https or localhost
  }
  list(said.labels);
  at("teach").hidden = !said.teach;
  const model = await Model.load(said, showLoading(said, status, bar));
  bar.hidden = true;
  say(`Ready (${model.engine}).`);
  listen(model);
}

/** Say what the model knows; all of it if one wants to. @param {(string|number)[]} labels */
function list(labels) {
  const more = labels.length - NAMED;
  const some = labels.slice(0, NAMED).join(", ");
  at("some").textContent = `Knows ${labels.length} classes: ${some}${more > 0 ? ` and ${more} others` : ""}.`;
  at("all").textContent = labels.join(", ");
  at("known").hidden = false;
}

/** @param {Model} model */
function listen(model) {
  file.addEventListener("change", () => askFile(model, file.files?.[0]));
  drop.addEventListener("dragover", (event) => {
    event.preventDefault();
    drop.classList.add("over");
  });
  drop.addEventListener("dragleave", () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    drop.classList.remove("over");
    askFile(model, event.dataTransfer?.files[0]);
  });
  camera.addEventListener("click", () => (video.hidden ? watch() : unwatch()));
  shoot.addEventListener("click", () => askView(model));
  for (const each of [file, camera]) each.disabled = false;
}

/** @param {Model} model @param {File|undefined} chosen */
async function askFile(model, chosen) {
  if (!chosen) return;
  file.value = ""; // so that the same one can be chosen again
  let bitmap;
  try {
    bitmap = await opened(chosen);
  } catch (error) {
    say(`${chosen.name} cannot be read as an image (${explain(error)}). Choose another one.`);
    return;
  }
  await ask(model, bitmap, chosen);
}

async function watch() {
  try {
    const stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
    video.srcObject = stream;
    await video.play();
    showCamera(true);
  } catch (error) {
    say(`The camera cannot be used (${explain(error)}). Allow it, or choose a photo.`);
  }
}

function unwatch() {
  for (const track of /** @type {MediaStream} */ (video.srcObject).getTracks()) track.stop();
  video.srcObject = null;
  showCamera(false);
}

/** @param {boolean} on */
function showCamera(on) {
  video.hidden = shoot.hidden = !on;
  camera.textContent = on ? "Stop the camera" : "Use the camera";
}

/** Ask about what the camera sees. @param {Model} model */
async function askView(model) {
  const bitmap = await createImageBitmap(video);
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [bitmap.width, bitmap.height];
  canvas.getContext("2d")?.drawImage(bitmap, 0, 0);
  const picture = await new Promise((resolve) => canvas.toBlob(resolve, "image/jpeg"));
  await ask(model, bitmap, picture);
}

/** @param {Model} model @param {ImageBitmap} bitmap @param {Blob} picture what is shown of it */
async function ask(model, bitmap, picture) {
  URL.revokeObjectURL(photo.src);
  photo.src = URL.createObjectURL(picture);
  result.hidden = false;
  result.ariaBusy = "true";
  bar.removeAttribute("value");
  bar.hidden = false;
  say("Looking.");
  try {
    const said = await model.ask(bitmap, bitmap.width, bitmap.height);
    at("verdict").textContent = said.unknown ? "None of these. Closest:" : "";
    at("answers").replaceChildren(...said.answers.map(({ label, share }) => row(label, share)));
    at("time").textContent = `${Math.round(said.milliseconds)} ms`;
    say(`Ready (${model.engine}).`);
    result.scrollIntoView({ block: "nearest" });
  } catch (error) {
    say(`There is no answer (${explain(error)}). Reload the page, or choose a smaller photo.`);
  }
  bar.hidden = true;
  result.ariaBusy = "false";
}

start().catch((error) => {
  bar.hidden = true;
  say(`The model cannot be loaded (${explain(error)}). Reload the page.`);
});
