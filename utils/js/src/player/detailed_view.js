// The picture in full, up to 8 ranks: a card for each rank, lines between them, packets that fly. Packets have a layer
// of their own, so that a frame moves a few small groups and repaints nothing else.

import { moveTo, svg } from "../common/dom.js";
import { arrange, HOWS, largest } from "./card_shape.js";
import { addDots } from "./hues.js";
import { drawPacket } from "./packet.js";
import { RankCard } from "./rank_card.js";
import { pointAlong } from "./routes.js";

/** @typedef {import("./data.js").Layout} Layout */
/** @typedef {import("./data.js").Transfer} Transfer */
/** @typedef {import("./layouts.js").Point} Point */
/** @typedef {import("./playback.js").Playback} Playback */
/** @typedef {import("./routes.js").Curve} Curve */
/** @typedef {"busy" | "stuck" | "past" | "wrong" | "follows"} LinkState past: the step before used it */

/** @type {Layout} what needs the least room */
const RING = "ring";

export class DetailedView {
  /** How many links are in use. */
  busy = 0;
  /** @type {RankCard[]} */
  #cards = [];
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

  /** @type {Layout} */
  #layout = "ring";
  /** Pixels for which it was laid out. */
  #room = { w: 604, h: 360 };
  /** The landing places as they were drawn. */
  #drawnLanding = "";
  /** @type {number | null} the index of the message that the reader has picked */
  picked = null;

