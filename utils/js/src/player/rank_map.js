// A small map of many ranks: which links are in use, and who waits. A ring is drawn as a circle.

import { placeRanks } from "./layouts.js";
import { pointAlong } from "./routes.js";

/** @typedef {import("./data.js").Layout} Layout */
/** @typedef {import("./data.js").Transfer} Transfer */
/** @typedef {import("./layouts.js").Point} Point */
/** @typedef {import("./playback.js").Playback} Playback */
/** @typedef {import("./heat_map.js").Colours} Colours */
/** @typedef {{x: number, y: number, w: number, h: number}} Box */

const LABELS = 8;

export class RankMap {
  /** @type {Layout} */
  #layout = "ring";
  /** @type {Point[]} where each rank's dot is, 0 to 1 in both directions */
  #places = [];
  /** @type {Box | null} null: it has no room */
  #box = null;

  /** @param {Playback} playback */
  constructor(playback) {
    this.playback = playback;
  }

  /** @param {Layout} layout */
  show(layout) {
    this.#layout = layout;
    this.#places = placeRanks(layout, this.playback);
  }

  /** @param {Box | null} box in pixels */
  place(box) {
    this.#box = box;
  }

  get #round() {
    return this.#layout === "ring" || this.#layout === "all-to-all";
  }

  /** @param {number} rank */
  #point(rank) {
    const { x, y } = this.#places[rank];
    const box = /** @type {Box} */ (this.#box);
    const r = this.#radius + 2;
    const side = Math.min(box.w, box.h) - 2 * r;
    const w = this.#round ? side : box.w - 2 * r;
    const h = this.#round ? side : box.h - 2 * r;
    return { x: box.x + box.w / 2 + (x - 0.5) * w, y: box.y + box.h / 2 + (y - 0.5) * h };
  }

  get #radius() {
    const box = /** @type {Box} */ (this.#box);
    return Math.max(2.2, Math.min(9, (box.w * 1.2) / this.playback.ranks));
  }

  /**
   * @param {CanvasRenderingContext2D} pen
   * @param {Transfer[]} shown the messages of this moment
   * @param {string[]} fills a colour for each rank
   * @param {Colours} colours
   * @param {number} busy how many links are in use
   * @param {number | null} row the rank under the pointer
   */
  draw(pen, shown, fills, colours, busy, row) {
    if (!this.#box) return;
    this.#drawLinks(pen, shown, colours);
    // on a small circle dots would hide the links
    const tiny = this.#layout === "ring" && this.#radius < 4;
    this.#drawRanks(pen, tiny ? fills.map(() => "") : fills, colours, row);
    if (this.#round && this.playback.links.length) this.#drawMiddle(pen, colours, busy);
  }

  /**
   * @param {CanvasRenderingContext2D} pen
   * @param {Transfer[]} shown
   * @param {Colours} colours
   */
  #drawLinks(pen, shown, colours) {
    const { ranks, links } = this.playback;
    pen.lineWidth = 1;
    pen.strokeStyle = colours.line;
    if (links.length <= 4 * ranks) this.#drawCurves(pen, links);
    pen.lineWidth = this.#layout === "ring" ? 4 : 1.6;
    pen.strokeStyle = colours.wire;
    const pairs = (/** @type {Transfer[]} */ transfers) => transfers.map(({ src, dst }) => [src, dst]);
    this.#drawCurves(pen, pairs(shown.filter((transfer) => transfer.delivered)));
    pen.strokeStyle = colours.lost;
    this.#drawCurves(pen, pairs(this.playback.stuck()));
    const waits = this.playback.waits().filter(({ peer }) => peer !== null);
    this.#drawCurves(
      pen,
      waits.map(({ rank, peer }) => [/** @type {number} */ (peer), rank]),
    );
  }

  /**
   * @param {CanvasRenderingContext2D} pen
   * @param {number[][]} pairs
   */
  #drawCurves(pen, pairs) {
    pen.beginPath();
    for (const [src, dst] of pairs) {
      const { from, by, to } = this.#curve(src, dst);
      pen.moveTo(from.x, from.y);
      pen.quadraticCurveTo(by.x, by.y, to.x, to.y);
    }
    pen.stroke();
  }

  /**
   * @param {number} src
   * @param {number} dst
   */
  #curve(src, dst) {
    const from = this.#point(src);
    const to = this.#point(dst);
    const straight = this.#layout === "ring" || this.#layout === "tree";
    const lift = straight ? 0 : this.#layout === "line" ? 0.4 : 0.12;
    const by = {
      x: (from.x + to.x) / 2 + (to.y - from.y) * lift,
      y: (from.y + to.y) / 2 - Math.abs(to.x - from.x) * lift,
    };
    return { from, by, to };
  }

  /**
   * The ranks' dots, the messages between them, and the ranks' numbers.
   *
   * @param {CanvasRenderingContext2D} pen
   * @param {string[]} fills
   * @param {Colours} colours
   * @param {number | null} row
   */
  #drawRanks(pen, fills, colours, row) {
    const { ranks } = this.playback;
    const radius = this.#radius;
    for (let r = 0; r < ranks; r++) {
      if (!fills[r] && r !== row) continue;
      const { x, y } = this.#point(r);
      pen.beginPath();
      pen.arc(x, y, r === row ? radius + 3 : radius, 0, 7);
      pen.fillStyle = fills[r] || colours.paper;
      pen.fill();
      pen.lineWidth = r === row ? 2 : 0.8;
      pen.strokeStyle = r === row ? colours.ink : colours.soft;
      pen.stroke();
    }
    pen.fillStyle = colours.wire;
    for (const [{ src, dst, delivered }, t] of this.playback.flying()) {
      if (!fills[src]) continue;
      const { x, y } = pointAlong(this.#curve(src, dst), delivered ? t : Math.min(t, 0.45));
      pen.beginPath();
      pen.arc(x, y, Math.max(1.6, radius * 0.5), 0, 7);
      pen.fill();
    }
    if (this.#round || ranks <= LABELS) this.#drawNumbers(pen, colours);
  }

  /**
   * A few numbers, inside the round, or all outside of another layout.
   *
   * @param {CanvasRenderingContext2D} pen
   * @param {Colours} colours
   */
  #drawNumbers(pen, colours) {
    const { ranks } = this.playback;
    const box = /** @type {Box} */ (this.#box);
    pen.fillStyle = colours.soft;
    pen.textAlign = "center";
    const large = box.w > 200;
    const away = (this.#radius + 12) * (this.#round ? -1 : 1);
    for (let r = 0; r < ranks; r += Math.ceil(ranks / (large ? 2 * LABELS : this.#round ? 4 : ranks))) {
      const { x, y } = this.#point(r);
      const dx = x - (box.x + box.w / 2);
      const dy = y - (box.y + box.h / 2);
      const distance = Math.hypot(dx, dy) || 1;
      pen.fillText(String(r), x + (dx / distance) * away, y + (dy / distance) * away + 4);
    }
  }

  /**
   * @param {CanvasRenderingContext2D} pen
   * @param {Colours} colours
   * @param {number} busy
   */
  #drawMiddle(pen, colours, busy) {
    const box = /** @type {Box} */ (this.#box);
    const x = box.x + box.w / 2;
    const y = box.y + box.h / 2;
    pen.textAlign = "center";
    pen.fillStyle = colours.ink;
    pen.font = `600 14px ${colours.font}`;
    pen.fillText(`${busy} of ${this.playback.links.length}`, x, y);
    pen.font = `12px ${colours.font}`;
    pen.fillStyle = colours.soft;
    pen.fillText("links busy", x, y + 17);
  }
}
