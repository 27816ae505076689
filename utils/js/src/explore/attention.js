// Causal attention on a ring of four ranks: the mask, and the time of the ranks. Drag through the steps.

import { html } from "../common/dom.js";
import { linear } from "../common/scale.js";
import { Sketch } from "../common/sketch.js";
import { digits, percent } from "../common/units.js";
import { Frame } from "./frame.js";

/** @typedef {ReturnType<typeof compute>} Found */

/** @type {Record<string, number[]>} which rank owns each eighth of the tokens */
const OWNERS = { "in order": [0, 0, 1, 1, 2, 2, 3, 3], zigzag: [0, 1, 2, 3, 3, 2, 1, 0] };
const RANKS = [0, 1, 2, 3];
const [LANE, GAP] = [44, 10];
const GIVEN =
  "131,072 tokens on four GPUs, keys and values go round the ring. " +
  "Drag through the steps: which ranks have nothing to do?";

/** @param {import("./frame.js").Model} model @param {HTMLElement} el */
export function attention(model, el) {
  const frame = new Frame(model, el, "A token looks only back. Who waits for whom?", GIVEN);
  const options = Object.keys(OWNERS).map((value) => ({ value, label: value }));
  const choice = frame.choice({ key: "owner", name: "who owns which tokens", options });
  for (const [i, button] of choice.querySelectorAll("button").entries())
    button.append(stripes(OWNERS[options[i].value]));
  const figures = frame.figures(1);
  const mask = frame.stage("ar-mask");
  const grip = { key: "step", name: "step of the ring", stops: () => [1, 2, 3, 4] };
  const time = frame.stage("ar-time", { ...grip, format: (s) => `step ${s}` });
  frame.add(html("div", { class: "ar-beside" }, mask.box, time.box));
  const seen = new Set();
  frame.start(() => {
    const found = compute(frame.values);
    seen.add(found.owner);
    figures([percent(found.waits), "of the time a GPU waits\nfor the one with the most work"]);
    const beside = frame.width >= 860;
    const narrow = frame.width < 500;
    drawMask(mask.picture, frame, found, narrow ? 30 : 40);
    drawTime(time, frame, found, beside ? frame.width - 480 : frame.width, seen);
    const idle = RANKS.filter((r) => !found.steps[found.now][r]);
    const who = idle.length
      ? `${names(idle)} ${idle.length > 1 ? "have" : "has"} nothing to do`
      : "every rank has work";
    const sentence =
      `Tokens ${found.owner}: a GPU waits ${percent(found.waits)} of the time. ` + `In step ${found.now + 1} ${who}.`;
    mask.picture.setAttribute("aria-label", `The mask, queries by keys. ${sentence}`);
    return sentence;
  }, time.picture);
  return frame;
}

/** @param {number[]} ranks */
const names = (ranks) => `rank${ranks.length > 1 ? "s" : ""} ${ranks.join(", ").replace(/, (\d)$/, " and $1")}`;

/** Whose tokens, in their order, in a button. @param {number[]} owners */
function stripes(owners) {
  const parts = owners.map((r) => html("i", { style: `background:var(--ar-rank-${r})` }));
  return html("span", { class: "ar-stripes", "aria-hidden": "true" }, ...parts);
}

/**
 * The work of each rank in each step, in blocks of a quarter of the tokens: 1 is a block without a mask.
 *
 * @param {string} owner
 */
export function ringWork(owner) {
  const chunks = RANKS.map((r) => [...OWNERS[owner].keys()].filter((c) => OWNERS[owner][c] === r));
  const pair = (/** @type {number} */ q, /** @type {number} */ k) => (k < q ? 1 : k === q ? 0.5 : 0);
  return RANKS.map((s) =>
    RANKS.map((r) => {
      let sum = 0;
      for (const q of chunks[r]) for (const k of chunks[(r - s + 4) % 4]) sum += pair(q, k);
      return sum / 4;
    }),
  );
}

