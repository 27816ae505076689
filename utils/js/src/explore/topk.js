// Four ranks descend together, each sending only its largest numbers, as first_figures.py has it. A test holds the two
// equal.

import { drawn } from "./drawn.js";

export const [RANKS, NUMBERS, STEPS] = [4, 64, 200];
const RATE = 0.02;
/** What all ranks want, and on the first eight coordinates what each wants besides: these cancel. */
const COMMON = Array.from({ length: NUMBERS }, (_, i) => 4 * (drawn(i) - 0.5));
const APART = [4, -4, 4, -4];

/** @type {Map<string, number[]>} */
const known = new Map();

/**
 * The loss before the first step and after each.
 *
 * @param {number} k how many numbers a rank sends in each step
 * @param {boolean} feedback whether it adds what it did not send to its next gradient
 */
export function losses(k, feedback) {
  const key = `${k} ${feedback}`;
  const found = known.get(key) ?? descend(k, feedback);
  known.set(key, found);
  return found;
}

/** @param {number} k @param {boolean} feedback */
function descend(k, feedback) {
  const x = new Float64Array(NUMBERS);
  const errors = APART.map(() => new Float64Array(NUMBERS));
  const found = [lossOf(x)];
  const wanted = new Float64Array(NUMBERS);
  const sizes = new Float64Array(NUMBERS);
  for (let step = 0; step < STEPS; step++) {
    const total = new Float64Array(NUMBERS);
    for (let r = 0; r < RANKS; r++) {
      for (let i = 0; i < NUMBERS; i++) {
        wanted[i] = RATE * (x[i] - COMMON[i] - (i < 8 ? APART[r] : 0)) + errors[r][i];
        sizes[i] = Math.abs(wanted[i]);
      }
      const least = sizes.slice().sort()[NUMBERS - k];
      for (let i = 0; i < NUMBERS; i++) {
        const sent = sizes[i] >= least;
        if (sent) total[i] += wanted[i];
        errors[r][i] = feedback && !sent ? wanted[i] : 0;
      }
    }
    for (let i = 0; i < NUMBERS; i++) x[i] -= total[i] / RANKS;
    found.push(lossOf(x));
  }
  return found;
}

/** @param {Float64Array} x */
function lossOf(x) {
  let sum = 0;
  for (let i = 0; i < NUMBERS; i++) sum += (x[i] - COMMON[i]) ** 2;
  return sum / 2;
}

/**
 * The bytes that a rank receives in a step: of every other rank k numbers and their places, 4 bytes each. For all
 * numbers an all-reduce needs no places.
 *
 * @param {number} k
 */
export const stepBytes = (k) => (k === NUMBERS ? (2 * (RANKS - 1) * NUMBERS * 4) / RANKS : (RANKS - 1) * k * 8);
