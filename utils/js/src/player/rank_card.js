// One rank's card: its name, what it is doing, and a cell for each chunk with a stripe for each contributor.

import { moveTo, svg } from "../common/dom.js";
import { hueFill } from "./hues.js";
import { contributionsOf, size } from "./words.js";

/** @typedef {import("./playback.js").Playback} Playback */
/** @typedef {import("./card_shape.js").CardShape} CardShape */
/** @typedef {{x: number, y: number, w: number, h: number}} Box */

const JUST = 1e-6;
const DIGIT = { w: 9, h: 12.5 };

export class RankCard {
  /** @type {{at: Box, frame: SVGRectElement, title: SVGTitleElement}[]} one for each chunk */
  #cells = [];
  /** @type {SVGPathElement[]} the stripes of each contributor */
  #stripes = [];
  /** @type {SVGPathElement | null} hatching over what is counted twice */
  #twice = null;
  /** @type {SVGGElement | null} the contributors' numbers */
  #numbers = null;
  /** @type {SVGTextElement[]} two or three lines, where no chunks are known */
  #lines = [];
  /** @type {Set<number>} the chunks that are on their way here */
  #landing = new Set();

  /**
   * @param {Element} parent
   * @param {import("./layouts.js").Point} centre
   * @param {number} rank
   * @param {Playback} playback
   * @param {CardShape} shape
   * @param {string} uid of the picture
   */
  constructor(parent, centre, rank, playback, shape, uid) {
    this.rank = rank;
    this.playback = playback;
    this.shape = shape;
    const { w, h } = shape.card;
    this.root = svg("g", { class: "ar-rank", "data-rank": rank, transform: moveTo(centre) }, parent);
    svg("rect", { x: -w / 2, y: -h / 2, width: w, height: h, rx: 7, class: "ar-card" }, this.root);
    const left = -w / 2 + (w < 84 ? 5 : 9);
    const mark = { x: left, y: -h / 2 + 8, width: 11, height: 11, rx: 2 };
    svg("rect", { ...mark, ...hueFill(rank, uid) }, this.root);
    svg("text", { x: left + 16, y: -h / 2 + 18, class: "ar-name" }, this.root, `rank ${rank}`);
    this.state = svg("text", { x: w / 2 - (w < 84 ? 3 : 8), y: -h / 2 + 18, class: "ar-state" }, this.root);
    if (playback.chunks) this.#addCells(uid);
    else
      this.#lines = [39, 56, 73]
        .slice(0, linesOn(playback))
        .map((y) => svg("text", { x: 0, y: -h / 2 + y, class: "ar-bytes" }, this.root));
  }

