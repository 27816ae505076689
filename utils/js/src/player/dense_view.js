// The picture for many ranks, on one canvas: a dot for each rank with the messages between them, and a heat map.

import { penOf } from "../common/dom.js";
import { contributionCounts, HeatMap, shadeNumber, shades } from "./heat_map.js";
import { placeCards } from "./layouts.js";
import { pointAlong } from "./routes.js";

/** @typedef {import("./data.js").Layout} Layout */
/** @typedef {import("./data.js").Transfer} Transfer */
/** @typedef {import("./layouts.js").Point} Point */
/** @typedef {import("./playback.js").Playback} Playback */

export class DenseView {
  /** How many links are in use. */
  busy = 0;
  /** @type {Layout} */
  #layout = "ring";
  /** Pixels; 0: not laid out yet. */
  #width = 0;
  #height = 0;
  /** @type {Point[]} where each rank's dot is, 0 to 1 in both directions */
  #places = [];
  /** Whether all dots stand in one row. */
  #oneRow = false;
  /** Where the dots are, in pixels. */
  #dots = { x: 0, y: 0, w: 0, h: 0 };
  /** Where the heat map is, in pixels. */
  #mapPlace = { x: 0, y: 0, side: 0 };
  #colours = { soft: "", line: "", message: "", stuck: "", font: "" };
  /** @type {import("./heat_map.js").Rgb[]} */
  #shades = [];
  /** @type {number[]} how much each rank has of what it must get, 0 to 1; empty: not worked out yet */
  #shares = [];

  /**
   * @param {Playback} playback
   * @param {Layout} layout
   */
  constructor(playback, layout) {
    this.playback = playback;
    this.root = document.createElement("div");
    this.root.className = "ar-stage ar-dense";
    this.root.setAttribute("aria-hidden", "true");
    this.canvas = document.createElement("canvas");
    this.root.append(this.canvas);
    this.counts = contributionCounts(playback);
    const full = playback.goal.length ? playback.goal.map(([, , id]) => this.counts[id]) : this.counts;
    // no spread: 400 x 400 cells are more than a call takes arguments
    this.most = full.reduce((a, b) => Math.max(a, b), 1);
    this.map = playback.chunks > 1 ? new HeatMap(playback, this.counts, this.most) : null;
    /** How many contributions each rank must get. */
    this.wanted = new Float64Array(playback.ranks);
    for (const [rank, , id] of playback.goal) this.wanted[rank] += this.counts[id];
    this.watcher = new ResizeObserver(() => this.repaint());
    this.watcher.observe(this.root);
    this.show(layout);
  }

  /** @param {Layout} layout */
  show(layout) {
    this.#layout = layout;
    this.root.dataset.layout = layout;
    const centres = placeCards(layout, this.playback, { w: 8, h: 8 }, { x: 4, y: 10 });
    const xs = centres.map((at) => at.x);
    const ys = centres.map((at) => at.y);
    const left = Math.min(...xs);
    const top = Math.min(...ys);
    const width = Math.max(...xs) - left || 1;
    const height = Math.max(...ys) - top || 1;
    this.#places = centres.map((at) => ({ x: (at.x - left) / width, y: (at.y - top) / height }));
    this.#oneRow = height / width < 0.05;
    this.#fit();
  }

  /** Draws it anew, to its size and in the theme's colours. */
  repaint() {
    this.#fit();
    this.frame(true);
  }

