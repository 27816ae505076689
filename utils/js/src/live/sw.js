// Keeps the live pages in the browser's cache, so that they open without a network. Files under a folder of a version
// never change, and come from the cache; pages come from the network while there is one.

const scope = /** @type {any} */ (self);
const CACHE = "allranks-live";
// what the build writes in: the folders of this version, and what to keep at once
/** @type {{folders: string[], first: string[]}} */
const KEPT = JSON.parse(atob("__KEPT__"));

/** @param {string} address */
const ofVersion = (address) => KEPT.folders.some((folder) => address.startsWith(new URL(folder, scope.location).href));

scope.addEventListener("install", (/** @type {any} */ event) => {
  scope.skipWaiting();
  event.waitUntil(caches.open(CACHE).then((cache) => cache.addAll(KEPT.first)));
});

scope.addEventListener("activate", (/** @type {any} */ event) => {
  event.waitUntil(
    (async () => {
      const cache = await caches.open(CACHE);
      const pages = KEPT.first.map((page) => new URL(page, scope.location).href);
      for (const { url } of await cache.keys()) if (!ofVersion(url) && !pages.includes(url)) await cache.delete(url);
      await scope.clients.claim();
    })(),
  );
});

/** @param {Request} request */
async function respond(request) {
  const cache = await caches.open(CACHE);
  const kept = await cache.match(request, { ignoreSearch: true, ignoreVary: true });
  if (kept && ofVersion(request.url)) return kept;
  try {
    const come = await fetch(request);
    if (come.ok) await cache.put(request, come.clone());
    return come;
  } catch (error) {
    if (kept) return kept;
    throw error;
  }
}

scope.addEventListener("fetch", (/** @type {any} */ event) => {
  const { request } = event;
  if (request.method === "GET" && request.url.startsWith(new URL(".", scope.location).href))
    event.respondWith(respond(request));
});
