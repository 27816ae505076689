// What the timeline's canvas shows: the lanes, with a bar for what arrives, and above them the steps or the time.

import { MOST_HUES, paintSwatch } from "./hues.js";
import { duration } from "./words.js";

/** @typedef {import("./data.js").Transfer} Transfer */
/** @typedef {import("./playback.js").Playback} Playback */
/** @typedef {import("./timeline.js").Timeline["window"]} Seen */
/** @typedef {Record<"ink"|"soft"|"line"|"hair"|"wire"|"lost"|"work"|"paper"|"on-rank"|"you"|"font", string>} Theme */
/** @typedef {{pen: CanvasRenderingContext2D, seen: Seen, theme: Theme, style: CSSStyleDeclaration}} Sheet */
/**
 * Where the first lane begins, how far apart they are, how high; where their ranks' names begin: beside a title only
 * their numbers have room.
 *
 * @typedef {{top: number, pitch: number, bar: number, names: number}} Lane
 */

const TEXT_HEIGHT = 12;

/**
 * The steps' numbers or the time, above the lanes.
 *
 * @param {Sheet} sheet
 * @param {import("./data.js").Axis} axis
 * @param {number} height
 */
export function drawAxis({ pen, seen, theme }, axis, height) {
  const { every, digits } = ticks(seen.to - seen.from, seen.length, (seen.right - seen.left) / 70);
  const by = axis === "step" ? Math.max(1, Math.round(every)) : every;
  pen.font = `12px ${theme.font}`;
  pen.textAlign = "center";
  // a step's number stands above its middle
  const shift = axis === "step" ? 0.5 : 0;
  for (let value = Math.ceil(seen.from / by) * by; value <= seen.to + 1e-9; value += by) {
    const number = axis === "step" ? Math.max(1, value) : value;
    const x = seen.x(number - shift);
    if (x > seen.right + 1 || x < seen.left - 1) continue;
    pen.fillStyle = theme.hair;
    if (axis === "time") pen.fillRect(x, 18, 1, height - 18);
    pen.fillStyle = theme.soft;
    const words = axis === "step" ? String(number) : duration(number, digits);
    const half = pen.measureText(words).width / 2;
    pen.fillText(words, Math.max(seen.left - 6 + half, Math.min(x, seen.width - half - 1)), 9);
  }
}

/**
 * The phases of an all-reduce in two parts above the lanes; false where it has none or they have no room.
 *
 * @param {Sheet} sheet
 * @param {Playback} playback
 */
export function drawPhases({ pen, seen, theme }, playback) {
  const phases = phasesOf(playback);
  if (playback.axis !== "step" || !phases.length || playback.amiss.size)
    return drawJudged({ pen, seen, theme }, playback);
  pen.font = `12px ${theme.font}`;
  pen.textAlign = "center";
  const room = phases.every(({ from, to, words }) => pen.measureText(words).width + 16 < seen.x(to) - seen.x(from));
  if (!room) return false;
  for (const { from, to, words } of phases) {
    const left = Math.max(seen.left, seen.x(from));
    const right = Math.min(seen.right, seen.x(to));
    if (right - left < pen.measureText(words).width) continue;
    pen.fillStyle = theme.soft;
    pen.fillText(words, (left + right) / 2, 8);
    pen.fillStyle = theme.line;
    pen.fillRect(left, 17, right - left - 4, 1);
  }
  return true;
}

/**
 * Of a run that went wrong: which steps are right, and which follow from what went wrong; false of another.
 *
 * @param {Pick<Sheet, "pen" | "seen" | "theme">} sheet
 * @param {Playback} playback
 */
function drawJudged({ pen, seen, theme }, { axis, amiss, follows, steps }) {
  if (axis !== "step" || !amiss.size) return false;
  pen.font = `12px ${theme.font}`;
  pen.textAlign = "center";
  pen.fillStyle = theme.soft;
  for (const [from, to, words] of /** @type {const} */ ([
    [0, follows - 1, "right"],
    [follows, steps, "follows from it"],
  ])) {
    if (to > from && pen.measureText(words).width < seen.x(to) - seen.x(from))
      pen.fillText(words, (seen.x(from) + seen.x(to)) / 2, 8);
  }
  return true;
}

