// The measures of a picture's cards and packets, and the largest of them that have room.

import { placeRanks } from "./layouts.js";
import { linesOn, longestLine } from "./rank_card.js";
import { pointAlong, ringRoute, route } from "./routes.js";

/** @typedef {import("./data.js").Layout} Layout */
/** @typedef {import("./layouts.js").Point} Point */
/** @typedef {import("./layouts.js").Size} Size */
/** @typedef {import("./playback.js").Playback} Playback */
/** @typedef {import("./routes.js").Curve} Curve */
/** @typedef {"stripes" | "lying" | "square"} Way stripes one below the other; side by side; one colour a cell */

/**
 * The measures that all cards of a picture share.
 *
 * @typedef {object} CardShape
 * @property {Size} card
 * @property {Size} cell
 * @property {number} cellGap
 * @property {Way} way how a cell shows its contributors
 * @property {boolean} brief whether a card has short words only
 * @property {boolean} labels whether the chunk's number stands below its cell
 * @property {Size} packet
 */

/** @typedef {{playback: Playback, layout: Layout, joined: Set<number>, places: Point[]}} Places joined: both ways */
/** @typedef {{shape: CardShape, centres: Point[], routes: Map<number, Curve>, box: Size & Point}} Arrangement */

/** @typedef {{clear: boolean, small: boolean}} How clear: whether packets must cover nothing; small: without names */
const USUAL = { clear: false, small: false };
/** @type {How[]} in the order in which they are tried */
export const HOWS = [{ clear: true, small: false }, { clear: true, small: true }, USUAL];

// from large to small; text has 12 px in all of them
const SIZES = [60, 52, 46, 40, 34, 28, 24, 20, 16];
const WIDTHS = [36, 30, 26, 22, 18, 14, 11, 8, 5];
const HEAD = 26;
// a packet that says whose numbers it has, and what the receiver does with them
const SMALL = { w: 32, h: 22 };
// of 12 px text, wider than most
const LETTER = 6.9;

/**
 * How a cell shows its contributors: of p x p chunks each comes from one rank; a single chunk has much room.
 *
 * @param {Playback} playback
 * @returns {Way}
 */
function wayOf({ isSquare, chunks }) {
  if (isSquare) return "square";
  return chunks === 1 ? "lying" : "stripes";
}

/**
 * @param {Playback} playback
 * @param {number} level of the height, 0: the largest
 * @param {number} widthLevel of the width
 * @param {boolean} small whether packets have no names
 * @returns {CardShape}
 */
export function cardShape(playback, level = 0, widthLevel = level, small = false) {
  const { ranks, chunks, bars, undelivered, waitBars } = playback;
  const way = wayOf(playback);
  const cell = cellOf(way, ranks, chunks, level, widthLevel);
  const cellGap = way === "square" ? 1 : cell.w >= 30 ? 6 : cell.w >= 14 ? 4 : cell.w >= 5 ? 2 : cell.w >= 3 ? 1 : 0;
  const across = way === "square" ? ranks : chunks;
  const brief = level > 4;
  const inner = chunks ? across * (cell.w + cellGap) - cellGap : wordsWide(playback, brief);
  const labels = way === "stripes" && cell.w >= 11;
  const tall = way === "square" ? ranks * (cell.h + cellGap) : cell.h;
  // the rank's name has "waits" or "waits for 3" beside it
  const waitsForOne = undelivered.length > 0 || bars.some((bar) => bar.op === "wait" && bar.peer !== null);
  const least = waitsForOne && !brief ? 168 : waitsForOne || waitBars.length ? (brief ? 112 : 136) : 80;
  return {
    card: {
      w: Math.max(least, inner + (cell.w >= 22 ? 22 : 14)),
      h: chunks ? HEAD + tall + (labels ? 19 : 8) : 34 + 17 * linesOn(playback),
    },
    cell,
    cellGap,
    way,
    brief,
    labels,
    packet: small && way !== "square" && chunks ? SMALL : packetOf(way, ranks, chunks, level),
  };
}

/**
 * Pixels for the words on a card without cells.
 *
 * @param {Playback} playback
 * @param {boolean} brief
 */
function wordsWide(playback, brief) {
  if (playback.transfers.length) return brief ? 76 : 108;
  return Math.max(108, LETTER * longestLine(playback, brief));
}

/**
 * @param {Way} way
 * @param {number} ranks
 * @param {number} chunks
 * @param {number} level
 * @param {number} widthLevel
 * @returns {Size}
 */
function cellOf(way, ranks, chunks, level, widthLevel) {
  if (way === "square") {
    const side = Math.max(5, 16 - 1.5 * level);
    return { w: side, h: side };
  }
  if (way === "lying") return { w: ranks * (20 - level * 1.6), h: Math.max(16, 26 - level * 1.5) };
  // a card of many chunks becomes narrower, too: else only two stand beside each other
  const most = Math.max(2, (190 - 12 * widthLevel) / Math.max(1, chunks));
  return { w: Math.min(most, WIDTHS[widthLevel]), h: SIZES[level] };
}

