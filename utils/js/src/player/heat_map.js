// A heat map of rank by chunk: how many contributions each cell holds, as the strength of its ink.

import { penOf } from "../common/dom.js";

/** @typedef {import("./playback.js").Playback} Playback */
/** @typedef {[number, number, number]} Rgb */
/** @typedef {{x: number, y: number, side: number}} Place */
/** @typedef {Record<"ink"|"soft"|"line"|"hair"|"wire"|"lost"|"paper"|"font", string>} Colours */

const FULL = 256;
// the strongest ink of what is not yet complete
const MOST_INK = 0.62;

/**
 * Which of the 257 shades a share has; by its root, so that the first few of many contributions are already seen.
 *
 * @param {number} share 0 to 1
 */
export function shadeNumber(share) {
  return share >= 1 ? FULL : Math.min(FULL - 1, Math.round(Math.sqrt(share) * (FULL - 1)));
}

/**
 * A CSS colour in numbers.
 *
 * @param {string} colour
 * @returns {Rgb}
 */
export function rgbOf(colour) {
  const probe = penOf(document.createElement("canvas"));
  probe.fillStyle = colour || "#fff";
  probe.fillRect(0, 0, 1, 1);
  const [r, g, b] = probe.getImageData(0, 0, 1, 1).data;
  return [r, g, b];
}

/**
 * From the page's colour to a strong grey; the last shade, for everything held, is ink.
 *
 * @param {string} paper
 * @param {string} ink
 * @returns {Rgb[]}
 */
export function shades(paper, ink) {
  const from = rgbOf(paper);
  const to = rgbOf(ink);
  return Array.from({ length: FULL + 1 }, (_, i) => {
    const t = i === FULL ? 1 : i === 0 ? 0 : 0.06 + (MOST_INK - 0.06) * (i / FULL);
    return /** @type {Rgb} */ (to.map((part, k) => Math.round(from[k] + (part - from[k]) * t)));
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
   * @param {Rgb} wrong the colour of what is counted twice, or missing at the end
   */
  paint(shadeList, wrong) {
    const { cells, goals, chunks, ranks, atEnd } = this.playback;
    const pen = penOf(this.#small);
    const image = pen.createImageData(chunks, ranks);
    cells.forEach((id, i) => {
      const goal = goals.get(i);
      const full = goal === undefined ? this.most : this.counts[goal];
      const count = id < 0 ? 0 : this.counts[id];
      const shade = id >= 0 && id === goal ? FULL : shadeNumber(Math.min(0.999, count / full));
      const bad = this.twice[id] || (atEnd && goal !== undefined && id !== goal);
      image.data.set([...(bad ? wrong : shadeList[shade]), 255], 4 * i);
    });
    pen.putImageData(image, 0, 0);
  }

  /**
   * Draws the map at its size, with the cells in which something arrives now, and the ranks that wait.
   *
   * @param {CanvasRenderingContext2D} pen
   * @param {Place} place
   * @param {Colours} colours
   */
  draw(pen, { x, y, side }, colours) {
    const { ranks, chunks } = this.playback;
    const width = side / chunks;
    const height = side / ranks;
    pen.imageSmoothingEnabled = false;
    pen.drawImage(this.#small, x, y, side, side);
    pen.fillStyle = colours.wire;
    for (const [{ dst, chunks: arriving, delivered }] of this.playback.flying()) {
      if (!delivered) continue;
      for (const chunk of arriving) {
        pen.fillRect(x + chunk * width, y + dst * height, Math.max(1, width), Math.max(1, height));
      }
    }
    this.#rule(pen, { x, y, side }, colours);
    pen.fillStyle = colours.lost;
    for (const { rank } of this.playback.waits()) pen.fillRect(x + side + 2, y + rank * height, 5, Math.max(1, height));
    this.#names(pen, { x, y, side }, colours);
  }

  /**
   * The lines between the cells, where these are large enough.
   *
   * @param {CanvasRenderingContext2D} pen
   * @param {Place} place
   * @param {Colours} colours
   */
  #rule(pen, { x, y, side }, colours) {
    const { ranks, chunks } = this.playback;
    pen.strokeStyle = colours.paper;
    pen.lineWidth = 1;
    pen.globalAlpha = side / Math.max(ranks, chunks) >= 5 ? 0.75 : 0;
    pen.beginPath();
    for (let c = 1; c < chunks; c++) {
      pen.moveTo(x + (c * side) / chunks, y);
      pen.lineTo(x + (c * side) / chunks, y + side);
    }
    for (let r = 1; r < ranks; r++) {
      pen.moveTo(x, y + (r * side) / ranks);
      pen.lineTo(x + side, y + (r * side) / ranks);
    }
    pen.stroke();
    pen.globalAlpha = 1;
    pen.strokeStyle = colours.line;
    pen.strokeRect(x - 0.5, y - 0.5, side + 1, side + 1);
  }

  /**
   * @param {CanvasRenderingContext2D} pen
   * @param {Place} place
   * @param {Colours} colours
   */
  #names(pen, { x, y, side }, colours) {
    const { ranks, chunks } = this.playback;
    pen.fillStyle = colours.soft;
    pen.textAlign = "center";
    pen.fillText(`chunk 0 … ${chunks - 1}`, x + side / 2, y - 7);
    pen.textAlign = "right";
    const every = ranks <= 24 ? 1 : Math.ceil(ranks / 4);
    const height = side / ranks;
    for (let r = 0; r < ranks; r += every) {
      if (r && r + every > ranks && ranks - 1 - r < 14 / height) continue;
      pen.fillText(String(r), x - 7, y + (r + 0.5) * height + 4);
    }
    if (every > 1) pen.fillText(String(ranks - 1), x - 7, y + side);
    pen.save();
    pen.translate(x - 34, y + side / 2);
    pen.rotate(-Math.PI / 2);
    pen.textAlign = "center";
    pen.fillText("rank", 0, 0);
    pen.restore();
  }
}
