# %% [markdown] name="title"
# # Context parallel
#
# {{here}}
#
# **A book has 131,072 tokens, and 16 GPUs have 8,192 of them each. Every token must look at all tokens before it. What has to travel: tokens, keys and values, or whole heads? And who waits for whom?**
#
# {{picture}}
#
# One row of squares is what one token looks at: itself and all tokens before it.

# %% name="first_picture"
from allranks import explore

explore.attention(owner="in order", step=2)

# %% [markdown] name="first_question"
# **Ask the picture.** Drag through the steps: which rank never waits, and what do the others do in step 4? Guess how long zigzag takes before you choose it.

# %% [markdown] name="my_model_needs"
# **My model** will read 131,072 tokens at a time. The activations of one such sequence take 584 GB, and a step of 1 million tokens has only 8
# sequences. So 8 replicas of 8 tensor parallel GPUs are 64 GPUs. I have 1,024, so the sequences must be split.

# %% name="start_world"
import torch
import torch.distributed as dist

from allranks import Player, World, check, plots, predict, predictions, schedules

world = World()
world

# %% [markdown] name="guess_intro"
# A long sequence does not fit on one GPU: not its keys and values, and even less the activations of every layer. So the *sequence* is split, which is
# called **context parallelism**. All other layers work on each token alone and don't notice. Only attention needs the others.
#
# The picture shows four ranks, each with a quarter of the rows.

# %% name="guess_balance"
balance = predict(
    "Four ranks with a quarter of the tokens each, in order: how much longer does the last rank compute than the mean of all ranks?",
    choices=["as long", "1.3 times", "1.7 times", "4 times"],
    title="The last rank computes",
)
balance

# %% [markdown] name="gather"
# ## 1. Bring all keys and values here
#
# A query $q_i$ needs the score $q_i \cdot k_j / \sqrt d$ with every key, a softmax over them, and the sum of the values with these weights. The simple
# way: gather all keys and all values, and every rank computes its own rows. Llama 3 was trained so, because keys and values are small: its 128 query
# heads share 8 key heads (**grouped-query attention**, GQA).

# %% name="gather_live"
# %%ranks
torch.manual_seed(0)
tokens, width = 8 * world_size, 16
whole = torch.randn(3, tokens, width)  # queries, keys and values of one head; each rank takes its part
q, k, v = whole.tensor_split(world_size, dim=1)[rank]

keys, values = torch.empty(tokens, width), torch.empty(tokens, width)
dist.all_gather_single(keys, k.contiguous())
dist.all_gather_single(values, v.contiguous())
gathered = torch.softmax(q @ keys.T / width**0.5, dim=-1) @ values

alone = torch.softmax(whole[0] @ whole[1].T / width**0.5, dim=-1) @ whole[2]
mine = alone.tensor_split(world_size)[rank]
print(f"off by {(gathered - mine).abs().max():.0e}")

# %% [markdown] name="gather_explained"
# (No mask yet.) This is short, any mask is easy, and the queries stay at home. But every rank holds the keys and values of the *whole* sequence, and it
# can't begin before the last of them has come.
#
# ## 2. Round the ring
#
# The softmax can be merged block by block: [Composing collectives](../2_collectives/18_composing.ipynb) merged a maximum $m$ and a sum $l$. Attention adds a third part,
# the weighted sum of values $o$. With $m = \max(m_a, m_b)$:
#
# $$l = l_a e^{m_a - m} + l_b e^{m_b - m}, \qquad o = o_a e^{m_a - m} + o_b e^{m_b - m}, \qquad \text{result} = o / l.$$
#
# So a rank needs only *one* block of keys and values at a time. The blocks go round the ring, and while one is used, the next is on its way: **ring
# attention**.


# %% name="merge"
# %%ranks
def block_of(q, k, v):
    """The summary of one block: maxima, sums, and weighted sums of values."""
    scores = q @ k.T / q.shape[1] ** 0.5
    top = scores.amax(dim=1, keepdim=True)
    weights = (scores - top).exp()
    return top, weights.sum(dim=1, keepdim=True), weights @ v


def merged(a, b):
    """One summary of two."""
    top = torch.maximum(a[0], b[0])
    return top, *(x * (a[0] - top).exp() + y * (b[0] - top).exp() for x, y in zip(a[1:], b[1:], strict=True))


