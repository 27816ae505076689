// The picture for many ranks: a dot a rank with the messages between them, and a heat map of rank by chunk whose shade says
// how many contributions a cell holds. Everything on one canvas.

// Which of the 257 shades a share has; by its root, so that the first few of many contributions are already seen.
function tone(share) {
  return share >= 1 ? 256 : Math.min(255, Math.round(Math.sqrt(share) * 255));
}

class Dense {
  constructor(reel, layout) {
    this.reel = reel;
    this.root = document.createElement("div");
    this.root.className = "ar-stage ar-dense";
    this.root.setAttribute("aria-hidden", "true");
    this.canvas = document.createElement("canvas");
    this.root.append(this.canvas);
    this.sizes = reel.contributions.map((runs) => {
      let sum = 0;
      for (let i = 0; i < runs.length; i += 2) sum += runs[i + 1] - runs[i] + 1;
      return sum;
    });
    // no spread: 400 x 400 cells are more than a call takes arguments
    const full = reel.goal.length ? reel.goal.map(([, , bag]) => this.sizes[bag]) : this.sizes;
    this.most = full.reduce((a, b) => Math.max(a, b), 1);
    // layers of repeats begin again at a lower rank
    this.twice = reel.contributions.map((runs) => runs.some((low, i) => i && i % 2 === 0 && low <= runs[i - 1]));
    this.matrix = reel.chunks > 1;
    if (this.matrix) {
      this.small = document.createElement("canvas");
      this.small.width = reel.chunks;
      this.small.height = reel.ranks;
    }
    this.wanted = new Float64Array(reel.ranks);
    for (const [rank, , bag] of reel.goal) this.wanted[rank] += this.sizes[bag];
    this.watcher = new ResizeObserver(() => { this.fit(); this.frame(true); });
    this.watcher.observe(this.root);
    this.show(layout);
  }

  show(layout) {
    this.layout = layout;
    this.root.dataset.layout = layout;
    const at = place(layout, this.reel, { w: 8, h: 8 }, { x: 4, y: 10 });
    const xs = at.map((q) => q.x), ys = at.map((q) => q.y);
    const x0 = Math.min(...xs), y0 = Math.min(...ys);
    const wide = Math.max(...xs) - x0 || 1, tall = Math.max(...ys) - y0 || 1;
    this.at = at.map((q) => ({ x: (q.x - x0) / wide, y: (q.y - y0) / tall }));
    this.flat = tall / wide < 0.05;
    this.fit();
  }

  fit() {
    this.width = this.root.clientWidth;
    if (!this.width) return;
    this.height = Math.min(400, this.matrix ? this.width * 0.46 : this.width * 0.5);
    const scale = window.devicePixelRatio || 1;
    this.canvas.width = this.width * scale;
    this.canvas.height = this.height * scale;
    this.canvas.style.height = `${this.height}px`;
    const side = this.height - 44;
    this.map = this.matrix ? { x: this.width - side - 12, y: 22, s: side } : null;
    const right = this.map ? this.map.x - 60 : this.width - 30;
    const round = this.layout === "ring" || this.layout === "all-to-all";
    const w = round ? Math.min(right - 30, side) : right - 30, h = this.flat ? 0 : round ? w : side;
    this.dots = { x: 15 + (right - 15 - w) / 2, y: 22 + (side - h) / 2, w, h };
    const style = getComputedStyle(this.root), colour = (name) => style.getPropertyValue(name).trim();
    this.tones = { ink: colour("--ar-ink"), soft: colour("--ar-soft"), line: colour("--ar-line"), fly: colour("--ar-add"), stuck: colour("--ar-stuck"), font: style.fontFamily };
    this.shades = this.#ramp(colour("--ar-paper"));
  }

