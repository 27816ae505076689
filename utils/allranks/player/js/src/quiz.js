// "What happens next?": one question a step, its answer read off the film. Which message is asked about follows from the
// step's number, so that the same film asks the same questions.

function ask(reel, step) {
  // in time a message of this step may be under way already, and its answer in the picture
  const now = reel.clockAt(reel.position) - 1e-9;
  const legs = (reel.byStep[step] ?? []).filter((leg) => leg.delivered && reel.spans[leg.index][0] >= now);
  if (!legs.length) return null;
  const leg = legs[(step * 5 + 1) % legs.length];
  const alone = legs.filter((other) => other.src === leg.src).length === 1;
  const kinds = [];
  if (reel.chunks > 1 && leg.chunks.length === 1) kinds.push(askChunk);
  else if (alone && reel.ranks > 2) kinds.push(askPeer);
  if (leg.chunks.length === 1 && leg.after.length && leg.does !== "receives") kinds.push(askHeld);
  return kinds.length ? kinds[step % kinds.length](reel, leg, step) : null;
}

function askChunk(reel, leg, step) {
  const right = leg.chunks[0];
  return {
    text: `Step ${step + 1}: which chunk does rank ${leg.src} send to rank ${leg.dst}?`,
    options: mix(right, reel.chunks).map((c) => ({ text: `chunk ${c}`, right: c === right })),
    why: `Rank ${leg.src} sends chunk ${right}, which ${carries(reel, leg)}; rank ${leg.dst} ${leg.does} it.`,
  };
}

function askPeer(reel, leg, step) {
  return {
    text: `Step ${step + 1}: to which rank does rank ${leg.src} send?`,
    options: mix(leg.dst, reel.ranks, leg.src).map((r) => ({ text: `rank ${r}`, right: r === leg.dst })),
    why: `Rank ${leg.src} sends to rank ${leg.dst}, which ${leg.does} it.`,
  };
}

function askHeld(reel, leg, step) {
  const [chunk] = leg.chunks, name = (list) => (list.length ? list.join(" + ") : "nothing");
  const before = name(reel.held(leg.dst, chunk)), after = name(reel.bag(leg.after[0]));
  const everyone = name(Array.from({ length: reel.ranks }, (_, r) => r));
  const options = [...new Set([before, name(reel.bag(leg.carried[0])), after, everyone])].slice(0, 4);
  if (options.length < 2) options.push(name([leg.dst, leg.src].sort((a, b) => a - b)));
  if (!options.includes(after)) options[options.length - 1] = after;
  return {
    text: `Step ${step + 1}: rank ${leg.src} sends chunk ${chunk} to rank ${leg.dst}. Whose contributions does rank ${leg.dst}'s chunk ${chunk} hold afterwards?`,
    options: options.sort((a, b) => a.length - b.length || (a < b ? -1 : 1)).map((text) => ({ text, right: text === after })),
    why: `Rank ${leg.dst} held ${before}. The message ${carries(reel, leg)} and is ${leg.reduce ? "added" : "stored in place of it"}, so it then holds ${after}.`,
  };
}

function carries(reel, leg) {
  const has = leg.carried.length ? reel.bag(leg.carried[0]) : [];
  return has.length ? `carries the contribution${has.length > 1 ? "s" : ""} of rank${has.length > 1 ? "s" : ""} ${has.join(" + ")}` : "carries bytes";
}

// The right number and up to three others near it, in order.
function mix(right, count, without = -1) {
  const found = new Set([right]);
  for (const step of [1, -1, 2, -2, 3]) {
    const other = (((right + step) % count) + count) % count;
    if (other !== without && found.size < 4) found.add(other);
  }
  return [...found].sort((a, b) => a - b);
}
