// Seconds of five all-reduce algorithms, as allranks.cost has them. A test holds the two equal.

/**
 * @typedef {{alpha: number, beta: number}} Link seconds a message, seconds a byte
 * @typedef {{name: string, seconds: (p: number, n: number, link: Link) => number}} Algorithm
 */

/** @param {number} x */
const bitLength = (x) => 32 - Math.clz32(x);

/** @param {number} p */
const ceilLg = (p) => bitLength(p - 1);

/** @param {number} p the largest power of two that is at most p */
const floorPower = (p) => 2 ** (bitLength(p) - 1);

/**
 * The fold: where p is no power of two, one step of n bytes before and one after.
 *
 * @param {number} p
 */
const foldSteps = (p) => (floorPower(p) === p ? 0 : 2);

/**
 * Steps of the double binary tree with k segments a half.
 *
 * @param {number} p
 * @param {number} k
 */
function doubleTreeSteps(p, k) {
  if (p <= 2) return p === 2 ? k : 0;
  const height = bitLength((p - 1) >> 1) + (p % 2 === 0 ? 1 : 0);
  return 2 * (k + height - 1) - (p % 2 === 0 ? 1 : 0);
}

const MOST_SEGMENTS = 64;

/**
 * @param {number} p
 * @param {number} n
 * @param {Link} link
 * @param {number} k
 */
function doubleTreeWith(p, n, { alpha, beta }, k) {
  return 2 * doubleTreeSteps(p, k) * (alpha + (n / (2 * k)) * beta);
}

/**
 * With the best number of segments up to 64: the time is convex in k, so it is one of the two beside the ideal.
 *
 * @param {number} p
 * @param {number} n
 * @param {Link} link
 */
function doubleTree(p, n, link) {
  const waiting = doubleTreeSteps(p, 1) - 2;
  const ideal = Math.sqrt((Math.max(0, waiting) * n * link.beta) / (4 * link.alpha));
  const low = Math.max(1, Math.min(MOST_SEGMENTS, Math.floor(ideal)));
  const high = Math.min(MOST_SEGMENTS, low + 1);
  return Math.min(doubleTreeWith(p, n, link, low), doubleTreeWith(p, n, link, high));
}

/** @type {Algorithm[]} */
export const ALGORITHMS = [
  { name: "ring", seconds: (p, n, { alpha, beta }) => 2 * (p - 1) * alpha + 2 * ((n * (p - 1)) / p) * beta },
  { name: "tree", seconds: (p, n, { alpha, beta }) => 2 * ceilLg(p) * (alpha + n * beta) },
  {
    name: "recursive doubling",
    seconds: (p, n, { alpha, beta }) => (bitLength(p) - 1 + foldSteps(p)) * (alpha + n * beta),
  },
  {
    name: "rabenseifner",
    seconds(p, n, { alpha, beta }) {
      const q = floorPower(p);
      const steps = 2 * (bitLength(p) - 1) + foldSteps(p);
      return steps * alpha + (2 * ((n * (q - 1)) / q) + foldSteps(p) * n) * beta;
    },
  },
  { name: "double binary tree", seconds: doubleTree },
];

/**
 * The sizes at which the fastest algorithm changes, and which it is before, between and after them.
 *
 * @param {number} p
 * @param {Link} link
 * @param {number[]} sizes rising
 * @param {number[][]} times of each algorithm at each size
 */
export function winners(p, link, sizes, times) {
  const first = sizes.map((_, i) => best(times.map((row) => row[i])));
  const found = [{ from: sizes[0], to: sizes[0], winner: first[0] }];
  for (let i = 1; i < sizes.length; i++) {
    const last = found[found.length - 1];
    if (first[i] !== last.winner) {
      const at = crossing(p, link, last.winner, first[i], sizes[i - 1], sizes[i]);
      last.to = at;
      found.push({ from: at, to: at, winner: first[i] });
    }
  }
  found[found.length - 1].to = sizes[sizes.length - 1];
  return found;
}

/** @param {number[]} values the index of the least; of equal ones the first */
export function best(values) {
  return values.indexOf(Math.min(...values));
}

/**
 * Where `other` becomes faster than `one`, by halving the interval.
 *
 * @param {number} p
 * @param {Link} link
 * @param {number} one
 * @param {number} other
 * @param {number} low
 * @param {number} high
 */
function crossing(p, link, one, other, low, high) {
  let [a, b] = [low, high];
  for (let i = 0; i < 40; i++) {
    const middle = Math.sqrt(a * b);
    if (ALGORITHMS[other].seconds(p, middle, link) < ALGORITHMS[one].seconds(p, middle, link)) b = middle;
    else a = middle;
  }
  return b;
}
