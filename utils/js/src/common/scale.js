// Axes: from values to pixels and back.

/**
 * @typedef {object} Scale
 * @property {(value: number) => number} at the pixel of a value
 * @property {(pixel: number) => number} value the value at a pixel, kept inside the axis
 * @property {[number, number]} domain
 * @property {[number, number]} range
 */

/**
 * @param {[number, number]} domain
 * @param {[number, number]} range
 * @returns {Scale}
 */
export function linear(domain, range) {
  const [a, b] = domain;
  const [x, y] = range;
  return {
    domain,
    range,
    at: (value) => x + ((value - a) / (b - a)) * (y - x),
    value: (pixel) => a + Math.min(1, Math.max(0, (pixel - x) / (y - x))) * (b - a),
  };
}

/**
 * @param {[number, number]} domain above 0
 * @param {[number, number]} range
 * @returns {Scale}
 */
export function logarithmic(domain, range) {
  const inner = linear([Math.log(domain[0]), Math.log(domain[1])], range);
  return {
    domain,
    range,
    at: (value) => inner.at(Math.log(value)),
    value: (pixel) => Math.exp(inner.value(pixel)),
  };
}

/**
 * `count` values from one end of a logarithmic axis to the other.
 *
 * @param {number} low
 * @param {number} high
 * @param {number} count
 */
export function spread(low, high, count) {
  return Array.from({ length: count }, (_, i) => low * (high / low) ** (i / (count - 1)));
}

/**
 * The powers of ten from low to high, both among them where they are powers.
 *
 * @param {number} low
 * @param {number} high
 */
export function decades(low, high) {
  const first = Math.ceil(Math.log10(low) - 1e-9);
  const last = Math.floor(Math.log10(high) + 1e-9);
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => 10 ** (first + i));
}

/**
 * The smallest round number that is not below this one: 1, 2 or 5 times a power of ten.
 *
 * @param {number} least
 */
export function roundStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return power * ([1, 2, 5, 10].find((factor) => factor * power >= least * (1 - 1e-9)) ?? 10);
}

/**
 * About `count` round values from 0 on: multiples of 1, 2 or 5 times a power of ten.
 *
 * @param {number} high
 * @param {number} count
 */
export function roundTicks(high, count) {
  const step = roundStep(high / count);
  return Array.from({ length: Math.floor(high / step + 1e-9) + 1 }, (_, i) => i * step);
}

/**
 * The places at which a logarithmic slider stops: ten a decade, and both ends.
 *
 * @param {number} low
 * @param {number} high
 */
export function stops(low, high) {
  const found = [low];
  for (const decade of decades(low / 10, high)) {
    for (const factor of [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8]) {
      const value = Number((factor * decade).toPrecision(3));
      if (value > low * (1 + 1e-9) && value < high * (1 - 1e-9)) found.push(value);
    }
  }
  return [...found, high];
}

/**
 * World sizes on a slider: every one up to 32, then eight in each octave, powers of two among them.
 *
 * @param {number} high
 */
export function worldSizes(high) {
  const found = Array.from({ length: 31 }, (_, i) => i + 2);
  for (let octave = 32; octave < high; octave *= 2) {
    for (let i = 1; i <= 8; i++) found.push(octave + (octave / 8) * i);
  }
  return found.filter((p) => p <= high);
}
