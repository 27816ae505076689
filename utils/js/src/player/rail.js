// Beside the picture: what each rank has sent against the least possible, the links in use, what colours mean.

import { html, svg } from "../common/dom.js";
import { contributionCounts } from "./heat_map.js";
import { MOST_HUES, swatchClass } from "./hues.js";
import { counted, duration } from "./words.js";

/** @typedef {import("./playback.js").Playback} Playback */

/**
 * The bytes that the busiest rank sends in all, or must send.
 *
 * @param {Playback[]} playbacks
 */
export function mostBytes(playbacks) {
  let most = 0;
  for (const { ranks, transfers, bound } of playbacks) {
    const sent = new Float64Array(ranks);
    for (const { src, nbytes } of transfers) sent[src] += nbytes;
    most = sent.reduce((a, b) => Math.max(a, b), Math.max(most, bound ? bound[1] : 0));
  }
  return most || 1;
}

/**
 * The least and the most that any rank has sent.
 *
 * @param {Playback} playback
 */
function sentWords(playback) {
  const least = playback.sent.reduce((a, b) => Math.min(a, b), Number.POSITIVE_INFINITY);
  const most = playback.sent.reduce((a, b) => Math.max(a, b), 0);
  const all = playback.amount(most);
  const few = playback.amount(least);
  if (few === all) return all;
  const unit = all.split(" ")[1];
  return `${few.endsWith(` ${unit}`) || least === 0 || unit === "chunk" ? few.split(" ")[0] : few} to ${all}`;
}

/**
 * @param {string} name
 * @param {string} kind
 */
function figure(name, kind = "span") {
  return html(/** @type {"span"} */ (kind), { "data-meter": name });
}

/**
 * Short, so that it has room in one line with the other words, or the picture becomes smaller while it plays.
 *
 * @param {string} amount
 */
function least(amount) {
  const words = figure("bound");
  words.textContent = `least: ${amount}`;
  return words;
}

export class Rail {
  /** @type {HTMLElement[]} a bar for each rank */
  #fills = [];
  #columns = svg("path", { class: "ar-fill" });

  /** @param {Playback} playback */
  constructor(playback) {
    this.playback = playback;
    this.full = mostBytes([playback]);
    this.bytes = figure("bytes", "strong");
    this.links = figure("links");
    this.clock = figure("clock");
    const { transfers, links, ranks } = playback;
    const parts = transfers.length ? this.#sentParts() : [];
    if (links.length) parts.push(html("p", { class: "ar-fact" }, html("strong", {}, "Links"), this.links));
    parts.push(html("p", { class: "ar-fact" }, html("strong", { class: "ar-clock" }, "Time"), this.clock));
    this.root = html("aside", { class: "ar-rail", "aria-label": "Counters and colours" }, ...parts, legend(playback));
    this.root.classList.toggle("ar-many", ranks > 4);
  }

  #sentParts() {
    const { playback } = this;
    const few = playback.ranks <= MOST_HUES;
    const { bound } = playback;
    const title = few ? "Sent so far, by each rank" : `Sent so far, rank 0 … ${playback.ranks - 1}`;
    const parts = [html("h4", {}, title), few ? this.#rows() : this.#chart()];
    const figures = html("p", { class: "ar-figures" }, this.bytes);
    if (bound) figures.append(least(playback.amount(bound[1])));
    parts.push(figures);
    if (bound) parts.push(html("p", { class: "ar-note" }, `${bound[0]}: nobody can send less`));
    return parts;
  }

  #rows() {
    const { ranks, bound } = this.playback;
    const box = html("div", { class: "ar-bars", "aria-hidden": "true" });
    for (let rank = 0; rank < ranks; rank++) {
      const fill = html("i", { class: "ar-fill" });
      this.#fills.push(fill);
      const name = html("span", {}, html("i", { class: swatchClass(rank, ranks) }), String(rank));
      box.append(html("div", {}, name, html("span", { class: "ar-bar" }, fill)));
    }
    if (bound) {
      const left = `calc(${this.nameWidth}px + (100% - ${this.nameWidth}px) * ${bound[1] / this.full})`;
      box.append(html("i", { class: "ar-mark", style: `left:min(${left}, 100% - 2px)` }));
    }
    return box;
  }

  get nameWidth() {
    return 30;
  }

  // a column for each rank
  #chart() {
    const { ranks, bound } = this.playback;
    const box = svg("svg", { viewBox: `0 0 ${ranks} 100`, preserveAspectRatio: "none", class: "ar-chart" });
    box.setAttribute("aria-hidden", "true");
    box.append(this.#columns);
    if (bound) {
      const y = 100 - (98 * bound[1]) / this.full;
      svg("path", { d: `M0 ${y}H${ranks}`, class: "ar-chart-mark" }, box);
    }
    return box;
  }

  /**
   * Shows the counters of the playback's moment.
   *
   * @param {number} busy how many links are in use
   */
  update(busy) {
    const { playback, full } = this;
    this.bytes.textContent = sentWords(playback);
    this.#fills.forEach((fill, rank) => {
      fill.style.width = `${(100 * playback.sent[rank]) / full}%`;
    });
    if (!this.#fills.length) {
      const column = (/** @type {number} */ sent, /** @type {number} */ r) =>
        `M${r + 0.1} 100v${((-98 * sent) / full).toFixed(2)}h.8V100z`;
      this.#columns.setAttribute("d", [...playback.sent].map(column).join(""));
    }
    this.links.textContent = `${busy} of ${playback.links.length} busy`;
    const inTime = playback.axis === "time";
    const now = duration(playback.clockAt(playback.position));
    this.clock.textContent = inTime ? `${now} of ${duration(playback.length)}` : "";
    const row = this.clock.parentElement;
    if (row) row.hidden = !inTime;
  }
}

