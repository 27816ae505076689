// The timeline: a lane for each rank, with what it sends above and what it receives below. Click or drag to move the
// cursor. Drawn on a canvas, so that 130,000 messages cost no more elements than four; what a bar means is told under
// the pointer and in the table of the step.

import { html, penOf } from "../common/dom.js";
import { drawGrid, drawLanes } from "./lanes.js";
import { longestOf } from "./playback.js";
import { chunkName } from "./words.js";

/** @typedef {import("./playback.js").Playback} Playback */

// pixels between the lanes and the canvas's edges
const LANES_LEFT = 62;
const LANES_RIGHT = 6;
const TOP = 16;
const TITLE_HEIGHT = 14;

export class Timeline {
  /** How many times longer than the canvas all lanes are. */
  #zoom = 1;
  /** The axis value at the left end of the lanes. */
  #from = 0;
  /** Pixels; 0: not laid out yet. */
  #width = 0;
  #dragging = false;
  #canvas = document.createElement("canvas");
  #cursor = html("div", { class: "ar-cursor" });
  #tip = html("div", { class: "ar-tip", hidden: "" });

  /**
   * @param {Playback[]} playbacks
   * @param {(value: number) => void} onSeek is told the axis value that the user points at
   */
  constructor(playbacks, onSeek) {
    this.playbacks = playbacks;
    this.onSeek = onSeek;
    this.root = html("div", { class: "ar-timeline", "aria-hidden": "true" }, this.#canvas, this.#cursor, this.#tip);
    const lanes = playbacks.reduce((sum, playback) => sum + playback.ranks, 0);
    this.laneHeight = lanes <= 8 ? 24 : lanes <= 16 ? 14 : Math.max(1, 230 / lanes);
    const several = playbacks.length > 1;
    this.gap = several ? 20 : 0;
    this.titleHeight = several ? TITLE_HEIGHT : 0;
    /** @type {number[]} where each playback's lanes begin */
    this.tops = [];
    let top = TOP;
    for (const { ranks } of playbacks) {
      this.tops.push(top + this.titleHeight);
      top += this.titleHeight + ranks * this.laneHeight + this.gap;
    }
    this.height = top - this.gap;
    this.root.style.height = `${this.height}px`;
    this.#listen();
    this.watcher = new ResizeObserver(() => this.draw());
    this.watcher.observe(this.root);
  }

  #listen() {
    this.root.addEventListener("pointerdown", (e) => {
      if (e.button) return;
      this.root.setPointerCapture(e.pointerId);
      this.#dragging = true;
      this.onSeek(this.#valueAt(e));
    });
    this.root.addEventListener("pointermove", (e) => {
      if (this.#dragging) this.onSeek(this.#valueAt(e));
      else this.#explain(e);
    });
    this.root.addEventListener("lostpointercapture", () => {
      this.#dragging = false;
    });
    this.root.addEventListener("pointerleave", () => {
      this.#tip.hidden = true;
    });
    const onWheel = (/** @type {WheelEvent} */ e) => {
      if (!e.ctrlKey && !e.metaKey) return;
      e.preventDefault();
      this.zoomBy(e.deltaY < 0 ? 1.25 : 0.8, this.#valueAt(e));
    };
    this.root.addEventListener("wheel", onWheel, { passive: false });
  }

  /** The last axis value of all. */
  get #length() {
    return Math.max(...this.playbacks.map((playback) => playback.length), 1e-9);
  }

  /** How much of the axis is seen. */
  get #span() {
    return this.#length / this.#zoom;
  }

  /** What is seen: axis values, and where they are in pixels. */
  get window() {
    const from = this.#from;
    const span = this.#span;
    const width = this.#width - LANES_LEFT - LANES_RIGHT;
    return {
      from,
      to: from + span,
      left: LANES_LEFT,
      right: this.#width - LANES_RIGHT,
      width: this.#width,
      length: this.#length,
      x: (/** @type {number} */ value) => LANES_LEFT + ((value - from) / span) * width,
    };
  }

  /**
   * Zooms in or out around an axis value, without one around the cursor.
   *
   * @param {number} factor
   * @param {number} around
   */
  zoomBy(factor, around = this.playbacks[0].clockAt(this.playbacks[0].position)) {
    const share = (around - this.#from) / this.#span;
    this.#zoom = Math.min(200, Math.max(1, this.#zoom * factor));
    const from = around - (share >= 0 && share <= 1 ? share : 0.5) * this.#span;
    this.#from = Math.min(this.#length - this.#span, Math.max(0, from));
    this.draw();
  }

  /** Shows the whole axis. */
  showAll() {
    this.#zoom = 1;
    this.#from = 0;
    this.draw();
  }

  /**
   * The axis value under the pointer.
   *
   * @param {MouseEvent} e
   */
  #valueAt(e) {
    const box = this.root.getBoundingClientRect();
    const share = (e.clientX - box.left - LANES_LEFT) / (box.width - LANES_LEFT - LANES_RIGHT);
    return Math.min(this.#length, Math.max(0, this.#from + share * this.#span));
  }

  /**
   * Says under the pointer what is drawn there.
   *
   * @param {MouseEvent} e
   */
  #explain(e) {
    const box = this.root.getBoundingClientRect();
    const y = e.clientY - box.top;
    const number = this.playbacks.findIndex(({ ranks }, i) => {
      return y >= this.tops[i] && y < this.tops[i] + ranks * this.laneHeight;
    });
    const words = number < 0 ? "" : this.#wordsAt(number, y, this.#valueAt(e));
    this.#tip.hidden = !words;
    this.#tip.textContent = words.trim();
    this.#tip.style.left = `${Math.min(e.clientX - box.left + 12, box.width - 180)}px`;
    // in the lower half above the pointer, so that it does not hang far below the lanes
    const low = y > this.height / 2;
    this.#tip.style.top = low ? "auto" : `${y + 14}px`;
    this.#tip.style.bottom = low ? `${this.height - y + 8}px` : "auto";
  }

  /**
   * What a rank does at an axis value, a line for each message and bar.
   *
   * @param {number} number of the playback
   * @param {number} y
   * @param {number} value
   */
  #wordsAt(number, y, value) {
    const playback = this.playbacks[number];
    const rank = Math.floor((y - this.tops[number]) / this.laneHeight);
    const covers = (/** @type {Parameters<Playback["span"]>[0]} */ item) => {
      const [from, to] = playback.span(item);
      return from <= value && value < to;
    };
    const line = (/** @type {number | null} */ at) => (at ? `, line ${at}` : "");
    const near = playback.axis === "step" ? (playback.byStep[Math.floor(value)] ?? []) : playback.transfers;
    let words = "";
    for (const transfer of near) {
      if ((transfer.src === rank || transfer.dst === rank) && covers(transfer)) {
        const chunks = transfer.chunks.length ? `${chunkName(transfer)}, ` : "";
        const what = `${chunks}${playback.amount(transfer.nbytes)}${transfer.reduce ? ", added" : ""}`;
        words += `${transfer.src} → ${transfer.dst}: ${what}${line(transfer.line)}\n`;
      }
      if (words.length > 300) break;
    }
    for (const bar of playback.bars) {
      if (bar.rank === rank && covers(bar)) words += `${bar.label ?? bar.op}${line(bar.line)}\n`;
    }
    return words;
  }

