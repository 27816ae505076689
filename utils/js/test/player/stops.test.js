import assert from "node:assert/strict";
import { test } from "node:test";
import { linesOf } from "../../src/player/code.js";
import { Playback } from "../../src/player/playback.js";
import { momentOf, moveOf, Stops } from "../../src/player/stops.js";
import { thereAndBack } from "./animations.js";

test("a breakpoint is set, is found behind a position, and is taken away", () => {
  const playback = new Playback(thereAndBack());
  const stops = new Stops([playback]);
  const second = { half: 0, rank: 0, step: 1 };
  assert.equal(stops.toggle(second), true);
  assert.equal(stops.toggle({ half: 0, rank: 1, step: 0 }), true);
  assert.equal(stops.after(0, playback), 0.5, "while the message is on its way");
  assert.equal(stops.after(0.5, playback), 1.5);
  assert.equal(stops.after(1.5, playback), null);
  assert.deepEqual(stops.at(1.5, playback), second);
  assert.equal(stops.at(1.2, playback), undefined);
  stops.toggle(second);
  assert.equal(stops.has(second), false);
  assert.equal(stops.after(0.5, playback), null);
});

test("there is no breakpoint where there is no rank, no step or no animation", () => {
  const stops = new Stops([new Playback(thereAndBack())]);
  for (const stop of [
    { half: 0, rank: 2, step: 0 },
    { half: 0, rank: 0, step: 2 },
    { half: 0, rank: 0, step: -1 },
    { half: 1, rank: 0, step: 0 },
  ])
    assert.equal(stops.toggle(stop), false);
  assert.deepEqual(stops.all, []);
});

test("a rank that receives stops at what it gets, one that only sends at what it sends", () => {
  const playback = new Playback(thereAndBack());
  assert.equal(moveOf(playback, 1, 0)?.index, 0);
  assert.equal(moveOf(playback, 0, 0)?.index, 0);
  assert.equal(momentOf(playback, { half: 0, rank: 0, step: 0 }), 0.5);
});

test("the lines are those of the message that is picked, or of all in the step", () => {
  const playback = new Playback(thereAndBack());
  playback.transfers[0].line = 7;
  playback.transfers[1].line = 9;
  playback.seek(1);
  assert.deepEqual(linesOf(playback, null), [7]);
  playback.seek(1.5);
  assert.deepEqual(linesOf(playback, null), [9]);
  assert.deepEqual(linesOf(playback, playback.transfers[0]), [7]);
  playback.seek(0);
  assert.deepEqual(linesOf(playback, null), []);
});
