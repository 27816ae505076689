// The orders of a pipeline and when each action runs, as allranks.pipelines has them. A test holds the two equal.

/**
 * @typedef {object} Action
 * @property {number} stage
 * @property {"F" | "B" | "I" | "W"} kind
 * @property {number} i the micro-batch
 *
 * @typedef {Action & {start: number, end: number}} Span
 */

/** In how many rounds the micro-batches pass the stages of a rank. @param {number} p @param {number} m */
const rounds = (p, m) => Math.max(1, Math.floor(m / p));

/**
 * The most micro-batches, not over `m`, that an order allows.
 *
 * @param {string} order
 * @param {number} p
 * @param {number} m
 */
export function allowed(order, p, m) {
  let found = m;
  while (order === "interleaved" && found % rounds(p, found)) found--;
  return found;
}

/** @param {string} order */
export const stagesEach = (order) => (order === "interleaved" ? 2 : 1);

/** @type {Record<string, (r: number, p: number, m: number) => Action[]>} what rank r does, in its order */
const ORDERS = {
  gpipe: (r, _, m) => [..."FB"].flatMap((kind) => range(m).map((i) => act(r, kind, i))),
  "1f1b": (r, p, m) =>
    turns(
      m,
      p - 1 - r,
      (i) => act(r, "F", i),
      (i) => [act(r, "B", i)],
    ),
  interleaved(r, p, m) {
    const [each, total] = [m / rounds(p, m), 2 * m];
    const place = (/** @type {number} */ i, /** @type {string} */ kind) => {
      const [turn, rest] = [Math.floor(i / (2 * each)), i % (2 * each)];
      const piece = Math.floor(rest / each);
      return act((kind === "B" ? 1 - piece : piece) * p + r, kind, turn * each + (rest % each));
    };
    return turns(
      total,
      each + 2 * (p - 1 - r),
      (i) => place(i, "F"),
      (i) => [place(i, "B")],
    );
  },
  "zb-h1"(r, p, m) {
    const back = (/** @type {number} */ i) => [act(r, "I", i), ...(i >= r ? [act(r, "W", i - r)] : [])];
    const late = range(m).slice(Math.max(m - r, 0));
    return [...turns(m, p - 1 - r, (i) => act(r, "F", i), back), ...late.map((i) => act(r, "W", i))];
  },
};

/**
 * Some forward passes ahead, then one forward and one backward in turn.
 *
 * @param {number} total
 * @param {number} most ahead
 * @param {(i: number) => Action} forward
 * @param {(i: number) => Action[]} back
 */
function turns(total, most, forward, back) {
  const ahead = Math.min(most, total);
  const after = range(total).flatMap((i) => [...(ahead + i < total ? [forward(ahead + i)] : []), ...back(i)]);
  return [...range(ahead).map(forward), ...after];
}

/** @param {number} n */
const range = (n) => Array.from({ length: n }, (_, i) => i);

/** @param {number} stage @param {string} kind @param {number} i @returns {Action} */
const act = (stage, kind, i) => ({ stage, kind: /** @type {Action["kind"]} */ (kind), i });

/**
 * Runs an order: forward takes 1, each half of backward takes 1.
 *
 * @param {string} order
 * @param {number} p
 * @param {number} m allowed by the order
 */
export function runPipeline(order, p, m) {
  const each = stagesEach(order);
  const took = { F: 1 / each, B: 2 / each, I: 1 / each, W: 1 / each };
  const orders = range(p).map((r) => ORDERS[order](r, p, m));
  const backward = order === "zb-h1" ? "I" : "B";
  /** @type {Map<string, number>} */
  const ends = new Map();
  /** @type {Span[][]} */
  const spans = range(p).map(() => []);
  /** When what an action needs is there; undefined if it is not yet. @param {Action} action */
  const ready = ({ stage, kind, i }) => {
    if (kind === "F") return stage ? ends.get(`F${stage - 1} ${i}`) : 0;
    if (kind === "W") return ends.get(`I${stage} ${i}`);
    const own = ends.get(`F${stage} ${i}`);
    const next = stage < each * p - 1 ? ends.get(`${backward}${stage + 1} ${i}`) : 0;
    return own === undefined || next === undefined ? undefined : Math.max(own, next);
  };
  let left = orders.reduce((sum, mine) => sum + mine.length, 0);
  while (left) {
    for (const [r, mine] of orders.entries()) {
      while (spans[r].length < mine.length) {
        const action = mine[spans[r].length];
        const from = ready(action);
        if (from === undefined) break;
        const start = Math.max(from, spans[r].at(-1)?.end ?? 0);
        const end = start + took[action.kind];
        ends.set(`${action.kind}${action.stage} ${action.i}`, end);
        spans[r].push({ ...action, start, end });
        left--;
      }
    }
  }
  const makespan = Math.max(...spans.map((mine) => mine[mine.length - 1].end));
  return { spans, makespan, idle: 1 - (3 * m) / makespan, kept: spans.map((mine) => mostKept(mine) / each) };
}

/** The most activations that a rank keeps at once. @param {Span[]} mine */
function mostKept(mine) {
  let [now, most] = [0, 0];
  for (const { kind } of mine) {
    if (kind === "F") most = Math.max(most, ++now);
    else if (kind !== "I") now--;
  }
  return most;
}
