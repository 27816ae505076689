// Which all-reduce is the fastest, by size: five curves, the best of them in ink, and a ribbon that names the winner.

import { html } from "../common/dom.js";
import { decades, logarithmic, spread, stops, worldSizes } from "../common/scale.js";
import { Sketch } from "../common/sketch.js";
import { bytes, seconds } from "../common/units.js";
import { ALGORITHMS, best, winners } from "./all_reduce.js";
import { Frame, nearest, onDrag } from "./frame.js";

/** @typedef {import("../common/scale.js").Scale} Scale */
/** @typedef {ReturnType<typeof compute>} Found */
/** @typedef {{x: Scale, y: Scale, left: number, right: number, top: number, bottom: number}} Axes */

const SIZES = /** @type {[number, number]} */ ([100, 2e9]);
/** @type {Record<string, string>} */
const NAMES = { tree: "binomial tree", rabenseifner: "Rabenseifner" };
const nameOf = (/** @type {number} */ i) => NAMES[ALGORITHMS[i].name] ?? ALGORITHMS[i].name;
const LOOKS = ["ar-ring", "ar-tree", "ar-doubling", "ar-halving", "ar-double"];

/** @param {import("./frame.js").Model} model @param {HTMLElement} el */
export function crossover(model, el) {
  const title = "Which all-reduce is the fastest, and from what size on?";
  const frame = new Frame(
    model,
    el,
    title,
    "The thick line is the best you can have. Drag a yellow handle, or drag along the plot.",
  );
  const sizes = stops(...SIZES);
  frame.slider({ key: "p", name: "ranks p", stops: worldSizes(1024), format: String });
  frame.slider({ key: "alpha", name: "one message costs α", stops: stops(1e-7, 1e-3), format: (v) => seconds(v) });
  frame.slider({
    key: "rate",
    name: "one link carries 1/β",
    stops: stops(1e8, 1e12),
    format: (v) => `${bytes(v, true)}/s`,
  });
  frame.slider({ key: "n", name: "tensor n", stops: sizes, format: (v) => bytes(v), ends: ["100 B", "2 GB"] });
  const picture = frame.picture("ar-plot");
  const side = html("div", { class: "ar-side" });
  frame.add(html("div", { class: "ar-beside" }, picture, side));
  /** @type {Axes | null} */
  let axes = null;
  onDrag(picture, (x) => axes && frame.set("n", sizes[nearest(sizes, axes.x.value(x))]));
  frame.start(() => {
    const found = compute(frame.values);
    const width = frame.width >= 860 ? frame.width - 330 : frame.width;
    axes = draw(picture, frame, found, width);
    const [first, second] = found.order;
    const sentence =
      `At ${bytes(found.n)} on ${found.p} ranks ${nameOf(first)} is the fastest: ` +
      `${seconds(found.now[first])}; then ${nameOf(second)}, ${seconds(found.now[second])}.`;
    fillSide(side, found);
    picture.setAttribute("aria-label", `${sentence} ${changes(found)}`);
    return sentence;
  });
  return frame;
}

/** @param {Record<string, any>} values */
function compute({ p, n, alpha, rate }) {
  const link = { alpha, beta: 1 / rate };
  const sizes = spread(...SIZES, 140);
  const times = ALGORITHMS.map(({ seconds: of }) => sizes.map((size) => of(p, size, link)));
  const now = ALGORITHMS.map(({ seconds: of }) => of(p, n, link));
  const order = now.map((_, i) => i).sort((a, b) => now[a] - now[b]);
  return { p, n, sizes, times, now, order, ribbon: winners(p, link, sizes, times) };
}

/** @param {Found} found */
const changes = ({ ribbon }) =>
  ribbon
    .map(({ to, winner }, i) =>
      i < ribbon.length - 1 ? `${nameOf(winner)} up to ${bytes(to)}` : `then ${nameOf(winner)}`,
    )
    .join(", ");

/** @param {SVGSVGElement} picture @param {Frame} frame @param {Found} found @param {number} width */
function draw(picture, frame, found, width) {
  const [left, top, height] = [width < 500 ? 58 : 84, 24, width < 500 ? 340 : 500];
  const [right, bottom] = [width - 22, top + height];
  const envelope = found.sizes.map((_, i) => Math.min(...found.times.map((row) => row[i])));
  const x = logarithmic(SIZES, [left, right]);
  const y = logarithmic([envelope[0] * 0.6, envelope[envelope.length - 1] * 2.7], [bottom, top]);
  const axes = { x, y, left, right, top, bottom };
  const sketch = new Sketch();
  grid(sketch, axes);
  sketch.clip(`${frame.uid}-plot`, left, top - 4, right - left + 1, height + 4);
  for (const [i, row] of found.times.entries()) {
    sketch.curve(
      `ar-curve ${LOOKS[i]}`,
      row.map((t, k) => [x.at(found.sizes[k]), y.at(t)]),
    );
  }
  sketch.curve(
    "ar-best",
    envelope.map((t, k) => [x.at(found.sizes[k]), y.at(t)]),
  );
  sketch.unclip();
  names(sketch, axes, found);
  cursor(sketch, axes, found);
  turns(sketch, axes, found);
  ribbon(sketch, axes, found);
  sketch.into(picture, width, bottom + 62);
  return axes;
}

