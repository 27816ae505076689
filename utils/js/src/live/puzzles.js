// The ten puzzles: the reader's code is judged in this page as it is written, and its own messages are shown.

import { html } from "../common/dom.js";
import { read, write } from "../puzzles/kept.js";
import { packed, unpacked } from "../puzzles/link.js";
import { animationOf } from "../puzzles/picture.js";
import { printsOf, reachedOf, rulesOf } from "../puzzles/sheet.js";
import { WaitsPicture } from "../puzzles/waits.js";
import { megabytes } from "./cut.js";
import { Editor } from "./editor.js";
import { embedded } from "./embedded.js";
import { worksOffline } from "./offline.js";
import { data, part } from "./parts.js";
import { shown } from "./play.js";
import { Broken, Python, Stopped } from "./python.js";

/** @typedef {import("../puzzles/types.js").Puzzle} Puzzle */
/** @typedef {import("../puzzles/types.js").Verdict} Verdict */

const SILENCE_MS = 1000;
const LIMIT_S = 30;
const SLOW_MS = 10_000;
const STAGE = 400;

const places = /** @type {import("./python.js").Places} */ (data("places"));
const puzzles = /** @type {Puzzle[]} */ (data("puzzles"));
/** The verdicts on the puzzles' own beginnings, by the same judge when the page was built. */
const recorded = /** @type {Record<string, Verdict>} */ (data("recorded"));
const ids = puzzles.map(({ id }) => id);
const kept = read(ids);
const inFrame = embedded();

let puzzle = puzzles[0];
let silence = 0;
/** Counts what was asked, so that a late answer to old code is not shown. */
let asked = 0;
let running = false;
/** The code whose verdict is shown. */
let judged = "";
/** @type {(() => void) | undefined} takes the picture away */
let leave;
/** The picture that is shown, so that an equal one stays as it is. */
let pictured = "";

const editor = new Editor(part("editor"), "Your code", () => judge());
const python = new Python(places, { loading, printed: () => {} });

/** @param {string} text for all readers, also those who listen */
function say(text) {
  part("status").textContent = text;
}

/** @param {number} share @param {number} nbytes */
function loading(share, nbytes) {
  if (document.body.dataset.python) return;
  const bar = part("bar", HTMLProgressElement);
  bar.hidden = share >= 1;
  bar.value = share;
  say(share < 1 ? `Python is on its way: ${megabytes(nbytes)}` : "Python starts …");
}

/** Shows the line of ten as it is now. */
function showLine() {
  for (const { id } of puzzles) {
    const station = /** @type {HTMLElement} */ (document.querySelector(`[data-station="${id}"]`));
    const solved = kept.solved.includes(id);
    station.classList.toggle("solved", solved);
    if (id === puzzle.id) station.setAttribute("aria-current", "step");
    else station.removeAttribute("aria-current");
    const state = station.querySelector(".hidden");
    if (state) state.textContent = solved ? ", solved" : "";
  }
  part("solved").textContent = `${kept.solved.length} of ${ids.length} solved, kept in this browser`;
}

/**
 * Opens a puzzle with the code, or with what the reader wrote there last.
 *
 * @param {string} id
 * @param {string | null} code
 */
function open(id, code = null) {
  puzzle = puzzles.find((one) => one.id === id) ?? puzzles[0];
  kept.last = puzzle.id;
  write(kept);
  part("number").textContent = String(puzzle.number);
  part("title").textContent = puzzle.title;
  part("task").textContent = puzzle.task;
  part("hint").hidden = true;
  part("hint-button").setAttribute("aria-expanded", "false");
  document.title = `${puzzle.title}: All Ranks`;
  const text = code ?? kept.code[puzzle.id] ?? puzzle.starter;
  if (editor.text !== text) editor.text = text;
  part("again").hidden = text === puzzle.starter;
  showLine();
  clearTimeout(silence);
  if (text === puzzle.starter) {
    asked++;
    if (running) {
      python.stop("Another puzzle was opened.");
      python.start().catch(() => {}); // the next question says it
    }
    settle();
    show(recorded[puzzle.id], text);
  } else {
    clear();
    judge();
  }
}

