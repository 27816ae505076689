// The titles, and what is played, in a few words.

import { html } from "../common/dom.js";
import { counted, size } from "./words.js";

/** @typedef {import("./playback.js").Playback} Playback */

const KINDS = { schedule: "schedule", wire: "run on the wire", live: "live run", simulated: "simulated" };

/**
 * An algorithm's name as a title: "Ring all-reduce"; a function's name keeps its spelling: "Your fsdp_step".
 *
 * @param {string} name
 */
export function titled(name) {
  const words = name.startsWith("your ") ? name : name.replaceAll("_", "-");
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/**
 * The line above all else.
 *
 * @param {Playback[]} playbacks
 */
export function heading(playbacks) {
  const [first, second] = playbacks;
  const title = second ? bothTitled(first, second) : titled(first.title);
  return html("div", { class: "ar-title" }, html("strong", {}, title), html("span", {}, about(playbacks)));
}

/**
 * @param {Playback} first
 * @param {Playback} second
 */
function bothTitled(first, second) {
  const how = first.axis === "time" ? "one clock" : "step by step";
  const same = first.collective && first.collective === second.collective;
  return same ? `Two ${String(first.collective).replaceAll("_", "-")}s, ${how}` : `Side by side, ${how}`;
}

/**
 * What all have in common.
 *
 * @param {Playback[]} playbacks
 */
function about(playbacks) {
  /** @type {(fact: (playback: Playback) => string) => string} */
  const shared = (fact) => {
    const words = [...new Set(playbacks.map(fact))];
    return words.length === 1 ? words[0] : "";
  };
  return [
    shared(({ ranks }) => counted(ranks, "rank")),
    shared(({ chunks }) => (chunks ? counted(chunks, "chunk") : "")),
    shared(({ nbytes, chunks }) => (nbytes && nbytes !== chunks ? size(nbytes) : "")),
    shared(({ kind }) => KINDS[kind]),
    shared(({ inferred }) => (inferred ? "steps inferred from the order" : "")),
    playbacks[0].axis === "time" ? shared(({ pace }) => pace ?? "") : "",
  ]
    .filter(Boolean)
    .join(" · ");
}

/**
 * The titles of two halves; two runs of the same name are told apart.
 *
 * @param {Playback[]} playbacks
 * @returns {{title: string, tag: string}[]}
 */
export function halfTitles(playbacks) {
  const same = playbacks.length > 1 && playbacks[0].title === playbacks[1].title;
  const isRun = (/** @type {Playback} */ { kind }) => kind === "wire" || kind === "live";
  const oneRun = playbacks.filter(isRun).length === 1;
  return playbacks.map((playback, i) => ({
    title: `${titled(playback.title)}${same && !oneRun ? ` ${i + 1}` : ""}`,
    tag: oneRun && isRun(playback) ? "yours" : "",
  }));
}
