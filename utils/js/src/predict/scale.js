// Numbers: where they lie on a slider, its ticks, and how they are written.

import { roundStep } from "../common/scale.js";

/** @typedef {{low: number, high: number, log: boolean, whole: boolean}} Scale */

/**
 * 0 at the left end, 1 at the right one; a number beyond an end lies on it.
 *
 * @param {Scale} scale
 * @param {number} value
 */
export function placeOf({ low, high, log }, value) {
  if (log && value <= 0) return 0;
  const place = log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
  return Math.min(1, Math.max(0, place));
}

/**
 * The scale, longer where values lie beyond its ends: by whole lengths of its own, or to a power of ten. It ends at 0
 * where no value is less.
 *
 * @param {Scale} scale
 * @param {number[]} values
 * @returns {Scale}
 */
export function reaching({ low, high, log, whole }, values) {
  const inside = values.filter((value) => Number.isFinite(value) && (!log || value > 0));
  const [least, most] = [Math.min(low, ...inside), Math.max(high, ...inside)];
  const span = high - low;
  const lengths = () => high - Math.ceil((high - least) / span) * span;
  const down = () => (log ? 10 ** Math.floor(Math.log10(least)) : Math.max(lengths(), least < 0 ? -Infinity : 0));
  const up = () => (log ? 10 ** Math.ceil(Math.log10(most)) : low + Math.ceil((most - low) / span) * span);
  return { low: least < low ? down() : low, high: most > high ? up() : high, log, whole };
}

/**
 * The number at a place, rounded to what a hand can mean: three digits, or a whole number.
 *
 * @param {Scale} scale
 * @param {number} place
 */
export function valueAt({ low, high, log, whole }, place) {
  if (log) {
    const value = low * (high / low) ** place;
    return whole && value < 1000 ? Math.round(value) : Number(value.toPrecision(3));
  }
  if (whole) return Math.round(low + place * (high - low));
  const digit = 10 ** Math.floor(Math.log10((high - low) / 200));
  return Number((Math.round((low + place * (high - low)) / digit) * digit).toPrecision(12));
}

// of a line that is 300 px long, as in the narrowest card: a letter, and the room between two labels
const LETTER = 7 / 300;
const ROOM = 10 / 300;

/**
 * The ticks, so few that their labels don't touch: both ends, and what has room between them.
 *
 * @param {Scale & {unit?: string}} scale
 * @returns {number[]}
 */
export function ticksOf(scale) {
  const { low, high, log, whole, unit = "" } = scale;
  const ticks = log ? decadesOf(low, high) : partsOf(low, high, whole);
  const half = (/** @type {number} */ value) => (onTick(value, unit).length * LETTER) / 2;
  const fits = (/** @type {number} */ one, /** @type {number} */ other) =>
    placeOf(scale, other) - placeOf(scale, one) >= half(one) + half(other) + ROOM;
  const last = ticks[ticks.length - 1];
  const kept = [ticks[0]];
  for (const tick of ticks.slice(1, -1)) if (fits(kept[kept.length - 1], tick) && fits(tick, last)) kept.push(tick);
  return [...kept, last];
}

/**
 * Every power of ten from the low end on, or every second one, and the high end.
 *
 * @param {number} low
 * @param {number} high
 */
function decadesOf(low, high) {
  const every = Math.max(1, Math.ceil(Math.round(Math.log10(high / low)) / 4));
  const ticks = [];
  for (let value = low; value <= high * 1.0001; value *= 10 ** every) ticks.push(Number(value.toPrecision(3)));
  return ticks[ticks.length - 1] < high * 0.999 ? [...ticks, high] : ticks;
}

/**
 * Both ends, and whole parts between them, or else round numbers.
 *
 * @param {number} low
 * @param {number} high
 * @param {boolean} whole
 */
function partsOf(low, high, whole) {
  const span = high - low;
  // parts whose borders are whole numbers of them
  const parts = [4, 5, 3, 2].find((n) => span % n === 0 && low % (span / n) === 0);
  if (!parts) {
    const step = Math.max(whole ? 1 : 0, roundStep(span / 5));
    const inside = Array.from({ length: 5 }, (_, i) =>
      Number(((Math.floor(low / step) + 1 + i) * step).toPrecision(12)),
    );
    return [low, ...inside.filter((value) => value < high), high];
  }
  return Array.from({ length: parts + 1 }, (_, i) => Number((low + (i * (high - low)) / parts).toPrecision(12)));
}

const BIGGER = { bytes: "KB", B: "KB", KB: "MB", MB: "GB", GB: "TB", µs: "ms", ms: "s" };

/**
 * Three digits, with commas: 1,024 and 27.1.
 *
 * @param {number} value
 */
export function written(value) {
  if (Math.abs(value) >= 1000) return Math.round(value).toLocaleString("en-US");
  return String(Number(value.toPrecision(3)));
}

/**
 * @param {number} value
 * @param {string} unit
 */
export function withUnit(value, unit) {
  return unit ? `${written(value)}${unit === "%" ? "\u00a0" : " "}${unit}` : written(value);
}

/**
 * What of a unit stands under each tick: "GB", but no word such as "micro-batches". It stands beside the field, too.
 *
 * @param {string} unit
 */
export function unitOnTick(unit) {
  return unit in BIGGER || unit.length < 4 ? unit : "";
}

/**
 * Short, under a tick: 1000 GB are 1 TB, and of what has no larger unit 1 million.
 *
 * @param {number} value
 * @param {string} unit
 */
export function onTick(value, unit) {
  if (value === 0) return "0";
  if (value >= 1000 && value % 1000 === 0 && unit in BIGGER)
    return onTick(value / 1000, BIGGER[/** @type {keyof typeof BIGGER} */ (unit)]);
  for (const [size, word] of /** @type {[number, string][]} */ ([
    [1e9, "billion"],
    [1e6, "million"],
  ])) {
    if (value >= size) return withUnit(value / size, unit ? `${word} ${unit}` : word);
  }
  return withUnit(value, unit);
}

/**
 * A typed number: "1,000", "3e5" or "14 GB". Null where it is none.
 *
 * @param {string} text
 */
export function typed(text) {
  const found = text
    .replace(/[,\s_]/g, "")
    .replace("−", "-")
    .match(/^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?/i);
  return found ? Number(found[0]) : null;
}

/**
 * How many times the larger is the smaller, where that says something.
 *
 * @param {number} a
 * @param {number} b
 */
export function timesBetween(a, b) {
  const times = a > 0 && b > 0 ? Math.max(a / b, b / a) : 1;
  return times >= 1.5 ? `${times >= 10 ? written(Math.round(times)) : Number(times.toPrecision(2))} times` : "";
}
