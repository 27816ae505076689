// Words that one rank writes into another's memory: when each arrives, what the other reads. Drag when it looks.

import { linear } from "../common/scale.js";
import { Sketch } from "../common/sketch.js";
import { drawn } from "./drawn.js";
import { Frame } from "./frame.js";

const WORDS = 8;
const [LAST, STEP] = [26, 0.5];
const MOMENTS = Array.from({ length: LAST / STEP + 1 }, (_, i) => i * STEP);
const [SENT, GOT, LANE] = [34, 190, 34];
const NAMES = { nothing: "8 words", flag: "8 words, a flag", fence: "8 words, a fence, a flag" };
const GIVEN =
  "Rank 0 writes 8 words into the memory of rank 1; each finds its own way (the times are an example). " +
  "Drag the moment at which rank 1 looks: from when on may it read? And how can it know?";

/** @param {import("./frame.js").Model} model @param {HTMLElement} el */
export function writes(model, el) {
  const frame = new Frame(model, el, "What does a message do for you that a write does not?", GIVEN);
  const options = Object.entries(NAMES).map(([value, label]) => ({ value, label }));
  frame.choice({ key: "after", name: "rank 0 writes", options });
  const figures = frame.figures(1);
  const grip = { key: "looks", name: "when rank 1 looks", stops: () => MOMENTS };
  const { picture, handles } = frame.stage("ar-writes", { ...grip, format: (t) => `${t} µs` });
  frame.legend(
    ["ar-of-0", "a word of rank 0"],
    ["ar-now", "the flag"],
    ["ar-lost", "waits"],
    ["ar-room-left", "old: not there yet"],
  );
  frame.start(() => {
    const { looks, after } = frame.values;
    const found = written(looks, after);
    figures([`${found.fresh} of ${WORDS}`, `words are new when\nrank 1 reads, at ${found.reads.toFixed(1)} µs`]);
    const x = linear([0, LAST], [frame.width < 500 ? 54 : 84, frame.width - (frame.width < 500 ? 20 : 30)]);
    draw(picture, frame, found, x);
    handles[0].place(x.at(looks), GOT + LANE + 26, (t) => x.at(t));
    return (
      `Rank 0 writes: ${NAMES[/** @type {keyof typeof NAMES} */ (after)]}. ` +
      `Rank 1 looks at ${looks} µs and reads at ${found.reads.toFixed(1)} µs: ` +
      `${found.fresh} of ${WORDS} words are new.`
    );
  }, picture);
  return frame;
}

/**
 * When what arrives, in µs, and what is new when rank 1 reads: at once, or when the flag has come if there is one.
 *
 * @param {number} looks
 * @param {string} after "nothing", "flag" or "fence"
 */
export function written(looks, after) {
  const arrive = Array.from({ length: WORDS }, (_, i) => i + 4 + 8 * drawn(i));
  const leaves = after === "fence" ? Math.max(...arrive) : WORDS;
  const flag = leaves + 2;
  const reads = after === "nothing" ? looks : Math.max(looks, flag);
  return { arrive, leaves, flag, reads, fresh: arrive.filter((at) => at <= reads).length };
}

/**
 * @param {SVGSVGElement} picture
 * @param {Frame} frame
 * @param {ReturnType<typeof written>} found
 * @param {import("../common/scale.js").Scale} x
 */
function draw(picture, frame, { arrive, leaves, flag, reads }, x) {
  const { looks, after } = frame.values;
  const sketch = new Sketch().hatching(`${frame.uid}-waits`);
  const lost = { style: `fill:url(#${frame.uid}-waits)` };
  const unit = x.at(1) - x.at(0);
  const wide = Math.min(22, unit - 2);
  sketch.text("ar-lane-name", 0, SENT + 22, "rank 0").text("ar-lane-name", 0, GOT + 22, "rank 1");
  sketch.line("ar-axis", x.at(0), GOT, x.at(LAST), GOT);
  for (const [i, at] of arrive.entries()) {
    sketch.line("ar-fly", x.at(i) + wide / 2, SENT + LANE, x.at(at), GOT);
    sketch.box("ar-of-0", x.at(i) + 1, SENT, wide, LANE, { rx: 3 });
    sketch.text("ar-small-text ar-middle ar-on-0", x.at(i) + 1 + wide / 2, SENT + 22, String(i + 1));
    sketch.dot("ar-of-0", x.at(at), GOT, 4);
  }
  if (after === "fence") sketch.box("", x.at(WORDS), SENT, x.at(leaves) - x.at(WORDS), LANE, lost);
  if (after !== "nothing") {
    sketch.line("ar-mark", x.at(leaves) + wide / 2, SENT + LANE, x.at(flag), GOT);
    sketch.box("ar-now", x.at(leaves) + 1, SENT, wide, LANE, { rx: 3 });
    sketch.dot("ar-now", x.at(flag), GOT, 5);
  }
  if (reads > looks) sketch.box("", x.at(looks), GOT + 6, x.at(reads) - x.at(looks), LANE - 6, lost);
  sketch.line("ar-limit", x.at(reads), GOT - 20, x.at(reads), GOT + LANE);
  const edge = reads > LAST - 5;
  sketch.text(`ar-strong ar-halo ${edge ? "ar-end" : ""}`, x.at(reads) + (edge ? -8 : 8), GOT + 26, "reads");
  const track = GOT + LANE + 26;
  sketch.track(x.at(0), x.at(LAST), x.at(looks), track);
  const far = looks > LAST - 8;
  sketch.text(
    `ar-strong ${far ? "ar-end" : ""}`,
    x.at(looks) + (far ? -20 : 20),
    track - 9,
    `looks at ${looks} µs: drag`,
  );
  const low = track + 40;
  sketch.text("ar-strong", 0, low + 18, frame.width < 500 ? "reads" : "it reads");
  for (const [i, at] of arrive.entries()) {
    const left = x.at(0) + 34 * i;
    const fresh = at <= reads;
    sketch.box(fresh ? "ar-of-0" : "ar-room-left", left + 0.5, low + 0.5, 29, 26, { rx: 3 });
    sketch.text(`ar-middle ${fresh ? "ar-on-0" : "ar-soft"}`, left + 15, low + 18, fresh ? String(i + 1) : "old");
  }
  sketch.into(picture, frame.width, low + 36);
}
