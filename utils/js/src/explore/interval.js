// How often a job should save: twelve hours with failures, and the lost share by the interval. Drag the interval.

import { linear, logarithmic, roundTicks } from "../common/scale.js";
import { Sketch } from "../common/sketch.js";
import { percent } from "../common/units.js";
import { drawn } from "./drawn.js";
import { Frame } from "./frame.js";

const MINUTES = [2, 3, 4, 5, 6, 8, 10, 12, 15, 19, 24, 30, 38, 45, 60, 80, 100, 120];
const [HOURS, ROW, TALL, TOP] = [12, 46, 240, 118];
/** Half the width of a bar. */
const HALF = 13;

/** @param {import("./frame.js").Model} model @param {HTMLElement} el */
export function interval(model, el) {
  const { mtbf } = model.get("data");
  const given =
    `Something fails every ${(mtbf / 3600).toFixed(2)} hours on average, as on 16,384 GPUs. What was done since the ` +
    "last checkpoint is done again. Drag the interval: where is the least, and how flat is it?";
  const frame = new Frame(model, el, "How often must the job save?", given);
  const options = [10, 60, 300].map((value) => ({ value, label: value < 100 ? `${value} s` : "5 min" }));
  frame.choice({ key: "cost", name: "a checkpoint takes", options });
  const figures = frame.figures(1);
  const grip = { key: "minutes", name: "minutes between checkpoints", stops: () => MINUTES };
  const { picture, handles } = frame.stage("ar-saves", { ...grip, format: (m) => `${m} minutes` });
  frame.legend(
    ["ar-work", "work that stays"],
    ["ar-now", "saves"],
    ["ar-lost", "done again after a failure"],
    ["ar-forward", "where you have been"],
  );
  /** @type {Map<string, [number, number, number]>} */
  const seen = new Map();
  frame.start(() => {
    const { minutes, cost } = frame.values;
    const { saving, again } = lostShares(60 * minutes, cost, mtbf);
    seen.set(`${minutes} ${cost}`, [minutes, cost, saving + again]);
    figures([percent(saving + again), `of the time is lost:\n${percent(saving)} saving, ${percent(again)} done again`]);
    const [left, right] = [frame.width < 500 ? 44 : 64, frame.width - 24];
    const x = logarithmic([2, 120], [left, right]);
    const ends = [120, 7200].map((seconds) => lostShares(seconds, cost, mtbf));
    const most = Math.max(...ends.map((lost) => lost.saving + lost.again));
    const y = linear([0, 1.1 * most], [TOP + TALL, TOP]);
    draw(picture, frame, [...seen.values()], saving, again, x, y);
    handles[0].place(x.at(minutes), y.at(0) + 26, (m) => x.at(m));
    return (
      `A checkpoint of ${cost} s every ${minutes} minutes: ${percent(saving + again)} of the time is lost, ` +
      `${percent(saving)} saving and ${percent(again)} done again.`
    );
  }, picture);
  return frame;
}

/**
 * The shares of the time that saving takes, and that work takes which a failure undoes. Lives end at random.
 *
 * @param {number} seconds from one checkpoint to the next
 * @param {number} cost of a checkpoint, in seconds
 * @param {number} mtbf mean time between failures, in seconds
 */
export function lostShares(seconds, cost, mtbf) {
  const complete = 1 / Math.expm1((seconds + cost) / mtbf); // intervals in a life, on average
  const saving = (complete * cost) / mtbf;
  return { saving, again: 1 - (complete * (seconds + cost)) / mtbf };
}

/**
 * @param {SVGSVGElement} picture
 * @param {Frame} frame
 * @param {[number, number, number][]} seen
 * @param {number} saving
 * @param {number} again
 * @param {import("../common/scale.js").Scale} x
 * @param {import("../common/scale.js").Scale} y
 */
function draw(picture, frame, seen, saving, again, x, y) {
  const { minutes, cost } = frame.values;
  const [left, right] = x.range;
  const sketch = new Sketch().hatching(`${frame.uid}-again`);
  strip(sketch, frame, linear([0, HOURS * 3600], [left, right]));
  for (const share of roundTicks(y.domain[1], 4)) {
    sketch.line(share ? "ar-hair" : "ar-axis", left, y.at(share), right, y.at(share));
    sketch.text("ar-tick ar-end", left - 8, y.at(share) + 4, `${Math.round(100 * share)} %`);
  }
  for (const m of [2, 5, 10, 30, 60, 120])
    sketch.text("ar-tick ar-middle", Math.min(right - 8, x.at(m)), TOP + TALL + 56, String(m));
  sketch.text("ar-tick ar-end", right, TOP + TALL + 74, "minutes between checkpoints");
  sketch.text("ar-strong", 0, TOP - 12, "lost");
  const here = x.at(minutes);
  const half = y.at(saving);
  for (const [m, c, lost] of seen)
    if (c === cost && m !== minutes)
      sketch.box("ar-forward", x.at(m) - HALF, y.at(lost), 2 * HALF, y.at(0) - y.at(lost), { rx: 3 });
  sketch.box("ar-now", here - HALF, half, 2 * HALF, y.at(0) - half, { rx: 0 });
  sketch.box("", here - HALF, y.at(saving + again), 2 * HALF, half - y.at(saving + again), {
    rx: 0,
    style: `fill:url(#${frame.uid}-again)`,
  });
  const track = y.at(0) + 26;
  sketch.track(left, right, here, track);
  sketch.text("ar-strong ar-halo ar-middle", here, y.at(saving + again) - 8, percent(saving + again));
  const edge = here > right - 130;
  sketch.text(`ar-strong ${edge ? "ar-end" : ""}`, here + (edge ? -20 : 20), track - 8, `every ${minutes} min: drag`);
  sketch.into(picture, frame.width, TOP + TALL + 80);
}

/**
 * One example: twelve hours in which lives end at drawn moments.
 *
 * @param {Sketch} sketch
 * @param {Frame} frame
 * @param {import("../common/scale.js").Scale} x
 */
function strip(sketch, frame, x) {
  const { minutes, cost } = frame.values;
  const top = 26;
  sketch.text("ar-tick", x.range[0], 14, `${HOURS} hours, one example; a line is a failure`);
  let began = 0;
  for (let life = 1; began < HOURS * 3600; life++) {
    const end = began - frame.data.mtbf * Math.log(1 - drawn(life + 8));
    const shown = Math.min(end, HOURS * 3600);
    let saved = began;
    for (let at = began + 60 * minutes; at + cost <= shown; at += 60 * minutes + cost) {
      sketch.box("ar-work", x.at(saved), top, x.at(at) - x.at(saved), ROW, { rx: 0 });
      sketch.box("ar-now", x.at(at), top, Math.max(1, x.at(at + cost) - x.at(at)), ROW, { rx: 0 });
      saved = at + cost;
    }
    const fate = end > shown ? "ar-work" : "";
    const style = fate ? "" : `fill:url(#${frame.uid}-again)`;
    sketch.box(fate, x.at(saved), top, x.at(shown) - x.at(saved), ROW, { rx: 0, style });
    if (end <= HOURS * 3600) sketch.line("ar-failure", x.at(end), top - 4, x.at(end), top + ROW + 6);
    began = end;
  }
}
