// The two bars of "does it fit": the memory of one GPU, and one step of training.

import { roundTicks } from "../common/scale.js";
import { Sketch } from "../common/sketch.js";
import { digits, seconds } from "../common/units.js";
import { gigabytes, LOSSES, PARTS, sums, tenths } from "./memory_split.js";

/** @typedef {import("./frame.js").Frame} Frame */
/** @typedef {import("./memory_split.js").Found} Found */

const BAR = 84;

/** @param {SVGSVGElement} picture @param {Frame} frame @param {Found} found */
export function drawMemory(picture, frame, { held, total, limit, machine }) {
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
  nameParts(sketch, top, scale, edge, held);
  sketch.line("ar-limit", edge, top - 22, edge, top + BAR + 12);
  const said = over ? `${gigabytes(total - limit)} too much` : `${gigabytes(limit - total)} to spare`;
  const gpu = width - edge > 130 ? `${gigabytes(limit)}, ${machine.gpu}` : gigabytes(limit);
  const roomBefore = edge > 10 * said.length;
  const look = over ? "ar-strong ar-end ar-lost-words" : "ar-strong ar-end";
  sketch.text(look, roomBefore ? edge - 8 : width, top - 12, said);
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
 * The names of the parts, above the hatching: where that lies below, a plate of the part's colour keeps them legible.
 *
 * @param {Sketch} sketch
 * @param {number} top
 * @param {number} scale pixels a byte
 * @param {number} edge where the GPU's memory ends
 * @param {Found["held"]} held
 */
function nameParts(sketch, top, scale, edge, held) {
  let x = 0;
  for (const [i, part] of PARTS.entries()) {
    const wide = held[part] * scale;
    const amount = tenths(held[part]);
    const plate = Math.max(part.length * 8.2, amount.length * 8) + 14;
    if (wide > plate + 6 && x + plate > edge) sketch.box(`ar-part-${i}`, x + 4, top + 16, plate, 54);
    label(sketch, `ar-on-part-${i}`, x, top, wide, part, amount);
    x += wide;
  }
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
export function drawStep(picture, frame, found) {
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
