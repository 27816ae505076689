// Chapter by chapter: what one GPU needed after each axis, against what it has, and the MFU where it fits.

import { Sketch } from "../common/sketch.js";
import { chapterOf } from "./chapter_link.js";
import { compute, fits, gigabytes, sums, wrongWith } from "./split.js";

/** @typedef {import("./frame.js").Frame} Frame */
/** @typedef {import("./axes.js").Axis} Axis */
/**
 * @typedef {object} Column
 * @property {string} name
 * @property {string} chapter
 * @property {string} where how the model stands there
 * @property {number} total bytes; 0 if the axis is locked
 * @property {number} limit
 * @property {string} mfu
 * @property {boolean} you
 * @property {boolean} next
 */

const HEIGHT = 64;
const MOST = 1.75;

/**
 * @param {SVGSVGElement} picture
 * @param {Frame} frame
 * @param {number} opened
 * @param {Record<string, Record<string, any>>} chosen by this reader, by widget
 */
export function drawStory(picture, frame, opened, chosen) {
  const columns = columnsOf(frame, opened, chosen);
  const sketch = new Sketch().hatching(`${frame.uid}-story`);
  const height = frame.width < 860 ? drawRows(sketch, frame, columns) : drawColumns(sketch, frame, columns);
  sketch.into(picture, frame.width, height);
  const told = columns.filter(({ total }) => total);
  picture.setAttribute(
    "aria-label",
    `Chapter by chapter: ${told.map(({ name, total, mfu }) => `${name} ${gigabytes(total)}, ${mfu}`).join("; ")}.`,
  );
}

/**
 * @param {Frame} frame
 * @param {number} opened
 * @param {Record<string, Record<string, any>>} chosen
 * @returns {Column[]}
 */
function columnsOf(frame, opened, chosen) {
  const { axes, start, after } = frame.data;
  const first = column(frame, "one GPU", "", start, false, false);
  // where no axis was opened last, the reader's choice stands behind them all
  const own = axes.some((/** @type {Axis} */ { chapter }) => chapter === after)
    ? []
    : [column(frame, "my choice", "", frame.values, true, false)];
  return [
    first,
    ...axes.map((/** @type {Axis} */ axis, /** @type {number} */ i) => {
      const you = axis.chapter === after;
      const name = axis.name.toLowerCase().replace("zero", "ZeRO");
      if (i >= opened && !you) {
        const limit = first.limit;
        return { name, chapter: chapterOf(axis), where: "", total: 0, limit, mfu: "", you, next: i === opened };
      }
      return column(
        frame,
        name,
        chapterOf(axis),
        you ? frame.values : (chosen[axis.chapter] ?? axis.values),
        you,
        false,
      );
    }),
    ...own,
  ];
}

/**
 * @param {Frame} frame
 * @param {string} name
 * @param {string} chapter
 * @param {Record<string, any>} values
 * @param {boolean} you
 * @param {boolean} next
 * @returns {Column}
 */
function column(frame, name, chapter, values, you, next) {
  if (wrongWith(frame, values)) return { name, chapter, where: "", total: 0, limit: 1, mfu: "", you, next };
  const found = compute(frame, values);
  const { total, limit } = found;
  const mfu = fits(found) ? `${Math.round(100 * sums(found).mfu)} %` : "no room";
  return { name, chapter, where: whereOf(frame, values), total, limit, mfu, you, next };
}

/** What is unlike the beginning, in two or three words. @param {Frame} frame @param {Record<string, any>} values */
function whereOf(frame, values) {
  const { start } = frame.data;
  if (values.ep) return "8 experts";
  if (values.sequence !== start.sequence) return `${Math.round(values.sequence / 1024)}k tokens`;
  if (values.machine !== start.machine) return values.machine.replace("cloud-", "");
  return `${values.ranks.toLocaleString("en")} GPU${values.ranks === 1 ? "" : "s"}`;
}

