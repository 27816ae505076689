// The picture of a run that stands still: who waits for whom, and what one rank that receives first would do.

import { html, moveTo, svg } from "../common/dom.js";
import { MOST_HUES } from "../player/hues.js";
import { pointAlong } from "../player/routes.js";
import { mark } from "./sheet.js";

/** @typedef {import("./types.js").Verdict} Verdict */
/** @typedef {{x: number, y: number}} Point */

const CARD = { w: 176, h: 92 };
const SMALL = { w: 136, h: 84 };
const STEP_MS = 900;

/** @param {string} words @param {number} most */
const short = (words, most) => (words.length > most ? `${words.slice(0, most - 1)}…` : words);

/**
 * Where each rank's card stands, on an ellipse from the top.
 *
 * @param {number} ranks
 * @param {{w: number, h: number}} room
 * @param {{w: number, h: number}} card
 * @returns {Point[]}
 */
function places(ranks, room, card) {
  return Array.from({ length: ranks }, (_, rank) => {
    const turn = (2 * Math.PI * rank) / ranks - Math.PI / 2;
    return {
      x: room.w / 2 + (room.w / 2 - card.w / 2 - 3) * Math.cos(turn),
      y: room.h / 2 + (room.h / 2 - card.h / 2 - 3) * Math.sin(turn),
    };
  });
}

/**
 * The point on a card's edge towards another point, and a little outside of it.
 *
 * @param {Point} from
 * @param {Point} to
 * @param {{w: number, h: number}} card
 * @param {number} out
 */
function edge(from, to, card, out) {
  const [dx, dy] = [to.x - from.x, to.y - from.y];
  const by = Math.min(card.w / 2 / Math.max(Math.abs(dx), 1e-6), card.h / 2 / Math.max(Math.abs(dy), 1e-6));
  const length = Math.hypot(dx, dy) || 1;
  return { x: from.x + dx * by + (dx / length) * out, y: from.y + dy * by + (dy / length) * out };
}

/**
 * An arrow from card to card that bends outwards.
 *
 * @param {Point} a
 * @param {Point} b
 * @param {Point} middle of the picture
 * @param {{w: number, h: number}} card
 */
function way(a, b, middle, card) {
  const half = { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 };
  const across = Math.hypot(half.x - middle.x, half.y - middle.y);
  // through the middle it bends to its left, so that there and back are two ways
  const out = across < 8 ? { x: b.y - a.y, y: a.x - b.x } : { x: half.x - middle.x, y: half.y - middle.y };
  const length = Math.hypot(out.x, out.y) || 1;
  const bend = 0.34 * Math.hypot(b.x - a.x, b.y - a.y);
  const by = { x: half.x + (out.x / length) * bend, y: half.y + (out.y / length) * bend };
  const [from, to] = [edge(a, by, card, 5), edge(b, by, card, 7)];
  const fixed = (/** @type {Point} */ { x, y }) => `${x.toFixed(1)} ${y.toFixed(1)}`;
  return { d: `M${fixed(from)}Q${fixed(by)} ${fixed(to)}`, from, by, to };
}

/** The ranks of a circle, the first once more at its end. @param {number[]} circle @param {string} between */
const around = (circle, between) => [...circle, circle[0]].join(between);

const DOING = { waiting: "waits", returned: "has returned", stopped: "stopped" };

export class WaitsPicture {
  #timer = 0;
  #frame = 0;
  /** @type {SVGElement[]} */
  #cards = [];

