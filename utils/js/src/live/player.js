// One player by itself: the schedule that the address names, as ring_all_reduce/4. No Python.

import { embedded } from "./embedded.js";
import { bytes, data, part } from "./parts.js";
import { shown } from "./play.js";

const places = /** @type {import("./python.js").Places} */ (data("places"));
/** @type {Record<string, string>} the animation of each schedule */
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
  const address = new URL(`${places.build}playback.js`, location.href).href;
  leave = await shown(part("stage"), address, { animation: bytes(found) });
}

embedded();
const choice = part("choice", HTMLSelectElement);
players = await (await fetch(new URL(`${places.build}players.json`, location.href))).json();
choice.addEventListener("change", () => {
  location.hash = choice.value;
});
addEventListener("hashchange", show);
await show();
document.body.dataset.ready = "";
