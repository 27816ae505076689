// The picture in full, up to 16 ranks: a card for each rank, lines between them, packets that fly. Packets have a layer
// of their own, so that a frame moves a few small groups and repaints nothing else.

import { moveTo, svg } from "../common/dom.js";
import { placeCards } from "./layouts.js";
import { drawPacket } from "./packet.js";
import { cardShape, RankCard } from "./rank_card.js";
import { pointAlong, route } from "./routes.js";

/** @typedef {import("./data.js").Layout} Layout */
/** @typedef {import("./data.js").Transfer} Transfer */
/** @typedef {import("./layouts.js").Point} Point */
/** @typedef {import("./playback.js").Playback} Playback */
/** @typedef {import("./routes.js").Curve} Curve */
/** @typedef {"busy" | "stuck" | "past"} LinkState past: the step before used it */

export class DetailedView {
  /** How many links are in use. */
  busy = 0;
  /** @type {RankCard[]} */
  #cards = [];
  /** @type {Map<number, Curve>} by src * ranks + dst */
  #routes = new Map();
  /** @type {Map<number, SVGPathElement>} by src * ranks + dst */
  #lines = new Map();
  /** @type {Map<number, SVGGElement>} by the transfer's index */
  #packets = new Map();
  /** @type {SVGTextElement[]} the step, in the middle of a ring, and below it what the receivers do */
  #middle = [];
  /** The state of all links as it was drawn. */
  #drawnLinks = "";
  /** @type {boolean | undefined} whether no step was going on when the cells were drawn */
  #drawnResting;
  #board = svg("svg");
  #air = svg("svg");

  /**
   * @param {Playback} playback
   * @param {Layout} layout
   * @param {string} uid
   * @param {boolean} narrow whether it has half the width
   */
  constructor(playback, layout, uid, narrow) {
    this.playback = playback;
    this.uid = uid;
    this.narrow = narrow;
    this.root = document.createElement("div");
    this.root.className = "ar-stage";
    this.root.setAttribute("aria-hidden", "true");
    this.shape = cardShape(playback);
    this.packet = playback.chunks ? { w: 38, h: playback.ranks > 8 ? 30 : 34 } : { w: 52, h: 20 };
    this.show(layout);
  }

