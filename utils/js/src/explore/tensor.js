// Layers cut over more and more GPUs: for which share of the time these wait. Drag their number, and a layer's width.

import { linear } from "../common/scale.js";
import { Sketch } from "../common/sketch.js";
import { digits, percent, seconds } from "../common/units.js";
import { Frame } from "./frame.js";
import { spentOf } from "./plan.js";

/** @typedef {import("../common/scale.js").Scale} Scale */

const GPUS = [1, 2, 4, 8, 16, 32, 64];
const WIDTHS = [1024, 2048, 4096, 8192, 12_288, 16_384];
const [LAYERS, SEQUENCE] = [96, 2048];
const [TOP, TALL] = [36, 180];
const GIVEN =
  "96 layers, one sequence of 2,048 tokens, forward and backward. Each GPU has a part of every layer, and they " +
  "all-reduce in each. Drag the number of GPUs: which links can carry that? Then drag the width of a layer.";

/** @param {import("./frame.js").Model} model @param {HTMLElement} el */
export function tensor(model, el) {
  const frame = new Frame(model, el, "Over how many GPUs can a layer be cut?", GIVEN);
  const { names } = frame.data;
  const options = Object.keys(names).map((value) => ({ value, label: names[value] }));
  frame.choice({ key: "machine", name: "machine", options });
  const figures = frame.figures(2);
  const { picture, handles } = frame.stage(
    "ar-cuts",
    { key: "p", name: "number of GPUs", stops: () => GPUS, format: (p) => `${p} GPUs` },
    { key: "width", name: "width of a layer", stops: () => WIDTHS, format: (width) => width.toLocaleString("en") },
  );
  frame.legend(["ar-work", "computes"], ["ar-lost", "waits for all-reduces"]);
  frame.start(() => {
    const { p, width, machine } = frame.values;
    const columns = GPUS.map((n) => cut(frame, n));
    const mine = columns[GPUS.indexOf(p)];
    const waits = percent(mine.waits);
    figures([waits, "of the time in\nall-reduces"], [seconds(mine.seconds), "for one\nsequence"]);
    const narrow = frame.width < 500;
    const weights = `${digits(mine.weights / 1e9, true)} GB`;
    const rails = draw(picture, frame, columns, `${weights}${narrow ? "" : " of weights each"}`, narrow);
    for (const [i, handle] of handles.entries()) {
      const { x, y, stops } = rails[i];
      const value = frame.values[handle.grip.key];
      handle.place(x.at(stops.indexOf(value)), y, (stop) => x.at(stops.indexOf(stop)));
    }
    return (
      `Layers ${width.toLocaleString("en")} wide, cut over ${p} GPU${p > 1 ? "s" : ""}, ${names[machine]}: a GPU ` +
      `waits ${waits} of ${seconds(mine.seconds)} for all-reduces, and keeps ${weights} of weights.`
    );
  }, picture);
  return frame;
}

/**
 * The seconds of one sequence on `p` GPUs, the share of them that waits, and the bytes of weights on a GPU.
 *
 * @param {Frame} frame
 * @param {number} p
 */
function cut(frame, p) {
  const { machines, assumed } = frame.data;
  const { width, machine } = frame.values;
  const parameters = LAYERS * 12 * width ** 2;
  const shape = { parameters, layers: LAYERS, hidden: width, sequence: SEQUENCE };
  const model = { ...shape, experts: 0, top_k: 0, expert_parameters: 0, vocabulary: 0 };
  const split = { dp: 1, tp: p, pp: 1, cp: 1, ep: 1, zero_stage: 0, batch: 1, microbatch: 1, bucket: 0 };
  const spent = spentOf(model, machines[machine], split, assumed);
  const all = Object.values(spent).reduce((sum, s) => sum + s, 0);
  return { seconds: all, waits: spent.tensor / all, weights: (2 * parameters) / p };
}

/**
 * @param {SVGSVGElement} picture
 * @param {Frame} frame
 * @param {ReturnType<typeof cut>[]} columns
 * @param {string} weights
 * @param {boolean} narrow
 */
function draw(picture, frame, columns, weights, narrow) {
  const { p, width, machine } = frame.values;
  const half = narrow ? 14 : 30;
  const [left, right, low] = [48, frame.width - 8, TOP + TALL];
  const x = linear([0, GPUS.length - 1], [left + half + 8, right - half - 8]);
  const y = linear([0, 1], [low, TOP]);
  const sketch = new Sketch().hatching(`${frame.uid}-waits`);
  for (const share of [0, 0.5, 1]) {
    sketch.line(share ? "ar-hair" : "ar-axis", left, y.at(share), right, y.at(share));
    sketch.text("ar-tick ar-end", left - 8, y.at(share) + 4, percent(share));
  }
  for (const [i, { seconds: took, waits }] of columns.entries()) {
    const chosen = GPUS[i] === p;
    const [from, edge] = [x.at(i) - half, y.at(1 - waits)];
    const opacity = chosen ? 1 : 0.45;
    const style = `fill:url(#${frame.uid}-waits);opacity:${opacity}`;
    sketch.box("ar-work", from, edge, 2 * half, low - edge, { rx: 0, style: `opacity:${opacity}` });
    sketch.box("", from, TOP, 2 * half, edge - TOP, { rx: 0, style });
    const look = `${chosen ? "ar-strong" : "ar-tick"} ar-middle`;
    if (chosen || !narrow) sketch.text(look, x.at(i), TOP - 10, seconds(took));
    sketch.text(look, x.at(i), low + 18, String(GPUS[i]));
  }
  const inside = frame.data.machines[machine].ranks_per_node;
  const last = GPUS.filter((n) => n <= inside).length - 1;
  const links = /** @type {[string, number, number][]} */ ([
    [inside > 8 ? "in one rack" : "in one node", 1, last],
    ["over the network", last + 1, GPUS.length - 1],
  ]);
  for (const [name, from, to] of links) {
    if (from > to) continue;
    sketch.line("ar-rail", x.at(from) - half, low + 28, x.at(to) + half, low + 28);
    sketch.text("ar-tick ar-middle", (x.at(from) + x.at(to)) / 2, low + 44, name);
  }
  const wide = linear([0, WIDTHS.length - 1], [narrow ? 16 : left + 8, 0.55 * frame.width]);
  const rails = [
    { x, y: low + 84, stops: GPUS },
    { x: wide, y: low + 132, stops: WIDTHS },
  ];
  const at = GPUS.indexOf(p);
  sketch.track(x.range[0], x.range[1], x.at(at), rails[0].y);
  const late = at > 2;
  const words = `${p} GPU${p > 1 ? "s" : ""}, ${weights}${narrow ? "" : ": drag"}`;
  sketch.text(`ar-strong ${late ? "ar-end" : ""}`, x.at(at) + (late ? -20 : 20), rails[0].y - 9, words);
  sketch.track(wide.range[0], wide.range[1], wide.at(WIDTHS.indexOf(width)), rails[1].y);
  const layers = `layers ${width.toLocaleString("en")} wide${narrow ? "" : ": drag"}`;
  sketch.text("ar-strong", wide.range[1] + 20, rails[1].y + 5, layers);
  sketch.into(picture, frame.width, rails[1].y + 22);
  return rails;
}
