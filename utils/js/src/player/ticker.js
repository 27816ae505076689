// What drives the player while it plays: frame by frame, or step by step where the user wants no motion.

export class Ticker {
  #playing = false;
  #frameRequest = 0;
  #timer = 0;
  /** @type {number | null} when the last frame was drawn, in ms; null: playing has just begun */
  #lastFrame = null;

  /**
   * @param {() => boolean} onPage whether the player is on the page; while it is not, time stands still
   * @param {() => number} speed
   * @param {(seconds: number) => boolean} onFrame moves on by so many seconds at speed 1; returns whether to go on
   * @param {() => boolean} onStep moves on by a whole step; returns whether to go on
   */
  constructor(onPage, speed, onFrame, onStep) {
    this.onPage = onPage;
    this.speed = speed;
    this.onFrame = onFrame;
    this.onStep = onStep;
    this.reducedMotion = window.matchMedia("(prefers-reduced-motion: reduce)");
  }

  /** Whether only whole steps are to be shown. */
  get calm() {
    return this.reducedMotion.matches;
  }

  start() {
    this.#playing = true;
    this.#lastFrame = null;
    if (this.calm) this.#stepIn(600 / this.speed());
    else this.#nextFrame();
  }

  stop() {
    this.#playing = false;
    cancelAnimationFrame(this.#frameRequest);
    clearTimeout(this.#timer);
  }

  #nextFrame() {
    this.#frameRequest = requestAnimationFrame((now) => this.#frame(now));
  }

  /** @param {number} now in ms */
  #frame(now) {
    if (!this.#playing) return;
    if (!this.onPage()) {
      this.#lastFrame = null;
      this.#nextFrame();
      return;
    }
    // a tab in the background gets no frames: it then goes on where it was
    const seconds = this.#lastFrame === null ? 0 : Math.min(0.1, (now - this.#lastFrame) / 1000);
    this.#lastFrame = now;
    if (this.onFrame(seconds * this.speed())) this.#nextFrame();
  }

  /** @param {number} ms */
  #stepIn(ms) {
    this.#timer = window.setTimeout(() => this.#step(), ms);
  }

  #step() {
    if (!this.#playing) return;
    if (!this.onPage()) this.#stepIn(600);
    else if (this.onStep()) this.#stepIn(1200 / this.speed());
  }
}
