// How much of the all-reduce the step waits for: two lanes, the exposed part hatched, and exposed time by bucket size.

import { html } from "../common/dom.js";
import { decades, linear, logarithmic, roundTicks, spread, stops } from "../common/scale.js";
import { Sketch } from "../common/sketch.js";
import { bytes, seconds } from "../common/units.js";
import { exposure, lanes } from "./buckets.js";
import { Frame, nearest, onDrag } from "./frame.js";

/** @typedef {import("./buckets.js").Job} Job */
/** @typedef {import("../common/scale.js").Scale} Scale */
/** @typedef {ReturnType<typeof compute>} Found */

const MOST_BLOCKS = 150;
const LANE = 62;

/** @param {import("./frame.js").Model} model @param {HTMLElement} el */
export function overlap(model, el) {
  const { job } = model.get("data");
  const given =
    `${bytes(job.nbytes)} of gradients, ${job.ranks} GPUs, ${bytes(job.bytesPerS)}/s, ` +
    `${seconds(job.alpha)} a message.`;
  const frame = new Frame(
    model,
    el,
    "How much of the all-reduce does the step really wait for?",
    `${given} Drag a yellow handle.`,
  );
  const sizes = stops(1e6, job.nbytes);
  const ends = /** @type {[string, string]} */ ([bytes(1e6, true), `${bytes(job.nbytes)}: one call`]);
  frame.slider({ key: "bucket", name: "bucket", stops: sizes, format: (v) => bytes(v), ends });
  const times = Array.from({ length: 60 }, (_, i) => (i + 1) / 100);
  frame.slider({ key: "backward", name: "backward pass", stops: times, format: (v) => seconds(v) });
  const verdict = html("div", { class: "ar-verdict" });
  frame.controls.append(verdict);
  const time = frame.picture("ar-lanes");
  const curve = frame.picture("ar-plot");
  const side = html("div", { class: "ar-side" });
  frame.add(html("div", { class: "ar-beside" }, curve, side));
  /** @type {Scale | null} */
  let x = null;
  onDrag(curve, (pixel) => x && frame.set("bucket", sizes[nearest(sizes, x.value(pixel))]));
  frame.start(() => {
    const found = compute(job, frame.values);
    drawLanes(time, frame, found);
    x = drawCurve(curve, frame, found, frame.width >= 860 ? frame.width - 360 : frame.width);
    const sentence =
      `Of ${seconds(found.all)} of communication in ` +
      `${found.calls === 1 ? "one call" : `${found.calls.toLocaleString("en")} calls`} the step waits ` +
      `${seconds(found.exposed)}.`;
    fillVerdict(verdict, found);
    fillSide(side, found);
    curve.setAttribute(
      "aria-label",
      `Exposed time by bucket size: at best ${seconds(found.least.exposed)}, near ${bytes(found.least.bucket)}.`,
    );
    return sentence;
  }, time);
  return frame;
}

/** @param {Job} job @param {Record<string, any>} values */
function compute(job, { bucket, backward }) {
  const here = exposure(job, bucket, backward);
  const sizes = spread(1e6, job.nbytes, 400);
  /** @param {number} b */
  const curve = (b) => sizes.map((size) => exposure(job, size, b).exposed);
  const own = curve(backward);
  const at = own.indexOf(Math.min(...own));
  const others = [backward / 2, backward * 2.5].map((b) => ({ backward: b, values: curve(b) }));
  return { ...here, job, bucket, backward, sizes, own, others, least: { bucket: sizes[at], exposed: own[at] } };
}

/** @param {HTMLElement} verdict @param {Found} found */
function fillVerdict(verdict, { all, exposed }) {
  const share = (100 * exposed) / all;
  verdict.innerHTML =
    `<p><b class="ar-big">${seconds(exposed)}</b> <span>of every step, the GPU waits for the network</span></p>` +
    `<div class="ar-meter"><i style="width:${100 - share}%"></i><i class="ar-lost" style="width:${share}%"></i></div>` +
    `<p class="ar-split"><span>${seconds(all - exposed)} hidden</span><b>${seconds(exposed)} exposed</b></p>`;
}

