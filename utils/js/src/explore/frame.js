// What every explorable has: a title, controls, pictures, a sentence for those who hear the page, its values.

import { followPointer, html, svg } from "../common/dom.js";
import { closest, Handle } from "./handle.js";

const TELL_KERNEL_AFTER_MS = 150;
const SAY_AFTER_MS = 400;
let count = 0;

/**
 * @typedef {object} Model
 * @property {(name: string) => any} get
 * @property {(name: string, value: unknown) => void} set
 * @property {() => void} save_changes
 * @property {(name: string, hook: () => void) => void} on
 * @property {(name: string, hook: () => void) => void} off
 * @property {any} [widget_manager] where a kernel is behind the widget
 *
 * @typedef {object} Slider
 * @property {string} key of the value that it sets
 * @property {string} name
 * @property {number[]} stops rising
 * @property {(value: number) => string} format
 * @property {[string, string]} [ends] what stands below its ends
 *
 * @typedef {object} Option
 * @property {number | string} value
 * @property {string} label
 *
 * @typedef {object} Choice
 * @property {string} key
 * @property {string} name
 * @property {Option[]} options
 * @property {(value: any) => {note?: string, bad?: boolean, disabled?: string}} [about] what stands below an option
 */

export class Frame {
  /** @type {(() => void)[]} */
  #refresh = [];
  #draw = () => "";
  /** @type {SVGSVGElement | undefined} */
  #told;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #telling;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #saying;
  #width = 0;

