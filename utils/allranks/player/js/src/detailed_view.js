// The picture in full, up to 16 ranks: a card a rank, a cell a chunk, a stripe a contributor. Packets fly on a layer of their own,
// so that a frame moves a few small groups and repaints nothing else.

const SVG = "http://www.w3.org/2000/svg";
// Okabe and Ito's colours without black; from the eighth rank on the same ones in a lighter shade
const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7", "#f0e442", "#8a8a8a",
  "#6db3dc", "#f6cf7a", "#74cdb3", "#eb9a66", "#a9d9f4", "#e5bcd3", "#f8f3a6", "#c4c4c4"];
const INK = ["#fff", "#000", "#000", "#000", "#000", "#000", "#000", "#000"];

function make(name, attributes = {}, parent = null, text = null) {
  const node = document.createElementNS(SVG, name);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  if (text !== null) node.textContent = text;
  if (parent) parent.append(node);
  return node;
}

class Stage {
  constructor(reel, layout, uid, narrow) {
    this.reel = reel;
    this.narrow = narrow;
    this.uid = uid;
    this.root = document.createElement("div");
    this.root.className = "ar-stage";
    this.root.setAttribute("aria-hidden", "true");
    const p = reel.ranks, n = reel.chunks, tall = p > 8 ? 60 : 44;
    this.stripe = tall / p;
    this.cell = { w: n === 1 ? 60 : n <= 20 ? Math.min(26, Math.max(5, 118 / n - 3)) : Math.max(2, 130 / n), h: tall };
    this.cellGap = n <= 20 ? 3 : 1;
    const inner = n ? n * (this.cell.w + this.cellGap) - this.cellGap : 108;
    this.labels = n > 0 && this.cell.w >= 10;
    // the rank's name has "waits" or "waits for 3" beside it
    const waits = reel.bars.some((bar) => bar.op === "wait"), named = reel.legs.some((leg) => !leg.delivered) || reel.bars.some((bar) => bar.op === "wait" && bar.peer !== null);
    this.card = { w: Math.max(named ? 128 : waits ? 112 : 96, inner + 20), h: n ? 24 + tall + (this.labels ? 15 : 8) : 62 };
    this.left = -inner / 2;
    this.packet = n ? { w: 38, h: p > 8 ? 30 : 34 } : { w: 52, h: 20 };
    this.show(layout);
  }

