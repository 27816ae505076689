// The player: one clock, one or two films, a stage for each, one timeline, and the controls. The kernel hears of it only when
// it starts, pauses or steps. STYLES is the style sheet, put in by widget.py.

const ICONS = {
  first: "M3 3h2v10H3zM13 3v10L6 8z", back: "M11 3v10L4 8z", play: "M4 2.5v11L13.5 8z", pause: "M4 3h3v10H4zM9 3h3v10H9z",
  next: "M5 3v10l7-5z", last: "M11 3h2v10h-2zM3 3v10l7-5z", closer: "M7 3h2v4h4v2H9v4H7V9H3V7h4z", wider: "M3 7h10v2H3z",
};
const SPEEDS = [0.25, 0.5, 1, 2, 4];

function node(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const key in attributes) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), attributes[key]);
    else if (attributes[key] !== false) element.setAttribute(key, attributes[key]);
  }
  element.append(...children);
  return element;
}

class Player {
  constructor(model, el, films) {
    this.model = model;
    // not counted: every view has a module of its own
    this.uid = `allranks-player-${crypto.getRandomValues(new Uint32Array(1))[0]}`;
    this.reels = films.map((film) => new Reel(film));
    this.position = 0;
    this.heard = model.get("step");
    this.playing = false;
    this.answered = new Set();
    this.calm = window.matchMedia("(prefers-reduced-motion: reduce)");
    this.useAxis(model.get("axis"));
    this.build(el);
    this.seek(Math.min(this.steps, Math.max(0, model.get("step"))));
    this.listen();
    if (model.get("playing")) { this.play(); this.tell(); }
    this.root.dataset.ready = "true";
  }

  get steps() {
    return this.master.steps;
  }

  get master() {
    return this.reels.reduce((a, b) => (b.length > a.length ? b : a));
  }

  // Seconds that one step lasts at speed 1: less where there are many.
  get pace() {
    return Math.max(0.12, Math.min(1, 30 / Math.max(1, this.steps)));
  }

  useAxis(axis) {
    const timed = this.reels.every((reel) => reel.times);
    this.axis = axis === "time" && timed ? "time" : "step";
    this.reels.forEach((reel) => reel.useAxis(this.axis));
  }

  build(el) {
    const button = (key, words, act) => {
      const b = node("button", { type: "button", class: "ar-button", "aria-label": words, title: words, "data-do": key, onclick: act });
      b.innerHTML = `<svg viewBox="0 0 16 16" aria-hidden="true"><path d="${ICONS[key]}"/></svg>`;
      return b;
    };
    const choice = (words, options, value, act) => {
      const select = node("select", { "aria-label": words, onchange: (e) => act(e.target.value) });
      for (const [key, text] of options) select.append(node("option", { value: key }, text));
      select.value = value;
      return select;
    };
    this.root = node("div", {
      class: "ar-player", tabindex: "0", role: "group", "data-lm-suppress-shortcuts": "true",
      "aria-label": `Player: ${this.reels.map((reel) => reel.title).join(" beside ")}. Space plays, arrow keys step, Home and End jump.`,
    });
    this.playButton = button("play", "Play", () => this.toggle());
    this.scrubber = node("input", {
      type: "range", class: "ar-scrub", min: "0", max: String(this.steps), step: "any", value: "0", "aria-label": "Step",
      oninput: (e) => { this.halt(); this.seek(this.scrubTo(+e.target.value)); }, onchange: () => this.rest(),
    });
    this.controls = node("div", { class: "ar-controls" },
      button("first", "To the start", () => this.jump(0)), button("back", "Step back", () => this.back()), this.playButton,
      button("next", "Step forward", () => this.next()), button("last", "To the end", () => this.jump(this.steps)), this.scrubber,
      choice("Speed", SPEEDS.map((s) => [s, `${s}×`]), this.model.get("speed"), (v) => { this.model.set("speed", +v); this.model.save_changes(); }));
    if (this.reels.some((reel) => reel.ranks > 2)) {
      this.layoutChoice = choice("Layout", [["auto", `layout: ${[...new Set(this.reels.map((reel) => reel.layout))].join(", ")}`], ...LAYOUTS.map((l) => [l, l])], this.model.get("arrangement"),
        (v) => { this.model.set("arrangement", v); this.model.save_changes(); });
      this.controls.append(this.layoutChoice);
    }
    if (this.reels.every((reel) => reel.times)) {
      this.controls.append(choice("Axis", [["step", "steps"], ["time", "time"]], this.axis, (v) => { this.model.set("axis", v); this.model.save_changes(); }));
    }
    this.quizBox = node("input", { type: "checkbox", onchange: (e) => { this.model.set("quiz", e.target.checked); this.model.save_changes(); } });
    this.quizBox.checked = this.model.get("quiz");
    this.controls.append(node("label", { class: "ar-quiz-switch" }, this.quizBox, "What happens next?"));
    this.stages = this.reels.map((reel) => this.stageFor(reel));
    this.meters = this.reels.map(() => ({ head: node("div", { class: "ar-head" }), foot: node("div", { class: "ar-meter" }) }));
    const halves = this.reels.map((reel, i) => node("section", { class: "ar-half", "aria-label": reel.title },
      this.meters[i].head, this.stages[i].root, this.meters[i].foot));
    this.question = node("div", { class: "ar-question", role: "group", hidden: "" });
    this.caption = node("p", { class: "ar-caption" });
    this.live = node("p", { class: "ar-live", "aria-live": "polite", role: "status" });
    this.table = node("details", { class: "ar-table", ontoggle: () => this.fillTable() }, node("summary", {}, "Table of this step"));
    this.timeline = new Timeline(this.reels, (value) => { this.halt(); this.seek(this.master.positionAt(value)); this.rest(); });
    const zoom = node("div", { class: "ar-zoom" }, button("wider", "Zoom out", () => this.timeline.zoomBy(0.6)), button("closer", "Zoom in", () => this.timeline.zoomBy(1.7)));
    this.root.append(node("div", { class: `ar-halves${this.reels.length > 1 ? " ar-two" : ""}` }, ...halves), this.question, this.controls,
      this.caption, this.live, this.timeline.root, zoom, this.table);
    el.replaceChildren(node("style", {}, STYLES), this.root);
    this.heads();
  }

