// The map's lines, the choice of a path, and where the reader is. Without this script every link still works.
const map = document.querySelector(".map");
const svg = map.querySelector(".lines");
const card = (number) => map.querySelector(`[data-chapter="${number}"]`);
let path = document.querySelector("[data-path]").dataset.path.split(" ");
const wide = matchMedia("(min-width: 1181px)");

function box(element) {
  const outer = map.getBoundingClientRect();
  const r = element.getBoundingClientRect();
  const [left, top] = [r.left - outer.left, r.top - outer.top];
  return { left, top, right: left + r.width, bottom: top + r.height, x: left + r.width / 2, y: top + r.height / 2 };
}

// a line through corners, which are rounded
function through(points, kind) {
  const d = points.map(([x, y], i) => {
    if (i === 0) return `M${x} ${y}`;
    if (i === points.length - 1) return `L${x} ${y}`;
    const near = ([a, b]) => {
      const far = Math.hypot(a - x, b - y);
      const share = Math.min(8, far / 2) / (far || 1);
      return `${x + (a - x) * share} ${y + (b - y) * share}`;
    };
    return `L${near(points[i - 1])}Q${x} ${y} ${near(points[i + 1])}`;
  });
  const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
  line.setAttribute("d", d.join(""));
  line.setAttribute("class", kind);
  svg.append(line);
}

// just below all cards that stand further left than this
function below(right) {
  const before = [...map.querySelectorAll("[data-chapter], .moves .cards")].map(box).filter((found) => found.left < right);
  return Math.max(...before.map((found) => found.bottom)) + 20;
}

// from one chapter of the path to the next, round what stands in between; `rail` is how far below the map it may run
function step(from, to, rail) {
  const [a, b] = [box(from), box(to)];
  const last = box(map).right;
  if (Math.abs(a.x - b.x) < 4 && Math.abs(a.y - b.y) < 200) {
    return a.y < b.y ? [[a.x, a.bottom], [b.x, b.top]] : [[a.x, a.top], [b.x, b.bottom]];
  }
  if (b.left > a.right && b.left - a.right < 60) {
    const x = (a.right + b.left) / 2;
    return Math.abs(a.y - b.y) < 4 ? [[a.right, a.y], [b.left, b.y]] : [[a.right, a.y], [x, a.y], [x, b.y], [b.left, b.y]];
  }
  if (b.left - a.right > 60 && a.left < 5) {
    const near = Math.min(rail, below(b.right));
    return [[a.left, a.y], [a.left - 24, a.y], [a.left - 24, near], [b.x, near], [b.x, b.bottom]];
  }
  if (last - b.right < 5) return [[a.x, a.bottom], [a.x, rail], [b.right + 16, rail], [b.right + 16, b.y], [b.right, b.y]];
  return [[a.x, a.bottom], [a.x, rail], [b.left - 24, rail], [b.left - 24, b.y], [b.left, b.y]];
}

function thin() {
  for (const to of map.querySelectorAll("[data-needs]")) {
    for (const number of to.dataset.needs.split(" ").filter(Boolean)) {
      const from = card(number);
      const [a, b] = [box(from), box(to)];
      const column = from.closest(".column");
      const next = column === to.closest(".column") ? column.querySelectorAll("[data-chapter]") : [];
      const place = [...next].indexOf(from);
      if (place >= 0 && next[place + 1] === to && !to.matches(".move")) through([[a.x, a.bottom], [a.x, b.top]], "thin");
      const across = from.matches(".move") && column.nextElementSibling === to.closest(".column");
      if (across) through([[box(column).right, b.y], [b.left, b.y]], "thin across");
      if (to.matches(".capstone") && number === "24") through([[a.x, a.bottom], [a.x, b.top]], "thin across");
    }
  }
  const [entry, moves] = [box(card("03")), map.querySelector(".moves .cards")];
  through([[entry.right, entry.y], [box(moves).left, entry.y]], "thin across");
}

function draw() {
  svg.replaceChildren();
  thin();
  for (const element of document.querySelectorAll("[data-chapter]")) {
    const place = path.indexOf(element.dataset.chapter);
    const badge = element.querySelector(".badge");
    badge.hidden = place < 0;
    badge.textContent = place < 0 ? "" : String(place + 1);
    element.classList.toggle("on", place >= 0);
  }
  if (!wide.matches) return;
  const bottom = Math.max(...[...map.children].slice(1).map((child) => box(child).bottom));
  let rail = bottom + 20;
  const on = path.map(card).filter(Boolean);
  for (let i = 1; i < on.length; i++) {
    const points = step(on[i - 1], on[i], rail);
    if (points.some(([, y]) => y === rail)) rail += 18;
    through(points, "thick");
  }
}

for (const button of document.querySelectorAll("[data-path]")) {
  button.addEventListener("click", () => {
    for (const other of document.querySelectorAll("[data-path]")) other.setAttribute("aria-pressed", String(other === button));
    path = button.dataset.path.split(" ");
    document.querySelector(".said").textContent = `${button.querySelector("b").textContent}: chapters ${path.join(", ")}`;
    draw();
  });
}

// what a chapter needs, while it is pointed at; one chapter's at a time
for (const element of map.querySelectorAll("[data-needs]")) {
  const show = (on) => {
    for (const other of map.querySelectorAll(".need")) other.classList.remove("need");
    if (on) for (const number of element.dataset.needs.split(" ").filter(Boolean)) card(number)?.classList.add("need");
  };
  element.addEventListener("pointerenter", () => show(true));
  element.addEventListener("pointerleave", () => show(false));
  element.addEventListener("focus", () => show(true));
  element.addEventListener("blur", () => show(false));
}

try {
  const here = document.querySelector(`[data-chapter="${(localStorage.getItem("allranks-chapter") ?? "").slice(0, 2)}"]`);
  if (here) {
    here.classList.add("here");
    here.setAttribute("aria-current", "true");
    const words = here.querySelector("small");
    words.textContent = "you are here";
    const start = document.querySelector(".start");
    start.href = here.href;
    start.firstChild.textContent = `Go on: ${here.querySelector("b").textContent}`;
  }
} catch {}

document.querySelector(".theme").addEventListener("click", () => {
  const order = ["auto", "light", "dark"];
  const theme = order[(order.indexOf(document.body.dataset.theme) + 1) % 3];
  document.body.dataset.theme = theme;
  document.querySelector(".said").textContent = `theme: ${theme}`;
  try { localStorage.setItem("theme", theme); } catch {}
});

document.querySelector(".watch").addEventListener("click", (event) => {
  event.target.remove();
  document.querySelector(".stage").append(document.querySelector("template").content.cloneNode(true));
});

new ResizeObserver(draw).observe(map);
draw();
document.body.dataset.ready = "";
