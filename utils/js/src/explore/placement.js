// Which link is the busiest, by algorithm and by where ranks are. The simulator's figures come with the widget.

import { html } from "../common/dom.js";
import { Sketch } from "../common/sketch.js";
import { bytes, digits, seconds } from "../common/units.js";
import { Frame } from "./frame.js";

/**
 * @typedef {object} Run what the simulator found
 * @property {number} seconds
 * @property {number[][]} cards bytes that leave over each card, by node
 * @property {number[][]} between bytes from node to node
 * @property {number} inside bytes that the busiest rank sends inside its node
 * @property {number} inside_s the seconds that they take
 * @property {number} card_s the seconds that the busiest card's bytes take
 * @property {[number, number]} busiest node and card
 *
 * @typedef {{seats: number[], runs: Record<string, Run>}} Placement by algorithm
 */

const MACHINES = "machine";

/** @param {import("./frame.js").Model} model @param {HTMLElement} el */
export function placement(model, el) {
  const data = model.get("data");
  const frame = new Frame(
    model,
    el,
    "Where are the ranks, and which link is the busiest?",
    `An all-reduce of ${bytes(data.nbytes, true)} on ${data.ranks} ranks. Choose; the link that decides is marked.`,
  );
  frame.controls.classList.add("ar-words");
  const named = (/** @type {Record<string, string>} */ table) =>
    Object.entries(table).map(([value, label]) => ({ value, label }));
  frame.choice({ key: MACHINES, name: "machine", options: named(data.machine_names) });
  frame.choice({ key: "algorithm", name: "algorithm", options: named(data.algorithm_names) });
  frame.choice({ key: "placement", name: "placement of ranks", options: named(data.placement_names) });
  const verdict = html("div", { class: "ar-verdict ar-wide" });
  frame.add(verdict);
  const picture = frame.picture("ar-nodes");
  const side = html("div", { class: "ar-side" });
  frame.add(html("div", { class: "ar-beside" }, picture, side));
  frame.start(() => {
    const machine = data.machines[frame.values.machine];
    /** @type {Placement} */
    const placed = machine.placements[frame.values.placement];
    const run = placed.runs[frame.values.algorithm];
    draw(picture, machine, placed, run, frame.width >= 860 ? frame.width - 330 : frame.width);
    fillSide(side, frame, machine);
    const card = run.cards[run.busiest[0]][run.busiest[1]];
    const words = verdictOf(machine, run, card);
    verdict.innerHTML = `<p><b class="ar-big">${seconds(run.seconds)}</b> <span>${words}</span></p>`;
    return `${seconds(run.seconds)}: ${words}`;
  }, picture);
  return frame;
}

/** @param {any} machine @param {Run} run @param {number} card */
function verdictOf(machine, run, card) {
  const which =
    machine.cards > 1 ? `card ${run.busiest[1]} of node ${run.busiest[0]}` : `the card of node ${run.busiest[0]}`;
  if (run.inside_s > run.card_s)
    return (
      `The links inside decide: a rank sends ${bytes(run.inside)} there, ${seconds(run.inside_s)}; ` +
      `${which} carries ${bytes(card)}, ${seconds(run.card_s)}.`
    );
  return (
    `The busiest link is ${which}: ${bytes(card)} leave over it, ${seconds(run.card_s)} at ` +
    `${bytes(machine.card_bytes_per_s, true)}/s.`
  );
}

/**
 * @param {SVGSVGElement} picture
 * @param {any} machine
 * @param {Placement} placed
 * @param {Run} run
 * @param {number} width
 */
function draw(picture, machine, placed, run, width) {
  const nodes = run.cards.length;
  const across = width < 560 ? 2 : nodes;
  const [gap, arcs] = [20, across === nodes ? 96 : 10];
  const box = (width - gap * (across - 1)) / across;
  const tall = 290;
  const sketch = new Sketch();
  const most = Math.max(...run.cards.flat(), 1);
  if (across === nodes) between(sketch, run, (node) => node * (box + gap) + box / 2, arcs);
  for (let node = 0; node < nodes; node++) {
    const [x, y] = [(node % across) * (box + gap), arcs + Math.floor(node / across) * (tall + 24)];
    sketch.box("ar-node", x, y, box, tall, { rx: 10 });
    sketch.text("ar-strong", x + 12, y + 24, `node ${node}`);
    seats(sketch, placed.seats, machine.ranks_per_node, node, x + 12, y + 38, box - 24);
    cards(sketch, run, node, most, x + 12, y + 132, box - 24);
  }
  sketch.into(picture, width, arcs + Math.ceil(nodes / across) * (tall + 24));
}

/**
 * Arcs above the nodes, as thick as the bytes both ways.
 *
 * @param {Sketch} sketch
 * @param {Run} run
 * @param {(node: number) => number} at
 * @param {number} low
 */