export class HalfMeter {
  /**
   * What one of two ranks' pictures has sent, on a scale that both share.
   *
   * @param {Playback} playback
   * @param {number} full how many bytes the whole bar stands for
   */
  constructor(playback, full) {
    this.playback = playback;
    this.full = full;
    this.fill = html("i", { class: "ar-fill" });
    this.bytes = figure("bytes");
    this.step = figure("step");
    const totals = new Float64Array(playback.ranks);
    for (const { src, nbytes } of playback.transfers) totals[src] += nbytes;
    this.all = playback.amount(totals.reduce((a, b) => Math.max(a, b), 0));
    this.who = totals.every((sent) => sent === totals[0]) ? "each rank" : "the busiest rank";
    const bar = html("span", { class: "ar-bar", "aria-hidden": "true" }, this.fill);
    const words = html("p", {}, this.bytes);
    const { bound } = playback;
    if (bound) {
      bar.append(html("i", { class: "ar-mark", style: `left:min(${(100 * bound[1]) / full}%, 100% - 2px)` }));
      words.append(least(playback.amount(bound[1])));
    }
    this.root = html("div", { class: "ar-half-meter" }, bar, words);
    if (!playback.transfers.length) this.root.hidden = true;
  }

  update() {
    const { playback, full } = this;
    const most = playback.sent.reduce((a, b) => Math.max(a, b), 0);
    this.fill.style.width = `${(100 * most) / full}%`;
    this.bytes.textContent = `${playback.amount(most)} of ${this.all} sent by ${this.who}`;
    const done = playback.atEnd ? "done, " : "";
    const { current, steps } = playback;
    this.step.textContent = current ? `${done}step ${current} of ${steps}` : `start, ${counted(steps, "step")}`;
  }
}

/**
 * @param {Playback} playback
 * @param {import("./data.js").Bar} bar
 */
function isLost(playback, bar) {
  return !bar.own && (bar.op === "wait" || playback.neverEnds(bar));
}

/**
 * What colours and shapes mean: only those that this animation can show.
 *
 * @param {Playback} playback
 */
function legend(playback) {
  const { ranks, chunks, transfers, bars, goal } = playback;
  const few = playback.isDetailed;
  const sample = (/** @type {string} */ name, /** @type {string} */ words, text = "") =>
    html("span", { class: "ar-meaning" }, html("i", { class: `ar-sample ar-sample-${name}` }, text), words);
  const box = html("div", { class: "ar-legend" });
  if (few && ranks > 1 && chunks) {
    const squares = Array.from({ length: ranks }, (_, r) =>
      html("i", { class: `${swatchClass(r, ranks)} ar-numbered` }, ranks > 4 ? "" : String(r)),
    );
    box.append(html("span", { class: "ar-meaning ar-wide" }, ...squares, "whose numbers"));
  } else if (!few && contributionCounts(playback).some((count) => count > 1)) {
    const words = `1 to ${ranks - 1} ranks in it`;
    box.append(html("span", { class: "ar-meaning ar-wide" }, html("i", { class: "ar-ramp" }), words));
  }
  if (goal.length) box.append(sample(few ? "done" : "all", "complete"));
  if (transfers.length) box.append(sample(few ? "wire" : "now", few ? "on the wire" : "arrives now"));
  if (transfers.some((transfer) => transfer.sign === "+")) box.append(sample("adds", "adds", "+"));
  if (transfers.some((transfer) => transfer.sign === "=")) box.append(sample("stores", "stores", "="));
  if (playback.computes) box.append(sample("adds", "computes"));
  if (playback.calls.length) box.append(sample("call", "in a collective"));
  // a run of collectives that all came to their end has nothing lost
  const loses = transfers.length > 0 || !playback.knowsCalls || bars.some((bar) => isLost(playback, bar));
  if (bars.some((bar) => bar.own)) box.append(sample("own", loses ? "waits for its call" : "waits"));
  if (loses) {
    const lost = sample("lost", "waits, or is wrong");
    lost.classList.add("ar-across");
    box.append(lost);
  }
  return box;
}
