// A step of FSDP: gathers under computing, and which blocks are whole. Drag the room, and how long a gather takes.

import { linear } from "../common/scale.js";
import { Sketch } from "../common/sketch.js";
import { percent } from "../common/units.js";
import { Frame } from "./frame.js";
import { BLOCKS, fsdpRun } from "./fsdp_run.js";

/** @typedef {import("../common/scale.js").Scale} Scale */

const ROOMS = [1, 2, 3, 4, 5, 6];
const GATHERS = Array.from({ length: 8 }, (_, i) => (i + 1) / 4);
const [NET, WORK, LANE, STACK, CELL] = [44, 120, 44, 206, 24];
const SHOWN = 53; // forward passes: the slowest run, with room for one block and the longest gathers, takes 52
const GIVEN =
  "Six blocks of a model; each GPU keeps an eighth of each. A block computes when it is whole. " +
  "Drag the room for whole blocks, and how long a gather takes: from which room on does more not help?";

/** @param {import("./frame.js").Model} model @param {HTMLElement} el */
export function fsdp(model, el) {
  const frame = new Frame(model, el, "When do whole weights come, and how many at once?", GIVEN);
  const figures = frame.figures(2);
  const { picture, handles } = frame.stage(
    "ar-sharded",
    {
      key: "gather",
      name: "length of a gather",
      stops: () => GATHERS,
      format: (g) => `${g} times a forward pass`,
    },
    { key: "room", name: "room for whole blocks", stops: () => ROOMS, format: (n) => `${n} blocks`, axis: "y" },
  );
  frame.legend(
    ["ar-wire", "gather: a block becomes whole"],
    ["ar-sent", "scatter: its gradients go"],
    ["ar-forward", "forward"],
    ["ar-work", "backward"],
    ["ar-lost", "the GPU waits"],
  );
  frame.start(() => {
    const { gather, room } = frame.values;
    const found = fsdpRun(gather, room);
    figures(
      [percent(found.waits), "of the step\na GPU waits"],
      [`${found.most} of ${BLOCKS}`, "blocks are whole at\nthe worst moment"],
    );
    const x = linear([0, SHOWN], [frame.width < 500 ? 62 : 96, frame.width - 40]);
    draw(picture, frame, found, x);
    handles[0].place(x.at(gather), NET - 14, (g) => x.at(g));
    handles[1].place(frame.width - 22, STACK + room * CELL, (n) => STACK + n * CELL);
    return (
      `Room for ${room} whole block${room > 1 ? "s" : ""}, a gather takes ${gather} times a forward pass: ` +
      `the GPU waits ${percent(found.waits)} of the step.`
    );
  }, picture);
  return frame;
}

/**
 * @param {SVGSVGElement} picture
 * @param {Frame} frame
 * @param {ReturnType<typeof fsdpRun>} found
 * @param {Scale} x
 */
function draw(picture, frame, { computing, network, held, seconds }, x) {
  const { gather, room } = frame.values;
  const [left, right] = x.range;
  const narrow = frame.width < 500;
  const sketch = new Sketch().hatching(`${frame.uid}-waits`);
  const names = /** @type {[string, number][]} */ ([
    ["network", NET + 26],
    ["compute", WORK + 26],
    ["whole", STACK + 26],
  ]);
  for (const [name, y] of names) sketch.text(narrow ? "ar-strong ar-small-text" : "ar-lane-name", 0, y, name);
  if (!narrow) sketch.text("ar-tick", 0, STACK + 44, "blocks");
  sketch.box("", left, WORK, x.at(seconds) - left, LANE, { style: `fill:url(#${frame.uid}-waits)` });
  const looks = { gather: "ar-wire", scatter: "ar-sent", forward: "ar-forward", backward: "ar-work" };
  for (const job of [...network, ...computing]) {
    const top = job.kind === "gather" || job.kind === "scatter" ? NET : WORK;
    const [from, wide] = [x.at(job.start), x.at(job.end) - x.at(job.start)];
    if (top === WORK) sketch.box("ar-under-box", from, top - 1, wide, LANE + 2, { rx: 0 });
    sketch.box(looks[job.kind], from + 0.7, top, wide - 1.4, LANE, { rx: Math.min(4, wide / 4) });
    const ink = job.kind === "gather" ? "ar-on-wire" : "ar-label-ink";
    if (wide > 11) sketch.text(`ar-small-text ar-middle ${ink}`, from + wide / 2, top + 27, String(job.block + 1));
  }
  // a block takes the lowest row that is free: so the stack is as high as the memory
  const rows = /** @type {number[]} */ ([]);
  for (const { block, start, end } of [...held].sort((a, b) => a.start - b.start)) {
    let row = rows.findIndex((until) => until <= start + 1e-9);
    if (row < 0) row = rows.length;
    rows[row] = end;
    const [from, wide] = [x.at(start), x.at(end) - x.at(start)];
    sketch.box("ar-hollow", from + 1, STACK + row * CELL + 2, wide - 2, CELL - 4, { rx: 3 });
    if (wide > 14)
      sketch.text("ar-small-text ar-middle", from + wide / 2, STACK + row * CELL + 16.5, String(block + 1));
  }
  for (const n of ROOMS) sketch.line("ar-hair", left, STACK + n * CELL, right, STACK + n * CELL);
  const line = STACK + room * CELL;
  sketch.line("ar-rail", left, line, frame.width - 22, line);
  sketch.text("ar-strong ar-end", right - 8, line + 17, `room for ${room}${narrow ? "" : ": drag"}`);
  sketch.line("ar-rail", left, NET - 14, x.at(gather), NET - 14).line("ar-rail", left, NET - 20, left, NET - 8);
  sketch.text("ar-strong", x.at(gather) + 20, NET - 9, `a gather: ${gather} × a forward pass${narrow ? "" : ", drag"}`);
  sketch.line("ar-mark", x.at(seconds), NET - 6, x.at(seconds), STACK - 8);
  const beside = right - x.at(seconds) > 70;
  sketch.text(beside ? "ar-tick" : "ar-tick ar-end", x.at(seconds) + (beside ? 6 : -6), STACK - 12, "step ends");
  sketch.into(picture, frame.width, STACK + 6 * CELL + 26);
}
