// One rank's card: its name, what it is doing, and a cell for each chunk with a stripe for each contributor.

import { colourOf, inkOn } from "../common/colours.js";
import { moveTo, svg } from "../common/dom.js";
import { contributionsOf, size } from "./words.js";

/** @typedef {import("./playback.js").Playback} Playback */
/** @typedef {import("./layouts.js").Size} Size */

/**
 * The measures that all cards of a picture share.
 *
 * @typedef {object} CardShape
 * @property {Size} card
 * @property {Size} cell
 * @property {number} cellGap
 * @property {number} stripe height of one contributor's stripe
 * @property {boolean} labels whether the chunk's number stands below its cell
 * @property {number} left x of the first cell
 */

/**
 * @param {Playback} playback
 * @returns {CardShape}
 */
export function cardShape({ ranks, chunks, bars, undelivered, waitBars }) {
  const height = ranks > 8 ? 60 : 44;
  const width =
    chunks === 1 ? 60 : chunks <= 20 ? Math.min(26, Math.max(5, 118 / chunks - 3)) : Math.max(2, 130 / chunks);
  const cellGap = chunks <= 20 ? 3 : 1;
  const inner = chunks ? chunks * (width + cellGap) - cellGap : 108;
  const labels = chunks > 0 && width >= 10;
  // the rank's name has "waits" or "waits for 3" beside it
  const waitsForOne = undelivered.length > 0 || bars.some((bar) => bar.op === "wait" && bar.peer !== null);
  const least = waitsForOne ? 150 : waitBars.length ? 120 : 96;
  return {
    card: { w: Math.max(least, inner + 20), h: chunks ? 24 + height + (labels ? 15 : 8) : 62 },
    cell: { w: width, h: height },
    cellGap,
    stripe: height / ranks,
    labels,
    left: -inner / 2,
  };
}

export class RankCard {
  /** @type {{x: number, frame: SVGRectElement, title: SVGTitleElement}[]} one for each chunk */
  #cells = [];
  /** @type {SVGPathElement[]} the stripes of each contributor */
  #stripes = [];
  /** @type {SVGPathElement | null} hatching over what is counted twice */
  #twice = null;
  /** @type {SVGGElement | null} the contributors' numbers */
  #numbers = null;
  /** @type {SVGTextElement[]} two lines, where no chunks are known */
  #lines = [];

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
    this.top = -h / 2 + 24;
    this.root = svg("g", { class: "ar-rank", "data-rank": rank, transform: moveTo(centre) }, parent);
    svg("rect", { x: -w / 2, y: -h / 2, width: w, height: h, rx: 7, class: "ar-card" }, this.root);
    const dot = { cx: -w / 2 + 13, cy: -h / 2 + 13, r: 4.5, fill: colourOf(rank), class: "ar-dot" };
    svg("circle", dot, this.root);
    svg("text", { x: -w / 2 + 22, y: -h / 2 + 17, class: "ar-name" }, this.root, `rank ${rank}`);
    this.state = svg("text", { x: w / 2 - 8, y: -h / 2 + 17, class: "ar-state" }, this.root);
    if (playback.chunks) this.#addCells(uid);
    else this.#lines = [36, 51].map((y) => svg("text", { x: 0, y: -h / 2 + y, class: "ar-bytes" }, this.root));
  }

  /** @param {string} uid */
  #addCells(uid) {
    const { rank, shape, top, root } = this;
    const { w, h } = shape.cell;
    const columns = Array.from({ length: this.playback.chunks }, (_, c) => shape.left + c * (w + shape.cellGap));
    columns.forEach((x, chunk) => {
      svg("rect", { x, y: top, width: w, height: h, class: "ar-empty" }, root);
      if (!shape.labels) return;
      svg("text", { x: x + w / 2, y: top + h + 11, class: "ar-label" }, root, w >= 20 ? `c${chunk}` : `${chunk}`);
    });
    this.#stripes = Array.from({ length: this.playback.ranks }, (_, r) => svg("path", { fill: colourOf(r) }, root));
    this.#twice = svg("path", { fill: `url(#${uid}-twice)` }, root);
    this.#numbers = svg("g", { class: "ar-ink" }, root);
    this.#cells = columns.map((x, chunk) => {
      const place = { x, y: top, width: w, height: h, rx: 1.5 };
      const frame = svg("rect", { ...place, class: "ar-cell", "data-rank": rank, "data-chunk": chunk }, root);
      return { x, frame, title: svg("title", {}, frame) };
    });
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
      this.#lines[1].textContent = `received ${size(this.playback.received[this.rank])}`;
    }
  }

  /** @param {Set<number>} fresh */
  #showCells(fresh) {
    const { rank, playback, shape } = this;
    const { w } = shape.cell;
    const paths = this.#stripes.map(() => "");
    const numbers = [];
    let twice = "";
    for (const [chunk, cell] of this.#cells.entries()) {
      const held = playback.held(rank, chunk);
      for (const [i, r] of held.entries()) {
        const y = this.top + r * shape.stripe;
        const d =
          `M${cell.x.toFixed(2)} ${y.toFixed(2)}h${w.toFixed(2)}` + `v${shape.stripe.toFixed(2)}h-${w.toFixed(2)}z`;
        if (i && held[i - 1] === r) {
          twice += d;
          continue;
        }
        paths[r] += d;
        if (shape.stripe >= 8 && w >= 14) {
          const place = { x: cell.x + w / 2, y: y + shape.stripe / 2 + 3 };
          numbers.push(svg("text", { ...place, fill: inkOn(r) }, null, String(r)));
        }
      }
      const verdict = playback.verdict(rank, chunk);
      const known = verdict && (verdict !== "missing" || playback.atEnd);
      const isFresh = fresh.has(rank * playback.chunks + chunk);
      cell.frame.setAttribute("class", `ar-cell${known ? ` ar-${verdict}` : ""}${isFresh ? " ar-fresh" : ""}`);
      cell.frame.dataset.contrib = held.join(",");
      cell.title.textContent = `rank ${rank}, chunk ${chunk}: ${holds(held)}`;
    }
    this.#stripes.forEach((stripe, r) => {
      stripe.setAttribute("d", paths[r]);
    });
    this.#twice?.setAttribute("d", twice);
    this.#numbers?.replaceChildren(...numbers);
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
    this.state.textContent = wait ? (wait.peer === null ? "waits" : `waits for ${wait.peer}`) : done ? "✓" : "";
    this.root.dataset.state = wait ? (wait.forever ? "waiting for ever" : "waiting") : done ? "done" : "";
  }

  /** Where no messages are known: says what the rank is computing, and in which collective it takes part. */
  showActivity() {
    if (!this.#lines.length) return;
    const now = this.playback.clockAt(this.playback.position);
    const active = this.playback.bars.filter((bar) => {
      const [from, to] = this.playback.span(bar);
      return bar.rank === this.rank && from <= now && now < to;
    });
    const compute = active.find((bar) => bar.op === "compute");
    const collective = active.find((bar) => bar.op !== "compute" && bar.op !== "wait");
    this.#lines[0].textContent = `computes ${activityName(compute)}`;
    this.#lines[1].textContent = `moves ${activityName(collective)}`;
  }
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