  /** Where each chunk's cell is. */
  #places() {
    const { chunks, ranks } = this.playback;
    const { cell, cellGap, way, card } = this.shape;
    const across = way === "square" ? ranks : chunks;
    const left = -(across * (cell.w + cellGap) - cellGap) / 2;
    const top = -card.h / 2 + 26;
    return Array.from({ length: chunks }, (_, c) => ({
      x: left + (c % across) * (cell.w + cellGap),
      y: top + Math.floor(c / across) * (cell.h + cellGap),
      ...cell,
    }));
  }

  /** @param {string} uid */
  #addCells(uid) {
    const { rank, shape, root } = this;
    const places = this.#places();
    places.forEach(({ x, y, w, h }, chunk) => {
      svg("rect", { x, y, width: w, height: h, rx: w < 4 ? 0 : 2, class: "ar-empty" }, root);
      if (!shape.labels) return;
      svg("text", { x: x + w / 2, y: y + h + 14, class: "ar-label" }, root, w >= 18 ? `c${chunk}` : `${chunk}`);
    });
    this.#stripes = Array.from({ length: this.playback.ranks }, (_, r) =>
      svg("path", { ...hueFill(r, uid), "data-contributor": r }, root),
    );
    this.#twice = svg("path", { style: `fill:url(#${uid}-twice)`, class: "ar-hatch" }, root);
    this.#numbers = svg("g", { class: "ar-numbers" }, root);
    this.#cells = places.map((at, chunk) => {
      const { x, y, w, h } = at;
      const place = { x, y, width: w, height: h, rx: w < 4 ? 0 : 2 };
      const frame = svg("rect", { ...place, class: "ar-cell", "data-rank": rank, "data-chunk": chunk }, root);
      return { at, frame, title: svg("title", {}, frame) };
    });
  }

  /**
   * A contributor's part of a cell.
   *
   * @param {Box} cell
   * @param {number} r
   * @returns {Box}
   */
  #part({ x, y, w, h }, r) {
    const { ranks } = this.playback;
    if (this.shape.way === "square") return { x, y, w, h };
    if (this.shape.way === "lying") return { x: x + (r * w) / ranks, y, w: w / ranks, h };
    return { x, y: y + (r * h) / ranks, w, h: h / ranks };
  }

  /**
   * Draws what the cells hold, or how many bytes went through.
   *
   * @param {Set<number>} fresh the cells that the step before has changed, as rank * chunks + chunk
   */
  showContents(fresh) {
    if (this.#cells.length) this.#showCells(fresh);
    else if (this.#lines.length && this.playback.transfers.length) {
      this.#lines[0].textContent = `sent ${size(this.playback.sent[this.rank])}`;
      const got = this.shape.brief ? "got" : "received";
      this.#lines[1].textContent = `${got} ${size(this.playback.received[this.rank])}`;
    }
  }

  /** @param {Set<number>} fresh */
  #showCells(fresh) {
    const { rank, playback } = this;
    const paths = this.#stripes.map(() => "");
    /** @type {SVGTextElement[]} */
    const numbers = [];
    let twice = "";
    for (const [chunk, { at, frame, title }] of this.#cells.entries()) {
      const held = playback.held(rank, chunk);
      for (const [i, r] of held.entries()) {
        const part = this.#part(at, r);
        const d = outline(part);
        if (i && held[i - 1] === r) {
          twice += d;
          continue;
        }
        paths[r] += d;
        if (part.h < DIGIT.h || part.w < DIGIT.w) continue;
        const place = { x: part.x + part.w / 2, y: part.y + part.h / 2 + 4.3 };
        numbers.push(svg("text", { ...place, class: r % 4 ? "ar-on-rank" : "ar-on-first" }, null, String(r)));
      }
      const verdict = playback.verdict(rank, chunk);
      const known = verdict && (verdict !== "missing" || playback.atEnd);
      const isFresh = fresh.has(rank * playback.chunks + chunk);
      const landing = this.#landing.has(chunk);
      const classes = `ar-cell${known ? ` ar-${verdict}` : ""}${isFresh ? " ar-fresh" : ""}`;
      frame.setAttribute("class", classes + (landing ? " ar-landing" : ""));
      frame.dataset.contrib = held.join(",");
      title.textContent = `rank ${rank}, chunk ${chunk}: ${holds(held)}${playback.origin(rank, chunk)}`;
    }
    this.#stripes.forEach((stripe, r) => {
      stripe.setAttribute("d", paths[r]);
    });
    this.#twice?.setAttribute("d", twice);
    this.#numbers?.replaceChildren(...numbers);
  }

  /**
   * Dashes the places where what is under way will land.
   *
   * @param {Set<number>} chunks
   */
  showLanding(chunks) {
    this.#landing = chunks;
    this.#cells.forEach(({ frame }, chunk) => {
      frame.classList.toggle("ar-landing", chunks.has(chunk));
    });
  }

  /**
   * Says whether the rank waits or is done.
   *
   * @param {import("./playback.js").Wait | undefined} wait
   */
  showState(wait) {
    this.root.classList.toggle("ar-waiting", Boolean(wait));
    this.root.classList.toggle("ar-forever", Boolean(wait?.forever));
    const verdicts = this.#cells.map((_, chunk) => this.playback.verdict(this.rank, chunk));
    const done = verdicts.some((v) => v === "done") && verdicts.every((v) => v === "done" || v === null);
    this.state.textContent = wait
      ? wait.peer === null || this.shape.brief
        ? "waits"
        : `waits for ${wait.peer}`
      : done
        ? "✓"
        : "";
    this.root.dataset.state = wait ? (wait.forever ? "waiting for ever" : "waiting") : done ? "done" : "";
  }

  /** Where no messages are known: says what the rank is computing, and in which collective it takes part. */
  showActivity() {
    if (!this.#lines.length) return;
    const words = activityOf(this.playback, this.rank, this.shape.brief);
    this.#lines.forEach((line, i) => {
      line.textContent = words[i] ?? "";
    });
  }
}