/**
 * Runs of steps in which all receivers add, or all store.
 *
 * @param {Playback} playback
 */
function phasesOf({ byStep, chunks, collective, steps }) {
  const reduces = (/** @type {Transfer[]} */ step) =>
    step.length > 0 && step.every((transfer) => transfer.sign === "+");
  const stores = (/** @type {Transfer[]} */ step) => step.length > 0 && step.every((transfer) => transfer.sign === "=");
  const turn = byStep.findIndex((step) => !reduces(step));
  if (collective !== "all_reduce" || turn < 1 || !byStep.slice(turn).every(stores)) return [];
  const [first, second] = chunks > 1 ? ["reduce-scatter", "all-gather"] : ["reduce", "broadcast"];
  return [
    { from: 0, to: turn, words: `${first}: the receiver adds` },
    { from: turn, to: steps, words: `${second}: the receiver stores` },
  ];
}

/**
 * How far two ticks are apart, a 1, 2 or 5 with zeros, and the digits that tell two of them apart.
 *
 * @param {number} span of the axis that is seen
 * @param {number} length of the whole axis
 * @param {number} most how many ticks have room
 */
export function ticks(span, length, most) {
  const least = span / Math.max(2, most);
  const power = 10 ** Math.floor(Math.log10(least));
  const every = [1, 2, 5].map((f) => f * power).find((tick) => tick >= least) ?? 10 * power;
  return { every, digits: Math.max(3, Math.ceil(Math.log10(length / power))) };
}

/**
 * Where a bar is drawn; null where it is not seen.
 *
 * @param {Seen} seen
 * @param {number[]} span
 */
function across(seen, [from, to]) {
  if (to < seen.from || from > seen.to || to <= from) return null;
  const left = Math.max(seen.left, seen.x(from));
  const width = Math.min(seen.right, seen.x(to)) - left;
  return { left, width: Math.max(0.6, width - (width > 8 ? 2 : width > 3 ? 0.8 : 0)) };
}

/**
 * The lanes of one playback.
 *
 * @param {Sheet} sheet
 * @param {Playback} playback
 * @param {Lane} lane
 */
export function drawLanes(sheet, playback, lane) {
  drawNames(sheet, playback, lane);
  // what a rank computes while a collective goes on has half of the lane
  const both = playback.calls.length > 0 && playback.bars.some((bar) => bar.op === "compute" || bar.own);
  const half = both ? lane.bar / 2 - 0.5 : lane.bar;
  for (const group of arrivals(playback)) drawArrival(sheet, playback, lane, group);
  for (const transfer of playback.undelivered) {
    const [from] = playback.span(transfer);
    hatch(sheet, [from, playback.length], lane.top + transfer.src * lane.pitch, lane.bar, "lost");
  }
  for (const bar of playback.bars) {
    const y = lane.top + bar.rank * lane.pitch;
    if (bar.own) hatch(sheet, playback.span(bar), y, half, "soft");
    else if (bar.op === "wait" || playback.neverEnds(bar)) hatch(sheet, playback.span(bar), y, lane.bar, "lost");
    else if (bar.op === "compute") drawBar(sheet, playback.span(bar), y, half, "work", bar.label ?? bar.op);
    else drawBar(sheet, playback.span(bar), both ? y + half + 1 : y, half, "wire", bar.label ?? bar.op);
  }
}

/**
 * An ink line below each bar of the critical path.
 *
 * @param {Sheet} sheet
 * @param {Playback} playback
 * @param {Lane} lane
 */
export function drawPath({ pen, seen, theme }, playback, lane) {
  pen.fillStyle = theme.ink;
  const high = Math.max(1, Math.min(4, lane.bar / 4));
  for (const item of playback.critical) {
    const place = across(seen, playback.span(item));
    const rank = "dst" in item ? item.dst : item.rank;
    if (place) pen.fillRect(place.left, lane.top + rank * lane.pitch + lane.bar - high, place.width, high);
  }
}

/**
 * What arrives: in steps all that one rank gets in a step is one bar.
 *
 * @param {Playback} playback
 * @param {Transfer[]} among
 * @returns {Transfer[][]}
 */
