import assert from "node:assert/strict";
import { test } from "node:test";
import { decades, linear, logarithmic, roundTicks, stops, worldSizes } from "../../src/common/scale.js";
import { Sketch } from "../../src/common/sketch.js";
import { bytes, percent, seconds } from "../../src/common/units.js";
import { nearest } from "../../src/explore/frame.js";

test("a scale goes to pixels and back, and keeps to its ends", () => {
  for (const scale of [linear([0, 100], [50, 250]), logarithmic([1, 1e6], [50, 250])]) {
    assert.ok(Math.abs(scale.value(scale.at(37)) - 37) < 1e-9);
    assert.deepEqual([scale.value(0), scale.value(999)].map(Math.round), scale.domain);
  }
  assert.equal(logarithmic([1, 1e4], [0, 100]).at(100), 50);
});

test("ticks are round", () => {
  assert.deepEqual(decades(100, 2e9).map(Math.log10).map(Math.round), [2, 3, 4, 5, 6, 7, 8, 9]);
  assert.deepEqual(roundTicks(203, 4), [0, 100, 200]);
  assert.deepEqual(
    roundTicks(0.158, 8).map((t) => Math.round(1000 * t)),
    [0, 20, 40, 60, 80, 100, 120, 140],
  );
});

test("sliders stop at round values, once each, both ends among them", () => {
  const found = stops(1e6, 14e9);
  assert.deepEqual([found[0], found.at(-1)], [1e6, 14e9]);
  assert.ok(found.every((value, i) => i === 0 || value > found[i - 1]));
  for (const value of [2e6, 25e6, 1e9]) assert.ok(found.includes(value));
  const worlds = worldSizes(1024);
  for (const p of [2, 3, 24, 32, 64, 96, 1024]) assert.ok(worlds.includes(p), String(p));
  assert.deepEqual(worlds, [...new Set(worlds)]);
  assert.equal(worlds[nearest(worlds, 1000)], 1024);
  assert.equal(nearest([0, 0.5, 1], 0.4), 1);
});

test("quantities have two or three digits and a unit", () => {
  assert.deepEqual(
    [100, 2e6, 471e3, 14e9, 999.6e6].map((n) => bytes(n)),
    ["100 B", "2.0 MB", "471 kB", "14 GB", "1.0 GB"],
  );
  assert.deepEqual(
    [5e-6, 2.05e-4, 0.0285, 48.35, 0.12].map((s) => seconds(s)),
    ["5 µs", "205 µs", "28.5 ms", "48.4 s", "120 ms"],
  );
  assert.deepEqual([0.5, 0.031, 0].map(percent), ["50 %", "3.1 %", "0 %"]);
});

test("a sketch escapes words and rounds numbers", () => {
  /** @type {any} */
  const svg = { setAttribute() {}, innerHTML: "" };
  new Sketch().text("a", 1.26, 2, "<&>").into(svg, 10, 10);
  assert.equal(svg.innerHTML, '<text class="a" x="1.3" y="2">&lt;&amp;&gt;</text>');
});
