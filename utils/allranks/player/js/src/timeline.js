// A lane a rank: what it sends above, what it receives below. Click or drag to scrub. Drawn on a canvas, so that 130,000
// messages cost no more nodes than four; what a bar means is told under the pointer and in the table of the step.

class Timeline {
  constructor(reels, onSeek) {
    this.reels = reels;
    this.onSeek = onSeek;
    this.zoom = 1;
    this.from = 0;
    this.root = document.createElement("div");
    this.root.className = "ar-timeline";
    this.root.setAttribute("aria-hidden", "true");
    this.canvas = document.createElement("canvas");
    this.cursor = document.createElement("div");
    this.cursor.className = "ar-cursor";
    this.tip = document.createElement("div");
    this.tip.className = "ar-tip";
    this.tip.hidden = true;
    this.root.append(this.canvas, this.cursor, this.tip);
    this.left = 62;
    const rows = reels.reduce((sum, reel) => sum + reel.ranks, 0);
    this.lane = rows <= 8 ? 24 : rows <= 16 ? 14 : Math.max(1, 230 / rows);
    this.gap = reels.length > 1 ? 20 : 0;
    this.height = 16 + rows * this.lane + (reels.length - 1) * this.gap + (reels.length > 1 ? 14 * reels.length : 0);
    this.root.style.height = `${this.height}px`;
    this.root.addEventListener("pointerdown", (e) => {
      if (e.button) return;
      this.root.setPointerCapture(e.pointerId);
      this.drag = true;
      this.#scrub(e);
    });
    this.root.addEventListener("pointermove", (e) => (this.drag ? this.#scrub(e) : this.#hover(e)));
    this.root.addEventListener("lostpointercapture", () => { this.drag = false; });
    this.root.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    this.root.addEventListener("wheel", (e) => {
      if (!e.ctrlKey && !e.metaKey) return;
      e.preventDefault();
      this.zoomBy(e.deltaY < 0 ? 1.25 : 0.8, this.#value(e));
    }, { passive: false });
    this.watcher = new ResizeObserver(() => this.draw());
    this.watcher.observe(this.root);
  }

  get length() {
    return Math.max(...this.reels.map((reel) => reel.length), 1e-9);
  }

  zoomBy(factor, around = null) {
    const mark = around ?? this.reels[0].clockAt(this.reels[0].position ?? 0);
    const share = (mark - this.from) / (this.length / this.zoom);
    this.zoom = Math.min(200, Math.max(1, this.zoom * factor));
    const wide = this.length / this.zoom;
    this.from = Math.min(this.length - wide, Math.max(0, mark - (share >= 0 && share <= 1 ? share : 0.5) * wide));
    this.draw();
  }

  x(value) {
    return this.left + ((value - this.from) / (this.length / this.zoom)) * (this.width - this.left - 6);
  }

  #value(e) {
    const box = this.root.getBoundingClientRect();
    const share = (e.clientX - box.left - this.left) / (box.width - this.left - 6);
    return Math.min(this.length, Math.max(0, this.from + share * (this.length / this.zoom)));
  }

  #scrub(e) {
    this.onSeek(this.#value(e));
  }

  #hover(e) {
    const box = this.root.getBoundingClientRect(), y = e.clientY - box.top;
    const rowAt = this.tops.findIndex((top, i) => y >= top && y < top + this.reels[i].ranks * this.lane);
    let words = "";
    if (rowAt >= 0) {
      const reel = this.reels[rowAt], rank = Math.floor((y - this.tops[rowAt]) / this.lane), value = this.#value(e);
      const inside = (x) => { const [from, to] = reel.span(x); return from <= value && value < to; };
      const legs = reel.axis === "step" ? reel.byStep[Math.floor(value)] ?? [] : reel.legs;
      for (const leg of legs) {
        if ((leg.src === rank || leg.dst === rank) && inside(leg)) {
          words += `${leg.src} → ${leg.dst}: ${leg.chunks.length ? `${chunkName(leg)}, ` : ""}${reel.amount(leg.nbytes)}${leg.reduce ? ", added" : ""}${leg.line ? `, line ${leg.line}` : ""}\n`;
        }
        if (words.length > 300) break;
      }
      for (const bar of reel.bars) if (bar.rank === rank && inside(bar)) words += `${bar.label ?? bar.op}${bar.line ? `, line ${bar.line}` : ""}\n`;
    }
    this.tip.hidden = !words;
    this.tip.textContent = words.trim();
    this.tip.style.left = `${Math.min(e.clientX - box.left + 12, box.width - 180)}px`;
    // in the lower half above the pointer, so that it does not hang far below the lanes
    const low = y > this.height / 2;
    this.tip.style.top = low ? "auto" : `${y + 14}px`;
    this.tip.style.bottom = low ? `${this.height - y + 8}px` : "auto";
  }

  draw() {
    this.width = this.root.clientWidth;
    if (!this.width) return;
    const scale = window.devicePixelRatio || 1, canvas = this.canvas;
    canvas.width = this.width * scale;
    canvas.height = this.height * scale;
    const pen = canvas.getContext("2d"), style = getComputedStyle(this.root);
    const tone = (name) => style.getPropertyValue(name).trim();
    pen.scale(scale, scale);
    pen.font = `11px ${style.fontFamily}`;
    pen.textBaseline = "middle";
    const tones = { ink: tone("--ar-ink"), soft: tone("--ar-soft"), line: tone("--ar-line"), send: tone("--ar-send"), add: tone("--ar-add"), copy: tone("--ar-copy"), stuck: tone("--ar-stuck"), work: tone("--ar-work"), paper: tone("--ar-paper") };
    this.tops = [];
    let top = 16;
    this.reels.forEach((reel, i) => {
      if (this.reels.length > 1) {
        pen.fillStyle = tones.ink;
        pen.fillText(reel.title, this.left, top + 4);
        top += 14;
      }
      this.tops.push(top);
      this.#lanes(pen, reel, top, tones);
      top += reel.ranks * this.lane + this.gap;
    });
    this.#scale(pen, tones);
    this.move();
  }

  #scale(pen, tones) {
    const wide = this.length / this.zoom, reel = this.reels[0];
    const rough = wide / Math.max(2, (this.width - this.left) / 70), power = 10 ** Math.floor(Math.log10(rough));
    const tick = [1, 2, 5, 10].map((f) => f * power).find((t) => t >= rough);
    pen.font = `11px ${getComputedStyle(this.root).fontFamily}`;
    pen.fillStyle = tones.soft;
    pen.strokeStyle = tones.line;
    pen.lineWidth = 1;
    pen.textAlign = "center";
    // as many as tell two ticks apart
    const digits = Math.max(3, Math.ceil(Math.log10(this.length / power)));
    const by = reel.axis === "step" ? Math.max(1, Math.round(tick)) : tick;
    for (let v = Math.ceil(this.from / by) * by; v <= this.from + wide + 1e-9; v += by) {
      const at = this.x(v);
      pen.beginPath();
      pen.moveTo(at, 13);
      pen.lineTo(at, this.height);
      pen.globalAlpha = 0.5;
      pen.stroke();
      pen.globalAlpha = 1;
      pen.fillText(reel.axis === "step" ? String(v) : duration(v, digits), Math.min(at, this.width - 16), 6);
    }
    pen.textAlign = "left";
    pen.fillText(reel.axis === "step" ? "step" : "time", 4, 6);
  }

