// The reader's breakpoints: a rank and a step of one of the animations, at which playing stops.

/** @typedef {import("./data.js").Transfer} Transfer */
/** @typedef {import("./playback.js").Playback} Playback */
/** @typedef {{half: number, rank: number, step: number}} Stop half: which animation; step: counted from 0 */

/**
 * What the rank does in the step: the message that it gets, or else the one that it sends; undefined where it does
 * neither.
 *
 * @param {Playback} playback
 * @param {number} rank
 * @param {number} step
 */
export function moveOf(playback, rank, step) {
  const now = playback.byStep[step] ?? [];
  return now.find(({ dst, delivered }) => delivered && dst === rank) ?? now.find(({ src }) => src === rank);
}

/**
 * The axis value at which playing stops: while the rank's message is on its way, or in the midst of the step.
 *
 * @param {Playback} playback
 * @param {Stop} stop
 */
export function momentOf(playback, { rank, step }) {
  const move = moveOf(playback, rank, step);
  if (move?.delivered) {
    const [from, to] = playback.span(move);
    return (from + to) / 2;
  }
  return playback.clockAt(step + 0.5);
}

export class Stops {
  /** @type {Stop[]} in the order in which they were set */
  all = [];

  /** @param {Playback[]} playbacks */
  constructor(playbacks) {
    this.playbacks = playbacks;
  }

  /** @param {Stop} stop */
  has({ half, rank, step }) {
    return this.all.some((one) => one.half === half && one.rank === rank && one.step === step);
  }

  /**
   * Sets one, or takes it away; false where there is no such rank or step.
   *
   * @param {Stop} stop
   */
  toggle(stop) {
    const { half, rank, step } = stop;
    const playback = this.playbacks[half];
    if (!playback || rank < 0 || rank >= playback.ranks || step < 0 || step >= playback.steps) return false;
    if (this.has(stop)) {
      this.all = this.all.filter((one) => one.half !== half || one.rank !== rank || one.step !== step);
    } else this.all.push({ half, rank, step });
    return true;
  }

  /**
   * Where each is, as a position in steps of the animation that lasts longest.
   *
   * @param {Stop} stop
   * @param {Playback} longest
   */
  positionOf(stop, longest) {
    const playback = this.playbacks[stop.half];
    const value = momentOf(playback, stop);
    return playback.axis === "time" ? longest.positionAt(value) : value;
  }

  /**
   * The first position behind this one at which playing stops; null: none.
   *
   * @param {number} position
   * @param {Playback} longest
   */
  after(position, longest) {
    const found = this.all.map((stop) => this.positionOf(stop, longest)).filter((at) => at > position + 1e-6);
    return found.length ? Math.min(...found) : null;
  }

  /**
   * The one at a position, the last that was set; undefined: none.
   *
   * @param {number} position
   * @param {Playback} longest
   */
  at(position, longest) {
    return this.all.filter((stop) => Math.abs(this.positionOf(stop, longest) - position) < 1e-6).pop();
  }
}
