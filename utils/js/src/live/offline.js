/** Has the browser keep the pages and Python; whether they open without a network now. */
export async function worksOffline() {
  if (!("serviceWorker" in navigator)) return false;
  try {
    const registration = await navigator.serviceWorker.register("sw.js");
    const coming = registration.installing ?? registration.waiting;
    if (!coming) return registration.active !== null;
    return await new Promise((done) => {
      coming.addEventListener("statechange", () => {
        if (["activated", "redundant"].includes(coming.state)) done(coming.state === "activated");
      });
    });
  } catch {
    return false; // a private window, or a server without https: the page works, but only with the network
  }
}