  stageFor(reel) {
    const layout = this.layoutOf(reel);
    return reel.ranks > 16 || reel.chunks > 64 ? new Dense(reel, layout) : new Stage(reel, layout, `${this.uid}-${this.reels.indexOf(reel)}`, this.reels.length > 1);
  }

  layoutOf(reel) {
    const asked = this.model.get("arrangement");
    return LAYOUTS.includes(asked) ? asked : reel.layout;
  }

  heads() {
    this.reels.forEach((reel, i) => {
      const kind = { schedule: "schedule", wire: "your run on the wire", live: "live run", simulated: "simulated" }[reel.kind];
      this.meters[i].head.replaceChildren(node("strong", {}, reel.title),
        node("span", {}, ` ${reel.ranks} rank${reel.ranks > 1 ? "s" : ""}${reel.chunks ? ` · ${reel.chunks} chunk${reel.chunks > 1 ? "s" : ""}` : ""}${reel.nbytes !== reel.chunks ? ` · ${size(reel.nbytes)}` : ""} · ${kind}${reel.inferred ? " · steps inferred from the order" : ""}`));
      const rows = { step: node("span", { class: "ar-count", "data-meter": "step" }), links: node("span", { "data-meter": "links" }), bytes: node("span", { "data-meter": "bytes" }), bound: node("span", { "data-meter": "bound" }) };
      const most = this.finalMost(reel), scale = Math.max(most, reel.bound ? reel.bound[1] : 0) * 1.04 || 1;
      const fill = node("i", { class: "ar-fill" }), bar = node("span", { class: "ar-bar", "aria-hidden": "true" }, fill);
      if (reel.bound) {
        bar.append(node("i", { class: "ar-tick", style: `left:${(100 * reel.bound[1]) / scale}%` }));
        rows.bound.textContent = `lower bound ${reel.bound[0]} = ${reel.amount(reel.bound[1])}`;
      }
      this.meters[i].foot.replaceChildren(rows.step, rows.links, node("span", { class: "ar-bytes-group", hidden: !reel.legs.length && "" }, rows.bytes, bar, rows.bound));
      Object.assign(this.meters[i], { rows, fill, scale });
    });
  }

  finalMost(reel) {
    const sent = new Float64Array(reel.ranks);
    reel.legs.forEach((leg) => { sent[leg.src] += leg.nbytes; });
    return Math.max(0, ...sent);
  }

