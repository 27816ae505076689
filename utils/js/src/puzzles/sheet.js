// What stands below the code: the rules, what the ranks printed, and how far each of them came.

import { html } from "../common/dom.js";
import { MOST_HUES } from "../player/hues.js";

/** @typedef {import("./types.js").Verdict} Verdict */

const MOST_LINES = 40;

/** A square with the rank's hue. @param {number} rank */
export const mark = (rank) =>
  html("i", { class: rank < MOST_HUES ? `mark waits-hue-${rank % 4}` : "mark", "aria-hidden": "true" });

/**
 * The rules, each as an empty box until it is judged.
 *
 * @param {Verdict["rules"]} rules
 */
export function rulesOf(rules) {
  if (!rules.length) return [];
  const open = rules.filter(({ kept }) => kept === null).length;
  const boxes = rules.map(({ text, kept }) => {
    const state = kept === null ? "open" : kept ? "kept" : "broken";
    const words = { open: "not judged yet", kept: "kept", broken: "not kept" }[state];
    const box = html("i", { class: `rule-box ${state}`, "aria-hidden": "true" });
    return html("li", { class: state }, box, text, html("span", { class: "hidden" }, `: ${words}`));
  });
  const found = [html("h2", {}, "The rules"), html("ul", { class: "rules" }, ...boxes)];
  const later = open && open < rules.length ? `the other${open > 1 ? "s are" : " is"} judged once these hold` : "";
  return later ? [...found, html("p", { class: "soft small" }, later)] : found;
}

/** @param {Verdict} verdict */
export function printsOf({ prints }) {
  if (!prints.length) return [];
  const lines = prints.map(({ rank, text }) =>
    html("li", {}, mark(rank), html("span", { class: "hidden" }, `rank ${rank}: `), html("code", {}, text)),
  );
  const list = html("ul", { class: "prints", tabindex: "0", "aria-label": "what the ranks printed" }, ...lines);
  return [html("section", {}, html("h2", {}, "Printed"), list)];
}

/**
 * How far each rank came, line by line, where a run did not end.
 *
 * @param {Verdict} verdict
 */
export function reachedOf({ reached, waits, lines }) {
  if (!waits.some(({ doing }) => doing === "waiting") || !lines || lines > MOST_LINES) return [];
  const at = new Map(waits.map(({ rank, line, doing }) => [rank, doing === "waiting" ? line : null]));
  const numbers = Array.from({ length: lines }, (_, i) => i + 1);
  const rows = reached.map((came, rank) => {
    const stops = at.get(rank);
    const boxes = numbers.map((line) => {
      const state = line === stops ? "stuck" : came.includes(line) ? "come" : "ahead";
      return html("i", { class: state });
    });
    const words = `rank ${rank} ${stops ? `waits in line ${stops}` : "went to its end"}`;
    return html("div", { class: "lane", role: "img", "aria-label": words }, mark(rank), ...boxes);
  });
  const stuck = new Set(at.values());
  const feet = numbers.map((line) => html("b", stuck.has(line) ? { class: "now" } : {}, String(line)));
  const foot = html("div", { class: "lane feet", "aria-hidden": "true" }, html("i", { class: "mark none" }), ...feet);
  return [html("section", {}, html("h2", {}, "Reached, by line"), html("div", { class: "reached" }, ...rows, foot))];
}
