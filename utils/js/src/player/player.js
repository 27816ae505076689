// The player: one clock for one or two animations. The kernel hears of it only when it starts, pauses or steps.

import { KernelLink } from "./kernel.js";
import { onKeys } from "./keys.js";
import { Page } from "./page.js";
import { longestOf, Playback } from "./playback.js";
import { questionAbout } from "./quiz.js";
import { moveOf, Stops } from "./stops.js";
import { Ticker } from "./ticker.js";

/** @typedef {import("./data.js").Axis} Axis */

// positions in steps closer than this are the same
const EPSILON = 1e-6;
const THEME_ATTRIBUTES = ["data-jp-theme-name", "data-jp-theme-light", "data-theme", "class"];

export class Player {
  /** In steps of the animation that lasts longest. */
  position = 0;
  playing = false;
  /** @type {Axis} */
  axis = "step";
  /** Where playing stops, in steps. */
  #stopAt = 0;
  /** Whether it plays for a step only. */
  #stepping = false;
  /** How far it has been shown, on the axis in use: a question covers what comes after. */
  #seen = 0;
  /** @type {Set<number>} steps about which the quiz has asked */
  #asked = new Set();
  #repaint = () => this.page.repaint();

  /**
   * @param {import("./data.js").Model} model
   * @param {HTMLElement} el where it is put
   * @param {import("./data.js").AnimationData[]} animations
   */
  constructor(model, el, animations) {
    this.model = model;
    this.playbacks = animations.map((animation) => new Playback(animation));
    this.#useAxis(model.get("axis"));
    const actions = {
      toggle: () => this.toggle(),
      first: () => this.jump(0),
      back: () => this.back(),
      next: () => this.next(),
      last: () => this.jump(this.steps),
    };
    this.stops = new Stops(this.playbacks);
    const scrubbing = {
      seek: (/** @type {number} */ value) => {
        this.pause();
        this.seek(this.#longest.positionAt(value));
      },
      pick: this.#pick.bind(this),
      rest: () => this.#rest(),
      stop: (/** @type {import("./stops.js").Stop} */ stop) => this.#toggleStop(stop),
    };
    const stopHere = () => this.#toggleStop(this.page.stopHere);
    this.page = new Page(model, this.playbacks, actions, scrubbing, this.stops, stopHere);
    const { root } = this.page;
    this.ticker = new Ticker(
      () => root.isConnected,
      () => model.get("speed"),
      (seconds) => this.#onFrame(seconds),
      () => this.#onStep(),
    );
    this.kernel = new KernelLink(model, this);
    el.append(root);
    this.seek(model.get("step"));
    onKeys(root, actions, (rank) => this.#toggleStop({ ...this.page.stopHere, ...(rank === null ? {} : { rank }) }));
    root.dataset.playing = "false";
    this.kernel.listen();
    this.themeObserver = new MutationObserver(this.#repaint);
    this.themeObserver.observe(document.body, { attributes: true, attributeFilter: THEME_ATTRIBUTES });
    this.dark = window.matchMedia("(prefers-color-scheme: dark)");
    this.dark.addEventListener("change", this.#repaint);
    if (model.get("bare")?.loop && this.ticker.calm) this.seek(Math.floor(this.steps / 2) + 0.5);
    else if (model.get("playing")) {
      this.play();
      this.kernel.tell();
    }
    this.#openAtWrongMove();
    root.dataset.ready = "true";
  }

  get #longest() {
    return longestOf(this.playbacks);
  }

  get steps() {
    return this.#longest.steps;
  }

  /** How many whole steps are over. */
  get done() {
    return Math.floor(this.position + EPSILON);
  }

  get #atEnd() {
    return this.position >= this.steps - EPSILON;
  }

  /** @param {Axis} axis */
  #useAxis(axis) {
    this.axis = axis === "time" && this.playbacks.every((playback) => playback.times) ? "time" : "step";
    for (const playback of this.playbacks) playback.useAxis(this.axis);
  }

  /**
   * Shows a moment.
   *
   * @param {number} position in steps of the animation that lasts longest
   */
  seek(position) {
    this.position = Math.min(this.steps, Math.max(0, position));
    const value = this.#longest.clockAt(this.position);
    const inTime = this.axis === "time";
    this.#seen = Math.max(this.#seen, value);
    this.page.cover(this.model.get("quiz") ? this.#seen : null);
    this.page.draw({
      landed: this.playbacks.map((playback) =>
        playback.seek(inTime ? playback.positionAt(value) : Math.min(this.position, playback.steps)),
      ),
      step: Math.max(0, Math.ceil(this.position - EPSILON)),
      steps: this.steps,
      calm: this.ticker.calm,
    });
    this.page.root.dataset.step = String(this.done);
    this.page.root.dataset.position = this.position.toFixed(3);
  }

  // Tells the reader and the kernel where we are; only when it stands still.
  #rest(first = "") {
    this.page.announce(first);
    this.page.fillTable();
    this.kernel.tell();
  }

  toggle() {
    if (this.playing) {
      this.pause();
      this.#rest();
    } else {
      this.play();
      this.kernel.tell();
    }
  }

  /** @param {number | null} stopAt null: at the next breakpoint, or at the end */
  play(stopAt = null) {
    if (this.#atEnd) this.seek(0);
    this.#stopAt = stopAt ?? this.stops.after(this.position, this.#longest) ?? this.steps;
    this.page.pick(null);
    if (this.#askFirst()) return;
    this.#setPlaying(true);
    this.ticker.start();
  }

  /** @param {number} seconds at speed 1 */
  #onFrame(seconds) {
    const before = this.done;
    let to = this.#positionAfter(seconds);
    if (this.model.get("quiz") && Math.floor(to) > before) to = Math.floor(to);
    this.seek(Math.min(to, this.#stopAt));
    return !this.#stopIfDue() && !(this.done > before && this.#askFirst());
  }

  /** @param {number} seconds at speed 1 */
  #positionAfter(seconds) {
    const longest = this.#longest;
    // a step lasts a second, less where there are many
    const secondsPerStep = Math.max(0.12, Math.min(1, 30 / Math.max(1, this.steps)));
    const steps = seconds / secondsPerStep;
    if (this.axis !== "time") return this.position + steps;
    const value = longest.clockAt(this.position) + (steps * longest.length) / this.steps;
    return value >= longest.length ? this.steps : longest.positionAt(value);
  }

  // Reduced motion: whole steps, no movement between them.
  #onStep() {
    this.seek(Math.min(this.#stopAt, this.done + 1));
    this.page.announce();
    return !this.#stopIfDue() && !this.#askFirst();
  }

  #stopIfDue() {
    if (this.position < this.#stopAt - EPSILON) return false;
    const stop = this.#stepping ? undefined : this.stops.at(this.position, this.#longest);
    this.pause();
    if (stop) this.#showStop(stop);
    else if (this.model.get("bare")?.loop && !this.ticker.calm) this.#again();
    else this.#rest();
    return true;
  }

  // Shows the end for a moment, then begins anew, unless the reader has done something else.
  #again() {
    this.#setPlaying(true);
    setTimeout(() => this.playing && this.#atEnd && this.page.root.isConnected && this.play(), 1500);
  }

  // Playing has come to a breakpoint: the message of that rank is picked.
  #showStop(/** @type {import("./stops.js").Stop} */ stop) {
    const move = moveOf(this.playbacks[stop.half], stop.rank, stop.step);
    this.page.pick(move ?? null);
    this.seek(this.position);
    this.#rest(`Stopped at rank ${stop.rank}, step ${stop.step + 1}. `);
  }

  // Sets a breakpoint, or takes it away.
  #toggleStop(/** @type {import("./stops.js").Stop} */ stop) {
    if (!this.stops.toggle(stop)) return;
    if (this.playing && !this.#stepping) this.#stopAt = this.stops.after(this.position, this.#longest) ?? this.steps;
    this.page.showStops();
    const words = this.stops.has(stop) ? "Playing stops" : "Playing no longer stops";
    this.page.announce(`${words} at rank ${stop.rank}, step ${stop.step + 1}. `);
    this.page.root.dataset.stops = this.stops.all.map(({ rank, step }) => `${rank}:${step}`).join(" ");
  }

  pause() {
    this.ticker.stop();
    this.#setPlaying(false);
    this.page.closeQuestion();
  }

  /** @param {boolean} playing */
  #setPlaying(playing) {
    this.playing = playing;
    this.#stepping = false;
    this.page.showPlaying(playing);
  }

  next() {
    if (this.#atEnd) return;
    // a second press in the midst of a step ends that step and begins the one after it
    if (this.playing && this.#stepping && this.done < this.#stopAt) this.seek(this.#stopAt);
    if (this.playing) this.pause();
    if (this.#atEnd) {
      this.#rest();
      return;
    }
    const to = this.done + 1;
    if (!this.ticker.calm) {
      this.play(to);
      this.#stepping = this.playing;
      return;
    }
    this.#stopAt = to;
    if (this.#askFirst()) return;
    this.seek(to);
    this.#rest();
  }

  // A run that went wrong opens where it did.
  #openAtWrongMove() {
    const [playback] = this.playbacks;
    if (!playback.wrong || this.position || this.playing || this.model.get("quiz")) return;
    const transfer = playback.transfers[playback.wrong[0]];
    this.page.pick(transfer);
    const [from, to] = playback.span(transfer);
    this.seek(this.axis === "time" ? this.#longest.positionAt((from + to) / 2) : from + 0.5);
  }

  /**
   * Shows a message on its way, chosen in the timeline.
   *
   * @param {Playback} playback
   * @param {import("./data.js").Transfer} transfer
   * @param {number} value on the axis in use
   */
  #pick(playback, transfer, value) {
    this.pause();
    this.page.pick(transfer);
    const [from] = playback.span(transfer);
    this.seek(this.#longest.positionAt(this.axis === "time" ? value : from + 0.5));
    this.#rest();
  }

  back() {
    this.jump(Math.max(0, Math.ceil(this.position - EPSILON) - 1));
  }

  /**
   * @param {number} position
   * @param {boolean} thenPlay
   */
  jump(position, thenPlay = false) {
    this.pause();
    this.page.pick(null);
    this.seek(position);
    if (thenPlay) this.play();
    this.#rest();
  }

  // Stops before a step that has not been predicted yet; true when it asks.
  #askFirst() {
    const step = this.done;
    if (!this.model.get("quiz") || this.position - step > EPSILON || this.#asked.has(step)) return false;
    // of the first animation, which on a shared clock may be in another step
    const [playback] = this.playbacks;
    const question = questionAbout(playback, playback.done);
    this.#asked.add(step);
    if (!question) return false;
    const stopAt = this.#stopAt;
    this.pause();
    this.#rest();
    const onAnswer = (/** @type {import("./quiz.js").Option} */ { text, right }) => {
      const answer = { step, question: question.text, answer: text, right };
      this.model.set("answers", [...this.model.get("answers"), answer]);
      this.model.save_changes();
    };
    this.page.ask(question, onAnswer, () => {
      this.page.closeQuestion();
      this.page.root.focus();
      this.play(stopAt);
    });
    return true;
  }

  /** Follows the model's `quiz`. */
  changeQuiz() {
    const on = this.model.get("quiz");
    this.page.controls.showQuiz(on);
    this.#asked.clear();
    this.#seen = 0;
    if (!on) this.page.closeQuestion();
    this.seek(this.position);
  }

  /** Follows the model's `arrangement`. */
  changeLayout() {
    this.page.changeLayout();
    this.seek(this.position);
  }

  /** Follows the model's `axis`. */
  changeAxis() {
    const step = this.done;
    this.pause();
    this.#useAxis(this.model.get("axis"));
    this.#seen = 0;
    this.page.changeAxis();
    this.seek(step);
    this.#rest();
  }

  remove() {
    this.pause();
    this.kernel.remove();
    this.themeObserver.disconnect();
    this.dark.removeEventListener("change", this.#repaint);
    this.page.remove();
  }
}
