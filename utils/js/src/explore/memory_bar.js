// The memory of one GPU as a bar, by what it holds, against what the GPU has.

import { Sketch } from "../common/sketch.js";
import { digits } from "../common/units.js";
import { fits, gigabytes, PARTS, tenths } from "./split.js";

/** @typedef {import("./frame.js").Frame} Frame */
/** @typedef {import("./split.js").Found} Found */

const BAR = 68;

/**
 * @param {SVGSVGElement} picture
 * @param {Frame} frame
 * @param {Found} found
 * @param {number} whole bytes that one GPU would need without any axis
 */
export function drawMemory(picture, frame, { held, total, limit, machine }, whole) {
  const width = frame.width;
  const most = Math.min(Math.max(whole, total), 2.4 * limit);
  const scale = width / Math.max(limit * 1.25, total * 1.04, most * 1.04);
  // beside the heading there is room for what stands above the limit, if that is not below the heading
  const top = width < 860 || limit * scale < 200 ? 58 : 40;
  const over = !fits({ total, limit });
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
        Math.min(Math.max(30, x + wide / 2), width - 30),
        top + BAR + 20,
        `other ${digits(held[part] / 1e9, true)}`,
      );
    // what ZeRO made small is the point of the picture, so it keeps its name as long as there is room for it
    const name = `${part} ${tenths(held[part])}`;
    if (part === "optimizer" && wide < name.length * 8 && x + name.length * 7 < (total - held.other) * scale - 10)
      sketch.text("ar-tick", x, top + BAR + 20, name);
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
  if (!over && whole * scale < width && whole > limit) {
    sketch.line("ar-ghost", x, top + BAR / 2, whole * scale, top + BAR / 2);
    sketch.line("ar-ghost-end", whole * scale, top + 8, whole * scale, top + BAR - 8);
    if (whole * scale - edge > 150)
      sketch.text("ar-end ar-halo", whole * scale - 8, top + BAR / 2 - 8, `${gigabytes(whole)} on one GPU`);
  }
  sketch.into(picture, width, top + BAR + 26);
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
    if (wide > plate + 6 && x + plate > edge) sketch.box(`ar-part-${i}`, x + 4, top + 8, plate, 54);
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
  if (wide > amount.length * 8 + 12) sketch.text(`${look} ar-amount`, x + 10, top + 50, amount);
  if (wide > name.length * 8.2 + 16) sketch.text(`${look} ar-partname`, x + 10, top + 28, name);
}
