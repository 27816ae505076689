import assert from "node:assert/strict";
import { test } from "node:test";
import { deflateRawSync } from "node:zlib";
import { packed, unpacked } from "../../src/puzzles/link.js";

const THERE = ["ring", "sum"];

test("a link holds the puzzle and its code, of any letters", async () => {
  for (const code of ["def f(x):\n    return x\n", "", "# ⌈lg p⌉ & ü\n".repeat(900)]) {
    const fragment = await packed("ring", code);
    assert.match(fragment, /^p=ring&c=[\w-]*$/);
    assert.deepEqual(await unpacked(`#${fragment}`, THERE), { puzzle: "ring", code, fault: "" });
  }
});

test("a link without code opens the puzzle as it is", async () => {
  assert.deepEqual(await unpacked("p=sum", THERE), { puzzle: "sum", code: null, fault: "" });
});

test("a broken link is one sentence", async () => {
  const long = deflateRawSync("x".repeat(65 * 1024)).toString("base64url");
  for (const [fragment, puzzle, words] of [
    ["c=abc", null, "it names no puzzle"],
    ["p=chess", null, "there is no puzzle chess"],
    ["p=ring&c=%25", "ring", "its code can't be read"],
    ["p=ring&c=AAAA", "ring", "its code can't be read"],
    [`p=ring&c=${long}`, "ring", "its code is longer than 64 KiB"],
  ]) {
    const fault = `This link is broken: ${words}. Here is the puzzle's own beginning.`;
    assert.deepEqual(await unpacked(String(fragment), THERE), { puzzle, code: null, fault });
  }
});
