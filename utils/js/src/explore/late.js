// Why a profile shows a long all-reduce: one rank comes late, and the others wait in the call. Drag both times.

import { linear } from "../common/scale.js";
import { Sketch } from "../common/sketch.js";
import { percent } from "../common/units.js";
import { Frame } from "./frame.js";

const [STEPS, RANKS, LATE] = [3, 4, 2];
const [TOP, LANE, GAP] = [54, 40, 10];
const DELAYS = Array.from({ length: 17 }, (_, i) => 5 * i);
const NETWORKS = Array.from({ length: 12 }, (_, i) => 5 * (i + 1));
const GIVEN =
  "Three steps of a job: compute, then all-reduce. Drag the network until it is four times as fast: what stays? " +
  "Then look at all ranks.";

/** @param {import("./frame.js").Model} model @param {HTMLElement} el */
export function late(model, el) {
  const frame = new Frame(model, el, "All-reduce fills the profile. Does the job need a faster network?", GIVEN);
  const options = [
    { value: "rank 0", label: "rank 0's profile" },
    { value: "all ranks", label: "all ranks" },
  ];
  frame.choice({ key: "shown", name: "shown", options });
  const figures = frame.figures(1);
  const { picture, handles } = frame.stage(
    "ar-profile",
    { key: "delay", name: "delay of one rank", stops: () => DELAYS, format: (d) => `${d} ms` },
    { key: "network", name: "time on the network", stops: () => NETWORKS, format: (n) => `${n} ms` },
  );
  const marks = frame.legend(
    ["ar-work", "computes"],
    ["ar-wire", "all-reduce"],
    ["ar-lost", "in all-reduce, but waits for the late rank"],
    ["ar-hollow", "comes late"],
  );
  frame.start(() => {
    const { compute } = frame.data;
    const { delay, network, shown } = frame.values;
    const all = shown === "all ranks";
    const step = compute + delay + network;
    const inside = (delay + network) / step;
    const waits = delay / (delay + network);
    const why = all ? `,\n${percent(waits)} of it waiting for one rank` : ":\nthe network, or something else?";
    figures([percent(inside), `of rank 0's time is all-reduce${why}`]);
    for (const i of [2, 3]) marks[i].hidden = !all;
    const most = STEPS * (compute + DELAYS[DELAYS.length - 1] + NETWORKS[NETWORKS.length - 1]);
    const x = linear([0, most], [frame.width < 500 ? 62 : 96, frame.width - 24]);
    const low = draw(picture, frame, all, x);
    handles[0].element.hidden = !all;
    handles[0].place(x.at(compute + delay), low, (d) => x.at(compute + d));
    handles[1].place(x.at(step), TOP - 20, (n) => x.at(compute + delay + n));
    const told = all ? `, ${percent(waits)} of that waiting for a late rank` : "";
    return (
      `A step takes ${step} ms; rank 0 is in all-reduce for ${percent(inside)} of the time${told}. ` +
      `With a network twice as fast a step takes ${step - network / 2} ms.`
    );
  }, picture);
  return frame;
}

/**
 * @param {SVGSVGElement} picture
 * @param {Frame} frame
 * @param {boolean} all whether all ranks are shown
 * @param {import("../common/scale.js").Scale} x
 */
function draw(picture, frame, all, x) {
  const { compute } = frame.data;
  const { delay, network } = frame.values;
  const step = compute + delay + network;
  const sketch = new Sketch().hatching(`${frame.uid}-waits`);
  const [left, right] = x.range;
  for (let r = 0; r < RANKS; r++) {
    const y = TOP + r * (LANE + GAP);
    const tells = all || r === 0;
    for (let s = 0; s < STEPS; s++) {
      const at = s * step;
      const busy = at + compute + delay;
      if (!tells) continue;
      bar(sketch, "ar-work", x, at, at + compute, y);
      if (r === LATE && delay) bar(sketch, "ar-hollow", x, at + compute, busy, y);
      if (r !== LATE && all) bar(sketch, "", x, at + compute, busy, y, { style: `fill:url(#${frame.uid}-waits)` });
      bar(sketch, "ar-wire", x, r === LATE || all ? busy : at + compute, busy + network, y);
    }
    if (!tells) sketch.box("ar-room-left", left + 0.5, y + 0.5, right - left - 1, LANE - 1);
    if (!tells && r === 1) sketch.text("ar-tick", left + 14, y + 25, "guess what the other ranks do, then look");
  }
  for (let r = 0; r < RANKS; r++) sketch.text("ar-lane-name", 0, TOP + r * (LANE + GAP) + 26, `rank ${r}`);
  const end = x.at(step);
  sketch.line("ar-rail", x.at(compute + delay), TOP - 20, end, TOP - 20);
  const edge = end > right - 200;
  sketch.text(
    `ar-strong ${edge ? "ar-end" : ""}`,
    edge ? x.at(compute + delay) - 10 : end + 20,
    TOP - 15,
    frame.width < 500 ? `${network} ms` : `network ${network} ms: drag`,
  );
  const low = TOP + RANKS * (LANE + GAP) + 16;
  if (all) rail(sketch, frame, x, low);
  sketch.into(picture, frame.width, low + 24);
  return low;
}

/**
 * @param {Sketch} sketch
 * @param {string} look
 * @param {import("../common/scale.js").Scale} x
 * @param {number} from
 * @param {number} to
 * @param {number} y
 * @param {import("../common/sketch.js").Attributes} more
 */
function bar(sketch, look, x, from, to, y, more = {}) {
  sketch.box(look, x.at(from) + 0.7, y, x.at(to) - x.at(from) - 1.4, LANE, more);
}

/**
 * What the delay's handle runs on.
 *
 * @param {Sketch} sketch
 * @param {Frame} frame
 * @param {import("../common/scale.js").Scale} x
 * @param {number} y
 */
function rail(sketch, frame, x, y) {
  const { compute } = frame.data;
  const { delay } = frame.values;
  const end = x.at(compute + DELAYS[DELAYS.length - 1]);
  sketch.track(x.at(compute), end, x.at(compute + delay), y);
  sketch.text("ar-strong", end + 20, y + 5, `one rank ${delay} ms late${frame.width < 500 ? "" : ": drag"}`);
}
