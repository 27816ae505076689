import assert from "node:assert/strict";
import { test } from "node:test";
import { lineOf } from "../../src/player/caption.js";
import { arrange, cardShape } from "../../src/player/card_shape.js";
import { halfTitles, titled } from "../../src/player/heading.js";
import { contributionCounts, shadeNumber } from "../../src/player/heat_map.js";
import { ticks } from "../../src/player/lanes.js";
import { Playback } from "../../src/player/playback.js";
import { activityOf } from "../../src/player/rank_card.js";
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
  assert.deepEqual(
    [named(), named(3), named(0, 1, 2), named(0, 2), named(0, 2, 6)],
    ["2 kB", "c3", "c0…2", "c0,2", "c0,2…6"],
  );
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
  for (let chunks = 2; chunks <= 64; chunks++) {
    for (let level = 0; level < 9; level++) {
      const { card, cell, cellGap } = cardShape(new Playback(animation({ ranks: 4, chunks })), level);
      assert.ok(chunks * (cell.w + cellGap) - cellGap <= card.w, `${chunks} chunks, level ${level}`);
    }
  }
  const widthOf = (/** @type {object[]} */ bars, level = 8) =>
    cardShape(new Playback(animation({ ranks: 4, bars })), level).card.w;
  const wait = { op: "wait", step: 0, peer: 2 };
  assert.equal(widthOf([]), 122, "the bytes' own room");
  assert.ok(widthOf([wait], 4) >= 150);
  assert.ok(widthOf([wait]) < 150, "where room is short, it only says that it waits");
});

test("the parts of an all-to-all are named by who sends them to whom", () => {
  const playback = new Playback(animation({ ranks: 4, chunks: 16 }, { collective: "all_to_all" }));
  assert.equal(playback.nameOf({ chunks: [6], nbytes: 1 }), "1→2");
  assert.equal(playback.nameOf({ chunks: [6, 7], nbytes: 2 }), "2 parts");
  assert.equal(new Playback(animation({ ranks: 4, chunks: 16 })).nameOf({ chunks: [6], nbytes: 1 }), "c6");
});

test("up to eight ranks have room in a stage of 600 x 360, and two in half of it", () => {
  for (let ranks = 3; ranks <= 8; ranks++) {
    const messages = Array.from({ length: ranks }, (_, r) => ({ step: 0, src: r, dst: (r + 1) % ranks, chunk: r }));
    const ring = new Playback(animation({ ranks, chunks: ranks, messages }));
    for (const room of [
      { w: 600, h: 360 },
      { w: 410, h: 280 },
    ]) {
      const { box, centres, shape } = arrange(ring, "ring", room);
      assert.ok(box.w <= room.w && box.h <= room.h, `${ranks} ranks: ${box.w} x ${box.h}`);
      for (const [i, a] of centres.entries()) {
        for (const b of centres.slice(0, i)) {
          const apart = Math.abs(a.x - b.x) > shape.card.w || Math.abs(a.y - b.y) > shape.card.h;
          assert.ok(apart, `${ranks} ranks: two cards overlap`);
        }
      }
    }
  }
});

test("eight ranks have room in a column of 312 px, in two columns", () => {
  const links = Array.from({ length: 8 }, (_, r) => ({ step: 0, src: r, dst: (r + 1) % 8, chunk: r }));
  const ring = new Playback(animation({ ranks: 8, chunks: 8, messages: links }));
  const { box, centres } = arrange(ring, "ring", { w: 312, h: 360 });
  assert.ok(box.w <= 312 && box.h <= 360, `${box.w} x ${box.h}`);
  assert.equal(new Set(centres.map(({ x }) => Math.round(x))).size, 2);
});

test("eight ranks with 24 chunks each have room together", () => {
  // of a DGX-1: two groups of four, each rank joined to the three others and to one of the other group
  const near = (/** @type {number} */ r) =>
    [0, 1, 2, 3, 4, 5, 6, 7].filter((s) => s !== r && (s >> 2 === r >> 2 || s % 4 === r % 4));
  const messages = [0, 1, 2, 3, 4, 5, 6, 7].flatMap((src) =>
    near(src).map((dst) => ({ step: 0, src, dst, chunk: 3 * src })),
  );
  const mesh = new Playback(animation({ ranks: 8, chunks: 24, messages }));
  for (const layout of /** @type {const} */ (["ring", "all-to-all", "grid"])) {
    const { box } = arrange(mesh, layout, { w: 600, h: 360 });
    assert.ok(box.w <= 600 && box.h <= 360, `${layout}: ${box.w} x ${box.h}`);
  }
});

test("one line names one message and says how the others go", () => {
  const messages = [0, 1, 2].map((r) => ({ step: 0, src: r, dst: (r + 1) % 3, chunk: r, carried: [r], after: [r] }));
  const playback = new Playback(animation({ ranks: 3, chunks: 3, messages }));
  playback.seek(0.5);
  assert.equal(lineOf(playback), "Each rank sends to the next: rank 0 sends c0 to rank 1, which stores it.");
  assert.equal(lineOf(playback, playback.transfers[1]), "Rank 1 sends c1 to rank 2, which stores it.");
  const lost = new Playback(animation({ ranks: 2, messages: [{ step: 0, src: 0, dst: 1, delivered: false }] }));
  lost.seek(1);
  assert.equal(lineOf(lost), "Rank 0 tries to send 10 B to rank 1, which never receives it.");
});

test("two runs of one name are told apart, and the reader's own has a tag", () => {
  const run = (/** @type {"wire" | "schedule"} */ kind) =>
    new Playback(animation({ ranks: 2 }, { title: "wire run", kind }));
  assert.deepEqual(halfTitles([run("wire"), run("wire")]), [
    { title: "Wire run 1", tag: "" },
    { title: "Wire run 2", tag: "" },
  ]);
  assert.deepEqual(
    halfTitles([run("wire"), run("schedule")]).map(({ tag }) => tag),
    ["yours", ""],
  );
  assert.equal(titled("ring all_reduce"), "Ring all-reduce");
});

test("the words of a rank in a collective have room on its card, with its bytes", () => {
  const bars = [
    { op: "compute", step: 0, label: "block 10 backward" },
    { op: "reduce_scatter_tensor", label: "reduce_scatter_single", step: 1, put: 1_280_000, got: 320_000 },
  ];
  const playback = new Playback(animation({ ranks: 2, bars }, { kind: "wire" }));
  playback.seek(1);
  assert.deepEqual(activityOf(playback, 0), ["computes block 10 backward", "moves –", ""]);
  playback.seek(2);
  assert.deepEqual(activityOf(playback, 0), ["computes –", "moves reduce_scatter_single", "1.28 MB in, 320 kB out"]);
  assert.deepEqual(activityOf(playback, 1), ["computes –", "moves –", ""]);
  assert.deepEqual(playback.throughCalls(0), [1_280_000, 320_000]);
  const { card } = cardShape(playback);
  assert.ok(card.w >= "moves reduce_scatter_single".length * 6.7 + 8);
  assert.ok(card.h >= 80, "three lines");
  const alone = new Playback(animation({ ranks: 2, bars: bars.slice(1) }, { kind: "wire" }));
  alone.seek(2);
  assert.deepEqual(activityOf(alone, 0), ["reduce_scatter_single", "1.28 MB in, 320 kB out"]);
  const live = new Playback(animation({ ranks: 2, bars: [{ op: "all_reduce", step: 0 }] }, { kind: "live" }));
  live.seek(1);
  assert.deepEqual(
    [activityOf(live, 0), activityOf(live, 1)].map(([words]) => words),
    ["in all_reduce", "in no call"],
  );
});
