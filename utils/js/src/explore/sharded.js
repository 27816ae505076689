// What a GPU holds of a model by ZeRO's stage: a column for each number of GPUs. Drag the number and the model's size.

import { linear } from "../common/scale.js";
import { Sketch } from "../common/sketch.js";
import { digits } from "../common/units.js";
import { Frame } from "./frame.js";
import { memoryOf } from "./plan.js";

/** @typedef {import("../common/scale.js").Scale} Scale */

const GPUS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];
const SIZES = [
  1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 18, 20, 25, 30, 35, 40, 50, 60, 80, 100, 120, 160, 200, 240, 320, 400, 640,
  1000, 1280, 2000, 2560, 3200,
];
const PARTS = /** @type {const} */ (["weights", "gradients", "optimizer"]);
export const STAGES = ["nothing", "optimizer", "+ gradients", "+ weights"].map((label, value) => ({ value, label }));
export const SHARDED = [
  "nothing is sharded",
  "the optimizer's state is sharded",
  "the optimizer's state and gradients are sharded",
  "all is sharded",
];
const [TOP, TALL, MOST] = [20, 250, 110];
const GIVEN =
  "Training with Adam keeps 16 bytes a parameter; activations are left out. Drag the top of the column until a GPU " +
  "is full. Then choose what is sharded, and drag the number of GPUs: how large can the model be?";

/** @param {import("./frame.js").Model} model @param {HTMLElement} el */
export function sharded(model, el) {
  const frame = new Frame(model, el, "How large a model fits, if no GPU keeps what another has?", GIVEN);
  frame.choice({ key: "stage", name: "sharded", options: STAGES });
  const figures = frame.figures(2);
  const { picture, handles } = frame.stage(
    "ar-columns",
    { key: "p", name: "number of GPUs", stops: () => GPUS, format: (p) => `${p} GPUs` },
    {
      key: "billions",
      name: "billion parameters",
      stops: () => SIZES,
      format: (b) => `${b} billion parameters`,
      axis: "y",
    },
  );
  frame.legend(
    ["ar-part-0", "weights"],
    ["ar-part-1", "gradients"],
    ["ar-part-2", "optimizer's state"],
    ["ar-lost", "no room"],
  );
  frame.start(() => {
    const { billions, p, stage } = frame.values;
    const columns = GPUS.map((n) => held(billions, n, stage));
    const mine = columns[GPUS.indexOf(p)];
    const copies = digits((p * mine.total) / held(billions, 1, 0).total, true);
    const copy = copies === "1" ? "copy" : "copies";
    const gb = `${digits(mine.total / 1e9, true)} GB`;
    figures(
      [gb, mine.total > 1e9 * frame.data.limit ? "on each GPU:\nit does not fit" : "on each GPU:\nit fits"],
      [copies, `${copy} of all that\non ${p === 1 ? "one GPU" : `${p} GPUs`}`],
    );
    const narrow = frame.width < 500;
    const half = narrow ? 11 : 26;
    const x = linear([0, GPUS.length - 1], [36 + half + 8, frame.width - (narrow ? 36 : 48) - half]);
    const y = linear([0, MOST], [TOP + TALL, TOP]);
    draw(picture, frame, columns, x, y, half);
    const top = (/** @type {number} */ b) => Math.max(TOP, y.at(held(b, p, stage).total / 1e9));
    handles[0].place(x.at(GPUS.indexOf(p)), y.at(0) + 58, (n) => x.at(GPUS.indexOf(n)));
    handles[1].place(frame.width - 18, top(billions), top);
    return (
      `${billions} billion parameters on ${p} GPU${p > 1 ? "s" : ""}, ${SHARDED[stage]}: ${gb} on each, ` +
      `${copies} ${copy} on all.`
    );
  }, picture);
  return frame;
}

/**
 * Bytes on one GPU, by what they hold.
 *
 * @param {number} billions
 * @param {number} p
 * @param {number} stage
 */
function held(billions, p, stage) {
  const model = { parameters: 1e9 * billions, layers: 1, hidden: 1, sequence: 1, experts: 0, top_k: 0 };
  const split = { dp: p, tp: 1, pp: 1, cp: 1, ep: 1, zero_stage: stage, batch: p, microbatch: 1, bucket: 0 };
  const parts = memoryOf({ ...model, expert_parameters: 0, vocabulary: 0 }, split, /** @type {any} */ ({}));
  return { parts, total: parts.weights + parts.gradients + parts.optimizer };
}

/**
 * @param {SVGSVGElement} picture
 * @param {Frame} frame
 * @param {ReturnType<typeof held>[]} columns
 * @param {Scale} x
 * @param {Scale} y
 * @param {number} half of a column's width
 */
function draw(picture, frame, columns, x, y, half) {
  const { billions, p } = frame.values;
  const { limit } = frame.data;
  const [left, right, low] = [36, frame.width - 18, y.at(0)];
  const narrow = frame.width < 500;
  const sketch = new Sketch().hatching(`${frame.uid}-over`);
  for (const gb of [0, 20, 40, 60, 80, 100]) {
    sketch.line(gb ? "ar-hair" : "ar-axis", left, y.at(gb), right, y.at(gb));
    sketch.text("ar-tick ar-end", left - 6, y.at(gb) + 4, String(gb));
  }
  sketch.text("ar-strong", 0, 12, "GB");
  for (const [i, { parts, total }] of columns.entries()) {
    const from = x.at(i) - half;
    const chosen = GPUS[i] === p;
    let sum = 0;
    for (const [at, part] of PARTS.entries()) {
      const [low, high] = [Math.min(limit, sum), Math.min(limit, sum + parts[part] / 1e9)];
      sum += parts[part] / 1e9;
      const style = chosen ? "" : "opacity:.45";
      sketch.box(`ar-part-${at}`, from, y.at(high), 2 * half, y.at(low) - y.at(high), { rx: 0, style });
    }
    const over = y.at(Math.min(MOST, total / 1e9));
    const style = `fill:url(#${frame.uid}-over);opacity:${chosen ? 1 : 0.45}`;
    if (sum > limit) sketch.box("", from, over, 2 * half, y.at(limit) - over, { rx: 0, style });
    sketch.text(chosen ? "ar-strong ar-middle" : "ar-tick ar-middle", x.at(i), low + 20, String(GPUS[i]));
  }
  sketch.line("ar-limit", left, y.at(limit), right, y.at(limit));
  sketch.text("ar-strong ar-halo", left + 6, y.at(limit) - 9, narrow ? "a GPU" : "what a GPU has");
  const mine = GPUS.indexOf(p);
  const top = y.at(Math.min(MOST, columns[mine].total / 1e9));
  sketch.line("ar-rail", x.at(mine) + half, top, right, top);
  const words = `${billions} billion parameters${narrow ? "" : ": drag"}`;
  const under = top < TOP + 24 || (top > y.at(limit) && top < y.at(limit) + 24); // no room above the line
  sketch.text("ar-strong ar-end ar-halo", right - 22, under ? top + 18 : top - 9, words);
  const track = low + 58;
  sketch.track(x.at(0), x.at(GPUS.length - 1), x.at(mine), track);
  const late = mine > GPUS.length / 2;
  const gpus = `${p} GPU${p > 1 ? "s" : ""}${narrow ? "" : ": drag"}`;
  sketch.text(`ar-strong ${late ? "ar-end" : ""}`, x.at(mine) + (late ? -20 : 20), track - 9, gpus);
  sketch.into(picture, frame.width, track + 20);
}
