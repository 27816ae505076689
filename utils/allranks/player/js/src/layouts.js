// Where each rank stands, and how the way from one to another runs.

const LAYOUTS = ["ring", "line", "tree", "grid", "all-to-all"];

// Centres of the cards for a layout; `card` is {w, h}, `gap` the room that a packet needs between two cards.
function place(layout, reel, card, gap, narrow = false) {
  const p = reel.ranks;
  if (layout === "line") return Array.from({ length: p }, (_, r) => ({ x: r * (card.w + gap.x), y: 0 }));
  if (layout === "grid") {
    const wide = reel.columns;
    return Array.from({ length: p }, (_, r) => ({
      x: (r % wide) * (card.w + gap.x), y: Math.floor(r / wide) * (card.h + gap.y),
    }));
  }
  if (layout === "tree") return tree(reel, card, gap);
  if (layout === "ring" && p > 10 && card.w > 20) return track(p, card, gap, narrow);
  for (let radius = 60; ; radius += 6) {
    const flat = narrow ? 0.95 : layout === "ring" ? 0.56 : 0.66;
    const at = Array.from({ length: p }, (_, r) => {
      const turn = (2 * Math.PI * r) / p - Math.PI / 2;
      return { x: radius * Math.cos(turn), y: radius * flat * Math.sin(turn) };
    });
    const clear = (a, b) => Math.abs(a.x - b.x) >= card.w + gap.x || Math.abs(a.y - b.y) >= card.h + gap.y;
    if (at.every((a, i) => at.every((b, j) => j <= i || clear(a, b)))) return at;
  }
}

// A ring of many cards as the edge of a rectangle, which is narrower than an ellipse: clockwise from the top left.
function track(p, card, gap, narrow) {
  const across = Math.max(2, Math.round(p * (narrow ? 0.19 : 0.31))), down = Math.ceil((p - 2 * across) / 2);
  const wide = (across - 1) * (card.w + gap.x), tall = (down + 1) * (card.h + gap.y);
  const spread = (count, i, from, to) => from + ((i + 1) * (to - from)) / (count + 1);
  return Array.from({ length: p }, (_, r) => {
    if (r < across) return { x: r * (card.w + gap.x), y: 0 };
    if (r < across + down) return { x: wide, y: spread(down, r - across, 0, tall) };
    if (r < 2 * across + down) return { x: wide - (r - across - down) * (card.w + gap.x), y: tall };
    return { x: 0, y: spread(p - 2 * across - down, r - 2 * across - down, tall, 0) };
  });
}

// Breadth-first from the root over the links in use; ranks that no link reaches stand in the last row.
function tree(reel, card, gap) {
  const p = reel.ranks, near = Array.from({ length: p }, () => new Set());
  for (const [a, b] of reel.links) { near[a].add(b); near[b].add(a); }
  const root = reel.root ?? 0, children = Array.from({ length: p }, () => []), seen = new Set([root]), queue = [root];
  const depth = new Array(p).fill(0);
  for (const rank of queue) {
    for (const other of [...near[rank]].sort((a, b) => a - b)) {
      if (seen.has(other)) continue;
      seen.add(other);
      depth[other] = depth[rank] + 1;
      children[rank].push(other);
      queue.push(other);
    }
  }
  const at = new Array(p);
  let column = 0;
  const settle = (rank) => {
    const kids = children[rank].map(settle);
    const x = kids.length ? (kids[0] + kids[kids.length - 1]) / 2 : column++ * (card.w + gap.x * 0.6);
    at[rank] = { x, y: depth[rank] * (card.h + gap.y * 1.2) };
    return x;
  };
  settle(root);
  const bottom = Math.max(...depth) + 1;
  for (let r = 0; r < p; r++) {
    if (!at[r]) at[r] = { x: column++ * (card.w + gap.x * 0.6), y: bottom * (card.h + gap.y) };
  }
  return at;
}

// The way from card a to card b as a quadratic curve that keeps its packets off the other cards: {from, by, to}. Where
// messages go both ways each keeps to its left, so that two packets pass beside each other. With `lean` curves go up and left
// where they can, so that those of one row don't meet those of the next.
function way(at, a, b, card, packet, both, lean) {
  const A = at[a], B = at[b], dx = B.x - A.x, dy = B.y - A.y, far = Math.hypot(dx, dy) || 1;
  const nx = -dy / far, ny = dx / far;
  const shift = both ? (Math.abs(nx) * packet.w + Math.abs(ny) * packet.h) / 2 + 1 : 0;
  const others = at.filter((_, r) => r !== a && r !== b);
  let best = null;
  for (const bend of [0, -0.2, 0.2, -0.3, 0.3, -0.4, 0.4, -0.5, 0.5, -0.6, 0.6, -0.8, 0.8, -1.1, 1.1]) {
    const aside = bend && !lean ? { x: 0, y: 0 } : { x: -nx * shift, y: -ny * shift };
    const by = { x: (A.x + B.x) / 2 - nx * bend * far + aside.x, y: (A.y + B.y) / 2 - ny * bend * far + aside.y };
    const curve = { from: edge(A, by, card, aside), by, to: edge(B, by, card, aside) };
    const down = -bend * (Math.abs(nx) > Math.abs(ny) ? nx : ny) > 0;
    let cover = Math.abs(bend) * 3 + (lean && bend && down ? 40 : 0);
    for (const o of others) {
      for (let i = 1; i < 12; i++) {
        const q = along(curve, i / 12);
        const wide = (card.w + packet.w) / 2 - Math.abs(q.x - o.x), high = (card.h + packet.h) / 2 - Math.abs(q.y - o.y);
        if (wide > 0 && high > 0) cover += Math.min(wide, high);
      }
    }
    if (best === null || cover < best.cover) best = { ...curve, cover };
    if (!cover) break;
  }
  return best;
}

// Where the line from beside a card's centre towards a point leaves the card.
function edge(centre, towards, card, aside) {
  const x = centre.x + aside.x, y = centre.y + aside.y;
  const dx = towards.x - x || 1e-6, dy = towards.y - y || 1e-6;
  const scale = Math.min(((card.w / 2 + 3) * Math.sign(dx) - aside.x) / dx, ((card.h / 2 + 3) * Math.sign(dy) - aside.y) / dy);
  return { x: x + dx * scale, y: y + dy * scale };
}

function along(curve, t) {
  const u = 1 - t;
  return {
    x: u * u * curve.from.x + 2 * u * t * curve.by.x + t * t * curve.to.x,
    y: u * u * curve.from.y + 2 * u * t * curve.by.y + t * t * curve.to.y,
  };
}
