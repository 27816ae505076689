// What the layers of a stage keep in time, with some of them computed again. Drag how many; choose what of them.

import { linear, roundTicks } from "../common/scale.js";
import { Sketch } from "../common/sketch.js";
import { digits, percent } from "../common/units.js";
import { Frame } from "./frame.js";

/** @typedef {import("../common/scale.js").Scale} Scale */
/** @typedef {{layer: number, kind: "forward" | "again" | "backward", start: number, end: number, kept: number}} Part */

const [TALL, BOXES] = [240, 30];

/** @param {import("./frame.js").Model} model @param {HTMLElement} el */
export function recompute(model, el) {
  const { layers } = model.get("data");
  const given =
    `${layers} layers of GPT-3 on one of 8 tensor parallel GPUs, one sequence: forward, then backward. ` +
    "Drag the handle: how many layers may be computed again, and which part of them is worth it?";
  const frame = new Frame(model, el, "What is kept for the backward pass, and what does it cost to keep less?", given);
  const options = [
    { value: "full", label: "whole layers" },
    { value: "selective", label: "attention only" },
  ];
  frame.choice({ key: "what", name: "computed again", options });
  const figures = frame.figures(2);
  const counts = Array.from({ length: layers + 1 }, (_, i) => i);
  const grip = { key: "count", name: "layers computed again", stops: () => counts };
  const { picture, handles } = frame.stage("ar-kept", { ...grip, format: (n) => `${n} of ${layers} layers` });
  frame.legend(
    ["ar-forward", "forward"],
    ["ar-lost", "the same again"],
    ["ar-work", "backward, twice as long"],
    ["ar-room-left", "with nothing computed again"],
  );
  frame.start(() => {
    const { what, count } = frame.values;
    const found = run(frame.data, what, count);
    const least = run(frame.data, what, 0);
    figures(
      [`${digits(found.most / 1e9)} GB`, `at most,\ninstead of ${digits(least.most / 1e9)}`],
      [percent(found.seconds / least.seconds - 1), "more work"],
    );
    const slowest = run(frame.data, "full", layers).seconds;
    const x = linear([0, slowest], [frame.width < 500 ? 40 : 64, frame.width - 18]);
    draw(picture, frame, found, least, x);
    handles[0].place(x.at(count), TALL + 30, (n) => x.at(n));
    const part = what === "full" ? "" : "the attention of ";
    const more = 100 * (found.seconds / least.seconds - 1);
    return (
      `With ${part}${count} of ${layers} layers computed again the GPU keeps at most ` +
      `${(found.most / 1e9).toFixed(2)} GB, and a step is ${more.toFixed(1)} % more work.`
    );
  }, picture);
  return frame;
}

/**
 * Each part of a step with what is kept in it; a forward pass takes 1. The first `count` layers are computed again.
 *
 * @param {{layers: number, whole: number, kept: Record<string, number>, again: Record<string, number>}} data
 * @param {string} what "full" or "selective"
 * @param {number} count
 */
export function run({ layers, whole, kept, again }, what, count) {
  /** @type {Part[]} */
  const parts = [];
  let [now, held] = [0, 0];
  const add = (/** @type {number} */ layer, /** @type {Part["kind"]} */ kind, /** @type {number} */ took) => {
    parts.push({ layer, kind, start: now, end: now + took, kept: held });
    now += took;
  };
  for (let layer = 0; layer < layers; layer++) {
    held += layer < count ? kept[what] : whole;
    add(layer, "forward", 1);
  }
  for (let layer = layers - 1; layer >= 0; layer--) {
    if (layer < count) {
      held += whole - kept[what];
      add(layer, "again", again[what]);
    }
    add(layer, "backward", 2);
    held -= whole;
  }
  return { parts, seconds: now, most: Math.max(...parts.map((part) => part.kept)) };
}

/**
 * @param {SVGSVGElement} picture
 * @param {Frame} frame
 * @param {ReturnType<typeof run>} found
 * @param {ReturnType<typeof run>} least
 * @param {Scale} x
 */
function draw(picture, frame, { parts, most }, least, x) {
  const y = linear([0, least.most * 1.08], [TALL, 12]);
  const [left, right] = x.range;
  const sketch = new Sketch().hatching(`${frame.uid}-again`);
  for (const t of roundTicks((least.most * 1.08) / 1e9, 4)) {
    sketch.line("ar-hair", left, y.at(t * 1e9), right, y.at(t * 1e9));
    sketch.text("ar-tick ar-end", left - 8, y.at(t * 1e9) + 4, digits(t, true));
  }
  sketch.curve("ar-before", outline(least.parts, x, y));
  sketch.curve("ar-area", [...outline(parts, x, y), [x.at(parts[parts.length - 1].end), TALL], [left, TALL]]);
  for (const { kind, start, end, kept } of parts)
    if (kind === "again")
      sketch.box("", x.at(start), y.at(kept), x.at(end) - x.at(start), TALL - y.at(kept), {
        rx: 0,
        style: `fill:url(#${frame.uid}-again);opacity:.45`,
      });
  sketch.line("ar-mark", left, y.at(most), right, y.at(most));
  const words = `${digits(most / 1e9)} GB at most`;
  sketch.text("ar-strong ar-end ar-halo", right - 4, y.at(most) + (most > 0.9 * least.most ? 18 : -8), words);
  const row = TALL + 56;
  for (const { kind, layer, start, end } of parts) {
    const [from, wide] = [x.at(start), x.at(end) - x.at(start)];
    const look = { forward: "ar-forward", backward: "ar-work", again: "" }[kind];
    const style = kind === "again" ? `fill:url(#${frame.uid}-again)` : "";
    sketch.box(look, from + 0.7, row, Math.max(1, wide - 1.4), BOXES, { rx: Math.min(4, wide / 4), style });
    const name = String(layer + 1);
    if (kind !== "again" && wide > 8 * name.length)
      sketch.text("ar-small-text ar-label-ink ar-middle", from + wide / 2, row + 20, name);
  }
  const count = frame.values.count;
  sketch.track(left, x.at(frame.data.layers), x.at(count), TALL + 30);
  sketch.text(
    "ar-strong",
    x.at(frame.data.layers) + 24,
    TALL + 35,
    `${count} of ${frame.data.layers} layers again: drag`,
  );
  sketch.text("ar-strong", 0, 10, "GB");
  sketch.line("ar-axis", left, TALL, right, TALL);
  sketch.into(picture, frame.width, row + BOXES + 8);
}

/** The top of what is kept, as steps. @param {Part[]} parts @param {Scale} x @param {Scale} y */
function outline(parts, x, y) {
  return parts.flatMap(({ start, end, kept }) => [
    [x.at(start), y.at(kept)],
    [x.at(end), y.at(kept)],
  ]);
}
