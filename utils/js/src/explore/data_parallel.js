// A step on GPUs that all have the whole model: what each computes, sends and holds. Drag the share, and the GPUs.

import { linear } from "../common/scale.js";
import { Sketch } from "../common/sketch.js";
import { digits, percent, seconds } from "../common/units.js";
import { Frame } from "./frame.js";
import { spentOf } from "./plan.js";

/** @typedef {import("../common/scale.js").Scale} Scale */

const GPUS = Array.from({ length: 11 }, (_, i) => 2 ** i);
const SHARES = [1, 2, 3, 4, 6, 8];
const SHOWN = 4;
const [TOP, LANE, GAP] = [34, 34, 8];
const GIVEN =
  "Every GPU has all 7 billion weights and its own sequences of 4,096 tokens; then all need the mean of their " +
  "gradients. Drag how many sequences each has, and the number of GPUs: what grows, and what stays?";

/** @param {import("./frame.js").Model} model @param {HTMLElement} el */
export function data_parallel(model, el) {
  const frame = new Frame(model, el, "More data for each GPU, or more GPUs: what must they send?", GIVEN);
  const { names } = frame.data;
  const options = Object.keys(names).map((value) => ({ value, label: names[value] }));
  frame.choice({ key: "machine", name: "machine", options });
  const figures = frame.figures(2);
  const { picture, handles } = frame.stage(
    "ar-replicas",
    { key: "each", name: "sequences on each GPU", stops: () => SHARES, format: (n) => `${n} sequences` },
    { key: "p", name: "number of GPUs", stops: () => GPUS, format: (p) => `${p} GPUs` },
  );
  frame.legend(["ar-work", "computes a sequence"], ["ar-wire", "all-reduces the gradients, and waits"]);
  frame.start(() => {
    const { p, each, machine } = frame.values;
    const { computing, sending, sent } = stepOf(frame, p, each);
    const all = computing + sending;
    const gigabytes = `${digits(sent / 1e9, true)} GB`;
    const faster = digits((p * computing) / all, true);
    figures(
      [gigabytes, "each GPU sends in a step:\n2 (p − 1) / p × 14 GB"],
      [`× ${faster}`, "the tokens a second\nof one GPU"],
    );
    const longest = stepOf(frame, GPUS[GPUS.length - 1], SHARES[SHARES.length - 1]);
    const narrow = frame.width < 500;
    const edges = narrow ? [54, frame.width - 76] : [96, frame.width - 190];
    const x = linear([0, longest.computing + longest.sending], /** @type {[number, number]} */ (edges));
    const rails = draw(picture, frame, computing, sending, x);
    for (const [i, handle] of handles.entries()) {
      const { y, at } = rails[i];
      handle.place(at(frame.values[handle.grip.key]), y, at);
    }
    return (
      `${p} GPU${p > 1 ? "s" : ""}, ${names[machine]}, ${each} sequence${each > 1 ? "s" : ""} each: a GPU sends ` +
      `${gigabytes} in a step and waits ${percent(sending / all)} of ${seconds(all)}. Tokens a second: ` +
      `${faster} times one GPU's.`
    );
  }, picture);
  return frame;
}

/**
 * The seconds that a GPU computes and sends in a step, and the bytes of its part in the all-reduce.
 *
 * @param {Frame} frame
 * @param {number} p
 * @param {number} each
 */
function stepOf(frame, p, each) {
  const { machines, model, assumed } = frame.data;
  const one = { tp: 1, pp: 1, cp: 1, ep: 1, zero_stage: 0, microbatch: 1, bucket: 0 };
  const spent = spentOf(model, machines[frame.values.machine], { ...one, dp: p, batch: p * each }, assumed);
  return {
    computing: spent.useful + spent.kernels,
    sending: spent.data,
    sent: (2 * (p - 1) * 2 * model.parameters) / p,
  };
}

/**
 * @param {SVGSVGElement} picture
 * @param {Frame} frame
 * @param {number} computing
 * @param {number} sending
 * @param {Scale} x
 */
function draw(picture, frame, computing, sending, x) {
  const { p, each } = frame.values;
  const narrow = frame.width < 500;
  const [left, right] = x.range;
  const [own, mean, wide] = narrow ? [right + 14, right + 46, 26] : [right + 40, right + 120, 44];
  const sketch = new Sketch();
  sketch.text("ar-tick ar-middle", own + wide / 2, TOP - 10, narrow ? "own" : "gradient: own");
  sketch.text("ar-tick ar-middle", mean + wide / 2, TOP - 10, "mean");
  const took = `a step: ${seconds(computing + sending)}`;
  sketch.text("ar-strong ar-end", Math.max(x.at(computing + sending), left + 8 * took.length), TOP - 10, took);
  const rows = Math.min(p, SHOWN);
  for (let r = 0; r < rows; r++) {
    const y = TOP + r * (LANE + GAP);
    sketch.text("ar-lane-name", 0, y + 22, `GPU ${r}`);
    const block = (x.at(computing) - left) / each;
    for (let i = 0; i < each; i++) sketch.box("ar-work", left + i * block + 0.7, y, block - 1.4, LANE);
    sketch.box("ar-wire", x.at(computing) + 0.7, y, x.at(computing + sending) - x.at(computing) - 1.4, LANE);
    sketch.box(`ar-of-${r}`, own, y + 4, wide, LANE - 8);
    for (let i = 0; i < rows; i++)
      sketch.box(`ar-of-${i}`, mean, y + 4 + (i * (LANE - 8)) / rows, wide, (LANE - 8) / rows, { rx: 0 });
  }
  const low = TOP + SHOWN * (LANE + GAP);
  if (p > SHOWN) sketch.text("ar-tick", left, low + 8, `and ${(p - SHOWN).toLocaleString("en")} more, all alike`);
  const share = low + 34;
  const end = x.at(computing);
  const at = (/** @type {number} */ n) => left + ((end - left) * n) / each;
  sketch.track(at(0), at(SHARES[SHARES.length - 1]), end, share);
  const late = each > 4;
  const words = `${each} sequence${each > 1 ? "s" : ""} each${narrow ? "" : ": drag"}`;
  sketch.text(`ar-strong ${late ? "ar-end" : ""}`, end + (late ? -20 : 20), share - 9, words);
  const replicas = linear([0, GPUS.length - 1], [narrow ? 16 : left, narrow ? 0.62 * frame.width : 0.6 * frame.width]);
  const count = share + 52;
  const here = replicas.at(GPUS.indexOf(p));
  sketch.track(replicas.range[0], replicas.range[1], here, count);
  const gpus = `p = ${p.toLocaleString("en")} GPU${p > 1 ? "s" : ""}${narrow ? "" : ": drag"}`;
  sketch.text("ar-strong", replicas.range[1] + 24, count + 5, gpus);
  sketch.into(picture, frame.width, count + 24);
  return [
    { y: share, at },
    { y: count, at: (/** @type {number} */ n) => replicas.at(GPUS.indexOf(n)) },
  ];
}
