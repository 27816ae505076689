// All that the player shows: title, stage and rail, one line of words, and the buttons beside the timeline.

import { html } from "../common/dom.js";
import { lineOf } from "./caption.js";
import { CodePanel } from "./code.js";
import { Controls } from "./controls.js";
import { DenseView } from "./dense_view.js";
import { DetailedView } from "./detailed_view.js";
import { heightFor, placeHalves } from "./halves.js";
import { halfTitles, heading } from "./heading.js";
import { LAYOUTS } from "./layouts.js";
import { longestOf } from "./playback.js";
import { QuestionPanel } from "./question_panel.js";
import { HalfMeter, mostBytes, Rail } from "./rail.js";
import { contentsTable } from "./table.js";
import { Timeline } from "./timeline.js";
import { counted, duration } from "./words.js";

/** @typedef {import("./data.js").Model} Model */
/** @typedef {import("./playback.js").Playback} Playback */

const HEIGHT = 620;
// with the code below the picture
const CODE_HEIGHT = 138;
// with a line on the critical path
const PATH_HEIGHT = 48;
const STAGE = { least: 250, most: 360 };
const NARROW = 700;
const PHONE = 480;

/**
 * What decided how long each of them took, where that is known, in a line with the mark that the timeline has.
 *
 * @param {Playback[]} playbacks
 */
function paths(playbacks) {
  return playbacks.flatMap(({ path }) =>
    path ? [html("p", { class: "ar-path" }, html("i", { "aria-hidden": "true" }), path.says.join(" "))] : [],
  );
}

export class Page {
  /** Whether all must be drawn anew, though nothing has landed. */
  #stale = true;
  /** The step whose caption is shown. */
  #captionStep = -1;
  /** @type {boolean | null} whether the reader has folded the timeline; null: the window decides */
  #folded = null;
  /** @type {import("./data.js").Transfer | null} */
  #picked = null;
  #fit = () => this.#fitWindow();

  /**
   * @param {Model} model
   * @param {Playback[]} playbacks
   * @param {import("./controls.js").Actions} actions
   * @param {ConstructorParameters<typeof Timeline>[1]} scrubbing
   * @param {import("./stops.js").Stops} stops
   * @param {() => void} onStop sets a breakpoint at what is shown
   */
  constructor(model, playbacks, actions, scrubbing, stops, onStop) {
    this.model = model;
    this.playbacks = playbacks;
    // not counted: every view has a module of its own
    const uid = `allranks-player-${crypto.getRandomValues(new Uint32Array(1))[0]}`;
    this.stops = stops;
    this.timeline = new Timeline(playbacks, scrubbing, stops);
    this.controls = new Controls(model, playbacks, actions, {
      zoom: (factor) => this.timeline.zoomBy(factor),
      table: () => this.#toggleTable(),
      fold: () => this.#toggleTimeline(),
    });
    this.views = playbacks.map((playback, i) => this.#viewOf(playback, `${uid}-${i}`));
    const several = playbacks.length > 1;
    /** @type {(Rail | HalfMeter)[]} */
    this.meters = several
      ? playbacks.map((playback) => new HalfMeter(playback, mostBytes(playbacks)))
      : [new Rail(playbacks[0])];
    this.questions = new QuestionPanel();
    this.caption = html("p", { class: "ar-caption" });
    this.paths = paths(playbacks);
    this.announcement = html("p", { class: "ar-live", "aria-live": "polite", role: "status" });
    const scroll = { class: "ar-scroll", tabindex: "0", role: "region", "aria-label": "What every rank holds" };
    this.tableBox = html("div", { ...scroll, hidden: "" });
    const own = playbacks.find((playback) => playback.code);
    this.code = own?.code ? { playback: own, panel: new CodePanel(own.code, onStop) } : null;
    const keys = "Space plays, arrow keys step, Home and End jump, B or a rank's number stops there.";
    this.root = html("div", {
      class: `ar-player ar-theme${several ? " ar-compare" : ""}`,
      tabindex: "0",
      role: "group",
      "data-lm-suppress-shortcuts": "true",
      "aria-label": `Player: ${playbacks.map((playback) => playback.title).join(" beside ")}. ${keys}`,
    });
    this.title = heading(playbacks);
    const scrubber = html("div", { class: "ar-scrubber" }, this.timeline.root);
    if (this.controls.axis) scrubber.prepend(this.controls.axis);
    this.root.append(
      this.title,
      html("div", { class: "ar-main" }, html("div", { class: "ar-halves" }, ...this.#halves()), ...this.#rails()),
      html("div", { class: "ar-say" }, this.caption, this.questions.root),
      ...this.paths,
      ...(this.code ? [this.code.panel.root] : []),
      this.announcement,
      html("div", { class: "ar-deck" }, this.controls.root, scrubber),
      this.tableBox,
    );
    this.watcher = new ResizeObserver(this.#fit);
    this.watcher.observe(this.root);
    window.addEventListener("resize", this.#fit);
  }

  #halves() {
    const titles = halfTitles(this.playbacks);
    return this.playbacks.map(({ title }, i) => {
      const half = html("section", { class: "ar-half", "aria-label": title });
      const meter = this.meters[i];
      if (!(meter instanceof HalfMeter)) {
        half.append(this.views[i].root);
        return half;
      }
      const name = html("h4", { class: "ar-half-title" }, html("span", {}, titles[i].title));
      if (titles[i].tag) name.append(html("span", { class: "ar-you" }, titles[i].tag));
      name.append(meter.step);
      half.append(name, this.views[i].root, meter.root);
      return half;
    });
  }

  #rails() {
    return this.meters.flatMap((meter) => (meter instanceof Rail ? [meter.root] : []));
  }

  /**
   * @param {Playback} playback
   * @param {string} uid
   */
  #viewOf(playback, uid) {
    const layout = this.#layoutOf(playback);
    return playback.isDetailed ? new DetailedView(playback, layout, uid) : new DenseView(playback, layout);
  }

  /** @param {Playback} playback */
  #layoutOf(playback) {
    const asked = this.model.get("arrangement");
    return LAYOUTS.find((layout) => layout === asked) ?? playback.layout;
  }

  // The height follows the window: first the stage gets lower, then the timeline folds.
  #fitWindow() {
    const width = this.root.clientWidth;
    if (!width) return;
    this.root.dataset.size = width < PHONE ? "phone" : width < NARROW ? "narrow" : "wide";
    const room = roomAround(this.root) - 16;
    const lacking = Math.max(0, HEIGHT + (this.code ? CODE_HEIGHT : 0) + this.paths.length * PATH_HEIGHT - room);
    const wide = width >= NARROW;
    const bare = this.model.get("bare");
    if (bare) {
      this.root.dataset.bare = bare.loop ? "loop" : "once";
      this.root.style.setProperty(
        "--ar-stage",
        `${width > 440 ? bare.stage : heightFor(this.views[0], width, bare.stage)}px`,
      );
      this.#foldTimeline(bare.loop);
      return;
    }
    const alone = this.views.length === 1 && !wide;
    const low = wide ? Math.max(STAGE.least, STAGE.most - lacking - this.timeline.more) : STAGE.most;
    const stage = alone ? heightFor(this.views[0], width - 26, STAGE.most) : low;
    this.root.style.setProperty("--ar-stage", `${stage}px`);
    if (this.views.length > 1) placeHalves(this.root, this.views, width - 26, stage);
    const tooLow = wide && lacking > STAGE.most - STAGE.least;
    this.controls.fold.hidden = !tooLow && this.#folded === null;
    this.#foldTimeline(this.#folded ?? tooLow);
  }

