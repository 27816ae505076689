// One expert is more popular than the others: who receives how much, and how much longer the all-to-all takes.

import { html } from "../common/dom.js";
import { linear, roundTicks } from "../common/scale.js";
import { Sketch } from "../common/sketch.js";
import { bytes, digits, percent, seconds } from "../common/units.js";
import { Frame, nearest, onDrag } from "./frame.js";
import { dropped, skewedSeconds } from "./skew_cost.js";

/** @typedef {ReturnType<typeof compute>} Found */

/** @param {import("./frame.js").Model} model @param {HTMLElement} el */
export function skew(model, el) {
  const { nbytes, alpha, bytesPerS } = model.get("data");
  const given =
    `Each rank has ${bytes(nbytes)} of tokens, one expert a rank, ${seconds(alpha)} a message, ` +
    `${bytes(bytesPerS)}/s.`;
  const frame = new Frame(model, el, "What does one popular expert cost?", `${given} Drag a yellow handle.`);
  const shares = Array.from({ length: 101 }, (_, i) => i / 100);
  frame.slider({
    key: "excess",
    name: "tokens for expert 0",
    stops: shares,
    format: (v) => percent(shareOf(frame.values.p, v)),
    ends: ["as the others", "all"],
  });
  const worlds = [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
  frame.slider({ key: "p", name: "ranks p", stops: worlds, format: String });
  frame.choice({
    key: "capacity",
    name: "capacity of an expert, times the mean",
    options: [0, 1, 1.5, 2, 4].map((value) => ({ value, label: value ? `${value}` : "no limit" })),
  });
  const verdict = html("div", { class: "ar-verdict ar-wide" });
  frame.add(verdict);
  const bars = frame.picture("ar-received");
  const curve = frame.picture("ar-plot");
  const side = html("div", { class: "ar-side" });
  frame.add(html("div", { class: "ar-beside" }, curve, side));
  /** @type {import("../common/scale.js").Scale | null} */
  let x = null;
  onDrag(curve, (pixel) => {
    if (x) frame.set("excess", shares[nearest(shares, excessOf(frame.values.p, x.value(pixel) / 100))]);
  });
  frame.start(() => {
    const found = compute(frame);
    drawReceived(bars, frame, found);
    x = drawCurve(curve, found, frame.width >= 860 ? frame.width - 360 : frame.width);
    const lost = found.dropped ? `; ${percent(found.dropped)} of the tokens are dropped` : "";
    const sentence =
      `${digits(found.times)} times as long as when all experts get equally many: ` +
      `${seconds(found.now)} instead of ${seconds(found.even)}${lost}.`;
    verdict.innerHTML =
      `<p><b class="ar-big">× ${digits(found.times)}</b> <span>${seconds(found.now)} ` +
      `instead of ${seconds(found.even)}${lost}</span></p>`;
    side.innerHTML =
      "<h4>All wait for one</h4><p>Every rank sends as much as before. Rank 0 receives more, one message " +
      "after the other, and nobody is done before it is.</p>" +
      "<p>A capacity bounds the time. What is above it is dropped, or goes to another expert.</p>";
    curve.setAttribute("aria-label", `Time by the share of expert 0. ${sentence}`);
    return sentence;
  }, bars);
  return frame;
}

/** The share of expert 0: from an equal part to all. @param {number} p @param {number} excess from 0 to 1 */
const shareOf = (p, excess) => 1 / p + excess * (1 - 1 / p);

/** @param {number} p @param {number} share */
const excessOf = (p, share) => Math.max(0, (share - 1 / p) / (1 - 1 / p));

/** @param {Frame} frame */
function compute(frame) {
  const { p, excess, capacity } = frame.values;
  const { nbytes, alpha, bytesPerS } = frame.data;
  const link = { alpha, beta: 1 / bytesPerS };
  const hottest = shareOf(p, excess);
  /** @param {number} share @param {number} limit */
  const at = (share, limit) => skewedSeconds(p, nbytes, share, link, limit);
  const [even, now] = [at(1 / p, 0), at(hottest, capacity)];
  const shares = Array.from({ length: 81 }, (_, i) => shareOf(p, i / 80));
  const curve = shares.map((share) => at(share, capacity));
  const free = shares.map((share) => at(share, 0));
  return {
    p,
    hottest,
    capacity,
    even,
    now,
    times: now / even,
    dropped: dropped(p, hottest, capacity),
    shares,
    curve,
    free,
  };
}

/**
 * Tokens that each rank receives, as bars; the mean as a line.
 *
 * @param {SVGSVGElement} picture
 * @param {Frame} frame
 * @param {Found} found
 */
function drawReceived(picture, frame, { p, hottest, dropped: above }) {
  const shown = Math.min(p, 32);
  const [width, top, low] = [frame.width, 44, 190];
  const left = width < 500 ? 0 : 120;
  const step = (width - left) / shown;
  const y = linear([0, Math.max(hottest, 1.6 / p)], [low, top]);
  const sketch = new Sketch().hatching(`${frame.uid}-lost`);
  sketch.text("ar-lane", 0, 18, "tokens that each rank receives");
  for (let rank = 0; rank < shown; rank++) {
    const share = rank ? (1 - hottest) / (p - 1) : hottest - above;
    sketch.box("ar-wire", left + rank * step + 1, y.at(share), step - 3, low - y.at(share), {
      rx: 2,
      "data-rank": String(rank),
    });
    if (step > 20 || rank % 4 === 0)
      sketch.text("ar-tick ar-middle", left + (rank + 0.5) * step, low + 18, String(rank));
  }
  if (above) {
    const high = y.at(hottest);
    sketch.box("ar-lost", left + 1, high, step - 3, y.at(hottest - above) - high - 1, {
      rx: 2,
      style: `fill:url(#${frame.uid}-lost)`,
    });
    sketch.text("ar-strong ar-lost-words", left + step + 4, high + 14, `${percent(above)} dropped`);
  }
  sketch.line("ar-cursor", left, y.at(1 / p), width, y.at(1 / p));
  sketch.text("ar-strong ar-end ar-halo", width, y.at(1 / p) - 7, "the mean");
  if (left) sketch.text("ar-tick", 0, low + 18, p > shown ? `rank, 0 to 31 of ${p}` : "rank");
  sketch.line("ar-axis", left, low, width, low);
  sketch.into(picture, width, low + 30);
}

/** @param {SVGSVGElement} picture @param {Found} found @param {number} width */
function drawCurve(picture, found, width) {
  const [left, top, right, bottom] = [width < 500 ? 50 : 120, 34, width - 14, 264];
  const most = found.free[found.free.length - 1] / found.even;
  const x = linear([100 / found.p, 100], [left, right]);
  const y = linear([0, most * 1.06], [bottom, top]);
  const sketch = new Sketch();
  sketch.text("ar-strong", 0, 14, "times as long");
  for (const t of roundTicks(most, 4)) {
    sketch.line("ar-hair", left, y.at(t), right, y.at(t));
    sketch.text("ar-tick ar-end", left - 10, y.at(t) + 4, digits(t, true));
  }
  for (const share of [20, 40, 60, 80, 100])
    sketch.text("ar-tick ar-middle", Math.min(right - 14, x.at(share)), bottom + 21, `${share} %`);
  sketch.text("ar-tick ar-end", right, bottom + 38, "of the tokens go to expert 0");
  /** @param {number[]} values */
  const points = (values) => values.map((s, i) => [x.at(100 * found.shares[i]), y.at(s / found.even)]);
  if (found.capacity) sketch.curve("ar-other", points(found.free));
  sketch.curve("ar-best", points(found.curve));
  const here = [x.at(100 * found.hottest), y.at(found.times)];
  const place = here[0] > right - 60 ? "ar-end" : here[0] < left + 60 ? "" : "ar-middle";
  sketch.text(`ar-strong ar-halo ${place}`, here[0], here[1] - 18, "you are here");
  sketch.dot("ar-you", here[0], here[1], 9);
  sketch.into(picture, width, bottom + 46);
  return x;
}