# %% name="ring_live"
# %%ranks
def ring(q, k, v):
    block, summary = torch.stack([k, v]), None
    for step in range(world_size):
        works = []
        if step < world_size - 1:  # the next block is under way while this one is used
            coming = torch.empty_like(block)
            works = dist.batch_isend_irecv(
                [
                    dist.P2POp(dist.isend, block, (rank + 1) % world_size),
                    dist.P2POp(dist.irecv, coming, (rank - 1) % world_size),
                ]
            )
        here = block_of(q, *block)
        summary = here if summary is None else merged(summary, here)
        for work in works:
            work.wait()
        block = coming
    _, total, out = summary
    return out / total


print(f"off by {(ring(q, k, v) - mine).abs().max():.0e}")

# %% [markdown] name="ring_explained"
# The result is the same, up to rounding, and beside its own keys and values no rank held more than two blocks. Step through it: a chunk here is a block of keys and values.

# %% name="watch"
Player(schedules.ring_all_gather(ranks=4))

# %% [markdown] name="hide"
# How long must a block be, so that its journey hides behind the computing? A step of $n$ queries and $n$ keys, in one head of width $d$, computes
# $4n^2d$ operations, and a block has $2nd$ numbers of 2 bytes. Both contain $n d$, so the width cancels: the journey is hidden if $n \ge F/W$, with
# $F$ operations a second and $W$ bytes a second.

# %% name="guess_hide"
hide = predict(
    "An H100 (989 TFLOP/s in bfloat16) and a network card of 50 GB/s: from how many tokens a rank on is the journey hidden?",
    low=10,
    high=1_000_000,
    unit="tokens",
    log=True,
    title="Tokens a rank that hide the ring",
)
hide

# %% name="hidden"
for name, bandwidth in {"NVLink": 450e9, "network card": 50e9}.items():
    print(f"{name:12} {989e12 / bandwidth:8,.0f} tokens a rank")

# %% name="reveal_hide" jupyter={"source_hidden": true}
# the answer: run this cell
hide.reveal(
    989e12 / 50e9,
    why="Computing grows with the square of the block and the journey with its length, but a GPU computes so fast that the square wins only at 989e12 / 50e9 tokens.",
    marks={"over NVLink": 989e12 / 450e9},
)

# %% [markdown] name="hide_explained"
# This is for full attention with as many key heads as query heads. With GQA several query heads use one key head, so they compute more for the same
# bytes, and less is enough. With a causal mask about half of the pairs are left out, and it takes twice as many.
#
# ## 3. Who waits for whom
#
# Now the mask: a token sees itself and what is before it. Count the pairs that each rank scores, at each step of the ring. The step ends when its
# *slowest* rank is done.


# %% name="count_pairs"
def pairs(places, block):
    """How many pairs (query, key) a rank with these places scores in a block of keys with those places."""
    return sum(key <= query for query in places for key in block)


def by_step(shards):
    """The pairs of each rank at each step: at step s + 1, rank r has the block of rank r - s."""
    p = len(shards)
    return [[pairs(shards[r], shards[(r - s) % p]) for r in range(p)] for s in range(p)]


p, chunk = 4, 2  # 16 tokens
in_order = [range(r * 2 * chunk, (r + 1) * 2 * chunk) for r in range(p)]
steps = by_step(in_order)
print("pairs of each rank in all:", [sum(step[r] for step in steps) for r in range(p)])
for number, step in enumerate(steps, 1):
    print(f"step {number}: {step}, the slowest has {max(step)}")
total = [sum(step[r] for step in steps) for r in range(p)]
slowest = sum(map(max, steps))
print(
    f"the last rank: {max(total) / (sum(total) / p):.2f} times the mean; all steps: {slowest} pairs, one after the other"
)

# %% name="reveal_balance" jupyter={"source_hidden": true}
# the answer: run this cell
balance.reveal(
    "1.7 times",
    why="Its rows are the longest, but rank 2's are long too: the last quarter of the rows has 58 of the 136 squares, 43 %.",
)

# %% [markdown] name="zigzag"
# Rank 0 has nothing to do after its own block, and in step 4 the last rank alone has work. The repair sends no byte more: give each rank a short piece *and* a long one. Cut the
# sequence in $2p$ chunks; rank $r$ takes chunk $r$ and chunk $2p-1-r$. This is called **zigzag**.

