// Quantities and names in words.

/**
 * Bytes: "512 B", "1.5 kB", "2 MB" (powers of 1000).
 *
 * @param {number} nbytes
 */
export function size(nbytes) {
  /** @type {[string, number][]} */
  const units = [
    ["TB", 1e12],
    ["GB", 1e9],
    ["MB", 1e6],
    ["kB", 1e3],
  ];
  for (const [unit, scale] of units) {
    // 999.9 kB would be written 1000 kB
    if (nbytes >= 0.9995 * scale) return `${+(nbytes / scale).toPrecision(3)} ${unit}`;
  }
  return `${+nbytes.toPrecision(3)} B`;
}

/**
 * A time: "1.5 µs", "2 ms", "3 s".
 *
 * @param {number} us microseconds
 */
export function duration(us, digits = 3) {
  if (us >= 1e6) return `${+(us / 1e6).toPrecision(digits)} s`;
  return us >= 1e3 ? `${+(us / 1e3).toPrecision(digits)} ms` : `${+us.toPrecision(digits)} µs`;
}

/**
 * "1 chunk", "3 chunks".
 *
 * @param {number} count
 * @param {string} word
 */
export function counted(count, word) {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}

/**
 * The chunks of a message, in little room: "c0", "c0…3", "c0,2…6"; its bytes where it has none.
 *
 * @param {{chunks: number[], nbytes: number}} transfer
 */
export function chunkName({ chunks, nbytes }) {
  if (!chunks.length) return size(nbytes);
  const [first, second, last] = [chunks[0], chunks[1], chunks[chunks.length - 1]];
  if (chunks.length === 1) return `c${first}`;
  if (chunks.every((chunk, i) => chunk === first + i)) return `c${first}…${last}`;
  return `c${first},${second}${chunks.length > 2 ? `…${last}` : ""}`;
}

/**
 * "contribution of rank 1", "contributions of ranks 0 + 1".
 *
 * @param {(number | string)[]} ranks
 */
export function contributionsOf(ranks) {
  const s = ranks.length > 1 ? "s" : "";
  return `contribution${s} of rank${s} ${ranks.join(" + ")}`;
}
