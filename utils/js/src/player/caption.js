// What happens in a step, in one line: one message by name, and how the others go. Every message is in the table.

import { counted } from "./words.js";

/** @typedef {import("./data.js").Transfer} Transfer */
/** @typedef {import("./playback.js").Playback} Playback */

const MOST_CLAUSES = 3;

/**
 * @param {Playback} playback
 * @param {Transfer | null} picked the message that the reader has chosen
 */
export function lineOf(playback, picked = null) {
  if (picked) {
    const [wrong, why] = playback.wrong ?? [-1, ""];
    const line = picked.line && picked.delivered ? ` (line ${picked.line})` : "";
    const reason = picked.index === wrong && picked.delivered ? `: the first wrong move, ${why}` : "";
    return capital(`${sentence(picked, playback)}${line}${reason}.`);
  }
  const { current, steps, atEnd } = playback;
  const trouble = troubleOf(playback);
  if (trouble) return trouble;
  if (!current) return startOf(playback);
  const transfers = (playback.byStep[current - 1] ?? []).filter((transfer) => transfer.delivered);
  if (!transfers.length) return barsOf(playback, current);
  const pattern = patternOf(playback, transfers);
  const rest =
    !pattern && transfers.length > 1 ? `; ${counted(transfers.length - 1, "other message")} in this step` : "";
  const done = atEnd && current === steps && playback.goal.length && isDone(playback) ? " Done." : "";
  return capital(`${pattern}${sentence(transfers[0], playback)}${rest}.${done}`);
}

/** @param {Playback} playback */
function isDone(playback) {
  return playback.goal.every(([rank, chunk]) => playback.verdict(rank, chunk) === "done");
}

/** @param {Playback} playback */
function startOf({ ranks, chunks, steps, transfers, bars }) {
  if (!transfers.length && !bars.length) return `${counted(ranks, "rank")}: nothing moves.`;
  const parts = chunks > 1 ? `, ${counted(chunks, "chunk")}` : "";
  return `Before step 1 of ${steps}: ${counted(ranks, "rank")}${parts}. Play, or step with the arrow keys.`;
}

/** @param {string} text */
function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/**
 * @param {Transfer} transfer
 * @param {Playback} playback
 */
function sentence(transfer, playback) {
  const { src, dst, chunks, does, delivered, line } = transfer;
  const own = playback.isSquare && chunks.length === 1 && Math.floor(chunks[0] / playback.ranks) === src;
  const name = own
    ? `its part for rank ${chunks[0] % playback.ranks}`
    : chunks.length
      ? playback.nameOf(transfer)
      : playback.amount(transfer.nbytes);
  const at = line ? ` (line ${line})` : "";
  if (!delivered) return `rank ${src} tries to send ${name} to rank ${dst}, which never receives it${at}`;
  return `rank ${src} sends ${name} to rank ${dst}, which ${does} ${chunks.length > 1 ? "them" : "it"}`;
}

/**
 * How the messages of a step go, where they all go alike; else "".
 *
 * @param {Playback} playback
 * @param {Transfer[]} transfers
 */
function patternOf(playback, transfers) {
  const { ranks } = playback;
  if (transfers.length < 2) return "";
  if (new Set(transfers.map((transfer) => transfer.does)).size > 1) return "";
  const everyone = new Set(transfers.map(({ src }) => src)).size === ranks && transfers.length === ranks;
  const pairs = new Set(transfers.map(({ src, dst }) => src * ranks + dst));
  if (transfers.every(({ src, dst }) => pairs.has(dst * ranks + src))) return "the ranks exchange in pairs: ";
  if (!everyone) return "";
  const before = new Map(
    (playback.byStep[transfers[0].step - 1] ?? []).map((other) => [`${other.dst}:${other.chunks}`, other]),
  );
  const last = transfers.map(({ src, chunks }) => before.get(`${src}:${chunks}`));
  if (last.every((other) => other?.reduce) && playback.goal.length) {
    const all = last.every((other) => playback.contributors(other?.after[0] ?? -1).length >= ranks);
    return all
      ? "each rank passes on the chunk it has just completed: "
      : "each rank passes on what it has just added up: ";
  }
  if (last.every(Boolean)) return "each rank passes on what it has just received: ";
  const hop = (transfers[0].dst - transfers[0].src + ranks) % ranks;
  if (!transfers.every(({ src, dst }) => (dst - src + ranks) % ranks === hop)) return "";
  return hop === 1 ? "each rank sends to the next: " : `each rank sends ${hop} ranks on: `;
}

/**
 * Who waits for ever, once it does; else "".
 *
 * @param {Playback} playback
 */
function troubleOf(playback) {
  const stuck = playback.stuck();
  if (stuck.length) {
    const more = stuck.length > 1 ? `; ${counted(stuck.length - 1, "other send")} never received` : "";
    return capital(`${sentence(stuck[0], playback)}${more}.`);
  }
  const forever = playback.waits().filter((wait) => wait.forever);
  if (!forever.length) return "";
  const [{ rank, peer, line }] = forever;
  const whom = peer === null ? "" : ` for rank ${peer} to send`;
  const more = forever.length > 1 ? `; ${counted(forever.length - 1, "other rank")} wait too` : "";
  return `Rank ${rank} waits${whom}, for ever${line ? ` (line ${line})` : ""}${more}.`;
}

/**
 * A step without messages: what the ranks do, as far as it fits.
 *
 * @param {Playback} playback
 * @param {number} step counted from 1
 */
function barsOf({ bars, captions }, step) {
  if (!bars.some((bar) => bar.step === step - 1)) return `Step ${step}: nothing moves.`;
  const clauses = captions[step].replace(/^step \d+ of \d+: /, "").split("; ");
  const more = clauses.length > MOST_CLAUSES ? "; and more, in the table below" : "";
  return `${capital(clauses.slice(0, MOST_CLAUSES).join("; "))}${more}.`;
}
