// The memory of a GPU for each split of a model by TP and PP: which of them fit. Drag the number of GPUs.

import { linear } from "../common/scale.js";
import { Sketch } from "../common/sketch.js";
import { digits } from "../common/units.js";
import { Frame } from "./frame.js";
import { memoryOf } from "./plan.js";
import { SHARDED, STAGES } from "./sharded.js";

const GPUS = [8, 16, 32, 64, 128, 256, 512, 1024];
const WAYS = [1, 2, 4, 8];
const [TOP, ROW, BAR, MOST] = [28, 50, 18, 120];
const GIVEN =
  "2,048 sequences a step. To the right a layer is cut over more GPUs (TP), " +
  "downwards the layers are more stages (PP); " +
  "what remains are replicas (DP), among which ZeRO shards. Drag the number of GPUs: when do more of them help?";

/** @param {import("./frame.js").Model} model @param {HTMLElement} el */
export function splits(model, el) {
  const frame = new Frame(model, el, "Which ways to split the model fit?", GIVEN);
  const { models, limit } = frame.data;
  frame.choice({ key: "model", name: "model", options: Object.keys(models).map((value) => ({ value, label: value })) });
  frame.choice({ key: "stage", name: "sharded (ZeRO)", options: STAGES });
  const figures = frame.figures(1);
  const grip = { key: "p", name: "number of GPUs", stops: () => GPUS };
  const { picture, handles } = frame.stage("ar-splits", { ...grip, format: (p) => `${p} GPUs` });
  frame.legend(
    ["ar-part-1", "weights, gradients, optimizer's state"],
    ["ar-part-3", "activations and other"],
    ["ar-lost", "no room"],
  );
  frame.start(() => {
    const { p, stage } = frame.values;
    const cells = WAYS.flatMap((pp) => WAYS.map((tp) => cell(frame, tp, pp))).filter(({ dp }) => dp >= 1);
    const count = cells.filter(({ total }) => total <= 1e9 * limit).length;
    const least = `${digits(Math.min(...cells.map(({ total }) => total)) / 1e9, true)} GB`;
    figures([`${count} of ${cells.length}`, `fit into ${limit} GB;\nthe least takes ${least}`]);
    const { x, y } = draw(picture, frame, cells);
    handles[0].place(x.at(GPUS.indexOf(p)), y, (n) => x.at(GPUS.indexOf(n)));
    return (
      `${frame.values.model} on ${p} GPUs, ${SHARDED[stage]}: ` +
      `${count} of ${cells.length} splits fit into ${limit} GB; ` +
      `the least takes ${least}.`
    );
  }, picture);
  return frame;
}

/**
 * What a GPU holds if each layer is cut over `tp` GPUs and the layers are `pp` stages.
 *
 * @param {Frame} frame
 * @param {number} tp
 * @param {number} pp
 */
function cell(frame, tp, pp) {
  const { models, assumed, batch } = frame.data;
  const { model, p, stage } = frame.values;
  const dp = p / (tp * pp);
  const split = { dp, tp, pp, cp: 1, ep: 1, zero_stage: stage, batch, microbatch: 1, bucket: 0 };
  const held = memoryOf(models[model], split, assumed);
  const state = held.weights + held.gradients + held.optimizer;
  return { tp, pp, dp, state, total: state + held.activations + held.other };
}

/**
 * @param {SVGSVGElement} picture
 * @param {Frame} frame
 * @param {ReturnType<typeof cell>[]} cells
 */
function draw(picture, frame, cells) {
  const { limit } = frame.data;
  const { p } = frame.values;
  const narrow = frame.width < 500;
  const left = narrow ? 40 : 64;
  const column = (frame.width - left) / WAYS.length;
  const wide = column - (narrow ? 8 : 28);
  const low = TOP + WAYS.length * ROW;
  const sketch = new Sketch().hatching(`${frame.uid}-over`);
  const gb = linear([0, MOST], [0, wide]);
  for (const [i, way] of WAYS.entries()) {
    const from = left + i * column;
    sketch.text("ar-strong", from, 12, `TP ${way}`).text("ar-strong", 0, TOP + i * ROW + 36, `PP ${way}`);
    sketch.line("ar-mark", from + gb.at(limit), TOP, from + gb.at(limit), low);
    sketch.text("ar-tick ar-middle", from + gb.at(limit), low + 16, `${limit} GB`);
    for (const [j] of WAYS.entries())
      sketch.line("ar-hair", from, TOP + j * ROW + 22 + BAR, from + wide, TOP + j * ROW + 22 + BAR);
  }
  for (const { tp, pp, dp, state, total } of cells) {
    const [from, y] = [left + WAYS.indexOf(tp) * column, TOP + WAYS.indexOf(pp) * ROW + 22];
    const box = (/** @type {string} */ look, /** @type {number} */ a, /** @type {number} */ b, style = "") =>
      sketch.box(look, from + gb.at(a), y, gb.at(b) - gb.at(a), BAR, { rx: 0, style });
    const [first, all] = [Math.min(limit, state / 1e9), Math.min(MOST, total / 1e9)];
    box("ar-part-1", 0, first);
    box("ar-part-3", first, Math.min(limit, all));
    if (all > limit) box("", limit, all, `fill:url(#${frame.uid}-over)`);
    const look = all > limit ? "ar-strong ar-lost-words" : "ar-strong";
    sketch.text(`${look} ar-halo`, from, y - 6, `${digits(total / 1e9, true)} GB`);
    if (!narrow) sketch.text("ar-tick ar-end", from + wide, y - 6, `DP ${dp}`);
  }
  for (const pp of WAYS)
    for (const tp of WAYS)
      if (tp * pp > p) {
        const words = narrow ? "none" : "not enough GPUs";
        sketch.text("ar-tick", left + WAYS.indexOf(tp) * column, TOP + WAYS.indexOf(pp) * ROW + 36, words);
      }
  const x = linear([0, GPUS.length - 1], [left, (narrow ? 0.7 : 0.6) * frame.width]);
  const y = low + 48;
  sketch.track(x.range[0], x.range[1], x.at(GPUS.indexOf(p)), y);
  sketch.text("ar-strong", x.range[1] + 22, y + 5, `${p} GPUs${narrow ? "" : ": drag"}`);
  sketch.into(picture, frame.width, y + 22);
  return { x, y };
}
