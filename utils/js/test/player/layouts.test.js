import assert from "node:assert/strict";
import { test } from "node:test";
import { LAYOUTS, placeCards } from "../../src/player/layouts.js";
import { pointAlong, route } from "../../src/player/routes.js";

/** @typedef {import("../../src/player/layouts.js").Point} Point */

const CARD = { w: 100, h: 80 };
const GAP = { x: 54, y: 48 };
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

/**
 * @param {Point[]} centres
 */
function width(centres) {
  return Math.max(...centres.map((at) => at.x)) - Math.min(...centres.map((at) => at.x));
}

for (const layout of LAYOUTS) {
  test(`${layout}: every rank has a card, and no two overlap`, () => {
    for (let ranks = 1; ranks <= 24; ranks++) {
      for (const narrow of [false, true]) {
        const centres = placeCards(layout, ring(ranks), CARD, GAP, narrow);
        assert.equal(centres.length, ranks);
        for (let i = 0; i < ranks; i++) {
          for (let j = 0; j < i; j++) {
            const dx = Math.abs(centres[i].x - centres[j].x);
            const dy = Math.abs(centres[i].y - centres[j].y);
            assert.ok(dx > CARD.w || dy > CARD.h, `${ranks} ranks: cards ${i} and ${j} overlap`);
          }
        }
      }
    }
  });
}

test("line: from left to right in one row", () => {
  const centres = placeCards("line", shape(3), CARD, GAP);
  assert.deepEqual(
    centres,
    [0, 154, 308].map((x) => ({ x, y: 0 })),
  );
});

test("grid: row by row in its columns", () => {
  const centres = placeCards("grid", { ...shape(5), columns: 3 }, CARD, GAP);
  assert.deepEqual(
    centres.map(({ x, y }) => [x / 154, y / 128]),
    [
      [0, 0],
      [1, 0],
      [2, 0],
      [0, 1],
      [1, 1],
    ],
  );
});

test("ring: clockwise, also where it is a rectangle, and narrower where it has half the width", () => {
  for (const ranks of [3, 8, 10, 11, 16]) {
    const centres = placeCards("ring", ring(ranks), CARD, GAP);
    // twice the area that the ring encloses; positive is clockwise, for y goes down
    const area = centres.reduce((sum, at, i) => {
      const next = centres[(i + 1) % ranks];
      return sum + at.x * next.y - next.x * at.y;
    }, 0);
    assert.ok(area > 0, `${ranks} ranks`);
    assert.ok(width(placeCards("ring", ring(ranks), CARD, GAP, true)) <= width(centres), `${ranks} ranks`);
  }
});

test("ring: many stand on the edge of a rectangle, its upper side first", () => {
  const centres = placeCards("ring", ring(16), CARD, GAP);
  assert.deepEqual(
    centres.slice(0, 5),
    [0, 154, 308, 462, 616].map((x) => ({ x, y: 0 })),
  );
  assert.ok(centres.slice(5, 8).every((at) => at.x === 616 && at.y > 0));
});

test("tree: from the root down, a parent in the middle above its children, strangers in the last row", () => {
  /** @type {[number, number][]} */
  const links = [
    [2, 0],
    [2, 1],
    [3, 1],
    [4, 1],
  ];
  const centres = placeCards("tree", shape(6, links, 2), CARD, GAP);
  const rows = [...new Set(centres.map((at) => at.y))].sort((a, b) => a - b);
  assert.deepEqual(
    centres.map((at) => rows.indexOf(at.y)),
    [1, 1, 0, 2, 2, 3],
  );
  assert.equal(centres[1].x, (centres[3].x + centres[4].x) / 2);
  assert.equal(centres[2].x, (centres[0].x + centres[1].x) / 2);
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
