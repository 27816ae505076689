// What every rank holds, as a table, for those who read instead of looking.

import { html } from "../common/dom.js";
import { size } from "./words.js";

const MOST_CHUNKS = 32;
const MOST_RANKS = 64;

/**
 * The table of a playback's moment.
 *
 * @param {import("./playback.js").Playback} playback
 */
export function contentsTable(playback) {
  const chunks = Array.from({ length: Math.min(playback.chunks, MOST_CHUNKS) }, (_, c) => c);
  const sends = playback.transfers.length > 0 || !playback.knowsCalls;
  const bytes = [...(sends ? ["sent", "received"] : []), ...(playback.knowsCalls ? ["put in", "got out"] : [])];
  const names = ["rank", ...chunks.map((c) => `chunk ${c}`), ...bytes];
  const head = html("tr", {}, ...names.map((name) => html("th", { scope: "col" }, name)));
  const rows = Array.from({ length: Math.min(playback.ranks, MOST_RANKS) }, (_, r) => {
    const cells = chunks.map((c) => playback.held(r, c).join(" + ") || "empty");
    if (sends) cells.push(playback.amount(playback.sent[r]), playback.amount(playback.received[r]));
    if (playback.knowsCalls) cells.push(...playback.throughCalls(r).map(size));
    return html("tr", {}, html("th", { scope: "row" }, String(r)), ...cells.map((text) => html("td", {}, text)));
  });
  const caption = html("caption", {}, `${playback.title}, after step ${playback.done}`);
  return html("table", {}, caption, html("thead", {}, head), html("tbody", {}, ...rows));
}