  meter() {
    this.reels.forEach((reel, i) => {
      const { rows, fill, scale } = this.meters[i], most = Math.max(0, ...reel.sent);
      const step = Math.ceil(reel.position - 1e-6);
      const clock = this.axis === "time" ? ` · ${duration(reel.clockAt(reel.position))} of ${duration(reel.length)}` : "";
      rows.step.textContent = `step ${step} of ${reel.steps}${clock}`;
      rows.links.textContent = reel.links.length ? `busy ${reel.resting && !this.stages[i].busy ? 0 : this.stages[i].busy} of ${reel.links.length} links` : "";
      rows.bytes.textContent = `busiest rank sent ${reel.amount(most)}`;
      fill.style.width = `${(100 * most) / scale}%`;
    });
  }

  // Shows a moment; `position` is in steps of the film that lasts longest.
  seek(position) {
    this.position = Math.min(this.steps, Math.max(0, position));
    const value = this.master.clockAt(this.position);
    let any = false;
    this.reels.forEach((reel, i) => {
      const at = this.axis === "time" ? reel.positionAt(value) : Math.min(this.position, reel.steps);
      const changed = reel.seek(at) || this.shown === undefined;
      this.stages[i].frame(changed, !this.calm.matches);
      any ||= changed;
    });
    this.shown = true;
    this.scrubber.value = String(this.axis === "time" ? (this.steps * value) / (this.master.length || 1) : this.position);
    this.timeline.move();
    const step = Math.ceil(this.position - 1e-6);
    const fresh = any || step !== this.captioned || this.root.dataset.step === undefined;
    // a clock runs between landings too
    if (fresh || this.axis === "time") this.meter();
    if (fresh) {
      this.captioned = step;
      const words = this.words();
      this.caption.textContent = words;
      this.caption.classList.toggle("ar-bad", this.reels.some((reel) => reel.waits().some((w) => w.forever)));
      this.scrubber.setAttribute("aria-valuetext", `step ${step} of ${this.steps}`);
    }
    this.root.dataset.step = String(Math.floor(this.position + 1e-6));
    this.root.dataset.position = this.position.toFixed(3);
  }

  scrubTo(value) {
    return this.axis === "time" ? this.master.positionAt((value / this.steps) * this.master.length) : value;
  }

  words() {
    return this.reels.map((reel) => {
      const step = Math.min(reel.steps, Math.ceil(reel.position - 1e-6));
      return (this.reels.length > 1 ? `${reel.title}, ` : "") + reel.captions[step];
    }).join(". ");
  }

  // Tells the reader and the kernel where we are; only when it stands still.
  rest() {
    this.live.textContent = this.words();
    this.fillTable();
    this.tell();
  }

  tell() {
    const step = Math.floor(this.position + 1e-6);
    this.heard = step;
    if (this.model.get("step") !== step || this.model.get("playing") !== this.playing) {
      this.model.set("step", step);
      this.model.set("playing", this.playing);
      this.model.save_changes();
    }
  }

  toggle() {
    if (this.playing) { this.halt(); this.rest(); } else { this.play(); this.tell(); }
  }

  play(until = this.steps) {
    if (this.position >= this.steps - 1e-6) this.seek(0);
    this.until = until;
    if (this.gate()) return;
    this.setPlaying(true);
    this.last = null;
    if (this.calm.matches) this.beat = setTimeout(() => this.tickCalm(), 600 / this.model.get("speed"));
    else this.beat = requestAnimationFrame((now) => this.tick(now));
  }

  tick(now) {
    if (!this.playing) return;
    if (!this.root.isConnected) { this.last = null; this.beat = requestAnimationFrame((t) => this.tick(t)); return; }  // until it is back
    // a tab in the background gets no frames: it then goes on where it was
    const seconds = this.last === null ? 0 : Math.min(0.1, (now - this.last) / 1000);
    this.last = now;
    const speed = this.model.get("speed"), before = Math.floor(this.position + 1e-6);
    let to = this.position + (seconds * speed) / this.pace;
    if (this.axis === "time") {
      const whole = this.master.length, value = this.master.clockAt(this.position) + (seconds * speed * whole) / (this.pace * this.steps);
      to = value >= whole ? this.steps : this.master.positionAt(value);
    }
    if (this.model.get("quiz") && Math.floor(to) > before) to = Math.floor(to);
    this.seek(Math.min(to, this.until));
    if (this.position >= this.until - 1e-6) { this.halt(); this.rest(); return; }
    if (Math.floor(this.position + 1e-6) > before && this.gate()) return;
    this.beat = requestAnimationFrame((t) => this.tick(t));
  }

