// A router of 16 experts for 1,024 tokens of four ranks, as first_figures.py has it. A test holds the two equal.

import { drawn } from "./drawn.js";

export const [TOKENS, EXPERTS, EACH] = [1024, 16, 2];
/** How many choices an expert gets on average. */
export const MEAN = (TOKENS * EACH) / EXPERTS;
/** Which place in popularity each expert has. */
const PLACES = [7, 3, 0, 1, 6, 5, 8, 2, 4, 11, 12, 9, 15, 10, 14, 13];

const NOISE = Float64Array.from({ length: TOKENS * EXPERTS }, (_, n) => -Math.log(-Math.log(drawn(n))));

/** @type {Map<number, number[][]>} what was counted before; a frame asks several times */
const known = new Map();

/**
 * How many choices each expert gets, by the rank whose tokens they are.
 *
 * @param {number} uneven 0: all experts are as popular
 * @returns {number[][]} a list of four for each expert
 */
export function routed(uneven) {
  const before = known.get(uneven);
  if (before) return before;
  const liked = PLACES.map((place) => -uneven * Math.log(1 + 0.22 * place));
  const counts = PLACES.map(() => [0, 0, 0, 0]);
  for (let t = 0; t < TOKENS; t++) {
    let [first, second, best, next] = [-1, -1, -Infinity, -Infinity];
    for (let e = 0; e < EXPERTS; e++) {
      const score = liked[e] + NOISE[t * EXPERTS + e];
      if (score > best) [second, next, first, best] = [first, best, e, score];
      else if (score > next) [second, next] = [e, score];
    }
    const rank = Math.floor((4 * t) / TOKENS);
    counts[first][rank]++;
    counts[second][rank]++;
  }
  known.set(uneven, counts);
  return counts;
}

/**
 * What a capacity drops and leaves empty.
 *
 * @param {number} uneven
 * @param {number} capacity times the mean
 */
export function room(uneven, capacity) {
  const counts = routed(uneven);
  const sums = counts.map((mine) => mine.reduce((a, b) => a + b));
  const most = Math.ceil(capacity * MEAN);
  const dropped = sums.reduce((all, n) => all + Math.max(0, n - most), 0);
  const empty = sums.reduce((all, n) => all + Math.max(0, most - n), 0);
  return { counts, sums, most, dropped: dropped / (TOKENS * EACH), empty: empty / (EXPERTS * most) };
}
