// The chapter's last card: each question, what was said, what it was.

import { html } from "../common/dom.js";
import { answered } from "./types.js";
import { marked, saidInWords } from "./words.js";

export class List {
  /**
   * @param {import("./types.js").Model} model
   * @param {HTMLElement} el
   * @param {import("./answers.js").Answers} answers
   */
  constructor(model, el, answers) {
    this.model = model;
    this.answers = answers;
    this.root = html("section", { class: "ar-predict ar-theme", "data-lm-suppress-shortcuts": "true" });
    this.root.dataset.predict = "list";
    this.root.setAttribute("aria-label", "your predictions in this chapter");
    el.append(this.root);
    this.draw();
  }

  draw() {
    const rows = this.model.get("rows").map(({ asked, it }) => {
      const said = this.answers.get(asked.name) ?? {};
      const mine =
        said.value === undefined
          ? html("span", { class: "ar-nothing" }, "you didn't say")
          : html("span", { class: "ar-you" }, ...marked(saidInWords(asked, said)));
      // the truth of a question without an answer stays folded here too
      const truth = answered(said) && it ? marked(it) : ["not yet"];
      const shown = html("td", answered(said) && it ? { class: "ar-it" } : { class: "ar-nothing" }, ...truth);
      return html("tr", {}, html("th", { scope: "row" }, ...marked(asked.title)), html("td", {}, mine), shown);
    });
    const head = html("tr", {});
    for (const name of ["", "you said", "it was"]) head.append(html("th", { scope: "col" }, name));
    const again = () => this.answers.forget(this.model.get("rows").map(({ asked }) => asked.name));
    this.root.replaceChildren(
      html("p", { class: "ar-predict-question" }, "What you knew before"),
      html("table", {}, html("thead", {}, head), html("tbody", {}, ...rows)),
      html(
        "div",
        { class: "ar-predict-foot" },
        html("button", { class: "ar-predict-quiet", type: "button", onclick: again }, "take all answers back"),
      ),
    );
  }
}
