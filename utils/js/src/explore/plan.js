// A step of training by its split, as allranks.cost.plan and allranks.cost.step have it. A test holds the two equal.

/**
 * @typedef {{alpha_s: number, bytes_per_s: number}} Link
 * @typedef {object} Machine as topology.PRESETS has it
 * @property {number} ranks_per_node
 * @property {number} ranks_per_island
 * @property {number} nics_per_node
 * @property {Link} inside
 * @property {Link | null} host
 * @property {Link | null} nic
 * @property {number} nodes_per_leaf 0 for one switch
 * @property {number} oversubscription
 * @property {number} flop_per_s the GPU's peak
 * @property {number} bytes_per_s of its memory
 * @property {number} product_share of the peak, what a large product reaches
 *
 * @typedef {object} Model as cost.plan.MODELS has it
 * @property {number} parameters
 * @property {number} layers
 * @property {number} hidden
 * @property {number} sequence
 * @property {number} experts
 * @property {number} top_k
 * @property {number} expert_parameters
 * @property {number} vocabulary
 *
 * @typedef {object} Split
 * @property {number} dp
 * @property {number} tp
 * @property {number} pp
 * @property {number} cp
 * @property {number} ep
 * @property {number} zero_stage
 * @property {number} batch
 * @property {number} microbatch
 * @property {number} bucket bytes of gradients in a call; 0 for one call with all of them
 *
 * @typedef {object} Assumptions as allranks.cost.step and allranks.cost.kernels have them
 * @property {number} other_nbytes
 * @property {number} activation_nbytes
 * @property {[number, number][]} sizes 10^9 operations of a product, and the share of a large product's rate
 * @property {number} flash_share
 * @property {number} flash_backward
 * @property {number} memory_share
 * @property {number} layer_nbytes
 * @property {number} logit_nbytes
 * @typedef {{size: number, alpha: number, rate: number}} Group
 */

const ELEMENT = 2;
const OPTIMIZER = 12;

/** @param {Split} split */
const ranksOf = ({ dp, tp, pp, cp }) => dp * tp * pp * cp;

/**
 * Why this split is impossible; "" if it is possible.
 *
 * @param {Model} model
 * @param {Split} split
 */
export function problem(model, split) {
  const { dp, pp, tp, cp, ep, batch, microbatch } = split;
  if (!Number.isInteger(dp) || dp < 1) return "not enough GPUs for this split";
  if (model.layers % pp) return `${model.layers} layers are not ${pp} equal stages`;
  if (model.hidden % tp) return `${model.hidden} columns are not ${tp} equal parts`;
  if (model.sequence % cp) return `${model.sequence} tokens are not ${cp} equal parts`;
  if (batch % (dp * microbatch)) return `${batch} sequences are not whole microbatches on ${dp} replicas`;
  if (ep > 1 && cp > 1) return "EP together with CP is not priced";
  if (ep > 1 && (model.experts < 2 || model.experts % ep)) return `${model.experts} experts are not ${ep} equal parts`;
  if (dp % ep) return `EP ${ep} does not divide DP ${dp}`;
  return "";
}

/**
 * Whether every group of `size` ranks, `stride` apart, lies inside one unit of the machine.
 *
 * @param {number} stride
 * @param {number} size
 * @param {number} unit
 * @param {number} ranks
 */
const staysWithin = (stride, size, unit, ranks) => ranks <= unit || unit % (stride * size) === 0;

/**
 * @param {Machine} machine
 * @param {number} ranks
 * @param {number} stride
 * @param {number} size
 * @param {boolean} toAll
 * @returns {Group}
 */
function groupOf(machine, ranks, stride, size, toAll = false) {
  const node = machine.ranks_per_node;
  const island = machine.ranks_per_island;
  /** @type {[number, number, number][]} ranks of a unit, bytes a second of its links together, alpha */
  const levels = [];
  if (machine.host && island < node && !staysWithin(stride, size, island, ranks)) {
    levels.push([island, machine.host.bytes_per_s, machine.host.alpha_s]);
  }
  if (machine.nic && !staysWithin(stride, size, node, ranks)) {
    const cards = machine.nics_per_node * machine.nic.bytes_per_s;
    levels.push([node, cards, machine.nic.alpha_s]);
    const leaf = node * machine.nodes_per_leaf;
    if (leaf && !staysWithin(stride, size, leaf, ranks)) {
      levels.push([leaf, (cards * machine.nodes_per_leaf) / machine.oversubscription, 0]);
    }
  }
  const alpha = Math.max(machine.inside.alpha_s, ...levels.map(([, , each]) => each));
  if (toAll && size > 1) return { size, alpha, rate: exchangeRate(machine, stride, size, levels) };
  const shares = levels.map(([unit, rate]) => rate / Math.min(stride, unit));
  return { size, alpha, rate: Math.min(machine.inside.bytes_per_s, ...shares) };
}

