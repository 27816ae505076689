// Does a training run fit, and what does its split cost: buttons, a bar of memory, a bar of one step, one number.

import { html } from "../common/dom.js";
import { roundTicks } from "../common/scale.js";
import { Sketch } from "../common/sketch.js";
import { bytes, digits, seconds } from "../common/units.js";
import { Frame } from "./frame.js";
import { memoryOf, problem, spentOf } from "./plan.js";

/** @typedef {import("./plan.js").Split} Split */
/** @typedef {ReturnType<typeof compute>} Found */

const PARTS = ["weights", "gradients", "optimizer", "activations", "other"];
/** @type {Record<string, string>} */
const LOSSES = {
  tensor: "TP all-reduces",
  context: "CP keys and values",
  expert: "EP all-to-alls",
  waits: "pipeline waits",
  data: "DP, exposed",
  sends: "PP sends",
};
const BAR = 84;
const WAYS = {
  zero_stage: [0, 1, 2, 3],
  tp: [1, 2, 4, 8],
  pp: [1, 2, 4, 8],
  cp: [1, 2, 4],
  ep: [1, 2, 4, 8],
  microbatch: [1, 2, 4, 8],
};
/** @type {Record<string, string>} */
const ROWS = {
  zero_stage: "ZeRO stage",
  tp: "TP: split each layer",
  pp: "PP: split the depth",
  cp: "CP: split the sequence",
};

/** @param {import("./frame.js").Model} model @param {HTMLElement} el */
export function memory(model, el) {
  const frame = new Frame(model, el, "Does it fit, and what does the split cost?", "");
  frame.controls.classList.add("ar-rows");
  for (const key of Object.keys(ROWS)) frame.choice(rowOf(frame, /** @type {keyof typeof WAYS} */ (key), ROWS[key]));
  const left = html("div", { class: "ar-choice ar-left" });
  frame.controls.append(left);
  const more = html("details", { class: "ar-more" }, html("summary", {}, "Change the model, the machine, the batch"));
  const menus = html("div", { class: "ar-menus" }, ...menusOf(frame));
  const experts = frame.choice(rowOf(frame, "ep", "EP: spread the experts"));
  more.append(menus, frame.choice(rowOf(frame, "microbatch", "microbatch: sequences at a time")), experts);
  const warning = html("p", { class: "ar-warning" });
  frame.add(warning);
  const bar = frame.picture("ar-memory-bar");
  const legend = html("p", { class: "ar-small ar-legend" });
  frame.add(legend);
  const step = frame.picture("ar-step-bar");
  const under = html("div", { class: "ar-under" });
  const hint = html("p", { class: "ar-hint" });
  const foot = html("p", { class: "ar-small ar-foot" });
  frame.add(under, hint, more, foot);
  /** @type {Found | null} */
  let last = null;
  frame.start(() => {
    const wrong = wrongWith(frame, frame.values);
    warning.textContent = wrong ? `${wrong}. Below: the last split that is possible.` : "";
    warning.hidden = !wrong;
    if (!wrong || !last) last = compute(frame, wrong ? fallback(frame.values) : frame.values);
    experts.hidden = !last.model.experts;
    frame.subtitle.textContent =
      `${digits(last.model.parameters / 1e9)} billion parameters on ` +
      `${last.values.ranks} GPUs. Choose; the two bars answer.`;
    left.innerHTML =
      `<span class="ar-name">DP, what is left</span><p><b>${last.split.dp}</b> ` +
      `replica${last.split.dp === 1 ? "" : "s"}</p><span class="ar-note">Small figures: GB if chosen.</span>`;
    drawMemory(bar, frame, last);
    drawStep(step, frame, last);
    fillUnder(under, last);
    legend.hidden = frame.width >= 700;
    legend.textContent = PARTS.map((part) => `${part} ${tenths(last?.held[part] ?? 0)}`).join(" · ");
    hint.innerHTML = `<b>What to try.</b> ${hintOf(frame, last)}`;
    foot.textContent = footOf(frame, last);
    return wrong ? warning.textContent : sentenceOf(last);
  });
  return frame;
}

