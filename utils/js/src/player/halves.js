// Two pictures side by side, or one below the other where they have no room.

/** @typedef {import("./layouts.js").Size} Size */
/** @typedef {{root: HTMLElement, hasRoom: (room: Size, inAnyLayout?: boolean) => boolean}} View */

// from low to high; the last only where the window is narrow
const HEIGHTS = [230, 270, 310, 360, 430, 520, 640];
// what a half's title and its bytes take of its height
const FRAME = 100;
const BETWEEN = 42;

/**
 * Where two pictures have no room side by side, one stands below the other, as low as it can be.
 *
 * @param {HTMLElement} root
 * @param {View[]} views
 * @param {number} width
 * @param {number} height of a half that is beside the other
 */
export function placeHalves(root, views, width, height) {
  const half = { w: (width - BETWEEN) / 2, h: height - FRAME };
  const { size } = root.dataset;
  const stacked = size === "phone" || (size === "narrow" && !views.every((view) => view.hasRoom(half)));
  root.classList.toggle("ar-stacked", stacked);
  for (const view of views) {
    const box = /** @type {HTMLElement} */ (view.root.parentElement);
    box.style.height = stacked ? `${heightFor(view, width, 0, FRAME)}px` : "";
  }
}

/**
 * The least height in which a whole picture has room; where there is none, in which it has room in another layout.
 *
 * @param {View} view
 * @param {number} width
 * @param {number} least
 * @param {number} frame what is not the picture's
 */
export function heightFor(view, width, least, frame = 0) {
  const heights = HEIGHTS.filter((height) => height >= least);
  const first = (/** @type {boolean} */ inAnyLayout) =>
    heights.find((height) => view.hasRoom({ w: width, h: height - frame }, inAnyLayout));
  return first(false) ?? first(true) ?? 360;
}
