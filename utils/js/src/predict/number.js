// A number: a slider that begins nowhere, and a field to type it.

import { followPointer, html } from "../common/dom.js";
import { onTick, placeOf, ticksOf, typed, unitOnTick, valueAt, withUnit, written } from "./scale.js";
import { plain } from "./words.js";

/** @typedef {import("./types.js").Asked} Asked */

/**
 * The line with its ticks; what stands on it is added by `at`.
 *
 * @param {Asked} asked
 */
export function line(asked) {
  const unit = unitOnTick(asked.unit);
  const ticks = ticksOf({ ...asked, unit }).map((value) =>
    html("span", { class: "ar-predict-tick", style: left(placeOf(asked, value)) }, onTick(value, unit)),
  );
  return html("div", { class: "ar-predict-line" }, html("div", { class: "ar-predict-track" }), ...ticks);
}

/** @param {number} place */
export function left(place) {
  return `left:${(100 * place).toFixed(2)}%`;
}

const STEPS = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10 };

class Slider {
  /**
   * @param {Asked} asked
   * @param {() => void} onChange
   * @param {number | null} value
   */
  constructor(asked, onChange, value) {
    this.asked = asked;
    this.onChange = onChange;
    this.value = value;
    this.label = html("span", { class: "ar-predict-value" });
    this.arrows = html("span", { class: "ar-predict-arrows", "aria-hidden": "true" });
    this.arrows.append(html("span", {}, "←"), html("span", {}, "→"));
    this.handle = html("div", { class: "ar-predict-handle", role: "slider", tabindex: "0" }, this.arrows);
    this.handle.setAttribute("aria-label", plain(asked.question));
    this.handle.setAttribute("aria-valuemin", String(asked.low));
    this.handle.setAttribute("aria-valuemax", String(asked.high));
    this.line = line(asked);
    this.line.append(this.label, this.handle);
    this.field = html("input", { type: "text", inputmode: "decimal", autocomplete: "off", size: "8" });
    this.field.setAttribute("aria-label", `your number${asked.unit ? ` in ${asked.unit}` : ""}`);
    this.field.addEventListener("input", () => this.set(typed(this.field.value), false));
    this.handle.addEventListener("keydown", (event) => this.#key(event));
    this.line.addEventListener("pointerdown", (event) => this.#drag(event));
    this.set(value, true, false);
  }

  /**
   * @param {number | null} value
   * @param {boolean} intoField whether to write it into the field too
   * @param {boolean} tell
   */
  set(value, intoField, tell = true) {
    const { asked, handle, label } = this;
    this.value = value;
    const place = value === null ? 0.5 : placeOf(asked, value);
    const words = value === null ? "drag me" : withUnit(value, asked.unit);
    handle.setAttribute("style", left(place));
    label.setAttribute("style", left(place));
    label.textContent = words;
    label.classList.toggle("ar-none", value === null);
    handle.classList.toggle("ar-none", value === null);
    this.arrows.hidden = value !== null;
    handle.setAttribute("aria-valuenow", String(value ?? valueAt(asked, 0.5)));
    handle.setAttribute("aria-valuetext", value === null ? "nothing chosen yet" : words);
    if (intoField) this.field.value = value === null ? "" : written(value);
    if (tell) this.onChange();
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const { asked } = this;
    const whole = asked.whole && !asked.log;
    const one = whole ? 1 / (asked.high - asked.low) : 0.01;
    const now = this.value === null ? 0.5 : placeOf(asked, this.value);
    let place = { Home: 0, End: 1 }[event.key];
    if (event.key in STEPS) {
      const steps = STEPS[/** @type {keyof typeof STEPS} */ (event.key)];
      // the first key shows the middle, so that nothing jumps past it
      place = this.value === null ? 0.5 : now + steps * (Math.abs(steps) > 1 ? Math.max(one, 0.1) / 10 : one);
      place = this.#moved(now, Math.min(1, Math.max(0, place)), Math.sign(steps));
    }
    if (place === undefined) return;
    event.preventDefault();
    this.set(valueAt(asked, place), true);
  }

  /**
   * A place that gives another number: whole numbers may be far apart.
   *
   * @param {number} from
   * @param {number} to
   * @param {number} way
   */
  #moved(from, to, way) {
    if (this.value === null) return to;
    let place = to;
    while (place > 0 && place < 1 && from !== to && valueAt(this.asked, place) === this.value) place += way * 0.01;
    return Math.min(1, Math.max(0, place));
  }

  /** @param {PointerEvent} event */
  #drag(event) {
    const { line: root } = this;
    event.preventDefault();
    this.handle.focus();
    /** @param {PointerEvent} at */
    const follow = (at) => {
      const box = root.getBoundingClientRect();
      const place = (at.clientX - box.left) / box.width;
      this.set(valueAt(this.asked, Math.min(1, Math.max(0, place))), true);
    };
    followPointer(root, event, follow);
  }
}

/**
 * @param {Asked} asked
 * @param {() => void} onChange
 * @param {number | null} chosen
 * @returns {import("./types.js").Field}
 */
export function numberField(asked, onChange, chosen) {
  const slider = new Slider(asked, onChange, chosen);
  const unit = html("span", {}, asked.unit);
  const typing = html("label", { class: "ar-predict-typed" }, "or type ", slider.field, unit);
  return {
    root: html("div", { class: "ar-predict-number" }, slider.line, typing),
    hint: "drag first, or type a number",
    value: () => slider.value,
    focus: () => slider.handle.focus(),
  };
}
