// What of an all-reduce in buckets backward hides, as cost.workload.ddp has it. A test holds the two equal.

/**
 * @typedef {object} Job
 * @property {number} nbytes of all gradients
 * @property {number} ranks
 * @property {number} alpha seconds a message
 * @property {number} bytesPerS
 */

/**
 * @param {Job} job
 * @param {number} bucket bytes
 * @param {number} backward seconds
 */
export function exposure({ nbytes, ranks, alpha, bytesPerS }, bucket, backward) {
  const calls = Math.ceil(nbytes / Math.min(bucket, nbytes));
  const one = 2 * (ranks - 1) * alpha + (2 * (ranks - 1) * (nbytes / calls)) / ranks / bytesPerS;
  const all = calls * one;
  return { calls, one, all, exposed: Math.max(all - backward * (1 - 1 / calls), one) };
}

/**
 * When each bucket is ready, begins and ends: one after the other, each when its gradients are complete.
 *
 * @param {{calls: number, one: number}} found
 * @param {number} backward
 */
export function lanes({ calls, one }, backward) {
  const found = [];
  let free = 0;
  for (let i = 1; i <= calls; i++) {
    const ready = (backward * i) / calls;
    const start = Math.max(ready, free);
    free = start + one;
    found.push({ ready, start, end: free });
  }
  return found;
}
