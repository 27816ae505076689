// A pipeline's run: a row a GPU, time to the right. Drag the number of GPUs, the micro-batches; choose the order.

import { roundTicks } from "../common/scale.js";
import { Sketch } from "../common/sketch.js";
import { digits, percent } from "../common/units.js";
import { Frame } from "./frame.js";
import { allowed, runPipeline, stagesEach } from "./pipeline_run.js";

/** @typedef {import("./pipeline_run.js").Span} Span */
/** @typedef {ReturnType<typeof compute>} Found */

const LAYERS = 96;
const GPUS = [2, 3, 4, 6, 8];
const MOST = 12;
const [TOP, ROW, GAP] = [58, 42, 6];
const DIGIT = 7.4; // the width of a digit of 12 px
const NAMES = {
  gpipe: "all forward first",
  "1f1b": "1F1B",
  interleaved: "interleaved, 2 each",
  "zb-h1": "zero bubble",
};
const QUESTION = "For how much of the time does a GPU wait, and what would make it wait less?";

/** @param {import("./frame.js").Model} model @param {HTMLElement} el */
export function pipeline(model, el) {
  const frame = new Frame(model, el, QUESTION, "");
  /** @type {[string, string][]} */
  const offered = Object.entries(NAMES).filter(([name]) => frame.data.orders?.includes(name) ?? true);
  const choosing = offered.length > 1;
  const options = offered.map(([value, label]) => ({ value, label }));
  if (choosing) frame.choice({ key: "order", name: "order", options });
  const figures = frame.figures(1);
  const pieces = Array.from({ length: MOST }, (_, i) => i + 1);
  const { picture, handles } = frame.stage(
    "ar-grid",
    { key: "p", name: "GPUs p", stops: () => GPUS, format: (p) => `${p} GPUs`, axis: "y" },
    {
      key: "m",
      name: "micro-batches m",
      stops: () => pieces.filter((m) => allowed(frame.values.order, frame.values.p, m) === m),
      format: (m) => `${m} micro-batches`,
    },
  );
  const marks = frame.legend(
    ["ar-forward", "forward"],
    ["ar-work", ""],
    ["ar-hollow", "backward: gradient of the weights"],
    ["ar-lost", "waits"],
    ["ar-kept", "keeps: the activations of one micro-batch"],
    ["ar-outline", "one micro-batch: down, and back (point at another)"],
  );
  let hot = 3;
  /** @type {(x: number, y: number) => Span | undefined} */
  let under = () => undefined;
  picture.addEventListener("pointermove", ({ clientX, clientY }) => {
    const { left, top } = picture.getBoundingClientRect();
    const over = under(clientX - left, clientY - top)?.i ?? hot;
    if (over === hot) return;
    hot = over;
    frame.redraw();
  });
  frame.start(() => {
    const found = compute(frame.values);
    const { p, m, order, idle, makespan } = found;
    frame.subtitle.textContent =
      `${LAYERS} layers on ${p} GPUs, a batch in ${m} piece${m === 1 ? "" : "s"}. ` +
      (choosing
        ? "Drag a yellow handle or choose an order: which of the three helps most?"
        : "Drag a yellow handle: which of the two helps?");
    const split = order === "zb-h1";
    marks[1].lastChild?.replaceWith(split ? "backward: gradient of the input" : "backward, twice as long");
    marks[2].hidden = !split;
    const simple = order === "gpipe" || order === "1f1b";
    const formula = simple ? `:\n(p − 1) / (m + p − 1) = ${p - 1} / ${m + p - 1}` : "";
    figures([percent(idle), `of the time a GPU waits${formula}`]);
    under = draw(picture, handles, frame, found, Math.min(hot, m - 1));
    return (
      `${p} GPUs, ${m} micro-batches, ${NAMES[order]}: a GPU waits ${percent(idle)} of the time. ` +
      `The step takes ${digits(makespan, true)} forward passes; GPU 0 keeps at most ${digits(found.kept[0], true)} ` +
      "micro-batches."
    );
  }, picture);
  return frame;
}

/** @param {Record<string, any>} values */
function compute({ p, m: wanted, order: chosen }) {
  const order = /** @type {keyof typeof NAMES} */ (chosen);
  const m = allowed(order, p, wanted);
  return { p, m, order, ...runPipeline(order, p, m) };
}

/**
 * @param {SVGSVGElement} picture
 * @param {import("./handle.js").Handle[]} handles
 * @param {Frame} frame
 * @param {Found} found
 * @param {number} hot the micro-batch that is framed
 * @returns {(x: number, y: number) => Span | undefined} what lies at a place of the picture
 */
