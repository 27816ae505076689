// A flag of one byte that is summed in each step, bit by bit, by three libraries. Drag the steps, and the ranks.

import { linear } from "../common/scale.js";
import { Sketch } from "../common/sketch.js";
import { Frame } from "./frame.js";

const STEPS = Array.from({ length: 13 }, (_, i) => i);
const RANKS = [2, 3, 4, 5, 6, 7, 8];
const BITS = 8;
const [TOP, CELL] = [26, 20];
const GIVEN =
  "overflow is one byte, and True on every rank. In each step every rank calls dist.all_reduce(overflow), which adds " +
  "all flags. Drag the number of steps and of ranks; then choose another library for the same line.";

/** @param {import("./frame.js").Model} model @param {HTMLElement} el */
export function flag(model, el) {
  const frame = new Frame(model, el, "All ranks say True. What does their sum say?", GIVEN);
  const options = [
    { value: "NCCL", label: "NCCL, RCCL" },
    { value: "Gloo", label: "Gloo" },
    { value: "MPI", label: "MPI" },
  ];
  frame.choice({ key: "library", name: "library", options });
  const figures = frame.figures(2);
  const { picture, handles } = frame.stage(
    "ar-byte",
    { key: "steps", name: "number of steps", stops: () => STEPS, format: (k) => `${k} steps` },
    { key: "p", name: "number of ranks", stops: () => RANKS, format: (p) => `${p} ranks` },
  );
  frame.legend(["ar-now", "a bit of the byte that is 1"], ["ar-hollow", "0"], ["ar-room-left", "not yet"]);
  frame.start(() => {
    const { p, steps, library } = frame.values;
    const held = flagBytes(p, steps, library);
    const refused = held.length <= steps;
    const byte = held[held.length - 1];
    const after = `after ${steps} step${steps === 1 ? "" : "s"}`;
    const said = refused ? "refused" : byte ? "True" : "False";
    figures(
      [said, refused ? "in step 1:\nno type for a flag" : `on every rank\n${after}`],
      [String(byte), `in its byte:\n${how(p, steps, library)}`],
    );
    const rails = draw(picture, frame, held);
    for (const [i, handle] of handles.entries())
      handle.place(rails[i].x.at(frame.values[handle.grip.key]), rails[i].y, rails[i].x.at);
    if (refused) return `${library} refuses to sum a flag, in the first step.`;
    return (
      `A flag summed in ${steps} step${steps === 1 ? "" : "s"} on ${p} ranks by ${library} is ${said} on every ` +
      `rank; its byte holds ${byte}.`
    );
  }, picture);
  return frame;
}

/**
 * The byte at first and after each sum, as first_figures.py has it.
 *
 * @param {number} p
 * @param {number} steps
 * @param {string} library
 */
export function flagBytes(p, steps, library) {
  if (library === "MPI") return [1];
  return STEPS.slice(0, steps + 1).map((step) => (library === "Gloo" ? p ** step % 256 : 1));
}

/** @param {number} p @param {number} steps @param {string} library */
function how(p, steps, library) {
  if (library === "MPI") return "nothing was added";
  if (library === "NCCL") return "NCCL takes the maximum";
  return `${p} to the power ${steps}, modulo 256`;
}

/**
 * @param {SVGSVGElement} picture
 * @param {Frame} frame
 * @param {number[]} held
 */
function draw(picture, frame, held) {
  const { p, steps } = frame.values;
  const narrow = frame.width < 700;
  const left = narrow ? 46 : 108;
  const half = narrow ? 8 : 22;
  const x = linear([0, STEPS.length - 1], [left + half, frame.width - half - (narrow ? 12 : 20)]);
  const low = TOP + BITS * CELL;
  const sketch = new Sketch();
  for (let bit = 0; bit < BITS; bit++) sketch.text("ar-tick ar-end", left - 12, low - bit * CELL - 5, String(2 ** bit));
  for (const step of STEPS) {
    const from = x.at(step) - half;
    const byte = held[step];
    if (byte === undefined) {
      sketch.box("ar-room-left", from, TOP + 1, 2 * half, low - TOP - 3);
      continue;
    }
    for (let bit = 0; bit < BITS; bit++) {
      const y = low - (bit + 1) * CELL;
      sketch.box((byte >> bit) & 1 ? "ar-now" : "ar-hollow", from, y, 2 * half, CELL - 3, { rx: 2 });
    }
    const look = `${step === steps ? "ar-strong" : "ar-tick"} ar-middle`;
    if (!narrow || step === held.length - 1) sketch.text(look, x.at(step), low + 18, String(byte));
    if (!narrow) sketch.text(`${byte ? look : "ar-strong ar-lost-words ar-middle"}`, x.at(step), low + 36, truth(byte));
  }
  sketch.text(narrow ? "ar-tick" : "ar-lane-name", 0, TOP - 10, narrow ? "bits of the flag" : "bits");
  if (!narrow) sketch.text("ar-lane-name", 0, low + 18, "the byte").text("ar-lane-name", 0, low + 36, "the flag");
  const rail = low + (narrow ? 52 : 78);
  sketch.track(x.range[0], x.range[1], x.at(steps), rail);
  const late = steps > 6;
  const words = `${steps} step${steps === 1 ? "" : "s"}${narrow ? "" : ": drag"}`;
  sketch.text(`ar-strong ${late ? "ar-end" : ""}`, x.at(steps) + (late ? -20 : 20), rail - 10, words);
  const ranks = linear([2, 8], [left + half, 0.5 * frame.width]);
  sketch.track(ranks.range[0], ranks.range[1], ranks.at(p), rail + 50);
  sketch.text("ar-strong", ranks.range[1] + 24, rail + 55, `${p} ranks${narrow ? "" : ": drag"}`);
  sketch.into(picture, frame.width, rail + 76);
  return [
    { x, y: rail },
    { x: ranks, y: rail + 50 },
  ];
}

/** @param {number} byte */
const truth = (byte) => (byte ? "True" : "False");
