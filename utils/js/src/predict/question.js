// The card that asks: a field, "Lock in", and a way to decline.

import { html } from "../common/dom.js";
import { choiceField } from "./choice.js";
import { numberField } from "./number.js";
import { sketchField } from "./sketch.js";
import { answered } from "./types.js";
import { marked, plain, saidInWords } from "./words.js";

/** @typedef {import("./types.js").Said} Said */

const LOCK =
  '<svg viewBox="0 0 12 14" width="12" height="14" aria-hidden="true">' +
  '<path d="M3 6V4a3 3 0 0 1 6 0v2" fill="none" stroke="currentColor" stroke-width="1.8"/>' +
  '<rect x="1" y="6" width="10" height="7.5" rx="1.5" fill="currentColor"/></svg>';
const FIELDS = { choice: choiceField, number: numberField, sketch: sketchField };

export class Question {
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
    this.root.dataset.predict = "question";
    this.root.dataset.name = this.asked.name;
    this.root.setAttribute("aria-label", "prediction");
    // arrow keys move in here, and nowhere else: Jupyter would go to the next cell
    this.root.addEventListener("keydown", (event) => event.stopPropagation());
    this.heading = html("p", { class: "ar-predict-question" }, ...marked(this.asked.question));
    this.body = html("div", {});
    this.foot = html("div", { class: "ar-predict-foot" });
    this.live = html("div", { class: "ar-predict-live", "aria-live": "polite" });
    this.root.append(this.heading, this.body, this.foot, this.live);
    el.append(this.root);
    this.begin();
  }

  /** What the notebook or the kernel knows already; where both do, the kernel was told last. */
  begin() {
    const own = this.model.get("said");
    const kept = this.answers.get(this.asked.name);
    if (answered(own)) this.answers.put(this.asked.name, own);
    else if (kept !== undefined && answered(kept)) this.#tellKernel(kept);
    this.draw();
    this.answers.tell();
  }

  /** The kernel answered: `lock_in` in a cell. */
  onKernel() {
    const said = this.model.get("said");
    this.answers.put(this.asked.name, said);
    this.draw();
  }

  /** Another card changed something: "show me", or "start over". */
  onAnswers() {
    const kept = this.answers.get(this.asked.name) ?? {};
    if (JSON.stringify(kept) === JSON.stringify(this.model.get("said"))) return;
    this.#tellKernel(kept);
    this.draw();
  }

  /** @param {Said} said */
  #tellKernel(said) {
    this.model.set("said", said);
    this.model.save_changes();
  }

  /**
   * @param {Said} said
   * @param {string} words for a screen reader
   */
  #say(said, words) {
    this.#tellKernel(said);
    this.answers.put(this.asked.name, said);
    this.draw();
    this.live.textContent = words;
    // in JupyterLab to the cell below: Shift+Enter runs it then, and does not press "change", which takes it back
    const below = this.root.closest(".jp-Notebook .jp-Cell")?.nextElementSibling;
    const next = below ?? this.root.closest(".jp-Notebook") ?? this.foot.querySelector("button");
    if (answered(said) && next instanceof HTMLElement) next.focus({ preventScroll: true });
    else this.field?.focus();
  }

  draw() {
    const said = this.model.get("said");
    this.root.dataset.state = said.declined ? "declined" : answered(said) ? "locked" : "open";
    const make = FIELDS[this.asked.kind];
    const field = make(this.asked, () => this.#changed(), /** @type {any} */ (said.value ?? null));
    this.field = field;
    field.root.inert = answered(said);
    this.body.replaceChildren(field.root);
    this.foot.replaceChildren(...(answered(said) ? this.#closed(said) : this.#open(field)));
  }

  #changed() {
    const ready = this.field?.value() !== null;
    if (this.lock) this.lock.disabled = !ready;
    if (this.hint) this.hint.hidden = ready;
  }

  /** @param {import("./types.js").Field} field */
  #open(field) {
    this.lock = html("button", { class: "ar-predict-lock", type: "button", onclick: () => this.#lockIn() }, "Lock in");
    this.lock.disabled = field.value() === null;
    this.hint = html("span", { class: "ar-predict-hint" }, field.hint);
    const decline = () => this.#say({ declined: true }, "Not answered. Now run the cell below.");
    return [
      this.lock,
      this.hint,
      html("button", { class: "ar-predict-quiet", type: "button", onclick: decline }, "show me"),
    ];
  }

  #lockIn() {
    const value = this.field?.value() ?? null;
    if (value === null) return;
    const words = plain(saidInWords(this.asked, { value }));
    this.#say({ value }, `Locked in: ${words}. Now run the cell below.`);
  }

  /** @param {Said} said */
  #closed(said) {
    const locked = html("strong", {});
    if (said.declined) locked.append("Not answered");
    else {
      locked.innerHTML = LOCK;
      locked.append("Locked in");
    }
    // without a kernel nothing is to be run
    const where = this.model.widget_manager ? "now run the cell below" : "now see below";
    const change = () => this.#say({}, "You can answer again.");
    return [
      locked,
      html("span", { class: "ar-predict-hint" }, `${where}  ↓`),
      html(
        "button",
        { class: "ar-predict-quiet", type: "button", onclick: change },
        said.declined ? "answer" : "change",
      ),
    ];
  }
}
