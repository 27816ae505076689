// The buttons, menus and the slider below the picture.

import { html } from "../common/dom.js";
import { LAYOUTS } from "./layouts.js";
import { longestOf } from "./playback.js";

const SPEEDS = [0.25, 0.5, 1, 2, 4];
const ICONS = {
  first: "M3 3h2v10H3zM13 3v10L6 8z",
  back: "M11 3v10L4 8z",
  play: "M4 2.5v11L13.5 8z",
  pause: "M4 3h3v10H4zM9 3h3v10H9z",
  next: "M5 3v10l7-5z",
  last: "M11 3h2v10h-2zM3 3v10l7-5z",
  closer: "M7 3h2v4h4v2H9v4H7V9H3V7h4z",
  wider: "M3 7h10v2H3z",
};

/**
 * What the controls call.
 *
 * @typedef {object} Actions
 * @property {() => void} toggle plays or pauses
 * @property {() => void} first
 * @property {() => void} back
 * @property {() => void} next
 * @property {() => void} last
 * @property {(value: number) => void} slide while the slider is dragged; 0 to the number of steps
 * @property {() => void} slid when it is released
 */

export class Controls {
  /**
   * @param {import("./data.js").Model} model
   * @param {import("./playback.js").Playback[]} playbacks
   * @param {Actions} actions
   */
  constructor(model, playbacks, actions) {
    const [{ axis }] = playbacks;
    const longest = longestOf(playbacks);
    const save = (/** @type {keyof import("./data.js").ModelState} */ key, /** @type {any} */ value) => {
      model.set(key, value);
      model.save_changes();
    };
    this.playButton = iconButton("play", "Play", actions.toggle);
    this.slider = html("input", {
      type: "range",
      class: "ar-scrub",
      min: "0",
      max: String(longest.steps),
      step: "any",
      value: "0",
      "aria-label": "Step",
      oninput: () => actions.slide(+this.slider.value),
      onchange: actions.slid,
    });
    const speeds = SPEEDS.map((speed) => [String(speed), `${speed}×`]);
    this.speed = menu("Speed", speeds, String(model.get("speed")), (value) => save("speed", +value));
    this.root = html(
      "div",
      { class: "ar-controls" },
      iconButton("first", "To the start", actions.first),
      iconButton("back", "Step back", actions.back),
      this.playButton,
      iconButton("next", "Step forward", actions.next),
      iconButton("last", "To the end", actions.last),
      this.slider,
      this.speed,
    );
    /** @type {HTMLSelectElement | null} */
    this.layout = null;
    if (playbacks.some((playback) => playback.ranks > 2)) {
      const best = [...new Set(playbacks.map((playback) => playback.layout))].join(", ");
      const layouts = [["auto", `layout: ${best}`], ...LAYOUTS.map((layout) => [layout, layout])];
      this.layout = menu("Layout", layouts, model.get("arrangement"), (value) => save("arrangement", value));
      this.root.append(this.layout);
    }
    if (playbacks.every((playback) => playback.times)) {
      const axes = [
        ["step", "steps"],
        ["time", "time"],
      ];
      this.root.append(menu("Axis", axes, axis, (value) => save("axis", value)));
    }
    this.quiz = html("input", { type: "checkbox", onchange: () => save("quiz", this.quiz.checked) });
    this.quiz.checked = model.get("quiz");
    this.root.append(html("label", { class: "ar-quiz-switch" }, this.quiz, "What happens next?"));
  }

  /** @param {string} layout */
  showLayout(layout) {
    if (this.layout) this.layout.value = layout;
  }

  /** @param {number} speed */
  showSpeed(speed) {
    this.speed.value = String(speed);
  }

  /** @param {boolean} playing */
  showPlaying(playing) {
    const words = playing ? "Pause" : "Play";
    this.playButton.setAttribute("aria-label", words);
    this.playButton.title = words;
    this.playButton.querySelector("path")?.setAttribute("d", playing ? ICONS.pause : ICONS.play);
  }
}

/**
 * @param {keyof typeof ICONS} icon
 * @param {string} words
 * @param {() => void} act
 */
export function iconButton(icon, words, act) {
  const attributes = { type: "button", class: "ar-button", "aria-label": words, title: words, "data-do": icon };
  const button = html("button", { ...attributes, onclick: act });
  button.innerHTML = `<svg viewBox="0 0 16 16" aria-hidden="true"><path d="${ICONS[icon]}"/></svg>`;
  return button;
}

/**
 * @param {string} words
 * @param {string[][]} options value and text of each
 * @param {string} value the chosen one
 * @param {(value: string) => void} act
 */
function menu(words, options, value, act) {
  const select = html("select", { "aria-label": words, onchange: () => act(select.value) });
  for (const [key, text] of options) select.append(html("option", { value: key }, text));
  select.value = value;
  return select;
}