  #lanes(pen, reel, top, tones) {
    const lane = this.lane, half = lane > 4 ? (lane - 3) / 2 : lane / 2;
    pen.textAlign = "left";
    pen.font = `11px ${getComputedStyle(this.root).fontFamily}`;
    for (let rank = 0; rank < reel.ranks; rank++) {
      const y = top + rank * lane;
      if (lane >= 9 || (rank % Math.ceil(13 / lane) === 0 && rank + 8 / lane < reel.ranks)) {
        pen.fillStyle = tones.soft;
        pen.fillText(`rank ${rank}`, 4, y + Math.max(lane, 8) / 2);
      }
      if (lane >= 6) {
        pen.fillStyle = tones.line;
        pen.fillRect(this.left, y + lane - 1, this.width - this.left - 6, 0.5);
      }
    }
    const clip = this.from + this.length / this.zoom;
    const bar = (rank, from, to, y, h, colour, text) => {
      if (to < this.from || from > clip) return;
      const a = Math.max(this.left, this.x(from)), b = Math.min(this.width - 6, this.x(to)), y0 = top + rank * lane + y;
      pen.fillStyle = colour;
      pen.fillRect(a, y0, Math.max(0.6, b - a - (b - a > 12 ? 1 : 0)), h);
      if (text && h >= 7 && b - a > text.length * 6 + 4) {
        pen.fillStyle = tones.paper;
        pen.font = `bold ${Math.min(10, h + 1)}px ${getComputedStyle(this.root).fontFamily}`;
        pen.fillText(text, a + 3, y0 + h / 2 + 0.5);
      }
    };
    for (const leg of reel.legs) {
      const [from, to] = reel.span(leg);
      if (leg.delivered) {
        if (lane > 5) bar(leg.src, from, to, 0, half, tones.send, `→${leg.dst} ${chunkName(leg)}`);
        bar(leg.dst, from, to, lane > 5 ? half : 0, lane > 5 ? half : lane, leg.reduce ? tones.add : tones.copy, `${leg.sign} ${chunkName(leg)}`.trim());
      } else {
        this.#hatch(pen, top + leg.src * lane, from, reel.length, half * 2, tones.stuck);
        bar(leg.src, from, from + (reel.length - from) / 1e6, 0, half * 2, tones.stuck, "");
      }
    }
    for (const item of reel.bars) {
      const [from, to] = reel.span(item);
      if (item.op === "wait") this.#hatch(pen, top + item.rank * lane, from, to, half * 2, item.end_step === null ? tones.stuck : tones.soft);
      else if (item.op === "compute") bar(item.rank, from, to, 0, half, tones.work, item.label ?? item.op);
      else bar(item.rank, from, to, half, half, tones.copy, item.label ?? item.op);
    }
  }

  #hatch(pen, y, from, to, h, colour) {
    const a = Math.max(this.left, this.x(from)), b = Math.min(this.width - 6, this.x(to));
    if (b <= a) return;
    pen.save();
    pen.beginPath();
    pen.rect(a, y, b - a - 1, h);
    pen.clip();
    pen.strokeStyle = colour;
    pen.lineWidth = 1.5;
    for (let x = a - h; x < b; x += 6) {
      pen.beginPath();
      pen.moveTo(x, y + h);
      pen.lineTo(x + h, y);
      pen.stroke();
    }
    pen.lineWidth = 2;
    pen.strokeRect(a, y, b - a - 1, h);
    pen.restore();
  }

  // Only the cursor, every frame.
  move() {
    if (!this.width) return;
    const reel = this.reels.reduce((a, b) => (b.length > a.length ? b : a));
    const at = this.x(reel.clockAt(reel.position ?? 0));
    this.cursor.style.transform = `translateX(${Math.round(at * 10) / 10}px)`;
    this.cursor.hidden = at < this.left - 1 || at > this.width;
  }

  end() {
    this.watcher.disconnect();
  }
}
