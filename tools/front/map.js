// What this browser knows of its reader, put into the map: the chapter opened last, and the predictions made. Without it every link works.
const marked = (number) => document.querySelectorAll(`.m-chapter[data-chapter="${number}"]`);

function predicted() {
  for (let i = 0; i < localStorage.length; i++) {
    const found = /^allranks_predictions:.*chapters\/\w+\/(\d\d)_/.exec(localStorage.key(i));
    if (!found) continue;
    const said = Object.values(JSON.parse(localStorage.getItem(localStorage.key(i)) ?? "{}"));
    const count = said.filter((one) => one?.value !== undefined).length;
    for (const chapter of marked(found[1])) {
      for (const circle of [...chapter.querySelectorAll("circle.m-proof")].slice(0, count)) circle.classList.add("proved");
      if (count) chapter.classList.replace("ahead", "walked");
    }
  }
}

/** Whether a question of this chapter was answered. */
const said = (chapter) => chapter.querySelector("circle.proved") !== null;

/** Inks the pieces of the line that were walked; `walked` has one of two for each piece from the first one on. */
function ink(line, walked) {
  const stops = line.dataset.stops.split(" ").map(Number);
  const dashes = walked.flatMap((yes, at) => (yes ? [stops[at + 1] - stops[at], 0] : [0, stops[at + 1] - stops[at]]));
  line.setAttribute("stroke-dasharray", [...dashes, 0, 99999].join(" "));
}

function stand(map, number) {
  const here = map.querySelector(`.m-chapter[data-chapter="${number}"]`);
  if (!here) return;
  const core = [...map.querySelectorAll(".m-chapter.core")];
  for (const one of map.querySelectorAll(".m-chapter.here, .m-chapter.next")) {
    one.classList.remove("here", "next");
    one.removeAttribute("aria-current");
    one.setAttribute("aria-label", one.getAttribute("aria-label").replace("begin here, ", ""));
    one.classList.add(said(one) ? "walked" : "ahead");
  }
  const place = core.indexOf(here);
  core[place + 1]?.classList.replace("ahead", "next");
  here.classList.remove("ahead", "walked");
  here.classList.add("here");
  here.setAttribute("aria-current", "step");
  here.setAttribute("aria-label", here.getAttribute("aria-label").replace(": ", ": you are here, "));
  ink(map.querySelector(".m-walked"), core.slice(0, Math.max(place, 0)).map(said));
  const tag = map.querySelector(".m-tag");
  tag.querySelector("text").textContent = "you are here";
  for (const [name, value] of Object.entries({ x: -47, width: 94 })) tag.querySelector("rect").setAttribute(name, value);
  if (here.dataset.tag) tag.setAttribute("transform", `translate(${here.dataset.tag})`);
  else tag.remove(); // a side trip has a yellow dot only
  here.append(...(here.dataset.tag ? [tag] : []));
}

try {
  predicted();
  const number = (localStorage.getItem("allranks-chapter") ?? "").slice(0, 2);
  const [here] = marked(number);
  if (here) {
    for (const map of document.querySelectorAll(".m-map")) stand(map, number);
    const start = document.querySelector(".start");
    start.href = here.getAttribute("href");
    start.firstChild.textContent = `Go on: ${here.getAttribute("aria-label").split(":")[0]}`;
  }
} catch {}

document.querySelector(".theme").addEventListener("click", () => {
  const order = ["auto", "light", "dark"];
  const theme = order[(order.indexOf(document.body.dataset.theme) + 1) % 3];
  document.body.dataset.theme = theme;
  document.querySelector(".said").textContent = `theme: ${theme}`;
  try { localStorage.setItem("theme", theme); } catch {}
});

document.body.dataset.ready = "";
