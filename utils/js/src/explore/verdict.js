// What a split means: whether it fits, in one sentence what it needs and takes, and what would help on the open axes.

import { percent } from "../common/units.js";
import { chapterOf, linkTo } from "./chapter_link.js";
import { bestOf, fits, gigabytes, labelOf, stepTime, sums, WAYS } from "./split.js";

/** @typedef {import("./frame.js").Frame} Frame */
/** @typedef {import("./axes.js").Axis} Axis */
/** @typedef {import("./split.js").Found} Found */
/** @typedef {import("./split.js").Values} Values */

// a difference in MFU that is not worth a word
const SAME = 0.005;

/**
 * The sentence for those who hear the page; my_model_story.sentence in Python says the same, and a test compares them.
 *
 * @param {Found} found
 */
export function sentenceOf(found) {
  const { total, limit, machine } = found;
  const held = `A GPU needs ${gigabytes(total)}, and ${machine.gpu} has ${gigabytes(limit)}`;
  if (!fits(found)) return `${held}: ${gigabytes(total - limit)} too much. This step can't run.`;
  const { all, mfu, lost } = sums(found);
  return (
    `${held}: ${gigabytes(limit - total)} to spare. A step takes ${stepTime(all)}, ` +
    `${lost > 0 ? stepTime(lost) : "none"} of it exposed: ${Math.round(100 * mfu)} % MFU.`
  );
}

/**
 * What would help on the open axes, first with as many GPUs as now.
 *
 * @typedef {"room" | "better" | "other GPUs" | "no experts" | "best" | "nothing"} Kind
 * @param {Frame} frame
 * @param {Found} found
 * @param {number} opened how many axes are open
 * @returns {{kind: Kind, count: number, mfu: number, values: Values}}
 */
export function adviceOf(frame, found, opened) {
  const { values } = found;
  const keys = frame.data.axes.slice(0, opened).map((/** @type {Axis} */ { key }) => key);
  const here = bestOf(frame, values, keys);
  if (here.count) {
    if (!fits(found)) return { kind: "room", ...here };
    return { kind: sums(found).mfu < here.mfu - SAME ? "better" : "best", ...here };
  }
  for (const ranks of keys.includes("ranks") ? elsewhere(values.ranks) : []) {
    const there = bestOf(frame, { ...values, ranks }, keys);
    if (there.count) return { kind: "other GPUs", ...there };
  }
  const without = values.ep && keys.includes("ep") ? bestOf(frame, { ...values, ep: 0 }, keys) : here;
  return { kind: without.count ? "no experts" : "nothing", ...without };
}

/** Other numbers of GPUs, more of them first. @param {number} ranks */
function elsewhere(ranks) {
  const fewer = WAYS.ranks.filter((other) => other < ranks).reverse();
  return [...WAYS.ranks.filter((other) => other > ranks), ...fewer];
}

/**
 * What would help, in words; where nothing does, the chapter that opens the next axis.
 *
 * @param {Frame} frame
 * @param {Found} found
 * @param {number} opened
 */
export function hintOf(frame, found, opened) {
  const { axes } = frame.data;
  const { kind, count, mfu, values } = adviceOf(frame, found, opened);
  const changes = axes
    .filter((/** @type {Axis} */ { key }) => key !== "ranks" && values[key] !== found.values[key])
    .map((/** @type {Axis} */ { key, name }) => `${name} ${labelOf(key, values[key])}`);
  const split = `${changes.join(", ") || "the same split"}: ${percent(mfu)} MFU`;
  const splits = `${count} split${count === 1 ? "" : "s"}`;
  const ends = count === 1 ? "fits" : "fit";
  if (kind === "room") return `There is room with ${split}. That is the best of ${splits} that ${ends}.`;
  if (kind === "better") return `The best of the ${splits} that ${ends} is ${split}.`;
  const nothing = "No choice on your axes makes room";
  if (kind === "no experts") return `${nothing} for the experts. Without them there is room with ${split}.`;
  if (kind === "other GPUs")
    return `${nothing} on ${gpus(found.values.ranks)}. On ${gpus(values.ranks)} there is room with ${split}.`;
  /** @type {Axis | undefined} */
  const next = axes[opened];
  const said = kind === "best" ? `Of the ${splits} that ${ends}, none is better.` : `${nothing}.`;
  if (!next) return said;
  const link = `${linkTo(frame, next, `${next.title} (${chapterOf(next)})`)} opens the next axis.`;
  // what the model needs there is told of the course's choice, and would be wrong of another
  const course = axes[opened - 1]?.values ?? frame.data.start;
  const asInCourse = Object.keys(course).every((key) => course[key] === found.values[key]);
  return `${said} ${link}${asInCourse ? ` ${next.needs}` : ""}`;
}

/** @param {number} ranks */
const gpus = (ranks) => (ranks === 1 ? "one GPU" : `${ranks.toLocaleString("en")} GPUs`);
