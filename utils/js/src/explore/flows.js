// Flows that a hash spreads over spine switches: which uplinks they share, and how much longer the slowest one takes.

import { html } from "../common/dom.js";
import { Sketch } from "../common/sketch.js";
import { digits, percent } from "../common/units.js";
import { Frame } from "./frame.js";
import { hashedSpine, spineLoads } from "./spines.js";

const SEEDS = Array.from({ length: 64 }, (_, i) => i + 1);

/** @typedef {ReturnType<typeof compute>} Found */

/** @param {import("./frame.js").Model} model @param {HTMLElement} el */
export function flows(model, el) {
  const frame = new Frame(
    model,
    el,
    "Who shares an uplink with whom?",
    "Each rank below leaf switch A sends as many bytes to the rank below B that has its number. There are as many " +
      "spine switches as ranks: enough for all. Drag the first slider.",
  );
  frame.slider({ key: "seed", name: "another hash", stops: SEEDS, format: (v) => `${v} of ${SEEDS.length}` });
  frame.slider({ key: "p", name: "ranks, and spines", stops: [2, 4, 8, 16, 32], format: String });
  frame.choice({
    key: "parts",
    name: "queue pairs a connection",
    options: [1, 2, 4, 8].map((value) => ({ value, label: String(value) })),
  });
  frame.choice({
    key: "way",
    name: "a flow's uplink",
    options: [
      { value: "hash", label: "a hash" },
      { value: "adaptive", label: "the emptiest, by packet" },
    ],
  });
  const figures = frame.figures(1);
  const net = frame.picture("ar-fabric");
  const counts = frame.picture("ar-plot");
  const side = html("div", { class: "ar-side" });
  frame.add(html("div", { class: "ar-beside" }, counts, side));
  frame.start(() => {
    const found = compute(frame.values);
    drawNet(net, frame.values, found, frame.width);
    drawCounts(counts, found, frame.width >= 860 ? frame.width - 330 : frame.width);
    const words =
      found.most === 1
        ? "Every uplink carries as much: the slowest flow takes no longer than one alone."
        : `The slowest flow takes ${digits(found.most)} times as long as one alone; ` +
          `${found.idle} of ${found.loads.length} uplinks carry nothing.`;
    const idle = found.idle ? `;\n${found.idle} of ${found.loads.length} uplinks carry nothing` : "";
    figures([`× ${digits(found.most)}`, `the time of one flow alone${idle}`]);
    side.innerHTML =
      "<h4>All wait for the slowest</h4>" +
      "<p>The next step of a ring begins on a rank when its part has come. So one shared uplink slows every rank.</p>" +
      `<p>With ${found.of} hashes: × ${digits(found.mean)} in the mean, and × 1 with ` +
      `${percent(found.even / found.of)} of them.</p>`;
    counts.setAttribute("aria-label", `How often each slowdown comes with ${found.of} hashes. ${words}`);
    return words;
  }, net);
  return frame;
}

/** @param {Record<string, any>} values */
function compute({ p, seed, parts, way }) {
  const at = (/** @type {number} */ one) => (way === "adaptive" ? new Array(p).fill(1) : spineLoads(p, p, parts, one));
  const loads = at(seed);
  const all = SEEDS.map((one) => Math.max(...at(one)));
  return {
    loads,
    most: Math.max(...loads),
    idle: loads.filter((load) => !load).length,
    all,
    of: SEEDS.length,
    mean: all.reduce((sum, one) => sum + one, 0) / all.length,
    even: all.filter((one) => one === 1).length,
  };
}

/**
 * Both leaf switches with their ranks below, the spines above; lines as thick as what they carry.
 *
 * @param {SVGSVGElement} picture
 * @param {Record<string, any>} values
 * @param {Found} found
 * @param {number} width
 */
