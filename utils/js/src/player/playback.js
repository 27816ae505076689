// An animation at a moment: where every message is, and what every cell holds.
// Positions are in steps: 2.5 is half-way through the third step. What messages add up to is worked out in
// animation.py; here it is only looked up.

import { barsOf, transfersOf } from "./data.js";
import { MOST_HUES } from "./hues.js";
import { chunkName, counted, size } from "./words.js";

/** @typedef {import("./data.js").Axis} Axis */
/** @typedef {import("./data.js").Bar} Bar */
/** @typedef {import("./data.js").Transfer} Transfer */
/** @typedef {{rank: number, peer: number | null, forever: boolean, line: number | null}} Wait */

// positions and times closer than this are the same
const EPSILON = 1e-9;
const STEP_EPSILON = 1e-6;
// of more, a cell on a card would be too narrow
const MOST_CHUNKS = 32;

export class Playback {
  /** @type {Axis} */
  axis = "step";
  /** In steps. */
  position = 0;
  /** @type {[number, number][]} from when to when each transfer lasts, on the axis in use */
  spans = [];
  /** @type {number[]} the transfers' indices in the order in which they land */
  #byEnd = [];
  /** @type {number[]} the same in the order in which they set out */
  #byStart = [];
  /** The longest transfer on the axis in use. */
  #longest = 0;
  /** The message from which each cell has its value, -1: none; by rank * chunks + chunk. */
  #origins = new Int32Array(0);
  /** How many of `#byEnd` have landed. */
  #landed = 0;
  /** @type {Map<number, number[]>} */
  #contributors = new Map();

  /** @param {import("./data.js").AnimationData} data */
  constructor(data) {
    this.title = data.title;
    this.kind = data.kind;
    this.ranks = data.ranks;
    this.chunks = data.chunks;
    this.nbytes = data.nbytes;
    this.steps = data.steps;
    this.layout = data.layout;
    this.columns = data.columns;
    this.inferred = data.inferred;
    this.blocking = data.blocking;
    this.root = data.root;
    this.collective = data.collective;
    this.pace = data.pace ?? null;
    this.code = data.code ?? null;
    this.path = data.path ?? null;
    this.bound = data.bound;
    this.captions = data.captions;
    this.before = data.before;
    this.goal = data.goal;
    /** Runs of ranks, by the number of the contributions. */
    this.contributions = data.contributions;
    this.transfers = transfersOf(data.transfers);
    this.bars = barsOf(data.bars);
    this.wrong = data.wrong ?? null;
    /** Messages that can't be right; after their step nothing is judged. */
    this.amiss = new Set(data.amiss ?? []);
    /** From which step on all follows from what went wrong. */
    this.follows = data.amiss && this.wrong ? this.transfers[this.wrong[0]].step + 1 : this.steps;
    /** @type {Set<Transfer | Bar>} what is on the critical path */
    this.critical = new Set();
    for (const index of this.path?.transfers ?? []) this.critical.add(this.transfers[index]);
    for (const index of this.path?.bars ?? []) this.critical.add(this.bars[index]);
    /** @type {Transfer[][]} */
    this.byStep = Array.from({ length: this.steps }, () => []);
    for (const transfer of this.transfers) this.byStep[transfer.step].push(transfer);
    /** @type {Map<number, [number, number]>} */
    const links = new Map();
    for (const { src, dst } of this.transfers) links.set(src * this.ranks + dst, [src, dst]);
    this.links = [...links.values()];
    /** @type {number[][]} the ways that are used in one step, each such set once; a way as src * ranks + dst */
    this.together = [];
    const waysOf = this.byStep.map((step) => [...new Set(step.map(({ src, dst }) => src * this.ranks + dst))].sort());
    for (const keys of new Set(waysOf.map(String))) this.together.push(keys ? keys.split(",").map(Number) : []);
    this.undelivered = this.transfers.filter((transfer) => !transfer.delivered);
    /** What is lost to waiting: a wait for a call of one's own is none of it. */
    this.waitBars = this.bars.filter((bar) => bar.op === "wait" && !bar.own);
    /** Whole collectives, of which no messages are known. */
    this.calls = this.bars.filter((bar) => bar.op !== "wait" && bar.op !== "compute");
    this.computes = this.bars.some((bar) => bar.op === "compute");
    /** Whether the bytes of the collectives are known on both sides. */
    this.knowsCalls = this.kind === "wire" && this.calls.some((bar) => bar.put || bar.got);
    /** What a cell must hold at the end, as the number of its contributions; by rank * chunks + chunk. */
    this.goals = new Map(this.goal.map(([rank, chunk, id]) => [rank * this.chunks + chunk, id]));
    /** When each step is over, in microseconds; null: no times are known. */
    this.times = data.timed ? this.#stepTimes() : null;
    /** What each cell holds, as the number of its contributions, -1: nothing; by rank * chunks + chunk. */
    this.cells = new Int32Array(this.ranks * this.chunks);
    this.#origins = new Int32Array(this.ranks * this.chunks).fill(-1);
    /** Bytes, by rank. */
    this.sent = new Float64Array(this.ranks);
    this.received = new Float64Array(this.ranks);
    this.useAxis("step");
  }

