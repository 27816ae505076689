// The student's function beside the picture, with the line of the message that is on its way marked.

import { html } from "../common/dom.js";

/** @typedef {import("./data.js").Code} Code */
/** @typedef {import("./data.js").Transfer} Transfer */
/** @typedef {import("./playback.js").Playback} Playback */

const AROUND = 2;

export class CodePanel {
  #head = html("h4", {});
  #body = html("tbody", {});
  /** The lines as they are shown. */
  #shown = "";

  /**
   * @param {Code} code
   * @param {() => void} onStop sets a breakpoint at what is shown, or takes it away
   */
  constructor(code, onStop) {
    this.code = code;
    this.stop = html("button", { type: "button", class: "ar-as-link", onclick: onStop }, "Stop here");
    const table = html("table", {}, this.#body);
    const box = html(
      "div",
      { class: "ar-code-lines", tabindex: "0", role: "region", "aria-label": "Your code" },
      table,
    );
    this.root = html("div", { class: "ar-code" }, html("div", { class: "ar-row" }, this.#head, this.stop), box);
  }

  /**
   * Marks the lines of what goes on.
   *
   * @param {Playback} playback
   * @param {Transfer | null} picked
   */
  show(playback, picked) {
    const marked = linesOf(playback, picked).filter((line) => this.#has(line));
    const shown = String(marked);
    if (shown === this.#shown && this.#body.childElementCount) return;
    this.#shown = shown;
    const { first, shown: number, lines } = this.code;
    const name = (/** @type {number} */ line) => line - first + number;
    this.#head.textContent = marked.length ? `Your line ${marked.map(name).join(" and ")}` : "Your code";
    const middle = marked.length ? marked[0] - first : 0;
    const from = Math.max(0, Math.min(middle - AROUND, lines.length - 2 * AROUND - 1));
    const rows = lines.slice(from, from + 2 * AROUND + 1).map((text, i) => {
      const line = first + from + i;
      const cells = [html("td", {}, String(name(line))), html("td", {}, text)];
      return html("tr", marked.includes(line) ? { class: "ar-marked", "aria-current": "true" } : {}, ...cells);
    });
    this.#body.replaceChildren(...rows);
  }

  /** @param {number} line */
  #has(line) {
    return line >= this.code.first && line < this.code.first + this.code.lines.length;
  }

  /** @param {boolean} set whether playing stops at what is shown */
  showStop(set) {
    this.stop.setAttribute("aria-pressed", String(set));
    this.stop.textContent = set ? "Don't stop here" : "Stop here";
  }
}

/**
 * The lines of the message that was picked, or of all that goes on in the step.
 *
 * @param {Playback} playback
 * @param {Transfer | null} picked
 */
export function linesOf(playback, picked) {
  const moves = picked ? [picked] : (playback.byStep[playback.current - 1] ?? []);
  const bars = picked ? [] : playback.barsNow().filter((bar) => bar.step === playback.current - 1 && bar.line);
  const waits = picked || moves.length || bars.length ? [] : playback.waits();
  const found = [...moves, ...bars, ...waits].flatMap(({ line }) => (line ? [line] : []));
  return [...new Set(found)].sort((a, b) => a - b);
}
