import assert from "node:assert/strict";
import { test } from "node:test";
import { ALGORITHMS, winners } from "../../src/explore/all_reduce.js";
import { exposure, lanes } from "../../src/explore/buckets.js";
import { problem } from "../../src/explore/plan.js";

const link = { alpha: 5e-6, beta: 1 / 50e9 };
const sizes = Array.from({ length: 140 }, (_, i) => 100 * 2e7 ** (i / 139));

/** @param {number} p */
function ribbon(p) {
  const times = ALGORITHMS.map(({ seconds }) => sizes.map((n) => seconds(p, n, link)));
  return winners(p, link, sizes, times).map(({ to, winner }) => ({ to, name: ALGORITHMS[winner].name }));
}

test("on 24 ranks the fastest changes twice, where two formulas are equal", () => {
  const found = ribbon(24);
  assert.deepEqual(
    found.map(({ name }) => name),
    ["recursive doubling", "rabenseifner", "ring"],
  );
  for (const [i, { to }] of found.slice(0, -1).entries()) {
    const [one, other] = [found[i].name, found[i + 1].name].map((name) => {
      const { seconds } = /** @type {typeof ALGORITHMS[0]} */ (ALGORITHMS.find((a) => a.name === name));
      return seconds(24, to, link);
    });
    assert.ok(Math.abs(one / other - 1) < 1e-9);
  }
});

test("on 32 ranks the ring never wins", () => {
  assert.deepEqual(
    ribbon(32).map(({ name }) => name),
    ["recursive doubling", "rabenseifner"],
  );
});

test("the lanes end where the formula says", () => {
  const job = { nbytes: 14e9, ranks: 32, alpha: 5e-6, bytesPerS: 200e9 };
  for (const bucket of [5e6, 25e6, 1e9, 14e9]) {
    for (const backward of [0.05, 0.3]) {
      const found = exposure(job, bucket, backward);
      const last = lanes(found, backward).at(-1);
      assert.ok(Math.abs((last?.end ?? 0) - backward - found.exposed) < 1e-9);
    }
  }
});

test("a split that is impossible says why", () => {
  const model = {
    parameters: 7e9,
    layers: 32,
    hidden: 4096,
    sequence: 2048,
    experts: 0,
    top_k: 0,
    expert_parameters: 0,
    vocabulary: 0,
  };
  const split = { dp: 8, tp: 1, pp: 1, cp: 1, ep: 1, zero_stage: 0, batch: 256, microbatch: 1, bucket: 0 };
  assert.equal(problem(model, split), "");
  assert.match(problem(model, { ...split, dp: 0.5 }), /not enough GPUs/);
  assert.match(problem(model, { ...split, pp: 3 }), /32 layers/);
  assert.match(problem(model, { ...split, ep: 2 }), /0 experts/);
});
