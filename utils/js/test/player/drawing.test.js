import assert from "node:assert/strict";
import { test } from "node:test";
import { contributionCounts, shadeNumber } from "../../src/player/heat_map.js";
import { ticks } from "../../src/player/lanes.js";
import { Playback } from "../../src/player/playback.js";
import { cardShape } from "../../src/player/rank_card.js";
import { chunkName, contributionsOf, counted, duration, size } from "../../src/player/words.js";
import { animation } from "./animations.js";

test("bytes and times have three digits, and never 1000 of a unit", () => {
  assert.deepEqual([0, 512, 999, 1000, 1536, 999_400, 999_900, 2e6, 3e9, 5e12].map(size), [
    "0 B",
    "512 B",
    "999 B",
    "1 kB",
    "1.54 kB",
    "999 kB",
    "1 MB",
    "2 MB",
    "3 GB",
    "5 TB",
  ]);
  assert.deepEqual(
    [0, 1.5, 2000, 3_456_000].map((us) => duration(us)),
    ["0 µs", "1.5 µs", "2 ms", "3.46 s"],
  );
  assert.equal(duration(1_234_567, 5), "1.2346 s");
});

test("chunks are named in little room", () => {
  const named = (/** @type {number[]} */ ...chunks) => chunkName({ chunks, nbytes: 2000 });
  assert.deepEqual([named(), named(3), named(0, 1, 2), named(0, 2)], ["2 kB", "c3", "c0…2", "2 ch."]);
});

test("one is written without an s", () => {
  assert.deepEqual([counted(1, "rank"), counted(2, "rank"), counted(0, "rank")], ["1 rank", "2 ranks", "0 ranks"]);
  assert.equal(contributionsOf([1]), "contribution of rank 1");
  assert.equal(contributionsOf([0, "1 (2 times)"]), "contributions of ranks 0 + 1 (2 times)");
});

test("ticks are round, have room, and can be told apart", () => {
  assert.equal(ticks(100, 100, 10).every, 10);
  assert.equal(ticks(101, 101, 10).every, 20);
  assert.equal(ticks(45, 45, 10).every, 5);
  for (const span of [3, 10, 99, 1.25e6, 7e-3]) {
    const { every } = ticks(span, span, 12);
    assert.ok(span / every <= 12 + 1e-9, `${span}: ${span / every} ticks`);
    assert.match(every.toExponential(), /^[125]e/);
  }
  const { every, digits } = ticks(50, 1e6, 10);
  assert.notEqual(duration(1e6, digits), duration(1e6 - every, digits));
});

test("shades: few of many are seen, all have the last one", () => {
  assert.deepEqual([shadeNumber(0), shadeNumber(1), shadeNumber(1.5)], [0, 256, 256]);
  assert.ok(shadeNumber(1 / 256) >= 16);
  assert.ok(shadeNumber(0.9999) < 256, "nearly all is not all");
});

test("contributions are counted with repeats", () => {
  const contributions = [[0, 2, 5, 5], [0, 1, 0, 0], []];
  assert.deepEqual(contributionCounts(new Playback(animation({ ranks: 6 }, { contributions }))), [4, 3, 0]);
});

test("a card holds all its cells, and a name beside which its wait can stand", () => {
  for (let chunks = 1; chunks <= 64; chunks++) {
    const { card, cell, cellGap, left } = cardShape(new Playback(animation({ ranks: 4, chunks })));
    const right = left + chunks * (cell.w + cellGap) - cellGap;
    assert.ok(left >= -card.w / 2 && right <= card.w / 2, `${chunks} chunks`);
  }
  const widthOf = (/** @type {object[]} */ bars) => cardShape(new Playback(animation({ ranks: 4, bars }))).card.w;
  const wait = { op: "wait", step: 0 };
  assert.equal(widthOf([]), 128, "the bytes' own room");
  assert.ok(cardShape(new Playback(animation({ ranks: 4, chunks: 1, bars: [{ ...wait, peer: 2 }] }))).card.w >= 128);
});