  /**
   * @param {Model} model
   * @param {HTMLElement} el
   * @param {string} title
   * @param {string} subtitle
   */
  constructor(model, el, title, subtitle) {
    this.model = model;
    this.data = model.get("data");
    /** @type {Record<string, any>} */
    this.values = { ...model.get("values") };
    this.uid = `ar-explore-${++count}-${crypto.getRandomValues(new Uint32Array(1))[0]}`;
    this.subtitle = html("p", { class: "ar-sub" }, subtitle);
    this.controls = html("div", { class: "ar-controls" });
    this.live = html("p", { class: "ar-live", "aria-live": "polite", role: "status" });
    this.title = html("h3", {}, title);
    const head = html("header", {}, this.title, this.subtitle);
    /** Called with each choice of the reader's. */
    this.chosen = () => {};
    /** @type {(() => void)[]} what else is to be undone in the end */
    this.undo = [];
    this.root = html("div", {
      class: `ar-theme ar-explore ar-${model.get("kind")}`,
      role: "group",
      "aria-label": title,
      "data-lm-suppress-shortcuts": "true",
    });
    this.root.append(head, this.controls, this.live);
    el.append(this.root);
    this.onModel = () => this.#fromModel();
    model.on("change:values", this.onModel);
    this.observer = new ResizeObserver(() => this.#resized());
  }

  /** Pixels from edge to edge, inside the padding. */
  get width() {
    return this.#width;
  }

  /** Adds parts below the controls. @param {...Node} parts */
  add(...parts) {
    this.live.before(...parts);
  }

  /** @param {string} look */
  picture(look) {
    const found = svg("svg", { class: `ar-picture ${look}`, role: "img" });
    this.add(found);
    return found;
  }

  /**
   * A picture with handles in it.
   *
   * @param {string} look
   * @param {...import("./handle.js").Grip} grips
   */
  stage(look, ...grips) {
    const picture = this.picture(look);
    const box = html("div", { class: "ar-stage" }, picture);
    this.add(box);
    return { box, picture, handles: grips.map((grip) => new Handle(this, box, grip)) };
  }

  /**
   * Large figures that answer the question, beside the choices.
   *
   * @param {number} count
   * @returns {(...shown: [string, string][]) => void} shows each with the words beside it
   */
  figures(count) {
    const boxes = Array.from({ length: count }, () => html("p", { class: "ar-figure-big" }));
    this.controls.classList.add("ar-top");
    this.controls.append(html("div", { class: "ar-answers" }, ...boxes)); // on one line, or below together
    return (...shown) => {
      for (const [i, [figure, words]] of shown.entries())
        boxes[i].replaceChildren(html("b", { class: "ar-big" }, figure), html("span", {}, words));
    };
  }

  /**
   * What the looks in the picture mean.
   *
   * @param {...[string, string]} marks a class, and its meaning
   */
  legend(...marks) {
    const shown = marks.map(([look, words]) => html("span", {}, html("i", { class: look }), words));
    this.add(html("p", { class: "ar-legend" }, ...shown));
    return shown;
  }

  /** @param {Slider} slider */
  slider({ key, name, stops, format, ends }) {
    const value = html("output", { class: "ar-value" });
    const input = html("input", {
      type: "range",
      min: 0,
      max: stops.length - 1,
      step: 1,
      "data-key": key,
      oninput: () => this.set(key, stops[Number(input.value)]),
    });
    const shown = ends ?? [format(stops[0]), format(stops[stops.length - 1])];
    const below = html(
      "span",
      { class: "ar-ends", "aria-hidden": "true" },
      ...shown.map((end) => html("span", {}, end)),
    );
    const label = html("span", { class: "ar-name" }, name);
    const box = html("label", { class: "ar-slider" }, label, value, input, below);
    this.#refresh.push(() => {
      const place = nearest(stops, this.values[key]);
      input.value = String(place);
      input.style.setProperty("--at", `${(100 * place) / (stops.length - 1)}%`);
      value.textContent = format(this.values[key]);
      input.setAttribute("aria-valuetext", format(this.values[key]));
    });
    this.controls.append(box);
    return box;
  }

  /** @param {Choice} choice */
  choice({ key, name, options, about }) {
    const buttons = options.map(({ value, label }) => {
      const button = html("button", { type: "button", "data-key": key, "data-value": value }, label);
      button.addEventListener("click", () => {
        if (button.getAttribute("aria-disabled") !== "true") this.set(key, value);
      });
      return button;
    });
    const notes = options.map(() => html("span", { class: "ar-note" }));
    const row = html("div", { class: "ar-buttons", role: "group", "aria-label": name });
    row.append(...buttons.map((button, i) => html("span", { class: "ar-option" }, button, notes[i])));
    const box = html("div", { class: "ar-choice" }, html("span", { class: "ar-name" }, name), row);
    this.#refresh.push(() => {
      for (const [i, { value }] of options.entries()) {
        const { note = "", bad = false, disabled = "" } = about?.(value) ?? {};
        buttons[i].setAttribute("aria-pressed", String(this.values[key] === value));
        buttons[i].setAttribute("aria-disabled", String(disabled !== ""));
        buttons[i].title = disabled;
        notes[i].textContent = note;
        notes[i].classList.toggle("ar-bad", bad);
      }
    });
    this.controls.append(box);
    return box;
  }

  /**
   * A menu, for what is changed rarely.
   *
   * @param {Choice} choice
   */
  menu({ key, name, options }) {
    const select = html("select", {
      "data-key": key,
      onchange: () => this.set(key, options[select.selectedIndex].value),
    });
    select.append(...options.map(({ value, label }) => html("option", { value }, label)));
    this.#refresh.push(() => {
      select.value = String(this.values[key]);
    });
    return html("label", { class: "ar-menu" }, html("span", { class: "ar-name" }, name), select);
  }

  /**
   * Begins to draw. `draw` draws everything and returns the sentence for those who hear the page.
   *
   * @param {() => string} draw
   * @param {SVGSVGElement} [told] the picture that the sentence describes
   */
  start(draw, told) {
    this.#draw = draw;
    this.#told = told;
    this.observer.observe(this.root);
    this.#resized();
  }

  /**
   * @param {string} key
   * @param {number | string} value
   */
  set(key, value) {
    if (this.values[key] === value) return;
    this.values = { ...this.values, [key]: value };
    this.redraw();
    this.chosen();
    clearTimeout(this.#telling);
    this.#telling = setTimeout(() => {
      this.model.set("values", this.values);
      this.model.save_changes();
    }, TELL_KERNEL_AFTER_MS);
  }

  /** Shows the values, and says the sentence when the reader pauses. */
  redraw() {
    if (!this.#width) return;
    for (const refresh of this.#refresh) refresh();
    const sentence = this.#draw();
    this.#told?.setAttribute("aria-label", sentence);
    const first = !this.root.dataset.ready;
    this.root.dataset.ready = "true";
    this.root.dataset.sentence = sentence;
    clearTimeout(this.#saying);
    if (first) return;
    this.#saying = setTimeout(() => {
      this.live.textContent = sentence;
    }, SAY_AFTER_MS);
  }

  #fromModel() {
    const values = this.model.get("values");
    if (Object.keys(values).every((key) => values[key] === this.values[key])) return;
    this.values = { ...values };
    this.redraw();
  }

  #resized() {
    const style = getComputedStyle(this.root);
    const inner = this.root.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    if (inner <= 0 || Math.abs(inner - this.#width) < 1) return;
    this.#width = Math.floor(inner);
    this.root.dataset.narrow = String(this.#width < 700);
    this.redraw();
  }

  remove() {
    this.observer.disconnect();
    this.model.off("change:values", this.onModel);
    for (const undo of this.undo) undo();
    clearTimeout(this.#telling);
    clearTimeout(this.#saying);
  }
}

/**
 * The index of the stop that is nearest to a value, by ratio.
 *
 * @param {number[]} stops
 * @param {number} value
 */
export function nearest(stops, value) {
  return closest(stops, (stop) => (stop > 0 && value > 0 ? Math.log(stop / value) : stop - value));
}

/**
 * Calls `move` with the x of the pointer while it is pressed on the picture.
 *
 * @param {SVGSVGElement} picture
 * @param {(x: number) => void} move
 */
export function onDrag(picture, move) {
  picture.addEventListener("pointerdown", (e) => {
    followPointer(picture, e, (at) => move(at.clientX - picture.getBoundingClientRect().left));
  });
}
