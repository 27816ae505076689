// Answers of the formulas to questions in JSON on the standard input, for tests/show/widgets/test_explore_formulas.py.

import { readFileSync } from "node:fs";
import { ALGORITHMS } from "../../src/explore/all_reduce.js";
import { exposure } from "../../src/explore/buckets.js";
import { memoryOf, problem, spentOf } from "../../src/explore/plan.js";
import { dropped, skewedSeconds } from "../../src/explore/skew_cost.js";
import { spineLoads } from "../../src/explore/spines.js";
import { compute, wrongWith } from "../../src/explore/split.js";
import { adviceOf, hintOf, sentenceOf } from "../../src/explore/verdict.js";

/** @type {Record<string, (question: any) => any>} */
const FORMULAS = {
  all_reduce: ({ p, n, alpha, beta }) =>
    Object.fromEntries(ALGORITHMS.map(({ name, seconds }) => [name, seconds(p, n, { alpha, beta })])),
  buckets({ job, bucket, backward }) {
    const { calls, all, exposed } = exposure(job, bucket, backward);
    return { calls, all, exposed };
  },
  skew: ({ p, n, hottest, alpha, beta, capacity }) => ({
    seconds: skewedSeconds(p, n, hottest, { alpha, beta }, capacity),
    dropped: dropped(p, hottest, capacity),
  }),
  spines: ({ p, parts, seed }) => Object.fromEntries(spineLoads(p, p, parts, seed).entries()),
  step({ model, machine, split, assumed }) {
    const wrong = problem(model, split);
    if (wrong) return { problem: true };
    return { ...memoryOf(model, split, assumed), ...spentOf(model, machine, split, assumed) };
  },
  my_model({ data, values }) {
    /** @type {any} */
    const frame = { data, values, model: {} };
    if (wrongWith(frame, values)) return { problem: true };
    const found = compute(frame, values);
    const { kind, mfu, values: best } = adviceOf(frame, found, data.opened);
    return { sentence: sentenceOf(found), kind, mfu, best, hint: hintOf(frame, found, data.opened) };
  },
};

const questions = JSON.parse(readFileSync(0, "utf8"));
const answers = questions.map((/** @type {any} */ { formula, ...question }) => FORMULAS[formula](question));
process.stdout.write(JSON.stringify(answers));
