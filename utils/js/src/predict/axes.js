// The frame of a sketch: lines at round heights, names under them, and where a point lies.

import { svg } from "../common/dom.js";
import { onTick, ticksOf, written } from "./scale.js";

/** @typedef {import("./types.js").Asked} Asked */

const BELOW = 24;
const ABOVE = 12;
const RIGHT = 16;

/**
 * @param {Asked} asked
 * @param {number} width
 * @param {number} high
 */
export function frame(asked, width, high) {
  const ticks = ticksOf({ low: asked.low, high: asked.high, log: false, whole: false });
  const left = Math.max(...ticks.map((value) => onTick(value, asked.unit).length)) * 7 + 10;
  const last = asked.x.length - 1;
  const bottom = high - BELOW - (asked.x_label ? 16 : 0);
  /** @param {number} i */
  const across = (i) => left + (i / last) * (width - left - RIGHT);
  /** @param {number} y */
  const up = (y) => bottom - ((y - asked.low) / (asked.high - asked.low)) * (bottom - ABOVE);
  /** @param {number} x */
  const index = (x) => Math.min(last, Math.max(0, Math.round(((x - left) / (width - left - RIGHT)) * last)));
  /** @param {number} y */
  const height = (y) => asked.low + ((bottom - y) / (bottom - ABOVE)) * (asked.high - asked.low);
  const picture = svg("svg", { width, height: high, viewBox: `0 0 ${width} ${high}`, "aria-hidden": "true" });
  for (const value of ticks) {
    svg("line", { class: "ar-hair", x1: left, x2: width - RIGHT, y1: up(value), y2: up(value) }, picture);
    svg("text", { class: "ar-soft ar-end", x: left - 6, y: up(value) + 4 }, picture, onTick(value, asked.unit));
  }
  const every = Math.max(1, Math.ceil(last / 3));
  for (let i = 0; i <= last; i += every) {
    const x = asked.x[i];
    const name = typeof x === "number" ? (x < 10_000 ? String(x) : written(x)) : x;
    svg("text", { class: "ar-soft ar-mid", x: across(i), y: bottom + 17 }, picture, name);
  }
  if (asked.x_label) {
    svg("text", { class: "ar-soft ar-mid", x: (left + width - RIGHT) / 2, y: high - 5 }, picture, asked.x_label);
  }
  return { picture, across, up, index, height, bottom };
}

/**
 * @param {{x: number, y: number}[]} points
 */
export function pathOf(points) {
  return points.map(({ x, y }, i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
}

/**
 * Draws at the width that the element has, now and after each change.
 *
 * @param {HTMLElement} root
 * @param {(width: number) => void} draw
 */
export function sized(root, draw) {
  draw(500);
  let drawn = 500;
  new ResizeObserver(() => {
    const width = Math.round(root.clientWidth);
    if (width && width !== drawn) {
      drawn = width;
      draw(width);
    }
  }).observe(root);
}
