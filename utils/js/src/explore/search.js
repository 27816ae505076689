// The price of an all-gather that nobody has found yet: steps, and bytes on a link. Drag a wish, and the size.

import { linear, logarithmic } from "../common/scale.js";
import { Sketch } from "../common/sketch.js";
import { binary, digits } from "../common/units.js";
import { Frame } from "./frame.js";

/** @typedef {{steps: number, rounds: number}} Cost */
/** @typedef {{alpha: number, beta: number, ranks: number, rings: Cost, least: Cost}} Given */

const STEPS = Array.from({ length: 8 }, (_, i) => i + 1);
const ROUNDS = Array.from({ length: 10 }, (_, i) => i + 6);
const SIZES = Array.from({ length: 15 }, (_, i) => 3 * 2 ** (i + 11));
const CHUNKS = 6;
const [TALL, TOP] = [250, 18];
const GIVEN =
  "A part is what one GPU gives. Each step takes time, and so does each part on a link. " +
  "Six rings take 7 steps with the least bytes. " +
  "Drag the point to fewer steps, then the size: how much more may a link carry?";

/** @param {import("./frame.js").Model} model @param {HTMLElement} el */
export function search(model, el) {
  const frame = new Frame(model, el, "Fewer steps, or fewer bytes? What would you let a program search for?", GIVEN);
  const figures = frame.figures(2);
  const { picture, handles } = frame.stage(
    "ar-search",
    { key: "steps", name: "steps", stops: () => STEPS, format: (s) => `${s} steps` },
    {
      key: "rounds",
      name: "parts on a link, in sixths",
      stops: () => ROUNDS,
      format: (r) => `${r} sixths of a part`,
      axis: "y",
    },
    { key: "nbytes", name: "size", stops: () => SIZES, format: binary },
  );
  frame.legend(["ar-lost", "no algorithm can do this"], ["ar-mark", "as fast as the six rings; below it is faster"]);
  frame.start(() => {
    const { steps, rounds, nbytes } = frame.values;
    const { wish, rings, why } = wished(steps, rounds, nbytes, frame.data);
    const times = rings / wish;
    figures(
      [why ? "never" : `× ${times.toFixed(2)}`, why || "as fast as the rings,\nif it can be found"],
      [us(wish), `what you search for;\nthe rings take ${us(rings)}`],
    );
    const places = draw(picture, frame, rings);
    handles[0].place(places.x.at(steps), TOP + TALL + 26, (s) => places.x.at(s));
    handles[1].place(places.x.range[0] - 24, places.y.at(rounds), (r) => places.y.at(r));
    handles[2].place(places.n.at(nbytes), places.low, (n) => places.n.at(n));
    const says = why ? `no algorithm can: ${why}` : `${times.toFixed(2)} times as fast as six rings`;
    return (
      `${binary(nbytes)}, ${steps} step${steps > 1 ? "s" : ""} with ${rounds} sixths of a part on a link: ` +
      `${us(wish)}, ${says}.`
    );
  }, picture);
  return frame;
}

/** @param {number} s */
const us = (s) => `${digits(1e6 * s)} µs`;

/**
 * Seconds of a wish and of six rings, and why a wish can't be had.
 *
 * @param {number} steps
 * @param {number} rounds sixths of a part on a link
 * @param {number} nbytes of all parts together
 * @param {Given} given
 */
export function wished(steps, rounds, nbytes, { alpha, beta, ranks, rings, least }) {
  const part = nbytes / ranks;
  const took = (/** @type {number} */ s, /** @type {number} */ r) => s * alpha + (r / CHUNKS) * part * beta;
  const why = steps < least.steps ? "some GPUs have no link" : rounds < least.rounds ? "7 parts come over 6 links" : "";
  return { wish: took(steps, rounds), rings: took(rings.steps, rings.rounds), why };
}

/**
 * @param {SVGSVGElement} picture
 * @param {Frame} frame
 * @param {number} ringSeconds
 */
function draw(picture, frame, ringSeconds) {
  const { steps, rounds, nbytes } = frame.values;
  const { alpha, beta, ranks, rings, least } = frame.data;
  const narrow = frame.width < 500;
  const x = linear([0.5, 8.5], [74, Math.min(74 + 620, frame.width - 16)]);
  const y = linear([5.5, 15.5], [TOP + TALL, TOP]);
  const [left, right] = x.range;
  const floor = TOP + TALL;
  const sketch = new Sketch().hatching(`${frame.uid}-never`, 0.45);
  const never = { rx: 0, style: `fill:url(#${frame.uid}-never)` };
  const fewest = x.at(least.steps - 0.5);
  sketch.box("", left, TOP, fewest - left, TALL, never);
  sketch.box("", fewest, y.at(least.rounds - 0.5), right - fewest, floor - y.at(least.rounds - 0.5), never);
  for (const r of [6, 9, 12, 15]) {
    sketch.line("ar-hair", left, y.at(r), right, y.at(r));
    sketch.text("ar-tick ar-end", left - 42, y.at(r) + 4, digits(r / CHUNKS, true));
  }
  for (const s of STEPS) sketch.text("ar-tick ar-middle", x.at(s), floor + 50, String(s));
  // as fast as the rings: (r / 6) L beta = T - s alpha
  const same = (/** @type {number} */ s) => (CHUNKS * (ringSeconds - s * alpha)) / ((nbytes / ranks) * beta);
  sketch.clip(`${frame.uid}-plane`, left, TOP, right - left, TALL);
  sketch.curve(
    "ar-mark",
    [
      [x.at(0.5), y.at(same(0.5))],
      [x.at(8.5), y.at(same(8.5))],
    ],
    { fill: "none" },
  );
  sketch.unclip();
  const ring = [x.at(rings.steps), y.at(rings.rounds)];
  sketch.dot("ar-ring-dot", ring[0], ring[1], 7);
  sketch.text("ar-strong ar-halo", ring[0] + 8, ring[1] - 14, narrow ? "rings" : "six rings");
  sketch.line("ar-rail", x.at(steps), floor + 26, x.at(steps), y.at(rounds));
  sketch.line("ar-rail", left - 24, y.at(rounds), x.at(steps), y.at(rounds));
  sketch.dot("ar-wish-dot", x.at(steps), y.at(rounds), 9);
  const edge = steps > 6;
  const name = narrow ? "this" : "search for this";
  sketch.text(`ar-strong ar-halo ${edge ? "ar-end" : ""}`, x.at(steps) + (edge ? -14 : 14), y.at(rounds) - 12, name);
  sketch.text("ar-tick", 0, 10, "parts on a link");
  sketch.text("ar-tick ar-end", right, floor + 66, "steps");
  const low = floor + 92;
  const end = narrow ? right - 84 : left + 0.55 * (right - left);
  const n = logarithmic([SIZES[0], SIZES[SIZES.length - 1]], [left, end]);
  sketch.text("ar-lane-name", 0, low + 5, "size");
  sketch.track(left, end, n.at(nbytes), low);
  sketch.text("ar-strong", end + 20, low + 5, `${binary(nbytes)}${narrow ? "" : " in all: drag"}`);
  sketch.into(picture, frame.width, low + 22);
  return { x, y, n, low };
}