/** @param {SVGSVGElement} picture @param {Frame} frame @param {Found} found */
function drawLanes(picture, frame, found) {
  const { backward, exposed } = found;
  const narrow = frame.width < 700;
  const [left, compute, network] = [narrow ? 4 : 120, narrow ? 58 : 40, narrow ? 172 : 134];
  const end = backward + exposed;
  const x = linear([0, end * 1.07], [left, frame.width - 4]);
  const ticks = roundTicks(end * 1.07, narrow ? 4 : 8);
  const bottom = network + LANE + 10;
  const sketch = new Sketch().hatching(`${frame.uid}-lost`).hatching(`${frame.uid}-pale`, 0.4);
  for (const t of ticks) {
    sketch.line("ar-hair", x.at(t), 24, x.at(t), bottom);
    sketch.text(t ? "ar-tick ar-middle" : "ar-tick", x.at(t), 16, t ? seconds(t) : "0 ms");
  }
  const titles = [
    ["compute", "backward", compute],
    ["network", "all-reduces", network],
  ];
  for (const [name, what, top] of /** @type {[string, string, number][]} */ (titles)) {
    if (narrow) sketch.text("ar-lane", left, top - 8, `${name}: ${what}`);
    else sketch.text("ar-lane", 0, top + 27, name).text("ar-tick", 0, top + 46, what);
  }
  blocks(sketch, frame, found, x, compute, network);
  const lost = { style: `fill:url(#${frame.uid}-pale)` };
  sketch.box("", x.at(backward) + 1, compute, x.at(end) - x.at(backward) - 1, LANE, lost);
  sketch.line("ar-mark", x.at(backward), 26, x.at(backward), bottom);
  sketch.line("ar-mark", x.at(end), network - 12, x.at(end), bottom);
  if (!narrow) ending(sketch, x, backward, end, compute);
  sketch.text(
    "ar-tick",
    left,
    bottom + 16,
    found.calls > MOST_BLOCKS
      ? `${found.calls.toLocaleString("en")} buckets: too many to draw each`
      : "numbers: buckets, the last layers first",
  );
  sketch.into(picture, frame.width, bottom + 26);
}

/**
 * Says what the line means, where there is room.
 *
 * @param {Sketch} sketch
 * @param {Scale} x
 * @param {number} backward
 * @param {number} end
 * @param {number} top
 */
function ending(sketch, x, backward, end, top) {
  if (x.at(end) - x.at(backward) > 165) {
    sketch.text("ar-strong ar-halo", x.at(backward) + 8, top + 20, "backward ends:");
    sketch.text("ar-label-ink ar-halo", x.at(backward) + 8, top + 38, "from here the GPU waits");
  } else sketch.text("ar-strong ar-end ar-halo", x.at(backward) - 6, top - 4, "backward ends");
}

/**
 * @param {Sketch} sketch
 * @param {Frame} frame
 * @param {Found} found
 * @param {Scale} x
 * @param {number} top
 * @param {number} low
 */