  /** @param {boolean} folded */
  #foldTimeline(folded) {
    this.timeline.fold(folded);
    this.root.classList.toggle("ar-low", folded);
    this.controls.fold.setAttribute("aria-expanded", String(!folded));
  }

  #toggleTimeline() {
    this.#folded = !this.root.classList.contains("ar-low");
    this.#foldTimeline(this.#folded);
  }

  #toggleTable() {
    this.tableBox.hidden = !this.tableBox.hidden;
    this.controls.table.setAttribute("aria-expanded", String(!this.tableBox.hidden));
    this.fillTable();
  }

  /** Shows the layout that the model asks for, once `draw` is called. */
  changeLayout() {
    this.views.forEach((view, i) => {
      view.show(this.#layoutOf(this.playbacks[i]));
    });
    this.#stale = true;
  }

  /** Begins a new axis, once `draw` is called. */
  changeAxis() {
    const title = heading(this.playbacks);
    this.title.replaceWith(title);
    this.title = title;
    this.timeline.showAll();
    this.#stale = true;
  }

  /**
   * Hides what comes after an axis value; null: nothing.
   *
   * @param {number | null} from
   */
  cover(from) {
    this.timeline.covered = from;
    this.root.dataset.quiz = String(from !== null);
  }

  /**
   * Marks a message, once `draw` is called.
   *
   * @param {import("./data.js").Transfer | null} transfer
   */
  pick(transfer) {
    if (this.#picked === transfer) return;
    this.#picked = this.timeline.picked = transfer;
    this.views.forEach((view, i) => {
      const own = transfer && this.playbacks[i].transfers[transfer.index] === transfer;
      if (view instanceof DetailedView) view.picked = own ? transfer.index : null;
    });
    this.#stale = true;
  }

  /**
   * Shows the moment to which the playbacks have been moved.
   *
   * @param {object} moment
   * @param {boolean[]} moment.landed whether any message has landed or was taken back, for each playback
   * @param {number} moment.step the one that is going on or has just ended, counted from 1
   * @param {number} moment.steps
   * @param {boolean} moment.calm whether the user wants no motion
   */
  draw({ landed, step, steps, calm }) {
    this.views.forEach((view, i) => {
      view.frame(landed[i] || this.#stale, !calm);
    });
    this.timeline.moveCursor();
    const changed = this.#stale || landed.includes(true) || step !== this.#captionStep;
    this.#stale = false;
    // a clock runs between landings too
    if (changed || this.playbacks[0].axis === "time") {
      for (const [i, meter] of this.meters.entries()) meter.update(this.views[i].busy);
      this.controls.step.textContent = this.#clock(step, steps);
    }
    if (!changed) return;
    this.#captionStep = step;
    this.caption.textContent = this.#line();
    this.#showCode();
    const forever = this.playbacks.some((playback) => playback.waits().some((wait) => wait.forever));
    const wrong = this.playbacks.some(({ wrong: found }) => found && this.#picked?.index === found[0]);
    this.caption.classList.toggle("ar-bad", forever || wrong);
    const slider = { max: steps, now: Math.min(step, steps), text: `step ${step} of ${steps}` };
    for (const [name, value] of Object.entries(slider)) {
      this.timeline.root.setAttribute(`aria-value${name}`, String(value));
    }
  }

  #showCode() {
    if (!this.code) return;
    const { playback, panel } = this.code;
    const own = this.#picked && playback.transfers[this.#picked.index] === this.#picked ? this.#picked : null;
    panel.show(playback, own);
    this.showStops();
  }

  /** What playing would stop at, if the reader set a breakpoint now: the message that is picked, or the step. */
  get stopHere() {
    const picked = this.#picked;
    const half = Math.max(
      0,
      this.playbacks.findIndex((playback) => picked && playback.transfers[picked.index] === picked),
    );
    const step = picked ? picked.step : Math.max(0, this.playbacks[half].current - 1);
    return { half, rank: picked ? (picked.delivered ? picked.dst : picked.src) : 0, step };
  }

  /** Draws the breakpoints as they are now. */
  showStops() {
    this.timeline.showStops();
    this.code?.panel.showStop(this.stops.has(this.stopHere));
  }

  /**
   * Where the clock of all stands.
   *
   * @param {number} step
   * @param {number} steps
   */
  #clock(step, steps) {
    const longest = longestOf(this.playbacks);
    if (this.playbacks.length === 1 || longest.axis === "step")
      return step ? `step ${step} of ${steps}` : `start, ${counted(steps, "step")}`;
    return `${duration(longest.clockAt(longest.position))} of ${duration(longest.length)}`;
  }

  // What happens in the step that is shown, in one line.
  #line() {
    if (this.playbacks.length > 1 && this.playbacks.every(({ current, steps }) => !current && steps))
      return "Before the first step. Play, or step with the arrow keys.";
    const titles = halfTitles(this.playbacks);
    const lines = this.playbacks.map((playback, i) => {
      const own = this.#picked && playback.transfers[this.#picked.index] === this.#picked ? this.#picked : null;
      const words = lineOf(playback, own);
      return this.playbacks.length > 1 ? `${titles[i].tag || titles[i].title}: ${words}` : words;
    });
    return lines.join(" ");
  }

  // The same in full.
  #words() {
    const captions = this.playbacks.map((playback) => {
      const words = playback.captions[Math.min(playback.steps, playback.current)];
      return this.playbacks.length > 1 ? `${playback.title}, ${words}` : words;
    });
    return captions.join(". ");
  }

  /**
   * Says what happens to those who hear the page.
   *
   * @param {string} first what comes before it
   */
  announce(first = "") {
    this.announcement.textContent = `${first}${this.#words()}`;
  }

  /** What every rank holds, for those who read instead of looking. */
  fillTable() {
    if (this.tableBox.hidden) return;
    this.tableBox.replaceChildren(html("p", {}, this.#words()), ...this.playbacks.map(contentsTable));
  }

  /** @param {boolean} playing */
  showPlaying(playing) {
    this.root.dataset.playing = String(playing);
    this.controls.showPlaying(playing);
  }

  /**
   * Asks in the caption's place, so that nothing moves.
   *
   * @param {Parameters<QuestionPanel["ask"]>} asked
   */
  ask(...asked) {
    this.caption.hidden = true;
    this.questions.ask(...asked);
  }

  closeQuestion() {
    if (this.questions.hasFocus) this.root.focus();
    this.questions.close();
    this.caption.hidden = false;
  }

  /** Draws the canvases anew: their colours don't follow the theme by themselves. */
  repaint() {
    this.timeline.drawSoon();
    for (const view of this.views) if (view instanceof DenseView) view.repaintSoon();
  }

  remove() {
    this.watcher.disconnect();
    window.removeEventListener("resize", this.#fit);
    this.timeline.remove();
    for (const view of this.views) view.remove();
  }
}

/**
 * How high the window is in which the player scrolls.
 *
 * @param {HTMLElement} root
 */
function roomAround(root) {
  // an output of Jupyter's may scroll by itself, as high as what it holds
  const outer = root.closest(".jp-Cell") ?? root;
  for (let box = outer.parentElement; box && box !== document.body; box = box.parentElement) {
    if (/auto|scroll/.test(getComputedStyle(box).overflowY) && box.clientHeight > 200) {
      return Math.min(box.clientHeight, window.innerHeight);
    }
  }
  return window.innerHeight;
}