  // Reduced motion: whole steps, no movement between them.
  tickCalm() {
    if (!this.playing) return;
    if (!this.root.isConnected) { this.beat = setTimeout(() => this.tickCalm(), 600); return; }
    this.seek(Math.min(this.until, Math.floor(this.position + 1e-6) + 1));
    this.live.textContent = this.words();
    if (this.position >= this.until - 1e-6) { this.halt(); this.rest(); return; }
    if (this.gate()) return;
    this.beat = setTimeout(() => this.tickCalm(), 1200 / this.model.get("speed"));
  }

  halt() {
    cancelAnimationFrame(this.beat);
    clearTimeout(this.beat);
    this.setPlaying(false);
    this.closeQuestion();
  }

  setPlaying(on) {
    this.playing = on;
    this.root.dataset.playing = String(on);
    const words = on ? "Pause" : "Play";
    this.playButton.setAttribute("aria-label", words);
    this.playButton.title = words;
    this.playButton.querySelector("path").setAttribute("d", ICONS[on ? "pause" : "play"]);
  }

  next() {
    if (this.position >= this.steps - 1e-6) return;
    const to = Math.floor(this.position + 1e-6) + 1;
    if (this.playing) this.halt();
    if (this.calm.matches) {
      this.until = to;
      if (this.gate()) return;
      this.seek(to);
      this.rest();
    } else this.play(to);
  }

  back() {
    this.jump(Math.max(0, Math.ceil(this.position - 1e-6) - 1));
  }

  jump(position, on = false) {
    this.halt();
    this.seek(position);
    if (on) this.play();
    this.rest();
  }

  // Stops before a step that has not been predicted yet; true when it asks.
  gate() {
    const step = Math.floor(this.position + 1e-6);
    if (!this.model.get("quiz") || this.position - step > 1e-6 || this.answered.has(step)) return false;
    // of the first film, which on a shared clock may be in another step
    const question = ask(this.reels[0], this.reels[0].done);
    this.answered.add(step);
    if (!question) return false;
    const { until } = this;
    this.halt();
    this.rest();
    const result = node("p", { class: "ar-result", role: "status" });
    const options = question.options.map((option) => node("button", { type: "button", class: "ar-option", onclick: (e) => answer(option, e.target) }, option.text));
    const answer = (option, chosen) => {
      options.forEach((b, i) => { b.disabled = true; b.classList.toggle("ar-right", question.options[i].right); });
      chosen.classList.toggle("ar-wrong", !option.right);
      this.score ??= [0, 0];
      this.score[0] += option.right;
      this.score[1] += 1;
      result.textContent = `${option.right ? "Right." : "Not so."} ${question.why} (${this.score[0]} of ${this.score[1]} right)`;
      this.model.set("answers", [...this.model.get("answers"), { step, question: question.text, answer: option.text, right: option.right }]);
      this.model.save_changes();
      const show = node("button", { type: "button", class: "ar-show", onclick: () => { this.closeQuestion(); this.root.focus(); this.play(until); } }, "Show me");
      this.question.append(show);
      show.focus();
    };
    this.question.replaceChildren(node("p", {}, question.text), node("div", { class: "ar-options" }, ...options), result);
    this.question.setAttribute("aria-label", question.text);
    this.question.hidden = false;
    options[0].focus();
    return true;
  }

  closeQuestion() {
    if (this.question.contains(document.activeElement)) this.root.focus();
    this.question.hidden = true;
    this.question.replaceChildren();
  }

