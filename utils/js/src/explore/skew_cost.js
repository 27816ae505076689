// An all-to-all with a favourite, as allranks.cost.skewed_exchange_s has it. A test holds the two equal.

/**
 * The share of all tokens above the favourite's capacity; `capacity` 0 is none.
 *
 * @param {number} p
 * @param {number} hottest
 * @param {number} capacity
 */
export function dropped(p, hottest, capacity) {
  return capacity ? Math.max(0, hottest - capacity / p) : 0;
}

/**
 * @param {number} p
 * @param {number} n bytes that a rank sends, its own part among them
 * @param {number} hottest
 * @param {import("./all_reduce.js").Link} link
 * @param {number} capacity
 */
export function skewedSeconds(p, n, hottest, { alpha, beta }, capacity) {
  if (p === 1) return 0;
  const part = Math.max(hottest - dropped(p, hottest, capacity), (1 - hottest) / (p - 1));
  return (p - 1) * (alpha + part * n * beta);
}