function arrivals(playback, among = playback.transfers) {
  const delivered = among.filter((transfer) => transfer.delivered);
  if (playback.axis === "time") return delivered.map((transfer) => [transfer]);
  /** @type {Map<number, Transfer[]>} */
  const groups = new Map();
  for (const transfer of delivered) {
    const key = transfer.step * playback.ranks + transfer.dst;
    const group = groups.get(key);
    if (group) group.push(transfer);
    else groups.set(key, [transfer]);
  }
  return [...groups.values()];
}

/**
 * "+ c3", "= c0…2", or what all messages of a bar have in common.
 *
 * @param {Playback} playback
 * @param {Transfer[]} group
 */
function arrivalName(playback, group) {
  const [{ sign }] = group;
  const chunks = [...new Set(group.flatMap((transfer) => transfer.chunks))].sort((a, b) => a - b);
  const nbytes = group.reduce((sum, transfer) => sum + transfer.nbytes, 0);
  const same = group.every((transfer) => transfer.sign === sign) ? sign : "";
  return `${same} ${playback.nameOf({ chunks, nbytes })}`.trim();
}

/**
 * @param {Sheet} sheet
 * @param {Playback} playback
 * @param {Lane} lane
 * @param {Transfer[]} group
 */
function drawArrival(sheet, playback, lane, group) {
  const y = lane.top + group[0].dst * lane.pitch;
  const adds = group.every((transfer) => transfer.reduce);
  if (group[0].step >= playback.follows || group.some(({ index }) => playback.amiss.has(index))) {
    drawNotRight(sheet, playback, group, y, lane.bar);
    return;
  }
  drawBar(sheet, playback.span(group[0]), y, lane.bar, adds ? "work" : "paper", arrivalName(playback, group));
}

/**
 * A bar of what can't be right, or an empty one of what follows from it.
 *
 * @param {Sheet} sheet
 * @param {Playback} playback
 * @param {Transfer[]} group
 * @param {number} y
 * @param {number} height
 */
function drawNotRight(sheet, playback, group, y, height) {
  const { pen, seen, theme } = sheet;
  const follows = group[0].step >= playback.follows;
  if (!follows) drawBar(sheet, playback.span(group[0]), y, height, "paper", arrivalName(playback, group));
  const place = across(seen, playback.span(group[0]));
  if (!place) return;
  pen.strokeStyle = follows ? theme.line : theme.lost;
  pen.lineWidth = follows ? 1 : 2;
  pen.setLineDash(follows ? [3, 3] : []);
  pen.beginPath();
  pen.roundRect(place.left + 1, y + 1, Math.max(0, place.width - 2), height - 2, Math.min(4, height / 4));
  pen.stroke();
  pen.setLineDash([]);
}

/**
 * @param {Sheet} sheet
 * @param {number[]} span
 * @param {number} y
 * @param {number} height
 * @param {"work" | "paper" | "wire"} fill paper: hollow
 * @param {string} words
 */
function drawBar({ pen, seen, theme }, span, y, height, fill, words) {
  const place = across(seen, span);
  if (!place) return;
  const { left, width } = place;
  const thin = height < 5 || width < 4;
  pen.fillStyle = fill === "paper" && thin ? theme.hair : theme[fill];
  if (thin) {
    pen.fillRect(left, y, width, Math.max(height, 0.8));
    return;
  }
  pen.beginPath();
  pen.roundRect(left + 0.5, y + 0.5, width - 1, height - 1, Math.min(4, height / 4));
  pen.fill();
  if (fill === "paper") {
    pen.strokeStyle = theme.line;
    pen.lineWidth = 1;
    pen.stroke();
  }
  pen.font = `12px ${theme.font}`;
  if (height < TEXT_HEIGHT || pen.measureText(words).width + 8 > width) return;
  pen.textAlign = "left";
  pen.fillStyle = fill === "wire" ? theme["on-rank"] : theme.ink;
  pen.fillText(words, left + Math.min(10, (width - pen.measureText(words).width) / 2), y + height / 2 + 0.5);
}

