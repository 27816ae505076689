// What is said of an answer, and text with `code` and **bold** in it.

import { html } from "../common/dom.js";
import { withUnit } from "./scale.js";

/** @typedef {import("./types.js").Asked} Asked */
/** @typedef {import("./types.js").Said} Said */

/**
 * @param {string} text
 * @returns {(Node | string)[]}
 */
export function marked(text) {
  return text.split(/(`[^`]+`|\*\*[^*]+\*\*)/).map((part) => {
    if (part.startsWith("`")) return html("code", {}, part.slice(1, -1));
    return part.startsWith("**") ? html("strong", {}, part.slice(2, -2)) : part;
  });
}

/** @param {string} text */
export function plain(text) {
  return text.replace(/`([^`]+)`|\*\*([^*]+)\*\*/g, "$1$2");
}

/**
 * A curve in words: "it grows". The same in prediction.py.
 *
 * @param {number[]} ys
 * @param {number} whole height of the picture
 */
export function shapeOf(ys, whole) {
  const first = ys[0];
  const last = ys[ys.length - 1];
  const middle = ys[Math.floor((ys.length - 1) / 2)];
  const rise = last - first;
  const bend = Math.max(...ys) - Math.max(first, last);
  const sag = Math.min(first, last) - Math.min(...ys);
  if (bend > 0.2 * whole) return "it rises, then falls";
  if (sag > 0.2 * whole) return "it falls, then rises";
  if (Math.abs(rise) < 0.08 * whole) return "it stays level";
  const levels = Math.abs(last - middle) < 0.2 * Math.abs(rise) ? ", then levels off" : "";
  return `it ${rise > 0 ? "grows" : "falls"}${levels}`;
}

/**
 * @param {Asked} asked
 * @param {Said} said with a value
 */
export function saidInWords(asked, said) {
  const { value } = said;
  if (typeof value === "number") return withUnit(value, asked.unit);
  if (Array.isArray(value)) return shapeOf(value, asked.high - asked.low);
  return String(value);
}

/**
 * Whether an answer lies in what is accepted. The same in prediction_words.py, which makes `right`.
 *
 * @param {Pick<import("./types.js").Truth, "right">} truth
 * @param {import("./types.js").Value} value
 */
export function isRight({ right }, value) {
  if (typeof value === "string") return typeof right === "string" && plain(value) === plain(right);
  if (Array.isArray(value)) {
    const bands = /** @type {number[][]} */ (right);
    return value.every((y, point) => bands[point][0] <= y && y <= bands[point][1]);
  }
  const [least, most] = /** @type {number[]} */ (right);
  return least <= value && value <= most;
}
