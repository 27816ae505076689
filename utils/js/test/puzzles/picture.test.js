import assert from "node:assert/strict";
import { test } from "node:test";
import { Playback } from "../../src/player/playback.js";
import { animationOf } from "../../src/puzzles/picture.js";

/** Two ranks: each sends a chunk that the other adds; then rank 0 hands out the one that is not complete. */
const VERDICT = /** @type {any} */ ({
  puzzle: "ring",
  ranks: 2,
  waits: [],
  first_wrong: { step: 1, event: 8, rank: 0, peer: 1, chunks: [0], want: [1] },
  drawn: {
    ranks: 2,
    chunks: 2,
    sizes: [3, 2],
    steps: [
      {
        before: [
          [[0], [0]],
          [[1], [1]],
        ],
        moves: [
          { src: 0, dst: 1, chunks: [0], holds: [[0]], how: "add", line: 5, event: 0, wrong: false },
          { src: 1, dst: 0, chunks: [1], holds: [[1]], how: "add", line: 5, event: 3, wrong: false },
        ],
      },
      {
        before: [
          [[0], [0, 1]],
          [[0, 1], [1]],
        ],
        moves: [
          { src: 0, dst: 1, chunks: [0], holds: [[0]], how: "store", line: 9, event: 8, wrong: true },
          { src: 1, dst: 0, chunks: [0], holds: [[0, 1]], how: "store", line: 9, event: 11, wrong: false },
        ],
      },
    ],
    after: [
      [
        [0, 1],
        [0, 1],
      ],
      [[0], [1]],
    ],
  },
});

test("the player is told whose numbers move, and which move is the first wrong one", () => {
  const made = animationOf(VERDICT);
  assert.ok(made);
  const playback = new Playback(made);
  assert.equal(playback.steps, 2);
  assert.deepEqual(playback.wrong, [2, "here it should be c1,\nthe one in the ink frame"]);
  assert.deepEqual([...playback.amiss], [2]);
  assert.equal(playback.follows, 2);
  assert.deepEqual(
    playback.transfers.map(({ nbytes, does, line }) => [nbytes, does, line]),
    [
      [12, "adds", 5],
      [8, "adds", 5],
      [12, "stores", 9],
      [12, "stores", 9],
    ],
  );
  for (const [step, state] of [
    [0, VERDICT.drawn.steps[0].before],
    [1, VERDICT.drawn.steps[1].before],
    [2, VERDICT.drawn.after],
  ]) {
    playback.seek(step);
    for (const rank of [0, 1])
      for (const chunk of [0, 1]) assert.deepEqual(playback.held(rank, chunk), state[rank][chunk]);
  }
  assert.equal(playback.verdict(0, 0), "done");
  assert.equal(playback.verdict(1, 0), "missing");
  assert.equal(
    made.captions[2],
    "step 2 of 2: rank 0 sends c0 to rank 1, which stores it; rank 1 sends c0 to rank 0, which stores it",
  );
});

test("what is promised is the puzzle's; without messages the beginning is shown", () => {
  const half = animationOf({ ...VERDICT, puzzle: "half", first_wrong: null });
  assert.deepEqual(
    half?.goal.map(([rank, chunk]) => [rank, chunk]),
    [
      [0, 0],
      [1, 1],
    ],
  );
  assert.equal(half?.wrong, null);
  const none = animationOf({ ...VERDICT, first_wrong: null, drawn: { ...VERDICT.drawn, steps: [] } });
  assert.equal(none?.steps, 0);
  assert.equal(none?.before.length, 4);
  assert.equal(animationOf({ ...VERDICT, drawn: null }), null);
});