/**
 * The bars of the step that is going on, in ink, and the one that the reader has picked.
 *
 * @param {Sheet} sheet
 * @param {Playback} playback
 * @param {Lane} lane
 * @param {Transfer | null} picked
 */
export function drawNow({ pen, seen, theme }, playback, lane, picked) {
  if (lane.pitch < 4) return;
  const now = playback.axis === "step" ? (playback.byStep[playback.current - 1] ?? []) : [];
  const shown = picked ? [...now, picked] : now;
  pen.strokeStyle = theme.ink;
  for (const [transfer] of arrivals(playback, shown)) {
    const place = across(seen, playback.span(transfer));
    if (!place || place.width < 4) continue;
    pen.strokeStyle = playback.amiss.has(transfer.index) ? theme.lost : theme.ink;
    const low = lane.bar < 15; // its words fill it: the frame stands around them
    pen.lineWidth = transfer === picked ? 3 : low ? 1.5 : 2;
    pen.beginPath();
    const y = lane.top + transfer.dst * lane.pitch;
    const inside = low ? 0 : 1;
    pen.roundRect(place.left + 1, y + inside, place.width - 2, lane.bar - 2 * inside, Math.min(4, lane.bar / 4));
    pen.stroke();
  }
}

/**
 * The reader's breakpoint: a yellow dot in ink.
 *
 * @param {Sheet} sheet
 * @param {number} x
 * @param {number} y
 * @param {number} radius
 */
export function drawStop({ pen, seen, theme }, x, y, radius) {
  if (x < seen.left || x > seen.right) return;
  pen.beginPath();
  pen.arc(x, y, radius, 0, 2 * Math.PI);
  pen.fillStyle = theme.you;
  pen.fill();
  pen.strokeStyle = theme.ink;
  pen.lineWidth = 1.5;
  pen.stroke();
}

/**
 * The ranks' names, as many as have room.
 *
 * @param {Sheet} sheet
 * @param {Playback} playback
 * @param {Lane} lane
 */
function drawNames({ pen, theme, style }, { ranks }, { top, pitch, bar, names }) {
  pen.textAlign = "left";
  pen.font = `12px ${theme.font}`;
  const every = pitch >= 12 ? 1 : ranks <= MOST_HUES ? ranks : Math.ceil(14 / pitch);
  for (let rank = 0; rank < ranks; rank++) {
    const y = top + rank * pitch;
    const name = names ? String(rank) : `rank ${rank}`;
    const room = rank % every === 0 && (rank + 12 / pitch < ranks || rank === 0 || every === 1);
    pen.fillStyle = theme.soft;
    if (ranks <= MOST_HUES) {
      const side = Math.min(10, Math.max(3, bar - 2));
      paintSwatch(pen, rank, { x: names, y: y + (bar - side) / 2, side }, style);
      pen.fillStyle = theme.soft;
      if (every === 1) pen.fillText(name, names + 15, y + bar / 2 + 0.5);
    } else if (room) pen.fillText(name, names, y + Math.max(bar, 10) / 2);
  }
}

/**
 * A hatched box: in the colour of what is lost for waits and what nobody receives, else for a wait for one's own call.
 *
 * @param {Sheet} sheet
 * @param {number[]} span
 * @param {number} y
 * @param {number} height
 * @param {"lost" | "soft"} colour
 */
function hatch({ pen, seen, theme }, span, y, height, colour) {
  const place = across(seen, span);
  if (!place) return;
  const { left, width } = place;
  pen.fillStyle = theme[colour === "soft" ? "line" : colour];
  if (height < 6 || width < 6) {
    pen.fillRect(left, y, width, Math.max(height, 0.8));
    return;
  }
  pen.save();
  pen.beginPath();
  pen.roundRect(left, y, width, height, Math.min(4, height / 4));
  pen.clip();
  pen.strokeStyle = theme[colour];
  pen.lineWidth = colour === "lost" ? 2.5 : 1.2;
  for (let x = left - height; x < left + width + height; x += 7) {
    pen.beginPath();
    pen.moveTo(x, y + height);
    pen.lineTo(x + height, y);
    pen.stroke();
  }
  pen.stroke();
  pen.restore();
}