  /** @param {Verdict} verdict whose run stands still */
  constructor(verdict) {
    this.verdict = verdict;
    this.box = html("div", { class: "waits-stage" });
    this.root = html("div", { class: "waits", role: "group", "aria-label": this.words });
    this.root.append(this.box);
    if (verdict.receive_first?.length) this.root.append(this.#question(verdict.receive_first));
    this.watcher = new ResizeObserver(() => this.draw());
    this.watcher.observe(this.box);
  }

  /** What the picture shows, for those who hear it. */
  get words() {
    const { waits, circle } = this.verdict;
    const each = waits.map(({ rank, call, for: peers, doing, line }) => {
      const whom = peers.length ? ` for rank ${peers.join(" and ")}` : "";
      const where = `${doing === "waiting" ? ` in ${call}${whom}` : ""}${line ? `, line ${line}` : ""}`;
      return `rank ${rank} ${DOING[doing]}${where}`;
    });
    return `${each.join("; ")}.${circle ? ` The circle: ${around(circle, ", ")}.` : ""}`;
  }

  draw() {
    const width = this.box.clientWidth;
    if (!width) return;
    this.stop();
    const { waits, circle } = this.verdict;
    const ranks = waits.length;
    const crowded = ranks > 4 || width < 520;
    const card = crowded ? SMALL : CARD;
    const room = { w: width, h: ranks > 6 ? 460 : ranks > 4 ? 420 : width < 520 ? 400 : 340 };
    const [w, h] = [Math.min(room.w, 590), room.h];
    const centres = places(ranks, { w, h }, card);
    const sheet = svg("svg", { viewBox: `0 0 ${w} ${h}`, width: w, height: h, "aria-hidden": "true" });
    const defs = svg("defs", {}, sheet);
    for (const kind of ["lost", "wire"]) {
      const size = { viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 13, markerHeight: 11 };
      const marker = svg(
        "marker",
        { id: `waits-${kind}`, ...size, orient: "auto", markerUnits: "userSpaceOnUse" },
        defs,
      );
      svg("path", { d: "M0 0L8 4L0 8z", class: `waits-head-${kind}` }, marker);
    }
    this.ways = svg("g", {}, sheet);
    const middle = { x: w / 2, y: h / 2 };
    const joined = circle ? circle.map((rank, at) => [rank, circle[(at + 1) % circle.length]]) : [];
    const pairs = waits.flatMap(({ rank, for: peers, doing }) =>
      doing === "waiting" ? peers.map((peer) => [rank, peer]) : [],
    );
    for (const [rank, peer] of pairs) {
      if (rank === peer || !centres[peer]) continue;
      const inCircle = !circle || joined.some(([a, b]) => a === rank && b === peer);
      const { d } = way(centres[rank], centres[peer], middle, card);
      svg(
        "path",
        { d, class: inCircle ? "waits-way" : "waits-way aside", "marker-end": "url(#waits-lost)" },
        this.ways,
      );
    }
    this.#cards = waits.map((wait) => this.#card(sheet, centres[wait.rank], wait, card));
    const inMiddle = circle !== null && this.#inMiddle(sheet, circle, middle, centres, card);
    const words = circle && !inMiddle ? `The circle: ${around(circle, " → ")}` : "";
    this.air = svg("g", {}, sheet);
    this.places = { centres, middle, card };
    this.box.replaceChildren(sheet, ...(inMiddle ? [] : [html("p", { class: "waits-circle" }, words)]));
  }

  /**
   * Writes the circle in the middle, where it has room; whether it has.
   *
   * @param {Element} sheet
   * @param {number[]} circle
   * @param {Point} middle
   * @param {Point[]} centres
   * @param {{w: number, h: number}} card
   */
  #inMiddle(sheet, circle, middle, centres, card) {
    const text = around(circle, " → ");
    const half = 4.6 * text.length;
    const beside = (/** @type {Point} */ { x, y }) =>
      Math.abs(x - middle.x) < half + card.w / 2 && Math.abs(y - middle.y) < 24 + card.h / 2;
    if (centres.some(beside)) return false;
    svg("text", { x: middle.x, y: middle.y - 2, class: "waits-middle" }, sheet, text);
    svg("text", { x: middle.x, y: middle.y + 18, class: "waits-label" }, sheet, "the circle");
    return true;
  }

