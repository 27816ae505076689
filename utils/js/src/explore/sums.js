// Sums in few bits: p numbers between 0 and 1, added in a chain or in a tree, rounded after each addition.
// first_figures.py has the same; a test holds the two equal.

import { drawn } from "./drawn.js";

const single = new Float32Array(1);
const bits = new Uint32Array(single.buffer);

/** To the nearest number with 8 binary digits, ties to even. @param {number} value */
function brain(value) {
  single[0] = value;
  bits[0] = (bits[0] + 0x7fff + ((bits[0] >>> 16) & 1)) & 0xffff0000;
  return single[0];
}

/** @type {Record<string, (value: number) => number>} */
const ROUND = { bfloat16: brain, float32: Math.fround };

/**
 * The ranks' numbers and their sums.
 *
 * @param {number} p
 * @param {string} type of the numbers and of all sums
 * @param {string} order "ring" or "tree"
 * @returns {{exact: number, result: number, path: number[]}} path: in a ring, the sum after each addition; in a tree,
 *   that of the first 2, 4, 8 ... numbers
 */
export function summed(p, type, order) {
  const round = ROUND[type];
  let parts = Array.from({ length: p }, (_, i) => brain(drawn(i)));
  const exact = parts.reduce((a, b) => a + b);
  const path = [parts[0]];
  if (order === "ring") for (const part of parts.slice(1)) path.push(round(path[path.length - 1] + part));
  else
    while (parts.length > 1) {
      const next = [];
      for (let i = 0; i < parts.length; i += 2)
        next.push(i + 1 < parts.length ? round(parts[i] + parts[i + 1]) : parts[i]);
      parts = next;
      path.push(parts[0]);
    }
  return { exact, result: path[path.length - 1], path };
}