  /** @param {Layout} layout */
  show(layout) {
    const { playback, packet } = this;
    this.root.dataset.layout = layout;
    const joined = new Set(playback.links.map(([src, dst]) => `${src}-${dst}`));
    const bothWays = (/** @type {[number, number]} */ [src, dst]) => joined.has(`${dst}-${src}`);
    const gap = { x: packet.w + 16, y: packet.h + (playback.chunks ? 14 : 34) };
    if (layout === "grid" && playback.links.some(bothWays)) {
      // two packets pass each other in the lanes between the cards
      gap.x += packet.w;
      gap.y += packet.h;
    }
    const { card } = this.shape;
    const centres = placeCards(layout, playback, card, gap, this.narrow);
    this.#routes = new Map();
    for (const link of playback.links) {
      const [src, dst] = link;
      const curve = route(centres, src, dst, card, packet, bothWays(link), layout === "grid");
      this.#routes.set(src * playback.ranks + dst, curve);
    }
    const box = this.#box(centres);
    // one unit is at most one pixel and a tenth, so that a small picture is not blown up
    this.root.style.maxWidth = `${Math.round(box.w * 1.1)}px`;
    const viewBox = `${box.x} ${box.y} ${box.w} ${box.h}`;
    this.#board = svg("svg", { viewBox, class: "ar-board" });
    this.#air = svg("svg", { viewBox, class: "ar-air" });
    this.root.replaceChildren(this.#board, this.#air);
    this.#addMarks();
    const under = svg("g", {}, this.#board);
    this.#lines = new Map();
    for (const [src, dst] of playback.links) {
      const { from, by, to } = this.#routeOf(src, dst);
      const fixed = (/** @type {Point} */ { x, y }) => `${x.toFixed(1)} ${y.toFixed(1)}`;
      const d = `M${fixed(from)}Q${fixed(by)} ${fixed(to)}`;
      const line = svg("path", { d, class: "ar-link", "data-link": `${src}-${dst}` }, under);
      this.#lines.set(src * playback.ranks + dst, line);
    }
    this.#cards = centres.map((at, rank) => new RankCard(this.#board, at, rank, playback, this.shape, this.uid));
    this.#packets = new Map();
    this.#addMiddle(layout, { x: box.x + box.w / 2, y: box.y + box.h / 2 });
    this.refresh();
  }

  /**
   * What holds all cards and all packets on their ways.
   *
   * @param {Point[]} centres
   */
  #box(centres) {
    const x = { least: Number.POSITIVE_INFINITY, most: Number.NEGATIVE_INFINITY };
    const y = { ...x };
    const take = (/** @type {Point} */ at, /** @type {import("./layouts.js").Size} */ { w, h }) => {
      x.least = Math.min(x.least, at.x - w / 2);
      x.most = Math.max(x.most, at.x + w / 2);
      y.least = Math.min(y.least, at.y - h / 2);
      y.most = Math.max(y.most, at.y + h / 2);
    };
    for (const centre of centres) take(centre, this.shape.card);
    for (const curve of this.#routes.values()) {
      for (let i = 0; i <= 8; i++) take(pointAlong(curve, i / 8), this.packet);
    }
    return { x: x.least - 8, y: y.least - 8, w: x.most - x.least + 16, h: y.most - y.least + 16 };
  }

  // Arrow heads, and the hatching of what is counted twice.
  #addMarks() {
    const defs = svg("defs", {}, this.#board);
    for (const kind of ["busy", "stuck"]) {
      const size = { viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 9, markerHeight: 9 };
      const turn = { orient: "auto", markerUnits: "userSpaceOnUse" };
      const marker = svg("marker", { id: `${this.uid}-${kind}`, ...size, ...turn }, defs);
      svg("path", { d: "M0 0L8 4L0 8z", class: `ar-head-${kind}` }, marker);
    }
    const tile = { width: 4, height: 4, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" };
    const hatch = svg("pattern", { id: `${this.uid}-twice`, ...tile }, defs);
    svg("rect", { width: 2, height: 4, fill: "#000" }, hatch);
  }

  /**
   * The step in words, in the middle of a ring where no way crosses it.
   *
   * @param {Layout} layout
   * @param {Point} centre
   */
  #addMiddle(layout, { x, y }) {
    this.#middle = [];
    if (layout !== "ring" || this.playback.ranks < 3) return;
    for (const curve of this.#routes.values()) {
      for (let i = 1; i < 6; i++) {
        const at = pointAlong(curve, i / 6);
        if (Math.abs(at.x - x) < 90 && Math.abs(at.y - y) < 34) return;
      }
    }
    this.#middle = [
      svg("text", { x, y: y - 6, class: "ar-middle" }, this.#board),
      svg("text", { x, y: y + 16, class: "ar-label" }, this.#board),
    ];
  }

  /**
   * @param {number} src
   * @param {number} dst
   */
  #routeOf(src, dst) {
    return /** @type {Curve} */ (this.#routes.get(src * this.playback.ranks + dst));
  }

  /** Redraws what the cells hold; called when a message has landed, not every frame. */
  refresh() {
    /** @type {Set<number>} */
    const fresh = new Set();
    for (const { dst, chunks, delivered } of this.playback.justLanded()) {
      if (delivered) for (const chunk of chunks) fresh.add(dst * this.playback.chunks + chunk);
    }
    for (const card of this.#cards) card.showContents(fresh);
    this.#showStates();
  }

  #showStates() {
    const waits = new Map(this.playback.waits().map((wait) => [wait.rank, wait]));
    for (const card of this.#cards) card.showState(waits.get(card.rank));
  }

  /**
   * One frame: packets where they are, busy links thick.
   *
   * @param {boolean} changed whether a message has landed
   * @param {boolean} eased whether packets start and stop softly
   */
  frame(changed, eased) {
    const { playback } = this;
    if (changed || this.#drawnResting !== playback.resting) this.refresh();
    this.#drawnResting = playback.resting;
    const flying = playback.flying();
    const stuck = playback.stuck();
    /** @type {Map<number, LinkState>} by src * ranks + dst */
    const links = new Map();
    const shown = new Set();
    for (const [transfer, t] of flying) {
      if (!transfer.delivered) continue;
      shown.add(transfer.index);
      links.set(transfer.src * playback.ranks + transfer.dst, "busy");
      this.#movePacket(transfer, playback.axis === "step" && eased ? ease(t) : t);
    }
    for (const transfer of stuck) {
      shown.add(transfer.index);
      links.set(transfer.src * playback.ranks + transfer.dst, "stuck");
      const [, t] = flying.find(([other]) => other === transfer) ?? [transfer, 1];
      this.#movePacket(transfer, Math.min(0.45, t));
    }
    for (const { src, dst, delivered } of playback.justLanded()) {
      const key = src * playback.ranks + dst;
      if (delivered && !links.has(key)) links.set(key, "past");
    }
    for (const [index, packet] of this.#packets) {
      if (shown.has(index)) continue;
      packet.remove();
      this.#packets.delete(index);
    }
    this.#showLinks(links, changed);
    this.busy = [...links.values()].filter((state) => state !== "past" || playback.resting).length;
    if (!playback.transfers.length) for (const card of this.#cards) card.showActivity();
    this.#showMiddle();
  }

  /**
   * @param {Map<number, LinkState>} links
   * @param {boolean} changed
   */
  #showLinks(links, changed) {
    const drawn = [...links].join();
    if (drawn === this.#drawnLinks && !changed) return;
    this.#drawnLinks = drawn;
    for (const [key, line] of this.#lines) {
      const state = links.get(key);
      line.setAttribute("class", `ar-link${state ? ` ar-${state}` : ""}`);
      if (state) line.setAttribute("marker-end", `url(#${this.uid}-${state === "stuck" ? "stuck" : "busy"})`);
      else line.removeAttribute("marker-end");
    }
    this.#showStates();
  }

  #showMiddle() {
    if (!this.#middle.length) return;
    const step = this.playback.current;
    const transfers = this.playback.byStep[step - 1] ?? [];
    this.#middle[0].textContent = step ? `step ${step}` : "start";
    this.#middle[1].textContent = transfers.length && this.playback.chunks ? effectOf(transfers) : "";
  }

  /**
   * @param {Transfer} transfer
   * @param {number} t how far it has come, 0 to 1
   */
  #movePacket(transfer, t) {
    let packet = this.#packets.get(transfer.index);
    if (!packet) {
      packet = drawPacket(transfer, this.playback, this.packet);
      this.#air.append(packet);
      this.#packets.set(transfer.index, packet);
    }
    packet.setAttribute("transform", moveTo(pointAlong(this.#routeOf(transfer.src, transfer.dst), t)));
  }
}

/**
 * What the receivers of a step do, where all do the same.
 *
 * @param {Transfer[]} transfers
 */
function effectOf(transfers) {
  if (transfers.every((transfer) => !transfer.delivered)) return "✗ nobody receives";
  if (transfers.every((transfer) => transfer.reduce)) return "+ the receiver adds";
  return transfers.every((transfer) => transfer.does === "stores") ? "= the receiver stores" : "";
}

/** @param {number} t */
function ease(t) {
  return t < 0.5 ? 4 * t * t * t : 1 - (2 - 2 * t) ** 3 / 2;
}
