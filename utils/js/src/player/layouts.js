// Where each rank stands, in a square whose sides are 1: the picture stretches it to its own size.

/** @typedef {import("./data.js").Layout} Layout */
/** @typedef {{x: number, y: number}} Point */
/** @typedef {{w: number, h: number}} Size */
/** @typedef {Pick<import("./playback.js").Playback, "ranks" | "columns" | "links" | "root">} Shape */

/** @type {Layout[]} */
export const LAYOUTS = ["ring", "line", "tree", "grid", "all-to-all"];

/**
 * The centre of each rank, 0 to 1 in both directions.
 *
 * @param {Layout} layout
 * @param {Shape} shape
 * @param {number} rows of a line, which turns back at its end as a snake does; 2: a circle pressed into two columns
 * @returns {Point[]}
 */
export function placeRanks(layout, shape, rows = 1) {
  const { ranks } = shape;
  if (layout === "tree") return stretched(tree(shape));
  if (layout === "line") return stretched(snake(ranks, rows));
  if (layout === "grid") {
    return stretched(
      Array.from({ length: ranks }, (_, r) => ({ x: r % shape.columns, y: Math.floor(r / shape.columns) })),
    );
  }
  return stretched(rows > 1 && ranks > 3 ? ladder(ranks) : round(ranks));
}

/**
 * Fills the square; where all stand in one row or column, that is in the middle.
 *
 * @param {Point[]} centres
 */
function stretched(centres) {
  /** @param {"x" | "y"} side */
  const scale = (side) => {
    const values = centres.map((at) => at[side]);
    const least = Math.min(...values);
    const span = Math.max(...values) - least;
    return (/** @type {Point} */ at) => (span > 1e-9 ? (at[side] - least) / span : 0.5);
  };
  const x = scale("x");
  const y = scale("y");
  return centres.map((at) => ({ x: x(at), y: y(at) }));
}

/**
 * Clockwise from the top; of six or eight ranks more a rounded rectangle, so that their cards stand apart.
 *
 * @param {number} ranks
 */
function round(ranks) {
  const power = ranks === 6 || ranks === 8 ? 2 / 5 : 1;
  const bulge = (/** @type {number} */ part) => Math.sign(part) * (Math.abs(part) < 1e-9 ? 0 : Math.abs(part) ** power);
  return Array.from({ length: ranks }, (_, r) => {
    const turn = (2 * Math.PI * r) / ranks - Math.PI / 2;
    return { x: bulge(Math.cos(turn)), y: bulge(Math.sin(turn)) };
  });
}

/**
 * Clockwise in two columns, where the room is narrow: rank 0 at the top left.
 *
 * @param {number} ranks
 */
function ladder(ranks) {
  const right = Math.floor(ranks / 2);
  const left = ranks - right;
  return Array.from({ length: ranks }, (_, r) =>
    r >= 1 && r <= right ? { x: 1, y: (r - 1) / (right - 1) } : { x: 0, y: ((ranks - r) % ranks) / (left - 1) },
  );
}

/**
 * @param {number} ranks
 * @param {number} rows
 */
function snake(ranks, rows) {
  const across = Math.ceil(ranks / rows);
  return Array.from({ length: ranks }, (_, r) => {
    const y = Math.floor(r / across);
    return { x: y % 2 ? across - 1 - (r % across) : r % across, y };
  });
}

/**
 * Breadth-first from the root over the links in use; ranks that no link reaches stand in the last row. The largest
 * subtree hangs in the middle, so that the tree does not lean to one side.
 *
 * @param {Shape} shape
 */
function tree(shape) {
  const { depths, children } = levels(shape);
  /** @type {Point[]} */
  const centres = new Array(shape.ranks);
  let column = 0;
  /** @type {(rank: number) => number} */
  const size = (rank) => children[rank].reduce((sum, child) => sum + size(child), 1);
  /** @type {(rank: number) => number} */
  const placeWithChildren = (rank) => {
    const below = middleOut(children[rank], size).map(placeWithChildren);
    const x = below.length ? (below[0] + below[below.length - 1]) / 2 : column++;
    centres[rank] = { x, y: depths[rank] };
    return x;
  };
  placeWithChildren(shape.root ?? 0);
  const bottom = Math.max(...depths) + 1;
  for (let r = 0; r < shape.ranks; r++) centres[r] ??= { x: column++, y: bottom };
  return centres;
}

/**
 * The largest in the middle, the others by turns to its left and right.
 *
 * @param {number[]} ranks
 * @param {(rank: number) => number} size
 */
function middleOut(ranks, size) {
  /** @type {number[]} */
  const found = [];
  const sorted = [...ranks].sort((a, b) => size(b) - size(a) || a - b);
  if (sorted.every((rank) => size(rank) === size(sorted[0]))) return ranks;
  sorted.forEach((rank, i) => {
    if (i % 2) found.unshift(rank);
    else found.push(rank);
  });
  return found;
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