  draw() {
    this.#width = this.root.clientWidth;
    if (!this.#width) return;
    const scale = window.devicePixelRatio || 1;
    this.#canvas.width = this.#width * scale;
    this.#canvas.height = this.height * scale;
    const pen = penOf(this.#canvas);
    const style = getComputedStyle(this.root);
    const colour = (/** @type {string} */ name) => style.getPropertyValue(`--ar-${name}`).trim();
    const theme = {
      ink: colour("ink"),
      soft: colour("soft"),
      line: colour("line"),
      send: colour("send"),
      add: colour("add"),
      copy: colour("copy"),
      stuck: colour("stuck"),
      work: colour("work"),
      paper: colour("paper"),
      font: style.fontFamily,
    };
    pen.scale(scale, scale);
    pen.font = `11px ${theme.font}`;
    pen.textBaseline = "middle";
    const seen = this.window;
    this.playbacks.forEach((playback, i) => {
      if (this.titleHeight) {
        pen.fillStyle = theme.ink;
        pen.fillText(playback.title, LANES_LEFT, this.tops[i] - this.titleHeight + 4);
      }
      drawLanes(pen, playback, seen, this.tops[i], this.laneHeight, theme);
    });
    drawGrid(pen, this.playbacks[0].axis, seen, this.height, theme);
    this.moveCursor();
  }

  /** Only the cursor, every frame. */
  moveCursor() {
    if (!this.#width) return;
    const longest = longestOf(this.playbacks);
    const x = this.window.x(longest.clockAt(longest.position));
    this.#cursor.style.transform = `translateX(${Math.round(x * 10) / 10}px)`;
    this.#cursor.hidden = x < LANES_LEFT - 1 || x > this.#width;
  }

  remove() {
    this.watcher.disconnect();
  }
}
