// The picture for more than eight ranks, on one canvas: a matrix of rank by chunk, a small map of the links, and the
// row under the pointer in words. Place says which rank, the strength of the ink how many are in the sum.

import { penOf } from "../common/dom.js";
import { contributionCounts, HeatMap, rgbOf, shadeNumber, shades } from "./heat_map.js";
import { RankMap } from "./rank_map.js";
import { counted } from "./words.js";

/** @typedef {import("./data.js").Layout} Layout */
/** @typedef {import("./data.js").Transfer} Transfer */
/** @typedef {import("./playback.js").Playback} Playback */

const COLOURS = /** @type {const} */ (["ink", "soft", "line", "hair", "wire", "lost", "paper"]);
// narrower than this, the matrix stands alone
const ROOM_FOR_MAP = 460;
const TOP = 22;
const LEFT = 50;

export class DenseView {
  /** How many links are in use. */
  busy = 0;
  /** Pixels; 0: not laid out yet. */
  #width = 0;
  #height = 0;
  /** Where the matrix is, in pixels. */
  #place = { x: LEFT, y: TOP, side: 0 };
  /** @type {import("./heat_map.js").Colours} */
  #colours = { ink: "", soft: "", line: "", hair: "", wire: "", lost: "", paper: "", font: "" };
  /** @type {import("./heat_map.js").Rgb[]} */
  #shades = [];
  /** @type {import("./heat_map.js").Rgb} */
  #wrong = [0, 0, 0];
  /** @type {number[]} how much each rank has of what it must get, 0 to 1; empty: not worked out yet */
  #shares = [];
  /** @type {number | null} the rank under the pointer */
  #row = null;
  #redraw = 0;

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
    this.matrix = playback.chunks > 1 ? new HeatMap(playback, this.counts, this.most) : null;
    this.map = new RankMap(playback);
    /** How many contributions each rank must get. */
    this.wanted = new Float64Array(playback.ranks);
    for (const [rank, , id] of playback.goal) this.wanted[rank] += this.counts[id];
    this.canvas.addEventListener("pointermove", (e) => this.#point(this.#rowAt(e)));
    this.canvas.addEventListener("pointerleave", () => this.#point(null));
    this.watcher = new ResizeObserver(() => this.repaint());
    this.watcher.observe(this.root);
    this.show(layout);
  }

  /** Whether the whole picture has room: it is drawn as large as its place is. */
  hasRoom() {
    return true;
  }

  /** @param {Layout} layout */
  show(layout) {
    this.root.dataset.layout = layout;
    this.map.show(layout);
    this.#fit();
  }

  /** @param {PointerEvent} e */
  #rowAt({ offsetX, offsetY }) {
    const { x, y, side } = this.#place;
    const row = Math.floor(((offsetY - y) / side) * this.playback.ranks);
    const inside = this.matrix && offsetX >= x - 30 && offsetX <= x + side && row >= 0 && row < this.playback.ranks;
    return inside ? row : null;
  }

  /** @param {number | null} row */
  #point(row) {
    if (row === this.#row) return;
    this.#row = row;
    this.frame(false);
  }

  /** Draws it anew, to its size and in the theme's colours. */
  repaint() {
    this.#fit();
    this.frame(true);
  }

