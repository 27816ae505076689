// An all-gather of parts of which one is longer: padded to the longest, or one broadcast a rank. Drag the long part.

import { linear } from "../common/scale.js";
import { Sketch } from "../common/sketch.js";
import { digits, percent, seconds } from "../common/units.js";
import { Frame } from "./frame.js";

/** @typedef {import("../common/scale.js").Scale} Scale */

const RANKS = [4, 8, 16, 32, 64];
const SHARES = Array.from({ length: 90 }, (_, i) => (i + 1) / 100);
const [TALL, TOP, LANE] = [210, 26, 26];
const WAYS = /** @type {const} */ (["padded", "broadcasts"]);
const GIVEN =
  "64 MB in all; the last rank's part is longer than the others. Drag its top: how much does padding send in vain, " +
  "and from where on is one broadcast a rank faster?";

/** @param {import("./frame.js").Model} model @param {HTMLElement} el */
export function uneven(model, el) {
  const frame = new Frame(model, el, "What if one part is longer than the others?", GIVEN);
  frame.choice({ key: "p", name: "ranks", options: RANKS.map((value) => ({ value, label: String(value) })) });
  const figures = frame.figures(1);
  const { picture, handles } = frame.stage("ar-parts", {
    key: "share",
    name: "share of the longest part",
    stops: () => SHARES.filter((share) => share >= 1 / frame.values.p),
    format: percent,
    axis: "y",
  });
  frame.legend(["ar-work", "what a rank has"], ["ar-lost", "padding, sent all the same"]);
  frame.start(() => {
    const { p } = frame.values;
    const share = Math.max(frame.values.share, 1 / p);
    const times = gatherSeconds(p, share, frame.data);
    figures([`× ${digits(p * share)}`, "the needed bytes are moved\nif all parts are padded"]);
    const y = linear([0, 0.9], [TOP + TALL, TOP]);
    draw(picture, frame, share, times, y);
    handles[0].place(frame.width - 22, y.at(share), (s) => y.at(s), share);
    return (
      `${p} ranks, the longest part is ${percent(share)} of all: padding moves ${digits(p * share)} times the needed ` +
      `bytes and takes ${seconds(times.padded)}, broadcasts take ${seconds(times.broadcasts)}.`
    );
  }, picture);
  return frame;
}

/**
 * Seconds of an all-gather of which one part is the share `share`: a ring of padded parts, or a binomial tree for each
 * rank, one after the other.
 *
 * @param {number} p
 * @param {number} share
 * @param {{total: number, alpha: number, beta: number}} data
 */
export const gatherSeconds = (p, share, { total, alpha, beta }) => ({
  padded: (p - 1) * (alpha + share * total * beta),
  broadcasts: Math.ceil(Math.log2(p)) * (p * alpha + total * beta),
});

/**
 * @param {SVGSVGElement} picture
 * @param {Frame} frame
 * @param {number} share
 * @param {ReturnType<typeof gatherSeconds>} times
 * @param {Scale} y
 */
function draw(picture, frame, share, times, y) {
  const { p } = frame.values;
  const low = y.at(0);
  const top = y.at(share);
  const [left, right] = [0, frame.width - 40];
  const step = (right - left) / p;
  const space = Math.min(8, step / 4);
  const sketch = new Sketch().hatching(`${frame.uid}-padding`);
  const own = (1 - share) / (p - 1);
  for (let r = 0; r < p; r++) {
    const high = y.at(r === p - 1 ? share : own);
    const x = left + r * step + space / 2;
    if (high > top)
      sketch.box("", x, top, step - space, high - top, { rx: 2, style: `fill:url(#${frame.uid}-padding)` });
    sketch.box("ar-work", x, high, step - space, low - high, { rx: 2 });
    if (step > 20 || r % Math.ceil(24 / step) === 0)
      sketch.text("ar-tick ar-middle", x + (step - space) / 2, low + 18, String(r));
  }
  sketch.line("ar-rail", left, top, frame.width - 22, top).line("ar-axis", left, low, right, low);
  const words = `the longest: ${percent(share)} of all${frame.width < 500 ? "" : ", drag"}`;
  sketch.text("ar-strong ar-end ar-halo", right - 4, top < TOP + 20 ? top + 20 : top - 9, words);
  sketch.text("ar-tick", left, low + 36, "rank");
  const most = Math.max(...WAYS.map((way) => times[way]));
  const time = linear([0, most], [92, frame.width - 74]);
  for (const [i, way] of WAYS.entries()) {
    const at = low + 60 + i * (LANE + 8);
    const best = times[way] < most;
    const useful = way === "padded" ? time.at(times[way] / (p * share)) : time.at(times[way]);
    sketch.text(best ? "ar-strong" : "ar-label-ink", 0, at + 18, way);
    sketch.box("ar-work", time.at(0), at, useful - time.at(0), LANE, { rx: 3 });
    sketch.box("", useful, at, time.at(times[way]) - useful, LANE, {
      rx: 3,
      style: `fill:url(#${frame.uid}-padding)`,
    });
    sketch.text(best ? "ar-strong" : "ar-label-ink", time.at(times[way]) + 8, at + 18, seconds(times[way]));
  }
  sketch.into(picture, frame.width, low + 60 + 2 * (LANE + 8));
}
