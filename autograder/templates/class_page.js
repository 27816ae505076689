// Filters and sorts the rows of the class: by words, by state, by a mistake; by any column, at a click on its head.
"use strict";
const at = (id) => document.getElementById(id);
const body = at("rows");
const rows = [...body.rows];
const given = new Map(rows.map((row, number) => [row, number]));
let only = null; // the students of one mistake

function show() {
  const words = at("words").value.toLowerCase().split(" ").filter(Boolean);
  const state = at("state").value;
  let shown = 0;
  for (const row of rows) {
    const name = row.cells[0].textContent.toLowerCase();
    const fits = words.every((word) => name.includes(word)) && (!state || row.dataset.is.split(" ").includes(state));
    row.hidden = !fits || (only !== null && !only.has(row.dataset.student));
    shown += !row.hidden;
  }
  at("shown").textContent = `${shown} of ${rows.length} students`;
  at("all").hidden = only === null;
}

function sort(head) {
  const down = head.getAttribute("aria-sort") !== "descending";
  for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const key = (row) => row.cells[head.cellIndex].dataset.value ?? "";
  const numbers = head.cellIndex > 0 && !head.classList.contains("when");
  rows.sort((one, other) => {
    const [a, b] = [key(one), key(other)];
    if ((a === "") !== (b === "")) return a === "" ? 1 : -1; // who has nothing comes last
    const order = numbers ? a - b : a.localeCompare(b);
    return (down === (head.cellIndex > 0) ? -order : order) || given.get(one) - given.get(other);
  });
  body.append(...rows);
}

for (const button of document.querySelectorAll("button.sort"))
  button.addEventListener("click", () => sort(button.parentElement));
for (const button of document.querySelectorAll("button.only"))
  button.addEventListener("click", () => {
    only = new Set(JSON.parse(button.dataset.students));
    show();
    at("words").scrollIntoView();
  });
at("all").addEventListener("click", () => {
  only = null;
  show();
});
at("words").addEventListener("input", show);
at("state").addEventListener("change", show);
show();
