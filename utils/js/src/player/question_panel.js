// The box in which the player asks what happens next.

import { html } from "../common/dom.js";

/** @typedef {import("./quiz.js").Question} Question */
/** @typedef {import("./quiz.js").Option} Option */

export class QuestionPanel {
  #right = 0;
  #asked = 0;

  constructor() {
    this.root = html("div", { class: "ar-question", role: "group", hidden: "" });
  }

  /**
   * Asks, and moves the focus to the first answer.
   *
   * @param {Question} question
   * @param {(option: Option) => void} onAnswer
   * @param {() => void} onShow when the user wants to see it
   */
  ask(question, onAnswer, onShow) {
    const result = html("p", { class: "ar-result", role: "status" });
    const buttons = question.options.map((option) =>
      html("button", { type: "button", class: "ar-option", onclick: () => answer(option) }, option.text),
    );
    const answer = (/** @type {Option} */ option) => {
      for (const [i, { right }] of question.options.entries()) {
        buttons[i].disabled = true;
        buttons[i].classList.toggle("ar-right", right);
        buttons[i].classList.toggle("ar-wrong", question.options[i] === option && !right);
      }
      this.#asked += 1;
      if (option.right) this.#right += 1;
      const score = `(${this.#right} of ${this.#asked} right)`;
      result.textContent = `${option.right ? "Right." : "Not quite."} ${question.why} ${score}`;
      // in the question's place, so that nothing below moves
      asked.hidden = true;
      onAnswer(option);
      const show = html("button", { type: "button", class: "ar-show", onclick: onShow }, "Show me");
      options.append(show);
      show.focus();
    };
    const asked = html("p", {}, question.text);
    const options = html("div", { class: "ar-options" }, ...buttons);
    this.root.replaceChildren(asked, result, options);
    this.root.setAttribute("aria-label", question.text);
    this.root.hidden = false;
    buttons[0].focus();
  }

  /** Whether the user's focus is in it. */
  get hasFocus() {
    return this.root.contains(document.activeElement);
  }

  close() {
    this.root.hidden = true;
    this.root.replaceChildren();
  }
}
