import assert from "node:assert/strict";
import { test } from "node:test";
import { commandLine, cut, megabytes } from "../../src/live/cut.js";

test("a long text is cut, and says so", () => {
  assert.equal(cut("abc", 3), "abc");
  assert.equal(cut("abcd", 3), "abc …");
});

test("bytes are said in units of 10^6", () => assert.equal(megabytes(12_345_678), "12.3 MB"));

test("a command line can be pasted into a shell", () => {
  assert.equal(commandLine(["allranks", "price", "--parameters", "7e9"]), "allranks price --parameters 7e9");
  assert.equal(commandLine(["a b", "it's", "$(x)", ""]), String.raw`'a b' 'it'\''s' '$(x)' ''`);
});
