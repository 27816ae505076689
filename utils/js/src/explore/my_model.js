// My model: what one training run needs and costs, with the axes that the reader has opened so far.

import { html } from "../common/dom.js";
import { bytes, digits } from "../common/units.js";
import { axes } from "./axes.js";
import { Frame } from "./frame.js";
import { keep, welcome } from "./kept.js";
import { drawMemory } from "./memory_bar.js";
import { compute, fallback, fits, gigabytes, PARTS, stepTime, sums, tenths, WAYS, wrongWith } from "./split.js";
import { drawStep, lossesOf } from "./step_lanes.js";
import { drawStory } from "./story_bars.js";
import { hintOf, sentenceOf } from "./verdict.js";

/** @typedef {import("./split.js").Found} Found */

// a step that loses a smaller share than this computes nearly all the time
const LITTLE = 0.1;

/** @param {import("./frame.js").Model} model @param {HTMLElement} el */
export function my_model(model, el) {
  const { id, opened: openedHere } = model.get("data");
  welcome(model, id);
  const frame = new Frame(model, el, "My model", "");
  const opened = () => Math.max(openedHere, model.get("kept").opened ?? 0);
  const showAxes = axes(frame, opened);
  const warning = html("p", { class: "ar-warning" });
  frame.add(warning);
  const bar = frame.picture("ar-memory-bar");
  const legend = html("p", { class: "ar-small ar-legend" });
  frame.add(legend);
  const step = frame.picture("ar-step-lanes");
  const losses = html("p", { class: "ar-small ar-losses" });
  const share = html("div", { class: "ar-mfu" });
  const hint = html("p", { class: "ar-hint" });
  const under = html("div", { class: "ar-under" }, share, hint);
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let asked;
  frame.add(losses, under);
  const story = frame.picture("ar-story");
  frame.add(moreOf(frame));
  /** @type {Found | null} */
  let last = null;
  frame.start(() => {
    const wrong = wrongWith(frame, frame.values);
    warning.textContent = wrong ? `${wrong}. Below: the last split that is possible.` : "";
    warning.hidden = !wrong;
    if (!wrong || !last) last = compute(frame, wrong ? fallback(frame.values) : frame.values);
    showAxes();
    frame.title.textContent = wrong ? "This split is impossible" : headlineOf(last);
    frame.subtitle.textContent = subtitleOf(last, opened(), frame.data.axes.length);
    drawMemory(bar, frame, last, wholeOf(frame));
    drawStep(step, frame, last);
    const spent = lossesOf(sums(last).parts);
    losses.textContent =
      spent.length > 1 ? `exposed: ${spent.map(([name, s]) => `${name} ${stepTime(s)}`).join(" · ")}` : "";
    share.innerHTML = shareOf(last);
    const found = last;
    clearTimeout(asked);
    asked = setTimeout(() => {
      // it searches a thousand splits: in a frame of its own, after the bars
      hint.innerHTML = `<b>What now?</b> ${hintOf(frame, found, opened())}`;
    });
    legend.hidden = frame.width >= 700;
    legend.textContent = PARTS.map((part) => `${part} ${tenths(last?.held[part] ?? 0)}`).join(" · ");
    story.style.display = frame.values.model === frame.data.start.model ? "" : "none";
    drawStory(story, frame, opened(), model.get("kept").chosen ?? {});
    return wrong ? warning.textContent : sentenceOf(last);
  });
  frame.chosen = () => keep(model, id, frame.values);
  const again = () => frame.redraw();
  model.on("change:kept", again);
  frame.undo.push(
    () => model.off("change:kept", again),
    () => clearTimeout(asked),
  );
  return frame;
}