# %% name="zigzag_pairs"
zigzag = [[c * chunk + i for c in (r, 2 * p - 1 - r) for i in range(chunk)] for r in range(p)]
print("rank 1 has the tokens", zigzag[1])
figure, axes = plots.chart("step of the ring", "pairs of the slowest rank")
for name, shards in {"in order": in_order, "zigzag": zigzag}.items():
    axes.plot(range(1, p + 1), [max(step) for step in by_step(shards)], marker="o", label=name)
    print(
        f"{name:8} {[sum(step[r] for step in by_step(shards)) for r in range(p)]}, {sum(map(max, by_step(shards)))} pairs one after the other"
    )
axes.set(xticks=range(1, p + 1), ylim=(0, None))
axes.legend()
figure

# %% [markdown] name="zigzag_explained"
# All ranks have the same work, in all and in every step. The price: a token's place in the sequence is no longer "my rank times $n$". **The places must
# travel with the keys**, because the mask compares them. Two mistakes are made again and again:
#
# - *Rotary embeddings* (RoPE) turn a query by its place. They need the place in the *sequence*, not in the shard.
# - *The loss*: a rank whose shard holds padding has fewer tokens that count.

# %% name="guess_loss"
guess = predict(
    "All tokens have loss 1, but the last rank has one real token with loss 5, the rest of it is padding. What is the mean of the ranks' means, against the mean of all real tokens?",
    choices=["the same", "larger", "smaller"],
    title="The mean of the ranks' means is",
)
guess

# %% name="loss_live"
# %%ranks
losses = torch.full((8,), 1.0)
counts = torch.ones(8, dtype=torch.bool)
if rank == world_size - 1:
    losses[0], counts[1:] = 5.0, False
of_means = losses[counts].mean()
dist.all_reduce(of_means)
sums = torch.tensor([losses[counts].sum(), counts.sum()])
dist.all_reduce(sums)
print(f"mean of means {of_means / world_size:.3f}, mean of all tokens {sums[0] / sums[1]:.3f}")

# %% name="reveal_loss" jupyter={"source_hidden": true}
# the answer: run this cell
guess.reveal(
    "larger",
    why="The one real token of the last rank gets the weight of a whole shard.",
)

# %% [markdown] name="ring_mine_task"
# ### Your turn
#
# Ring attention with a causal mask. Keys, values and their places in the sequence go round; `positions` are the places of this rank's own queries, in order or in a zigzag. The code below masks nothing, and
# `exp` overflows if scores are large. **Mend both**, as section 2 merges blocks.


# %% name="ring_mine"
def ring_attention(q, k, v, positions):
    rank, p, block = (
        dist.get_rank(),
        dist.get_world_size(),
        [k.contiguous(), v.contiguous(), positions.contiguous()],
    )
    top = torch.full((len(q), 1), -torch.inf, dtype=torch.float64)
    total, out = torch.zeros_like(top), torch.zeros(q.shape, dtype=torch.float64)
    for step in range(p):
        works, coming = [], [torch.empty_like(t) for t in block]
        if step < p - 1:
            sends = [dist.P2POp(dist.isend, t, (rank + 1) % p) for t in block]
            works = dist.batch_isend_irecv(sends + [dist.P2POp(dist.irecv, t, (rank - 1) % p) for t in coming])
        keys, values = block[:2]  # block[2] has the places of these keys
        scores = q.double() @ keys.double().T / q.shape[1] ** 0.5
        weights = scores.exp()  # your turn: the mask, and one maximum for this block and those before
        total += weights.sum(dim=1, keepdim=True)
        out += weights @ values.double()
        for work in works:
            work.wait()
        block = coming
    return (out / total).to(q.dtype)


check(ring_attention)

