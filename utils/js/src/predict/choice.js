// Options to choose from: real radio buttons, so that the browser's own keys work.

import { html } from "../common/dom.js";
import { marked, plain } from "./words.js";

/**
 * @param {import("./types.js").Asked} asked
 * @param {() => void} onChange
 * @param {string | null} chosen
 * @returns {import("./types.js").Field}
 */
export function choiceField(asked, onChange, chosen) {
  const name = `ar-${crypto.getRandomValues(new Uint32Array(2)).join("-")}`;
  const inputs = asked.choices.map((value) =>
    html("input", { type: "radio", name, value, checked: value === chosen, onchange: onChange }),
  );
  const short = asked.choices.every((text) => plain(text).length <= 22);
  const root = html("div", { class: `ar-predict-choices${short ? " ar-two" : ""}`, role: "radiogroup" });
  root.setAttribute("aria-label", plain(asked.question));
  root.append(...inputs.map((input, i) => html("label", {}, input, html("span", {}, ...marked(asked.choices[i])))));
  return {
    root,
    hint: "choose one first",
    value: () => inputs.find((input) => input.checked)?.value ?? null,
    focus: () => (inputs.find((input) => input.checked) ?? inputs[0]).focus(),
  };
}
