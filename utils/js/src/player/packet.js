// A message on its way, as a packet that flies from card to card.

import { colourOf } from "../common/colours.js";
import { svg } from "../common/dom.js";
import { chunkName, size } from "./words.js";

/**
 * The packet of a message: what it carries as stripes, the chunk's name, and what the receiver does with it.
 *
 * @param {import("./data.js").Transfer} transfer
 * @param {import("./playback.js").Playback} playback
 * @param {import("./layouts.js").Size} packet
 */
export function drawPacket(transfer, playback, { w, h }) {
  const ranks = transfer.carried.map((id) => playback.contributors(id));
  // twice in one chunk is drawn twice; the same in many chunks is drawn once
  const carried = ranks.length === 1 ? ranks[0] : [...new Set(ranks.flat())];
  const root = svg("g", {
    class: `ar-packet${transfer.reduce ? " ar-reduce" : ""}${transfer.delivered ? "" : " ar-lost"}`,
    "data-src": transfer.src,
    "data-dst": transfer.dst,
    "data-chunks": transfer.chunks.join(","),
    "data-contrib": carried.join(","),
  });
  svg("rect", { x: -w / 2, y: -h / 2, width: w, height: h, rx: 5, class: "ar-parcel" }, root);
  if (!playback.chunks) {
    svg("text", { x: 0, y: 4, class: "ar-tag" }, root, size(transfer.nbytes));
    return root;
  }
  const height = h - 6;
  const stripe = height / playback.ranks;
  const x = -w / 2 + 4;
  const width = w > 32 ? 12 : 9;
  svg("rect", { x, y: -height / 2, width, height, class: "ar-empty" }, root);
  for (const r of carried) {
    svg("rect", { x, y: -height / 2 + r * stripe, width, height: stripe, fill: colourOf(r) }, root);
  }
  const middle = x + width + (w / 2 - x - width) / 2;
  const name = chunkName(transfer);
  svg("text", { x: middle, y: -1, class: name.length > 3 ? "ar-tag ar-small" : "ar-tag" }, root, name);
  svg("text", { x: middle, y: h / 2 - 4, class: "ar-op" }, root, transfer.sign);
  return root;
}
