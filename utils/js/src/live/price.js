// The calculator: a form for each of the commands that compute, run as the command that the page shows.

import { commandLine } from "./cut.js";
import { Desk, part } from "./page.js";

const desk = new Desk();
const which = part("which", HTMLSelectElement);

/** The fields of the form that is shown. */
const fields = () => /** @type {HTMLElement} */ (document.querySelector(`[data-command="${which.value}"]`));

/** What the fields say, as arguments: those that differ from the default. */
function words() {
  const said = which.value.split(" ");
  for (const field of /** @type {NodeListOf<HTMLInputElement>} */ (fields().querySelectorAll("[data-option]"))) {
    const option = /** @type {string} */ (field.dataset.option);
    if (field.type === "checkbox") {
      if (field.checked) said.push(option);
    } else if (field.value.trim() && field.value.trim() !== field.dataset.default)
      said.push(option, field.value.trim());
  }
  return said;
}

function show() {
  for (const group of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-command]")))
    group.hidden = group.dataset.command !== which.value;
  part("command").textContent = commandLine(["allranks", ...words()]);
}

which.addEventListener("change", show);
part("form").addEventListener("input", show);
part("form").addEventListener("submit", (event) => {
  event.preventDefault();
  show();
  desk.ask("command", { arguments: words() });
});
show();
document.body.dataset.ready = "";
await desk.warm();
