// One step as two lanes, computing and network. What no computing hides is hatched, and stands together at the end.

import { roundTicks } from "../common/scale.js";
import { Sketch } from "../common/sketch.js";
import { digits } from "../common/units.js";
import { pricesOf } from "./plan.js";
import { LOSSES, stepTime, sums } from "./split.js";

/** @typedef {import("./frame.js").Frame} Frame */
/** @typedef {import("./split.js").Found} Found */

const LANE = 34;
const LEFT = 84;
const MOST_MICROBATCHES = 16;

/** @param {SVGSVGElement} picture @param {Frame} frame @param {Found} found */
export function drawStep(picture, frame, found) {
  const { parts, all, lost } = sums(found);
  const computed = parts.useful + parts.kernels;
  const top = frame.width < 460 ? 62 : 46;
  const low = top + LANE + 8;
  const scale = (frame.width - LEFT - 4) / all;
  const at = (/** @type {number} */ s) => LEFT + s * scale;
  const sketch = new Sketch().hatching(`${frame.uid}-lost`).hatching(`${frame.uid}-idle`, 0.35);
  heading(sketch, frame, found, all);
  for (const tick of roundTicks(all, frame.width < 700 ? 3 : 6)) {
    sketch.line("ar-hair", at(tick), top - 6, at(tick), low + LANE + 6);
    if (at(tick) < frame.width - 24)
      sketch.text(
        tick ? "ar-tick ar-middle" : "ar-tick",
        at(tick),
        low + LANE + 22,
        `${Number(tick.toPrecision(3))} s`,
      );
  }
  sketch.text("ar-lane-name", 0, top + 22, "compute").text("ar-lane-name", 0, low + 22, "network");
  drawComputing(sketch, found, at, top, computed);
  const sent = pricesOf(found.model, found.machine, found.split).data;
  const hidden = Math.min(sent - parts.data, computed);
  if (hidden * scale > 1) {
    sketch.box("ar-wire", at(computed - hidden), low, hidden * scale - 1, LANE, { "data-part": "hidden" });
    const what = found.split.zero_stage > 2 ? "weights, gradients" : "gradients";
    if (hidden * scale > 8 * what.length) sketch.text("ar-on-wire", at(computed - hidden) + 8, low + 22, what);
  }
  const from = at(computed);
  if (lost > 0) {
    sketch.box("", from, top, lost * scale, LANE, { style: `fill:url(#${frame.uid}-idle)` });
    drawLost(sketch, frame, parts, from, scale, top, low);
    const words = `exposed: ${stepTime(lost)}`;
    const [left, right] = [Math.min(from + 1, frame.width - 6), frame.width - 4];
    sketch.path("ar-bracket ar-bracket-lost", `M${left.toFixed(1)} ${top - 8}v-6H${right}v6`);
    sketch.text("ar-strong ar-lost-words ar-end", right, top - 20, words);
  }
  sketch.line("ar-mark", from, top - 6, from, low + LANE + 6);
  sketch.into(picture, frame.width, low + LANE + 28);
  picture.setAttribute(
    "aria-label",
    `One step: ${stepTime(computed)} computing, ${stepTime(lost)} exposed: ` +
      `${
        lossesOf(parts)
          .map(([name, s]) => `${name} ${stepTime(s)}`)
          .join(", ") || "nothing"
      }.`,
  );
}

/** The losses by name, the largest first. @param {Record<string, number>} parts @returns {[string, number][]} */
export function lossesOf(parts) {
  return Object.keys(LOSSES)
    .filter((key) => parts[key] > 0)
    .sort((a, b) => parts[b] - parts[a])
    .map((key) => [LOSSES[key], parts[key]]);
}

/** @param {Sketch} sketch @param {Frame} frame @param {Found} found @param {number} all */
function heading(sketch, frame, found, all) {
  const { tokens } = found.values;
  const count = tokens < 1e5 ? digits(tokens, true) : `${digits(tokens / 1e6, true)} million`;
  const said = `${stepTime(all)} for ${count} tokens`;
  sketch.text("ar-heading", 0, 20, "One step");
  if (frame.width < 460) sketch.text("ar-soft", 0, 38, said);
  else sketch.text("ar-soft", 92, 20, said);
}

/**
 * Forward and backward passes, one pair a microbatch; one block where these would be too thin to see.
 *
 * @param {Sketch} sketch
 * @param {Found} found
 * @param {(s: number) => number} at
 * @param {number} top
 * @param {number} computed seconds
 */
function drawComputing(sketch, found, at, top, computed) {
  const microbatches = found.split.batch / (found.split.dp * found.split.microbatch);
  const count = Math.min(microbatches, MOST_MICROBATCHES);
  const one = computed / count;
  const wide = at(one) - at(0);
  for (let i = 0; i < count; i++) {
    const [start, turn, end] = [i * one, (i + 1 / 3) * one, (i + 1) * one].map(at);
    sketch.box("ar-forward", start + 0.5, top, turn - start - 1, LANE, { rx: 3 });
    sketch.box("ar-work", turn + 0.5, top, end - turn - 1, LANE, { rx: 3 });
    if (wide > 225) sketch.text("ar-on-work ar-middle", (start + turn) / 2, top + 22, "forward");
    if (wide > 115) sketch.text("ar-on-work ar-middle", (turn + end) / 2, top + 22, "backward");
  }
}

/**
 * @param {Sketch} sketch
 * @param {Frame} frame
 * @param {Record<string, number>} parts
 * @param {number} from
 * @param {number} scale
 * @param {number} top
 * @param {number} low
 */
function drawLost(sketch, frame, parts, from, scale, top, low) {
  let x = from;
  for (const key of Object.keys(LOSSES)) {
    const wide = parts[key] * scale;
    if (!(wide > 0.4)) continue;
    // a stage that waits sends nothing
    const y = key === "waits" ? top : low;
    sketch.box("ar-lost", x + 0.5, y, Math.max(0.8, wide - 1), LANE, {
      "data-part": key,
      style: `fill:url(#${frame.uid}-lost)`,
    });
    const plate = LOSSES[key].length * 7.2 + 12;
    if (wide > plate + 8) {
      sketch.box("ar-chip", x + wide / 2 - plate / 2, y + 7, plate, LANE - 14);
      sketch.text("ar-middle", x + wide / 2, y + 21.5, LOSSES[key]);
    }
    x += wide;
  }
}
