// NCCL's three protocols for one call, as its tuner estimates them: latency, data and flags. Drag the size.

import { linear, logarithmic } from "../common/scale.js";
import { Sketch } from "../common/sketch.js";
import { binary, digits } from "../common/units.js";
import { Frame } from "./frame.js";

/** @typedef {{us: number, latency: number}} Price */

/** @type {Record<string, [number, string]>} which share of the wire is flags, and how the receiver knows */
const FLAGS = {
  LL: [1 / 2, "4 bytes of flags beside 4 of data"],
  LL128: [1 / 16, "8 bytes of flags in a line of 128"],
  Simple: [0, "a counter elsewhere, behind a fence"],
};
const [LANE, STEP, TOP, WORDS] = [34, 84, 44, 16];
const GIVEN =
  "A ring all-reduce with each of NCCL's protocols, as its tuner estimates it. " +
  "Drag the size of the vector: from where on is it worth to send no flags?";

/** @param {import("./frame.js").Model} model @param {HTMLElement} el */
export function protocols(model, el) {
  const frame = new Frame(model, el, "Half of the wire carries flags. When is that the fastest way?", GIVEN);
  const { sizes, machines } = frame.data;
  const options = Object.keys(machines).map((value) => ({ value, label: value }));
  frame.choice({ key: "machine", name: "machine", options });
  const figures = frame.figures(1);
  const grip = { key: "nbytes", name: "size of the vector", stops: () => sizes };
  const { picture, handles } = frame.stage("ar-protocols", { ...grip, format: binary });
  frame.legend(
    ["ar-lost", "latency: fences, trips, looking for flags"],
    ["ar-wire", "data on the wire"],
    ["ar-hollow", "flags on the wire"],
  );
  frame.start(() => {
    const { nbytes, machine } = frame.values;
    /** @type {Record<string, Price>} */
    const prices = machines[machine][sizes.indexOf(nbytes)];
    const names = Object.keys(FLAGS).sort((a, b) => prices[a].us - prices[b].us);
    const [first, , last] = names;
    const times = `${last} takes ${digits(prices[last].us / prices[first].us)} times as long`;
    figures([first, `is the fastest for ${binary(nbytes)};\n${times}`]);
    const rail = logarithmic([sizes[0], sizes[sizes.length - 1]], [frame.width < 500 ? 16 : 150, frame.width - 24]);
    const low = draw(picture, frame, prices, first, rail);
    handles[0].place(rail.at(nbytes), low, (n) => rail.at(n));
    return (
      `${binary(nbytes)} on ${machine}: ${first} is the fastest with ${micro(prices[first].us)}; ` +
      `${last} takes ${micro(prices[last].us)}.`
    );
  }, picture);
  return frame;
}

/** @param {number} us */
const micro = (us) =>
  `${us.toLocaleString("en", { minimumFractionDigits: us < 100 ? 1 : 0, maximumFractionDigits: us < 100 ? 1 : 0 })} µs`;

/**
 * Draws the lanes and the rail; returns where the rail is.
 *
 * @param {SVGSVGElement} picture
 * @param {Frame} frame
 * @param {Record<string, Price>} prices
 * @param {string} first the fastest
 * @param {import("../common/scale.js").Scale} rail
 */
function draw(picture, frame, prices, first, rail) {
  const narrow = frame.width < 500;
  const most = Math.max(...Object.values(prices).map(({ us }) => us));
  const x = linear([0, most], [narrow ? 0 : 150, frame.width - (narrow ? 64 : 90)]);
  const sketch = new Sketch().hatching(`${frame.uid}-late`);
  for (const [i, [name, [share, how]]] of Object.entries(FLAGS).entries()) {
    const y = TOP + i * STEP;
    const { us, latency } = prices[name];
    sketch.text(`ar-lane-name${name === first ? " ar-bold" : ""}`, 0, narrow ? y - 8 : y + 22, name);
    line(sketch, name, x.range[0] + (narrow ? 70 : 0), y - 20);
    if (!narrow) sketch.text("ar-tick", x.range[0] + 13 * WORDS + 12, y - 9, how);
    const data = latency + (us - latency) * (1 - share);
    sketch.box("", x.at(0), y, x.at(latency) - x.at(0), LANE, { style: `fill:url(#${frame.uid}-late)` });
    sketch.box("ar-wire", x.at(latency), y, x.at(data) - x.at(latency), LANE, { rx: 2 });
    sketch.box("ar-hollow", x.at(data), y, x.at(us) - x.at(data), LANE, { rx: 2 });
    sketch.text(name === first ? "ar-strong" : "ar-label-ink", x.at(us) + 8, y + 22, micro(us));
  }
  const low = TOP + 3 * STEP + 8;
  const { nbytes } = frame.values;
  const here = rail.at(nbytes);
  sketch.track(rail.range[0], rail.range[1], here, low);
  const edge = here > rail.range[1] - 160;
  sketch.text(`ar-strong ${edge ? "ar-end" : ""}`, here + (edge ? -20 : 20), low - 10, `${binary(nbytes)}: drag`);
  for (const [n, words] of /** @type {[number, string][]} */ ([
    [2 ** 10, "1 KiB"],
    [2 ** 15, "32 KiB"],
    [2 ** 20, "1 MiB"],
    [2 ** 25, "32 MiB"],
    [2 ** 30, "1 GiB"],
  ]))
    sketch.text(
      `ar-tick ${n === 2 ** 30 ? "ar-end" : "ar-middle"}`,
      rail.at(n) + (n === 2 ** 30 ? 8 : 0),
      low + 30,
      words,
    );
  sketch.into(picture, frame.width, low + 40);
  return low;
}

/**
 * A line of 128 bytes: 16 words of 8.
 *
 * @param {Sketch} sketch
 * @param {string} name
 * @param {number} x
 * @param {number} y
 */
function line(sketch, name, x, y) {
  for (let word = 0; word < WORDS; word++) {
    const at = x + 13 * word;
    const flags = name === "LL" ? 6 : name === "LL128" && word === WORDS - 1 ? 12 : 0;
    if (flags < 12) sketch.box("ar-wire", at, y, 12 - flags, 12, { rx: 1 });
    if (flags) sketch.box("ar-hollow", at + 12 - flags + 0.5, y + 0.5, flags - 1, 11, { rx: 1 });
  }
}