  /**
   * @param {Playback} playback
   * @param {Layout} layout
   * @param {string} uid
   */
  constructor(playback, layout, uid) {
    this.playback = playback;
    this.uid = uid;
    this.root = document.createElement("div");
    this.root.className = "ar-stage";
    this.root.setAttribute("aria-hidden", "true");
    /** @type {import("./card_shape.js").Arrangement} */
    this.arrangement = this.show(layout);
    this.watcher = new ResizeObserver(() => this.#resize());
    this.watcher.observe(this.root);
  }

  // Lays the picture out anew where the stage has another size.
  #resize() {
    const { clientWidth: w, clientHeight: h } = this.root;
    if (!w || !h || (Math.abs(w - this.#room.w) < 3 && Math.abs(h - this.#room.h) < 3)) return;
    this.#room = { w, h };
    this.show(this.#layout);
    this.frame(true, true);
  }

  /**
   * @param {Layout} layout
   * @returns {import("./card_shape.js").Arrangement}
   */
  show(layout) {
    const { playback } = this;
    this.#layout = layout;
    this.root.dataset.layout = layout;
    const [fitting, room, how] = this.#fitting(layout);
    this.arrangement = arrange(playback, fitting, room, how);
    const { box, centres, shape } = this.arrangement;
    // one unit is one pixel, so that 12 px of text are 12 px; what has no room is reached by scrolling
    const view = { viewBox: `${box.x} ${box.y} ${box.w} ${box.h}`, width: box.w, height: box.h };
    this.#board = svg("svg", { ...view, class: "ar-board" });
    this.#air = svg("svg", { ...view, class: "ar-air" });
    const sheet = document.createElement("div");
    sheet.className = "ar-sheet";
    sheet.append(this.#board, this.#air);
    this.root.replaceChildren(sheet);
    const cut = box.w > this.#room.w || box.h > this.#room.h;
    this.root.classList.toggle("ar-scrolls", cut);
    if (cut) this.root.scrollLeft = (box.w - this.#room.w) / 2;
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
    this.#cards = centres.map((at, rank) => new RankCard(this.#board, at, rank, playback, shape, this.uid));
    this.#packets = new Map();
    this.#drawnLinks = this.#drawnLanding = "";
    this.#addMiddle(fitting);
    this.refresh();
    return this.arrangement;
  }

  /**
   * The layout and the room that are taken: a tree that is too wide stands round a circle, and ways that bend outwards
   * may be clear only in a lower room. Where packets would cover names or each other, they become smaller.
   *
   * @param {Layout} layout
   * @returns {[Layout, import("./layouts.js").Size, import("./card_shape.js").How]}
   */
  #fitting(layout) {
    const { w, h } = this.#room;
    for (const how of HOWS) {
      for (const other of [layout, RING]) {
        for (const less of [0, 24, 48]) {
          const room = { w, h: h - less };
          if (largest(this.playback, other, room, how)) return [other, room, how];
        }
      }
    }
    return [layout, this.#room, HOWS[0]];
  }

  /**
   * Whether the whole picture has room in a box of this size.
   *
   * @param {import("./layouts.js").Size} room
   * @param {boolean} inAnyLayout round a circle too
   */
  hasRoom(room, inAnyLayout = false) {
    const layouts = inAnyLayout ? [this.#layout, RING] : [this.#layout];
    return layouts.some((layout) => largest(this.playback, layout, room));
  }

  // Arrow heads, the dotted hues, and the hatching of what is counted twice.
  #addMarks() {
    const defs = svg("defs", {}, this.#board);
    for (const kind of ["busy", "stuck"]) {
      const size = { viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 12, markerHeight: 10 };
      const turn = { orient: "auto", markerUnits: "userSpaceOnUse" };
      const marker = svg("marker", { id: `${this.uid}-${kind}`, ...size, ...turn }, defs);
      svg("path", { d: "M0 0L8 4L0 8z", class: `ar-head-${kind}` }, marker);
    }
    addDots(defs, this.playback.ranks, this.uid);
    const tile = { width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" };
    const hatch = svg("pattern", { id: `${this.uid}-twice`, ...tile }, defs);
    svg("rect", { width: 3.5, height: 7, class: "ar-head-stuck" }, hatch);
  }

  /**
   * The step in words, in the middle of a ring where no way crosses it.
   *
   * @param {Layout} layout
   */
  #addMiddle(layout) {
    this.#middle = [];
    const { routes, centres, shape } = this.arrangement;
    if (layout !== "ring" || this.playback.ranks < 3) return;
    if (centres.some(({ x, y }) => Math.abs(x) < shape.card.w / 2 + 68 && Math.abs(y) < shape.card.h / 2 + 28)) return;
    for (const curve of routes.values()) {
      for (let i = 1; i < 6; i++) {
        const at = pointAlong(curve, i / 6);
        if (Math.abs(at.x) < 72 + shape.packet.w / 2 && Math.abs(at.y) < 26 + shape.packet.h / 2) return;
      }
    }
    this.#middle = [
      svg("text", { x: 0, y: -4, class: "ar-middle" }, this.#board),
      svg("text", { x: 0, y: 20, class: "ar-label" }, this.#board),
      svg("text", { x: 0, y: 37, class: "ar-label" }, this.#board),
    ];
  }

  /**
   * @param {number} src
   * @param {number} dst
   */
  #routeOf(src, dst) {
    return /** @type {Curve} */ (this.arrangement.routes.get(src * this.playback.ranks + dst));
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
      links.set(transfer.src * playback.ranks + transfer.dst, this.#stateOf(transfer));
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
    this.#showLanding(flying.map(([transfer]) => transfer));
    for (const [index, packet] of this.#packets) packet.classList.toggle("ar-picked", index === this.picked);
    this.busy = [...links.values()].filter((state) => state !== "past" || playback.resting).length;
    if (!playback.transfers.length) for (const card of this.#cards) card.showActivity();
    this.#showMiddle();
  }

  /**
   * The state of the way on which a message is.
   *
   * @param {Transfer} transfer
   * @returns {LinkState}
   */
  #stateOf(transfer) {
    if (this.playback.amiss.size && transfer.index === this.playback.wrong?.[0]) return "wrong";
    return this.playback.followsFrom(transfer) ? "follows" : "busy";
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
      const head = state === "past" ? "busy" : state === "wrong" ? "stuck" : state;
      if (head && head !== "follows") line.setAttribute("marker-end", `url(#${this.uid}-${head})`);
      else line.removeAttribute("marker-end");
    }
    this.#showStates();
  }

  /**
   * The cells for which something is under way.
   *
   * @param {Transfer[]} flying
   */
  #showLanding(flying) {
    const drawn = flying.map((transfer) => transfer.index).join();
    if (drawn === this.#drawnLanding) return;
    this.#drawnLanding = drawn;
    /** @type {Set<number>[]} */
    const landing = this.#cards.map(() => new Set());
    for (const { dst, chunks, delivered } of flying) if (delivered) for (const chunk of chunks) landing[dst].add(chunk);
    for (const card of this.#cards) card.showLanding(landing[card.rank]);
  }

  #showMiddle() {
    if (!this.#middle.length) return;
    const step = this.playback.current;
    const transfers = this.playback.byStep[step - 1] ?? [];
    const { atEnd, undelivered, waitBars, calls } = this.playback;
    const stuck = undelivered.length || [...waitBars, ...calls].some((bar) => this.playback.neverEnds(bar));
    this.#middle[0].textContent = atEnd ? (stuck ? "stuck" : "done") : step ? `step ${step}` : "start";
    this.#middle[1].textContent =
      transfers.length && this.playback.chunks && !this.playback.atEnd ? effectOf(transfers) : "";
    const { wrong, amiss, steps } = this.playback;
    const why = wrong && amiss.size && transfers.some(({ index }) => index === wrong[0]) ? wrong[1].split("\n") : [];
    if (why.length) this.#middle[0].textContent = `step ${step} of ${steps}`;
    if (why.length) this.#middle[1].textContent = why[0];
    this.#middle[2].textContent = why[1] ?? "";
  }

  /**
   * @param {Transfer} transfer
   * @param {number} t how far it has come, 0 to 1
   */
  #movePacket(transfer, t) {
    let packet = this.#packets.get(transfer.index);
    if (!packet) {
      packet = drawPacket(transfer, this.playback, this.arrangement.shape, this.uid);
      this.#air.append(packet);
      this.#packets.set(transfer.index, packet);
    }
    packet.setAttribute("transform", moveTo(pointAlong(this.#routeOf(transfer.src, transfer.dst), t)));
  }

  remove() {
    this.watcher.disconnect();
  }
}

/**
 * What the receivers of a step do, where all do the same.
 *
 * @param {Transfer[]} transfers
 */
function effectOf(transfers) {
  if (transfers.every((transfer) => !transfer.delivered)) return "nobody receives";
  if (transfers.every((transfer) => transfer.reduce)) return "the receiver adds";
  return transfers.every((transfer) => transfer.does === "stores") ? "the receiver stores" : "";
}

/** @param {number} t */
function ease(t) {
  return t < 0.5 ? 4 * t * t * t : 1 - (2 - 2 * t) ** 3 / 2;
}
