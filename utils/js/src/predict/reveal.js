// The card that reveals: folded until its question is answered or declined.

import { html } from "../common/dom.js";
import { Cover } from "./cover.js";
import { pictureOf } from "./pictures.js";
import { answered } from "./types.js";
import { isRight, marked, plain, saidInWords } from "./words.js";

/** @typedef {import("./types.js").Said} Said */

export class Reveal {
  /**
   * @param {import("./types.js").Model} model
   * @param {HTMLElement} el
   * @param {import("./answers.js").Answers} answers
   */
  constructor(model, el, answers) {
    this.model = model;
    this.answers = answers;
    this.asked = model.get("asked");
    this.root = html("section", { class: "ar-predict ar-theme", "data-lm-suppress-shortcuts": "true" });
    this.root.dataset.predict = "reveal";
    this.root.dataset.name = this.asked.name;
    this.root.setAttribute("aria-label", "what you said, and what it was");
    this.root.addEventListener("keydown", (event) => event.stopPropagation());
    this.body = html("div", { "aria-live": "polite" });
    this.root.append(html("p", { class: "ar-predict-question" }, ...marked(this.asked.title)), this.body);
    el.append(this.root);
    // in a live notebook the reader ran the cells; on a page they were run before
    this.cover = model.widget_manager ? null : new Cover(this.root);
    /** the answer that is on the card */
    this.drawn = "";
    this.draw();
  }

  /** @returns {Said} */
  said() {
    const kept = this.answers.get(this.asked.name);
    return kept !== undefined && answered(kept) ? kept : this.model.get("said");
  }

  draw() {
    const said = this.said();
    const open = answered(said);
    this.cover?.set(!open);
    const state = JSON.stringify([said, this.model.get("class_said")]);
    if (state === this.drawn) return;
    this.drawn = state;
    this.root.dataset.state = open ? "open" : "folded";
    this.body.replaceChildren(...(open ? this.#shown(said) : this.#folded()));
  }

  #folded() {
    const see = () => {
      this.answers.put(this.asked.name, { declined: true });
      this.root.querySelector("button")?.focus();
    };
    return [
      html("p", { class: "ar-predict-said" }, html("span", { class: "ar-nothing" }, "you didn't say")),
      html(
        "div",
        { class: "ar-predict-foot" },
        html("button", { class: "ar-predict-lock", type: "button", onclick: see }, "Show me"),
        html("span", { class: "ar-predict-hint" }, "or answer the question above first  ↑"),
      ),
    ];
  }

  /** @param {Said} said */
  #shown(said) {
    const truth = this.model.get("truth");
    const { value } = said;
    const parts = [];
    if (value !== undefined) {
      const right = isRight(truth, value);
      const verdict = html("p", { class: "ar-predict-verdict" }, right ? "Right." : "Not quite.");
      verdict.dataset.right = String(right);
      parts.push(verdict);
    }
    const mine =
      value === undefined
        ? html("span", { class: "ar-nothing" }, "you didn't say")
        : html("span", { class: "ar-you" }, "you said ", ...marked(saidInWords(this.asked, said)));
    parts.push(
      html("p", { class: "ar-predict-said" }, mine, html("strong", {}, ...this.#it(truth.it))),
      pictureOf(this.asked, said, truth),
    );
    if (truth.why) parts.push(html("p", { class: "ar-predict-why" }, ...marked(truth.why)));
    const heard = this.model.get("class_said");
    // only a workshop's board knows it
    if (heard?.bars?.length) parts.push(classSaid(this.asked, said, heard));
    return parts;
  }

  /** @param {string} it */
  #it(it) {
    if (this.asked.kind === "sketch") return marked(it);
    // an option may be a sentence of its own: "they wait for ever"
    return [this.asked.kind === "choice" ? "it was: " : "it was ", ...marked(it)];
  }
}

/**
 * A bar for each answer of the class; the reader's own is yellow.
 *
 * @param {import("./types.js").Asked} asked
 * @param {Said} said
 * @param {import("./types.js").ClassSaid} heard
 */
function classSaid(asked, said, { answers, bars }) {
  const mine = said.declined ? "" : plain(saidInWords({ ...asked, unit: "" }, said));
  const most = Math.max(...bars.map(([, count]) => count));
  const rows = bars.map(([words, count]) => {
    const bar = html("i", { style: `width:${((100 * count) / most).toFixed(1)}%` });
    return html("li", { class: words === mine ? "ar-you" : "" }, html("span", {}, words), bar, String(count));
  });
  const lead = html("strong", {}, `The class said (${answers} ${answers === 1 ? "answer" : "answers"}):`);
  return html("div", { class: "ar-predict-class" }, lead, html("ul", {}, ...rows));
}