  // What every rank holds, for those who read instead of looking.
  fillTable() {
    if (!this.table.open) return;
    const tables = this.reels.map((reel) => {
      const table = node("table", {}, node("caption", {}, `${reel.title}, after step ${reel.done}`));
      const shown = Math.min(reel.chunks, 32), head = node("tr", {}, node("th", { scope: "col" }, "rank"));
      for (let c = 0; c < shown; c++) head.append(node("th", { scope: "col" }, `chunk ${c}`));
      head.append(node("th", { scope: "col" }, "sent"), node("th", { scope: "col" }, "received"));
      table.append(node("thead", {}, head));
      const body = node("tbody");
      for (let r = 0; r < Math.min(reel.ranks, 64); r++) {
        const row = node("tr", {}, node("th", { scope: "row" }, String(r)));
        for (let c = 0; c < shown; c++) row.append(node("td", {}, reel.held(r, c).join(" + ") || "empty"));
        row.append(node("td", {}, reel.amount(reel.sent[r])), node("td", {}, reel.amount(reel.received[r])));
        body.append(row);
      }
      table.append(body);
      return table;
    });
    // the same box again, which keeps its focus and its place
    this.scroll ??= node("div", { class: "ar-scroll", tabindex: "0", role: "region", "aria-label": "What every rank holds" });
    this.scroll.replaceChildren(...tables);
    if (!this.table.contains(this.scroll)) this.table.append(this.scroll);
  }

  listen() {
    this.root.dataset.playing = "false";
    this.root.addEventListener("keydown", (e) => {
      const on = e.target, own = on.tagName === "SELECT" || (on.tagName === "INPUT" && on.type !== "range") || on.closest(".ar-scroll");
      const acts = { ArrowRight: () => this.next(), ArrowLeft: () => this.back(), Home: () => this.jump(0), End: () => this.jump(this.steps) };
      if (on.tagName !== "BUTTON" && on.tagName !== "SUMMARY") acts[" "] = () => this.toggle();
      if (own || e.ctrlKey || e.metaKey || e.altKey || !acts[e.key]) return;
      e.preventDefault();
      e.stopPropagation();
      acts[e.key]();
    });
    this.hooks = {
      // one update may both move and start it, or move and stop it
      "change:step": () => {
        const step = this.heard = this.model.get("step"), on = this.model.get("playing") && !this.playing;
        if (step !== Math.floor(this.position + 1e-6)) this.jump(step, on);
      },
      "change:playing": () => {
        const on = this.model.get("playing");
        if (on !== this.playing && (on || this.heard === this.model.get("step"))) this.toggle();
      },
      "change:arrangement": () => this.relay(),
      "change:axis": () => this.reaxis(),
      "change:quiz": () => { this.quizBox.checked = this.model.get("quiz"); this.answered.clear(); if (!this.model.get("quiz")) this.closeQuestion(); },
      "change:speed": () => { this.controls.querySelector("select").value = String(this.model.get("speed")); },
    };
    for (const name in this.hooks) this.model.on(name, this.hooks[name]);
    // colours on a canvas don't follow the theme by themselves
    this.themed = new MutationObserver(() => this.repaint());
    this.themed.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-name", "data-jp-theme-light", "data-theme"] });
    this.repainted = () => this.repaint();
    this.dark = window.matchMedia("(prefers-color-scheme: dark)");
    this.dark.addEventListener("change", this.repainted);
  }

  relay() {
    if (this.layoutChoice) this.layoutChoice.value = this.model.get("arrangement");
    this.stages.forEach((stage, i) => stage.show(this.layoutOf(this.reels[i])));
    this.shown = undefined;
    this.seek(this.position);
  }

  reaxis() {
    const keep = Math.floor(this.position + 1e-6);
    this.halt();
    this.useAxis(this.model.get("axis"));
    this.scrubber.max = String(this.steps);
    this.timeline.zoom = 1;
    this.timeline.from = 0;
    this.timeline.draw();
    this.shown = undefined;
    this.seek(keep);
    this.rest();
  }

  repaint() {
    this.timeline.draw();
    this.stages.forEach((stage) => { if (stage.fit) { stage.fit(); stage.frame(true); } });
  }

  end() {
    this.halt();
    for (const name in this.hooks) this.model.off(name, this.hooks[name]);
    this.themed.disconnect();
    this.dark.removeEventListener("change", this.repainted);
    this.timeline.end();
    this.stages.forEach((stage) => stage.end?.());
  }
}

async function render({ model, el }) {
  try {
    const film = await inflate(model.get("animation")), other = model.get("compared");
    const player = new Player(model, el, other && other.byteLength ? [film, await inflate(other)] : [film]);
    return () => player.end();
  } catch (error) {
    el.textContent = `The player could not read its film: ${error.message}`;
    throw error;
  }
}

export default { render };