function between(sketch, run, at, low) {
  const most = Math.max(...run.between.flat(), 1);
  const labels = /** @type {[number, number, string][]} */ ([]); // over all arcs
  for (let a = 0; a < run.between.length; a++) {
    for (let b = a + 1; b < run.between.length; b++) {
      const nbytes = Math.max(run.between[a][b], run.between[b][a]);
      if (!nbytes) continue;
      const high = low - 26 * (b - a) - 6;
      const d =
        `M${at(a).toFixed(1)} ${low}C${at(a).toFixed(1)} ${high} ${at(b).toFixed(1)} ${high} ` +
        `${at(b).toFixed(1)} ${low}`;
      sketch.path("ar-arc", d, { "stroke-width": 1 + (9 * nbytes) / most });
      const middle = (at(a) + at(b)) / 2;
      // below an arc between neighbours there is room, above it pass the longer arcs
      labels.push([middle, b - a > 1 ? 0.25 * low + 0.75 * high - 9 : low - 6, bytes(nbytes)]);
    }
  }
  for (const [x, y, words] of labels) sketch.text("ar-tick ar-middle ar-halo", x, y, words);
}

/**
 * @param {Sketch} sketch
 * @param {number[]} where the seat of each rank
 * @param {number} perNode
 * @param {number} node
 * @param {number} x
 * @param {number} y
 * @param {number} wide
 */
function seats(sketch, where, perNode, node, x, y, wide) {
  const step = wide / 4;
  for (const [rank, seat] of where.entries()) {
    if (Math.floor(seat / perNode) !== node) continue;
    const place = seat % perNode;
    const [left, top] = [x + (place % 4) * step, y + Math.floor(place / 4) * 36];
    sketch.box("ar-seat", left + 1, top, step - 3, 30, { "data-rank": String(rank) });
    sketch.text("ar-label-ink ar-middle", left + step / 2, top + 20, String(rank));
  }
}

/**
 * @param {Sketch} sketch
 * @param {Run} run
 * @param {number} node
 * @param {number} most
 * @param {number} x
 * @param {number} y
 * @param {number} wide
 */
function cards(sketch, run, node, most, x, y, wide) {
  const found = run.cards[node];
  const step = wide / found.length;
  const low = y + 126;
  sketch.line("ar-axis", x, low, x + wide, low);
  for (const [card, nbytes] of found.entries()) {
    const tall = Math.max(nbytes ? 2 : 0, (104 * nbytes) / most);
    const busiest = run.busiest[0] === node && run.busiest[1] === card && run.card_s >= run.inside_s;
    sketch.box(busiest ? "ar-now" : "ar-wire", x + card * step + 2, low - tall, step - 4, tall, {
      rx: 2,
      "data-card": `${node},${card}`,
    });
    if (nbytes && (busiest || found.length === 1)) {
      const at = Math.min(x + wide - 24, Math.max(x + 24, x + (card + 0.5) * step));
      sketch.text("ar-strong ar-middle ar-halo", at, low - tall - 6, bytes(nbytes));
    }
  }
  sketch.text("ar-tick", x, low + 18, found.length > 1 ? `${found.length} cards` : "one card for all");
}

/** @param {HTMLElement} side @param {Frame} frame @param {any} machine */
function fillSide(side, frame, machine) {
  const { algorithm_names: algorithms, placement_names: places } = frame.data;
  /** @type {{s: number, name: string, here: boolean}[]} */
  const rows = [];
  for (const place of Object.keys(places)) {
    const s = machine.placements[place].runs[frame.values.algorithm].seconds;
    rows.push({ s, name: places[place], here: place === frame.values.placement });
  }
  const others = Object.keys(algorithms).map((name) => {
    const s = machine.placements[frame.values.placement].runs[name].seconds;
    return { s, name: algorithms[name], here: name === frame.values.algorithm };
  });
  const most = Math.max(...rows.concat(others).map(({ s }) => s));
  const bar = (/** @type {{s: number, name: string, here: boolean}} */ { s, name, here }) =>
    `<div class="ar-row${here ? " ar-mine" : ""}"><span>${name}</span><b>${seconds(s)}</b><i ` +
    `style="width:${((100 * s) / most).toFixed(1)}%"></i></div>`;
  side.innerHTML =
    `<h4>${algorithms[frame.values.algorithm]}, placed otherwise</h4>${rows.map(bar).join("")}` +
    `<h4>placed so, other algorithms</h4>${others.map(bar).join("")}` +
    `<p class="ar-small">${machine.ranks_per_node} ranks a node; inside ` +
    `${digits(machine.inside_bytes_per_s / 1e9)} GB/s, a card ${digits(machine.card_bytes_per_s / 1e9)} ` +
    `GB/s. Bars under a node: what leaves over each card.</p>`;
}
