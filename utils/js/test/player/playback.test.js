import assert from "node:assert/strict";
import { test } from "node:test";
import { Playback } from "../../src/player/playback.js";
import { animation, thereAndBack, timed } from "./animations.js";

test("cells and bytes follow the messages that have landed, forwards and back", () => {
  const playback = new Playback(thereAndBack());
  assert.equal(playback.seek(0), false);
  assert.deepEqual([playback.held(0, 0), playback.held(1, 0)], [[0], [1]]);
  assert.equal(playback.seek(0.99), false, "nothing lands before the end of the step");
  assert.deepEqual(playback.held(1, 0), [1]);
  assert.equal(playback.seek(1), true);
  assert.deepEqual([playback.held(0, 0), playback.held(1, 0)], [[0], [0, 1]]);
  assert.deepEqual(
    [[...playback.sent], [...playback.received]],
    [
      [10, 0],
      [0, 10],
    ],
  );
  assert.equal(playback.seek(1.5), false);
  assert.equal(playback.seek(2), true);
  assert.deepEqual(playback.held(0, 0), [0, 1]);
  assert.equal(playback.seek(1), true, "the second message is taken back");
  assert.deepEqual([playback.held(0, 0), [...playback.sent]], [[0], [10, 0]]);
});

test("a cell is missing until it holds what is promised, and wrong where a rank is counted twice", () => {
  const playback = new Playback(thereAndBack());
  playback.seek(1);
  assert.deepEqual([playback.verdict(0, 0), playback.verdict(1, 0)], ["missing", "done"]);
  const message = { step: 0, src: 0, dst: 1, chunk: 0, carried: [0], after: [0, 0, 1], reduce: true };
  const twice = new Playback(animation({ ranks: 2, chunks: 1, before: [[1, 0, [0, 1]]], messages: [message] }));
  assert.equal(twice.verdict(1, 0), null, "nothing is promised");
  twice.seek(1);
  assert.deepEqual(twice.held(1, 0), [0, 0, 1]);
  assert.equal(twice.verdict(1, 0), "twice");
});

test("contributions are runs of ranks, repeats in runs of their own", () => {
  const contributions = [[0, 2, 5, 5], [0, 1, 0, 0], []];
  const playback = new Playback(animation({ ranks: 6, chunks: 1 }, { contributions }));
  assert.deepEqual(
    [0, 1, 2, -1].map((id) => playback.contributors(id)),
    [[0, 1, 2, 5], [0, 0, 1], [], []],
  );
});

test("a position is between two steps or rests at the end of one", () => {
  const playback = new Playback(thereAndBack());
  const at = (/** @type {number} */ position) => {
    playback.seek(position);
    return [playback.done, playback.current, playback.resting, playback.atEnd];
  };
  assert.deepEqual(at(0), [0, 0, true, false]);
  assert.deepEqual(at(0.5), [0, 1, false, false]);
  assert.deepEqual(at(0.9999999), [1, 1, true, false], "as near as a slider comes");
  assert.deepEqual(at(2), [2, 2, true, true]);
});

test("in steps, the messages of the step fly, and those of the step before have just landed", () => {
  const playback = new Playback(thereAndBack());
  playback.seek(1.25);
  const [[transfer, share], ...others] = playback.flying();
  assert.deepEqual([transfer.src, transfer.dst, others.length], [1, 0, 0]);
  assert.ok(Math.abs(share - 0.25) < 1e-6);
  assert.deepEqual(playback.justLanded(), []);
  playback.seek(1);
  assert.deepEqual(playback.flying(), []);
  assert.deepEqual(playback.justLanded(), [playback.transfers[0]]);
});

test("what the receiver does is told where it is known", () => {
  const bare = { step: 0, src: 0, dst: 1 };
  const messages = [{ ...bare, reduce: true }, bare, { ...bare, known: false }, { ...bare, delivered: false }];
  const { transfers } = new Playback(animation({ ranks: 2, messages }));
  assert.deepEqual(
    transfers.map(({ does, sign }) => [does, sign]),
    [
      ["adds", "+"],
      ["stores", "="],
      ["receives", ""],
      ["stores", "✗"],
    ],
  );
});

