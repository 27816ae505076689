import assert from "node:assert/strict";
import { test } from "node:test";
import { chapterOf, linkTo } from "../../src/explore/chapter_link.js";
import { bestOf, labelOf, stepTime } from "../../src/explore/split.js";

const chapter = { path: "chapters/3_one_model/24_tensor_parallel.ipynb", title: "Tensor parallel" };

/** @param {any} model @returns {any} */
const frameOf = (model) => ({ model });

test("a chapter has its number, and its title where the files are not here", () => {
  assert.equal(chapterOf(chapter), "chapter 24");
  assert.equal(chapterOf({ path: "", title: "Tensor parallel" }), "Tensor parallel");
});

test("in JupyterLab a link opens the notebook in the folder that holds the chapters", () => {
  const at = (/** @type {string | undefined} */ path) =>
    frameOf({ widget_manager: { context: path ? { path } : undefined } });
  const open = "&quot;path&quot;:&quot;";
  assert.ok(linkTo(at("a/chapters/1_x/00_y.ipynb"), chapter, "go").includes(`${open}a/${chapter.path}&quot;`));
  assert.ok(linkTo(at("mine.ipynb"), chapter, "go").includes(`${open}${chapter.path}&quot;`));
  assert.equal(linkTo(at(undefined), chapter, "go"), "go", "elsewhere a kernel's page can't be left");
});

test("on a page of the site a link goes to the chapter's page", () => {
  /** @type {any} */ (globalThis).location = { pathname: "/site/chapters/1_first_hours/04_all_reduce.html" };
  const link = linkTo(frameOf({}), chapter, "go");
  assert.equal(link, '<a href="/site/chapters/3_one_model/24_tensor_parallel.html">go</a>');
  /** @type {any} */ (globalThis).location = { pathname: "/tmp/page.html" };
  assert.equal(linkTo(frameOf({}), chapter, "go"), "go");
});

test("buttons and times have words that tell choices apart", () => {
  assert.deepEqual(
    [0, 25 * 2 ** 20, 2 ** 30].map((n) => labelOf("bucket", n)),
    ["off", "25 MB", "1 GB"],
  );
  assert.deepEqual([labelOf("ep", 0), labelOf("ranks", 1024), labelOf("tp", 1)], ["none", "1,024", "1"]);
  assert.deepEqual([1.201, 1.268, 0.117, 72.1].map(stepTime), ["1.20 s", "1.27 s", "117 ms", "72 s"]);
});

test("the best split keeps to the axes that are open", () => {
  const machine = {
    ranks_per_node: 8,
    ranks_per_island: 8,
    nics_per_node: 8,
    inside: { alpha_s: 2e-6, bytes_per_s: 371e9 },
    host: null,
    nic: { alpha_s: 5e-6, bytes_per_s: 50e9 },
    nodes_per_leaf: 0,
    oversubscription: 1,
    flop_per_s: 989e12,
    bytes_per_s: 3.35e12,
    product_share: 0.79,
    nbytes: 80e9,
  };
  const model = {
    ...{ parameters: 7e9, layers: 32, hidden: 4096, sequence: 4096, vocabulary: 32000 },
    ...{ experts: 0, top_k: 0, expert_parameters: 0, with_experts: "" },
  };
  const assumed = {
    ...{ sizes: [[1, 1]], flash_share: 0.5, flash_backward: 2, memory_share: 0.85 },
    ...{ layer_nbytes: 50, logit_nbytes: 36, other_nbytes: 4e9, activation_nbytes: 34 },
  };
  /** @type {any} */
  const frame = { data: { models: { m: model }, machines: { h: machine }, assumed } };
  const values = {
    ...{ model: "m", machine: "h", sequence: 4096, tokens: 2 ** 20, microbatch: 1, ranks: 64 },
    ...{ bucket: 0, zero_stage: 0, tp: 1, pp: 1, cp: 1, ep: 0 },
  };
  assert.equal(bestOf(frame, values, ["ranks", "bucket"]).count, 0, "without ZeRO it does not fit");
  const best = bestOf(frame, values, ["ranks", "bucket", "zero_stage"]);
  assert.ok(best.count > 0 && best.values.zero_stage > 0 && best.values.tp === 1 && best.values.ep === 0);
  assert.ok(bestOf(frame, values, ["zero_stage", "tp", "pp"]).count > best.count);
});
