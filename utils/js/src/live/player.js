// One player by itself: the schedule that the address names, as ring_all_reduce/4. No Python.

import { embedded } from "./embedded.js";
import { data, part } from "./parts.js";
import { shown } from "./play.js";

/** @typedef {{state: Record<string, unknown>, animation: string, words: string}} Played */

const places = /** @type {import("./python.js").Places} */ (data("places"));
/** @type {Record<string, Played>} */
let players = {};
/** @type {(() => void) | undefined} */
let leave;

/** Shows what the address names. */
async function show() {
  const name = decodeURIComponent(location.hash.slice(1)) || Object.keys(players)[0];
  const found = players[name];
  part("fault").hidden = Boolean(found);
  if (!found) {
    part("fault").textContent =
      `There is no player ${name.slice(0, 60)}; a name is like ring_all_reduce/4, with 4 or 8 ranks.`;
    return;
  }
  part("choice", HTMLSelectElement).value = name;
  leave?.();
  part("stage").replaceChildren();
  const animation = Uint8Array.from(atob(found.animation), (c) => c.charCodeAt(0));
  const address = new URL(`${places.build}playback.js`, location.href).href;
  leave = await shown(part("stage"), address, { ...found.state, animation });
}

embedded();
const choice = part("choice", HTMLSelectElement);
players = await (await fetch(new URL(`${places.build}players.json`, location.href))).json();
choice.replaceChildren(...Object.keys(players).map((name) => new Option(name, name)));
choice.addEventListener("change", () => {
  location.hash = choice.value;
});
addEventListener("hashchange", show);
await show();
document.body.dataset.ready = "";