test("a send that nobody receives is stuck once it has set out; its rank waits where sends block", () => {
  const messages = [
    { step: 0, src: 1, dst: 0 },
    { step: 1, src: 0, dst: 1, delivered: false },
  ];
  const playback = new Playback(animation({ ranks: 2, messages }));
  playback.seek(1);
  assert.deepEqual([playback.stuck(), playback.waits()], [[], []]);
  playback.seek(1.1);
  assert.deepEqual(playback.stuck(), [playback.transfers[1]]);
  assert.deepEqual(playback.waits(), [{ rank: 0, peer: 1, forever: true, line: null }]);
  playback.seek(2);
  assert.deepEqual(
    [[...playback.sent], [...playback.received]],
    [
      [10, 10],
      [10, 0],
    ],
    "it was sent, not received",
  );
  const buffered = new Playback(animation({ ranks: 2, messages }, { blocking: false }));
  buffered.seek(2);
  assert.deepEqual([buffered.stuck().length, buffered.waits()], [1, []]);
});

test("waits last from their first step to their last, or for ever", () => {
  const bars = [
    { rank: 0, op: "wait", step: 0, endStep: 1, peer: 1 },
    { rank: 1, op: "wait", step: 1, endStep: null },
    { rank: 2, op: "compute", step: 2 },
  ];
  const playback = new Playback(animation({ ranks: 3, bars }));
  const waiting = (/** @type {number} */ position) => {
    playback.seek(position);
    return playback.waits().map(({ rank, forever }) => [rank, forever]);
  };
  assert.deepEqual(waiting(0), []);
  assert.deepEqual(waiting(1), [[0, false]]);
  assert.deepEqual(waiting(1.5), [
    [0, false],
    [1, true],
  ]);
  assert.deepEqual(waiting(3), [[1, true]]);
});

test("in time, positions and the clock are two views of one moment", () => {
  const playback = new Playback(timed(3, [0, 1, 0, 10], [1, 2, 10, 40]));
  assert.equal(playback.length, 2, "steps, until it is asked for time");
  playback.useAxis("time");
  assert.deepEqual(playback.times, [0, 10, 40]);
  assert.equal(playback.length, 40);
  assert.equal(playback.clockAt(1.5), 25);
  assert.equal(playback.positionAt(25), 1.5);
  for (const position of [0, 0.3, 1, 1.9, 2]) {
    assert.ok(Math.abs(playback.positionAt(playback.clockAt(position)) - position) < 1e-9, `at ${position}`);
  }
  assert.deepEqual([playback.positionAt(-5), playback.positionAt(99)], [0, 2], "never outside");
});

test("in time, messages overlap, and each flies from its own start to its own end", () => {
  const playback = new Playback(timed(4, [0, 1, 0, 100], [2, 3, 50, 60], [1, 0, 90, 95]));
  playback.useAxis("time");
  const flying = (/** @type {number} */ value) => {
    playback.seek(playback.positionAt(value));
    return playback.flying().map(([transfer, share]) => [transfer.index, +share.toFixed(3)]);
  };
  assert.equal(playback.times?.[1], 100);
  assert.deepEqual(flying(55), [
    [0, 0.55],
    [1, 0.5],
  ]);
  assert.deepEqual(flying(70), [[0, 0.7]]);
  assert.deepEqual(flying(92), [
    [0, 0.92],
    [2, 0.4],
  ]);
  assert.deepEqual([...playback.received], [0, 0, 0, 10], "the second has landed before the first");
});

test("what never ends is given room after all else", () => {
  const playback = new Playback(timed(2, [0, 1, 0, 100], [1, 0, 100, null]));
  assert.deepEqual(playback.times, [0, 100, 115]);
  playback.useAxis("time");
  assert.deepEqual(playback.span(playback.transfers[1]), [100, 115]);
});

test("an animation without times stays in steps", () => {
  const playback = new Playback(thereAndBack());
  playback.useAxis("time");
  assert.equal(playback.axis, "step");
});

test("amounts are bytes, or chunks where the schedule was given no size", () => {
  assert.equal(new Playback(animation({ ranks: 2, chunks: 4 })).amount(1536), "1.54 kB");
  const sizeless = new Playback(animation({ ranks: 2, chunks: 4 }, { nbytes: 4 }));
  assert.deepEqual([sizeless.amount(1), sizeless.amount(1.5)], ["1 chunk", "1.5 chunks"]);
});

test("the critical path is a set of messages and bars; without one it is empty", () => {
  const data = timed(2, [0, 1, 0, 100], [1, 0, 100, 200]);
  const playback = new Playback({ ...data, path: { says: ["slow"], transfers: [1], bars: [] } });
  assert.deepEqual([...playback.critical], [playback.transfers[1]]);
  assert.equal(new Playback(data).critical.size, 0);
});
