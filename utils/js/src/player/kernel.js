// What the player and the kernel tell each other through the widget's traits.

/** @typedef {import("./player.js").Player} Player */

export class KernelLink {
  /**
   * @param {import("./data.js").Model} model
   * @param {Player} player
   */
  constructor(model, player) {
    this.model = model;
    this.player = player;
    /** The step that the kernel knows. */
    this.knownStep = model.get("step");
    /** @type {Record<string, () => void>} */
    this.events = {
      // one update may both move and start it, or move and stop it
      "change:step": () => this.#onStep(),
      "change:playing": () => this.#onPlaying(),
      "change:arrangement": () => player.changeLayout(),
      "change:axis": () => player.changeAxis(),
      "change:quiz": () => player.changeQuiz(),
      "change:speed": () => player.page.controls.showSpeed(model.get("speed")),
    };
  }

  listen() {
    for (const [name, act] of Object.entries(this.events)) this.model.on(name, act);
  }

  /** Tells the kernel where the player is. */
  tell() {
    const { model, player } = this;
    this.knownStep = player.done;
    if (model.get("step") === player.done && model.get("playing") === player.playing) return;
    model.set("step", player.done);
    model.set("playing", player.playing);
    model.save_changes();
  }

  #onStep() {
    const { model, player } = this;
    this.knownStep = model.get("step");
    const start = model.get("playing") && !player.playing;
    if (this.knownStep !== player.done) player.jump(this.knownStep, start);
  }

  #onPlaying() {
    const { model, player } = this;
    const playing = model.get("playing");
    if (playing !== player.playing && (playing || this.knownStep === model.get("step"))) player.toggle();
  }

  remove() {
    for (const [name, act] of Object.entries(this.events)) this.model.off(name, act);
  }
}
