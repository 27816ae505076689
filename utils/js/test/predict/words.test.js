import assert from "node:assert/strict";
import { test } from "node:test";
import { answered } from "../../src/predict/types.js";
import { isRight, plain, saidInWords, shapeOf } from "../../src/predict/words.js";

// the same curves are in tests/show/widgets/test_prediction.py
const CURVES = /** @type {[string, number[]][]} */ ([
  ["it grows", [1, 2, 3, 4, 5]],
  ["it grows, then levels off", [1, 4, 6, 6.2, 6.3]],
  ["it stays level", [3, 3.1, 3, 3, 3.2]],
  ["it falls", [6, 5, 4, 3, 1]],
  ["it falls, then levels off", [8, 3, 1, 1, 0.9]],
  ["it rises, then falls", [1, 4, 7, 4, 2]],
  ["it falls, then rises", [6, 3, 1, 3, 5]],
]);

for (const [words, curve] of CURVES) test(`a curve in words: ${words}`, () => assert.equal(shapeOf(curve, 8), words));

test("signs for code and bold are left out, others stay", () => {
  assert.equal(plain("`x`, **two** and 2 * (p - 1) * n"), "x, two and 2 * (p - 1) * n");
});

test("each kind of answer has its words", () => {
  const asked = {
    name: "",
    question: "",
    title: "",
    choices: [],
    unit: "GB",
    low: 0,
    high: 8,
    log: false,
    whole: false,
  };
  const more = { ...asked, x: [1, 2, 3], x_label: "" };
  assert.equal(saidInWords({ ...more, kind: "number" }, { value: 434 }), "434 GB");
  assert.equal(saidInWords({ ...more, kind: "choice" }, { value: "`sum`" }), "`sum`");
  assert.equal(saidInWords({ ...more, kind: "sketch" }, { value: [1, 3, 5] }), "it grows");
});

test("0 is an answer, an empty one is none, and a declined one is one", () => {
  assert.deepEqual([{ value: 0 }, {}, { declined: true }, undefined].map(answered), [true, false, true, false]);
});

// the same answers are in tests/show/widgets/test_prediction.py
const ANSWERS = /** @type {[string | number[] | number[][], string | number | number[], boolean][]} */ ([
  ["`every` rank", "every rank", true],
  ["`every` rank", "rank 0", false],
  [[6, 6], 6, true],
  [[6, 6], 5, false],
  [[21.7, 33.9], 33, true],
  [[21.7, 33.9], 434, false],
  [
    [
      [0, 2],
      [1, 3],
    ],
    [1, 3],
    true,
  ],
  [
    [
      [0, 2],
      [1, 3],
    ],
    [1, 4],
    false,
  ],
]);

for (const [right, said, is] of ANSWERS)
  test(`${JSON.stringify(said)} is ${is ? "right" : "wrong"} where ${JSON.stringify(right)} is accepted`, () => {
    assert.equal(isRight({ right }, said), is);
  });