  /** The same in the next frame: while a theme changes, it may have no width or the old colours. */
  repaintSoon() {
    cancelAnimationFrame(this.#redraw);
    this.#redraw = requestAnimationFrame(() => this.repaint());
  }

  // Lays the picture out in its width, and reads the theme's colours.
  #fit() {
    const { clientWidth, clientHeight } = this.root;
    if (!clientWidth || !clientHeight) return;
    this.#width = clientWidth;
    this.#height = clientHeight;
    const scale = window.devicePixelRatio || 1;
    this.canvas.width = this.#width * scale;
    this.canvas.height = this.#height * scale;
    const beside = this.#width >= ROOM_FOR_MAP;
    const side = Math.min(this.#height - TOP - 8, (beside ? this.#width - 190 : this.#width - 12) - LEFT);
    this.#place = { x: LEFT, y: TOP, side };
    if (!this.matrix) this.map.place({ x: 16, y: 16, w: this.#width - 32, h: this.#height - 32 });
    else if (beside) {
      const x = LEFT + side + 26;
      const size = Math.min(160, this.#width - x - 8);
      this.map.place({ x: x + (this.#width - 8 - x - size) / 2, y: TOP + 4, w: size, h: size });
    } else this.map.place(null);
    const style = getComputedStyle(this.root);
    for (const name of COLOURS) this.#colours[name] = style.getPropertyValue(`--ar-${name}`).trim();
    this.#colours.font = style.fontFamily;
    this.#shades = shades(this.#colours.paper, this.#colours.ink);
    this.#wrong = rgbOf(this.#colours.lost);
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
      this.matrix?.paint(this.#shades, this.#wrong);
    }
    const scale = window.devicePixelRatio || 1;
    const pen = penOf(this.canvas);
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, this.#width, this.#height);
    pen.font = `12px ${this.#colours.font}`;
    const fills = this.#shares.map((share) => `rgb(${this.#shades[shadeNumber(share)].join(",")})`);
    this.map.draw(pen, shown, fills, this.#colours, this.busy, this.#row);
    this.matrix?.draw(pen, this.#place, this.#colours);
    if (this.matrix) this.#drawRow(pen);
  }

  // The row under the pointer: framed, and in words below the map.
  /** @param {CanvasRenderingContext2D} pen */
  #drawRow(pen) {
    const { x, y, side } = this.#place;
    const row = this.#row;
    if (row !== null) {
      const height = side / this.playback.ranks;
      pen.strokeStyle = this.#colours.ink;
      pen.lineWidth = 2;
      pen.strokeRect(x - 3, y + row * height - 1, side + 6, height + 2);
    }
    if (this.#width < ROOM_FOR_MAP) return;
    const at = { x: x + side + 26, y: TOP + 196 };
    pen.fillStyle = this.#colours.line;
    pen.fillRect(at.x, at.y, this.#width - at.x - 8, 1);
    pen.textAlign = "left";
    pen.fillStyle = this.#colours.ink;
    pen.font = `600 15px ${this.#colours.font}`;
    pen.fillText(row === null ? "Point at a row" : `rank ${row}`, at.x, at.y + 26);
    pen.font = `13px ${this.#colours.font}`;
    pen.fillStyle = this.#colours.soft;
    const lines = row === null ? ["to read what that rank", "holds and receives."] : this.#rowWords(row);
    lines.forEach((line, i) => {
      pen.fillText(line, at.x, at.y + 48 + 20 * i);
    });
  }

  /** @param {number} row */
  #rowWords(row) {
    const { playback } = this;
    const flying = playback.flying().map(([transfer]) => transfer);
    const now = flying.length ? flying : playback.justLanded();
    const lines = [];
    const coming = now.find(({ dst, delivered }) => dst === row && delivered);
    if (coming) {
      lines.push(`receives ${playback.nameOf(coming)} from ${coming.src},`, `${coming.does} it`);
      if (coming.after.length) lines.push(`${counted(this.counts[coming.after[0]], "rank")} then in it`);
    }
    const wait = playback.waits().find(({ rank }) => rank === row);
    if (wait) lines.push(wait.peer === null ? "waits" : `waits for rank ${wait.peer}`);
    const goals = playback.goal.filter(([rank]) => rank === row);
    const done = goals.filter(([rank, chunk, id]) => playback.cells[rank * playback.chunks + chunk] === id).length;
    if (goals.length) lines.push(`${done} of ${counted(goals.length, "chunk")} complete`);
    lines.push(`sent ${playback.amount(playback.sent[row])}`);
    return lines;
  }

  remove() {
    cancelAnimationFrame(this.#redraw);
    this.watcher.disconnect();
  }
}
