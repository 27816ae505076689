// What the timeline's canvas shows: the lanes with their bars, and the axis.

import { chunkName, duration } from "./words.js";

/** @typedef {import("./playback.js").Playback} Playback */
/** @typedef {import("./timeline.js").Timeline["window"]} Seen */
/** @typedef {Record<"ink"|"soft"|"line"|"send"|"add"|"copy"|"stuck"|"work"|"paper"|"font", string>} Theme */

/**
 * The axis: a line and a number at each tick.
 *
 * @param {CanvasRenderingContext2D} pen
 * @param {import("./data.js").Axis} axis
 * @param {Seen} seen
 * @param {number} height
 * @param {Theme} theme
 */
export function drawGrid(pen, axis, seen, height, theme) {
  const { every, digits } = ticks(seen.to - seen.from, seen.length, (seen.width - seen.left) / 70);
  const by = axis === "step" ? Math.max(1, Math.round(every)) : every;
  pen.font = `11px ${theme.font}`;
  pen.fillStyle = theme.soft;
  pen.strokeStyle = theme.line;
  pen.lineWidth = 1;
  pen.textAlign = "center";
  for (let value = Math.ceil(seen.from / by) * by; value <= seen.to + 1e-9; value += by) {
    const x = seen.x(value);
    pen.beginPath();
    pen.moveTo(x, 13);
    pen.lineTo(x, height);
    pen.globalAlpha = 0.5;
    pen.stroke();
    pen.globalAlpha = 1;
    pen.fillText(axis === "step" ? String(value) : duration(value, digits), Math.min(x, seen.width - 16), 6);
  }
  pen.textAlign = "left";
  pen.fillText(axis, 4, 6);
}

/**
 * How far two ticks are apart, a 1, 2 or 5 with zeros, and the digits that tell two of them apart.
 *
 * @param {number} span of the axis that is seen
 * @param {number} length of the whole axis
 * @param {number} most how many ticks have room
 */
export function ticks(span, length, most) {
  const least = span / Math.max(2, most);
  const power = 10 ** Math.floor(Math.log10(least));
  const every = [1, 2, 5].map((f) => f * power).find((tick) => tick >= least) ?? 10 * power;
  return { every, digits: Math.max(3, Math.ceil(Math.log10(length / power))) };
}

/**
 * The lanes of one playback.
 *
 * @param {CanvasRenderingContext2D} pen
 * @param {Playback} playback
 * @param {Seen} seen
 * @param {number} top
 * @param {number} lane its height
 * @param {Theme} theme
 */
export function drawLanes(pen, playback, seen, top, lane, theme) {
  drawNames(pen, playback.ranks, seen, top, lane, theme);
  const half = lane > 4 ? (lane - 3) / 2 : lane / 2;
  /** @type {(rank: number, span: number[], y: number, height: number, colour: string, text: string) => void} */
  const bar = (rank, [from, to], y, height, colour, text) => {
    if (to < seen.from || from > seen.to) return;
    const left = Math.max(seen.left, seen.x(from));
    const width = Math.min(seen.right, seen.x(to)) - left;
    const y0 = top + rank * lane + y;
    pen.fillStyle = colour;
    pen.fillRect(left, y0, Math.max(0.6, width - (width > 12 ? 1 : 0)), height);
    if (text && height >= 7 && width > text.length * 6 + 4) {
      pen.fillStyle = theme.paper;
      pen.font = `bold ${Math.min(10, height + 1)}px ${theme.font}`;
      pen.fillText(text, left + 3, y0 + height / 2 + 0.5);
    }
  };
  for (const transfer of playback.transfers) {
    const { src, dst } = transfer;
    const span = playback.span(transfer);
    if (transfer.delivered) {
      const colour = transfer.reduce ? theme.add : theme.copy;
      const name = chunkName(transfer);
      if (lane > 5) bar(src, span, 0, half, theme.send, `→${dst} ${name}`);
      bar(dst, span, lane > 5 ? half : 0, lane > 5 ? half : lane, colour, `${transfer.sign} ${name}`.trim());
    } else {
      const [from] = span;
      hatch(pen, seen, top + src * lane, [from, playback.length], half * 2, theme.stuck);
      bar(src, [from, from + (playback.length - from) / 1e6], 0, half * 2, theme.stuck, "");
    }
  }
  for (const item of playback.bars) {
    const span = playback.span(item);
    const colour = item.endStep === null ? theme.stuck : theme.soft;
    if (item.op === "wait") hatch(pen, seen, top + item.rank * lane, span, half * 2, colour);
    else if (item.op === "compute") bar(item.rank, span, 0, half, theme.work, item.label ?? item.op);
    else bar(item.rank, span, half, half, theme.copy, item.label ?? item.op);
  }
}

/**
 * The ranks' names, as many as have room, and the lines between the lanes.
 *
 * @param {CanvasRenderingContext2D} pen
 * @param {number} ranks
 * @param {Seen} seen
 * @param {number} top
 * @param {number} lane
 * @param {Theme} theme
 */
function drawNames(pen, ranks, seen, top, lane, theme) {
  pen.textAlign = "left";
  pen.font = `11px ${theme.font}`;
  for (let rank = 0; rank < ranks; rank++) {
    const y = top + rank * lane;
    if (lane >= 9 || (rank % Math.ceil(13 / lane) === 0 && rank + 8 / lane < ranks)) {
      pen.fillStyle = theme.soft;
      pen.fillText(`rank ${rank}`, 4, y + Math.max(lane, 8) / 2);
    }
    if (lane >= 6) {
      pen.fillStyle = theme.line;
      pen.fillRect(seen.left, y + lane - 1, seen.right - seen.left, 0.5);
    }
  }
}

/**
 * A hatched box, for waits.
 *
 * @param {CanvasRenderingContext2D} pen
 * @param {Seen} seen
 * @param {number} y
 * @param {number[]} span
 * @param {number} height
 * @param {string} colour
 */
function hatch(pen, seen, y, [from, to], height, colour) {
  const left = Math.max(seen.left, seen.x(from));
  const right = Math.min(seen.right, seen.x(to));
  if (right <= left) return;
  pen.save();
  pen.beginPath();
  pen.rect(left, y, right - left - 1, height);
  pen.clip();
  pen.strokeStyle = colour;
  pen.lineWidth = 1.5;
  for (let x = left - height; x < right; x += 6) {
    pen.beginPath();
    pen.moveTo(x, y + height);
    pen.lineTo(x + height, y);
    pen.stroke();
  }
  pen.lineWidth = 2;
  pen.strokeRect(left, y, right - left - 1, height);
  pen.restore();
}