  show(layout) {
    this.layout = layout;
    this.root.dataset.layout = layout;
    const gap = { x: this.packet.w + 16, y: this.packet.h + (this.reel.chunks ? 14 : 34) };
    const joined = new Set(this.reel.links.map(([a, b]) => `${a}-${b}`));
    if (layout === "grid" && this.reel.links.some(([a, b]) => joined.has(`${b}-${a}`))) {
      // two packets pass each other in the lanes between the cards
      gap.x += this.packet.w;
      gap.y += this.packet.h;
    }
    const at = place(layout, this.reel, this.card, gap, this.narrow);
    this.ways = new Map();
    let box = { x0: Infinity, y0: Infinity, x1: -Infinity, y1: -Infinity };
    const take = (x, y) => {
      box = { x0: Math.min(box.x0, x), y0: Math.min(box.y0, y), x1: Math.max(box.x1, x), y1: Math.max(box.y1, y) };
    };
    for (const { x, y } of at) {
      take(x - this.card.w / 2, y - this.card.h / 2);
      take(x + this.card.w / 2, y + this.card.h / 2);
    }
    for (const [a, b] of this.reel.links) {
      const curve = way(at, a, b, this.card, this.packet, joined.has(`${b}-${a}`), layout === "grid");
      this.ways.set(a * this.reel.ranks + b, curve);
      for (let i = 0; i <= 8; i++) {
        const q = along(curve, i / 8);
        take(q.x - this.packet.w / 2, q.y - this.packet.h / 2);
        take(q.x + this.packet.w / 2, q.y + this.packet.h / 2);
      }
    }
    this.view = [box.x0 - 8, box.y0 - 8, box.x1 - box.x0 + 16, box.y1 - box.y0 + 16];
    // one unit is at most one pixel and a tenth, so that a small picture is not blown up
    this.root.style.maxWidth = `${Math.round(this.view[2] * 1.1)}px`;
    this.root.replaceChildren();
    this.board = make("svg", { viewBox: this.view.join(" "), class: "ar-board" });
    this.air = make("svg", { viewBox: this.view.join(" "), class: "ar-air" });
    this.root.append(this.board, this.air);
    this.#marks();
    const under = make("g", {}, this.board);
    this.lines = new Map();
    for (const [a, b] of this.reel.links) {
      const c = this.ways.get(a * this.reel.ranks + b);
      const d = `M${c.from.x.toFixed(1)} ${c.from.y.toFixed(1)}Q${c.by.x.toFixed(1)} ${c.by.y.toFixed(1)} ${c.to.x.toFixed(1)} ${c.to.y.toFixed(1)}`;
      this.lines.set(a * this.reel.ranks + b, make("path", { d, class: "ar-link", "data-link": `${a}-${b}` }, under));
    }
    this.cards = at.map((where, rank) => this.#card(where, rank));
    this.packets = new Map();
    const x = this.view[0] + this.view[2] / 2, y = this.view[1] + this.view[3] / 2;
    const crossed = [...this.ways.values()].some((c) => [1, 2, 3, 4, 5].some((i) => {
      const q = along(c, i / 6);
      return Math.abs(q.x - x) < 90 && Math.abs(q.y - y) < 34;
    }));
    if (layout === "ring" && this.reel.ranks > 2 && !crossed) {
      this.middle = [make("text", { x, y: y - 6, class: "ar-middle" }, this.board), make("text", { x, y: y + 16, class: "ar-label" }, this.board)];
    } else this.middle = null;
    this.refresh();
  }

  #marks() {
    const defs = make("defs", {}, this.board);
    for (const kind of ["busy", "stuck"]) {
      const marker = make("marker", {
        id: `${this.uid}-${kind}`, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 9, markerHeight: 9,
        orient: "auto", markerUnits: "userSpaceOnUse",
      }, defs);
      make("path", { d: "M0 0L8 4L0 8z", class: `ar-head-${kind}` }, marker);
    }
    const hatch = make("pattern", {
      id: `${this.uid}-twice`, width: 4, height: 4, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)",
    }, defs);
    make("rect", { width: 2, height: 4, fill: "#000" }, hatch);
  }

  #card({ x, y }, rank) {
    const { w, h } = this.card;
    const g = make("g", { class: "ar-rank", "data-rank": rank, transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})` }, this.board);
    make("rect", { x: -w / 2, y: -h / 2, width: w, height: h, rx: 7, class: "ar-card" }, g);
    make("circle", { cx: -w / 2 + 13, cy: -h / 2 + 13, r: 4.5, fill: COLOURS[rank % 16], class: "ar-dot" }, g);
    make("text", { x: -w / 2 + 22, y: -h / 2 + 17, class: "ar-name" }, g, `rank ${rank}`);
    const state = make("text", { x: w / 2 - 8, y: -h / 2 + 17, class: "ar-state" }, g);
    const card = { g, state, cells: [], top: -h / 2 + 24 };
    if (!this.reel.chunks) {
      card.sent = make("text", { x: 0, y: -h / 2 + 36, class: "ar-bytes" }, g);
      card.received = make("text", { x: 0, y: -h / 2 + 51, class: "ar-bytes" }, g);
      return card;
    }
    const columnAt = (c) => this.left + c * (this.cell.w + this.cellGap);
    for (let c = 0; c < this.reel.chunks; c++) {
      make("rect", { x: columnAt(c), y: card.top, width: this.cell.w, height: this.cell.h, class: "ar-empty" }, g);
      if (this.labels) {
        make("text", { x: columnAt(c) + this.cell.w / 2, y: card.top + this.cell.h + 11, class: "ar-label" }, g, this.cell.w >= 20 ? `c${c}` : `${c}`);
      }
    }
    card.fills = Array.from({ length: this.reel.ranks }, (_, r) => make("path", { fill: COLOURS[r % 16] }, g));
    card.twice = make("path", { fill: `url(#${this.uid}-twice)` }, g);
    card.ink = make("g", { class: "ar-ink" }, g);
    for (let c = 0; c < this.reel.chunks; c++) {
      const frame = make("rect", {
        x: columnAt(c), y: card.top, width: this.cell.w, height: this.cell.h, rx: 1.5, class: "ar-cell", "data-rank": rank, "data-chunk": c,
      }, g);
      card.cells.push({ frame, title: make("title", {}, frame), x: columnAt(c) });
    }
    return card;
  }

  // Redraws what the cells hold; called when a message has landed, not every frame.
  refresh() {
    const reel = this.reel, p = reel.ranks, over = reel.position >= reel.steps - 1e-6;
    const fresh = new Set();
    if (reel.resting && reel.done > 0 && reel.axis === "step") {
      for (const leg of reel.byStep[reel.done - 1]) {
        if (leg.delivered) leg.chunks.forEach((c) => fresh.add(leg.dst * reel.chunks + c));
      }
    }
    this.cards.forEach((card, rank) => {
      if (card.sent) {
        if (reel.legs.length) {
          card.sent.textContent = `sent ${size(reel.sent[rank])}`;
          card.received.textContent = `received ${size(reel.received[rank])}`;
        }
        return;
      }
      const paths = Array.from({ length: p }, () => ""), inks = [];
      let twice = "";
      card.cells.forEach((cell, chunk) => {
        const has = reel.held(rank, chunk);
        has.forEach((r, i) => {
          const y = card.top + r * this.stripe;
          const d = `M${cell.x.toFixed(2)} ${y.toFixed(2)}h${this.cell.w.toFixed(2)}v${this.stripe.toFixed(2)}h-${this.cell.w.toFixed(2)}z`;
          if (i && has[i - 1] === r) twice += d;
          else {
            paths[r] += d;
            if (this.stripe >= 8 && this.cell.w >= 14) inks.push([cell.x + this.cell.w / 2, y + this.stripe / 2 + 3, r]);
          }
        });
        const verdict = reel.verdict(rank, chunk);
        const kind = verdict === "done" || verdict === "twice" ? verdict : verdict === "missing" && over ? "missing" : "";
        cell.frame.setAttribute("class", `ar-cell${kind && ` ar-${kind}`}${fresh.has(rank * reel.chunks + chunk) ? " ar-fresh" : ""}`);
        cell.frame.dataset.contrib = has.join(",");
        cell.title.textContent = `rank ${rank}, chunk ${chunk}: ${holds(has)}`;
      });
      paths.forEach((d, r) => card.fills[r].setAttribute("d", d));
      card.twice.setAttribute("d", twice);
      card.ink.replaceChildren(...inks.map(([x, y, r]) => make("text", { x, y, fill: INK[r % 8] }, null, String(r))));
    });
    this.#states();
  }

  #states() {
    const waits = new Map(this.reel.waits().map((w) => [w.rank, w]));
    this.cards.forEach((card, rank) => {
      const wait = waits.get(rank);
      card.g.classList.toggle("ar-waiting", Boolean(wait));
      card.g.classList.toggle("ar-forever", Boolean(wait?.forever));
      const held = card.cells.map((_, c) => this.reel.verdict(rank, c));
      const done = held.some((v) => v === "done") && held.every((v) => v === "done" || v === null);
      card.state.textContent = wait ? (wait.peer === null ? "waits" : `waits for ${wait.peer}`) : done ? "✓" : "";
      card.g.dataset.state = wait ? (wait.forever ? "waiting for ever" : "waiting") : done ? "done" : "";
    });
  }

  // One frame: packets where they are, busy links thick.
  frame(changed, tween) {
    if (changed || this.drawn !== this.reel.resting) this.refresh();
    this.drawn = this.reel.resting;
    const flying = this.reel.flying(), stuck = this.reel.stuck(), keep = new Set(), busy = new Map();
    for (const [leg, t] of flying) {
      if (leg.delivered) {
        keep.add(leg.index);
        busy.set(leg.src * this.reel.ranks + leg.dst, "busy");
        this.#fly(leg, this.reel.axis === "step" && tween ? ease(t) : t);
      }
    }
    for (const leg of stuck) {
      keep.add(leg.index);
      busy.set(leg.src * this.reel.ranks + leg.dst, "stuck");
      this.#fly(leg, Math.min(0.45, (flying.find(([l]) => l === leg) ?? [0, 1])[1]));
    }
    if (this.reel.resting && this.reel.done > 0 && this.reel.axis === "step") {
      for (const leg of this.reel.byStep[this.reel.done - 1]) {
        const key = leg.src * this.reel.ranks + leg.dst;
        if (leg.delivered && !busy.has(key)) busy.set(key, "past");
      }
    }
    for (const [index, node] of this.packets) {
      if (!keep.has(index)) { node.remove(); this.packets.delete(index); }
    }
    const signature = [...busy].join();
    if (signature !== this.signature || changed) {
      this.signature = signature;
      for (const [key, line] of this.lines) {
        const kind = busy.get(key);
        line.setAttribute("class", `ar-link${kind ? ` ar-${kind}` : ""}`);
        if (kind) line.setAttribute("marker-end", `url(#${this.uid}-${kind === "stuck" ? "stuck" : "busy"})`);
        else line.removeAttribute("marker-end");
      }
      this.#states();
    }
    this.busy = [...busy.values()].filter((kind) => kind !== "past" || this.reel.resting).length;
    if (!this.reel.legs.length) this.#doing();
    if (this.middle) {
      const step = Math.ceil(this.reel.position - 1e-6), legs = this.reel.byStep[step - 1] ?? [];
      this.middle[0].textContent = step ? `step ${step}` : "start";
      this.middle[1].textContent = !legs.length || !this.reel.chunks ? "" : legs.every((leg) => !leg.delivered) ? "✗ nobody receives" : legs.every((leg) => leg.reduce) ? "+ the receiver adds" : legs.every((leg) => leg.does === "stores") ? "= the receiver stores" : "";
    }
  }

  // Where no messages are known, each card says what its rank is doing: computing, and taking part in a collective.
  #doing() {
    const now = this.reel.clockAt(this.reel.position);
    this.cards.forEach((card, rank) => {
      if (!card.sent) return;
      const active = this.reel.bars.filter((bar) => {
        const [from, to] = this.reel.span(bar);
        return bar.rank === rank && from <= now && now < to;
      });
      const name = (bar) => (bar ? bar.label ?? bar.op.replace(/_single$|(_into)?_tensor$/, "") : "–");
      card.sent.textContent = `computes ${name(active.find((bar) => bar.op === "compute"))}`;
      card.received.textContent = `moves ${name(active.find((bar) => bar.op !== "compute" && bar.op !== "wait"))}`;
    });
  }

  #fly(leg, t) {
    let node = this.packets.get(leg.index);
    if (!node) {
      node = this.#wrap(leg);
      this.air.append(node);
      this.packets.set(leg.index, node);
    }
    const { x, y } = along(this.ways.get(leg.src * this.reel.ranks + leg.dst), t);
    node.setAttribute("transform", `translate(${x.toFixed(1)} ${y.toFixed(1)})`);
  }

  #wrap(leg) {
    const { w, h } = this.packet, cargo = leg.carried.length === 1 ? this.reel.bag(leg.carried[0]) : [...new Set(leg.carried.flatMap((bag) => this.reel.bag(bag)))];
    const g = make("g", {
      class: `ar-packet${leg.reduce ? " ar-reduce" : ""}${leg.delivered ? "" : " ar-lost"}`,
      "data-src": leg.src, "data-dst": leg.dst, "data-chunks": leg.chunks.join(","), "data-contrib": cargo.join(","),
    });
    make("rect", { x: -w / 2, y: -h / 2, width: w, height: h, rx: 5, class: "ar-parcel" }, g);
    if (!this.reel.chunks) {
      make("text", { x: 0, y: 4, class: "ar-tag" }, g, size(leg.nbytes));
      return g;
    }
    const tall = h - 6, stripe = tall / this.reel.ranks, x = -w / 2 + 4, wide = w > 32 ? 12 : 9;
    make("rect", { x, y: -tall / 2, width: wide, height: tall, class: "ar-empty" }, g);
    cargo.forEach((r) => make("rect", { x, y: -tall / 2 + r * stripe, width: wide, height: stripe, fill: COLOURS[r % 16] }, g));
    const middle = x + wide + (w / 2 - x - wide) / 2;
    const name = chunkName(leg);
    make("text", { x: middle, y: -1, class: name.length > 3 ? "ar-tag ar-small" : "ar-tag" }, g, name);
    make("text", { x: middle, y: h / 2 - 4, class: "ar-op" }, g, leg.sign);
    return g;
  }
}

function ease(t) {
  return t < 0.5 ? 4 * t * t * t : 1 - (2 - 2 * t) ** 3 / 2;
}

function holds(has) {
  if (!has.length) return "empty";
  const counts = new Map();
  for (const r of has) counts.set(r, (counts.get(r) ?? 0) + 1);
  const words = [...counts].map(([r, times]) => (times > 1 ? `${r} (${times} times)` : String(r)));
  return `holds the contribution${words.length > 1 ? "s" : ""} of rank${words.length > 1 ? "s" : ""} ${words.join(" + ")}`;
}
