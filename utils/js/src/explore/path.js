// Which link an all-reduce on two nodes waits for: its critical path. Drag both links' bandwidths.

import { linear, logarithmic, roundTicks } from "../common/scale.js";
import { Sketch } from "../common/sketch.js";
import { digits, percent, seconds } from "../common/units.js";
import { Frame } from "./frame.js";

/** @typedef {{nbytes: number, alpha: {nvlink: number, card: number}}} Given */
/** @typedef {{link: "nvlink" | "card", seconds: number}} Message */

/** @type {Record<string, string>} */
const WAYS = { "one ring": "One ring", "8 segments": "One ring in 8 segments", "two levels": "Two levels" };
const NVLINKS = [25, 50, 75, 100, 150, 200, 300, 371, 450, 600, 900];
const CARDS = [25, 37.5, 50, 75, 100, 150, 200, 300, 400];
const [RANKS, EACH, SEGMENTS] = [4, 2, 8];
const [TOP, LANE, GAP, LONGEST_S] = [30, 38, 12, 0.067];
const UNUSED = "not on the path: a faster link here changes nothing";
const GIVEN =
  "1 GiB on two nodes of two GPUs. Each box is a message on the critical path, in the row of its link. " +
  "Drag NVLink to twice the speed, then the cards: which of the two changes anything?";

/** @param {import("./frame.js").Model} model @param {HTMLElement} el */
export function path(model, el) {
  const frame = new Frame(model, el, "This all-reduce is slow. Which link does it wait for?", GIVEN);
  frame.choice({
    key: "way",
    name: "all-reduce",
    options: Object.keys(WAYS).map((value) => ({ value, label: value })),
  });
  const figures = frame.figures(1);
  const format = (/** @type {number} */ gb) => `${gb} GB/s`;
  const { picture, handles } = frame.stage(
    "ar-path",
    { key: "nvlink", name: "bandwidth of NVLink", stops: () => NVLINKS, format },
    { key: "card", name: "bandwidth of a network card", stops: () => CARDS, format },
  );
  frame.legend(["ar-work", "a message over NVLink"], ["ar-wire", "a message over a network card"]);
  frame.start(() => {
    const { way, nvlink, card } = frame.values;
    const { messages, total, bound, onCard } = criticalPath(way, nvlink, card, frame.data);
    figures([`× ${digits(total / bound)}`, `the lower bound;\n${percent(onCard)} of the path is the network card`]);
    const rails = draw(picture, frame, messages, bound);
    handles[0].place(rails.nvlink.at(nvlink), rails.y.nvlink, (gb) => rails.nvlink.at(gb));
    handles[1].place(rails.card.at(card), rails.y.card, (gb) => rails.card.at(gb));
    return (
      `${WAYS[way]}, NVLink ${nvlink} GB/s, cards ${card} GB/s: ` +
      `${seconds(total)}, ${digits(total / bound)} times the lower bound; ` +
      `${percent(onCard)} of the path is the network card.`
    );
  }, picture);
  return frame;
}

/**
 * The messages of the critical path, as the package's clock has them, and the lower bound; in seconds.
 *
 * @param {string} way
 * @param {number} nvlink GB/s
 * @param {number} card GB/s
 * @param {Given} given
 */
export function criticalPath(way, nvlink, card, { nbytes, alpha }) {
  const beta = { nvlink: 1 / (nvlink * 1e9), card: 1 / (card * 1e9) };
  const message = (/** @type {Message["link"]} */ link, /** @type {number} */ size) => ({
    link,
    seconds: alpha[link] + size * beta[link],
  });
  /** @type {Message[]} */
  let messages = [];
  if (way === "two levels") {
    const inside = Array.from({ length: EACH - 1 }, () => message("nvlink", nbytes / EACH));
    const between = Array.from({ length: 2 }, () => message("card", nbytes / RANKS));
    messages = [...inside, ...between, ...inside];
  } else {
    const pieces = way === "one ring" ? 1 : SEGMENTS;
    const size = nbytes / RANKS / pieces;
    const [a, b] = [message("nvlink", size), message("card", size)];
    messages = Array.from({ length: 2 * (RANKS - 1) * pieces }, () => (a.seconds > b.seconds ? a : b));
  }
  const total = messages.reduce((sum, m) => sum + m.seconds, 0);
  const over = messages.filter((m) => m.link === "card").reduce((sum, m) => sum + m.seconds, 0);
  const outOfANode = alpha.card + (nbytes / EACH) * beta.card;
  const fromAGpu = 2 * alpha.nvlink + (1.5 * nbytes) / (1 / beta.nvlink + 1 / beta.card);
  return { messages, total, bound: Math.max(outOfANode, fromAGpu), onCard: over / total };
}

/**
 * @param {SVGSVGElement} picture
 * @param {Frame} frame
 * @param {Message[]} messages
 * @param {number} bound
 */
function draw(picture, frame, messages, bound) {
  const narrow = frame.width < 500;
  const x = linear([0, LONGEST_S], [narrow ? 62 : 92, frame.width - 16]);
  const [left, right] = x.range;
  const sketch = new Sketch();
  const rows = { nvlink: TOP, card: TOP + LANE + GAP };
  const low = TOP + 2 * (LANE + GAP);
  for (const t of roundTicks(LONGEST_S, narrow ? 3 : 6)) {
    sketch.line("ar-hair", x.at(t), TOP - 8, x.at(t), low);
    sketch.text(`ar-tick ${t ? "ar-middle" : ""}`, x.at(t), low + 14, `${Math.round(1e3 * t)}${t ? "" : " ms"}`);
  }
  for (const [link, y] of Object.entries(rows)) {
    sketch.text("ar-lane-name", 0, y + 24, link === "card" ? "card" : "NVLink");
    sketch.line("ar-axis", left, y + LANE, right, y + LANE);
    if (!messages.some((m) => m.link === link))
      sketch.text("ar-tick ar-end ar-halo", right - 4, y + 23, narrow ? "not on the path" : UNUSED);
  }
  let now = 0;
  for (const { link, seconds: took } of messages) {
    const [from, wide] = [x.at(now), x.at(now + took) - x.at(now)];
    const gap = Math.min(1, wide / 6);
    const look = link === "card" ? "ar-wire" : "ar-work";
    sketch.box(look, from + gap, rows[link], Math.max(0.5, wide - 2 * gap), LANE - 6, { rx: Math.min(4, wide / 4) });
    now += took;
  }
  sketch.line("ar-mark", x.at(bound), TOP - 14, x.at(bound), low);
  sketch.text("ar-strong ar-halo", x.at(bound) + 6, TOP - 12, "lower bound");
  const y = { nvlink: low + 46, card: low + 90 };
  const end = narrow ? right - 90 : left + 0.55 * (right - left);
  /** @type {[number, number]} */
  const range = [left + 12, end];
  const scales = {
    nvlink: logarithmic([NVLINKS[0], NVLINKS[NVLINKS.length - 1]], range),
    card: logarithmic([CARDS[0], CARDS[CARDS.length - 1]], range),
  };
  for (const link of /** @type {const} */ (["nvlink", "card"])) {
    const gb = frame.values[link];
    sketch.text("ar-lane-name", 0, y[link] + 5, link === "card" ? "card" : "NVLink");
    sketch.track(range[0], range[1], scales[link].at(gb), y[link]);
    sketch.text("ar-strong", end + 20, y[link] + 5, `${gb} GB/s${narrow ? "" : ": drag"}`);
  }
  sketch.into(picture, frame.width, y.card + 22);
  return { ...scales, y };
}