/** @param {Record<string, any>} values */
function compute({ owner, step }) {
  const steps = ringWork(owner);
  const longest = steps.map((works) => Math.max(...works));
  const all = longest.reduce((a, b) => a + b);
  const work = steps.flat().reduce((a, b) => a + b);
  const starts = longest.map((_, s) => longest.slice(0, s).reduce((a, b) => a + b, 0));
  return { owner, now: step - 1, steps, longest, starts, all, waits: 1 - work / (4 * all) };
}

/**
 * @param {SVGSVGElement} picture
 * @param {Frame} frame
 * @param {Found} found
 * @param {number} side of a cell
 */
function drawMask(picture, frame, { owner, now, steps }, side) {
  const owners = OWNERS[owner];
  const [left, top] = [84, 44];
  const sketch = new Sketch().hatching(`${frame.uid}-mask`);
  sketch.text("ar-strong", 0, 16, "queries").text("ar-strong", left, 16, "keys: whose they are");
  for (const [i, row] of owners.entries()) {
    const y = top + i * side;
    sketch.box(`ar-of-${owners[i]}`, left + i * side + 1, top - 18, side - 2, 12, { rx: 3 });
    sketch.box(`ar-of-${row}`, left - 20, y + 1, 12, side - 2, { rx: 3 });
    if (row !== owners[i - 1]) {
      const tall = row === owners[i + 1] ? 2 * side : side;
      sketch.text("ar-strong ar-end", left - 28, y + tall / 2 + 5, `rank ${row}`);
    }
    for (const [j, key] of owners.entries()) {
      const x = left + j * side;
      const inside = [x + 1, y + 1, side - 2, side - 2];
      if (j < i) sketch.box(`ar-pale ar-of-${key}`, ...quad(inside), { rx: 2 });
      else sketch.box("ar-cell", ...quad(inside), { rx: 2 });
      if (j === i)
        sketch.path(`ar-pale ar-of-${key}`, `M${x + 1.5} ${y + 1.5}L${x + side - 1.5} ${y + side - 1.5}H${x + 1.5}Z`);
    }
  }
  for (const r of RANKS) {
    const lost = !steps[now][r];
    for (const [x, y, wide, tall] of framed(owners, r, (r - now + 4) % 4)) {
      const box = [left + x * side + 2, top + y * side + 2, wide * side - 4, tall * side - 4];
      if (lost) sketch.box("", ...quad(box), { style: `fill:url(#${frame.uid}-mask)` });
      sketch.box(`ar-framed${lost ? " ar-framed-lost" : ""}`, ...quad(box));
      if (lost && side === 40) masked(sketch, box[0] + box[2] / 2, box[1] + box[3] / 2);
    }
  }
  const low = top + 8 * side;
  sketch.text("ar-tick", 0, low + 24, `Framed: what each rank computes in step ${now + 1},`);
  sketch.text(
    "ar-tick",
    0,
    low + 41,
    ["with its own keys.", "with the keys of its left neighbour."][now] ??
      `with the keys from ${now} places to its left.`,
  );
  sketch.into(picture, left + 8 * side + 2, low + 48);
}

/** Says why a rank waits; the row says which. @param {Sketch} sketch @param {number} x @param {number} y */
function masked(sketch, x, y) {
  sketch.box("ar-under-box", x - 34, y - 19, 68, 38, { rx: 0 });
  sketch.text("ar-tick ar-bold ar-middle", x, y - 3, "all masked:");
  sketch.text("ar-tick ar-bold ar-lost-words ar-middle", x, y + 13, "it waits");
}

/** @param {number[]} box @returns {[number, number, number, number]} */
const quad = (box) => /** @type {[number, number, number, number]} */ (box);

/**
 * The places of a rank's block in the mask, joined where they touch.
 *
 * @param {number[]} owners
 * @param {number} r
 * @param {number} k
 */
function framed(owners, r, k) {
  const spans = (/** @type {number} */ who) => {
    const first = owners.indexOf(who);
    const last = owners.lastIndexOf(who);
    return last - first === 1
      ? [[first, 2]]
      : [
          [first, 1],
          [last, 1],
        ];
  };
  return spans(r).flatMap(([y, tall]) => spans(k).map(([x, wide]) => [x, y, wide, tall]));
}

