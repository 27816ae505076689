// "What happens next?": one question a step, its answer read off the animation. Which message is asked about follows
// from the step's number, so that the same animation asks the same questions.

import { contributionsOf } from "./words.js";

/** @typedef {import("./data.js").Transfer} Transfer */
/** @typedef {import("./playback.js").Playback} Playback */
/** @typedef {{text: string, right: boolean}} Option */
/** @typedef {{text: string, options: Option[], why: string}} Question */

/**
 * The question about a step that has not been shown yet; null where there is none.
 *
 * @param {Playback} playback
 * @param {number} step
 * @returns {Question | null}
 */
export function questionAbout(playback, step) {
  // in time a message of this step may be under way already, and its answer in the picture
  const now = playback.clockAt(playback.position) - 1e-9;
  const transfers = (playback.byStep[step] ?? []).filter(
    (transfer) => transfer.delivered && playback.spans[transfer.index][0] >= now,
  );
  if (!transfers.length) return null;
  const transfer = transfers[(step * 5 + 1) % transfers.length];
  const alone = transfers.filter((other) => other.src === transfer.src).length === 1;
  const kinds = [];
  if (playback.chunks > 1 && transfer.chunks.length === 1) kinds.push(whichChunk);
  else if (alone && playback.ranks > 2) kinds.push(whichRank);
  if (transfer.chunks.length === 1 && transfer.after.length && transfer.does !== "receives") kinds.push(whoseParts);
  return kinds.length ? kinds[step % kinds.length](playback, transfer) : null;
}

/**
 * @param {Playback} playback
 * @param {Transfer} transfer
 * @returns {Question}
 */
function whichChunk(playback, transfer) {
  const { step, src, dst, does } = transfer;
  const right = transfer.chunks[0];
  return {
    text: `Step ${step + 1}: which chunk does rank ${src} send to rank ${dst}?`,
    options: withNeighbours(right, playback.chunks).map((c) => ({ text: `chunk ${c}`, right: c === right })),
    why: `Rank ${src} sends chunk ${right}, which ${carries(playback, transfer)}; rank ${dst} ${does} it.`,
  };
}

/**
 * @param {Playback} playback
 * @param {Transfer} transfer
 * @returns {Question}
 */
function whichRank(playback, { step, src, dst, does }) {
  return {
    text: `Step ${step + 1}: to which rank does rank ${src} send?`,
    options: withNeighbours(dst, playback.ranks, src).map((r) => ({ text: `rank ${r}`, right: r === dst })),
    why: `Rank ${src} sends to rank ${dst}, which ${does} it.`,
  };
}

/**
 * @param {Playback} playback
 * @param {Transfer} transfer
 * @returns {Question}
 */
function whoseParts(playback, transfer) {
  const { step, src, dst, reduce } = transfer;
  const [chunk] = transfer.chunks;
  const sum = (/** @type {number[]} */ ranks) => (ranks.length ? ranks.join(" + ") : "nothing");
  const before = sum(playback.held(dst, chunk));
  const carried = sum(playback.contributors(transfer.carried[0]));
  const after = sum(playback.contributors(transfer.after[0]));
  const everyone = sum(Array.from({ length: playback.ranks }, (_, r) => r));
  const options = [...new Set([before, carried, after, everyone])];
  // a message that changes nothing: any other answer is wrong
  if (options.length < 2) options.push(after === sum([src]) ? sum([dst]) : sum([src]));
  options.sort((a, b) => a.length - b.length || (a < b ? -1 : 1));
  const asked = `Whose contributions does rank ${dst}'s chunk ${chunk} hold afterwards?`;
  const effect = reduce ? "added" : "stored in place of it";
  return {
    text: `Step ${step + 1}: rank ${src} sends chunk ${chunk} to rank ${dst}. ${asked}`,
    options: options.map((text) => ({ text, right: text === after })),
    why:
      `Rank ${dst} held ${before}. The message ${carries(playback, transfer)} and is ${effect}, ` +
      `so it then holds ${after}.`,
  };
}

/**
 * @param {Playback} playback
 * @param {Transfer} transfer
 */
function carries(playback, { carried }) {
  const ranks = carried.length ? playback.contributors(carried[0]) : [];
  return ranks.length ? `carries the ${contributionsOf(ranks)}` : "carries bytes";
}

/**
 * The right number and up to three others near it, in order.
 *
 * @param {number} right
 * @param {number} count
 * @param {number} without a number that is no choice
 */
function withNeighbours(right, count, without = -1) {
  const found = new Set([right]);
  for (const step of [1, -1, 2, -2, 3]) {
    const other = (((right + step) % count) + count) % count;
    if (other !== without && found.size < 4) found.add(other);
  }
  return [...found].sort((a, b) => a - b);
}
