// The widget's entry, as anywidget calls it: a question, the card that reveals, or the chapter's list.

import { html } from "../common/dom.js";
import { THEME } from "../common/theme.js";
import { Answers } from "./answers.js";
import { List } from "./list.js";
import STYLES from "./predict.css";
import { Question } from "./question.js";
import { Reveal } from "./reveal.js";

/**
 * Shows one of the three in `el`; returns what takes it away again.
 *
 * @param {{model: import("./types.js").Model, el: HTMLElement}} context
 */
function render({ model, el }) {
  const answers = new Answers(model);
  el.replaceChildren(html("style", {}, THEME + STYLES));
  if (model.get("view") === "question") {
    const question = new Question(model, el, answers);
    const hear = () => question.onKernel();
    model.on("change:said", hear);
    const stop = answers.listen(() => question.onAnswers());
    return () => {
      model.off("change:said", hear);
      stop();
    };
  }
  const card = model.get("view") === "reveal" ? new Reveal(model, el, answers) : new List(model, el, answers);
  const draw = () => card.draw();
  model.on("change:said", draw);
  model.on("change:rows", draw);
  model.on("change:class_said", draw);
  const stop = answers.listen(draw);
  return () => {
    model.off("change:said", draw);
    model.off("change:rows", draw);
    model.off("change:class_said", draw);
    stop();
  };
}

export default { render };
