// Does a training run fit, and what does its split cost: buttons, a bar of memory, a bar of one step, one number.

import { html } from "../common/dom.js";
import { bytes, digits, seconds } from "../common/units.js";
import { Frame } from "./frame.js";
import { drawMemory, drawStep } from "./memory_bars.js";
import { bestOf, compute, fallback, gigabytes, LOSSES, PARTS, sums, tenths, WAYS, wrongWith } from "./memory_split.js";

/** @typedef {import("./memory_split.js").Found} Found */

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
    `activations: ${assumed.activation_nbytes} bytes × s × h a layer, attention recomputed`,
    `kernels by the size of their products, flash attention`,
    `other: ${bytes(assumed.other_nbytes, true)} for CUDA and NCCL (assumed)`,
  ].join(" · ");
}
