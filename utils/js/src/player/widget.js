// The widget's entry, as anywidget calls it.

import { html } from "../common/dom.js";
import { THEME } from "../common/theme.js";
import { unpack } from "./data.js";
import STYLES from "./player.css";
import { Player } from "./player.js";

/**
 * Shows a player in `el`; returns what takes it away again.
 *
 * @param {{model: import("./data.js").Model, el: HTMLElement}} context
 */
async function render({ model, el }) {
  try {
    const given = model.get("animation");
    // a page that has made the animation itself gives it as it is
    const animations = [given instanceof Object && "ranks" in given ? given : await unpack(given)];
    const compared = model.get("compared");
    if (compared?.byteLength) animations.push(await unpack(compared));
    el.replaceChildren(html("style", {}, THEME + STYLES));
    const titles = model.get("titles") ?? [];
    animations.forEach((animation, i) => {
      if (titles[i]) animation.title = titles[i];
    });
    const player = new Player(model, el, animations);
    if (model.get("pressed")) bringIntoView(el);
    return () => player.remove();
  } catch (error) {
    el.textContent = `The player could not read its data: ${/** @type {Error} */ (error).message}`;
    throw error;
  }
}

/**
 * Scrolls the player into the window, once it has its height: one that a button opened stands below that button.
 *
 * @param {HTMLElement} el
 */
function bringIntoView(el) {
  requestAnimationFrame(() => requestAnimationFrame(() => el.scrollIntoView({ block: "nearest" })));
}

export default { render };