function blocks(sketch, frame, found, x, top, low) {
  const { calls, backward, exposed } = found;
  if (calls > MOST_BLOCKS) {
    const first = backward / calls;
    sketch.box("ar-work", x.at(0), top, x.at(backward) - x.at(0), LANE);
    sketch.box("ar-wire", x.at(first), low, x.at(Math.min(backward, found.all + first)) - x.at(first), LANE);
    sketch.box("ar-lost", x.at(backward) + 1, low, x.at(backward + exposed) - x.at(backward) - 1, LANE, {
      style: `fill:url(#${frame.uid}-lost)`,
    });
    return;
  }
  const step = backward / calls;
  for (const [i, { ready, start, end }] of lanes(found, backward).entries()) {
    const wide = x.at(step) - x.at(0);
    sketch.box("ar-work", x.at(i * step) + 0.7, top, wide - 1.4, LANE);
    const [a, b, cut] = [x.at(start), x.at(end), x.at(backward)];
    if (a < cut) sketch.box("ar-wire", a + 0.7, low, Math.min(b, cut) - a - 1.4, LANE);
    if (b > cut)
      sketch.box("ar-lost", Math.max(a, cut) + 0.7, low, b - Math.max(a, cut) - 1.4, LANE, {
        style: `fill:url(#${frame.uid}-lost)`,
      });
    const from = x.at(ready);
    if (wide > 14)
      sketch.path(
        "ar-link",
        `M${from.toFixed(1)} ${top + LANE}C${from.toFixed(1)} ${low - 8} ${a.toFixed(1)} ${top + LANE + 8} ` +
          `${a.toFixed(1)} ${low}`,
      );
    if (wide > 22) sketch.text("ar-on-work ar-middle", x.at((i + 0.5) * step), top + 36, String(calls - i));
    if (b - a > 22) {
      const middle =
        start < backward && end > backward
          ? backward - start > end - backward
            ? (a + cut) / 2
            : (cut + b) / 2
          : (a + b) / 2;
      if (middle > cut) sketch.box("ar-chip", middle - 12, low + 21, 24, 20);
      sketch.text(
        middle > cut ? "ar-label-ink ar-middle" : "ar-on-wire ar-middle",
        middle,
        low + 36,
        String(calls - i),
      );
    }
  }
}

/** @param {SVGSVGElement} picture @param {Frame} frame @param {Found} found @param {number} width */
function drawCurve(picture, frame, found, width) {
  const [left, top, right, bottom] = [width < 500 ? 46 : 120, 34, width - 14, 274];
  const most = found.own[found.own.length - 1] * 1.5 * 1000;
  const x = logarithmic([1e6, found.job.nbytes], [left, right]);
  const y = linear([0, most], [bottom, top]);
  const sketch = new Sketch();
  sketch.text("ar-strong", 0, 14, "exposed, ms");
  for (const t of roundTicks(most, 4)) {
    sketch.line("ar-hair", left, y.at(t), right, y.at(t));
    sketch.text("ar-tick ar-end", left - 10, y.at(t) + 4, String(t));
  }
  for (const b of decades(1e6, found.job.nbytes)) {
    sketch.line("ar-hair", x.at(b), bottom, x.at(b), bottom + 5);
    sketch.text("ar-tick ar-middle", x.at(b), bottom + 21, bytes(b, true));
  }
  sketch.text("ar-tick ar-end", right, bottom + 38, "bucket");
  sketch.clip(`${frame.uid}-curve`, left, top, right - left + 2, bottom - top + 3);
  /** @param {number[]} values */
  const points = (values) => values.map((s, i) => [x.at(found.sizes[i]), y.at(1000 * s)]);
  for (const { values } of found.others) sketch.curve("ar-other", points(values));
  sketch.curve("ar-best", points(found.own));
  sketch.unclip();
  for (const { backward, values } of found.others) {
    const at = values.findIndex((s) => 1000 * s < most * 0.55);
    if (at > 0) sketch.text("ar-label ar-halo", x.at(found.sizes[at]) + 8, y.at(most * 0.55) - 2, seconds(backward));
  }
  const here = [x.at(Math.min(found.bucket, found.job.nbytes)), y.at(Math.min(most, 1000 * found.exposed))];
  sketch.text(
    `ar-strong ar-halo ${here[0] > right - 60 ? "ar-end" : "ar-middle"}`,
    here[0],
    here[1] - 18,
    "you are here",
  );
  sketch.dot("ar-you", here[0], here[1], 9);
  sketch.into(picture, width, bottom + 46);
  return x;
}

/** @param {HTMLElement} side @param {Found} found */
function fillSide(side, { backward, least }) {
  const best = `With ${seconds(backward)} the least is ${seconds(least.exposed)}, near ${bytes(least.bucket)}.`;
  side.innerHTML =
    "<h4>Two ways to lose</h4><p>Small buckets pay α for each of many calls: the network lane grows longer " +
    "than the compute lane.</p>" +
    "<p>Large buckets start late, and the last one has nothing left to hide behind.</p>" +
    `<p class="ar-small">Grey curves: other backward times. ${best}</p>`;
}