# %% [markdown] name="ring_mine_answer"
# <details><summary><b>An answer</b></summary>
#
# ```python
# def ring_attention(q, k, v, positions):
#     rank, p, block = dist.get_rank(), dist.get_world_size(), [k.contiguous(), v.contiguous(), positions.contiguous()]
#     top = torch.full((len(q), 1), -torch.inf, dtype=torch.float64)
#     total, out = torch.zeros_like(top), torch.zeros(q.shape, dtype=torch.float64)
#     for step in range(p):
#         works, coming = [], [torch.empty_like(t) for t in block]
#         if step < p - 1:
#             sends = [dist.P2POp(dist.isend, t, (rank + 1) % p) for t in block]
#             works = dist.batch_isend_irecv(sends + [dist.P2POp(dist.irecv, t, (rank - 1) % p) for t in coming])
#         keys, values, places = block
#         scores = q.double() @ keys.double().T / q.shape[1] ** 0.5
#         scores = scores.masked_fill(places[None, :] > positions[:, None], -torch.inf)
#         new = torch.maximum(top, scores.amax(dim=1, keepdim=True))
#         weights, old, top = (scores - new).exp(), (top - new).exp(), new
#         total = total * old + weights.sum(dim=1, keepdim=True)
#         out = out * old + weights @ values.double()
#         for work in works:
#             work.wait()
#         block = coming
#     return (out / total).to(q.dtype)
# ```
# </details>

# %% [markdown] name="ulysses"
# ## 4. Or move the heads
#
# The heads of attention don't know each other. So turn the split: before attention each rank has *some tokens of all heads*; an
# [all-to-all](../2_collectives/15_all_to_all.ipynb) later it has *all tokens of some heads*, and attention is local. A second all-to-all brings the results back. This is
# **Ulysses** (from DeepSpeed).


