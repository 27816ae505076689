// A film unpacked for playing: where every message is, and what every cell holds, at any moment.
// Positions are in steps: 2.5 is half-way through the third step. Bags are folded in animation.py; here they are only looked up.

async function inflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

// A table by column as a list of objects.
function rows(columns) {
  const names = Object.keys(columns);
  return columns[names[0]].map((_, i) => Object.fromEntries(names.map((name) => [name, columns[name][i]])));
}

class Reel {
  constructor(film) {
    Object.assign(this, film);
    this.legs = rows(film.transfers).map((leg, index) => ({
      ...leg,
      index,
      // of live ranks nobody saw what the receiver did with it
      does: leg.reduce ? "adds" : leg.effect_known ? "stores" : "receives",
      sign: !leg.delivered ? "✗" : leg.reduce ? "+" : leg.effect_known ? "=" : "",
    }));
    this.bars = rows(film.bars);
    this.byStep = Array.from({ length: this.steps }, () => []);
    this.legs.forEach((leg) => this.byStep[leg.step].push(leg));
    const links = new Map();
    for (const leg of this.legs) links.set(leg.src * this.ranks + leg.dst, [leg.src, leg.dst]);
    this.links = [...links.values()];
    this.members = new Map();
    this.goals = new Map(this.goal.map(([rank, chunk, bag]) => [rank * this.chunks + chunk, bag]));
    this.times = this.timed ? this.#stops() : null;
    this.useAxis("step");
  }

