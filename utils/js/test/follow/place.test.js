// Where the window goes for an output that is in it, below it, above it, or taller than it.

import assert from "node:assert/strict";
import { test } from "node:test";
import { distanceTo } from "../../src/follow/place.js";

const WINDOW = 700;

test("what is in the window stays where it is", () => {
  assert.equal(distanceTo(100, 300, WINDOW), 0);
  assert.equal(distanceTo(8, 684, WINDOW), 0);
});

test("what fits is seen whole, with as little movement as possible", () => {
  assert.equal(distanceTo(600, 300, WINDOW), 208);
  assert.equal(distanceTo(-470, 300, WINDOW), -478);
});

test("of what is taller than the window the top is seen", () => {
  assert.equal(distanceTo(350, 2000, WINDOW), 342);
  assert.equal(distanceTo(-953, 2000, WINDOW), -961);
  assert.equal(distanceTo(8, 2000, WINDOW), 0);
});
