// One split of a training run over its GPUs: what a GPU holds, what a step takes, and the best split there is.

import { digits, seconds } from "../common/units.js";
import { memoryOf, problem, spentOf } from "./plan.js";

/** @typedef {import("./frame.js").Frame} Frame */
/** @typedef {import("./plan.js").Split} Split */
/** @typedef {Record<string, any>} Values */
/** @typedef {ReturnType<typeof compute>} Found */

export const PARTS = ["weights", "gradients", "optimizer", "activations", "other"];
/** @type {Record<string, string>} */
export const LOSSES = {
  tensor: "tensor",
  context: "keys and values",
  expert: "tokens to experts",
  sends: "to the next stage",
  data: "gradients",
  waits: "pipeline waits",
};
const MIB = 2 ** 20;
/** @type {Record<string, number[]>} */
export const WAYS = {
  ranks: [1, 8, 64, 1024],
  bucket: [0, 25 * MIB, 250 * MIB, 1024 * MIB],
  zero_stage: [0, 1, 2, 3],
  tp: [1, 2, 4, 8],
  pp: [1, 2, 4, 8],
  cp: [1, 2, 4, 8, 16],
  ep: [0, 1, 2, 4, 8],
  microbatch: [1, 2, 4, 8],
};

/** @param {number} nbytes */
export const gigabytes = (nbytes) => `${digits(nbytes / 1e9 < 9.95 ? nbytes / 1e9 : Math.round(nbytes / 1e9))} GB`;

/** @param {number} nbytes */
export const tenths = (nbytes) => `${(nbytes / 1e9).toFixed(1)} GB`;

/** Seconds of a step, in which a hundredth counts. @param {number} s */
export const stepTime = (s) => (s >= 0.9995 && s < 9.995 ? `${s.toFixed(2)} s` : seconds(s, false));

/**
 * The model with the chosen sequences, and with experts where some are to be spread.
 *
 * @param {Frame} frame
 * @param {Values} values
 */
function modelOf(frame, values) {
  const { models } = frame.data;
  const own = models[values.model];
  const model = values.ep && !own.experts && own.with_experts ? models[own.with_experts] : own;
  return { ...model, sequence: values.sequence };
}

/** @param {Values} values @returns {Split} */
function splitOf({ zero_stage, tp, pp, cp, ep, bucket, tokens, sequence, microbatch, ranks }) {
  const batch = tokens / sequence;
  return { zero_stage, tp, pp, cp, ep: Math.max(1, ep), bucket, batch, microbatch, dp: ranks / (tp * pp * cp) };
}

/** @param {Frame} frame @param {Values} values */
export function wrongWith(frame, values) {
  const model = modelOf(frame, values);
  const machine = frame.data.machines[values.machine];
  if (values.ep && !model.experts) return `${values.model} has no experts to spread`;
  if (values.tokens % values.sequence) return `${values.tokens} tokens are not whole sequences`;
  if (!machine.nic && values.ranks > machine.ranks_per_node) return `${values.machine} is a single node`;
  return problem(model, splitOf(values));
}

/** One replica on each GPU, in order to show something. @param {Values} values */
export function fallback(values) {
  const alone = { ...values, bucket: 0, tp: 1, pp: 1, cp: 1, ep: 0, microbatch: 1 };
  return { ...alone, tokens: Math.max(values.tokens, values.ranks * values.sequence) };
}

/** @param {Frame} frame @param {Values} values */
export function compute(frame, values) {
  const { machines, assumed } = frame.data;
  const model = modelOf(frame, values);
  const machine = machines[values.machine];
  const split = splitOf(values);
  const held = memoryOf(model, split, assumed);
  const total = Object.values(held).reduce((sum, nbytes) => sum + nbytes, 0);
  return {
    values,
    model,
    machine,
    split,
    held: /** @type {Record<string, number>} */ (held),
    total,
    limit: machine.nbytes,
    // only where it is asked for: of the splits of a search most do not fit
    get spent() {
      return /** @type {Record<string, number>} */ (spentOf(model, machine, split, assumed));
    },
  };
}

/** Whether the fullest GPU has room: the one place that says so. @param {{total: number, limit: number}} found */
export const fits = ({ total, limit }) => total <= limit;

/** @param {Found} found */
export function sums({ spent: parts }) {
  const all = Object.values(parts).reduce((sum, s) => sum + s, 0);
  return { parts, all, lost: all - parts.useful - parts.kernels, mfu: parts.useful / all };
}

/** @typedef {{count: number, mfu: number, values: Values}} Best */
/** @type {WeakMap<object, Map<string, Best>>} what was searched already, by a frame's data */
const searched = new WeakMap();

/**
 * How many splits by these axes fit into the memory, and the one with the best MFU.
 *
 * @param {Frame} frame
 * @param {Values} values
 * @param {string[]} keys of the axes; the number of GPUs and the experts stay as they are
 * @returns {Best}
 */
export function bestOf(frame, values, keys) {
  // what an axis is at now makes no difference to the search, so that most choices need no new one
  const given = { ...values };
  for (const key of keys.filter((key) => key !== "bucket" && key !== "ranks"))
    if (WAYS[key].includes(values[key])) given[key] = key === "ep" && Boolean(values.ep);
  const place = JSON.stringify([keys, given]);
  const known = searched.get(frame.data) ?? new Map();
  searched.set(frame.data, known);
  if (!known.has(place)) known.set(place, search(frame, values, keys));
  return known.get(place);
}

/** @param {Frame} frame @param {Values} values @param {string[]} keys @returns {Best} */
function search(frame, values, keys) {
  let count = 0;
  let best = { mfu: 0, values };
  for (const other of splitsBy(values, keys)) {
    if (wrongWith(frame, other)) continue;
    const found = compute(frame, other);
    if (!fits(found)) continue;
    count++;
    const { mfu } = sums(found);
    if (mfu > best.mfu) best = { mfu, values: other };
  }
  return { count, ...best };
}

/**
 * @param {Values} values
 * @param {string[]} keys
 * @returns {Values[]}
 */
function splitsBy(values, keys) {
  let found = [values];
  for (const key of keys) {
    if (key === "ranks") continue;
    // without experts there are none to spread, and with experts they stay
    const offered = new Set([...WAYS[key], values[key]]);
    const ways = [...offered].filter((way) => key !== "ep" || Boolean(way) === Boolean(values.ep));
    found = found.flatMap((one) => ways.map((way) => ({ ...one, [key]: way })));
  }
  // stages 2 and 3 send layer by layer, whatever the buckets are
  return found.filter(({ zero_stage, bucket }) => zero_stage < 2 || bucket === values.bucket);
}

/** What stands on an axis's button. @param {string} key @param {number} value */
export function labelOf(key, value) {
  if (key === "bucket") return value ? (value < 1024 * MIB ? `${value / MIB} MB` : "1 GB") : "off";
  if (key === "ep" && !value) return "none";
  return value.toLocaleString("en");
}