  // When the last message of each step has landed, in microseconds, never going back.
  #stops() {
    const times = new Array(this.steps + 1).fill(0);
    for (const x of [...this.legs, ...this.bars]) {
      const after = (x.end_step ?? x.step) + 1;
      if (x.end !== null && x.end_step !== null) times[after] = Math.max(times[after], x.end);
    }
    for (let k = 1; k < times.length; k++) times[k] = Math.max(times[k], times[k - 1]);
    // what never ends gets some room after all else, or it could not be seen
    const last = times[this.steps], room = last * 0.15 || 1;
    for (const x of [...this.legs.filter((leg) => !leg.delivered), ...this.bars.filter((bar) => bar.end_step === null)]) {
      if ((x.start ?? last) >= last * 0.95) for (let k = x.step + 1; k <= this.steps; k++) times[k] = Math.max(times[k], last + room);
    }
    return times;
  }

  useAxis(axis) {
    this.axis = axis === "time" && this.times ? "time" : "step";
    this.spans = this.legs.map((leg) => this.span(leg));
    this.order = this.legs.map((_, i) => i).sort((a, b) => this.spans[a][1] - this.spans[b][1] || a - b);
    this.starts = this.legs.map((_, i) => i).sort((a, b) => this.spans[a][0] - this.spans[b][0] || a - b);
    this.longest = this.spans.reduce((most, [from, to]) => Math.max(most, to - from), 0);
    this.rewind();
  }

  // From when to when a leg or bar lasts on the axis in use; one without an end lasts to the end.
  span(x) {
    if (this.axis === "time") {
      const last = this.times[this.steps], start = x.start ?? this.times[x.step];
      return [start, x.end === null || x.end_step === null ? Math.max(last, start) : x.end];
    }
    return [x.step, x.end_step === null ? this.steps : (x.end_step ?? x.step) + 1];
  }

  // The axis value (steps or microseconds) at a position in steps, and back.
  clockAt(position) {
    if (this.axis === "step") return position;
    const k = Math.min(Math.floor(position), this.steps - 1);
    return k < 0 ? 0 : this.times[k] + (position - k) * (this.times[k + 1] - this.times[k]);
  }

  positionAt(value) {
    if (this.axis === "step") return Math.min(this.steps, Math.max(0, value));
    let k = 0;
    while (k < this.steps - 1 && this.times[k + 1] <= value) k++;
    const wide = this.times[k + 1] - this.times[k];
    return Math.min(this.steps, Math.max(0, k + (wide ? (value - this.times[k]) / wide : 0)));
  }

  get length() {
    return this.axis === "step" ? this.steps : this.times[this.steps];
  }

  rewind() {
    this.landed = 0;
    this.cells = new Int32Array(this.ranks * this.chunks).fill(-1);
    for (const [rank, chunk, bag] of this.before) this.cells[rank * this.chunks + chunk] = bag;
    this.sent = new Float64Array(this.ranks);
    this.received = new Float64Array(this.ranks);
    this.fresh = new Set();
  }

  // Moves to a position; returns whether any message landed or was taken back.
  seek(position) {
    this.position = position;
    const now = this.clockAt(position) + 1e-9;
    let changed = false;
    if (this.landed && this.spans[this.order[this.landed - 1]][1] > now) {
      this.rewind();
      changed = true;
    }
    while (this.landed < this.order.length && this.spans[this.order[this.landed]][1] <= now) {
      const leg = this.legs[this.order[this.landed++]];
      this.sent[leg.src] += leg.nbytes;
      if (leg.delivered) {
        this.received[leg.dst] += leg.nbytes;
        leg.chunks.forEach((chunk, i) => { this.cells[leg.dst * this.chunks + chunk] = leg.after[i]; });
      }
      changed = true;
    }
    return changed;
  }

  // How many whole steps are over.
  get done() {
    return Math.floor(this.position + 1e-6);
  }

  get resting() {
    return Math.abs(this.position - Math.round(this.position)) < 1e-6;
  }

  // Messages on their way now, each with how far it has come (0..1).
  flying() {
    const now = this.clockAt(this.position) + 1e-9;
    if (this.axis === "step") {
      if (this.resting) return [];
      return this.byStep[this.done].map((leg) => [leg, now - leg.step]);
    }
    let low = 0, high = this.starts.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.spans[this.starts[middle]][0] < now - this.longest) low = middle + 1;
      else high = middle;
    }
    const found = [];
    for (; low < this.starts.length && this.spans[this.starts[low]][0] <= now; low++) {
      const [from, to] = this.spans[this.starts[low]];
      if (now < to) found.push([this.legs[this.starts[low]], (now - from) / (to - from)]);
    }
    return found;
  }

  // Sends that nobody receives, once they have set out.
  stuck() {
    this.unmatched ??= this.legs.filter((leg) => !leg.delivered);
    const now = this.clockAt(this.position);
    return this.unmatched.filter((leg) => this.spans[leg.index][0] < now - 1e-9);
  }

  // The waits of a rank that last now: from wait events, and from sends that nobody receives.
  waits() {
    const now = this.clockAt(this.position) - 1e-9;
    this.pauses ??= this.bars.filter((bar) => bar.op === "wait");
    const found = this.pauses
      .filter((bar) => { const [from, to] = this.span(bar); return from < now && now <= to; })
      .map((bar) => ({ rank: bar.rank, peer: bar.peer, forever: bar.end_step === null, line: bar.line }));
    if (this.blocking) for (const leg of this.stuck()) found.push({ rank: leg.src, peer: leg.dst, forever: true, line: leg.line });
    return found;
  }

  bag(id) {
    if (id < 0) return [];
    if (!this.members.has(id)) {
      const runs = this.contributions[id], all = [];
      for (let i = 0; i < runs.length; i += 2) for (let r = runs[i]; r <= runs[i + 1]; r++) all.push(r);
      this.members.set(id, all.sort((a, b) => a - b));
    }
    return this.members.get(id);
  }

  // So many bytes, or chunks where the schedule was given no size.
  amount(nbytes) {
    if (!this.chunks || this.nbytes !== this.chunks) return size(nbytes);
    const number = +nbytes.toPrecision(3);
    return `${number} chunk${number === 1 ? "" : "s"}`;
  }

  held(rank, chunk) {
    return this.bag(this.cells[rank * this.chunks + chunk]);
  }

  // "done", "missing" or "twice" against what the collective promises; null where it promises nothing.
  verdict(rank, chunk) {
    const has = this.held(rank, chunk);
    if (has.some((r, i) => i && has[i - 1] === r)) return "twice";
    const goal = this.goals.get(rank * this.chunks + chunk);
    if (goal === undefined) return null;
    return String(has) === String(this.bag(goal)) ? "done" : "missing";
  }
}

function size(nbytes) {
  for (const [unit, scale] of [["TB", 1e12], ["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
    // 999.9 kB would be written 1000 kB
    if (nbytes >= 0.9995 * scale) return `${+(nbytes / scale).toPrecision(3)} ${unit}`;
  }
  return `${+nbytes.toPrecision(3)} B`;
}

function duration(us, digits = 3) {
  if (us >= 1e6) return `${+(us / 1e6).toPrecision(digits)} s`;
  return us >= 1e3 ? `${+(us / 1e3).toPrecision(digits)} ms` : `${+us.toPrecision(digits)} µs`;
}

function chunkName(leg) {
  const c = leg.chunks;
  if (!c.length) return size(leg.nbytes);
  if (c.length === 1) return `c${c[0]}`;
  return c.every((chunk, i) => chunk === c[0] + i) ? `c${c[0]}…${c[c.length - 1]}` : `${c.length} ch.`;
}
