// What was said beside what it was: on the options, on the slider, as two curves.

import { html, svg } from "../common/dom.js";
import { frame, pathOf, sized } from "./axes.js";
import { left, line } from "./number.js";
import { placeOf, reaching, timesBetween, withUnit, written } from "./scale.js";
import { marked } from "./words.js";

/** @typedef {import("./types.js").Asked} Asked */
/** @typedef {import("./types.js").Said} Said */
/** @typedef {import("./types.js").Truth} Truth */

/**
 * @param {Asked} asked
 * @param {Said} said
 * @param {Truth} truth
 */
function options(asked, said, truth) {
  if (truth.picture) {
    const root = html("div", { class: "ar-predict-drawn" });
    root.innerHTML = truth.picture;
    return root;
  }
  const places = asked.choices.map((text) => {
    const marks = [];
    if (text === said.value) marks.push("ar-you");
    if (text === truth.truth) marks.push("ar-true");
    return html("li", { class: marks.join(" ") }, ...marked(text));
  });
  return html("ul", { class: "ar-predict-options" }, ...places);
}

/**
 * @param {Asked} asked
 * @param {Said} said
 * @param {Truth} truth
 */
function slider(asked, said, truth) {
  const it = Number(truth.truth);
  const own = typeof said.value === "number" ? [said.value] : [];
  const scale = { ...asked, ...reaching(asked, [it, ...own, ...Object.values(truth.marks)]) };
  const there = placeOf(scale, it);
  const root = line(scale);
  root.classList.add("ar-shown");
  for (const [name, value] of Object.entries(truth.marks)) {
    const place = placeOf(scale, value);
    root.append(
      html("span", { class: "ar-predict-mark", style: left(place) }),
      html("em", { style: left(place) }, name),
    );
  }
  if (typeof said.value === "number") {
    const here = placeOf(scale, said.value);
    const [from, to] = here < there ? [here, there] : [there, here];
    root.append(
      html("div", { class: "ar-predict-gap", style: `${left(from)};width:${(100 * (to - from)).toFixed(2)}%` }),
    );
    const times = to - from > 0.3 && asked.log ? timesBetween(said.value, it) : "";
    if (times) root.append(html("em", { style: left((from + to) / 2) }, times));
    root.append(html("div", { class: "ar-predict-handle", style: left(here) }));
    if (to - from > 0.2)
      root.append(html("span", { class: "ar-predict-value", style: left(here) }, written(said.value)));
  }
  root.append(html("div", { class: "ar-predict-truth", style: left(there) }));
  root.append(html("span", { class: "ar-predict-value ar-high", style: left(there) }, withUnit(it, asked.unit)));
  return html("div", { class: "ar-predict-number" }, root);
}

/**
 * @param {Asked} asked
 * @param {Said} said
 * @param {Truth} truth
 */
function curves(asked, said, truth) {
  const root = html("div", { class: "ar-predict-curves" });
  const its = /** @type {number[]} */ (truth.truth);
  const own = Array.isArray(said.value) ? said.value : [];
  const high = { low: asked.low, high: asked.high, log: false, whole: false };
  const scale = { ...asked, ...reaching(high, [...its, ...own]) };
  sized(root, (width) => {
    const { picture, across, up, bottom } = frame(scale, width, 190);
    /** @param {number[]} ys */
    const points = (ys) => ys.map((y, i) => ({ x: across(i), y: up(y) }));
    const right = points(its);
    const end = right[right.length - 1];
    if (Array.isArray(said.value)) {
      const mine = points(said.value);
      svg("path", { class: "ar-between", d: `${pathOf([...mine, ...[...right].reverse()])}Z` }, picture);
      svg("path", { class: "ar-you-edge", d: pathOf(mine) }, picture);
      svg("path", { class: "ar-you-line", d: pathOf(mine) }, picture);
      const where = mine[Math.floor(mine.length * 0.6)];
      const above = where.y > 30 ? where.y - 12 : where.y + 24;
      svg("text", { class: "ar-bold ar-end", x: where.x, y: above }, picture, "you");
    }
    svg("path", { class: "ar-true-line", d: pathOf(right) }, picture);
    const below = end.y + 20 < bottom ? end.y + 20 : end.y - 10;
    svg("text", { class: "ar-bold ar-end", x: end.x, y: below }, picture, truth.label);
    root.replaceChildren(picture);
  });
  return root;
}

/**
 * @param {Asked} asked
 * @param {Said} said
 * @param {Truth} truth
 * @returns {HTMLElement}
 */
export function pictureOf(asked, said, truth) {
  return { choice: options, number: slider, sketch: curves }[asked.kind](asked, said, truth);
}
