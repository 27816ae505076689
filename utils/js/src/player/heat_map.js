// A heat map of rank by chunk: how many contributions each cell holds, as a shade.

import { penOf } from "../common/dom.js";

/** @typedef {import("./playback.js").Playback} Playback */
/** @typedef {[number, number, number]} Rgb */

const FULL = 256;
/** @type {Rgb} */
const FULL_COLOUR = [0, 158, 115];
/** @type {Rgb} */
const TWICE_COLOUR = [213, 94, 0];
/** @type {Rgb} */
const MOST_COLOUR = [0, 114, 178];

/**
 * Which of the 257 shades a share has; by its root, so that the first few of many contributions are already seen.
 *
 * @param {number} share 0 to 1
 */
export function shadeNumber(share) {
  return share >= 1 ? FULL : Math.min(FULL - 1, Math.round(Math.sqrt(share) * (FULL - 1)));
}

/**
 * From the page's colour to a strong blue; the last shade, for everything held, is green.
 *
 * @param {string} paper a CSS colour
 * @returns {Rgb[]}
 */
export function shades(paper) {
  const probe = penOf(document.createElement("canvas"));
  probe.fillStyle = paper || "#fff";
  probe.fillRect(0, 0, 1, 1);
  const from = probe.getImageData(0, 0, 1, 1).data;
  return Array.from({ length: FULL + 1 }, (_, i) => {
    if (i === FULL) return FULL_COLOUR;
    const t = i === 0 ? 0 : 0.12 + 0.88 * (i / FULL);
    const mixed = MOST_COLOUR.map((to, part) => Math.round(from[part] + (to - from[part]) * t));
    return /** @type {Rgb} */ (mixed);
  });
}

/**
 * How many contributions there are, by their number; those of a rank that is counted twice count twice.
 *
 * @param {Playback} playback
 */
export function contributionCounts({ contributions }) {
  return contributions.map((runs) => {
    let sum = 0;
    for (let i = 0; i < runs.length; i += 2) sum += runs[i + 1] - runs[i] + 1;
    return sum;
  });
}

export class HeatMap {
  #small = document.createElement("canvas");

  /**
   * @param {Playback} playback
   * @param {number[]} counts
   * @param {number} most how many contributions make a full cell where nothing is promised
   */
  constructor(playback, counts, most) {
    this.playback = playback;
    this.counts = counts;
    this.most = most;
    // layers of repeats begin again at a lower rank
    this.twice = playback.contributions.map((runs) => runs.some((low, i) => i && i % 2 === 0 && low <= runs[i - 1]));
    this.#small.width = playback.chunks;
    this.#small.height = playback.ranks;
  }

  /**
   * Draws what the cells hold, a pixel for each.
   *
   * @param {Rgb[]} shadeList
   */
  paint(shadeList) {
    const { cells, goals, chunks, ranks } = this.playback;
    const pen = penOf(this.#small);
    const image = pen.createImageData(chunks, ranks);
    cells.forEach((id, i) => {
      const goal = goals.get(i);
      const full = goal === undefined ? this.most : this.counts[goal];
      const count = id < 0 ? 0 : this.counts[id];
      const shade = id >= 0 && id === goal ? FULL : shadeNumber(Math.min(0.999, count / full));
      image.data.set([...(this.twice[id] ? TWICE_COLOUR : shadeList[shade]), 255], 4 * i);
    });
    pen.putImageData(image, 0, 0);
  }

  /**
   * Draws the map at its size, with the messages under way on it.
   *
   * @param {CanvasRenderingContext2D} pen
   * @param {{x: number, y: number, side: number}} place
   * @param {{line: string, soft: string, message: string}} colours
   */
  draw(pen, { x, y, side }, colours) {
    const { ranks, chunks } = this.playback;
    const width = side / chunks;
    const height = side / ranks;
    pen.imageSmoothingEnabled = false;
    pen.drawImage(this.#small, x, y, side, side);
    pen.strokeStyle = colours.line;
    pen.lineWidth = 1;
    pen.strokeRect(x - 0.5, y - 0.5, side + 1, side + 1);
    pen.fillStyle = colours.message;
    for (const [transfer, t] of this.playback.flying()) {
      const rows = transfer.dst - transfer.src;
      // one that goes far jumps to its receiver half-way
      const row = transfer.src + rows * (Math.abs(rows) === 1 || t > 0.5 ? t : 0);
      for (const chunk of transfer.chunks) {
        pen.fillRect(x + chunk * width, y + row * height, Math.max(1, width), Math.max(1, height));
      }
    }
    pen.fillStyle = colours.soft;
    pen.textAlign = "left";
    pen.fillText(`chunk 0 … ${chunks - 1}`, x, y - 7);
    pen.save();
    pen.translate(x - 7, y + side);
    pen.rotate(-Math.PI / 2);
    pen.fillText(`rank ${ranks - 1} … 0`, 0, 0);
    pen.restore();
  }
}
