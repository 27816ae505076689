// A verdict's messages as the player takes them.

/** @typedef {import("./types.js").Drawn} Drawn */
/** @typedef {import("./types.js").Move} Move */
/** @typedef {import("./types.js").Verdict} Verdict */

const NUMBER_BYTES = 4;
const everybody = (/** @type {number} */ ranks) => Array.from({ length: ranks }, (_, rank) => rank);
/** @type {(rank: number, chunk: number, ranks: number) => number[]} */
const sum = (_rank, _chunk, ranks) => everybody(ranks);
const ofFirst = () => [0];
/** Whose numbers a chunk must hold at the end, where the picture can show that; null: nothing is promised of it. */
/** @type {Record<string, (rank: number, chunk: number, ranks: number) => number[] | null>} */
const GOALS = {
  pass: ofFirst,
  sum,
  tree: ofFirst,
  ring: sum,
  anysize: sum,
  half: (rank, chunk, ranks) => (rank === chunk ? everybody(ranks) : null),
  nodes: sum,
};

/** Numbers lists of ranks, each as runs of one. */
class Contributions {
  /** @type {number[][]} */
  all = [];
  /** @type {Map<string, number>} */
  #numbers = new Map();

  /** @param {number[]} ranks */
  of(ranks) {
    const key = ranks.join();
    let number = this.#numbers.get(key);
    if (number === undefined) {
      number = this.all.push(ranks.flatMap((rank) => [rank, rank])) - 1;
      this.#numbers.set(key, number);
    }
    return number;
  }
}

/** @param {number[]} chunks @param {number} of how many there are */
const named = (chunks, of) => (of === 1 ? "x" : chunks.map((chunk) => `c${chunk}`).join(" and "));

/** @param {Move} move @param {number} of how many chunks there are */
function told({ src, dst, chunks, how }, of) {
  const does = {
    add: "which adds it",
    store: "which stores it",
    other: "which receives it",
    lost: "which never receives it",
  };
  return `rank ${src} sends ${named(chunks, of)} to rank ${dst}, ${does[how]}`;
}

/**
 * What should have moved, in at most two lines for the picture's middle.
 *
 * @param {Verdict} verdict
 */
function instead({ first_wrong, drawn }) {
  const want = first_wrong?.want ?? [];
  if (!want.length || !drawn || drawn.chunks < 2) return "";
  const complete = want.every((chunk) => {
    const step = drawn.steps[first_wrong?.step ?? 0];
    return step.before[first_wrong?.rank ?? 0][chunk]?.length === drawn.ranks;
  });
  return `here it should be ${named(want, drawn.chunks)}${complete ? ",\nthe one in the ink frame" : ""}`;
}

/**
 * The animation of a verdict's messages; null where there are none to show.
 *
 * @param {Verdict} verdict
 * @returns {import("../player/data.js").AnimationData | null}
 */
export function animationOf(verdict) {
  const { drawn, first_wrong } = verdict;
  if (!drawn) return null;
  const { ranks, chunks, sizes, steps } = drawn;
  const first = steps[0]?.before ?? drawn.after;
  const ids = new Contributions();
  const moves = steps.flatMap(({ moves }, step) => moves.map((move) => ({ ...move, step })));
  const wrong = first_wrong ? moves.findIndex((move) => move.event === first_wrong.event) : -1;
  const after = (/** @type {number} */ step) => steps[step + 1]?.before ?? drawn.after;
  /** @type {[number, number, number][]} */
  const before = [];
  /** @type {[number, number, number][]} */
  const goal = [];
  for (let rank = 0; rank < ranks; rank++) {
    for (let chunk = 0; chunk < chunks; chunk++) {
      if (first[rank][chunk].length) before.push([rank, chunk, ids.of(first[rank][chunk])]);
      const promised = GOALS[verdict.puzzle]?.(rank, chunk, ranks);
      if (promised) goal.push([rank, chunk, ids.of(promised)]);
    }
  }
  return {
    title: "your messages",
    kind: "wire",
    ranks,
    chunks,
    nbytes: NUMBER_BYTES * sizes.reduce((sum, size) => sum + size, 0),
    steps: steps.length,
    layout: "ring",
    columns: 0,
    clock: "",
    timed: false,
    inferred: false,
    blocking: true,
    root: null,
    collective: null,
    wrong: wrong < 0 ? null : [wrong, instead(verdict)],
    ...(wrong < 0 ? {} : { amiss: moves.flatMap((move, at) => (move.wrong || at === wrong ? [at] : [])) }),
    bound: null,
    transfers: {
      step: moves.map(({ step }) => step),
      src: moves.map(({ src }) => src),
      dst: moves.map(({ dst }) => dst),
      nbytes: moves.map((move) => NUMBER_BYTES * move.chunks.reduce((sum, chunk) => sum + (sizes[chunk] ?? 0), 0)),
      chunks: moves.map((move) => move.chunks),
      reduce: moves.map(({ how }) => how === "add"),
      delivered: moves.map(({ how }) => how !== "lost"),
      effect_known: moves.map(({ how }) => how === "store"),
      carried: moves.map(({ holds }) => holds.map((ranks) => ids.of(ranks))),
      after: moves.map(({ step, dst, chunks: on }) => on.map((chunk) => ids.of(after(step)[dst][chunk] ?? []))),
      line: moves.map(({ line }) => line),
      start: moves.map(() => null),
      end: moves.map(() => null),
    },
    bars: {
      rank: [],
      op: [],
      step: [],
      end_step: [],
      peer: [],
      nbytes: [],
      received_nbytes: [],
      line: [],
      label: [],
      own: [],
      start: [],
      end: [],
    },
    before,
    goal,
    captions: [
      steps.length ? `Before step 1 of ${steps.length}` : "No message",
      ...steps.map(
        ({ moves }, at) => `step ${at + 1} of ${steps.length}: ${moves.map((move) => told(move, chunks)).join("; ")}`,
      ),
    ],
    contributions: ids.all,
  };
}
