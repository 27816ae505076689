// The timeline is the scrubber: a lane for each rank with a bar for what arrives in each step. Drag the marker, click a
// bar to pick its packet; for assistive technology it is a slider. Drawn on a canvas, so that 130,000 messages cost no
// more elements than four; what a bar means is told under the pointer and in the table of the step.

import { html, penOf } from "../common/dom.js";
import { halfTitles } from "./heading.js";
import { drawAxis, drawLanes, drawNow, drawPath, drawPhases, drawStop } from "./lanes.js";
import { longestOf } from "./playback.js";
import { throughWords } from "./rank_card.js";
import { momentOf } from "./stops.js";

/** @typedef {import("./data.js").Transfer} Transfer */
/** @typedef {import("./playback.js").Playback} Playback */

// pixels between the lanes and the canvas's edges; beside the lanes of two playbacks stand their titles, too
const LANES_LEFT = 62;
const TWO_LEFT = 96;
const LANES_RIGHT = 6;
const MOST_NAME = 120;
const LETTER = 7.4; // of 12 px bold text, wider than most
const TOP = 22;
const LANES_HEIGHT = 112;
const CALLS_HEIGHT = 152; // of two playbacks: a call's name has room in its bar
const GAP = 10;
const FOLDED_HEIGHT = 30;
const DRAG = 3;
const NEAR = 12;

export class Timeline {
  /** How many times longer than the canvas all lanes are. */
  #zoom = 1;
  /** The axis value at the left end of the lanes. */
  #from = 0;
  /** Pixels; 0: not laid out yet. */
  #width = 0;
  /** @type {number | null} where the pointer was pressed; null: it is not */
  #pressed = null;
  #dragging = false;
  /** The rank and step of the last press: a second one there sets a breakpoint. */
  /** @type {{key: string, x: number} | null} */
  #pressedAt = null;
  #folded = false;
  /** The steps whose bars have an ink frame, and the bar that is picked. */
  #framed = "";
  #redraw = 0;
  #left = LANES_LEFT;
  /** Where the ranks' names begin, beside the title of their lanes. */
  #names = 0;
  #canvas = document.createElement("canvas");
  #frames = document.createElement("canvas");
  #cursor = html("div", { class: "ar-cursor" });
  #cover = html("div", { class: "ar-cover", hidden: "" }, "?");
  #tip = html("div", { class: "ar-tip", hidden: "" });
  /** @type {number | null} from which axis value on nothing is told; null: all is told */
  covered = null;
  /** @type {Transfer | null} the one that the reader has picked, in the first playback or the second */
  picked = null;

