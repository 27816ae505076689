// Which spine a hash gives a flow, as allranks.topology.hashed_spine and spine_loads have it. A test holds them equal.

/**
 * @param {number} src
 * @param {number} dst
 * @param {number} part
 * @param {number} seed
 * @param {number} spines
 */
export function hashedSpine(src, dst, part, seed, spines) {
  let h =
    Math.imul(src, 0x9e3779b1) ^ Math.imul(dst, 0x85ebca77) ^ Math.imul(part, 0xc2b2ae3d) ^ Math.imul(seed, 0x27d4eb2f);
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return ((h ^ (h >>> 16)) >>> 0) % spines;
}

/**
 * Vectors over each uplink, if each of `ranks` ranks sends one to another leaf switch.
 *
 * @param {number} ranks
 * @param {number} spines
 * @param {number} parts queue pairs of a connection
 * @param {number} seed
 */
export function spineLoads(ranks, spines, parts, seed) {
  const counts = new Array(spines).fill(0);
  for (let rank = 0; rank < ranks; rank++)
    for (let part = 0; part < parts; part++) counts[hashedSpine(rank, ranks + rank, part, seed, spines)]++;
  return counts.map((count) => count / parts);
}
