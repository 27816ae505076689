// What a sum is after each addition, if it is rounded each time. Drag the number of ranks; choose order and type.

import { linear, roundTicks } from "../common/scale.js";
import { Sketch } from "../common/sketch.js";
import { digits, percent } from "../common/units.js";
import { Frame } from "./frame.js";
import { summed } from "./sums.js";

const RANKS = [2, 4, 8, 16, 32, 64, 128, 192, 256, 320, 384, 448, 512, 576, 640, 704, 768, 832, 896, 960, 1024];
const [TALL, TOP] = [270, 30];
const GIVEN =
  "Each rank has one number between 0 and 1, in bfloat16. They are added, and each sum is rounded to the type. " +
  "Drag the number of ranks: from where on does the ring's sum stand still, and why there?";

/** @param {import("./frame.js").Model} model @param {HTMLElement} el */
export function bits(model, el) {
  const frame = new Frame(model, el, "Does it matter in which order numbers are added?", GIVEN);
  const order = [
    { value: "ring", label: "one after the other, a ring" },
    { value: "tree", label: "in pairs, a tree" },
  ];
  frame.choice({ key: "order", name: "order", options: order });
  frame.choice({
    key: "type",
    name: "sums rounded to",
    options: ["bfloat16", "float32"].map((value) => ({ value, label: value })),
  });
  const figures = frame.figures(1);
  const { picture, handles } = frame.stage("ar-sums", {
    key: "p",
    name: "ranks",
    stops: () => RANKS,
    format: (p) => `${p} ranks`,
  });
  frame.legend(["ar-now", "the sum, as rounded"], ["ar-lost", "what was rounded away"]);
  frame.start(() => {
    const { p, type, order: way } = frame.values;
    const found = summed(p, type, way);
    const off = Math.abs(found.result / found.exact - 1);
    figures([result(found.result), `instead of ${result(found.exact)}:\n${percent(off)} off`]);
    const x = linear([0, 1024], [frame.width < 500 ? 40 : 60, frame.width - 24]);
    const y = linear([0, 560], [TOP + TALL, TOP]);
    draw(picture, frame, found, x, y);
    handles[0].place(x.at(p), TOP + TALL, (n) => x.at(n));
    return (
      `${p} numbers added in ${type} in a ${way}: ${result(found.result)} instead of ${result(found.exact)}, ` +
      `${percent(off)} off.`
    );
  }, picture);
  return frame;
}

/** @param {number} value */
const result = (value) => value.toFixed(value < 100 ? 2 : 1);

/**
 * @param {SVGSVGElement} picture
 * @param {Frame} frame
 * @param {ReturnType<typeof summed>} found
 * @param {import("../common/scale.js").Scale} x
 * @param {import("../common/scale.js").Scale} y
 */
function draw(picture, frame, { exact, result: last, path }, x, y) {
  const { p, type, order } = frame.values;
  const [left, right] = x.range;
  const sketch = new Sketch().hatching(`${frame.uid}-lost`);
  for (const t of roundTicks(560, 6)) {
    sketch.line(t ? "ar-hair" : "ar-axis", left, y.at(t), right, y.at(t));
    sketch.text("ar-tick ar-end", left - 8, y.at(t) + 4, digits(t, true));
  }
  const points = path.map((sum, i) => [x.at(order === "ring" ? i + 1 : Math.min(p, 2 ** i)), y.at(sum)]);
  const end = points[points.length - 1];
  const goal = [x.at(p), y.at(exact)];
  sketch.path("", `M${[...points, goal].map(([a, b]) => `${a.toFixed(1)} ${b.toFixed(1)}`).join("L")}Z`, {
    style: `fill:url(#${frame.uid}-lost)`,
  });
  sketch.line("ar-cursor", left, y.at(0), goal[0], goal[1]);
  sketch.curve("ar-best", points);
  if (order === "tree") for (const [a, b] of points) sketch.dot("ar-turn", a, b, 5);
  const side = goal[0] > right - 140 ? "ar-end" : "";
  const aside = side ? -14 : 14;
  const close = Math.abs(end[1] - goal[1]) < 22;
  const under = Math.min(end[1] + (close ? 16 : 5), y.at(0) - 12); // above the track
  const over = Math.min(goal[1] - 6, under - 20);
  sketch.text(`ar-strong ar-halo ${side}`, goal[0] + aside, over, `exact ${result(exact)}`);
  sketch.text(`ar-strong ar-halo ${side}`, end[0] + aside, under, `${type} ${result(last)}`);
  sketch.track(left, right, x.at(p), y.at(0));
  for (const n of [256, 512, 768, 1024])
    sketch.text(
      `ar-tick ${n === 1024 ? "ar-end" : "ar-middle"}`,
      n === 1024 ? right : x.at(n),
      y.at(0) + 34,
      String(n),
    );
  const edge = x.at(p) > right - 120;
  sketch.text(`ar-strong ${edge ? "ar-end" : ""}`, x.at(p) + (edge ? -20 : 20), y.at(0) + 18, `p = ${p}, drag`);
  if (frame.width > 500) sketch.text("ar-tick", left, y.at(0) + 34, "numbers added");
  sketch.into(picture, frame.width, y.at(0) + 42);
}