/**
 * @param {Way} way
 * @param {number} ranks
 * @param {number} chunks
 * @param {number} level
 * @returns {Size}
 */
function packetOf(way, ranks, chunks, level) {
  if (!chunks) return { w: 60, h: 24 };
  // where there is little room, the sign stands beside the stripes
  if (way === "lying") return level > 4 ? { w: 46, h: 22 } : { w: Math.max(44, ranks * 6 + 12), h: 34 };
  if (way === "square") return { w: 54, h: 24 };
  return level === 0
    ? { w: 66, h: 48 }
    : level < 3
      ? { w: 58, h: 42 }
      : { w: level < 5 ? 52 : 54, h: level < 5 ? 36 : 26 };
}

/**
 * The largest cards and packets that have room in a box, and where they are. Where none have, the smallest: the
 * picture is then larger than the box.
 *
 * @param {Playback} playback
 * @param {Layout} layout
 * @param {Size} room
 * @param {How} how
 * @returns {Arrangement}
 */
export function arrange(playback, layout, room, how = USUAL) {
  const found = largest(playback, layout, room, how);
  if (found) return found;
  const shape = cardShape(playback, SIZES.length - 1);
  const [way] = waysOf(playback, layout, [layout === "line" ? 3 : 1]);
  for (let grown = 1.05; ; grown *= 1.05) {
    const found = fit(way, shape, { w: room.w * grown, h: room.h * grown }, false);
    if (found) return found;
  }
}

/**
 * Null where not even the smallest have room.
 *
 * @param {Playback} playback
 * @param {Layout} layout
 * @param {Size} room
 * @param {How} how
 * @returns {Arrangement | null}
 */
export function largest(playback, layout, room, how = USUAL) {
  const rounds = layout === "line" ? [[1, 2, 3]] : layout === "ring" ? [[1], [2]] : [[1]];
  for (const rows of rounds) {
    const ways = waysOf(playback, layout, rows);
    for (const [level, widthLevel] of levelsOf(wayOf(playback), playback.links.length > 2 * playback.ranks)) {
      const shape = cardShape(playback, level, widthLevel, how.small);
      for (const way of ways) {
        const found = fit(way, shape, room, how.clear);
        if (found && (!how.clear || staysClear(way, found))) return found;
      }
    }
  }
  return null;
}

/**
 * Where the ranks may stand.
 *
 * @param {Playback} playback
 * @param {Layout} layout
 * @param {number[]} rows
 * @returns {Places[]}
 */
function waysOf(playback, layout, rows) {
  const { links, ranks } = playback;
  const joined = new Set(links.flatMap(([a, b]) => [a * ranks + b, b * ranks + a]));
  return rows.map((count) => ({ playback, layout, joined, places: placeRanks(layout, playback, count) }));
}

/**
 * Heights and widths to try, from large cells to small ones.
 *
 * @param {Way} way
 * @param {boolean} quickly only some: many ways have to be laid for each
 */
function levelsOf(way, quickly) {
  const all = SIZES.flatMap((_, level) => WIDTHS.map((_, widthLevel) => [level, widthLevel]));
  if (quickly || way !== "stripes") return all.filter(([level, widthLevel]) => level === widthLevel);
  const area = (/** @type {number[]} */ [level, widthLevel]) => SIZES[level] * WIDTHS[widthLevel];
  return all.sort((a, b) => area(b) - area(a));
}

/**
 * Null where it has no room.
 *
 * @param {Places} way
 * @param {CardShape} shape
 * @param {Size} room
 * @param {boolean} clear whether packets of one step should not meet
 * @returns {Arrangement | null}
 */
function fit(way, shape, room, clear) {
  const area = { w: room.w - shape.card.w - 8, h: room.h - shape.card.h - 8 };
  for (let turn = 0; turn < 3; turn++) {
    if (area.w < 0 || area.h < 0) return null;
    const centres = way.places.map(({ x, y }) => ({ x: (x - 0.5) * area.w, y: (y - 0.5) * area.h }));
    if (!standApart(way, centres, shape)) return null;
    const routes = routesOf(way.playback, way.layout, centres, shape, clear);
    const box = boxOf(centres, routes, shape);
    if (box.w <= room.w && box.h <= room.h) return { shape, centres, routes, box };
    // ways that bend outwards need some of the room
    area.w -= Math.max(0, box.w - room.w) + 1;
    area.h -= Math.max(0, box.h - room.h) + 1;
  }
  return null;
}

/**
 * Whether no two cards overlap, and a packet has room between two that are linked.
 *
 * @param {Places} way
 * @param {Point[]} centres
 * @param {CardShape} shape
 */