/** Before a verdict is there: the rules, and no picture. */
function clear() {
  judged = "";
  pictured = "";
  leave?.();
  leave = undefined;
  part("panel").className = "panel";
  part("headline").textContent = "Your messages appear here.";
  part("yours").hidden = true;
  part("note").textContent = "";
  part("stage").replaceChildren();
  part("below").replaceChildren();
  part("rules").replaceChildren(...rulesOf(puzzle.rules.map((rule) => ({ ...rule, kept: null }))));
  part("ran").replaceChildren();
}

/** Judges the code that is in the editor now; what still runs is stopped. */
async function judge() {
  clearTimeout(silence);
  const code = editor.text;
  const turn = ++asked;
  if (running) python.stop("Newer code is there.");
  running = true;
  document.body.dataset.run = "busy";
  part("stop").hidden = false;
  const slow = setTimeout(() => say("It still runs. Stop ends it; does its loop end?"), SLOW_MS);
  if (document.body.dataset.python === "ready") say("Running …");
  try {
    const verdict = /** @type {Verdict} */ (
      /** @type {unknown} */ (await python.ask("judge", { puzzle: puzzle.id, code }, { limit_s: LIMIT_S }))
    );
    if (turn !== asked) return;
    show(verdict, code);
    say("");
  } catch (error) {
    if (turn !== asked) return;
    if (!(error instanceof Stopped || error instanceof Broken)) throw error;
    ended(error instanceof Stopped ? error.message : `Python ended: ${error.message}`);
  } finally {
    clearTimeout(slow);
    if (turn === asked) settle();
  }
}

/** Nothing runs any more. */
function settle() {
  running = false;
  part("stop").hidden = true;
  document.body.dataset.run = "";
}

/**
 * Says why there is no verdict, and starts Python anew.
 *
 * @param {string} words
 */
function ended(words) {
  clear();
  part("panel").className = "panel wrong";
  part("headline").textContent = words;
  part("note").textContent = "Nothing of your code is lost; Python starts anew.";
  document.body.dataset.verdict = "stopped";
  python.start().then(
    () => say("Python is ready again."),
    () => say("Python could not be started again; reload the page."),
  );
}

/**
 * Shows a verdict.
 *
 * @param {Verdict} verdict
 * @param {string} code that was judged
 */
function show(verdict, code) {
  judged = code;
  part("panel").className = verdict.right ? "panel right" : "panel wrong";
  part("headline").textContent = verdict.headline;
  part("yours").hidden = verdict.line === null;
  part("yours").textContent = `your line ${verdict.line}`;
  part("note").textContent = [verdict.where && `(${verdict.where})`, verdict.note].filter(Boolean).join(" ");
  editor.mark(verdict.line, document.activeElement?.closest(".cm-editor") === null);
  part("rules").replaceChildren(...rulesOf(verdict.rules));
  part("ran").replaceChildren(...printsOf(verdict), ...reachedOf(verdict));
  picture(verdict).catch((error) => say(`The picture could not be drawn: ${error.message}`));
  part("below").replaceChildren(...(verdict.right ? [solved()] : []));
  if (verdict.right && !kept.solved.includes(puzzle.id)) {
    kept.solved.push(puzzle.id);
    write(kept);
    showLine();
  }
  document.body.dataset.verdict = verdict.right ? "right" : (verdict.code ?? "");
}

/**
 * The picture of the verdict: who waits for whom, or the messages.
 *
 * @param {Verdict} verdict
 */
async function picture(verdict) {
  const stands = verdict.waits.some(({ doing }) => doing === "waiting");
  const animation = stands ? null : animationOf(verdict);
  const key = JSON.stringify([puzzle.id, stands ? verdict.waits : animation, verdict.receive_first]);
  if (key === pictured) return;
  pictured = key;
  leave?.();
  leave = undefined;
  const stage = part("stage");
  stage.replaceChildren();
  if (stands) {
    const waits = new WaitsPicture(verdict);
    stage.append(waits.root);
    waits.draw();
    leave = () => waits.remove();
    return;
  }
  if (!animation) return;
  const address = new URL(`${places.build}playback.js`, location.href).href;
  const bare = { stage: animation.steps ? STAGE : STAGE * 0.7, loop: false };
  stage.classList.toggle("still", !animation.steps);
  const away = await shown(stage, address, { animation, bare });
  if (pictured === key) leave = away;
  else {
    away();
    stage.querySelector(".ar-player")?.remove();
  }
}