/** @param {Frame} frame @param {keyof typeof WAYS} key @param {string} name @returns {import("./frame.js").Choice} */
function rowOf(frame, key, name) {
  return {
    key,
    name,
    options: WAYS[key].map((value) => ({ value, label: String(value) })),
    about(value) {
      const values = { ...frame.values, [key]: value };
      const wrong = wrongWith(frame, values);
      if (wrong) return { note: "–", disabled: wrong };
      const { total, limit } = compute(frame, values, false);
      return { note: gigabytes(total), bad: total > limit };
    },
  };
}

/** @param {Frame} frame */
function menusOf(frame) {
  const { models, machines } = frame.data;
  const named = (/** @type {object} */ table) => Object.keys(table).map((value) => ({ value, label: value }));
  const powers = (/** @type {number} */ low, /** @type {number} */ high) =>
    Array.from({ length: high - low + 1 }, (_, i) => ({ value: 2 ** (low + i), label: String(2 ** (low + i)) }));
  return [
    frame.menu({ key: "model", name: "model", options: named(models) }),
    frame.menu({ key: "machine", name: "machine", options: named(machines) }),
    frame.menu({ key: "ranks", name: "GPUs", options: powers(0, 10) }),
    frame.menu({ key: "batch", name: "sequences a step", options: powers(5, 13) }),
  ];
}

/** @param {number} nbytes */
const gigabytes = (nbytes) => `${digits(nbytes / 1e9 < 9.95 ? nbytes / 1e9 : Math.round(nbytes / 1e9))} GB`;

/** @param {number} nbytes */
const tenths = (nbytes) => `${(nbytes / 1e9).toFixed(1)} GB`;

/** @param {Record<string, any>} values @returns {Split} */
function splitOf(values) {
  const { zero_stage, tp, pp, cp, ep, batch, microbatch, ranks } = values;
  return { zero_stage, tp, pp, cp, ep, batch, microbatch, dp: ranks / (tp * pp * cp) };
}

/** @param {Frame} frame @param {Record<string, any>} values */
const wrongWith = (frame, values) => problem(frame.data.models[values.model], splitOf(values));

/** One replica on each GPU, in order to show something. @param {Record<string, any>} values */
const fallback = (values) => ({
  ...values,
  tp: 1,
  pp: 1,
  cp: 1,
  ep: 1,
  microbatch: 1,
  batch: Math.max(values.batch, values.ranks),
});