/**
 * The rate at which a rank of an all-to-all sends its (size-1)/size of the bytes, if all kinds of links work at once.
 *
 * @param {Machine} machine
 * @param {number} stride
 * @param {number} size
 * @param {[number, number, number][]} levels
 */
function exchangeRate(machine, stride, size, levels) {
  const near = levels.map(([unit]) => Math.min(size, Math.max(1, Math.floor(unit / stride))));
  let busiest = ((near[0] ?? size) - 1) / machine.inside.bytes_per_s;
  levels.forEach(([unit, rate], at) => {
    // bytes to other nodes do not take the links between a node's islands
    const reached = unit < machine.ranks_per_node ? (near[at + 1] ?? size) : size;
    busiest = Math.max(busiest, ((reached - (near[at] ?? 1)) * unit) / rate);
  });
  return (size - 1) / busiest;
}

/**
 * Seconds of calls of a collective: each has so many passes of p-1 steps, with the p-th part in each.
 *
 * @param {Group} group
 * @param {number} passes 2 for an all-reduce, 1 for its halves and an all-to-all
 * @param {number} calls
 * @param {number} nbytes
 */
function ring({ size, alpha, rate }, passes, calls, nbytes) {
  return calls * passes * (size - 1) * alpha + (calls * passes * (size - 1) * nbytes) / size / rate;
}

/**
 * In how many calls the gradients of so many parameters are sent.
 *
 * @param {number} parameters
 * @param {number} bucket
 */
function bucketsOf(parameters, bucket) {
  const nbytes = parameters * ELEMENT;
  return bucket ? Math.ceil(nbytes / Math.min(bucket, nbytes)) : 1;
}

/**
 * Seconds of data parallel communication for `parameters` that a group shares.
 *
 * @param {number} parameters
 * @param {Group} group
 * @param {Split} split
 * @param {number} microbatches
 * @param {number} layers of a pipeline stage; stages 2 and 3 send one at a time
 */
function dataSeconds(parameters, group, { zero_stage: stage, bucket }, microbatches, layers) {
  const nbytes = parameters * ELEMENT;
  const calls = stage >= 2 ? layers : bucketsOf(parameters, bucket);
  const once = ring(group, 1, calls, nbytes / calls);
  if (stage === 0) return 2 * once;
  if (stage === 1) return 2 * once;
  return stage === 2 ? microbatches * once + once : 3 * microbatches * once;
}

/**
 * Dense and expert parameters on one rank.
 *
 * @param {Model} model
 * @param {Split} split
 */
function parametersOf(model, { tp, pp, ep }) {
  const expert = ep > 1 ? model.expert_parameters : 0;
  return { dense: (model.parameters - expert) / (tp * pp), expert: expert / (tp * pp * ep) };
}

/**
 * The calls for the gradients, of all ranks or of the experts, whichever are more; a group of one makes none.
 *
 * @param {Model} model
 * @param {Split} split
 */
function mostBuckets(model, split) {
  const { dp, cp, ep, bucket } = split;
  const { dense, expert } = parametersOf(model, split);
  const ofExperts = expert && Math.floor(dp / ep) > 1 ? bucketsOf(expert, bucket) : 0;
  return Math.max(dense && dp * cp > 1 ? bucketsOf(dense, bucket) : 0, ofExperts);
}

/**
 * Bytes on the fullest rank, by what they hold.
 *
 * @param {Model} model
 * @param {Split} split
 * @param {Assumptions} assumed
 */
export function memoryOf(model, split, assumed) {
  const { dp, tp, pp, cp, ep, zero_stage: stage, batch, microbatch } = split;
  const { dense, expert } = parametersOf(model, split);
  /** @param {number} nbytes @param {number} from */
  const held = (nbytes, from) =>
    (dense * nbytes) / (stage >= from ? dp * cp : 1) + (expert * nbytes) / (stage >= from ? Math.floor(dp / ep) : 1);
  const layer = (assumed.activation_nbytes * microbatch * model.sequence * model.hidden) / (tp * cp);
  return {
    weights: held(ELEMENT, 3),
    gradients: held(ELEMENT, 2),
    optimizer: held(OPTIMIZER, 1),
    activations: layer * (model.layers / pp) * Math.min(pp, batch / (dp * microbatch)),
    other: assumed.other_nbytes,
  };
}

/**
 * Seconds that a rank communicates in a step, by kind; 0 for a kind that the split does not have.
 *
 * @param {Model} model
 * @param {Machine} machine
 * @param {Split} split
 */
