// Numbers that look drawn, the same each time and in each language: first_figures.py has them too.

/** A number between 0 and 1. @param {number} n */
export function drawn(n) {
  let x = Math.imul(n + 1, 0x9e3779b1) >>> 0;
  x = Math.imul(x ^ (x >>> 16), 0x85ebca6b) >>> 0;
  x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35) >>> 0;
  return (((x ^ (x >>> 16)) >>> 0) + 0.5) / 2 ** 32;
}
