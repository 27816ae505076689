// A router's choices against the room that each expert has. Drag the line of the capacity, and how uneven it is.

import { linear } from "../common/scale.js";
import { Sketch } from "../common/sketch.js";
import { percent } from "../common/units.js";
import { Frame } from "./frame.js";
import { EXPERTS, MEAN, room, routed } from "./routing.js";

const TALL = 300;
const GIVEN =
  "1,024 tokens choose 2 of 16 experts each. Drag the line: how much room is enough, and what does it cost?";
const CAPACITIES = Array.from({ length: 76 }, (_, i) => (i + 5) / 20);
const UNEVEN = Array.from({ length: 41 }, (_, i) => i / 10);

/** @param {import("./frame.js").Model} model @param {HTMLElement} el */
export function router(model, el) {
  const frame = new Frame(model, el, "What becomes of a token for which there is no room?", GIVEN);
  const figures = frame.figures(2);
  frame.slider({
    key: "uneven",
    name: "how uneven",
    stops: UNEVEN,
    format: (uneven) => `busiest: ${busiest(uneven).toFixed(1)} × the mean`,
    ends: ["even", "all want one"],
  });
  const top = () => 1.15 * Math.max(busiest(frame.values.uneven), 1.5);
  const { picture, handles } = frame.stage("ar-experts", {
    key: "capacity",
    name: "room of an expert, times the mean",
    stops() {
      const most = top();
      return CAPACITIES.filter((c) => c <= most);
    },
    format: (c) => `${c} times the mean`,
    axis: "y",
  });
  frame.legend(
    ["ar-of-0", "tokens of rank 0"],
    ["ar-of-1", "of 1"],
    ["ar-of-2", "of 2"],
    ["ar-of-3", "of 3"],
    ["ar-lost", "no room: dropped, they skip this layer"],
    ["ar-room-left", "empty room, padded with zeros"],
  );
  frame.start(() => {
    const { uneven, capacity } = frame.values;
    const found = room(uneven, capacity);
    figures(
      [percent(found.dropped), "of the choices find\nno room at their expert"],
      [percent(found.empty), "of the room stays empty,\nand is sent all the same"],
    );
    const y = linear([0, top() * MEAN], [TALL + 10, 10]);
    const narrow = frame.width < 700;
    draw(picture, frame, found, y, narrow);
    handles[0].place(frame.width - (narrow ? 18 : 24), y.at(found.most), (c) => y.at(c * MEAN));
    return (
      `Room for ${found.most} choices an expert, ${capacity} times the mean: ${percent(found.dropped)} of the ` +
      "choices " +
      `are dropped, ${percent(found.empty)} of the room is empty.`
    );
  }, picture);
  return frame;
}

/** How much more than the mean the busiest expert gets. @param {number} uneven */
const busiest = (uneven) => Math.max(...routed(uneven).map((mine) => mine.reduce((a, b) => a + b))) / MEAN;

/**
 * @param {SVGSVGElement} picture
 * @param {Frame} frame
 * @param {ReturnType<typeof room>} found
 * @param {import("../common/scale.js").Scale} y
 * @param {boolean} narrow
 */
function draw(picture, frame, { counts, sums, most }, y, narrow) {
  const low = y.at(0);
  const [gap, space] = narrow ? [8, 2] : [24, 10];
  const right = frame.width - (narrow ? 40 : 56);
  const step = (right - 3 * gap) / EXPERTS;
  const wide = step - space;
  const sketch = new Sketch().hatching(`${frame.uid}-dropped`);
  const line = y.at(most);
  for (let r = 0; r < 4; r++) {
    const x = r * (4 * step + gap);
    sketch.box("ar-room", x, 0, 4 * step, low + 62, { rx: 10 });
    sketch.box(`ar-of-${r}`, x + 10, low + 34, 12, 12, { rx: 2 });
    sketch.text("ar-strong", x + 28, low + 45, narrow ? `rank ${r}` : `experts of rank ${r}`);
  }
  for (const [e, n] of sums.entries()) {
    const x = e * step + Math.floor(e / 4) * gap + space / 2;
    if (n < most) sketch.box("ar-room-left", x + 0.5, line, wide - 1, y.at(n) - line, { rx: 2 });
    let above = 0;
    for (const [r, part] of counts[e].entries()) {
      const [from, to] = [Math.min(above, most), Math.min(above + part, most)];
      above += part;
      sketch.box(`ar-of-${r}`, x, y.at(to), wide, y.at(from) - y.at(to), { rx: 0 });
    }
    if (n > most) sketch.box("", x, y.at(n), wide, line - y.at(n), { rx: 3, style: `fill:url(#${frame.uid}-dropped)` });
    const close = n <= most && y.at(n) - line < 18;
    const look = n > most ? "ar-strong ar-lost-words" : close ? "ar-on-rank" : "";
    const shown = !narrow || n === Math.max(...sums);
    if (shown) sketch.text(`${look} ar-middle`, x + wide / 2, y.at(n) + (close ? 16 : -6), String(n));
    if (!narrow || e % 2 === 0) sketch.text("ar-tick ar-middle", x + wide / 2, low + 18, String(e));
  }
  sketch.line("ar-rail", 0, line, frame.width - 24, line).line("ar-axis", 0, low, right, low);
  const words = `room for ${most}, ${frame.values.capacity} × the mean${narrow ? "" : ": drag the line"}`;
  sketch.text("ar-strong ar-end ar-halo", right - 10, line < 30 ? line + 20 : line - 9, words);
  sketch.into(picture, frame.width, low + 64);
}
