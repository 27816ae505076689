// A curve that the reader draws: one height at each x.

import { followPointer, html, svg } from "../common/dom.js";
import { frame, pathOf, sized } from "./axes.js";
import { withUnit } from "./scale.js";
import { plain } from "./words.js";

/** @typedef {import("./types.js").Asked} Asked */

const HIGH = 168;
const STEPS = { ArrowUp: 0.02, ArrowDown: -0.02, PageUp: 0.1, PageDown: -0.1 };

class Sketch {
  /**
   * @param {Asked} asked
   * @param {() => void} onChange
   * @param {number[] | null} drawn
   */
  constructor(asked, onChange, drawn) {
    this.asked = asked;
    this.onChange = onChange;
    /** @type {(number | null)[]} */
    this.ys = drawn ? [...drawn] : asked.x.map(() => null);
    this.at = 0;
    this.last = -1;
    this.root = html("div", { class: "ar-predict-sketch", role: "slider", tabindex: "0" });
    this.root.setAttribute("aria-orientation", "vertical");
    this.root.setAttribute("aria-label", `${plain(asked.question)} Arrow keys: right and left move, up and down draw.`);
    this.root.setAttribute("aria-valuemin", String(asked.low));
    this.root.setAttribute("aria-valuemax", String(asked.high));
    this.root.addEventListener("keydown", (event) => this.#key(event));
    this.root.addEventListener("pointerdown", (event) => this.#draw(event));
    sized(this.root, (width) => this.paint(width));
    this.#speak();
  }

  /** @param {number} width */
  paint(width) {
    this.width = width;
    const { picture, across, up } = frame(this.asked, width, HIGH);
    const points = this.ys.flatMap((y, i) => (y === null ? [] : [{ x: across(i), y: up(y) }]));
    if (points.length > 1) {
      svg("path", { class: "ar-you-edge", d: pathOf(points) }, picture);
      svg("path", { class: "ar-you-line", d: pathOf(points) }, picture);
    }
    const empty = points.length === 0;
    const x = across(this.at);
    const y = up(this.ys[this.at] ?? this.#start());
    svg("circle", { class: `ar-you-dot${empty ? "" : " ar-small"}`, cx: x, cy: y, r: empty ? 8 : 6 }, picture);
    if (empty) svg("text", { class: "ar-soft", x: x + 18, y: y - 10 }, picture, "start here, draw to the right");
    this.root.replaceChildren(picture);
  }

  #start() {
    return this.asked.low + (this.asked.high - this.asked.low) / 8;
  }

  /**
   * @param {number} i
   * @param {number} y
   */
  #set(i, y) {
    this.ys[i] = Math.min(this.asked.high, Math.max(this.asked.low, y));
    this.at = i;
  }

  #done() {
    this.paint(this.width ?? 500);
    this.#speak();
    this.onChange();
  }

  #speak() {
    const { asked, at } = this;
    const y = this.ys[at];
    const words = y === null ? "nothing drawn" : withUnit(y, asked.unit);
    this.root.setAttribute("aria-valuenow", String(y ?? this.#start()));
    this.root.setAttribute("aria-valuetext", `at ${asked.x[at]}: ${words}`);
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const { ys, at, asked } = this;
    const now = ys[at] ?? this.#start();
    if (event.key in STEPS) {
      const step = STEPS[/** @type {keyof typeof STEPS} */ (event.key)];
      this.#set(at, ys[at] === null ? now : now + step * (asked.high - asked.low));
    } else if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
      const next = Math.min(ys.length - 1, Math.max(0, at + (event.key === "ArrowRight" ? 1 : -1)));
      if (ys[at] === null) ys[at] = now;
      this.#set(next, ys[next] ?? now);
    } else return;
    event.preventDefault();
    this.#done();
  }

  /** @param {PointerEvent} event */
  #draw(event) {
    const { root, asked } = this;
    event.preventDefault();
    root.focus();
    this.last = -1;
    /** @param {PointerEvent} to */
    const follow = (to) => {
      const box = root.getBoundingClientRect();
      const { index, height } = frame(asked, box.width, HIGH);
      const i = index(to.clientX - box.left);
      const y = height(to.clientY - box.top);
      // a quick hand skips points: fill in those between
      const from = this.last < 0 ? i : this.last;
      const before = this.ys[from] ?? y;
      const count = Math.abs(i - from);
      for (let k = 1; k < count; k++) this.#set(from + k * Math.sign(i - from), before + ((y - before) * k) / count);
      this.#set(i, y);
      this.last = i;
      this.#done();
    };
    followPointer(root, event, follow);
  }
}

/**
 * @param {Asked} asked
 * @param {() => void} onChange
 * @param {number[] | null} drawn
 * @returns {import("./types.js").Field}
 */
export function sketchField(asked, onChange, drawn) {
  const sketch = new Sketch(asked, onChange, drawn);
  return {
    root: sketch.root,
    hint: `draw from ${asked.x[0]} to ${asked.x[asked.x.length - 1]}; redraw as you like`,
    value: () => (sketch.ys.some((y) => y === null) ? null : /** @type {number[]} */ (sketch.ys)),
    focus: () => sketch.root.focus(),
  };
}
