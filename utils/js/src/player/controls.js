// The buttons beside the timeline.

import { html } from "../common/dom.js";

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
 */

/**
 * What else the buttons do to the page.
 *
 * @typedef {object} PageActions
 * @property {(factor: number) => void} zoom
 * @property {() => void} table shows or hides it
 * @property {() => void} fold folds or opens the timeline
 */

export class Controls {
  /**
   * @param {import("./data.js").Model} model
   * @param {import("./playback.js").Playback[]} playbacks
   * @param {Actions} actions
   * @param {PageActions} page
   */
  constructor(model, playbacks, actions, page) {
    const [{ axis }] = playbacks;
    const save = (/** @type {keyof import("./data.js").ModelState} */ key, /** @type {any} */ value) => {
      model.set(key, value);
      model.save_changes();
    };
    this.playButton = iconButton("play", "Play", actions.toggle);
    const speeds = SPEEDS.map((speed) => [String(speed), `${speed}×`]);
    this.speed = menu("Speed", speeds, String(model.get("speed")), (value) => save("speed", +value));
    this.step = html("strong", { "data-meter": playbacks.length > 1 ? "position" : "step" });
    const timed = playbacks.every((playback) => playback.times);
    const second = html("div", { class: "ar-row" }, this.step, this.speed);
    /** @type {HTMLSelectElement | null} stands at the left end of the timeline's axis */
    this.axis = null;
    if (timed) {
      const axes = [
        ["step", "steps"],
        ["time", "time"],
      ];
      this.axis = menu("Axis", axes, axis, (value) => save("axis", value));
      this.axis.className = "ar-axis";
    }
    this.quiz = textButton("Ask me what comes next", "ar-ask", () => save("quiz", !model.get("quiz")));
    this.showQuiz(model.get("quiz"));
    this.table = textButton("Table of this step", "ar-as-link", page.table);
    this.table.setAttribute("aria-expanded", "false");
    this.fold = textButton("Timeline", "ar-as-link", page.fold);
    this.fold.hidden = true;
    const buttons = [
      iconButton("first", "To the start", actions.first),
      iconButton("back", "Step back", actions.back),
      this.playButton,
      iconButton("next", "Step forward", actions.next),
      iconButton("last", "To the end", actions.last),
    ];
    const transport = html("div", { class: "ar-row ar-buttons" }, ...buttons);
    const links = html("div", { class: "ar-row" }, this.table, this.fold);
    if (timed || playbacks.some((playback) => playback.steps > 40)) {
      links.append(iconButton("wider", "Zoom out", () => page.zoom(0.6)));
      links.append(iconButton("closer", "Zoom in", () => page.zoom(1.7)));
    }
    this.root = html("div", { class: "ar-transport" }, transport, second, this.quiz, links);
  }

  /** @param {boolean} on */
  showQuiz(on) {
    this.quiz.setAttribute("aria-pressed", String(on));
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
function iconButton(icon, words, act) {
  const attributes = { type: "button", class: "ar-button", "aria-label": words, title: words, "data-do": icon };
  const button = html("button", { ...attributes, onclick: act });
  button.innerHTML = `<svg viewBox="0 0 16 16" aria-hidden="true"><path d="${ICONS[icon]}"/></svg>`;
  return button;
}

/**
 * @param {string} words
 * @param {string} name of the class
 * @param {() => void} act
 */
function textButton(words, name, act) {
  return html("button", { type: "button", class: name, onclick: act }, words);
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
