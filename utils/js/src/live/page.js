// What all live pages share: the progress of loading, the buttons, the result, what was printed, the player.

import { megabytes } from "./cut.js";
import { worksOffline } from "./offline.js";
import { bytes, data, part } from "./parts.js";
import { shown } from "./play.js";
import { Broken, Python, Stopped } from "./python.js";

const LIMIT_S = 60;

export { data, part };

const places = /** @type {import("./python.js").Places} */ (data("places"));

/** @type {(() => void) | undefined} */
let leave;

/**
 * Shows the course's player, in place of the one before.
 *
 * @param {import("./python.js").Answer} answer
 */
export async function play(answer) {
  const stage = part("stage");
  leave?.();
  leave = undefined;
  stage.replaceChildren();
  if (answer.unplayed) stage.append(Object.assign(document.createElement("p"), { textContent: answer.unplayed }));
  if (!answer.player) return;
  const { axis, animation } = answer.player;
  const address = new URL(`${places.build}playback.js`, location.href).href;
  leave = await shown(stage, address, { axis, animation: bytes(animation) });
}

/** Runs what the page asks of Python, and shows the answer. */
export class Desk {
  #busy = false;
  #asked = false;

  constructor() {
    this.python = new Python(places, {
      loading: (share, nbytes) => this.#loading(share, nbytes),
      printed: (text) => this.#printed(text),
    });
    part("stop").addEventListener("click", () => this.python.stop("You stopped it."));
  }

  /** Whether a question is open. */
  get busy() {
    return this.#busy;
  }

  /** @param {number} share @param {number} nbytes */
  #loading(share, nbytes) {
    if (document.body.dataset.python === "failed") return; // a file that was still on its way
    const bar = part("bar", HTMLProgressElement);
    bar.hidden = share >= 1;
    bar.value = share;
    this.say(share < 1 ? `Loading Python: ${megabytes(nbytes)}` : "Starting Python …");
  }

  /** @param {string} text */
  #printed(text) {
    const box = part("printed");
    box.hidden = false;
    const lines = box.querySelector("pre");
    if (lines) lines.textContent += `${text}\n`;
  }

  /** @param {string} text for all readers, also those who listen */
  say(text) {
    part("status").textContent = text;
  }

  /** Loads Python once the page has been painted, so that the first question is answered at once. */
  async warm() {
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    const offline = worksOffline();
    try {
      await this.python.start();
      document.body.dataset.python = "ready";
      if (!this.#busy) this.say("Python is ready.");
      document.body.dataset.offline = (await offline) ? "yes" : "no";
      if ((await offline) && !this.#busy && !this.#asked)
        this.say("Python is ready. These pages now open without a network, too.");
    } catch (error) {
      part("bar", HTMLProgressElement).hidden = true;
      this.say(`Python could not be loaded: ${/** @type {Error} */ (error).message}. Reload the page to try again.`);
      document.body.dataset.python = "failed";
    }
  }

  /**
   * Asks, with the buttons and the result kept up to date; undefined while another question is open.
   *
   * @param {string} name @param {object} request @param {{files?: File[]}} [options]
   */
  async ask(name, request, options = {}) {
    if (this.#busy) return undefined;
    this.#busy = true;
    this.#asked = true;
    const [result, stop, printed] = [part("result"), part("stop", HTMLButtonElement), part("printed")];
    const runs = /** @type {NodeListOf<HTMLButtonElement>} */ (document.querySelectorAll("[data-run]"));
    for (const run of runs) run.disabled = true;
    stop.disabled = false;
    printed.hidden = true;
    printed.querySelector("pre")?.replaceChildren();
    this.say("Running …");
    document.body.dataset.run = "busy";
    const began = performance.now();
    try {
      const answer = await this.python.ask(name, request, { limit_s: LIMIT_S, ...options });
      result.innerHTML = answer.html ?? "";
      await play(answer);
      const seconds = ((performance.now() - began) / 1000).toFixed(1);
      this.say(answer.fault ? "Something is wrong; the result says what." : `Done in ${seconds} s, in your browser.`);
      return answer;
    } catch (error) {
      if (!(error instanceof Stopped || error instanceof Broken)) throw error;
      const words = error instanceof Stopped ? error.message : `Python ended: ${error.message}`;
      const line = Object.assign(document.createElement("p"), { className: "verdict wrong", textContent: words });
      line.setAttribute("role", "alert");
      result.replaceChildren(line);
      await play({});
      this.say("Python was stopped, and starts anew.");
      this.python.start().then(
        () => this.say("Python is ready again."),
        () => this.say("Python could not be started again; reload the page."),
      );
      return undefined;
    } finally {
      this.#busy = false;
      for (const run of runs) run.disabled = false;
      stop.disabled = true;
      document.body.dataset.run = "";
    }
  }
}
