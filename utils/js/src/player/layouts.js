// Where each rank's card stands.

/** @typedef {import("./data.js").Layout} Layout */
/** @typedef {{x: number, y: number}} Point */
/** @typedef {{w: number, h: number}} Size */
/** @typedef {Pick<import("./playback.js").Playback, "ranks" | "columns" | "links" | "root">} Shape */

/** @type {Layout[]} */
export const LAYOUTS = ["ring", "line", "tree", "grid", "all-to-all"];

/**
 * The centre of each rank's card.
 *
 * @param {Layout} layout
 * @param {Shape} shape
 * @param {Size} card
 * @param {Point} gap the room that a packet needs between two cards
 * @param {boolean} narrow whether the picture has half the width
 * @returns {Point[]}
 */
export function placeCards(layout, shape, card, gap, narrow = false) {
  const { ranks } = shape;
  const pitch = { x: card.w + gap.x, y: card.h + gap.y };
  if (layout === "line") return Array.from({ length: ranks }, (_, r) => ({ x: r * pitch.x, y: 0 }));
  if (layout === "grid") {
    return Array.from({ length: ranks }, (_, r) => ({
      x: (r % shape.columns) * pitch.x,
      y: Math.floor(r / shape.columns) * pitch.y,
    }));
  }
  if (layout === "tree") return tree(shape, card, gap);
  if (layout === "ring" && ranks > 10 && card.w > 20) return rectangle(ranks, pitch, narrow);
  return ellipse(ranks, pitch, narrow ? 0.95 : layout === "ring" ? 0.56 : 0.66);
}

/**
 * Clockwise from the top on the smallest ellipse on which the cards stand apart; `flat` is its height by its width.
 *
 * @param {number} ranks
 * @param {Point} pitch
 * @param {number} flat
 */
function ellipse(ranks, pitch, flat) {
  for (let radius = 60; ; radius += 6) {
    const centres = Array.from({ length: ranks }, (_, r) => {
      const turn = (2 * Math.PI * r) / ranks - Math.PI / 2;
      return { x: radius * Math.cos(turn), y: radius * flat * Math.sin(turn) };
    });
    const apart = (/** @type {Point} */ a, /** @type {Point} */ b) =>
      Math.abs(a.x - b.x) >= pitch.x || Math.abs(a.y - b.y) >= pitch.y;
    if (centres.every((a, i) => centres.every((b, j) => j <= i || apart(a, b)))) return centres;
  }
}

/**
 * A ring of many cards as the edge of a rectangle, narrower than an ellipse: clockwise from the top left.
 *
 * @param {number} ranks
 * @param {Point} pitch
 * @param {boolean} narrow
 */
function rectangle(ranks, pitch, narrow) {
  const across = Math.max(2, Math.round(ranks * (narrow ? 0.19 : 0.31)));
  const down = Math.ceil((ranks - 2 * across) / 2);
  const up = ranks - 2 * across - down;
  const width = (across - 1) * pitch.x;
  const height = (down + 1) * pitch.y;
  return Array.from({ length: ranks }, (_, r) => {
    if (r < across) return { x: r * pitch.x, y: 0 };
    if (r < across + down) return { x: width, y: ((r - across + 1) * height) / (down + 1) };
    if (r < 2 * across + down) return { x: width - (r - across - down) * pitch.x, y: height };
    return { x: 0, y: height - ((r - 2 * across - down + 1) * height) / (up + 1) };
  });
}

/**
 * Breadth-first from the root over the links in use; ranks that no link reaches stand in the last row.
 *
 * @param {Shape} shape
 * @param {Size} card
 * @param {Point} gap
 */
function tree(shape, card, gap) {
  const { depths, children } = levels(shape);
  const pitch = card.w + gap.x * 0.6;
  /** @type {Point[]} */
  const centres = new Array(shape.ranks);
  let column = 0;
  /** @type {(rank: number) => number} */
  const placeWithChildren = (rank) => {
    const below = children[rank].map(placeWithChildren);
    const x = below.length ? (below[0] + below[below.length - 1]) / 2 : column++ * pitch;
    centres[rank] = { x, y: depths[rank] * (card.h + gap.y * 1.2) };
    return x;
  };
  placeWithChildren(shape.root ?? 0);
  const bottom = Math.max(...depths) + 1;
  for (let r = 0; r < shape.ranks; r++) centres[r] ??= { x: column++ * pitch, y: bottom * (card.h + gap.y) };
  return centres;
}

/**
 * How far each rank is from the root, 0 where no link reaches it, and which ranks are reached through it.
 *
 * @param {Shape} shape
 */
function levels({ ranks, links, root }) {
  /** @type {Set<number>[]} */
  const near = Array.from({ length: ranks }, () => new Set());
  for (const [a, b] of links) {
    near[a].add(b);
    near[b].add(a);
  }
  const queue = [root ?? 0];
  const seen = new Set(queue);
  /** @type {number[]} */
  const depths = new Array(ranks).fill(0);
  /** @type {number[][]} */
  const children = Array.from({ length: ranks }, () => []);
  for (const rank of queue) {
    for (const other of [...near[rank]].sort((a, b) => a - b)) {
      if (seen.has(other)) continue;
      seen.add(other);
      depths[other] = depths[rank] + 1;
      children[rank].push(other);
      queue.push(other);
    }
  }
  return { depths, children };
}