function standApart({ joined }, centres, { card, packet }) {
  const ranks = centres.length;
  for (let i = 0; i < ranks; i++) {
    for (let j = 0; j < i; j++) {
      const x = Math.abs(centres[i].x - centres[j].x) - card.w;
      const y = Math.abs(centres[i].y - centres[j].y) - card.h;
      const apart = joined.has(i * ranks + j)
        ? x >= packet.w * 0.8 || y >= packet.h || (x >= 6 && y >= 12)
        : x >= 8 || y >= 8;
      if (!apart) return false;
    }
  }
  return true;
}

/**
 * @param {Playback} playback
 * @param {Layout} layout
 * @param {Point[]} centres
 * @param {CardShape} shape
 * @param {boolean} clear
 */
function routesOf({ ranks, links, together }, layout, centres, { card, packet }, clear) {
  const joined = new Set(links.map(([src, dst]) => src * ranks + dst));
  /** @type {Map<number, Curve>} */
  const found = new Map();
  for (const [src, dst] of links) {
    const bothWays = joined.has(dst * ranks + src);
    const there = found.get(dst * ranks + src);
    if (there && layout === "grid" && isBent(there)) {
      found.set(src * ranks + dst, above(there, packet));
      continue;
    }
    const key = src * ranks + dst;
    const others = new Set(clear ? together.flatMap((keys) => (keys.includes(key) ? keys : [])) : []);
    const beside = [...found].flatMap(([way, curve]) => (others.has(way) ? [curve] : []));
    const onRing = layout === "ring" && !bothWays && (dst - src + ranks) % ranks === 1;
    const curve = onRing
      ? ringRoute(centres, src, dst, card)
      : route(centres, src, dst, card, packet, bothWays, layout === "grid", beside);
    found.set(src * ranks + dst, curve);
  }
  return found;
}

/**
 * Whether the packets of a step, half-way, cover neither a card nor each other, or nearly so.
 *
 * @param {Places} way
 * @param {Arrangement} found
 */
function staysClear({ playback }, { shape: { card, packet }, centres, routes }) {
  const middle = new Map([...routes].map(([key, curve]) => [key, pointAlong(curve, 0.5)]));
  const apart = (/** @type {Point} */ a, /** @type {Point} */ b, /** @type {number} */ w, /** @type {number} */ h) =>
    Math.abs(a.x - b.x) >= w || Math.abs(a.y - b.y) >= h;
  const beside = { w: (card.w + packet.w) / 2 - 8, h: (card.h + packet.h) / 2 - 8 };
  for (const at of middle.values()) if (centres.some((centre) => !apart(at, centre, beside.w, beside.h))) return false;
  return playback.together.every((keys) =>
    keys.every((key, i) => {
      const at = /** @type {Point} */ (middle.get(key));
      return keys.slice(0, i).every((other) => {
        const there = /** @type {Point} */ (middle.get(other));
        return apart(at, there, packet.w - 8, packet.h - 6);
      });
    }),
  );
}

/** @param {Curve} curve */
function isBent({ from, by, to }) {
  return Math.abs((by.x - from.x) * (to.y - from.y) - (by.y - from.y) * (to.x - from.x)) > 400;
}

/**
 * The way back of a curve, so far outside of it that two packets pass.
 *
 * @param {Curve} curve
 * @param {Size} packet
 * @returns {Curve}
 */
function above({ from, by, to }, packet) {
  const flat = Math.abs(to.x - from.x) > Math.abs(to.y - from.y);
  const out = flat ? Math.sign(by.y - (from.y + to.y) / 2) : Math.sign(by.x - (from.x + to.x) / 2);
  // a curve comes half as near to its control point
  const shift = 2 * ((flat ? packet.h : packet.w) + 3) * out;
  return { from: to, by: flat ? { x: by.x, y: by.y + shift } : { x: by.x + shift, y: by.y }, to: from };
}

/**
 * What holds all cards and all packets on their ways.
 *
 * @param {Point[]} centres
 * @param {Map<number, Curve>} routes
 * @param {CardShape} shape
 */
function boxOf(centres, routes, { card, packet }) {
  const x = { least: Number.POSITIVE_INFINITY, most: Number.NEGATIVE_INFINITY };
  const y = { ...x };
  const take = (/** @type {Point} */ at, /** @type {Size} */ { w, h }) => {
    x.least = Math.min(x.least, at.x - w / 2);
    x.most = Math.max(x.most, at.x + w / 2);
    y.least = Math.min(y.least, at.y - h / 2);
    y.most = Math.max(y.most, at.y + h / 2);
  };
  for (const centre of centres) take(centre, card);
  for (const curve of routes.values()) for (let i = 0; i <= 8; i++) take(pointAlong(curve, i / 8), packet);
  return { x: x.least - 3, y: y.least - 3, w: x.most - x.least + 6, h: y.most - y.least + 6 };
}
