// The race: a program for a task, its score beside the leaderboard, and the file to hand in.

import { Editor } from "./editor.js";
import { Desk, data, part } from "./page.js";

const desk = new Desk();
const tasks = part("task", HTMLSelectElement);
const start = part("start", HTMLSelectElement);
const editor = new Editor(part("editor"), "Your entry: schedule(task) returns a Schedule", run);
const sources = /** @type {Record<string, string>} */ (data("sources"));
const entries = /** @type {Record<string, {name: string, file: string}[]>} */ (data("entries"));

async function run() {
  editor.mark(null);
  const name = tasks.value;
  const answer = await desk.ask("race", { source: editor.text, name });
  editor.mark(answer?.fault?.line ?? null);
  if (answer?.board) board(name).innerHTML = answer.board;
}

/** @param {string} name */
const board = (name) => /** @type {HTMLElement} */ (document.querySelector(`[data-task="${name}"]`));

function show() {
  for (const section of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-task]")))
    section.hidden = section.dataset.task !== tasks.value;
  start.replaceChildren(new Option("the program as it is", ""), new Option("a ring all-reduce", "the course's ring"));
  for (const { name, file } of entries[tasks.value] ?? []) start.add(new Option(name, file));
  history.replaceState(null, "", `#${tasks.value}`);
}

start.addEventListener("change", () => {
  if (sources[start.value]) editor.text = sources[start.value];
});
tasks.addEventListener("change", show);
part("form").addEventListener("submit", (event) => {
  event.preventDefault();
  run();
});
part("download").addEventListener("click", () => {
  const address = URL.createObjectURL(new Blob([editor.text], { type: "text/x-python" }));
  const link = Object.assign(document.createElement("a"), { href: address, download: "my_entry.py" });
  link.click();
  URL.revokeObjectURL(address);
});
const asked = location.hash.slice(1);
if ([...tasks.options].some((option) => option.value === asked)) tasks.value = asked;
show();
document.body.dataset.ready = "";
await desk.warm();