# %% name="ulysses_live"
# %%ranks
def to_heads(t):
    """(my tokens, all heads, d) becomes (all tokens, my heads, d)."""
    n, heads, d = t.shape
    parts = t.view(n, world_size, heads // world_size, d).transpose(0, 1).contiguous()
    received = torch.empty_like(parts)
    dist.all_to_all_single(received, parts)
    return received.view(world_size * n, heads // world_size, d)


some_tokens = torch.full((3, 2 * world_size, 4), float(rank))
some_heads = to_heads(some_tokens)
print(f"{tuple(some_tokens.shape)} became {tuple(some_heads.shape)}")
print("tokens of ranks", some_heads[:, 0, 0].int().tolist())

# %% [markdown] name="ulysses_explained"
# Each rank keeps $1/p$ of what it has, so the four all-to-alls (queries, keys, values, results) send $4\,\frac{p-1}{p}$ of a shard. A shard shrinks with
# $p$: **the more ranks, the fewer bytes**. The ring sends the keys and values of everybody to everybody, nearly the same bytes for any $p$. But Ulysses
# cuts heads: with 8 key heads and 16 ranks, keys and values must be sent twice.
#
# `world.trace` counts both for two heads and 64 tokens a rank, of width 16:


# %% name="both_ways"
def pass_on(block, coming):
    rank, p = dist.get_rank(), dist.get_world_size()
    ops = [dist.P2POp(dist.isend, block, (rank + 1) % p), dist.P2POp(dist.irecv, coming, (rank - 1) % p)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()


def by_ulysses(n=64, d=16):
    p = dist.get_world_size()
    heads = 2 * p
    for _ in range(4):
        parts = torch.zeros(p, n, heads // p, d)
        dist.all_to_all_single(torch.empty_like(parts), parts)


def by_ring(n=64, d=16):
    p = dist.get_world_size()
    block = torch.zeros(2, n, 2 * p, d)
    for _ in range(p - 1):
        pass_on(block, torch.empty_like(block))


# %% name="count_bytes"
p, shard = world.ranks, 64 * 2 * world.ranks * 16 * 4
for way, formula in ((by_ulysses, 4 * shard * (p - 1) // p), (by_ring, 2 * shard * (p - 1))):
    _, trace = world.trace(way)
    mine = [event for event in trace if event.rank == 0 and event.op in ("send", "isend", "all_to_all_single")]
    left = sum(event.nbytes for event in mine) * (1 if way is by_ring else (p - 1) / p)
    print(f"{way.__name__:10} rank 0 sends {left:10,.0f} bytes, the formula says {formula:10,}")

# %% [markdown] name="price"
# ## 5. What it costs
#
# Forward, one layer, $b$ sequences of $s$ tokens, $c$ ranks, $h_q$ query heads and $h_k$ key heads of width $d$, $e$ bytes a number:
#
# $$\text{ring} = 2\,b\,\tfrac{s}{c}\,h_k\,d\,e\,(c-1) \qquad \text{Ulysses} = (2h_q + 2\max(h_k, c))\,b\,\tfrac{s}{c}\,d\,e\,\tfrac{c-1}{c}$$
#
# And backward? Ulysses turns four all-to-alls round, so it sends the same bytes again. In the ring keys and values go round once more, and their gradients travel with
# them: at each step a rank adds its part and passes them on. The gradients make one step more than the blocks, because they must end where the keys live.


# %% name="formulas"
def ring_bytes(s, c, h_k, d=128, e=2):
    return 2 * s / c * h_k * d * e * (c - 1)


def ulysses_bytes(s, c, h_q, h_k, d=128, e=2):
    return (2 * h_q + 2 * max(h_k, c)) * s / c * d * e * (c - 1) / c


def ring_step_bytes(s, c, h_k, d=128, e=2):
    blocks = ring_bytes(s, c, h_k, d, e)
    return blocks + blocks + blocks * c / (c - 1)  # forward; backward; the gradients of keys and values


def ulysses_step_bytes(*shape):
    return 2 * ulysses_bytes(*shape)


# %% name="guess_llama"
llama = predict(
    "Llama 3 405B: 128 query heads, 8 key heads, 131,072 tokens on 16 ranks. Which sends fewer bytes forward, and which forward and backward together?",
    choices=[
        "the ring both times",
        "forward the ring, together Ulysses",
        "forward Ulysses, together the ring",
        "Ulysses both times",
    ],
    title="With 8 key heads on 16 ranks",
)
llama

# %% name="curve"
counts = [2, 4, 8, 16, 32]
figure, axes = plots.chart("ranks c", "MB sent by a rank, one layer, both ways")
for name, h_q, h_k in (("128 key heads", 128, 128), ("8 key heads", 128, 8)):
    axes.loglog(
        counts,
        [ring_step_bytes(131_072, c, h_k) / 1e6 for c in counts],
        marker="o",
        label=f"ring, {name}",
    )
    ulysses = [ulysses_step_bytes(131_072, c, h_q, h_k) / 1e6 for c in counts]
    axes.loglog(counts, ulysses, marker="s", label=f"Ulysses, {name}")
axes.set(xticks=counts, xticklabels=counts, ylim=(500, 200_000))
axes.minorticks_off()
axes.legend(loc="upper center", ncols=2)
figure

# %% name="llama_numbers"
print("8 key heads   forward: ring, Ulysses   with backward: ring, Ulysses   (MB a layer)")
for c in counts:
    shape = (131_072, c)
    forward = ring_bytes(*shape, 8), ulysses_bytes(*shape, 128, 8)
    both = ring_step_bytes(*shape, 8), ulysses_step_bytes(*shape, 128, 8)
    print(f"{c:2} ranks {forward[0] / 1e6:18.0f} {forward[1] / 1e6:9.0f} {both[0] / 1e6:23.0f} {both[1] / 1e6:9.0f}")

# %% name="reveal_llama" jupyter={"source_hidden": true}
# the answer: run this cell
llama.reveal(
    "forward the ring, together Ulysses",
    why="Forward the ring sends 8 key heads, and Ulysses 128 query heads and as many of the results. Backward Ulysses sends the same again, and the ring twice as much: keys and values, and their gradients.",
)

# %% [markdown] name="price_explained"
# So model and number of ranks decide. With as many key heads as query heads Ulysses sends fewer bytes on any number of ranks, as long as the heads can be divided by it. With few
# key heads the ring wins on few ranks: its bytes hardly grow, and those of Ulysses fall with each rank that is added, until it wins. Bytes are not all: the ring's can hide behind the computing, block by block,
# and those of Ulysses come before and behind it. Often both are used: Ulysses inside the node, the ring between nodes.

# %% [markdown] name="in_training"
# ## 6. In a training job
#
# The ranks of a `cp` group share a sequence. Who has which weights then, and who adds which gradients?
#
# <!-- torchtitan b5bcd76 (2026-08-21): distributed/parallel_dims.py, build_mesh: fsdp = dp_shard * cp, loss_mesh = batch x cp; fsdp.py, resolve_fsdp_mesh: DataParallelMeshDims(shard=("dp_shard", "cp")). Megatron-LM d98e8a6 (2026-08-22): core/distributed/distributed_data_parallel.py:273, dp_cp_group -->

# %% name="guess_fsdp"
fsdp_guess = predict(
    "8 GPUs read 4 sequences, each split over 2 context ranks. Over how many ranks does FSDP cut the weights and sum their gradients?",
    choices=["2", "4", "8"],
    title="FSDP's ranks, with 4 sequences over 2 ranks each",
)
fsdp_guess

# %% [markdown] name="in_training_code"
# Let us try two answers on your ranks. A layer makes queries, keys and values; keys and values are gathered over the `cp` dimension of a mesh, and autograd must know the way back. FSDP divides the summed gradients by its number of ranks, so the loss is multiplied by it. The result is compared with one process that reads all sequences.


# %% name="attend"
import copy

from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Gather(torch.autograd.Function):
    """All parts, in order. Backward: each rank gets the sum of all ranks' gradients of its part."""

    @staticmethod
    def forward(ctx, part, group):
        ctx.group = group
        whole = part.new_empty(dist.get_world_size(group) * len(part), part.shape[1])
        dist.all_gather_single(whole, part.contiguous(), group=group)
        return whole

    @staticmethod
    def backward(ctx, grad):
        mine = grad.new_empty(len(grad) // dist.get_world_size(ctx.group), grad.shape[1])
        dist.reduce_scatter_single(mine, grad.contiguous(), group=ctx.group)
        return mine, None


# %% name="attend_code"
def attend(weights, x, places, gathered):
    q, k, v = weights(x).chunk(3, dim=-1)
    k, v = gathered(k), gathered(v)
    hidden = torch.arange(len(k)) > places[:, None]
    return torch.softmax((q @ k.T / 4).masked_fill(hidden, -torch.inf), dim=-1) @ v


# %% name="training_step"
def training_step(dims, cp):
    """One step on p/cp sequences; the weights are cut over these dimensions of the mesh."""
    p = dist.get_world_size()
    mesh = init_device_mesh(torch.get_default_device().type, (p // cp, cp), mesh_dim_names=("dp", "cp"))
    over = mesh[dims] if isinstance(dims, str) else mesh[dims]._flatten("fsdp")
    torch.manual_seed(0)
    weights, sequences = torch.nn.Linear(16, 48, bias=False), torch.randn(p // cp, 8 * cp, 16)
    alone = copy.deepcopy(weights)
    fully_shard(weights, mesh=over)

    places = torch.arange(8 * cp).chunk(cp)[mesh.get_local_rank("cp")]
    x = sequences[mesh.get_local_rank("dp")][places]
    out = attend(weights, x, places, lambda t: Gather.apply(t, mesh.get_group("cp")))
    all_tokens = len(sequences) * 8 * cp  # of the whole batch, not of this rank
    (over.size() * out.square().sum() / all_tokens).backward()

    everywhere = torch.arange(8 * cp)
    losses = [attend(alone, s, everywhere, lambda t: t).square().sum() for s in sequences]
    (sum(losses) / all_tokens).backward()
    found, right = weights.weight.grad, alone.weight.grad
    return tuple(found.to_local().shape), ((found.full_tensor() - right).norm() / right.norm()).item()


# %% name="trained"
cp = 2 if world.ranks % 2 == 0 else world.ranks
for dims in ("dp", ("dp", "cp")):
    shape, off = world.run(training_step, dims, cp)[0]
    print(f"cut over {dims!s:12}: rank 0 keeps {shape} of (48, 16), the gradient is off by {off:.0e}")

# %% name="reveal_fsdp" jupyter={"source_hidden": true}
# the answer: run this cell
fsdp_guess.reveal(
    "8",
    why="All eight hold the same weights and gradients of different tokens; that two of them share a sequence changes nothing for the weights.",
)

# %% [markdown] name="in_training_explained"
# **For weights and loss, a context rank is a data rank.** torchtitan cuts weights over `dp_shard` times `cp`, and sums the loss over `dp` and `cp`; Megatron-LM has a group `dp_cp` for it. Only the *data loader* must not know: the ranks of one `cp` group need the same sequence. Their loss is
# divided by the tokens of the whole batch (section 3).
#
# **Packed documents.** A sequence of 131,072 tokens is rarely one text. Short documents are packed into it, and a token may look only at its own document. Four ranks, 64 tokens: one document of 40 and three of 8.
#
# <!-- torchtitan b5bcd76: components/loss.py, BaseLoss.__call__ divides by global_valid_tokens. Llama 3 (arXiv:2407.21783), sections 3.2 and 3.3.2: document mask, CP by all-gather. -->

# %% name="guess_packed"
packed_guess = predict(
    "Zigzag over these 64 packed tokens: how much more does the busiest of four ranks compute than the mean?",
    choices=["as much", "1.2 times", "1.7 times", "2.2 times"],
    title="Zigzag over packed documents: the busiest rank",
)
packed_guess


# %% name="packed"
def zigzag_of(first, length, p):
    """The tokens of each rank, of a document that begins at `first`."""
    piece = length // (2 * p)
    return [[first + c * piece + i for c in (r, 2 * p - 1 - r) for i in range(piece)] for r in range(p)]


def packed_pairs(shards, lengths):
    """The pairs that each rank scores: a token sees its document up to itself."""
    seen = [place + 1 for length in lengths for place in range(length)]
    return [sum(seen[token] for token in shard) for shard in shards]


lengths = [40, 8, 8, 8]
firsts = [sum(lengths[:i]) for i in range(len(lengths))]
by_document = [zigzag_of(first, length, 4) for first, length in zip(firsts, lengths, strict=True)]
splits = {
    "in order": [range(16 * r, 16 * (r + 1)) for r in range(4)],
    "zigzag": zigzag_of(0, 64, 4),
    "zigzag in each document": [
        [token for piece in pieces for token in piece] for pieces in zip(*by_document, strict=True)
    ],
}
for name, shards in splits.items():
    work = packed_pairs(shards, lengths)
    print(f"{name:24} {work}, the busiest {max(work) / (sum(work) / 4):.2f} times the mean")

# %% name="reveal_packed" jupyter={"source_hidden": true}
# the answer: run this cell
packed_guess.reveal(
    "2.2 times",
    why="Rank 3's two pieces both lie at the long document's end, where rows are longest. Zigzag pairs the first row with the last of one triangle, and here are four triangles.",
)

# %% [markdown] name="packed_explained"
# So zigzag *each document*. Each length must then be divisible by $2\,cp$: documents are padded (Megatron-LM does it where it packs), and padding must not count in the loss. Places begin again at 0 in each document. torch 2.13 has a balancer for the whole sequence (the default), one for each document, and one that shares out the blocks of a mask; their names are still private.
#
# **The limit.** Tensor parallel cuts heads, and so does Ulysses: $tp \cdot cp$ must not be larger than the number of query heads, and if it is larger than the number of key heads, keys and values are copied. The ring and the gather cut tokens: with zigzag and sequence parallel, the length must be divisible by $2\,cp \cdot tp$.
#
# <!-- Megatron-LM d98e8a6: training/datasets/sft_dataset.py:127 (pads to 2 * context_parallel_size), training/arguments.py:1336 (seq_length % (2 cp)). torch 2.13: distributed/tensor/experimental/_context_parallel/_load_balancer.py:78, :167, :295 (_HeadTail, _PerDocumentHeadTail, _PTRR LoadBalancer). torchtitan b5bcd76: parallel_dims.py:664, seq_len_divisor = tp * (cp * 2). Heads: arXiv:2309.14509 section 3; Megatron-LM core/ssm/mamba_context_parallel.py:118 -->

# %% name="limit"
for model, h_q, h_k in (("Llama 3 8B", 32, 8), ("Llama 3 405B", 128, 8)):
    for tp in (1, 8):
        print(
            f"{model:13} tp = {tp}: Ulysses up to cp = {h_k // tp} without copies of keys, up to {h_q // tp} with; "
            f"ring on cp = 16: 131,072 / {2 * 16 * tp} = {131_072 / (2 * 16 * tp):,.0f}"
        )

# %% [markdown] name="limit_explained"
# Llama 3 405B was trained with $tp = 8$ and $cp = 16$ for its long sequences. With $tp = 8$ each GPU has one key head left, so Ulysses would copy it to all 16 ranks of a group. Keys and values were gathered instead.
#
# **On your own cluster.** Print the mesh: do the ranks of one `cp` group get the same sequence, and do all ranks of `dp` times `cp` divide by the same count? Compare the loss of $cp = 1$ and $cp = 2$ on the same batch: it must agree to rounding.
#
# <!-- arXiv:2407.21783, Table 4: 131,072 tokens, TP 8, CP 16 -->

# %% [markdown] name="libraries"
# ## 7. Find it in torch
#
# **Your task.** Open `torch/distributed/tensor/experimental/_context_parallel/_attention.py` (`python -c "import torch; print(torch.__path__[0])"` says in which folder torch is) and look for `_ContextParallelOptions`. Which of this chapter's ways does torch take if you choose nothing, and which function chooses another one?
#
# <details><summary><b>Answer</b></summary>
#
# The gather (`_RotateMethod.ALL_GATHER`); `set_rotate_method("alltoall")` makes it a ring.
# </details>
#
# You also meet it here:
#
# - **Megatron-LM** has all of them (`cp_comm_type`: p2p, all_gather, a2a, a2a+p2p), Transformer Engine and DeepSpeed have theirs.
# - **torch** 2.13: `torch.distributed.tensor.experimental._attention` has a plan for modules, `_ContextParallel`, and `_context_parallel_shard` for the tensors; the names with an underscore may
#   change. The older `context_parallel` replaces functions of torch while it is active, and torch's source calls it the legacy API. Both *gather* by default: it is a ring only
#   after `set_rotate_method("alltoall")`. They need attention kernels of a GPU, so in this chapter the ring is written by hand.
# - **Decoding** on several GPUs splits the keys of the past in the same way: one query, and the summaries are merged.
#
# ## 8. Check yourself
#
# <details><summary>1. Why do the queries stay at home in the ring, and not the keys?</summary>
#
# Either could travel. But then each rank's unfinished results $m$, $l$, $o$ would have to travel with the queries, and under GQA there are many more queries than keys.
# </details>
#
# <details><summary>2. A block is masked as a whole for some query. What does its maximum do in the merge?</summary>
#
# It is minus infinity, and $-\infty - (-\infty)$ is NaN. Take care of it: a weight of 0 for such a block.
# </details>
#
# <details><summary>3. Backward through the ring: what travels?</summary>
#
# Keys and values go round once more, and the gradients of keys and values with them, so that each rank adds its part. They end where the keys live.
# </details>

# %% [markdown] name="recap"
# ## Recap
#
# Split the sequence, and only attention must communicate. Gather keys and values (simple, memory of the whole sequence), pass them round a ring and
# merge (two blocks of memory, hidden if blocks are long), or turn tokens into heads by an all-to-all (fewer bytes with more ranks, if there are heads
# enough). With a causal mask, give each rank a short and a long piece. **Count the bytes of both passes before you choose, and split a causal mask so that all ranks score equally many pairs.**
#
# **Now you:** [Lab 13](../../labs/lab13_context_parallel/context_parallel.ipynb): ring attention with a causal mask, and Ulysses.
#
# **Next question:** what if each token needs only a few of the weights, and these are on other GPUs? [Mixture of experts](27_mixture_of_experts.ipynb)
#
# **Sources.** H. Liu, M. Zaharia and P. Abbeel, *Ring attention*, [arXiv:2310.01889](https://arxiv.org/abs/2310.01889) ·
# W. Brandon et al., *Striped attention*, [arXiv:2311.09431](https://arxiv.org/abs/2311.09431) ·
# S. A. Jacobs et al., *DeepSpeed Ulysses*, [arXiv:2309.14509](https://arxiv.org/abs/2309.14509) ·
# Llama Team, *The Llama 3 herd of models*, [arXiv:2407.21783](https://arxiv.org/abs/2407.21783) ·
# [PyTorch, torch.distributed](https://docs.pytorch.org/docs/stable/distributed.html)

# %% [markdown] name="my_model_now"
# ## My model
#
# Each card below is an **axis**, one way to split the training run, and this chapter opened one. The course's own choices are pressed: press another
# one, and see what it costs. What you choose is kept with your notebooks.

# %% name="my_model"
from allranks import my_model

my_model("context_parallel")

# %% name="what_you_knew"
predictions()

# %% name="stop_world"
world.stop()

# %% name="done"
from allranks import done

done("26")