  // From the paper's colour to a strong blue, the last shade (everything held) green; a cell counted twice is drawn red.
  #ramp(paper) {
    const probe = document.createElement("canvas").getContext("2d");
    probe.fillStyle = paper || "#fff";
    probe.fillRect(0, 0, 1, 1);
    const [r, g, b] = probe.getImageData(0, 0, 1, 1).data, to = [0, 114, 178];
    return Array.from({ length: 257 }, (_, i) => {
      if (i === 256) return [0, 158, 115];
      const t = i === 0 ? 0 : 0.12 + 0.88 * (i / 256);
      return [r + (to[0] - r) * t, g + (to[1] - g) * t, b + (to[2] - b) * t].map(Math.round);
    });
  }

  share(rank) {
    const { reel } = this;
    if (!reel.chunks) return reel.received[rank] / Math.max(1, ...reel.received);
    let sum = 0;
    for (let c = 0; c < reel.chunks; c++) {
      const id = reel.cells[rank * reel.chunks + c];
      if (id >= 0 && (!this.wanted[rank] || reel.goals.has(rank * reel.chunks + c))) sum += this.sizes[id];
    }
    return Math.min(1, sum / (this.wanted[rank] || reel.chunks * this.most));
  }

  frame(changed) {
    const { reel } = this, flying = reel.flying();
    const past = reel.resting && reel.done > 0 && reel.axis === "step" ? reel.byStep[reel.done - 1] : [];
    const shown = [...flying.map(([leg]) => leg), ...past];
    // the meter asks for it, also before there is a width to draw in
    this.busy = new Set([...shown, ...reel.stuck()].map((leg) => leg.src * reel.ranks + leg.dst)).size;
    if (!this.width) return;
    const scale = window.devicePixelRatio || 1, pen = this.canvas.getContext("2d");
    if (changed || !this.shares) {
      this.shares = Array.from({ length: reel.ranks }, (_, r) => this.share(r));
      this.root.dataset.shares = this.shares.map((s) => s.toFixed(3)).join(",");
      if (this.matrix) this.#paint();
    }
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, this.width, this.height);
    pen.font = `11px ${this.tones.font}`;
    this.#dots(pen, flying, shown);
    if (this.matrix) this.#matrix(pen, flying);
    this.#key(pen);
  }

  #point(rank) {
    return { x: this.dots.x + this.at[rank].x * this.dots.w, y: this.dots.y + this.at[rank].y * this.dots.h };
  }

  #dots(pen, flying, shown) {
    const { reel } = this, big = Math.max(2.2, Math.min(9, (this.dots.w * 1.6) / reel.ranks));
    pen.lineWidth = 0.6;
    pen.strokeStyle = this.tones.line;
    if (reel.links.length <= 4 * reel.ranks) {
      pen.beginPath();
      for (const [a, b] of reel.links) this.#arc(pen, this.#point(a), this.#point(b));
      pen.stroke();
    }
    pen.lineWidth = 1.4;
    pen.strokeStyle = this.tones.fly;
    pen.globalAlpha = reel.ranks > 64 ? 0.6 : 0.85;
    pen.beginPath();
    for (const leg of shown) if (leg.delivered) this.#arc(pen, this.#point(leg.src), this.#point(leg.dst));
    pen.stroke();
    pen.strokeStyle = this.tones.stuck;
    pen.setLineDash([4, 3]);
    pen.beginPath();
    for (const leg of reel.stuck()) this.#arc(pen, this.#point(leg.src), this.#point(leg.dst));
    pen.stroke();
    pen.setLineDash([]);
    pen.globalAlpha = 1;
    for (let r = 0; r < reel.ranks; r++) {
      const q = this.#point(r);
      pen.beginPath();
      pen.arc(q.x, q.y, big, 0, 7);
      pen.fillStyle = this.#shade(this.shares[r]);
      pen.fill();
      pen.lineWidth = 1;
      pen.strokeStyle = this.tones.soft;
      pen.stroke();
    }
    pen.fillStyle = this.tones.fly;
    for (const [leg, t] of flying) {
      const a = this.#point(leg.src), b = this.#point(leg.dst), c = this.#bend(a, b);
      const q = along({ from: a, by: c, to: b }, leg.delivered ? t : Math.min(t, 0.45));
      pen.beginPath();
      pen.arc(q.x, q.y, Math.max(1.6, big * 0.5), 0, 7);
      pen.fill();
    }
    pen.fillStyle = this.tones.soft;
    const marks = reel.ranks <= 32 ? 1 : reel.ranks / 8;
    if (this.layout === "ring" || this.layout === "all-to-all") {
      pen.textAlign = "center";
      for (let r = 0; r < reel.ranks; r += Math.ceil(marks)) {
        const q = this.#point(r), cx = this.dots.x + this.dots.w / 2, cy = this.dots.y + this.dots.h / 2;
        const far = Math.hypot(q.x - cx, q.y - cy) || 1, out = -big - 9;
        pen.fillText(String(r), q.x + ((q.x - cx) / far) * out, q.y + ((q.y - cy) / far) * out + 4);
      }
    }
  }

  #bend(a, b) {
    const straight = this.layout === "ring" || this.layout === "tree";
    const lift = straight ? 0 : this.layout === "line" ? 0.4 : 0.12;
    return { x: (a.x + b.x) / 2 + (b.y - a.y) * lift, y: (a.y + b.y) / 2 - Math.abs(b.x - a.x) * lift };
  }

  #arc(pen, a, b) {
    const c = this.#bend(a, b);
    pen.moveTo(a.x, a.y);
    pen.quadraticCurveTo(c.x, c.y, b.x, b.y);
  }

  #shade(share) {
    const [r, g, b] = this.shades[tone(share)];
    return `rgb(${r},${g},${b})`;
  }

  #paint() {
    const { reel } = this, pen = this.small.getContext("2d"), image = pen.createImageData(reel.chunks, reel.ranks);
    for (let i = 0; i < reel.cells.length; i++) {
      const id = reel.cells[i], goal = reel.goals.get(i), full = goal === undefined ? this.most : this.sizes[goal];
      const has = id < 0 ? 0 : this.sizes[id];
      const shade = this.twice[id] ? [213, 94, 0] : this.shades[id >= 0 && id === goal ? 256 : tone(Math.min(0.999, has / full))];
      image.data.set([shade[0], shade[1], shade[2], 255], 4 * i);
    }
    pen.putImageData(image, 0, 0);
  }

  #matrix(pen, flying) {
    const { x, y, s } = this.map, { reel } = this, w = s / reel.chunks, h = s / reel.ranks;
    pen.imageSmoothingEnabled = false;
    pen.drawImage(this.small, x, y, s, s);
    pen.strokeStyle = this.tones.line;
    pen.lineWidth = 1;
    pen.strokeRect(x - 0.5, y - 0.5, s + 1, s + 1);
    pen.fillStyle = this.tones.fly;
    for (const [leg, t] of flying) {
      const row = leg.src + (leg.dst - leg.src) * (Math.abs(leg.dst - leg.src) === 1 || t > 0.5 ? t : 0);
      for (const c of leg.chunks) pen.fillRect(x + c * w, y + row * h, Math.max(1, w), Math.max(1, h));
    }
    pen.fillStyle = this.tones.soft;
    pen.textAlign = "left";
    pen.fillText(`chunk 0 … ${reel.chunks - 1}`, x, y - 7);
    pen.save();
    pen.translate(x - 7, y + s);
    pen.rotate(-Math.PI / 2);
    pen.fillText(`rank ${reel.ranks - 1} … 0`, 0, 0);
    pen.restore();
  }

  #key(pen) {
    const y = this.height - 14, x = this.map ? this.map.x : this.width - 250;
    for (let i = 0; i < 80; i++) {
      pen.fillStyle = this.#shade((i / 80) ** 2);
      pen.fillRect(x + i, y, 1, 8);
    }
    pen.fillStyle = this.#shade(1);
    pen.fillRect(x + 84, y, 14, 8);
    pen.fillStyle = this.tones.soft;
    pen.textAlign = "left";
    pen.fillText(this.reel.chunks ? "contributions held, all" : "bytes received, most", x + 103, y + 8);
  }

  refresh() {
    this.frame(true);
  }

  end() {
    this.watcher.disconnect();
  }
}
