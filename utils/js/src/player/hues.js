// A rank's hue says whose numbers they are. Four hues; ranks 4 to 7 have the same ones dotted; above eight ranks none.

import { svg } from "../common/dom.js";

export const MOST_HUES = 8;
const PLAIN = 4;

/**
 * What fills an SVG shape with a rank's hue, in a picture whose marks `addDots` has made.
 *
 * @param {number} rank
 * @param {string} uid of the picture
 */
export function hueFill(rank, uid) {
  /** @type {Record<string, string>} */
  const attributes = { class: `ar-hue ar-hue-${rank % PLAIN}` };
  if (rank >= PLAIN) attributes.style = `fill:url(#${uid}-hue-${rank})`;
  return attributes;
}

/**
 * The patterns of the dotted ranks.
 *
 * @param {Element} defs
 * @param {number} ranks
 * @param {string} uid
 */
export function addDots(defs, ranks, uid) {
  const tile = { width: 5, height: 5, patternUnits: "userSpaceOnUse" };
  for (let rank = PLAIN; rank < Math.min(ranks, MOST_HUES); rank++) {
    const pattern = svg("pattern", { id: `${uid}-hue-${rank}`, ...tile, class: `ar-hue-${rank % PLAIN}` }, defs);
    svg("rect", { width: 5, height: 5, class: "ar-hue" }, pattern);
    svg("circle", { cx: 1.7, cy: 1.7, r: 0.95, class: "ar-on-hue" }, pattern);
  }
}

/**
 * The class names of a small square in HTML.
 *
 * @param {number} rank
 * @param {number} ranks how many there are
 */
export function swatchClass(rank, ranks) {
  if (ranks > MOST_HUES) return "ar-swatch";
  return `ar-swatch ar-hue ar-hue-${rank % PLAIN}${rank >= PLAIN ? " ar-dotted" : ""}`;
}

/**
 * The same on a canvas.
 *
 * @param {CanvasRenderingContext2D} pen
 * @param {number} rank
 * @param {{x: number, y: number, side: number}} place
 * @param {CSSStyleDeclaration} style with the theme's colours
 */
export function paintSwatch(pen, rank, { x, y, side }, style) {
  pen.fillStyle = style.getPropertyValue(`--ar-rank-${rank % PLAIN}`).trim();
  pen.fillRect(x, y, side, side);
  if (rank < PLAIN) return;
  pen.fillStyle = style.getPropertyValue(rank % PLAIN ? "--ar-on-rank" : "--ar-on-rank-0").trim();
  for (const dx of [0.18, 0.62]) for (const dy of [0.18, 0.62]) pen.fillRect(x + dx * side, y + dy * side, 2, 2);
}
