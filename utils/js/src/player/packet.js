// A message on its way, as a packet that flies from card to card.

import { svg } from "../common/dom.js";
import { hueFill } from "./hues.js";
import { size } from "./words.js";

/** @typedef {import("./data.js").Transfer} Transfer */
/** @typedef {import("./playback.js").Playback} Playback */
/** @typedef {import("./card_shape.js").CardShape} CardShape */

/**
 * The packet of a message: what it carries as stripes, the chunk's name, and what the receiver does with it.
 *
 * @param {Transfer} transfer
 * @param {Playback} playback
 * @param {CardShape} shape
 * @param {string} uid of the picture
 */
export function drawPacket(transfer, playback, shape, uid) {
  const { w, h } = shape.packet;
  const ranks = transfer.carried.map((id) => playback.contributors(id));
  // twice in one chunk is drawn twice; the same in many chunks is drawn once
  const carried = ranks.length === 1 ? ranks[0] : [...new Set(ranks.flat())];
  const kinds = ["ar-packet"];
  if (transfer.reduce) kinds.push("ar-reduce");
  if (!transfer.delivered) kinds.push("ar-lost");
  const first = playback.wrong?.[0] === transfer.index;
  if (first || playback.amiss.has(transfer.index)) kinds.push("ar-wrong-move");
  if (playback.followsFrom(transfer)) kinds.push("ar-follows");
  const root = svg("g", {
    class: kinds.join(" "),
    "data-index": transfer.index,
    "data-src": transfer.src,
    "data-dst": transfer.dst,
    "data-chunks": transfer.chunks.join(","),
    "data-contrib": carried.join(","),
  });
  svg("rect", { x: -w / 2, y: -h / 2, width: w, height: h, rx: 6, class: "ar-parcel" }, root);
  if (first && playback.amiss.size) drawCross(root, w, h);
  if (!playback.chunks) {
    svg("text", { x: 0, y: 4, class: "ar-tag" }, root, size(transfer.nbytes));
    return root;
  }
  if (shape.way === "lying") drawLying(root, transfer, carried, playback, shape, uid);
  else if (shape.way === "square") drawSquare(root, transfer, carried, playback, shape, uid);
  else drawStripes(root, transfer, carried, playback, shape, uid);
  return root;
}

/**
 * What marks the first wrong move: a cross at the packet's corner, and the words above it.
 *
 * @param {Element} root
 * @param {number} w
 * @param {number} h
 */
function drawCross(root, w, h) {
  const [x, y] = [w / 2, -h / 2];
  const cross = svg("g", { class: "ar-cross" }, root);
  svg("circle", { cx: x, cy: y, r: 11 }, cross);
  svg("path", { d: `M${x - 4} ${y - 4}l8 8m0 -8l-8 8` }, cross);
  svg("text", { x: 0, y: y - 16 }, cross, "first wrong move");
}

/**
 * @param {Element} root
 * @param {Transfer} transfer
 * @param {number[]} carried
 * @param {Playback} playback
 * @param {CardShape} shape
 * @param {string} uid
 */
function drawStripes(root, transfer, carried, playback, { packet: { w, h } }, uid) {
  const { ranks } = playback;
  const height = h - 12;
  const stripe = height / ranks;
  // the smallest have no room for a name
  const name = w < 40 ? "" : playback.nameOf(transfer);
  const beside = h < 30;
  const bare = beside && name.length > 3;
  const width = bare ? 0 : beside ? 8 : name.length > 4 ? 10 : Math.min(20, w * 0.3);
  const place = { x: -w / 2 + (bare ? 1 : 7), y: -height / 2, width };
  if (!bare) svg("rect", { ...place, height, class: "ar-empty" }, root);
  for (const r of bare ? [] : carried) {
    svg("rect", { ...place, y: place.y + r * stripe, height: stripe, ...hueFill(r, uid) }, root);
  }
  const kindOf = carried.length >= ranks ? "ar-load ar-done" : "ar-load";
  if (!bare) svg("rect", { ...place, height, rx: 2, class: kindOf }, root);
  const middle = (place.x + width + w / 2) / 2;
  const long = name.length > (beside ? 2 : 3);
  const kind = { class: long ? "ar-tag ar-long" : "ar-tag" };
  svg("text", beside ? { x: middle - 7, y: 4.5, ...kind } : { x: middle, y: -2, ...kind }, root, name);
  const at = beside ? { x: w / 2 - 9, y: 5 } : { x: middle, y: h / 2 - (h > 40 ? 8 : 5) };
  svg("text", { ...at, class: "ar-op" }, root, transfer.sign);
}

/**
 * @param {Element} root
 * @param {Transfer} transfer
 * @param {number[]} carried
 * @param {Playback} playback
 * @param {CardShape} shape
 * @param {string} uid
 */
function drawLying(root, transfer, carried, { ranks }, { packet: { w, h } }, uid) {
  const beside = h < 30;
  const whole = beside ? w - 24 : w - 14;
  const wide = whole / ranks;
  const place = { x: -w / 2 + (beside ? 6 : 7), y: -h / 2 + (beside ? 6 : 5), height: 10 };
  svg("rect", { ...place, width: whole, class: "ar-empty" }, root);
  for (const r of carried) svg("rect", { ...place, x: place.x + r * wide, width: wide, ...hueFill(r, uid) }, root);
  const all = carried.length >= ranks;
  svg("rect", { ...place, width: whole, rx: 2, class: all ? "ar-load ar-done" : "ar-load" }, root);
  const at = beside ? { x: w / 2 - 9, y: 5 } : { x: 0, y: h / 2 - 4 };
  svg("text", { ...at, class: "ar-op" }, root, transfer.sign);
}

/**
 * Of p x p chunks: from which rank it comes and for which rank it is.
 *
 * @param {Element} root
 * @param {Transfer} transfer
 * @param {number[]} carried
 * @param {Playback} playback
 * @param {CardShape} shape
 * @param {string} uid
 */
function drawSquare(root, transfer, carried, playback, { packet: { w } }, uid) {
  const one = transfer.chunks.length === 1;
  const side = { y: -5.5, width: 11, height: 11, rx: 2 };
  if (one) svg("rect", { x: -w / 2 + 7, ...side, ...hueFill(carried[0] ?? 0, uid) }, root);
  svg("text", { x: one ? 9 : 0, y: 4.5, class: "ar-tag" }, root, playback.nameOf(transfer));
}