  /**
   * @param {Playback[]} playbacks
   * @param {object} actions
   * @param {(value: number) => void} actions.seek is told the axis value to which the user drags
   * @param {(playback: Playback, transfer: Transfer, value: number) => void} actions.pick is told which bar was clicked
   * @param {() => void} actions.rest is told that the user lets go
   * @param {(stop: import("./stops.js").Stop) => void} actions.stop is told where a second press sets a breakpoint
   * @param {import("./stops.js").Stops} stops
   */
  constructor(playbacks, actions, stops) {
    this.stops = stops;
    this.playbacks = playbacks;
    this.actions = actions;
    const slider = { role: "slider", tabindex: "0", "aria-label": "Step", "aria-valuemin": "0", "aria-valuenow": "0" };
    const parts = [this.#canvas, this.#frames, this.#cover, this.#cursor, this.#tip];
    this.root = html("div", { class: "ar-timeline", ...slider }, ...parts);
    /** @type {import("./lanes.js").Lane[]} */
    this.lanes = [];
    this.height = 0;
    /** By how much it is higher than usual. */
    this.more = 0;
    this.#layLanes();
    this.#listen();
    this.watcher = new ResizeObserver(() => this.draw());
    this.watcher.observe(this.root);
  }

  #layLanes() {
    const { length } = this.playbacks;
    const named = length > 1 && this.playbacks.some(({ calls }) => calls.length);
    const height = named ? CALLS_HEIGHT : LANES_HEIGHT;
    this.more = height - LANES_HEIGHT;
    const first = halfTitles(this.playbacks).map(({ title, tag }) => (tag || title).split(" ")[0].length);
    // a long first word has as many pixels as it needs
    this.#names = length > 1 ? Math.max(LANES_LEFT, Math.min(MOST_NAME, LETTER * Math.max(...first) + 6)) : 0;
    this.#left = length > 1 ? this.#names + TWO_LEFT - LANES_LEFT : LANES_LEFT;
    this.root.dataset.left = String(this.#left);
    const room = (height - (length - 1) * GAP) / length;
    let top = TOP;
    this.lanes = this.playbacks.map(({ ranks, bars }) => {
      const most = bars.length && length === 1 ? 32 : length > 1 ? 17 : 21;
      const pitch = Math.min(most, room / ranks);
      const lane = {
        top,
        pitch,
        names: this.#names,
        bar: pitch > 15 ? pitch - 3 : pitch >= 12 ? pitch - 2 : pitch >= 5 ? pitch - 1 : pitch,
      };
      top += pitch * ranks + GAP;
      return lane;
    });
    this.height = top - GAP + 2;
    this.root.style.height = `${this.#folded ? FOLDED_HEIGHT : this.height}px`;
  }

  #listen() {
    this.root.addEventListener("pointerdown", (e) => {
      if (e.button) return;
      this.root.setPointerCapture(e.pointerId);
      this.#pressed = e.clientX;
      this.#dragging = false;
    });
    this.root.addEventListener("pointermove", (e) => {
      if (this.#pressed === null) {
        this.#explain(e);
        return;
      }
      if (Math.abs(e.clientX - this.#pressed) > DRAG) this.#dragging = true;
      if (this.#dragging) this.actions.seek(this.#valueAt(e));
    });
    this.root.addEventListener("pointerup", (e) => {
      if (this.#pressed !== null && !this.#dragging) this.#click(e);
    });
    this.root.addEventListener("lostpointercapture", () => {
      if (this.#pressed !== null) this.actions.rest();
      this.#pressed = null;
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

  /** @param {PointerEvent} e */
  #click(e) {
    const value = this.#valueAt(e);
    const at = this.#laneAt(e);
    const place = at && !this.#isCovered(value) ? stopAt(at, value) : null;
    const again = this.#isPressed(place, e.clientX);
    this.#pressedAt = place ? { key: String(Object.values(place)), x: e.clientX } : null;
    if (place && again) {
      this.actions.stop(place);
      this.#explain(e);
      return;
    }
    const found = at && !this.#isCovered(value) ? this.#arrivalAt(at.playback, at.rank, value) : null;
    if (at && found) this.actions.pick(at.playback, found, value);
    else this.actions.seek(value);
  }

  /**
   * Whether the last press was there too; a step of the time axis may be long, so there it must have been near.
   *
   * @param {import("./stops.js").Stop | null} place
   * @param {number} x
   */
  #isPressed(place, x) {
    const last = this.#pressedAt;
    if (!place || last?.key !== String(Object.values(place))) return false;
    return this.playbacks[place.half].axis === "step" || Math.abs(x - last.x) <= NEAR;
  }

  /** @param {number} value */
  #isCovered(value) {
    return this.covered !== null && value >= this.covered;
  }

  /** @param {MouseEvent} e */
  #laneAt(e) {
    if (this.#folded) return null;
    const y = e.clientY - this.root.getBoundingClientRect().top;
    for (const [i, playback] of this.playbacks.entries()) {
      const rank = Math.floor((y - this.lanes[i].top) / this.lanes[i].pitch);
      if (rank >= 0 && rank < playback.ranks) return { playback, rank, half: i };
    }
    return null;
  }

  /**
   * The message whose bar is there.
   *
   * @param {Playback} playback
   * @param {number} rank
   * @param {number} value
   */
  #arrivalAt(playback, rank, value) {
    const near = playback.axis === "step" ? (playback.byStep[Math.floor(value)] ?? []) : playback.transfers;
    return near.find((transfer) => {
      const [from, to] = playback.span(transfer);
      return (transfer.delivered ? transfer.dst : transfer.src) === rank && from <= value && value < to;
    });
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
    const left = this.#left;
    const width = this.#width - left - LANES_RIGHT;
    return {
      from,
      to: from + span,
      left,
      right: this.#width - LANES_RIGHT,
      width: this.#width,
      length: this.#length,
      x: (/** @type {number} */ value) => left + ((value - from) / span) * width,
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
   * Folds it to one line, which still scrubs.
   *
   * @param {boolean} folded
   */
  fold(folded) {
    if (folded === this.#folded) return;
    this.#folded = folded;
    this.root.classList.toggle("ar-folded", folded);
    this.root.style.height = `${folded ? FOLDED_HEIGHT : this.height}px`;
    this.draw();
  }

  /**
   * The axis value under the pointer.
   *
   * @param {MouseEvent} e
   */
  #valueAt(e) {
    const box = this.root.getBoundingClientRect();
    const share = (e.clientX - box.left - this.#left) / (box.width - this.#left - LANES_RIGHT);
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
    const at = this.#laneAt(e);
    const value = this.#valueAt(e);
    let words = !at || this.#isCovered(value) ? "" : wordsAt(at.playback, at.rank, value);
    const place = at && words ? stopAt(at, value) : null;
    if (place && this.#isPressed(place, e.clientX)) {
      words += `\npress again: ${this.stops.has(place) ? "no longer stop" : "stop"} here`;
    }
    this.#tip.hidden = !words;
    this.#tip.textContent = words;
    this.#tip.style.left = `${Math.max(0, Math.min(e.clientX - box.left + 12, box.width - 190))}px`;
    // in the lower half above the pointer, so that it does not hang far below the lanes
    const low = y > this.height / 2;
    this.#tip.style.top = low ? "auto" : `${y + 14}px`;
    this.#tip.style.bottom = low ? `${this.height - y + 8}px` : "auto";
  }

  /** Draws it in the next frame: while a theme changes, it may have no width or the old colours. */
  drawSoon() {
    cancelAnimationFrame(this.#redraw);
    this.#redraw = requestAnimationFrame(() => this.draw());
  }

  /** @param {HTMLCanvasElement} canvas */
  #sheet(canvas) {
    const scale = window.devicePixelRatio || 1;
    const height = this.#folded ? FOLDED_HEIGHT : this.height;
    const [w, h] = [Math.round(this.#width * scale), Math.round(height * scale)];
    if (canvas.width !== w || canvas.height !== h) Object.assign(canvas, { width: w, height: h });
    const pen = penOf(canvas);
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, this.#width, height);
    pen.textBaseline = "middle";
    const style = getComputedStyle(this.root);
    const names = /** @type {const} */ ([
      "ink",
      "soft",
      "line",
      "hair",
      "wire",
      "lost",
      "work",
      "paper",
      "on-rank",
      "you",
    ]);
    const colours = names.map((name) => [name, style.getPropertyValue(`--ar-${name}`).trim()]);
    /** @type {import("./lanes.js").Theme} */
    const theme = { ...Object.fromEntries(colours), font: style.fontFamily };
    return { pen, seen: this.window, theme, style };
  }

  draw() {
    // without a width it is not on the page just now: what was drawn stays
    if (!this.root.clientWidth) return;
    this.#width = this.root.clientWidth;
    const sheet = this.#sheet(this.#canvas);
    const [{ axis }] = this.playbacks;
    if (this.#folded) this.#drawFolded(sheet);
    else {
      if (this.playbacks.length > 1 || !drawPhases(sheet, this.playbacks[0])) drawAxis(sheet, axis, this.height);
      this.playbacks.forEach((playback, i) => {
        drawLanes(sheet, playback, this.lanes[i]);
        drawPath(sheet, playback, this.lanes[i]);
        if (this.playbacks.length > 1) this.#drawTitle(sheet, i);
      });
    }
    this.#framed = "";
    this.moveCursor();
  }

  /** @param {import("./lanes.js").Sheet} sheet */
  #drawFolded({ pen, seen, theme }) {
    pen.fillStyle = theme.work;
    pen.fillRect(seen.left, 18, seen.right - seen.left, 4);
  }

  /**
   * Beside the lanes of each of two playbacks: whose they are.
   *
   * @param {import("./lanes.js").Sheet} sheet
   * @param {number} i
   */
  #drawTitle({ pen, theme }, i) {
    const { top, pitch } = this.lanes[i];
    const { ranks } = this.playbacks[i];
    const { title, tag } = halfTitles(this.playbacks)[i];
    pen.fillStyle = theme.ink;
    pen.font = `600 12px ${theme.font}`;
    // letters may stand a little closer
    const lines = inTwoLines(tag || title, (words) => pen.measureText(words).width <= 1.2 * (this.#names - 6));
    pen.textAlign = "left";
    lines.forEach((words, line) => {
      const y = top + (pitch * ranks) / 2 + 14 * (line - (lines.length - 1) / 2);
      pen.fillText(words, 0, y, this.#names - 6);
    });
  }

  /** Only the cursor and what is in ink, every frame. */
  moveCursor() {
    if (!this.#width) return;
    const longest = longestOf(this.playbacks);
    const x = this.window.x(longest.clockAt(longest.position));
    this.#cursor.style.transform = `translateX(${Math.round(x * 10) / 10}px)`;
    this.#cursor.hidden = x < this.#left - 1 || x > this.#width;
    this.#cover.hidden = this.covered === null || this.covered >= this.#length;
    if (this.covered !== null) this.#cover.style.left = `${Math.max(this.#left, this.window.x(this.covered))}px`;
    const framed = `${this.playbacks.map((playback) => playback.current)} ${this.picked?.index}`;
    if (framed === this.#framed) return;
    this.#framed = framed;
    const sheet = this.#sheet(this.#frames);
    if (this.#folded) return;
    this.playbacks.forEach((playback, i) => {
      const picked = this.picked && playback.transfers[this.picked.index] === this.picked ? this.picked : null;
      drawNow(sheet, playback, this.lanes[i], picked);
    });
    for (const stop of this.stops.all) {
      const { top, pitch, bar } = this.lanes[stop.half];
      const at = sheet.seen.x(momentOf(this.playbacks[stop.half], stop));
      drawStop(sheet, at, top + stop.rank * pitch + bar / 2, Math.min(6, Math.max(3, bar / 2 - 1)));
    }
  }

  /** Draws the breakpoints as they are now. */
  showStops() {
    this.#framed = "";
    this.moveCursor();
  }

  remove() {
    cancelAnimationFrame(this.#redraw);
    this.watcher.disconnect();
  }
}

/**
 * The rank and the step of a press.
 *
 * @param {{playback: Playback, rank: number, half: number}} at
 * @param {number} value
 */
function stopAt({ playback, rank, half }, value) {
  const position = playback.axis === "time" ? playback.positionAt(value) : value;
  const step = Math.min(playback.steps - 1, Math.max(0, Math.floor(position + 1e-9)));
  return { half, rank, step };
}

/**
 * A title in at most two lines: its first words, and the others if they have room.
 *
 * @param {string} title
 * @param {(words: string) => boolean} fits
 */
function inTwoLines(title, fits) {
  const words = title.split(" ");
  const cut = (/** @type {string} */ text) => {
    let short = text;
    while (short.length > 3 && !fits(`${short}…`)) short = short.slice(0, -1);
    return fits(text) ? text : `${short}…`;
  };
  let first = words.shift() ?? "";
  while (words.length && fits(`${first} ${words[0]}`)) first += ` ${words.shift()}`;
  const others = words.join(" ");
  return others && fits(others) ? [cut(first), others] : [cut(first)];
}

/**
 * What a rank does at an axis value, a line for each message and bar.
 *
 * @param {Playback} playback
 * @param {number} rank
 * @param {number} value
 */
function wordsAt(playback, rank, value) {
  const covers = (/** @type {Parameters<Playback["span"]>[0]} */ item) => {
    const [from, to] = playback.span(item);
    return from <= value && value < to;
  };
  const line = (/** @type {number | null} */ at) => (at ? `, line ${at}` : "");
  const near = playback.axis === "step" ? (playback.byStep[Math.floor(value)] ?? []) : playback.transfers;
  let words = "";
  for (const transfer of near) {
    if ((transfer.src === rank || transfer.dst === rank) && covers(transfer)) {
      const chunks = transfer.chunks.length ? `${playback.nameOf(transfer)}, ` : "";
      const what = `${chunks}${playback.amount(transfer.nbytes)}${transfer.reduce ? ", added" : ""}`;
      const critical = playback.critical.has(transfer) ? ", on the critical path" : "";
      words += `${transfer.src} → ${transfer.dst}: ${what}${line(transfer.line)}${critical}\n`;
    }
    if (words.length > 300) break;
  }
  for (const bar of playback.bars) {
    if (bar.rank !== rank || !covers(bar)) continue;
    const what = bar.op === "wait" && bar.label ? `waits ${bar.label}` : (bar.label ?? bar.op);
    const bytes = playback.knowsCalls && playback.calls.includes(bar) ? throughWords(bar) : "";
    words += `${what}${bytes ? `: ${bytes}` : ""}${line(bar.line)}\n`;
  }
  return words.trim();
}