  /** Whether a message can't be right only because of the one that went wrong first. @param {Transfer} transfer */
  followsFrom({ index, step }) {
    return step >= this.follows || (this.amiss.has(index) && index !== this.wrong?.[0]);
  }

  // When the last message of each step has landed, in microseconds, never going back.
  #stepTimes() {
    const times = new Array(this.steps + 1).fill(0);
    for (const { step, end } of this.transfers) {
      if (end !== null) times[step + 1] = Math.max(times[step + 1], end);
    }
    for (const { endStep, end } of this.bars) {
      if (end !== null && endStep !== null) times[endStep + 1] = Math.max(times[endStep + 1], end);
    }
    for (let k = 1; k < times.length; k++) times[k] = Math.max(times[k], times[k - 1]);
    // what never ends gets some room after all else, or it could not be seen
    const last = times[this.steps];
    const room = last * 0.15 || 1;
    for (const { start, step } of [...this.undelivered, ...this.bars.filter((bar) => bar.endStep === null)]) {
      if ((start ?? last) < last * 0.95) continue;
      for (let k = step + 1; k <= this.steps; k++) times[k] = Math.max(times[k], last + room);
    }
    return times;
  }

  /** @param {Axis} axis */
  useAxis(axis) {
    this.axis = axis === "time" && this.times ? "time" : "step";
    this.spans = this.transfers.map((transfer) => this.span(transfer));
    const indices = this.transfers.map((_, i) => i);
    this.#byEnd = [...indices].sort((a, b) => this.spans[a][1] - this.spans[b][1] || a - b);
    this.#byStart = indices.sort((a, b) => this.spans[a][0] - this.spans[b][0] || a - b);
    this.#longest = this.spans.reduce((most, [from, to]) => Math.max(most, to - from), 0);
    this.#rewind();
  }

  /**
   * From when to when a transfer or bar lasts on the axis in use; one without an end lasts to the end.
   *
   * @param {Transfer | Bar} item
   * @returns {[number, number]}
   */
  span(item) {
    const endStep = "endStep" in item ? item.endStep : item.step;
    if (this.axis === "time" && this.times) {
      const last = this.times[this.steps];
      const start = item.start ?? this.times[item.step];
      return [start, item.end === null || endStep === null ? Math.max(last, start) : item.end];
    }
    return [item.step, endStep === null ? this.steps : endStep + 1];
  }

  /**
   * The axis value (steps or microseconds) at a position in steps.
   *
   * @param {number} position
   */
  clockAt(position) {
    if (this.axis === "step" || !this.times) return position;
    const k = Math.min(Math.floor(position), this.steps - 1);
    return k < 0 ? 0 : this.times[k] + (position - k) * (this.times[k + 1] - this.times[k]);
  }

  /**
   * The position in steps at an axis value.
   *
   * @param {number} value
   */
  positionAt(value) {
    if (this.axis === "step" || !this.times) return Math.min(this.steps, Math.max(0, value));
    let k = 0;
    while (k < this.steps - 1 && this.times[k + 1] <= value) k++;
    const width = this.times[k + 1] - this.times[k];
    return Math.min(this.steps, Math.max(0, k + (width ? (value - this.times[k]) / width : 0)));
  }

  /** The last axis value. */
  get length() {
    return this.axis === "step" || !this.times ? this.steps : this.times[this.steps];
  }

  #rewind() {
    this.#landed = 0;
    this.cells.fill(-1);
    this.#origins.fill(-1);
    for (const [rank, chunk, id] of this.before) this.cells[rank * this.chunks + chunk] = id;
    this.sent.fill(0);
    this.received.fill(0);
  }

  /**
   * Moves to a position; returns whether any message landed or was taken back.
   *
   * @param {number} position
   */
  seek(position) {
    this.position = position;
    const now = this.clockAt(position) + EPSILON;
    const landsAt = (/** @type {number} */ turn) => this.spans[this.#byEnd[turn]][1];
    let changed = false;
    if (this.#landed && landsAt(this.#landed - 1) > now) {
      this.#rewind();
      changed = true;
    }
    while (this.#landed < this.#byEnd.length && landsAt(this.#landed) <= now) {
      this.#land(this.transfers[this.#byEnd[this.#landed++]]);
      changed = true;
    }
    return changed;
  }

  /** @param {Transfer} transfer */
  #land({ index, src, dst, nbytes, delivered, chunks, after }) {
    this.sent[src] += nbytes;
    if (!delivered) return;
    this.received[dst] += nbytes;
    chunks.forEach((chunk, i) => {
      this.cells[dst * this.chunks + chunk] = after[i];
      this.#origins[dst * this.chunks + chunk] = index;
    });
  }

  /**
   * Whether a whole collective or a wait never came to its end.
   *
   * @param {Bar} bar
   */
  neverEnds(bar) {
    return bar.endStep === null || (this.times !== null && bar.start !== null && bar.end === null);
  }

  /**
   * Where a cell's value came from: the message that landed there last, in words; "" before any.
   *
   * @param {number} rank
   * @param {number} chunk
   */
  origin(rank, chunk) {
    const index = this.#origins[rank * this.chunks + chunk];
    if (index >= 0) {
      const { src, step, does, line } = this.transfers[index];
      const what = does === "adds" ? "added to" : "stored over";
      return `; in step ${step + 1} what rank ${src} sent was ${what} it${line ? `, line ${line}` : ""}`;
    }
    return "";
  }

  /** How many whole steps are over. */
  get done() {
    return Math.floor(this.position + STEP_EPSILON);
  }

  /** The step that is going on, or has just ended, counted from 1; 0 at the start. */
  get current() {
    return Math.max(0, Math.ceil(this.position - STEP_EPSILON));
  }

  /** Whether no step is going on. */
  get resting() {
    return Math.abs(this.position - Math.round(this.position)) < STEP_EPSILON;
  }

  get atEnd() {
    return this.position >= this.steps - STEP_EPSILON;
  }

  /**
   * The messages of the step that has just ended; none between steps and on the time axis.
   *
   * @returns {Transfer[]}
   */
  justLanded() {
    return this.resting && this.done > 0 && this.axis === "step" ? this.byStep[this.done - 1] : [];
  }

  /**
   * Messages on their way now, each with how far it has come (0..1).
   *
   * @returns {[Transfer, number][]}
   */
  flying() {
    const now = this.clockAt(this.position) + EPSILON;
    if (this.axis === "step") {
      if (this.resting) return [];
      return this.byStep[this.done].map((transfer) => [transfer, now - transfer.step]);
    }
    let low = 0;
    let high = this.#byStart.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.spans[this.#byStart[middle]][0] < now - this.#longest) low = middle + 1;
      else high = middle;
    }
    /** @type {[Transfer, number][]} */
    const found = [];
    for (; low < this.#byStart.length && this.spans[this.#byStart[low]][0] <= now; low++) {
      const [from, to] = this.spans[this.#byStart[low]];
      if (now < to) found.push([this.transfers[this.#byStart[low]], (now - from) / (to - from)]);
    }
    return found;
  }

  /**
   * The bytes that a rank has put into collectives that are over, and those that it got.
   *
   * @param {number} rank
   * @returns {[number, number]}
   */
  throughCalls(rank) {
    const now = this.clockAt(this.position) + STEP_EPSILON;
    const over = this.calls.filter((bar) => bar.rank === rank && !this.neverEnds(bar) && this.span(bar)[1] <= now);
    return [over.reduce((sum, { put }) => sum + put, 0), over.reduce((sum, { got }) => sum + got, 0)];
  }

  /**
   * The bars of the step that is going on, or has just ended.
   *
   * @returns {Bar[]}
   */
  barsNow() {
    const step = this.current - 1;
    return this.bars.filter((bar) => bar.step <= step && (bar.endStep === null || step <= bar.endStep));
  }

  /** Sends that nobody receives, once they have set out. */
  stuck() {
    const now = this.clockAt(this.position);
    return this.undelivered.filter((transfer) => this.spans[transfer.index][0] < now - EPSILON);
  }

  /**
   * The waits of ranks that last now: from wait events, and from sends that nobody receives.
   *
   * @returns {Wait[]}
   */
  waits() {
    const now = this.clockAt(this.position) - EPSILON;
    const found = this.waitBars
      .filter((bar) => {
        const [from, to] = this.span(bar);
        return from < now && now <= to;
      })
      .map((bar) => ({ rank: bar.rank, peer: bar.peer, forever: bar.endStep === null, line: bar.line }));
    if (this.blocking)
      for (const { src, dst, line } of this.stuck()) found.push({ rank: src, peer: dst, forever: true, line });
    return found;
  }

  /**
   * The ranks of contributions by their number, in order, a rank twice if it was counted twice.
   *
   * @param {number} id
   */
  contributors(id) {
    if (id < 0) return [];
    let ranks = this.#contributors.get(id);
    if (!ranks) {
      ranks = [];
      const runs = this.contributions[id];
      for (let i = 0; i < runs.length; i += 2) for (let r = runs[i]; r <= runs[i + 1]; r++) ranks.push(r);
      ranks.sort((a, b) => a - b);
      this.#contributors.set(id, ranks);
    }
    return ranks;
  }

  /**
   * The ranks whose contributions a cell holds now.
   *
   * @param {number} rank
   * @param {number} chunk
   */
  held(rank, chunk) {
    return this.contributors(this.cells[rank * this.chunks + chunk]);
  }

  /**
   * How a cell stands to what the collective promises; null where it promises nothing.
   *
   * @param {number} rank
   * @param {number} chunk
   * @returns {"done" | "missing" | "twice" | null}
   */
  verdict(rank, chunk) {
    const held = this.held(rank, chunk);
    if (held.some((r, i) => i && held[i - 1] === r)) return "twice";
    const goal = this.goals.get(rank * this.chunks + chunk);
    if (goal === undefined) return null;
    return String(held) === String(this.contributors(goal)) ? "done" : "missing";
  }

  /** Whether each rank has a card, on which each chunk can be read; else they are a matrix. */
  get isDetailed() {
    return this.ranks <= MOST_HUES && (this.chunks <= MOST_CHUNKS || this.isSquare);
  }

  /** Whether each chunk goes from one rank to another: chunk `p * s + d` from s to d. */
  get isSquare() {
    return this.collective === "all_to_all" && this.chunks === this.ranks * this.ranks;
  }

  /**
   * The chunks of a message, in little room; of an all-to-all from whom to whom its part goes.
   *
   * @param {{chunks: number[], nbytes: number}} message
   */
  nameOf({ chunks, nbytes }) {
    if (!this.isSquare || !chunks.length) return chunkName({ chunks, nbytes });
    if (chunks.length > 1) return counted(chunks.length, "part");
    return `${Math.floor(chunks[0] / this.ranks)}→${chunks[0] % this.ranks}`;
  }

  /**
   * So many bytes, or chunks where the schedule was given no size.
   *
   * @param {number} nbytes
   */
  amount(nbytes) {
    return this.chunks && this.nbytes === this.chunks ? counted(+nbytes.toPrecision(3), "chunk") : size(nbytes);
  }
}

/**
 * The playback that lasts longest on the axis in use.
 *
 * @param {Playback[]} playbacks
 */
export function longestOf(playbacks) {
  return playbacks.reduce((a, b) => (b.length > a.length ? b : a));
}