/** @param {Sketch} sketch @param {Axes} axes */
function grid(sketch, { x, y, left, right, top, bottom }) {
  const sparse = right - left < 400;
  for (const [i, n] of decades(...SIZES).entries()) {
    sketch.line("ar-hair", x.at(n), top, x.at(n), bottom);
    if (!sparse || i % 2 === 0) sketch.text("ar-tick ar-middle", x.at(n), bottom + 50, bytes(n, true));
  }
  if (!sparse) sketch.text("ar-strong", right + 10, bottom + 50, "n");
  const powers = decades(...y.domain);
  for (const t of powers) {
    sketch.line("ar-hair", left, y.at(t), right, y.at(t));
    if (y.at(t) > top + 14) sketch.text("ar-tick ar-end", left - 9, y.at(t) + 4, seconds(t));
  }
  sketch.text("ar-strong ar-end", left - 9, top + 4, "time");
}

/**
 * Names at the flat left ends, where they don't touch each other.
 *
 * @param {Sketch} sketch
 * @param {Axes} axes
 * @param {Found} found
 */
function names(sketch, { x, y, left, right, top, bottom }, found) {
  const slope = found.times[1].findIndex((t) => y.at(t) < top + (bottom - top) * 0.24);
  if (slope > 0 && found.p > 2) {
    sketch.text("ar-label ar-end", x.at(found.sizes[slope]) - 8, y.at(found.times[1][slope]) + 4, nameOf(1));
  }
  /** @type {{x: number, y: number, end: number}[]} */
  const taken = [];
  const order = [0, 2, 3, 4].sort((a, b) => found.times[b][0] - found.times[a][0]);
  for (const [turn, i] of order.entries()) {
    const last = turn === order.length - 1;
    const label = { x: left + 34, y: y.at(found.times[i][0]) + (last ? 20 : -8), end: 0 };
    for (const other of taken) if (Math.abs(other.y - label.y) < 17) label.x = Math.max(label.x, other.end + 16);
    label.end = label.x + nameOf(i).length * 6.8;
    if (label.y < top + 8 || label.y > bottom - 4 || label.end > left + (right - left) * 0.55) continue;
    taken.push(label);
    sketch.text("ar-label", label.x, label.y, nameOf(i));
  }
}

/** @param {Sketch} sketch @param {Axes} axes @param {Found} found */
function cursor(sketch, { x, y, top, bottom }, { n, now, order }) {
  sketch.line("ar-cursor", x.at(n), top - 6, x.at(n), bottom);
  for (const t of now) if (y.at(t) > top) sketch.dot("ar-point", x.at(n), y.at(t), 4);
  sketch.dot("ar-you", x.at(n), y.at(now[order[0]]), 9);
}

/** @param {Sketch} sketch @param {Axes} axes @param {Found} found */
function turns(sketch, { x, y, right }, found) {
  let after = 0;
  for (const { to, winner } of found.ribbon.slice(0, -1)) {
    const at = best(found.sizes.map((size) => Math.abs(Math.log(size / to))));
    const place = [x.at(to), y.at(Math.min(...found.times.map((row) => row[at])))];
    sketch.dot("ar-turn", place[0], place[1], 5);
    if (place[0] > after && place[0] < right - 60) {
      sketch.text("ar-strong", place[0] + 12, place[1] + 22, bytes(to), { "data-after": winner });
      after = place[0] + 70;
    }
  }
}

/** @param {Sketch} sketch @param {Axes} axes @param {Found} found */
function ribbon(sketch, { x, bottom }, { n, ribbon: parts }) {
  for (const { from, to, winner } of parts) {
    const here = n >= from && n <= to;
    const wide = x.at(to) - x.at(from) - 2;
    sketch.box(here ? "ar-now" : "ar-then", x.at(from) + 1, bottom + 7, wide, 22, {
      "data-winner": ALGORITHMS[winner].name,
    });
    const words = [
      nameOf(winner),
      nameOf(winner)
        .split(" ")
        .map((word) => word[0])
        .join(""),
    ].find((name) => name.length * 7 + 8 < wide);
    if (words)
      sketch.text(`ar-middle ${here ? "ar-on-now" : "ar-strong"}`, (x.at(from) + x.at(to)) / 2, bottom + 22, words);
  }
}

/** @param {HTMLElement} side @param {Found} found */
function fillSide(side, { p, n, now, order }) {
  const most = now[order[order.length - 1]];
  const rows = order.map((i, place) => {
    const line =
      `<svg width="34" height="10" aria-hidden="true"><line class="ar-curve ${LOOKS[i]}" x1="0" ` +
      `y1="5" x2="34" y2="5"/></svg>`;
    return (
      `<div class="ar-row${place ? "" : " ar-first"}" ` +
      `data-algorithm="${ALGORITHMS[i].name}"><span>${nameOf(i)}</span>${line}<b>${seconds(now[i])}</b>` +
      `<i style="width:${((100 * now[i]) / most).toFixed(1)}%"></i></div>`
    );
  });
  side.innerHTML =
    `<h4>At ${bytes(n)}, ${p} ranks</h4>${rows.join("")}<h4>Steps cost α, bytes cost β.</h4>` +
    "<p>Left, where the curves are flat, the fewest steps win. Right, where they climb, the fewest bytes. " +
    "Each circle on " +
    "the thick line is a change of mind: a library makes it for you, by size.</p>";
}
