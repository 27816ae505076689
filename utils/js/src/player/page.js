// All that the player shows: a picture with its counters for each animation, the controls, the words, the timeline.

import { html } from "../common/dom.js";
import { Controls, iconButton } from "./controls.js";
import { DenseView } from "./dense_view.js";
import { DetailedView } from "./detailed_view.js";
import { LAYOUTS } from "./layouts.js";
import { Meter } from "./meter.js";
import { QuestionPanel } from "./question_panel.js";
import { contentsTable } from "./table.js";
import { Timeline } from "./timeline.js";

/** @typedef {import("./data.js").Model} Model */
/** @typedef {import("./playback.js").Playback} Playback */

const MOST_DETAILED_RANKS = 16;
const MOST_DETAILED_CHUNKS = 64;

export class Page {
  /** Whether all must be drawn anew, though nothing has landed. */
  #stale = true;
  /** The step whose caption is shown. */
  #captionStep = -1;

  /**
   * @param {Model} model
   * @param {Playback[]} playbacks
   * @param {import("./controls.js").Actions} actions
   * @param {(value: number) => void} onTimeline is told the axis value at which the user points in the timeline
   */
  constructor(model, playbacks, actions, onTimeline) {
    this.model = model;
    this.playbacks = playbacks;
    // not counted: every view has a module of its own
    const uid = `allranks-player-${crypto.getRandomValues(new Uint32Array(1))[0]}`;
    this.controls = new Controls(model, playbacks, actions);
    this.views = playbacks.map((playback, i) => this.#viewOf(playback, `${uid}-${i}`));
    this.meters = playbacks.map((playback) => new Meter(playback));
    this.questions = new QuestionPanel();
    this.caption = html("p", { class: "ar-caption" });
    this.announcement = html("p", { class: "ar-live", "aria-live": "polite", role: "status" });
    this.timeline = new Timeline(playbacks, onTimeline);
    const scroll = { class: "ar-scroll", tabindex: "0", role: "region", "aria-label": "What every rank holds" };
    this.tableBox = html("div", scroll);
    const summary = html("summary", {}, "Table of this step");
    this.details = html("details", { class: "ar-table", ontoggle: () => this.fillTable() }, summary);
    const keys = "Space plays, arrow keys step, Home and End jump.";
    this.root = html("div", {
      class: "ar-player",
      tabindex: "0",
      role: "group",
      "data-lm-suppress-shortcuts": "true",
      "aria-label": `Player: ${playbacks.map((playback) => playback.title).join(" beside ")}. ${keys}`,
    });
    const zoomOut = iconButton("wider", "Zoom out", () => this.timeline.zoomBy(0.6));
    const zoomIn = iconButton("closer", "Zoom in", () => this.timeline.zoomBy(1.7));
    this.root.append(
      html("div", { class: `ar-halves${playbacks.length > 1 ? " ar-two" : ""}` }, ...this.#halves()),
      this.questions.root,
      this.controls.root,
      this.caption,
      this.announcement,
      this.timeline.root,
      html("div", { class: "ar-zoom" }, zoomOut, zoomIn),
      this.details,
    );
  }

  #halves() {
    return this.playbacks.map(({ title }, i) => {
      const { heading, root } = this.meters[i];
      return html("section", { class: "ar-half", "aria-label": title }, heading, this.views[i].root, root);
    });
  }

  /**
   * @param {Playback} playback
   * @param {string} uid
   */
  #viewOf(playback, uid) {
    const layout = this.#layoutOf(playback);
    const dense = playback.ranks > MOST_DETAILED_RANKS || playback.chunks > MOST_DETAILED_CHUNKS;
    if (dense) return new DenseView(playback, layout);
    return new DetailedView(playback, layout, uid, this.playbacks.length > 1);
  }

  /** @param {Playback} playback */
  #layoutOf(playback) {
    const asked = this.model.get("arrangement");
    return LAYOUTS.find((layout) => layout === asked) ?? playback.layout;
  }

  /** Shows the layout that the model asks for, once `draw` is called. */
  changeLayout() {
    this.controls.showLayout(this.model.get("arrangement"));
    this.views.forEach((view, i) => {
      view.show(this.#layoutOf(this.playbacks[i]));
    });
    this.#stale = true;
  }

  /**
   * Begins a new axis, once `draw` is called.
   *
   * @param {number} steps
   */
  changeAxis(steps) {
    this.controls.slider.max = String(steps);
    this.timeline.showAll();
    this.#stale = true;
  }

  /**
   * Shows the moment to which the playbacks have been moved.
   *
   * @param {object} moment
   * @param {boolean[]} moment.landed whether any message has landed or was taken back, for each playback
   * @param {number} moment.step the one that is going on or has just ended, counted from 1
   * @param {number} moment.steps
   * @param {number} moment.slider
   * @param {boolean} moment.calm whether the user wants no motion
   */
  draw({ landed, step, steps, slider, calm }) {
    this.views.forEach((view, i) => {
      view.frame(landed[i] || this.#stale, !calm);
    });
    this.controls.slider.value = String(slider);
    this.timeline.moveCursor();
    const changed = this.#stale || landed.includes(true) || step !== this.#captionStep;
    this.#stale = false;
    // a clock runs between landings too
    if (changed || this.playbacks[0].axis === "time") {
      for (const [i, meter] of this.meters.entries()) meter.update(this.views[i].busy);
    }
    if (!changed) return;
    this.#captionStep = step;
    this.caption.textContent = this.#words();
    const forever = this.playbacks.some((playback) => playback.waits().some((wait) => wait.forever));
    this.caption.classList.toggle("ar-bad", forever);
    this.controls.slider.setAttribute("aria-valuetext", `step ${step} of ${steps}`);
  }

  // What happens in the step that is shown.
  #words() {
    const captions = this.playbacks.map((playback) => {
      const words = playback.captions[Math.min(playback.steps, playback.current)];
      return this.playbacks.length > 1 ? `${playback.title}, ${words}` : words;
    });
    return captions.join(". ");
  }

  /** Says what happens to those who hear the page. */
  announce() {
    this.announcement.textContent = this.#words();
  }

  /** What every rank holds, for those who read instead of looking. */
  fillTable() {
    if (!this.details.open) return;
    // the same box again, which keeps its focus and its place
    this.tableBox.replaceChildren(...this.playbacks.map(contentsTable));
    if (!this.details.contains(this.tableBox)) this.details.append(this.tableBox);
  }

  /** @param {boolean} playing */
  showPlaying(playing) {
    this.root.dataset.playing = String(playing);
    this.controls.showPlaying(playing);
  }

  closeQuestion() {
    if (this.questions.hasFocus) this.root.focus();
    this.questions.close();
  }

  /** Draws the canvases anew: their colours don't follow the theme by themselves. */
  repaint() {
    this.timeline.draw();
    for (const view of this.views) if (view instanceof DenseView) view.repaint();
  }

  remove() {
    this.timeline.remove();
    for (const view of this.views) if (view instanceof DenseView) view.remove();
  }
}
