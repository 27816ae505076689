// While a cell runs, and a moment more, the top of its output is kept in the window, unless the reader scrolls, clicks
// or types. By itself JupyterLab keeps the next cell in the middle, and pushes a tall output's top out of the window.

import { html } from "../common/dom.js";
import { distanceTo } from "./place.js";

// widgets and pictures are laid out after their cell has ended
const SETTLED_MS = 1500;
// a cell that has shown nothing for so long, or nothing new, says that it runs
const SILENT_MS = 400;
const NOTHING_NEW_MS = 2000;
const GESTURES = ["wheel", "touchmove", "keydown", "pointerdown"];
const OUTPUT = ".jp-Cell-outputArea";
const LOOK = [
  "padding:4px 0 4px calc(var(--jp-cell-prompt-width) + 24px)",
  "font:13px var(--jp-ui-font-family)",
  "color:var(--jp-ui-font-color2)",
].join(";");

/** One run of one cell. */
export class Follower {
  #end = new AbortController();
  #resized = new ResizeObserver(() => this.#moved());
  #filled = new MutationObserver((changes) => this.#changed(changes));
  #began = performance.now();
  #running = true;
  #settled = 0;
  #clock = 0;
  #note = html("div", { class: "ar-still-running", role: "status", style: LOOK });
  /** @type {Element | undefined} what the cell has shown */
  #area;

  /** Looks at the reader's cell and at the one before it: with Shift+Enter the reader has gone on to the next one. */
  constructor() {
    for (const cell of readersCells()) {
      const area = cell.querySelector(OUTPUT);
      if (!area) continue;
      this.#filled.observe(area, { childList: true, subtree: true, characterData: true });
      this.#resized.observe(area);
      const page = cell.closest(".jp-WindowedPanel-inner");
      if (page) this.#resized.observe(page);
    }
    const options = { capture: true, passive: true, signal: this.#end.signal };
    window.addEventListener("scroll", () => this.#show(), options);
    for (const gesture of GESTURES) window.addEventListener(gesture, () => this.#leave(), options);
    this.#listen(SILENT_MS);
  }

  /** The cell has ended. One that was not seen to run is the first that has shown something. */
  ended() {
    const areas = readersCells().flatMap((cell) => [...cell.querySelectorAll(OUTPUT)]);
    this.#area ??= areas.find((area) => area.childElementCount);
    this.#running = false;
    this.#silence();
    this.#moved();
  }

  /** Takes everything away. */
  stop() {
    this.#silence();
    this.#leave();
  }

  /** Leaves the page to the reader. */
  #leave() {
    window.clearTimeout(this.#settled);
    this.#end.abort();
    this.#resized.disconnect();
  }

  /** @param {MutationRecord[]} changes */
  #changed(changes) {
    for (const { target } of changes) if (target instanceof Element && target.matches(OUTPUT)) this.#area = target;
    if (changes.some(({ target }) => this.#area?.contains(target))) this.#listen(NOTHING_NEW_MS);
    this.#moved();
  }

  #moved() {
    if (this.#end.signal.aborted) return;
    this.#show();
    if (this.#running) return;
    window.clearTimeout(this.#settled);
    this.#settled = window.setTimeout(() => this.#leave(), SETTLED_MS);
  }

  #show() {
    const area = this.#area;
    const scroller = area?.closest(".jp-WindowedPanel-outer");
    if (!area || !scroller || !readersCells().some((cell) => cell.contains(area))) return;
    const [box, view] = [area.getBoundingClientRect(), scroller.getBoundingClientRect()];
    const distance = box.height && distanceTo(box.top - view.top, box.height, view.height);
    if (Math.abs(distance) >= 1) scroller.scrollTop += distance;
  }

  /** @param {number} patience ms, after which the cell says that it runs */
  #listen(patience) {
    window.clearTimeout(this.#clock);
    this.#note.remove();
    this.#clock = window.setTimeout(() => this.#sayThatItRuns(), patience);
  }

  /** Below the cell, and anew each second. */
  #sayThatItRuns() {
    const cell = this.#area?.closest(".jp-Cell") ?? runningCell();
    const seconds = Math.floor((performance.now() - this.#began) / 1000);
    this.#note.textContent = `running${seconds ? ` for ${seconds} s` : ""} … To stop it, interrupt the kernel (■).`;
    if (!this.#note.isConnected) cell?.querySelector(".jp-Cell-outputWrapper")?.after(this.#note);
    this.#clock = window.setTimeout(() => this.#sayThatItRuns(), 1000);
  }

  #silence() {
    window.clearTimeout(this.#clock);
    this.#filled.disconnect();
    this.#note.remove();
  }
}

/** That of the reader's cells that has a star, or else a folded one, whose prompt is not shown. */
function runningCell() {
  const code = readersCells().filter((cell) => cell.classList.contains("jp-CodeCell"));
  const prompt = (/** @type {Element} */ cell) => cell.querySelector(".jp-InputPrompt")?.textContent ?? "";
  return code.find((cell) => prompt(cell).includes("*")) ?? code.find((cell) => !prompt(cell).includes("]"));
}

/** The cell before the active one, and the active one, of the notebooks that are shown; nothing outside Jupyter. */
function readersCells() {
  const active = [...document.querySelectorAll(".jp-Notebook .jp-Cell.jp-mod-active")];
  return active
    .filter((cell) => cell.checkVisibility())
    .flatMap((cell) => [cell.previousElementSibling, cell])
    .filter((cell) => cell !== null);
}