export function pricesOf(model, machine, split) {
  const { dp, tp, pp, cp, ep, batch, microbatch } = split;
  const ranks = ranksOf(split);
  const m = batch / (dp * microbatch);
  const layers = model.layers / pp;
  const tokens = (microbatch * model.sequence) / cp;
  /** @param {number} stride @param {number} size */
  const group = (stride, size, toAll = false) => groupOf(machine, ranks, stride, size, toAll);
  const { dense, expert } = parametersOf(model, split);
  /** @param {number} count @param {Group} among */
  const shared = (count, among) => (count && among.size > 1 ? dataSeconds(count, among, split, m, layers) : 0);
  const activation = tokens * model.hidden * ELEMENT;
  const found = { data: 0, tensor: 0, context: 0, pipeline: 0, expert: 0 };
  if (dp * cp > 1) {
    found.data = shared(dense, group(tp, dp * cp)) + shared(expert, group(tp * ep, Math.floor(dp / ep)));
  }
  if (tp > 1) found.tensor = m * ring(group(1, tp), 2, 4 * layers, activation);
  if (cp > 1) {
    const { alpha, rate } = group(tp, cp);
    found.context = m * 3 * layers * (cp - 1) * (alpha + (2 * activation) / tp / rate);
  }
  if (pp > 1) {
    const { alpha, rate } = group(tp * dp * cp, pp);
    found.pipeline = (pp > 2 ? 2 : 1) * m * (alpha + activation / rate);
  }
  if (ep > 1) found.expert = m * 4 * ring(group(tp, ep, true), 1, layers, activation * model.top_k);
  return found;
}

/**
 * What a product of so many operations reaches of the rate that the largest products reach.
 *
 * @param {number} flop
 * @param {[number, number][]} sizes
 */
function productShare(flop, sizes) {
  const size = flop / 1e9;
  for (let at = 1; at < sizes.length; at++) {
    const [[low, share], [high, more]] = [sizes[at - 1] ?? [0, 0], sizes[at] ?? [0, 0]];
    if (size < high) return share + ((more - share) * (size - low)) / (high - low);
  }
  return (sizes[sizes.length - 1] ?? [0, 1])[1];
}

/**
 * Seconds of one microbatch's computing on one rank: a layer forward and backward, and the logits.
 *
 * @param {Model} model
 * @param {Machine} machine
 * @param {Split} split
 * @param {Assumptions} assumed
 * @param {number} used parameters that a token meets
 */
function computing(model, machine, { tp, cp, microbatch }, assumed, used) {
  const { flop_per_s: peak, product_share: reached } = machine;
  const memory = assumed.memory_share * machine.bytes_per_s;
  const tokens = (microbatch * model.sequence) / cp;
  const width = model.hidden * model.vocabulary;
  /** @param {number} flop @param {number} pieces */
  const product = (flop, pieces) => flop / (peak * reached * productShare(flop / pieces, assumed.sizes));
  const products = product((2 * tokens * (used - width)) / model.layers / tp, 4);
  const attention = (2 * ((tokens * model.sequence) / tp) * model.hidden) / (peak * assumed.flash_share);
  const other = (assumed.layer_nbytes * tokens * model.hidden) / tp / memory;
  const logits = (3 * assumed.logit_nbytes * tokens * model.vocabulary) / tp / memory;
  return {
    layer: 3 * (products + other) + (1 + assumed.flash_backward) * attention,
    logits: logits + (width ? product((6 * tokens * width) / tp, 3) : 0),
  };
}

/**
 * What the seconds of a step are spent on, in the order in which they are drawn.
 *
 * @param {Model} model
 * @param {Machine} machine
 * @param {Split} split
 * @param {Assumptions} assumed
 */
export function spentOf(model, machine, split, assumed) {
  const { dp, pp, batch, microbatch, zero_stage: stage } = split;
  const m = batch / (dp * microbatch);
  const idle = model.experts ? model.expert_parameters * (1 - model.top_k / model.experts) : 0;
  const used = model.parameters - idle;
  const arithmetic = (6 * used + 12 * model.layers * model.hidden * model.sequence) * batch * model.sequence;
  const useful = arithmetic / (ranksOf(split) * machine.flop_per_s);
  const one = computing(model, machine, split, assumed, used);
  const compute = (m * (model.layers * one.layer + one.logits)) / pp;
  const uneven = m * one.logits * (1 - 1 / pp); // the other stages wait for the last one
  const prices = pricesOf(model, machine, split);
  const busy = compute + uneven + prices.tensor + prices.context + prices.expert;
  const often = stage >= 2;
  const layers = model.layers / pp;
  const pieces = often ? layers * m : Math.min(layers, mostBuckets(model, split));
  const hides = (often ? compute : compute / m) * (1 - 1 / pieces);
  return {
    useful,
    kernels: compute - useful,
    tensor: prices.tensor,
    context: prices.context,
    expert: prices.expert,
    waits: uneven + (busy * (pp - 1)) / m,
    data: prices.data ? Math.max(prices.data - hides, prices.data / pieces) : 0,
    sends: prices.pipeline,
  };
}