/**
 * How many lines of words a card has where no chunks are known.
 *
 * @param {Playback} playback
 */
export function linesOn({ transfers, knowsCalls, computes }) {
  return !transfers.length && knowsCalls && computes ? 3 : 2;
}

/**
 * What a rank does now, in two or three lines: a rank that never comes out of a collective waits in it.
 *
 * @param {Playback} playback
 * @param {number} rank
 * @param {boolean} brief
 */
export function activityOf(playback, rank, brief = false) {
  // where one ends and the next begins, what has just ended is told, as in the line below the picture
  const now = Math.max(0, playback.clockAt(playback.position) - JUST);
  const going = playback.bars.filter((bar) => {
    const [from, to] = playback.span(bar);
    return from <= now && (now < to || (bar.end === null && playback.axis === "time"));
  });
  const among = playback.axis === "step" ? playback.barsNow() : going;
  const active = among.filter((bar) => bar.rank === rank);
  const compute = active.find((bar) => bar.op === "compute");
  const calls = active.filter((bar) => bar.op !== "compute" && bar.op !== "wait");
  // of several under way the one that began last
  const collective = calls[calls.length - 1];
  if (collective && playback.neverEnds(collective)) return ["waiting in", activityName(collective)];
  return lines(playback, compute, collective, brief);
}

/**
 * @param {Playback} playback
 * @param {import("./data.js").Bar | undefined} compute
 * @param {import("./data.js").Bar | undefined} collective
 * @param {boolean} brief
 */
function lines(playback, compute, collective, brief) {
  const name = activityName(collective);
  const bytes = collective ? throughWords(collective) : "";
  const moves = brief ? name : `moves ${name}`;
  // where nothing is known but calls, a rank is in one or in none
  if (!playback.knowsCalls && !playback.computes) return [collective ? `in ${name}` : "in no call", ""];
  if (!playback.knowsCalls) return [`computes ${activityName(compute)}`, moves];
  if (linesOn(playback) === 2) return [name, bytes];
  const what = compute ? (compute.label ?? "") : "–";
  return [brief && compute?.label ? what : `computes ${what}`.trim(), moves, bytes];
}

/**
 * "16 B in, 64 B out"; "" for a collective without bytes.
 *
 * @param {import("./data.js").Bar} bar
 */
export function throughWords({ put, got }) {
  return put || got ? `${size(put)} in, ${size(got)} out` : "";
}

/**
 * The longest line that a card of this playback can have, in letters.
 *
 * @param {Playback} playback
 * @param {boolean} brief
 */
export function longestLine(playback, brief) {
  const words = playback.bars.flatMap((bar) =>
    bar.op === "wait"
      ? []
      : bar.op === "compute"
        ? lines(playback, bar, undefined, brief)
        : lines(playback, undefined, bar, brief),
  );
  return words.reduce((most, { length }) => Math.max(most, length), 0);
}

/** @param {Box} box */
function outline({ x, y, w, h }) {
  return `M${x.toFixed(2)} ${y.toFixed(2)}h${w.toFixed(2)}v${h.toFixed(2)}h-${w.toFixed(2)}z`;
}

/** @param {import("./data.js").Bar | undefined} bar */
function activityName(bar) {
  return bar ? (bar.label ?? bar.op.replace(/_single$|(_into)?_tensor$/, "")) : "–";
}

/** @param {number[]} held */
function holds(held) {
  if (!held.length) return "empty";
  /** @type {Map<number, number>} */
  const counts = new Map();
  for (const r of held) counts.set(r, (counts.get(r) ?? 0) + 1);
  return `holds the ${contributionsOf([...counts].map(([r, times]) => (times > 1 ? `${r} (${times} times)` : r)))}`;
}
