import assert from "node:assert/strict";
import { test } from "node:test";
import { Playback } from "../../src/player/playback.js";
import { questionAbout } from "../../src/player/quiz.js";
import { animation, thereAndBack, timed } from "./animations.js";

/** @typedef {import("../../src/player/quiz.js").Question} Question */

/**
 * The right answers of a question that must have some.
 *
 * @param {Question | null} question
 */
function right(question) {
  if (!question) assert.fail("there is no question");
  const texts = question.options.map((option) => option.text);
  assert.equal(new Set(texts).size, texts.length, "no answer is offered twice");
  assert.ok(texts.length >= 2, "there is a choice");
  return question.options.filter((option) => option.right).map((option) => option.text);
}

// a broadcast of chunk 1 from rank 0, then of chunk 2
function broadcast() {
  const messages = [1, 2].flatMap((chunk) =>
    [1, 2, 3].map((dst, i) => ({
      step: 3 * (chunk - 1) + i,
      src: 0,
      dst,
      chunk,
      carried: [0],
      after: [0],
    })),
  );
  const before = /** @type {[number, number, number[]][]} */ ([0, 1, 2, 3].map((chunk) => [0, chunk, [0]]));
  return animation({ ranks: 4, chunks: 4, before, messages });
}

test("which chunk is sent: the right one among its neighbours", () => {
  const playback = new Playback(broadcast());
  const question = questionAbout(playback, 0);
  assert.equal(question?.text, "Step 1: which chunk does rank 0 send to rank 1?");
  assert.deepEqual(right(question), ["chunk 1"]);
  assert.deepEqual(
    question?.options.map((option) => option.text),
    ["chunk 0", "chunk 1", "chunk 2", "chunk 3"],
  );
  assert.equal(question?.why, "Rank 0 sends chunk 1, which carries the contribution of rank 0; rank 1 stores it.");
});

test("whose contributions a cell holds afterwards: before, carried, after and all are offered", () => {
  const playback = new Playback(thereAndBack());
  const first = questionAbout(playback, 0);
  assert.match(first?.text ?? "", /Whose contributions does rank 1's chunk 0 hold afterwards\?$/);
  assert.deepEqual(right(first), ["0 + 1"]);
  assert.deepEqual(
    first?.options.map((option) => option.text),
    ["0", "1", "0 + 1"],
  );
  assert.match(first?.why ?? "", /^Rank 1 held 1\. .* is added, so it then holds 0 \+ 1\.$/);
  playback.seek(1);
  const second = questionAbout(playback, 1);
  assert.deepEqual(right(second), ["0 + 1"]);
  assert.match(second?.why ?? "", /^Rank 0 held 0\. .* is stored in place of it/);
});

test("a message that changes nothing has one right answer", () => {
  const all = [0, 1];
  const message = { step: 0, src: 0, dst: 1, chunk: 0, carried: all, after: all };
  const before = /** @type {[number, number, number[]][]} */ ([
    [0, 0, all],
    [1, 0, all],
  ]);
  const playback = new Playback(animation({ ranks: 2, chunks: 1, before, messages: [message] }));
  assert.deepEqual(right(questionAbout(playback, 0)), ["0 + 1"]);
});

test("without chunks: to which rank, never the sender itself", () => {
  const messages = [0, 1, 2, 3].map((src) => ({ step: 0, src, dst: (src + 1) % 4 }));
  const playback = new Playback(animation({ ranks: 4, messages }));
  const question = questionAbout(playback, 0);
  assert.equal(question?.text, "Step 1: to which rank does rank 1 send?");
  assert.deepEqual(right(question), ["rank 2"]);
  assert.ok(!question?.options.some((option) => option.text === "rank 1"));
});

test("a rank that sends to several is not asked to which one", () => {
  const messages = [1, 2].map((dst) => ({ step: 0, src: 0, dst }));
  assert.equal(questionAbout(new Playback(animation({ ranks: 3, messages })), 0), null);
});

test("nothing is asked about what is never received, nor after the last step", () => {
  const lost = new Playback(animation({ ranks: 3, messages: [{ step: 0, src: 0, dst: 1, delivered: false }] }));
  assert.equal(questionAbout(lost, 0), null);
  const playback = new Playback(thereAndBack());
  assert.equal(questionAbout(playback, playback.steps), null);
});

test("in time nothing is asked about a message that is under way already", () => {
  const playback = new Playback(timed(3, [0, 1, 0, 10], [1, 2, 5, 20]));
  playback.useAxis("time");
  playback.seek(0);
  assert.deepEqual(right(questionAbout(playback, 0)), ["rank 1"]);
  playback.seek(1);
  assert.equal(questionAbout(playback, 1), null, "it set out at 5 µs, before the first step was over");
});

test("the same animation asks the same questions, of more than one kind", () => {
  const ask = () => {
    const playback = new Playback(broadcast());
    return Array.from({ length: playback.steps }, (_, step) => {
      playback.seek(step);
      const question = questionAbout(playback, step);
      assert.equal(right(question).length, 1);
      return question?.text;
    });
  };
  const texts = ask();
  assert.deepEqual(ask(), texts);
  assert.ok(texts.some((text) => text?.includes("which chunk")) && texts.some((text) => text?.includes("Whose")));
});
