import assert from "node:assert/strict";
import { test } from "node:test";
import {
  onTick,
  placeOf,
  reaching,
  ticksOf,
  timesBetween,
  typed,
  unitOnTick,
  valueAt,
  withUnit,
  written,
} from "../../src/predict/scale.js";

const gigabytes = { low: 1, high: 1000, log: true, whole: false };
const messages = { low: 0, high: 16, log: false, whole: true };

test("a decade is as long as any other on a logarithmic slider", () => {
  assert.deepEqual(
    [1, 10, 100, 1000].map((value) => placeOf(gigabytes, value).toFixed(4)),
    ["0.0000", "0.3333", "0.6667", "1.0000"],
  );
});

test("a number beyond an end lies on the end", () => {
  assert.deepEqual([placeOf(gigabytes, 0), placeOf(gigabytes, 5000), placeOf(messages, -3)], [0, 1, 0]);
});

test("a scale is made as long as what was said and what it was need", () => {
  const times = { low: 0.5, high: 2.5, log: false, whole: false };
  const longer = reaching(times, [7, 2.91]);
  assert.deepEqual(longer, { ...times, high: 8.5 });
  assert.ok(placeOf(longer, 2.91) < placeOf(longer, 7) && placeOf(longer, 7) < 1, "two numbers, two places");
  assert.deepEqual(reaching(messages, [-3, 40]), { ...messages, low: -16, high: 48 });
  const megabytes = { low: 100, high: 3000, log: false, whole: false };
  assert.deepEqual(reaching(megabytes, [3, 579]), { ...megabytes, low: 0 }, "no memory is less than none");
  assert.deepEqual(reaching(gigabytes, [5000, 0.02, 0]), { ...gigabytes, low: 0.01, high: 10000 });
  assert.deepEqual(reaching(messages, [0, 16]), messages);
});

test("a place gives three digits, or a whole number", () => {
  assert.equal(valueAt(gigabytes, 0.5), 31.6);
  assert.equal(valueAt(messages, 0.4), 6);
  assert.equal(valueAt({ low: 0, high: 3, log: false, whole: false }, 0.5), 1.5);
});

test("ticks stand at decades, or at equal distances that are whole", () => {
  assert.deepEqual(ticksOf(gigabytes), [1, 10, 100, 1000]);
  assert.deepEqual(ticksOf(messages), [0, 4, 8, 12, 16]);
  assert.deepEqual(ticksOf({ low: 0, high: 5, log: false, whole: true }), [0, 1, 2, 3, 4, 5]);
  assert.equal(ticksOf({ low: 0.01, high: 1e6, log: true, whole: false }).length, 5);
  // 100,000 tokens and 1M tokens have no room beside each other
  assert.deepEqual(ticksOf({ low: 10, high: 1e6, log: true, whole: true, unit: "tokens" }), [10, 1000, 1e6]);
  // between ends that no whole parts lead from and to there are round numbers
  assert.deepEqual(ticksOf({ low: 0.5, high: 20, log: false, whole: false }), [0.5, 5, 10, 15, 20]);
  assert.deepEqual(ticksOf({ low: 1, high: 8, log: false, whole: false }), [1, 2, 4, 6, 8]);
});

test("numbers are written with three digits, units under ticks grow", () => {
  assert.deepEqual([27.125, 434, 1024, 0.5].map(written), ["27.1", "434", "1,024", "0.5"]);
  assert.equal(withUnit(27.125, "GB"), "27.1 GB");
  assert.deepEqual(
    [onTick(1000, "GB"), onTick(0, "n"), onTick(1e6, ""), onTick(10, "ms"), onTick(1e5, "bytes")],
    ["1 TB", "0", "1 million", "10 ms", "100 KB"],
  );
  assert.deepEqual([onTick(1e7, "bytes"), onTick(1e9, "bytes"), onTick(1e9, "B")], ["10 MB", "1 GB", "1 GB"]);
  assert.deepEqual([onTick(1e10, ""), onTick(2e6, "n")], ["10 billion", "2 million n"]);
  assert.deepEqual(["GB", "%", "bytes", "micro-batches"].map(unitOnTick), ["GB", "%", "bytes", ""]);
});

test("what readers type is understood, or refused", () => {
  assert.deepEqual(["1,000", "3e5", " 14 GB", "-2", ".5"].map(typed), [1000, 300000, 14, -2, 0.5]);
  assert.deepEqual(["", "many", "GB"].map(typed), [null, null, null]);
});

test("how many times one number is the other is said only where it says something", () => {
  assert.equal(timesBetween(434, 27.1), "16 times");
  assert.equal(timesBetween(10, 4), "2.5 times");
  assert.equal(timesBetween(10, 9), "");
  assert.equal(timesBetween(10, 0), "");
});