/** How a solved puzzle goes on: on real processes, and with the next one. */
function solved() {
  const command = html("code", {}, "allranks puzzle --from …");
  const copy = html("button", { type: "button" }, "Copy the line");
  const code = judged;
  const { id } = puzzle;
  packed(id, code).then((fragment) => {
    const line = `allranks puzzle --from '${addressOf(fragment)}' && allranks puzzle ${id} ${id}.py --real`;
    command.textContent = line;
    copy.addEventListener("click", () => copied(line, copy));
  });
  const after = puzzles[puzzles.indexOf(puzzle) + 1];
  const next = after ? [html("a", { class: "button next", href: `#p=${after.id}` }, `Next: ${after.title}`)] : [];
  return html(
    "div",
    { class: "onward" },
    html("h3", {}, "The same on real processes: one line"),
    html("p", { class: "command" }, command),
    html("div", { class: "line" }, copy, ...next),
    html("p", { class: "soft" }, `It writes your code to ${puzzle.id}.py, and runs it on real processes, with torch.`),
  );
}

/** @param {string} fragment */
function addressOf(fragment) {
  const found = new URL(location.href);
  found.search = "";
  found.hash = fragment;
  return found.href;
}

/**
 * Copies a text, and says on the button that it did, or shows the text where the browser lets no page copy.
 *
 * @param {string} text
 * @param {HTMLElement} button
 */
async function copied(text, button) {
  const words = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
    say("Copied.");
    setTimeout(() => {
      button.textContent = words;
    }, 2000);
  } catch {
    say(text);
  }
}

/** Opens what the address names. */
async function follow() {
  const fragment = location.hash.slice(1);
  if (!fragment) {
    open(kept.last);
    return;
  }
  const { puzzle: id, code, fault } = await unpacked(fragment, ids);
  open(id ?? kept.last, fault && id ? (puzzles.find((one) => one.id === id)?.starter ?? null) : code);
  const alert = part("fault");
  alert.textContent = fault;
  alert.hidden = !fault;
}

/** Loads Python once the page has been painted. */
async function warm() {
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  try {
    await python.start();
    document.body.dataset.python = "ready";
    part("bar").hidden = true;
    if (!running) say("Python is ready: your code is judged as you type.");
    // the other pages are kept once this one has what it needs
    document.body.dataset.offline = !inFrame && (await worksOffline()) ? "yes" : "no";
  } catch (error) {
    part("bar").hidden = true;
    document.body.dataset.python = "failed";
    say(`Python could not be loaded: ${/** @type {Error} */ (error).message}. Reload the page to try again.`);
  }
}

editor.changed = () => {
  const code = editor.text;
  if (code === puzzle.starter) delete kept.code[puzzle.id];
  else kept.code[puzzle.id] = code;
  write(kept);
  part("again").hidden = code === puzzle.starter;
  part("fault").hidden = true;
  clearTimeout(silence);
  silence = window.setTimeout(judge, SILENCE_MS);
};
part("form").addEventListener("submit", (event) => {
  event.preventDefault();
  judge();
});
part("stop").addEventListener("click", () => python.stop("You stopped it."));
part("hint-button").addEventListener("click", () => {
  const hint = part("hint");
  hint.textContent = puzzle.hint;
  hint.hidden = !hint.hidden;
  part("hint-button").setAttribute("aria-expanded", String(!hint.hidden));
});
part("again").addEventListener("click", () => {
  delete kept.code[puzzle.id]; // open() writes it
  open(puzzle.id, puzzle.starter);
});
part("share").addEventListener("click", async () => {
  const fragment = await packed(puzzle.id, editor.text);
  history.replaceState(null, "", `#${fragment}`);
  await copied(addressOf(fragment), part("share"));
});
addEventListener("hashchange", follow);
await follow();
document.body.dataset.ready = "";
await warm();