/**
 * @param {{picture: SVGSVGElement, handles: import("./handle.js").Handle[]}} stage
 * @param {Frame} frame
 * @param {Found} found
 * @param {number} width
 * @param {Set<string>} seen who owned the tokens so far
 */
function drawTime({ picture, handles }, frame, found, width, seen) {
  const { now, steps, starts, longest, all } = found;
  const [left, top] = [44, 44];
  const x = linear([0, 3.5], [left, width - 14]);
  const low = top + 4 * (LANE + GAP) - GAP;
  const sketch = new Sketch().hatching(`${frame.uid}-idle`);
  const bounds = [...starts, all];
  for (const [s, from] of bounds.entries())
    sketch.line(s === now || s === now + 1 ? "ar-rail" : "ar-axis", x.at(from), top - 10, x.at(from), low + 8);
  for (const s of RANKS) {
    const word = `${x.at(longest[s]) - left > 60 ? "step " : ""}${s + 1}`;
    const look = s === now ? "ar-tick ar-bold ar-now" : "ar-tick";
    sketch.text(`${look} ar-middle`, x.at(starts[s] + longest[s] / 2), top - 16, word);
  }
  sketch.text("ar-tick", 2, top - 16, "rank");
  for (const r of RANKS) {
    const y = top + r * (LANE + GAP);
    sketch.box(`ar-of-${r}`, 2, y + 16, 12, 12, { rx: 2 }).text("ar-lane-name", 22, y + 27, String(r));
    for (const s of RANKS) {
      const [from, work, key] = [x.at(starts[s]), steps[s][r], (r - s + 4) % 4];
      const done = x.at(starts[s] + work);
      const over = x.at(starts[s] + longest[s]);
      if (over - done > 1)
        sketch.box("", done + 1.5, y, over - done - 3, LANE, { style: `fill:url(#${frame.uid}-idle)` });
      if (!work) continue;
      sketch.box("ar-work", from + 1.5, y, done - from - 3, LANE);
      sketch.box(`ar-of-${key}`, from + 10, y + 16, 12, 12, { rx: 2 });
      const words = key === r ? "own" : done - from > 100 ? `keys of ${key}` : `${key}`;
      if (done - from > 26 + 8 * words.length) sketch.text("ar-small-text", from + 28, y + 26.5, words);
    }
  }
  const track = low + 26;
  const at = (/** @type {number} */ step) => x.at(starts[step - 1] + longest[step - 1] / 2);
  sketch.track(left, x.at(all), at(now + 1), track);
  sketch.text("ar-tick ar-middle", Math.max(left + 70, at(now + 1)), track + 32, "drag through the steps");
  sketch.text("ar-lane", 0, track + 72, "Until the slowest is done, in blocks");
  for (const [i, owner] of Object.keys(OWNERS).entries()) bar(sketch, frame, owner, width, track + 86 + 34 * i, seen);
  sketch.into(picture, width, track + 158);
  handles[0].place(at(now + 1), track, at);
}

/**
 * @param {Sketch} sketch
 * @param {Frame} frame
 * @param {string} owner
 * @param {number} width
 * @param {number} y
 * @param {Set<string>} seen
 */
function bar(sketch, frame, owner, width, y, seen) {
  const x = linear([0, 3.5], [76, width - 50]);
  sketch.text("ar-label-ink", 0, y + 16, owner);
  if (!seen.has(owner)) {
    sketch.box("ar-room-left", 76.5, y + 0.5, x.at(3.5) - 77, 21).text("ar-strong", 86, y + 16, "?");
    sketch.text("ar-tick", 104, y + 16, "guess, then choose it above");
    return;
  }
  const { all, waits } = compute({ owner, step: 1 });
  const work = x.at(all * (1 - waits));
  sketch.box("ar-work", 76, y, work - 76, 22).box("", work, y, x.at(all) - work, 22, {
    style: `fill:url(#${frame.uid}-idle)`,
  });
  sketch.text("ar-strong", x.at(all) + 8, y + 16, digits(all));
}
