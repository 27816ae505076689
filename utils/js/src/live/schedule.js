// "Write a schedule": the program is run, proved, priced on a cluster and played.

import { Editor } from "./editor.js";
import { Desk, data, part, play } from "./page.js";

const desk = new Desk();
const form = part("form", HTMLFormElement);
const editor = new Editor(part("editor"), "Your program: schedule(task) returns a Schedule", run);
const examples = /** @type {Record<string, {source: string, collective: string}>} */ (data("examples"));

async function run() {
  const said = new FormData(form);
  editor.mark(null);
  const answer = await desk.ask("schedule", {
    source: editor.text,
    collective: said.get("collective"),
    ranks: Number(said.get("ranks")),
    nbytes: said.get("bytes"),
    machine: said.get("machine"),
    root: Number(said.get("root")),
  });
  editor.mark(answer?.fault?.line ?? null);
}

function rooted() {
  const { value } = /** @type {HTMLSelectElement} */ (form.elements.namedItem("collective"));
  part("root").hidden = !["broadcast", "reduce", "scatter", "gather"].includes(value);
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  run();
});
form.addEventListener("change", rooted);
part("example", HTMLSelectElement).addEventListener("change", (event) => {
  const chosen = examples[/** @type {HTMLSelectElement} */ (event.target).value];
  if (!chosen) return;
  editor.text = chosen.source;
  /** @type {HTMLSelectElement} */ (form.elements.namedItem("collective")).value = chosen.collective;
  rooted();
});
rooted();
await play(data("first"));
document.body.dataset.ready = "";
await desk.warm();