/** @param {Frame} frame @param {Record<string, any>} values @param {boolean} whole whether the step is wanted too */
function compute(frame, values, whole = true) {
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
function sums({ spent }) {
  const parts = /** @type {Record<string, number>} */ (spent);
  const all = Object.values(parts).reduce((sum, s) => sum + s, 0);
  return { parts, all, lost: all - parts.useful - parts.kernels, mfu: parts.useful / all };
}

/** @param {Found} found */
function sentenceOf(found) {
  const { total, limit, machine } = found;
  const room = total > limit ? `${gigabytes(total - limit)} too much` : `${gigabytes(limit - total)} to spare`;
  const { all, mfu, lost } = sums(found);
  return (
    `${gigabytes(total)} of ${machine.gpu}'s ${gigabytes(limit)}: ${room}. A step takes ` +
    `${seconds(all)}, ${seconds(lost)} of it lost: ${Math.round(100 * mfu)} % MFU.`
  );
}

/**
 * What is wrong with the split, and what the best split of the four rows reaches.
 *
 * @param {Frame} frame
 * @param {Found} found
 */
function hintOf(frame, found) {
  const [fit, best] = bestOf(frame, found.values);
  const { parts, mfu } = sums(found);
  const most = Object.keys(LOSSES).reduce((a, b) => (parts[b] > parts[a] ? b : a));
  if (!fit) return `No split of these rows fits into ${gigabytes(found.limit)}: change the microbatch or the GPUs.`;
  const goal = `The best of the ${fit} splits of these rows that fit has ${Math.round(100 * best)} % MFU.`;
  if (found.total > found.limit) return `This split needs ${gigabytes(found.total - found.limit)} too much. ${goal}`;
  if (mfu > best - 0.005)
    return "Nothing: no split of these rows that fits is better. With another batch or machine one may be.";
  return `${gigabytes(found.limit - found.total)} are free, and most of the loss is ${LOSSES[most]}. ${goal}`;
}

/**
 * How many splits of the four rows fit into the memory, and the best MFU of these.
 *
 * @param {Frame} frame
 * @param {Record<string, any>} values
 */
function bestOf(frame, values) {
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

/** @param {SVGSVGElement} picture @param {Frame} frame @param {Found} found */
function drawMemory(picture, frame, { held, total, limit, machine }) {
  const width = frame.width;
  const top = 58;
  const scale = width / Math.max(limit * 1.25, total * 1.04);
  const over = total > limit;
  const sketch = new Sketch().hatching(`${frame.uid}-over`).hatching(`${frame.uid}-beyond`, 0.35);
  sketch.text("ar-heading", 0, 20, "Memory of one GPU");
  sketch.box("ar-room", 0, top, limit * scale, BAR);
  sketch.box("", limit * scale, top, width - limit * scale, BAR, { style: `fill:url(#${frame.uid}-beyond)` });
  let x = 0;
  for (const [i, part] of PARTS.entries()) {
    const wide = held[part] * scale;
    sketch.box(`ar-part-${i}`, x, top, wide - 2, BAR, { "data-part": part, "data-bytes": String(held[part]) });
    label(sketch, `ar-on-part-${i}`, x, top, wide, part, tenths(held[part]));
    if (part === "other" && wide < 80)
      sketch.text(
        "ar-tick ar-middle",
        Math.max(30, x + wide / 2),
        top + BAR + 20,
        `other ${digits(held[part] / 1e9, true)}`,
      );
    x += wide;
  }
  const edge = limit * scale;
  if (over) sketch.box("ar-over", edge, top, x - edge, BAR, { style: `fill:url(#${frame.uid}-over)` });
  sketch.line("ar-limit", edge, top - 22, edge, top + BAR + 12);
  const said = over ? `${gigabytes(total - limit)} too much` : `${gigabytes(limit - total)} to spare`;
  const gpu = width - edge > 130 ? `${gigabytes(limit)}, ${machine.gpu}` : gigabytes(limit);
  sketch.text(over ? "ar-strong ar-end ar-lost-words" : "ar-strong ar-end", edge - 8, top - 12, said);
  sketch.text("ar-strong", edge + 10, top - 12, gpu);
  if (!over && width - edge > 100)
    sketch.text("ar-strong ar-middle ar-halo", (edge + width) / 2, top + BAR / 2 + 5, "does not fit");
  for (const gb of roundTicks(Math.max(limit, total) / 1e9, 5)) {
    const at = gb * 1e9 * scale;
    if (Math.abs(at - edge) > 34 && at < width - 10)
      sketch.text(gb ? "ar-tick ar-middle" : "ar-tick", at, top + BAR + 40, String(gb));
  }
  sketch.into(picture, width, top + BAR + 52);
  picture.setAttribute(
    "aria-label",
    `Memory of one GPU: ${PARTS.map((part) => `${part} ${gigabytes(held[part])}`).join(", ")}; ${said}.`,
  );
}

/**
 * Two lines in a part of a bar, if they fit.
 *
 * @param {Sketch} sketch
 * @param {string} look
 * @param {number} x
 * @param {number} top
 * @param {number} wide
 * @param {string} name
 * @param {string} amount
 */
function label(sketch, look, x, top, wide, name, amount) {
  if (wide > amount.length * 8 + 12) sketch.text(`${look} ar-amount`, x + 10, top + 60, amount);
  if (wide > name.length * 8.2 + 16) sketch.text(`${look} ar-partname`, x + 10, top + 36, name);
}

/** @param {SVGSVGElement} picture @param {Frame} frame @param {Found} found */
function drawStep(picture, frame, found) {
  const { parts, all, lost } = sums(found);
  const tokens = found.values.batch * found.model.sequence;
  const width = frame.width;
  const top = width < 460 ? 54 : 36;
  const scale = width / all;
  const sketch = new Sketch().hatching(`${frame.uid}-lost`);
  sketch.text("ar-heading", 0, 20, "One step of training");
  const said = `${seconds(all)} for ${digits(tokens / 1e6)} million tokens`;
  if (width < 460) sketch.text("ar-soft", 0, 42, said);
  else sketch.text("ar-soft", 215, 20, said);
  const [useful, kernels] = [parts.useful * scale, parts.kernels * scale];
  sketch.box("ar-useful", 0, top, useful - 1, BAR, { "data-part": "useful" });
  label(sketch, "ar-on-now", 0, top, useful, "useful arithmetic", seconds(parts.useful));
  sketch.box("ar-work", useful + 1, top, kernels - 2, BAR, { "data-part": "kernels" });
  label(
    sketch,
    "ar-on-work",
    useful,
    top,
    kernels,
    kernels > 230 ? "the same, below peak speed" : "below peak",
    seconds(parts.kernels),
  );
  let x = useful + kernels;
  for (const key of Object.keys(LOSSES)) {
    const wide = parts[key] * scale;
    if (wide > 0.4)
      sketch.box("ar-lost", x + 0.7, top, Math.max(0.8, wide - 1.4), BAR, {
        "data-part": key,
        style: `fill:url(#${frame.uid}-lost)`,
      });
    x += wide;
  }
  const low = top + BAR;
  sketch.path(
    "ar-bracket",
    `M1 ${low + 20}v12M1 ${low + 26}H${(useful - 1).toFixed(1)}M${(useful - 1).toFixed(1)} ${low + 20}v12`,
  );
  const from = Math.min(useful + kernels + 1, width - 3);
  if (lost > 0) sketch.path("ar-bracket ar-bracket-lost", `M${from.toFixed(1)} ${low + 8}v6H${width - 1}v-6`);
  sketch.into(picture, width, low + 36);
  picture.setAttribute(
    "aria-label",
    `One step: ${seconds(parts.useful)} useful arithmetic, ${seconds(parts.kernels)} because kernels are ` +
      `below the peak, ${seconds(lost)} lost.`,
  );
}

/** @param {HTMLElement} under @param {Found} found */
function fillUnder(under, found) {
  const { parts, lost, mfu } = sums(found);
  const rows = Object.entries(LOSSES)
    .filter(([key]) => parts[key] > 0)
    .sort(([a], [b]) => parts[b] - parts[a])
    .map(([key, name]) => `<tr><td>${name}</td><td>${seconds(parts[key], false)}</td></tr>`);
  under.innerHTML =
    `<div class="ar-mfu"><b class="ar-big">${Math.round(100 * mfu)} % MFU</b><span>the share of the step in ` +
    `which the GPU’s arithmetic would be done, ` +
    `if it ran at its peak of ${Math.round(found.machine.flop_per_s / 1e12).toLocaleString("en")} ` +
    `TFLOP/s</span></div>` +
    `<table class="ar-losses"><caption>lost: ${seconds(lost)}</caption><tbody>${rows.join("")}</tbody></table>`;
}

/** @param {Frame} frame @param {Found} found */
function footOf(frame, { values, model, machine }) {
  const { assumed } = frame.data;
  return [
    values.model,
    `${values.ranks} × ${machine.gpu} (${values.machine})`,
    `sequences of ${model.sequence}, ${values.microbatch} at a time`,
    "activations: 34 bytes × s × h a layer, attention recomputed",
    `kernels at ${Math.round(100 * assumed.kernels)} % of peak (assumed)`,
    `other: ${bytes(assumed.other_nbytes, true)} for CUDA and NCCL (assumed)`,
  ].join(" · ");
}
