// How long until a job trains again: the five parts of an interruption, one after the other. Drag the end of a part.

import { linear } from "../common/scale.js";
import { Sketch } from "../common/sketch.js";
import { digits, percent } from "../common/units.js";
import { Frame } from "./frame.js";

const PARTS = ["notice", "find", "start", "load", "repeat"];
const LONG = [0.1, 0.5, 1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 25, 30];
const SHORT = LONG.filter((minutes) => minutes <= 10);
const WORDS = ["notice the hang", "find a node", "start again", "load the state", "repeat lost steps"];
const [TOP, LANE, GAP] = [34, 30, 16];
const GIVEN =
  "At 0 a rank hangs. Ten minutes to notice it are PyTorch's limit for NCCL; the other four times are only an " +
  "example. Drag the ends to the times of your job: which part would you shorten first?";

/** @param {import("./frame.js").Model} model @param {HTMLElement} el */
export function recover(model, el) {
  const frame = new Frame(model, el, "A rank hangs. How long until the job trains again?", GIVEN);
  const options = [
    { value: 3.09, label: "3 hours" },
    { value: 24, label: "day" },
    { value: 168, label: "week" },
  ];
  frame.choice({ key: "hours", name: "one hang every", options });
  const figures = frame.figures(1);
  const grips = PARTS.map((key, i) => ({
    key,
    name: `minutes to ${WORDS[i]}`,
    stops: () => (i ? SHORT : LONG),
    format: (/** @type {number} */ m) => `${m} minutes`,
  }));
  const { picture, handles } = frame.stage("ar-parts", ...grips);
  frame.legend(["ar-lost", "the longest part"], ["ar-forward", "the others"], ["ar-work", "trains"]);
  frame.start(() => {
    const { hours } = frame.values;
    const minutes = PARTS.map((part) => frame.values[part]);
    const all = minutes.reduce((sum, m) => sum + m, 0);
    const lost = percent(all / (60 * hours));
    figures([`${digits(all)} min`, `until it trains again:\n${lost} of all time is lost`]);
    const x = linear([0, 72], [frame.width < 500 ? 0 : 140, frame.width - 20]);
    draw(picture, frame, minutes, x);
    let at = 0;
    for (const [i, handle] of handles.entries()) {
      const began = at;
      at += minutes[i];
      handle.place(x.at(at), TOP + i * (LANE + GAP) + LANE / 2, (m) => x.at(began + m));
    }
    const longest = WORDS[minutes.indexOf(Math.max(...minutes))];
    return `${digits(all)} minutes until it trains again, ${lost} of all time. The longest part: ${longest}.`;
  }, picture);
  return frame;
}

/**
 * @param {SVGSVGElement} picture
 * @param {Frame} frame
 * @param {number[]} minutes
 * @param {import("../common/scale.js").Scale} x
 */
function draw(picture, frame, minutes, x) {
  const sketch = new Sketch().hatching(`${frame.uid}-longest`);
  const low = TOP + PARTS.length * (LANE + GAP) + LANE;
  for (const m of [0, 10, 20, 30, 40, 50, 60, 70]) {
    sketch.line(m ? "ar-hair" : "ar-axis", x.at(m), TOP - 8, x.at(m), low);
    sketch.text("ar-tick ar-middle", x.at(m) + (m ? 0 : 8), TOP - 16, m === 70 ? "70 min" : String(m));
  }
  const most = minutes.indexOf(Math.max(...minutes));
  const aside = frame.width < 500;
  let at = 0;
  for (const [i, m] of minutes.entries()) {
    const y = TOP + i * (LANE + GAP);
    const style = i === most ? `fill:url(#${frame.uid}-longest)` : "";
    sketch.box(i === most ? "" : "ar-forward", x.at(at), y, x.at(at + m) - x.at(at), LANE, { rx: 3, style });
    at += m;
    const late = x.at(at) > x.range[1] - 100;
    const place = late ? Math.min(x.at(at - m) - 8, x.at(at) - 24) : x.at(at) + 18;
    sketch.text(
      `${i === most ? "ar-strong" : "ar-label-ink"} ar-halo ${late ? "ar-end" : ""}`,
      place,
      y + 20,
      `${m} min`,
    );
    if (aside) sketch.text("ar-tick ar-halo", 2, y - 3, WORDS[i]);
    else sketch.text(i === most ? "ar-strong" : "ar-label-ink", 0, y + 20, WORDS[i]);
  }
  const y = TOP + PARTS.length * (LANE + GAP);
  sketch.box("ar-work", x.at(at), y, x.range[1] - x.at(at), LANE, { rx: 3 });
  sketch.text(aside ? "ar-tick" : "ar-label-ink", aside ? 2 : 0, y + 20, "train again");
  sketch.into(picture, frame.width, low + 6);
}