  /**
   * @param {Element} sheet
   * @param {Point} at
   * @param {import("./types.js").Wait} wait
   * @param {{w: number, h: number}} card
   */
  #card(sheet, at, { rank, call, for: peers, doing }, { w, h }) {
    const kind = doing === "waiting" ? "waits-card" : "waits-card over";
    const root = svg("g", { class: kind, transform: moveTo({ x: at.x - w / 2, y: at.y - h / 2 }) }, sheet);
    svg("rect", { width: w, height: h, rx: 8, class: "waits-box" }, root);
    const hue = rank < MOST_HUES ? ` waits-hue-${rank % 4}` : "";
    svg("path", { d: `M0 30v-22a8 8 0 0 1 8 -8h${w - 16}a8 8 0 0 1 8 8v22z`, class: `waits-name${hue}` }, root);
    svg("text", { x: 12, y: 20.5, class: `waits-rank waits-on-${rank % 4}` }, root, `rank ${rank}`);
    const most = Math.floor((w - 20) / 8);
    svg("text", { x: 12, y: 52, class: "waits-call" }, root, short(doing === "waiting" ? call : "", most));
    const whom = peers.length ? ` for rank ${peers.join(", ")}` : "";
    const words = doing === "waiting" ? `waits${whom}` : DOING[doing];
    svg("text", { x: 12, y: h - 16, class: "waits-state" }, root, short(words, most + 3));
    return root;
  }

  /** @param {import("./types.js").First[]} options */
  #question(options) {
    const said = html("p", { class: "soft waits-said", role: "status" }, "Try one: it plays.");
    const buttons = options.map((option) => {
      const button = html(
        "button",
        { type: "button", "aria-pressed": "false", "data-first": option.rank },
        mark(option.rank),
        `rank ${option.rank}`,
      );
      button.addEventListener("click", () => {
        for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
        said.textContent = option.text;
        this.play(option);
      });
      return button;
    });
    const words = html("h3", {}, "Let one rank receive first. Who can go on then?");
    return html("div", { class: "waits-question" }, words, html("div", { class: "line" }, ...buttons), said);
  }

  /**
   * Plays what happens when one rank receives first, message by message.
   *
   * @param {import("./types.js").First} option
   */
  play(option) {
    this.draw();
    this.root.dataset.plays = String(option.rank);
    const calm = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
    const next = (/** @type {number} */ at) => {
      const message = option.messages[at];
      if (!message) {
        this.root.dataset.played = String(at);
        if (option.ends) this.ways?.replaceChildren();
        return;
      }
      this.#send(message, calm, () => {
        this.#timer = window.setTimeout(() => next(at + 1), calm ? STEP_MS : 60);
      });
    };
    delete this.root.dataset.played;
    next(0);
  }

  /**
   * @param {[number, number]} message
   * @param {boolean} calm
   * @param {() => void} then
   */
  #send([src, dst], calm, then) {
    if (!this.places || !this.air) return;
    const { centres, middle, card } = this.places;
    const curve = way(centres[src], centres[dst], middle, card);
    svg("path", { d: curve.d, class: "waits-sent", "marker-end": "url(#waits-wire)" }, this.air);
    const packet = svg("g", { class: "waits-packet" }, this.air);
    svg("rect", { x: -24, y: -16, width: 48, height: 32, rx: 6 }, packet);
    svg("rect", { x: -15, y: -10, width: 12, height: 20, rx: 2, class: `waits-hue-${src % 4}` }, packet);
    svg("text", { x: 10, y: 5 }, packet, "x");
    const put = (/** @type {number} */ t) => packet.setAttribute("transform", moveTo(pointAlong(curve, t)));
    const arrived = () => {
      packet.remove();
      for (const rank of [src, dst]) this.#cards[rank]?.classList.add("freed");
      then();
    };
    put(calm ? 0.5 : 0);
    if (calm) {
      arrived();
      return;
    }
    const began = performance.now();
    const frame = (/** @type {number} */ now) => {
      const t = Math.min(1, Math.max(0, (now - began) / (STEP_MS / 2)));
      put(t < 0.5 ? 2 * t * t : 1 - 2 * (1 - t) ** 2);
      if (t < 1) this.#frame = requestAnimationFrame(frame);
      else arrived();
    };
    this.#frame = requestAnimationFrame(frame);
  }

  stop() {
    cancelAnimationFrame(this.#frame);
    clearTimeout(this.#timer);
  }

  remove() {
    this.stop();
    this.watcher.disconnect();
    this.root.remove();
  }
}
