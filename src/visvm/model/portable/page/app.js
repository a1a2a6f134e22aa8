// The page: photos and the camera in, answers out.

import { about, Model, opened, row } from "./answers.js";

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

/** @param {string} text */
const say = (text) => (status.textContent = text);

/** @param {unknown} error */
const explain = (error) => (error instanceof Error ? error.message : String(error));

async function start() {
  const said = await about();
  if ("serviceWorker" in navigator) {
    navigator.serviceWorker.register(`sw.js?model=${said.digest}`).catch(() => undefined); // it needs https or localhost
  }
  const some = said.labels.slice(0, 5).join(", ");
  at("about").textContent = `${said.labels.length} classes: ${some}${said.labels.length > 5 ? " and others" : ""}.`;
  at("teach").hidden = !said.teach;
  bar.hidden = false;
  say("Loading the model.");
  const model = await Model.load(said, (share) => (bar.value = share));
  bar.hidden = true;
  say(`Ready (${model.engine}).`);
  listen(model);
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
  camera.addEventListener("click", watch);
  shoot.addEventListener("click", () => ask(model, video, video.videoWidth, video.videoHeight));
  for (const each of [file, camera]) each.disabled = false;
}

/** @param {Model} model @param {File|undefined} chosen */
async function askFile(model, chosen) {
  if (!chosen) return;
  try {
    const bitmap = await opened(chosen);
    URL.revokeObjectURL(photo.src);
    photo.src = URL.createObjectURL(chosen);
    photo.hidden = false;
    await ask(model, bitmap, bitmap.width, bitmap.height);
  } catch (error) {
    say(`${chosen.name} cannot be read as an image (${explain(error)}). Choose another one.`);
  }
}

async function watch() {
  try {
    video.srcObject = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
    await video.play();
    video.hidden = shoot.hidden = false;
  } catch (error) {
    say(`The camera cannot be used (${explain(error)}). Allow it, or choose a photo.`);
  }
}

/** @param {Model} model @param {CanvasImageSource} shown @param {number} width @param {number} height */
async function ask(model, shown, width, height) {
  say("Looking.");
  const said = await model.ask(shown, width, height);
  at("verdict").textContent = said.unknown ? "None of these. Closest:" : "";
  at("answers").replaceChildren(...said.answers.map(({ label, share }) => row(label, share)));
  at("time").textContent = `${Math.round(said.milliseconds)} ms`;
  say(`Ready (${model.engine}).`);
}

start().catch((error) => {
  bar.hidden = true;
  say(`The model cannot be loaded (${explain(error)}). Reload the page.`);
});
