// On a page without a kernel the outputs stand there already: those between a question and the card that reveals,
// which give the answer away, are covered until it is answered.

import { html } from "../common/dom.js";

// what holds outputs: nbconvert's pages, the course's site, older templates
const OUTPUTS = ".jp-OutputArea-child, .cell_output > *, .output_area";
// the source of the cell that reveals says the answer too
const CELLS = ".jp-Cell, .cell";
const SOURCES = ".jp-Cell-inputWrapper, .cell_input, .input";

export class Cover {
  /** @param {HTMLElement} reveal its card */
  constructor(reveal) {
    this.reveal = reveal;
    /** @type {Map<HTMLElement, string>} */
    this.covered = new Map();
    /** @type {HTMLElement[]} */
    this.notes = [];
  }

  /** @param {boolean} on */
  set(on) {
    if (!on) this.#lift();
    else this.#lay();
  }

  #lift() {
    for (const [element, style] of this.covered) {
      element.setAttribute("style", style);
      element.inert = false;
    }
    for (const note of this.notes) note.remove();
    this.covered.clear();
    this.notes = [];
  }

  #lay() {
    if (!this.reveal.isConnected) return;
    for (const element of this.#between()) {
      if (this.covered.has(element)) continue;
      this.covered.set(element, element.getAttribute("style") ?? "");
      // it keeps its width: what draws itself to its width would find none
      element.style.cssText += ";visibility:hidden;height:0;min-height:0;overflow:hidden;margin:0;padding:0";
      element.inert = true;
      if (element.previousElementSibling?.classList.contains("ar-predict-cover")) continue;
      const note = html("p", { class: "ar-predict-cover" }, "covered until you answer the question above");
      element.before(note);
      this.notes.push(note);
    }
  }

  /** @returns {HTMLElement[]} */
  #between() {
    const same = `[data-predict=question][data-name="${CSS.escape(this.reveal.dataset.name ?? "")}"]`;
    const asks = [...document.querySelectorAll(same)].filter((ask) => follows(ask, this.reveal));
    const ask = asks[asks.length - 1];
    const own = this.reveal.closest(OUTPUTS)?.parentElement;
    const found = /** @type {HTMLElement[]} */ ([...document.querySelectorAll(OUTPUTS)]);
    /** @type {HTMLElement[]} */
    const source = [...(this.reveal.closest(CELLS)?.querySelectorAll(SOURCES) ?? [])].map(
      (part) => /** @type {any} */ (part),
    );
    const outputs = found.filter((element) => {
      if (element.querySelector("[data-predict]") || element.classList.contains("ar-predict-cover")) return false;
      // the reveal's own cell: what it printed before and after the card
      if (own?.contains(element)) return true;
      return ask !== undefined && follows(ask, element) && follows(element, this.reveal);
    });
    return [...source, ...outputs];
  }
}

/**
 * @param {Element} first
 * @param {Element} second
 */
function follows(first, second) {
  return (first.compareDocumentPosition(second) & Node.DOCUMENT_POSITION_FOLLOWING) !== 0;
}
