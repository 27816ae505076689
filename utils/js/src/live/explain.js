// "Drop your profile here": the files are read where they are, and their report is worked out in this page.

import { megabytes } from "./cut.js";
import { Desk, data, part, play } from "./page.js";

const MOST = 500e6;
const MOST_FILES = 256;
const desk = new Desk();
const drop = part("drop");
const input = part("files", HTMLInputElement);

/** @param {File[]} files */
async function explain(files) {
  if (desk.busy) return;
  const names = files.map((file) => file.name);
  const twice = names.find((name, i) => names.indexOf(name) !== i);
  const whole = files.reduce((sum, file) => sum + file.size, 0);
  const why = !files.length
    ? "There is no file in what you dropped."
    : twice
      ? `Two files have the name ${twice}; give each a name of its own.`
      : files.length > MOST_FILES
        ? `These are ${files.length} files; here up to ${MOST_FILES} are read at once.`
        : whole > MOST
          ? `These files have ${megabytes(whole)}; up to ${megabytes(MOST)} are read here, all by \`allranks explain\`.`
          : "";
  if (why) {
    const line = Object.assign(document.createElement("p"), { className: "verdict wrong", textContent: why });
    line.setAttribute("role", "alert");
    part("result").replaceChildren(line);
    return;
  }
  part("chosen").textContent = `${names.slice(0, 4).join(", ")}${names.length > 4 ? " …" : ""}: ${megabytes(whole)}`;
  await desk.ask("explain", { files: names }, { files });
}

input.addEventListener("change", () => explain([...(input.files ?? [])]));
drop.addEventListener("dragover", (event) => {
  event.preventDefault();
  drop.classList.add("over");
});
drop.addEventListener("dragleave", () => drop.classList.remove("over"));
drop.addEventListener("drop", (event) => {
  event.preventDefault();
  drop.classList.remove("over");
  explain([...(event.dataTransfer?.files ?? [])]);
});
part("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const { value } = part("sample", HTMLSelectElement);
  part("chosen").textContent = `sample: ${value}`;
  desk.ask("explain", { sample: value });
});
await play(data("first"));
document.body.dataset.ready = "";
await desk.warm();