function drawNet(picture, values, found, width) {
  const { p, seed, parts, way } = values;
  const sketch = new Sketch();
  const narrow = width < 560;
  const [spineY, leafY, rankY] = [42, 160, 218];
  const gap = narrow ? 16 : 60;
  const wide = (width - gap) / 2;
  const spineX = (/** @type {number} */ s) => ((s + 0.5) * width) / p;
  const portX = (/** @type {number} */ leaf, /** @type {number} */ s) =>
    leaf * (wide + gap) + 14 + ((s + 0.5) * (wide - 28)) / p;
  // the busiest last, so that no other line is drawn over it
  for (const [s, load] of [...found.loads.entries()].sort((a, b) => a[1] - b[1])) {
    for (const leaf of [0, 1]) {
      const [x, y] = [portX(leaf, s), leafY];
      const look = load && load === found.most && found.most > 1 ? "ar-busiest" : load ? "ar-arc" : "ar-idle";
      sketch.path(look, `M${x.toFixed(1)} ${y}L${spineX(s).toFixed(1)} ${spineY + 13}`, {
        "stroke-width": load ? Math.min(14, 1.5 + 2.2 * load) : 1,
        "data-spine": String(s),
      });
    }
  }
  const box = Math.min(34, (0.86 * width) / p);
  for (let s = 0; s < p; s++) {
    sketch.box("ar-seat", spineX(s) - box / 2, spineY - 13, box, 26);
    if (box > 18) sketch.text("ar-label-ink ar-middle", spineX(s), spineY + 5, String(s));
  }
  sketch.text("ar-tick", 0, 16, `${p} spine switches`);
  for (const leaf of [0, 1]) {
    const left = leaf * (wide + gap);
    sketch.box("ar-node", left, leafY, wide, 34, { rx: 8 });
    sketch.text("ar-strong ar-middle", left + wide / 2, leafY + 22, `leaf switch ${"AB"[leaf]}`);
    const seat = (wide - 28) / p;
    for (let rank = 0; rank < p; rank++) {
      const x = portX(leaf, rank);
      sketch.line("ar-hair", x, leafY + 34, x, rankY);
      const shared = way === "hash" && !leaf && sharesTheBusiest(rank, p, parts, seed, found);
      sketch.box(shared ? "ar-now" : "ar-seat", x - seat / 2 + 1, rankY, seat - 2, 26, { "data-rank": String(rank) });
      if (seat > 22)
        sketch.text(`${shared ? "ar-on-now" : "ar-label-ink"} ar-middle`, x, rankY + 18, String(leaf * p + rank));
    }
  }
  sketch.text(
    "ar-tick",
    0,
    rankY + 46,
    narrow ? "filled: shares the busiest" : "filled: a rank whose flow is on the busiest uplink",
  );
  sketch.into(picture, width, rankY + 54);
}

/**
 * Whether some part of a rank's vector is on an uplink that carries most.
 *
 * @param {number} rank
 * @param {number} p
 * @param {number} parts
 * @param {number} seed
 * @param {Found} found
 */
function sharesTheBusiest(rank, p, parts, seed, found) {
  if (found.most === 1) return false;
  for (let part = 0; part < parts; part++)
    if (found.loads[hashedSpine(rank, p + rank, part, seed, p)] === found.most) return true;
  return false;
}

/**
 * How often each slowdown comes over all hashes, the chosen one marked.
 *
 * @param {SVGSVGElement} picture
 * @param {Found} found
 * @param {number} width
 */
function drawCounts(picture, found, width) {
  /** @type {Map<number, number>} */
  const bins = new Map();
  for (const one of found.all) bins.set(bin(one), (bins.get(bin(one)) ?? 0) + 1);
  const last = Math.max(6, ...bins.keys());
  const [low, tall] = [142, 90];
  const most = Math.max(...bins.values());
  const keys = Array.from({ length: 2 * last - 1 }, (_, i) => 1 + i / 2);
  const step = width / keys.length;
  const sketch = new Sketch();
  sketch.text("ar-strong", 0, 16, `hashes, of ${found.of}`);
  for (const [i, key] of keys.entries()) {
    const count = bins.get(key) ?? 0;
    if (count) {
      const high = Math.max(2, (tall * count) / most);
      sketch.box(key === bin(found.most) ? "ar-now" : "ar-wire", i * step + 2, low - high, step - 4, high, {
        rx: 2,
        "data-times": String(key),
      });
      sketch.text("ar-tick ar-middle", (i + 0.5) * step, low - high - 6, String(count));
    }
    if (Number.isInteger(key)) sketch.text("ar-tick ar-middle", (i + 0.5) * step, low + 18, `× ${key}`);
  }
  sketch.line("ar-axis", 0, low, width, low);
  sketch.text("ar-tick ar-end", width, low + 36, "the slowest flow, against one alone");
  sketch.into(picture, width, low + 44);
}

/** The nearest half. @param {number} times */
const bin = (times) => Math.round(2 * times) / 2;
