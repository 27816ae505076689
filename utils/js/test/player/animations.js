// Animations for the tests, written as lists of messages.

/**
 * @typedef {object} Message one chunk at most; times in microseconds
 * @property {number} step
 * @property {number} src
 * @property {number} dst
 * @property {number} [chunk]
 * @property {number[]} [carried] the ranks whose contributions it carries
 * @property {number[]} [after] those that the receiver's cell holds afterwards
 * @property {boolean} [reduce]
 * @property {boolean} [delivered]
 * @property {boolean} [known] whether it is known what the receiver did
 * @property {number | null} [start]
 * @property {number | null} [end]
 */

/**
 * An animation as Python sends it. Contributions are given as lists of ranks.
 *
 * @param {object} given
 * @param {number} given.ranks
 * @param {number} [given.chunks]
 * @param {Message[]} [given.messages]
 * @param {Partial<import("../../src/player/data.js").Bar>[]} [given.bars]
 * @param {[number, number, number[]][]} [given.before] rank, chunk, ranks
 * @param {[number, number, number[]][]} [given.goal]
 * @param {Partial<import("../../src/player/data.js").AnimationData>} [others]
 * @returns {import("../../src/player/data.js").AnimationData}
 */
export function animation({ ranks, chunks = 0, messages = [], bars = [], before = [], goal = [] }, others = {}) {
  /** @type {number[][]} */
  const contributions = [];
  const numberOf = (/** @type {number[]} */ members) => {
    // a run for each rank, the first time before the second
    const runs = members.flatMap((rank) => [rank, rank]);
    const known = contributions.findIndex((other) => String(other) === String(runs));
    return known >= 0 ? known : contributions.push(runs) - 1;
  };
  const steps = Math.max(0, ...[...messages, ...bars].map((item) => (item.step ?? 0) + 1));
  /** @type {<Value>(value: (message: Message) => Value) => Value[]} */
  const column = (value) => messages.map(value);
  return {
    title: "a test",
    kind: "schedule",
    ranks,
    chunks,
    nbytes: 100,
    steps,
    layout: "ring",
    columns: 2,
    clock: "step",
    timed: false,
    inferred: false,
    blocking: true,
    root: null,
    collective: null,
    bound: null,
    captions: Array.from({ length: steps + 1 }, (_, step) => `step ${step}`),
    transfers: {
      step: column((m) => m.step),
      src: column((m) => m.src),
      dst: column((m) => m.dst),
      nbytes: column(() => 10),
      chunks: column((m) => (m.chunk === undefined ? [] : [m.chunk])),
      reduce: column((m) => m.reduce ?? false),
      delivered: column((m) => m.delivered ?? true),
      effect_known: column((m) => m.known ?? true),
      carried: column((m) => (m.carried ? [numberOf(m.carried)] : [])),
      after: column((m) => (m.after ? [numberOf(m.after)] : [])),
      line: column(() => null),
      start: column((m) => m.start ?? null),
      end: column((m) => m.end ?? null),
    },
    bars: {
      rank: bars.map((bar) => bar.rank ?? 0),
      op: bars.map((bar) => bar.op ?? "wait"),
      step: bars.map((bar) => bar.step ?? 0),
      end_step: bars.map((bar) => (bar.endStep === undefined ? (bar.step ?? 0) : bar.endStep)),
      peer: bars.map((bar) => bar.peer ?? null),
      received_nbytes: bars.map((bar) => bar.got ?? 0),
      own: bars.map((bar) => bar.own ?? false),
      nbytes: bars.map((bar) => bar.put ?? 0),
      line: bars.map(() => null),
      label: bars.map((bar) => bar.label ?? null),
      start: bars.map((bar) => bar.start ?? null),
      end: bars.map((bar) => bar.end ?? null),
    },
    before: before.map(([rank, chunk, members]) => [rank, chunk, numberOf(members)]),
    goal: goal.map(([rank, chunk, members]) => [rank, chunk, numberOf(members)]),
    contributions,
    ...others,
  };
}

/** An all-reduce of one chunk on two ranks: rank 0 sends, rank 1 adds and sends the sum back. */
export function thereAndBack() {
  return animation({
    ranks: 2,
    chunks: 1,
    before: [
      [0, 0, [0]],
      [1, 0, [1]],
    ],
    goal: [
      [0, 0, [0, 1]],
      [1, 0, [0, 1]],
    ],
    messages: [
      { step: 0, src: 0, dst: 1, chunk: 0, carried: [0], after: [0, 1], reduce: true },
      { step: 1, src: 1, dst: 0, chunk: 0, carried: [0, 1], after: [0, 1] },
    ],
  });
}

/**
 * Messages of bytes with times, the i-th in step i.
 *
 * @param {number} ranks
 * @param {...[number, number, number, number | null]} messages sender, receiver, start, end; null: never received
 */
export function timed(ranks, ...messages) {
  const list = messages.map(([src, dst, start, end], step) => {
    return { step, src, dst, start, end, delivered: end !== null };
  });
  return animation({ ranks, messages: list }, { timed: true, kind: "simulated" });
}
