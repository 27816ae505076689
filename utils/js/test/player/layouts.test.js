import assert from "node:assert/strict";
import { test } from "node:test";
import { LAYOUTS, placeRanks } from "../../src/player/layouts.js";
import { pointAlong, ringRoute, route } from "../../src/player/routes.js";

/** @typedef {import("../../src/player/layouts.js").Point} Point */

const CARD = { w: 100, h: 80 };
const PACKET = { w: 38, h: 34 };

/**
 * @param {number} ranks
 * @param {[number, number][]} links
 * @param {number | null} root
 */
function shape(ranks, links = [], root = null) {
  return { ranks, links, root, columns: Math.ceil(Math.sqrt(ranks)) };
}

/** @param {number} ranks */
function ring(ranks) {
  return shape(
    ranks,
    Array.from({ length: ranks }, (_, r) => [r, (r + 1) % ranks]),
  );
}

for (const layout of LAYOUTS) {
  test(`${layout}: every rank has a place of its own, in a square of 1`, () => {
    for (let ranks = 2; ranks <= 24; ranks++) {
      const centres = placeRanks(layout, ring(ranks));
      assert.equal(centres.length, ranks);
      assert.equal(new Set(centres.map(({ x, y }) => `${x.toFixed(4)} ${y.toFixed(4)}`)).size, ranks);
      assert.ok(centres.every(({ x, y }) => x >= 0 && x <= 1 && y >= 0 && y <= 1));
    }
  });
}

test("line: from left to right in one row, or turning back in several", () => {
  assert.deepEqual(
    placeRanks("line", shape(3)),
    [0, 0.5, 1].map((x) => ({ x, y: 0.5 })),
  );
  assert.deepEqual(
    placeRanks("line", shape(5), 2).map(({ x, y }) => [x, y]),
    [
      [0, 0],
      [0.5, 0],
      [1, 0],
      [1, 1],
      [0.5, 1],
    ],
  );
});

test("grid: row by row in its columns", () => {
  const centres = placeRanks("grid", { ...shape(5), columns: 3 });
  assert.deepEqual(
    centres.map(({ x, y }) => [2 * x, y]),
    [
      [0, 0],
      [1, 0],
      [2, 0],
      [0, 1],
      [1, 1],
    ],
  );
});

test("ring: clockwise from the top", () => {
  for (const ranks of [3, 8, 10, 16]) {
    const centres = placeRanks("ring", ring(ranks));
    // twice the area that the ring encloses; positive is clockwise, for y goes down
    const area = centres.reduce((sum, at, i) => {
      const next = centres[(i + 1) % ranks];
      return sum + at.x * next.y - next.x * at.y;
    }, 0);
    assert.ok(area > 0, `${ranks} ranks`);
    assert.equal(centres[0].y, 0);
  }
});

test("tree: from the root down, a parent in the middle above its children, strangers in the last row", () => {
  /** @type {[number, number][]} */
  const links = [
    [2, 0],
    [2, 1],
    [3, 1],
    [4, 1],
  ];
  const centres = placeRanks("tree", shape(6, links, 2));
  const rows = [...new Set(centres.map((at) => at.y))].sort((a, b) => a - b);
  assert.deepEqual(
    centres.map((at) => rows.indexOf(at.y)),
    [1, 1, 0, 2, 2, 3],
  );
  assert.equal(centres[1].x, (centres[3].x + centres[4].x) / 2);
  assert.equal(centres[2].x, (centres[0].x + centres[1].x) / 2);
});

test("tree: the largest subtree hangs in the middle", () => {
  /** @type {[number, number][]} */
  const links = [
    [0, 1],
    [0, 2],
    [0, 4],
    [4, 5],
    [4, 6],
    [6, 7],
    [2, 3],
  ];
  const centres = placeRanks("tree", shape(8, links, 0));
  const children = [1, 2, 4].sort((a, b) => centres[a].x - centres[b].x);
  assert.equal(children[1], 4);
});

test("ring: a way to the next rank is rounded outwards", () => {
  const centres = [
    { x: 0, y: -130 },
    { x: 200, y: 0 },
    { x: 0, y: 130 },
    { x: -200, y: 0 },
  ];
  const middle = pointAlong(ringRoute(centres, 0, 1, CARD), 0.5);
  assert.ok(Math.hypot(middle.x / 200, middle.y / 130) > 1, "outside of the straight line, on the ellipse or beyond");
});

/**
 * How far a packet on the way comes into a card.
 *
 * @param {import("../../src/player/routes.js").Curve} curve
 * @param {Point} centre
 */
function overlap(curve, centre) {
  let most = 0;
  for (let i = 1; i < 12; i++) {
    const at = pointAlong(curve, i / 12);
    const x = (CARD.w + PACKET.w) / 2 - Math.abs(at.x - centre.x);
    const y = (CARD.h + PACKET.h) / 2 - Math.abs(at.y - centre.y);
    most = Math.max(most, Math.min(x, y));
  }
  return most;
}

test("a way is straight where nothing is between, from edge to edge", () => {
  const centres = [0, 300].map((x) => ({ x, y: 0 }));
  const { from, by, to } = route(centres, 0, 1, CARD, PACKET, false, false);
  assert.deepEqual(
    [from, by, to].map(({ x, y }) => ({ x, y: Math.round(y) })),
    [53, 150, 247].map((x) => ({ x, y: 0 })),
  );
});

test("a way goes round the cards between", () => {
  const centres = [0, 160, 320].map((x) => ({ x, y: 0 }));
  const curve = route(centres, 0, 2, CARD, PACKET, false, false);
  assert.notEqual(curve.by.y, 0);
  assert.equal(overlap(curve, centres[1]), 0);
});

test("two packets that meet pass beside each other", () => {
  const centres = [0, 300].map((x) => ({ x, y: 0 }));
  const there = pointAlong(route(centres, 0, 1, CARD, PACKET, true, false), 0.5);
  const back = pointAlong(route(centres, 1, 0, CARD, PACKET, true, false), 0.5);
  assert.ok(Math.abs(there.y - back.y) >= PACKET.h, `${there.y} and ${back.y}`);
});

test("in a grid curves go up where they can", () => {
  const centres = [0, 160, 320].map((x) => ({ x, y: 0 }));
  for (const [src, dst] of [
    [0, 2],
    [2, 0],
  ]) {
    assert.ok(route(centres, src, dst, CARD, PACKET, false, true).by.y < 0, `from ${src} to ${dst}`);
  }
});