/** What is changed rarely, behind "change". @param {Frame} frame */
function moreOf(frame) {
  const { models, machines, start } = frame.data;
  /** @param {number[]} values @param {string} key */
  const withOwn = (values, key) =>
    [...new Set([...values, start[key], frame.values[key]])]
      .sort((a, b) => a - b)
      .map((value) => ({ value, label: value.toLocaleString("en") }));
  const named = (/** @type {object} */ table) => Object.keys(table).map((value) => ({ value, label: value }));
  const given = Object.keys(models).filter((name) => !Object.values(models).some((one) => one.with_experts === name));
  const menus = html(
    "div",
    { class: "ar-menus" },
    frame.menu({ key: "model", name: "model", options: given.map((value) => ({ value, label: value })) }),
    frame.menu({ key: "machine", name: "machine", options: named(machines) }),
    frame.menu({
      key: "sequence",
      name: "tokens a sequence",
      options: withOwn([2048, 8192, 32768, 131072], "sequence"),
    }),
    frame.menu({
      key: "tokens",
      name: "tokens a step",
      options: withOwn(
        [19, 20, 21, 22, 23, 24].map((n) => 2 ** n),
        "tokens",
      ),
    }),
    frame.menu({
      key: "ranks",
      name: "GPUs",
      options: withOwn([1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024], "ranks"),
    }),
    frame.menu({ key: "microbatch", name: "sequences at a time", options: withOwn(WAYS.microbatch, "microbatch") }),
  );
  const foot = html("span", { class: "ar-small" }, footOf(frame));
  return html("details", { class: "ar-more" }, html("summary", {}, "Change the model or the machine"), menus, foot);
}

/** Bytes that one GPU would need without any axis. @param {Frame} frame */
function wholeOf(frame) {
  const alone = { ...frame.values, ranks: 1, zero_stage: 0, tp: 1, pp: 1, cp: 1, ep: Math.min(1, frame.values.ep) };
  return wrongWith(frame, alone) ? 0 : compute(frame, alone).total;
}

/** @param {Found} found */
function headlineOf(found) {
  const name = found.values.model === "my model" ? "My model" : found.values.model;
  if (!fits(found)) return `${name} does not fit: ${gigabytes(found.total - found.limit)} too much`;
  const { parts, all, lost } = sums(found);
  if (lost / all < LITTLE)
    return `${name} fits, and the GPUs compute ${Math.floor(100 * (1 - lost / all))} % of the time`;
  const forStages = parts.waits > lost / 2;
  return `${name} fits. Now the step waits for ${forStages ? "the pipeline" : "the network"}`;
}

/** @param {Found} found @param {number} opened @param {number} all */
function subtitleOf({ model, machine, values }, opened, all) {
  const gpus = values.ranks === 1 ? `one ${machine.gpu}` : `${values.ranks.toLocaleString("en")} × ${machine.gpu}`;
  const free =
    opened >= all ? "All axes are open" : `${opened} of your ${all} axes ${opened === 1 ? "is" : "are"} open`;
  return (
    `${digits(model.parameters / 1e9, true)} billion parameters on ${gpus} with ${gigabytes(machine.nbytes)}, ` +
    `sequences of ${values.sequence.toLocaleString("en")} tokens. ${free}: choose, and the bars answer.`
  );
}

/** @param {Found} found */
function shareOf(found) {
  const room = fits(found);
  const peak = Math.round(found.machine.flop_per_s / 1e12).toLocaleString("en");
  const big = room ? `${Math.round(100 * sums(found).mfu)} % MFU` : "no room";
  const meaning = room
    ? `of the step would be enough, if the GPU computed at its peak of ${peak} TFLOP/s`
    : "so no MFU: this step can't run";
  return `<b class="ar-big">${big}</b><span>${meaning}</span>`;
}

/** @param {Frame} frame */
function footOf(frame) {
  const { assumed } = frame.data;
  return [
    "bf16 with Adam, 16 bytes a parameter",
    `activations: ${assumed.activation_nbytes} bytes × s × h a layer, attention recomputed`,
    "kernels by the size of their products, flash attention",
    `other: ${bytes(assumed.other_nbytes, true)} for CUDA and NCCL (assumed)`,
    "collectives as rings",
  ].join(" · ");
}