/** @param {Sketch} sketch @param {Frame} frame @param {Column[]} columns */
function drawColumns(sketch, frame, columns) {
  const wide = frame.width / columns.length;
  const base = 34 + HEIGHT;
  const unit = HEIGHT / MOST;
  sketch.text("ar-heading", 0, 18, "Chapter by chapter");
  sketch.text("ar-soft", 208, 18, "memory of one GPU, and MFU");
  for (const [i, one] of columns.entries()) {
    const x = i * wide;
    bar(sketch, frame, one, x, base, unit);
    const look = one.total ? "" : "ar-soft";
    sketch.text(look, x, base + 18, one.chapter ? `${one.chapter.replace(/\D/g, "")} ${one.name}` : one.name);
    if (one.you) tag(sketch, x, base + 25);
    else if (one.next) sketch.text("ar-strong", x, base + 36, "next");
    else if (one.where) sketch.text("ar-tick", x, base + 36, one.where);
  }
  sketch.line("ar-mark", 0, base - unit, frame.width, base - unit);
  sketch.text("ar-tick ar-end", frame.width, base - unit - 5, gigabytes(columns[0].limit));
  return base + 48;
}

/**
 * @param {Sketch} sketch
 * @param {Frame} frame
 * @param {Column} one
 * @param {number} x
 * @param {number} base where it stands
 * @param {number} unit pixels of what the GPU has
 */
function bar(sketch, frame, one, x, base, unit) {
  if (!one.total) {
    sketch.box("ar-then ar-dashed", x + 0.5, base - unit - 6, 40, unit + 6);
    return;
  }
  const share = Math.min(one.total / one.limit, MOST);
  sketch.box(one.you ? "ar-now" : "ar-work", x, base - Math.min(share, 1) * unit, 40, Math.min(share, 1) * unit, {
    rx: 2,
  });
  if (share > 1) {
    const style = `fill:url(#${frame.uid}-story)`;
    sketch.box("ar-lost", x, base - share * unit, 40, (share - 1) * unit, { rx: 2, style });
  }
  sketch.text(share > 1 ? "ar-strong ar-lost-words" : "ar-strong", x + 46, base - 20, gigabytes(one.total));
  sketch.text("ar-tick", x + 46, base - 4, one.mfu);
}

/** @param {Sketch} sketch @param {number} x @param {number} y */
function tag(sketch, x, y) {
  sketch.box("ar-you-tag", x, y, 72, 18, { rx: 4 });
  sketch.text("ar-on-you ar-middle", x + 36, y + 13.5, "you, now");
}

/** @param {Sketch} sketch @param {Frame} frame @param {Column[]} columns */
function drawRows(sketch, frame, columns) {
  const [row, left] = [26, 104];
  const unit = (frame.width - left - 144) / MOST;
  sketch.text("ar-heading", 0, 18, "Chapter by chapter");
  for (const [i, one] of columns.entries()) {
    const y = 34 + i * row;
    sketch.text(one.total ? "" : "ar-soft", 0, y + 13, one.name);
    if (!one.total) {
      sketch.box("ar-then ar-dashed", left, y, unit, 16);
      sketch.text("ar-tick", left + unit + 8, y + 13, one.chapter);
      continue;
    }
    const share = Math.min(one.total / one.limit, MOST);
    sketch.box(one.you ? "ar-you" : "ar-work", left, y, Math.min(share, 1) * unit, 16, { rx: 2 });
    if (share > 1) {
      const style = `fill:url(#${frame.uid}-story)`;
      sketch.box("ar-lost", left + unit, y, (share - 1) * unit, 16, { rx: 2, style });
    }
    sketch.text("ar-strong", left + Math.max(1, share) * unit + 8, y + 13, `${gigabytes(one.total)}, ${one.mfu}`);
  }
  sketch.line("ar-mark", left + unit, 30, left + unit, 30 + columns.length * row);
  return 40 + columns.length * row;
}
