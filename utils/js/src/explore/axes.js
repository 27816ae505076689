// The seven axes: a card for each, with buttons once its chapter has opened it, else with the chapter's name.

import { html } from "../common/dom.js";
import { Sketch } from "../common/sketch.js";
import { chapterOf, linkTo } from "./chapter_link.js";
import { compute, fits, gigabytes, labelOf, stepTime, sums, WAYS, wrongWith } from "./split.js";

/**
 * @typedef {import("./frame.js").Frame} Frame
 * @typedef {object} Axis as allranks.show.widgets.my_model has it
 * @property {string} key of the value that it sets
 * @property {string} name
 * @property {string} chapter
 * @property {string} title of the chapter
 * @property {string} path of the chapter; "" if it is not here
 * @property {string} needs what my model needs there
 * @property {Record<string, any>} values what the course has chosen after it
 */

const GLYPH = { width: 44, height: 30 };

/**
 * Cards for all axes.
 *
 * @param {Frame} frame
 * @param {() => number} opened how many are open
 * @returns {() => void} shows them anew
 */
export function axes(frame, opened) {
  frame.controls.classList.add("ar-axes");
  const cards = frame.data.axes.map((/** @type {Axis} */ axis) => {
    const row = frame.choice({
      key: axis.key,
      name: axis.name,
      options: WAYS[axis.key].map((value) => ({ value, label: labelOf(axis.key, value) })),
      about: (value) => about(frame, axis.key, value),
    });
    const under = html("span", { class: "ar-small" });
    const card = html("div", { class: "ar-axis", "data-axis": axis.key }, ...head(axis, under), row);
    frame.controls.append(card);
    return { axis, card, row, under };
  });
  return () => {
    const open = opened();
    for (const [i, { axis, card, row, under }] of cards.entries()) {
      card.dataset.state = i < open ? "open" : i === open ? "next" : "locked";
      row.hidden = i >= open;
      if (i === open) under.innerHTML = `${linkTo(frame, axis, chapterOf(axis))} opens it`;
      else under.textContent = i < open ? noteOf(frame, axis) : chapterOf(axis);
    }
  };
}

/** @param {Axis} axis @param {HTMLElement} under */
function head({ key, name }, under) {
  const picture = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  picture.setAttribute("class", "ar-glyph");
  picture.setAttribute("aria-hidden", "true");
  const sketch = new Sketch();
  GLYPHS[key](sketch);
  sketch.into(picture, GLYPH.width, GLYPH.height);
  const words = html("div", {}, html("b", {}, name), under);
  return [
    html("div", { class: "ar-axis-head" }, picture, words, html("i", { class: "ar-lock", "aria-hidden": "true" })),
  ];
}

/** What stands below the name of an open axis. @param {Frame} frame @param {Axis} axis */
function noteOf(frame, { key, path }) {
  const { ranks, tp, pp, cp } = frame.values;
  if (key === "ranks") {
    const replicas = ranks / (tp * pp * cp);
    if (!Number.isInteger(replicas)) return "too few GPUs";
    return `GPUs: ${replicas.toLocaleString("en")} replica${replicas === 1 ? "" : "s"}`;
  }
  return chapterOf({ path, title: "" });
}

/**
 * What a choice would give: the memory, or for buckets the time of a step.
 *
 * @param {Frame} frame
 * @param {string} key
 * @param {number} value
 */
function about(frame, key, value) {
  const values = { ...frame.values, [key]: value };
  const wrong = wrongWith(frame, values);
  if (wrong) return { note: "–", disabled: wrong };
  const found = compute(frame, values);
  if (key === "bucket") return { note: stepTime(sums(found).all) };
  return { note: gigabytes(found.total), bad: !fits(found) };
}

/** @type {Record<string, (sketch: Sketch) => void>} what an axis divides, in miniature */
const GLYPHS = {
  ranks(sketch) {
    for (const i of [0, 1, 2]) {
      sketch.box("ar-work", 1 + 15 * i, 5, 12, 20, { rx: 2 });
      for (const j of [1, 2, 3]) sketch.line("ar-cut", 1 + 15 * i, 5 + 5 * j, 13 + 15 * i, 5 + 5 * j);
    }
  },
  bucket(sketch) {
    for (const i of [0, 1, 2, 3]) {
      sketch.box("ar-work", 1 + 9 * i, 6, 8, 8, { rx: 1.5 });
      sketch.box("ar-wire", 8 + 9 * i, 17, 8, 8, { rx: 1.5 });
    }
  },
  zero_stage(sketch) {
    for (const i of [0, 1, 2])
      for (const j of [0, 1, 2])
        sketch.box(i === j ? "ar-work" : "ar-empty", 1.5 + 15 * i, 5 + 7.5 * j, 11, 5.5, { rx: 1.5 });
  },
  tp(sketch) {
    for (const i of [0, 1, 2, 3]) sketch.box("ar-work", 4 + 9.4 * i, 3, 7.6, 24, { rx: 1.5 });
  },
  pp(sketch) {
    for (const i of [0, 1, 2, 3])
      for (const j of [0, 1, 2]) sketch.box("ar-work", 1 + 7 * (i + j), 3 + 6.4 * i, 6, 5.2, { rx: 1 });
  },
  cp(sketch) {
    for (const i of [0, 1, 2, 3, 4])
      for (const j of [0, 1, 2, 3, 4])
        sketch.box(j <= i ? "ar-work" : "ar-empty", 9 + 5.4 * j, 2 + 5.4 * i, 4.4, 4.4, { rx: 0.8 });
  },
  ep(sketch) {
    for (const i of [0, 1, 2, 3]) {
      sketch.path("ar-way", `M22 6C22 16 ${4.5 + 11.5 * i} 12 ${4.5 + 11.5 * i} 22`);
      sketch.box("ar-work", 0.5 + 11.5 * i, 22, 8, 6, { rx: 1.5 });
    }
    sketch.dot("ar-now", 22, 5, 4);
  },
};
