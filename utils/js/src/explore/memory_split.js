// One split of a training run over its GPUs: what a GPU holds, what a step takes, and the best split there is.

import { digits } from "../common/units.js";
import { memoryOf, problem, spentOf } from "./plan.js";

/** @typedef {import("./frame.js").Frame} Frame */
/** @typedef {import("./plan.js").Split} Split */
/** @typedef {ReturnType<typeof compute>} Found */

export const PARTS = ["weights", "gradients", "optimizer", "activations", "other"];
/** @type {Record<string, string>} */
export const LOSSES = {
  tensor: "TP all-reduces",
  context: "CP keys and values",
  expert: "EP all-to-alls",
  waits: "pipeline waits",
  data: "DP, exposed",
  sends: "PP sends",
};
export const WAYS = {
  zero_stage: [0, 1, 2, 3],
  tp: [1, 2, 4, 8],
  pp: [1, 2, 4, 8],
  cp: [1, 2, 4],
  ep: [1, 2, 4, 8],
  microbatch: [1, 2, 4, 8],
};

/** @param {number} nbytes */
export const gigabytes = (nbytes) => `${digits(nbytes / 1e9 < 9.95 ? nbytes / 1e9 : Math.round(nbytes / 1e9))} GB`;

/** @param {number} nbytes */
export const tenths = (nbytes) => `${(nbytes / 1e9).toFixed(1)} GB`;

/** @param {Record<string, any>} values @returns {Split} */
function splitOf(values) {
  const { zero_stage, tp, pp, cp, ep, batch, microbatch, ranks } = values;
  return { zero_stage, tp, pp, cp, ep, batch, microbatch, dp: ranks / (tp * pp * cp) };
}

/** @param {Frame} frame @param {Record<string, any>} values */
export const wrongWith = (frame, values) => problem(frame.data.models[values.model], splitOf(values));

/** One replica on each GPU, in order to show something. @param {Record<string, any>} values */
export const fallback = (values) => ({
  ...values,
  tp: 1,
  pp: 1,
  cp: 1,
  ep: 1,
  microbatch: 1,
  batch: Math.max(values.batch, values.ranks),
});

/** @param {Frame} frame @param {Record<string, any>} values @param {boolean} whole whether the step is wanted too */
export function compute(frame, values, whole = true) {
  const { models, machines, assumed } = frame.data;
  const [model, machine] = [models[values.model], machines[values.machine]];
  const split = splitOf(values);
  const held = memoryOf(model, split, assumed);
  const total = Object.values(held).reduce((sum, nbytes) => sum + nbytes, 0);
  const spent = whole ? spentOf(model, machine, split, assumed) : null;
  return {
    values,
    model,
    machine,
    split,
    held: /** @type {Record<string, number>} */ (held),
    total,
    limit: machine.nbytes,
    spent,
  };
}

/** @param {Found} found */
export function sums({ spent }) {
  const parts = /** @type {Record<string, number>} */ (spent);
  const all = Object.values(parts).reduce((sum, s) => sum + s, 0);
  return { parts, all, lost: all - parts.useful - parts.kernels, mfu: parts.useful / all };
}

/**
 * How many splits of the four rows fit into the memory, and the best MFU of these.
 *
 * @param {Frame} frame
 * @param {Record<string, any>} values
 */
export function bestOf(frame, values) {
  let [count, best] = [0, 0];
  for (const zero_stage of WAYS.zero_stage) {
    for (const tp of WAYS.tp) {
      for (const pp of WAYS.pp) {
        for (const cp of WAYS.cp) {
          const other = { ...values, zero_stage, tp, pp, cp };
          if (wrongWith(frame, other)) continue;
          const found = compute(frame, other);
          if (found.total > found.limit) continue;
          count++;
          best = Math.max(best, sums(found).mfu);
        }
      }
    }
  }
  return [count, best];
}