function draw(picture, [ranks, batches], frame, found, hot) {
  const { p, m, order, spans, makespan, kept } = found;
  const narrow = frame.width < 700;
  const [left, right] = narrow ? [86, frame.width - 34] : [150, frame.width - 92];
  // the scale stays while m is dragged: so one sees that the waiting stays, and only its share falls
  const unit = (right - left) / (3 * (MOST + p - 1));
  const bottom = TOP + p * (ROW + GAP) - GAP;
  const end = left + makespan * unit;
  const sketch = new Sketch().hatching(`${frame.uid}-waits`);
  const keeps = Math.min(12, Math.floor((frame.width - right) / 11));
  /** @type {[number, number, number, number][]} */
  const held = [];
  let waits = "";
  for (const [r, mine] of spans.entries()) {
    const y = TOP + r * (ROW + GAP);
    sketch.text("ar-lane-name", narrow ? 30 : 34, y + (narrow ? 26 : 18), `GPU ${r}`);
    if (!narrow) sketch.text("ar-tick", 34, y + 35, layers(order, p, r));
    const bounds = [{ end: 0 }, ...mine].map((before, i) => [before.end, mine[i]?.start ?? makespan]);
    const gaps = bounds.filter(([from, to]) => to > from);
    for (const [from, to] of gaps)
      waits += `M${left + from * unit} ${y}h${(to - from) * unit}v${ROW}h${(from - to) * unit}z`;
    const shown = Math.ceil(kept[r]);
    if (shown <= keeps && !narrow)
      for (let k = 0; k < shown; k++) held.push([end + 14 + 12 * k, y + 15, 12 * Math.min(1, kept[r] - k) - 2, 11]);
    else sketch.text("ar-label", end + 8, y + 26, narrow ? digits(kept[r], true) : `${digits(kept[r], true)} of ${m}`);
  }
  sketch.path("", waits, { style: `fill:url(#${frame.uid}-waits)` }).boxes("ar-kept", held, 2);
  pieces(sketch, spans, left, unit, hot);
  const beside = narrow ? bottom + 13 : TOP - 8; // above, it would lie under the handle
  sketch.text("ar-label", Math.min(end + (narrow ? 8 : 14), frame.width - 40), beside, "keeps");
  sketch.line("ar-axis", left, bottom + 16, right, bottom + 16);
  for (const t of roundTicks(3 * (MOST + p - 1), narrow ? 4 : 8))
    sketch.text("ar-tick ar-middle", left + t * unit, bottom + 32, String(t));
  sketch.text("ar-tick ar-end", right, bottom + 50, "time, in forward passes of one GPU");
  const rail = TOP - 26;
  sketch.line("ar-rail", left, rail, end, rail).line("ar-rail", left, rail - 6, left, rail + 6);
  const words = `m = ${m}${narrow ? "" : " micro-batches, drag"}`;
  if (end - left > (narrow ? 60 : 190)) sketch.text("ar-strong ar-end", end - 20, rail - 8, words);
  else sketch.text("ar-strong", end + 20, rail + 5, words);
  sketch.line("ar-rail", 15, TOP, 15, bottom).line("ar-rail", 9, TOP, 21, TOP);
  sketch.text("ar-strong", 34, bottom + 20, narrow ? `p = ${p}` : `p = ${p}, drag`);
  sketch.into(picture, frame.width, bottom + 58);
  ranks.place(15, bottom, (v) => TOP + v * (ROW + GAP) - GAP);
  batches.place(end, rail, (v) => left + runPipeline(order, p, v).makespan * unit, m);
  return (x, y) => {
    const [r, time] = [(y - TOP) / (ROW + GAP), (x - left) / unit];
    return spans[Math.floor(r)]?.find(({ start, end: until }) => start <= time && time < until);
  };
}

/** @type {Record<string, string>} */
const LOOKS = { F: "ar-forward", B: "ar-work", I: "ar-work", W: "ar-hollow" };

/**
 * What the GPUs compute: a path for all that looks alike, and a text for all numbers, digit by digit.
 *
 * @param {Sketch} sketch
 * @param {Span[][]} spans
 * @param {number} left
 * @param {number} unit
 * @param {number} hot
 */
function pieces(sketch, spans, left, unit, hot) {
  const placed = spans.flatMap((mine, r) => mine.map((span) => ({ ...span, y: TOP + r * (ROW + GAP) })));
  for (const bold of [false, true]) {
    const its = placed.filter(({ i }) => (i === hot) === bold);
    const edge = bold ? 1 : 0;
    for (const look of new Set(Object.values(LOOKS)))
      sketch.boxes(
        `${look}${bold ? " ar-hot" : ""}`,
        its
          .filter(({ kind }) => LOOKS[kind] === look)
          .map(({ start, end, y }) => {
            const wide = (end - start) * unit;
            const inset = wide > 8 ? 1 : 0.4;
            return [left + start * unit + inset, y + edge, wide - 2 * inset, ROW - 2 * edge];
          }),
        4,
      );
    const digit = its.flatMap(({ i, start, end, y }) => {
      const word = [...String(i)];
      if ((end - start) * unit < DIGIT * word.length + 2) return [];
      const x = left + (start + end) * (unit / 2) - ((word.length - 1) / 2) * DIGIT;
      return word.map((sign, j) => ({ sign, x: (x + j * DIGIT).toFixed(1), y: y + ROW / 2 + 4 }));
    });
    const at = { x: digit.map(({ x }) => x).join(" "), y: digit.map(({ y }) => y).join(" ") };
    sketch.text(`ar-small-text ar-middle${bold ? " ar-bold" : ""}`, 0, 0, digit.map(({ sign }) => sign).join(""), at);
  }
}

/** Which layers a GPU has. @param {string} order @param {number} p @param {number} r */
function layers(order, p, r) {
  const each = LAYERS / p / stagesEach(order);
  const text = (/** @type {number} */ s) => `${s * each} to ${(s + 1) * each - 1}`;
  return stagesEach(order) > 1 ? `${text(r)}, ${text(r + p)}` : `layers ${text(r)}`;
}
