// Keeps the page's own files, so that it works without a network. The model and its runtime are put
// into the same cache by runner.js, which tells how far their download is.

const DIGEST = new URL(location.href).searchParams.get("model");
const PREFIX = `visvm ${new URL("./", location.href)} `;

self.addEventListener("install", (/** @type {any} */ event) => {
  const keep = async () => {
    const { names, files } = await (await fetch("model.json", { cache: "no-cache" })).json();
    const small = names.filter((/** @type {string} */ name) => ![files.model, files.wasm, "index.html"].includes(name));
    await (await caches.open(PREFIX + DIGEST)).addAll(["./", ...small]);
  };
  event.waitUntil(keep());
});

self.addEventListener("activate", (/** @type {any} */ event) => {
  const drop = async () => {
    const old = (await caches.keys()).filter((name) => name.startsWith(PREFIX) && name !== PREFIX + DIGEST);
    await Promise.all(old.map((name) => caches.delete(name)));
    await /** @type {any} */ (self).clients.claim();
  };
  event.waitUntil(drop());
});

// Newest first: the network's files, and what is kept where there is none.
self.addEventListener("fetch", (/** @type {any} */ event) => {
  if (event.request.method !== "GET") return;
  event.respondWith(
    fetch(event.request).catch(async () => (await caches.match(event.request, { ignoreSearch: true })) ?? Response.error()),
  );
});
