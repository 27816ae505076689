// The title above a picture, and below it the counters: step, busy links, bytes of the busiest rank.

import { html } from "../common/dom.js";
import { counted, duration, size } from "./words.js";

/** @typedef {import("./playback.js").Playback} Playback */

const KINDS = { schedule: "schedule", wire: "your run on the wire", live: "live run", simulated: "simulated" };

export class Meter {
  /** @param {Playback} playback */
  constructor(playback) {
    this.playback = playback;
    this.heading = html(
      "div",
      { class: "ar-head" },
      html("strong", {}, playback.title),
      html("span", {}, about(playback)),
    );
    this.step = html("span", { class: "ar-count", "data-meter": "step" });
    this.links = html("span", { "data-meter": "links" });
    this.bytes = html("span", { "data-meter": "bytes" });
    this.fill = html("i", { class: "ar-fill" });
    const { bound } = playback;
    /** How many bytes the whole bar stands for. */
    this.fullBar = Math.max(mostSent(playback), bound ? bound[1] : 0) * 1.04 || 1;
    const bar = html("span", { class: "ar-bar", "aria-hidden": "true" }, this.fill);
    const boundWords = html("span", { "data-meter": "bound" });
    if (bound) {
      const [formula, nbytes] = bound;
      bar.append(html("i", { class: "ar-tick", style: `left:${(100 * nbytes) / this.fullBar}%` }));
      boundWords.textContent = `lower bound ${formula} = ${playback.amount(nbytes)}`;
    }
    const hidden = playback.transfers.length ? false : "";
    const group = html("span", { class: "ar-bytes-group", hidden }, this.bytes, bar, boundWords);
    this.root = html("div", { class: "ar-meter" }, this.step, this.links, group);
  }

  /**
   * Shows the counters of the playback's moment.
   *
   * @param {number} busy how many links are in use
   */
  update(busy) {
    const { playback } = this;
    const now = duration(playback.clockAt(playback.position));
    const clock = playback.axis === "time" ? ` · ${now} of ${duration(playback.length)}` : "";
    this.step.textContent = `step ${playback.current} of ${playback.steps}${clock}`;
    const links = playback.links.length;
    this.links.textContent = links ? `busy ${busy} of ${links} links` : "";
    const most = Math.max(0, ...playback.sent);
    this.bytes.textContent = `busiest rank sent ${playback.amount(most)}`;
    this.fill.style.width = `${(100 * most) / this.fullBar}%`;
  }
}

/**
 * What is played, in a few words.
 *
 * @param {Playback} playback
 */
function about({ ranks, chunks, nbytes, kind, inferred }) {
  const parts = [counted(ranks, "rank")];
  if (chunks) parts.push(counted(chunks, "chunk"));
  if (nbytes !== chunks) parts.push(size(nbytes));
  parts.push(KINDS[kind]);
  if (inferred) parts.push("steps inferred from the order");
  return ` ${parts.join(" · ")}`;
}

/**
 * The bytes that the busiest rank sends in all.
 *
 * @param {Playback} playback
 */
function mostSent({ ranks, transfers }) {
  const sent = new Float64Array(ranks);
  for (const { src, nbytes } of transfers) sent[src] += nbytes;
  return Math.max(0, ...sent);
}
