// A step of FSDP over six equal blocks, as first_figures.py has it. A test holds the two equal.

export const BLOCKS = 6;

/**
 * @typedef {object} Job
 * @property {number} block
 * @property {"gather" | "scatter" | "forward" | "backward"} kind
 * @property {number} start
 * @property {number} end
 *
 * @typedef {object} Held a block that is whole
 * @property {number} block
 * @property {number} start from the start of its gather
 * @property {number} end
 */

/**
 * Gathers begin as early as there is room for another whole block; the last block stays for its backward pass.
 *
 * @param {number} gather how long a gather takes, and a scatter; a forward pass takes 1, a backward pass 2
 * @param {number} room how many blocks may be whole at once
 */
export function fsdpRun(gather, room) {
  const forward = Array.from({ length: BLOCKS }, (_, block) => ({ block, kind: "forward" }));
  const backward = forward.map(({ block }) => ({ block, kind: "backward" })).reverse();
  /** @type {Job[]} */
  const computing = [];
  /** @type {Job[]} */
  const network = [];
  /** @type {Held[]} */
  const held = [];
  /** @type {number[]} when a block was given back */
  const freed = [];
  let [free, now] = [0, 0];
  const use = (/** @type {number} */ block, /** @type {Job["kind"]} */ kind, /** @type {number} */ from) => {
    const start = Math.max(free, from);
    free = start + gather;
    network.push({ block, kind, start, end: free });
    if (kind === "gather") held.push({ block, start, end: Infinity });
    return free;
  };
  const gathers = [...forward, ...backward.slice(1)].map(({ block }) => block);
  const arrived = /** @type {number[]} */ ([]);
  const launch = () => {
    while (arrived.length < gathers.length && arrived.length < freed.length + room) {
      const slot = arrived.length - room;
      arrived.push(use(gathers[arrived.length], "gather", slot < 0 ? 0 : freed[slot]));
    }
  };
  launch();
  for (const [turn, { block, kind }] of [...forward, ...backward].entries()) {
    const needs = turn < BLOCKS ? turn : turn - 1; // the last block was not freed, and needs no second gather
    const start = Math.max(now, arrived[needs]);
    now = start + (kind === "forward" ? 1 : 2);
    computing.push({ block, kind: /** @type {Job["kind"]} */ (kind), start, end: now });
    if (kind === "backward") use(block, "scatter", now);
    if (turn === BLOCKS - 1) continue;
    const given = held.find((one) => one.block === block && one.end === Infinity);
    if (given) given.end = now;
    freed.push(now);
    launch();
  }
  const most = Math.max(...held.map(({ start }) => held.filter((one) => one.start <= start && start < one.end).length));
  return { computing, network, held, most, seconds: free, waits: 1 - (3 * BLOCKS) / free };
}