  // Lays the picture out in its width, and reads the theme's colours.
  #fit() {
    this.#width = this.root.clientWidth;
    if (!this.#width) return;
    this.#height = Math.min(400, this.map ? this.#width * 0.46 : this.#width * 0.5);
    const scale = window.devicePixelRatio || 1;
    this.canvas.width = this.#width * scale;
    this.canvas.height = this.#height * scale;
    this.canvas.style.height = `${this.#height}px`;
    const side = this.#height - 44;
    this.#mapPlace = { x: this.#width - side - 12, y: 22, side };
    const right = this.map ? this.#mapPlace.x - 60 : this.#width - 30;
    const w = this.#round ? Math.min(right - 30, side) : right - 30;
    const h = this.#oneRow ? 0 : this.#round ? w : side;
    this.#dots = { x: 15 + (right - 15 - w) / 2, y: 22 + (side - h) / 2, w, h };
    const style = getComputedStyle(this.root);
    const colour = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
    this.#colours = {
      soft: colour("--ar-soft"),
      line: colour("--ar-line"),
      message: colour("--ar-add"),
      stuck: colour("--ar-stuck"),
      font: style.fontFamily,
    };
    this.#shades = shades(colour("--ar-paper"));
  }

  get #round() {
    return this.#layout === "ring" || this.#layout === "all-to-all";
  }

  /**
   * How much a rank has of what it must get, 0 to 1.
   *
   * @param {number} rank
   */
  #share(rank) {
    const { chunks, cells, goals, received } = this.playback;
    if (!chunks) return received[rank] / Math.max(1, ...received);
    let sum = 0;
    for (let i = rank * chunks; i < (rank + 1) * chunks; i++) {
      if (cells[i] >= 0 && (!this.wanted[rank] || goals.has(i))) sum += this.counts[cells[i]];
    }
    return Math.min(1, sum / (this.wanted[rank] || chunks * this.most));
  }

  /** @param {boolean} changed whether a message has landed */
  frame(changed) {
    const { playback } = this;
    const shown = [...playback.flying().map(([transfer]) => transfer), ...playback.justLanded()];
    // the meter asks for it, also before there is a width to draw in
    this.busy = new Set([...shown, ...playback.stuck()].map(({ src, dst }) => src * playback.ranks + dst)).size;
    if (!this.#width) return;
    if (changed || !this.#shares.length) {
      this.#shares = Array.from({ length: playback.ranks }, (_, r) => this.#share(r));
      this.root.dataset.shares = this.#shares.map((share) => share.toFixed(3)).join(",");
      this.map?.paint(this.#shades);
    }
    const scale = window.devicePixelRatio || 1;
    const pen = penOf(this.canvas);
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, this.#width, this.#height);
    pen.font = `11px ${this.#colours.font}`;
    this.#drawLinks(pen, shown);
    this.#drawRanks(pen);
    this.map?.draw(pen, this.#mapPlace, this.#colours);
    this.#drawKey(pen);
  }

  /** @param {number} rank */
  #point(rank) {
    const { x, y } = this.#places[rank];
    return { x: this.#dots.x + x * this.#dots.w, y: this.#dots.y + y * this.#dots.h };
  }

  get #radius() {
    return Math.max(2.2, Math.min(9, (this.#dots.w * 1.6) / this.playback.ranks));
  }

  /**
   * @param {CanvasRenderingContext2D} pen
   * @param {Transfer[]} shown
   */
  #drawLinks(pen, shown) {
    const { ranks, links } = this.playback;
    pen.lineWidth = 0.6;
    pen.strokeStyle = this.#colours.line;
    if (links.length <= 4 * ranks) this.#drawCurves(pen, links);
    pen.lineWidth = 1.4;
    pen.strokeStyle = this.#colours.message;
    pen.globalAlpha = ranks > 64 ? 0.6 : 0.85;
    const pairs = (/** @type {Transfer[]} */ transfers) => transfers.map(({ src, dst }) => [src, dst]);
    this.#drawCurves(pen, pairs(shown.filter((transfer) => transfer.delivered)));
    pen.strokeStyle = this.#colours.stuck;
    pen.setLineDash([4, 3]);
    this.#drawCurves(pen, pairs(this.playback.stuck()));
    pen.setLineDash([]);
    pen.globalAlpha = 1;
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
   */
  #drawRanks(pen) {
    const { ranks } = this.playback;
    const radius = this.#radius;
    for (let r = 0; r < ranks; r++) {
      const { x, y } = this.#point(r);
      pen.beginPath();
      pen.arc(x, y, radius, 0, 7);
      pen.fillStyle = this.#shade(this.#shares[r]);
      pen.fill();
      pen.lineWidth = 1;
      pen.strokeStyle = this.#colours.soft;
      pen.stroke();
    }
    pen.fillStyle = this.#colours.message;
    for (const [{ src, dst, delivered }, t] of this.playback.flying()) {
      const { x, y } = pointAlong(this.#curve(src, dst), delivered ? t : Math.min(t, 0.45));
      pen.beginPath();
      pen.arc(x, y, Math.max(1.6, radius * 0.5), 0, 7);
      pen.fill();
    }
    pen.fillStyle = this.#colours.soft;
    if (!this.#round) return;
    pen.textAlign = "center";
    const middle = { x: this.#dots.x + this.#dots.w / 2, y: this.#dots.y + this.#dots.h / 2 };
    // about eight numbers, inside the round
    for (let r = 0; r < ranks; r += Math.ceil(ranks <= 32 ? 1 : ranks / 8)) {
      const { x, y } = this.#point(r);
      const distance = Math.hypot(x - middle.x, y - middle.y) || 1;
      const inwards = -radius - 9;
      pen.fillText(String(r), x + ((x - middle.x) / distance) * inwards, y + ((y - middle.y) / distance) * inwards + 4);
    }
  }

  /** @param {number} share */
  #shade(share) {
    return `rgb(${this.#shades[shadeNumber(share)].join(",")})`;
  }

  // What the shades mean.
  /** @param {CanvasRenderingContext2D} pen */
  #drawKey(pen) {
    const x = this.map ? this.#mapPlace.x : this.#width - 250;
    const y = this.#height - 14;
    for (let i = 0; i < 80; i++) {
      pen.fillStyle = this.#shade((i / 80) ** 2);
      pen.fillRect(x + i, y, 1, 8);
    }
    pen.fillStyle = this.#shade(1);
    pen.fillRect(x + 84, y, 14, 8);
    pen.fillStyle = this.#colours.soft;
    pen.textAlign = "left";
    pen.fillText(this.playback.chunks ? "contributions held, all" : "bytes received, most", x + 103, y + 8);
  }

  remove() {
    this.watcher.disconnect();
  }
}
