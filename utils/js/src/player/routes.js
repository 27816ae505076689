// How a message's way runs from one card to another.

/** @typedef {import("./layouts.js").Point} Point */
/** @typedef {import("./layouts.js").Size} Size */
/** @typedef {{from: Point, by: Point, to: Point}} Curve a quadratic curve; `by` is its control point */

// tried in this order, as shares of the distance; negative: to the other side
const BENDS = [0, -0.2, 0.2, -0.3, 0.3, -0.4, 0.4, -0.5, 0.5, -0.6, 0.6, -0.8, 0.8, -1.1, 1.1];

/**
 * The way from card `src` to card `dst` that keeps its packets off the other cards.
 *
 * @param {Point[]} centres
 * @param {number} src
 * @param {number} dst
 * @param {Size} card
 * @param {Size} packet
 * @param {boolean} bothWays messages go both ways: each keeps to its left, so that two packets pass beside each other
 * @param {boolean} upwards curves go up and left where they can, so that those of one row don't meet those of the next
 * @param {Curve[]} together the ways of packets that fly at the same time: they should not meet
 * @returns {Curve}
 */
export function route(centres, src, dst, card, packet, bothWays, upwards, together = []) {
  const a = centres[src];
  const b = centres[dst];
  const distance = Math.hypot(b.x - a.x, b.y - a.y) || 1;
  // across the straight line
  const normal = { x: -(b.y - a.y) / distance, y: (b.x - a.x) / distance };
  const shift = bothWays ? (Math.abs(normal.x) * packet.w + Math.abs(normal.y) * packet.h) / 2 + 1 : 0;
  const others = centres.filter((_, r) => r !== src && r !== dst);
  /** @type {Curve | null} */
  let best = null;
  let least = Number.POSITIVE_INFINITY;
  for (const bend of BENDS) {
    const aside = bend && !upwards ? { x: 0, y: 0 } : { x: -normal.x * shift, y: -normal.y * shift };
    const by = {
      // a curve comes half as near to its control point
      x: (a.x + b.x) / 2 - normal.x * bend * distance + aside.x * (bend ? 2 : 1),
      y: (a.y + b.y) / 2 - normal.y * bend * distance + aside.y * (bend ? 2 : 1),
    };
    const curve = { from: edge(a, by, card, aside), by, to: edge(b, by, card, aside) };
    const down = -bend * (Math.abs(normal.x) > Math.abs(normal.y) ? normal.x : normal.y) > 0;
    const bent = Math.abs(bend) * 3 + (upwards && bend && down ? 40 : 0);
    const cost = bent + covered(curve, others, card, packet) + met(curve, together, packet);
    if (cost < least) {
      best = curve;
      least = cost;
    }
    if (!cost) break;
  }
  return /** @type {Curve} */ (best);
}

/**
 * The way to the next rank of a ring, rounded as the ring is.
 *
 * @param {Point[]} centres
 * @param {number} src
 * @param {number} dst
 * @param {Size} card
 * @returns {Curve}
 */
export function ringRoute(centres, src, dst, card) {
  const a = centres[src];
  const b = centres[dst];
  // four ranks: a quarter of an ellipse, whose tangents meet in its corner
  const bulge = centres.length === 4 ? 2 : centres.length < 4 ? 1.3 : 1.08;
  const by = { x: ((a.x + b.x) / 2) * bulge, y: ((a.y + b.y) / 2) * bulge };
  const aside = { x: 0, y: 0 };
  return { from: edge(a, by, card, aside), by, to: edge(b, by, card, aside) };
}

/**
 * How much a packet on the curve covers of cards.
 *
 * @param {Curve} curve
 * @param {Point[]} centres
 * @param {Size} card
 * @param {Size} packet
 */
function covered(curve, centres, card, packet) {
  let sum = 0;
  for (const centre of centres) {
    for (let i = 1; i < 12; i += 2) {
      const at = pointAlong(curve, i / 12);
      const width = (card.w + packet.w) / 2 - Math.abs(at.x - centre.x);
      const height = (card.h + packet.h) / 2 - Math.abs(at.y - centre.y);
      if (width > 0 && height > 0) sum += Math.min(width, height);
    }
  }
  return sum;
}

/**
 * How much a packet on the curve covers of those that fly at the same time.
 *
 * @param {Curve} curve
 * @param {Curve[]} together
 * @param {Size} packet
 */
function met(curve, together, packet) {
  let sum = 0;
  for (const other of together) {
    for (const t of [0.3, 0.5, 0.7]) {
      const [a, b] = [pointAlong(curve, t), pointAlong(other, t)];
      sum += Math.max(0, Math.min(packet.w - Math.abs(a.x - b.x), packet.h - Math.abs(a.y - b.y)));
    }
  }
  return sum;
}

/**
 * Where the line from beside a card's centre towards a point leaves the card.
 *
 * @param {Point} centre
 * @param {Point} towards
 * @param {Size} card
 * @param {Point} aside
 * @returns {Point}
 */
function edge(centre, towards, card, aside) {
  const x = centre.x + aside.x;
  const y = centre.y + aside.y;
  const dx = towards.x - x || 1e-6;
  const dy = towards.y - y || 1e-6;
  const scale = Math.min(
    ((card.w / 2 + 3) * Math.sign(dx) - aside.x) / dx,
    ((card.h / 2 + 3) * Math.sign(dy) - aside.y) / dy,
  );
  return { x: x + dx * scale, y: y + dy * scale };
}

/**
 * The point of a curve at t, 0 to 1.
 *
 * @param {Curve} curve
 * @param {number} t
 * @returns {Point}
 */
export function pointAlong({ from, by, to }, t) {
  const u = 1 - t;
  return {
    x: u * u * from.x + 2 * u * t * by.x + t * t * to.x,
    y: u * u * from.y + 2 * u * t * by.y + t * t * to.y,
  };
}
