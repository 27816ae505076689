// Answers of the formulas to questions in JSON on the standard input, for tests/show/widgets/test_explore_formulas.py.

import { readFileSync } from "node:fs";
import { ALGORITHMS } from "../../src/explore/all_reduce.js";
import { ringWork } from "../../src/explore/attention.js";
import { exposure } from "../../src/explore/buckets.js";
import { flagBytes } from "../../src/explore/flag.js";
import { fsdpRun } from "../../src/explore/fsdp_run.js";
import { lostShares } from "../../src/explore/interval.js";
import { criticalPath } from "../../src/explore/path.js";
import { allowed, runPipeline } from "../../src/explore/pipeline_run.js";
import { memoryOf, problem, spentOf } from "../../src/explore/plan.js";
import { run as recomputed } from "../../src/explore/recompute.js";
import { room } from "../../src/explore/routing.js";
import { wished } from "../../src/explore/search.js";
import { dropped, skewedSeconds } from "../../src/explore/skew_cost.js";
import { spineLoads } from "../../src/explore/spines.js";
import { compute, wrongWith } from "../../src/explore/split.js";
import { summed } from "../../src/explore/sums.js";
import { losses, stepBytes } from "../../src/explore/topk.js";
import { gatherSeconds } from "../../src/explore/uneven.js";
import { adviceOf, hintOf, sentenceOf } from "../../src/explore/verdict.js";
import { written } from "../../src/explore/writes.js";

/** A list with names. @param {string} name @param {number[]} values */
const numbered = (name, values) => Object.fromEntries(values.map((value, i) => [`${name} ${i}`, value]));

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
  pipeline({ order, p, m }) {
    if (allowed(order, p, m) !== m) return { allowed: allowed(order, p, m) };
    const { spans, makespan, idle, kept } = runPipeline(order, p, m);
    const starts = spans.map((mine) => mine.reduce((sum, { start, i }, at) => sum + start * (at + 1) * (i + 1), 0));
    return { makespan, idle, ...numbered("kept", kept), ...numbered("starts", starts) };
  },
  attention: ({ owner }) => numbered("work", ringWork(owner).flat()),
  fsdp({ gather, room }) {
    const { computing, network, most, seconds, waits } = fsdpRun(gather, room);
    const ends = numbered(
      "end",
      computing.map(({ end }) => end),
    );
    return {
      ...ends,
      ...numbered(
        "message",
        network.map(({ end }) => end),
      ),
      most,
      seconds,
      waits,
    };
  },
  uneven: ({ p, share, data }) => gatherSeconds(p, share, data),
  writes({ looks, after }) {
    const { arrive, flag, reads, fresh } = written(looks, after);
    return { last: Math.max(...arrive), flag, reads, fresh };
  },
  flag: ({ p, steps, library }) => numbered("byte", flagBytes(p, steps, library)),
  path({ way, nvlink, card, data }) {
    const { total, bound, onCard } = criticalPath(way, nvlink, card, data);
    return { total, bound, onCard };
  },
  search({ steps, rounds, nbytes, data }) {
    const { wish, rings, why } = wished(steps, rounds, nbytes, data);
    return { wish, rings, never: Number(why !== "") };
  },
  interval: ({ seconds, cost, mtbf }) => lostShares(seconds, cost, mtbf),
  bits({ p, type, order }) {
    const { exact, result } = summed(p, type, order);
    return { exact, result };
  },
  compress: ({ k, feedback }) => ({ ...numbered("loss", losses(k, feedback)), bytes: stepBytes(k) }),
  recompute({ data, what, count }) {
    const { most, seconds } = recomputed(data, what, count);
    return { most, seconds };
  },
  router({ uneven, capacity }) {
    const { counts, most, dropped, empty } = room(uneven, capacity);
    return { most, dropped, empty, ...numbered("count", counts.flat()) };
  },
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
