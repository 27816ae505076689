// Bytes against loss: each rank sends its k largest numbers. Drag k; choose what becomes of the rest.

import { linear, logarithmic } from "../common/scale.js";
import { Sketch } from "../common/sketch.js";
import { percent } from "../common/units.js";
import { Frame } from "./frame.js";
import { losses, NUMBERS, STEPS, stepBytes } from "./topk.js";

const COUNTS = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];
const [TALL, TOP] = [270, 34];
const LEAST = 1e-3;
const GIVEN =
  `Four ranks learn together; a gradient has ${NUMBERS} numbers. On 8 of them the ranks disagree, and together want ` +
  "nothing. Drag k to send only the k largest: how few are enough, and does it matter what becomes of the rest?";

/** @param {import("./frame.js").Model} model @param {HTMLElement} el */
export function compress(model, el) {
  const frame = new Frame(model, el, "What is lost if each rank sends only its largest numbers?", GIVEN);
  const options = [
    { value: "forgotten", label: "forgotten" },
    { value: "kept", label: "kept for the next step" },
  ];
  frame.choice({ key: "rest", name: "the rest is", options });
  const figures = frame.figures(2);
  const grip = { key: "k", name: "numbers that a rank sends", stops: () => COUNTS };
  const { picture, handles } = frame.stage("ar-losses", { ...grip, format: (k) => `${k} of ${NUMBERS}` });
  frame.legend(["ar-room-left", "all numbers"], ["ar-now", "the k largest"], ["ar-forward", "what you saw before"]);
  /** @type {Map<string, [number, boolean]>} */
  const seen = new Map();
  frame.start(() => {
    const { k, rest } = frame.values;
    const feedback = rest === "kept";
    const here = losses(k, feedback);
    figures(
      [said(here[STEPS]), `is the loss after ${STEPS} steps,\nof ${said(here[0])} at first`],
      [percent(stepBytes(k) / stepBytes(NUMBERS)), "of the bytes of\nan all-reduce"],
    );
    const x = linear([0, STEPS], [frame.width < 500 ? 46 : 60, frame.width - 24]);
    const y = logarithmic([LEAST, 100], [TOP + TALL, TOP]);
    draw(picture, frame, here, [...seen.values()], x, y);
    seen.set(`${k} ${feedback}`, [k, feedback]);
    const rail = linear([0, COUNTS.length - 1], x.range);
    handles[0].place(rail.at(COUNTS.indexOf(k)), TOP + TALL + 52, (n) => rail.at(COUNTS.indexOf(n)));
    return (
      `Each rank sends ${k} of ${NUMBERS} numbers, the rest is ${rest}: the loss is ${said(here[STEPS])} after ` +
      `${STEPS} steps, ` +
      `with ${percent(stepBytes(k) / stepBytes(NUMBERS))} of the bytes.`
    );
  }, picture);
  return frame;
}

/** @param {number} loss */
const said = (loss) => (loss >= 9.95 ? loss.toFixed(0) : loss >= 0.0995 ? loss.toFixed(1) : loss.toFixed(3));

/**
 * @param {SVGSVGElement} picture
 * @param {Frame} frame
 * @param {number[]} here
 * @param {[number, boolean][]} seen
 * @param {import("../common/scale.js").Scale} x
 * @param {import("../common/scale.js").Scale} y
 */
function draw(picture, frame, here, seen, x, y) {
  const { k } = frame.values;
  const [left, right] = x.range;
  const sketch = new Sketch();
  const points = (/** @type {number[]} */ values) => values.map((loss, i) => [x.at(i), y.at(Math.max(LEAST, loss))]);
  for (const loss of [0.001, 0.01, 0.1, 1, 10, 100]) {
    sketch.line(loss === LEAST ? "ar-axis" : "ar-hair", left, y.at(loss), right, y.at(loss));
    sketch.text("ar-tick ar-end", left - 8, y.at(loss) + 4, String(loss));
  }
  sketch.text("ar-strong", 0, 14, "loss");
  for (const [count, feedback] of seen) sketch.curve("ar-other", points(losses(count, feedback)));
  const all = losses(NUMBERS, false);
  sketch.curve("ar-before", points(all)).curve("ar-best", points(here));
  const [end, other] = [y.at(Math.max(LEAST, here[STEPS])), y.at(Math.max(LEAST, all[STEPS]))];
  const above = end > TOP + 20 ? -10 : 20;
  sketch.text("ar-strong ar-end ar-halo", right, end + above, k === NUMBERS ? "all numbers" : `the ${k} largest`);
  if (Math.abs(end + above - other) > 18) sketch.text("ar-tick ar-end ar-halo", right, other - 6, "all numbers");
  for (const step of [0, 50, 100, 150, 200])
    sketch.text(
      `ar-tick ${step === 200 ? "ar-end" : "ar-middle"}`,
      step === 200 ? right : x.at(step),
      y.at(LEAST) + 18,
      String(step),
    );
  sketch.text("ar-tick ar-middle", x.at(125), y.at(LEAST) + 18, "step");
  const rail = linear([0, COUNTS.length - 1], x.range);
  const low = y.at(LEAST) + 52;
  const at = rail.at(COUNTS.indexOf(k));
  sketch.track(left, right, at, low);
  sketch.text("ar-strong", 0, low + 5, "k");
  for (const [i, count] of COUNTS.entries())
    if (frame.width > 500 || i % 2 === 1) sketch.text("ar-tick ar-middle", rail.at(i), low + 32, String(count));
  sketch.into(picture, frame.width, low + 40);
}
