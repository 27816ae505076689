// A yellow handle that lies in a picture: dragged, or moved by keys. It sets one value, as a slider does.

import { followPointer, html } from "../common/dom.js";

/**
 * @typedef {object} Grip
 * @property {string} key of the value that it sets
 * @property {string} name
 * @property {() => number[]} stops the values where it may stand, rising
 * @property {(value: number) => string} format
 * @property {"x" | "y"} [axis] along which it is dragged
 */

const FORWARD = ["ArrowRight", "ArrowUp"];
const PAGE = 5;

export class Handle {
  /** @type {(value: number) => number} */
  #pixel = (value) => value;
  #shown = 0;

  /**
   * @param {import("./frame.js").Frame} frame
   * @param {HTMLElement} stage what holds the picture, and this above it
   * @param {Grip} grip
   */
  constructor(frame, stage, grip) {
    this.frame = frame;
    this.stage = stage;
    this.grip = grip;
    this.axis = grip.axis ?? "x";
    this.element = html("div", {
      class: `ar-handle ar-handle-${this.axis}`,
      role: "slider",
      tabindex: 0,
      "data-key": grip.key,
      "aria-label": grip.name,
      "aria-orientation": this.axis === "x" ? "horizontal" : "vertical",
      onkeydown: (/** @type {KeyboardEvent} */ event) => this.#key(event),
      onpointerdown: (/** @type {PointerEvent} */ event) => this.#press(event),
    });
    stage.append(this.element);
  }

  /**
   * Puts it at a point of the picture.
   *
   * @param {number} x
   * @param {number} y
   * @param {(value: number) => number} pixel where on its axis it would stand for a value
   * @param {number} value what it shows
   */
  place(x, y, pixel, value = this.frame.values[this.grip.key]) {
    this.#pixel = pixel;
    this.#shown = value;
    const stops = this.grip.stops();
    this.element.style.transform = `translate(${x.toFixed(1)}px,${y.toFixed(1)}px)`;
    this.element.setAttribute("aria-valuemin", String(stops[0]));
    this.element.setAttribute("aria-valuemax", String(stops[stops.length - 1]));
    this.element.setAttribute("aria-valuenow", String(value));
    this.element.setAttribute("aria-valuetext", this.grip.format(value));
  }

  /** The place among its stops. */
  #index() {
    return closest(this.grip.stops(), (stop) => stop - this.#shown);
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const stops = this.grip.stops();
    const last = stops.length - 1;
    const moves = this.#moves(event.key, last);
    if (moves === null || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    this.frame.set(this.grip.key, stops[Math.min(last, Math.max(0, this.#index() + moves))]);
  }

  /**
   * By how many stops a key moves: an arrow along the axis moves the way it points.
   *
   * @param {string} key
   * @param {number} last
   */
  #moves(key, last) {
    if (key === "Home" || key === "End") return key === "Home" ? -last : last;
    if (key === "PageUp" || key === "PageDown") return key === "PageUp" ? PAGE : -PAGE;
    if (!key.startsWith("Arrow")) return null;
    const stops = this.grip.stops();
    const vertical = key === "ArrowUp" || key === "ArrowDown";
    const falls = this.axis === "y" && this.#pixel(stops[last]) > this.#pixel(stops[0]);
    const ahead = FORWARD.includes(key) !== (vertical && falls);
    return ahead ? 1 : -1;
  }

  /** @param {PointerEvent} event */
  #press(event) {
    const first = this.#pixel(this.#shown);
    const place = this.axis === "x" ? "clientX" : "clientY";
    const edge = () => this.stage.getBoundingClientRect()[this.axis === "x" ? "left" : "top"];
    const off = event[place] - edge() - first;
    event.preventDefault();
    this.element.focus();
    followPointer(this.element, event, (at) => {
      const pixel = at[place] - edge() - off;
      const stops = this.grip.stops();
      this.frame.set(this.grip.key, stops[closest(stops, (stop) => this.#pixel(stop) - pixel)]);
    });
  }
}

/** The index of the value that is nearest. @param {number[]} values @param {(value: number) => number} off */
export function closest(values, off) {
  const distances = values.map((value) => Math.abs(off(value))); // each once: it may run a whole pipeline
  return distances.reduce((found, distance, i) => (distance < distances[found] ? i : found), 0);
}
