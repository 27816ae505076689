# %% [markdown] name="title"
# # Lab 13: context parallelism
#
# **A sequence is too long for one GPU, so each of $p$ GPUs has a part of it. But every token must look at all tokens before it, on whichever GPU they are. Pass keys and values round, or turn tokens into heads?**
#
# | you write | difficulty | minutes | points |
# |---|---|---|---|
# | `ring_attention` | hard | 60 | 10 |
# | `ulysses_attention` | medium to hard | 35 | 6 |
# | one answer in words | medium | 15 | 2 |
#
# CPU ok. The chapter *Context parallel* has the ideas: the merge, the zigzag order, and both ways to move data.

# %% [markdown] name="rules"
# **Three rules that matter here**
#
# - Each exercise is right for any number of ranks from 1 up and any floating dtype. Every rank has equally many tokens, at least one. Tensors may be views with gaps, which the wire does not take.
# - `ring_attention` is written with sends and receives, `ulysses_attention` with `all_to_all` or `all_to_all_single`.
# - Every byte and every round is counted. Inputs stay as they are.
#
# {{contract.md}}

# %% nbgrader={"grade_id": "imports", "locked": true}
import torch
import torch.distributed as dist

from allranks import World, check

# %% [markdown] name="live"
# ## A world to try things in
#
# `World` starts one process, a *rank*, on each GPU if there are at least two GPUs; otherwise four ranks on the CPU.

# %% name="start_world"
world = World()
world

# %% [markdown] name="predict"
# Sixteen tokens, four ranks, zigzag: the sequence has 8 chunks, and rank $r$ has chunks $r$ and $7-r$. Which tokens does rank 1 have? Write them down first.

# %% name="prediction"
prediction = [0, 0, 0, 0]


# %% name="zigzag_places"
def places(rank, ranks, tokens):
    size = tokens // (2 * ranks)
    return [chunk * size + i for chunk in (rank, 2 * ranks - 1 - rank) for i in range(size)]


print("rank 1:", places(1, 4, 16))

# %% [markdown] name="ring_task"
# ## 1. Ring attention with a causal mask
#
# `q`, `k` and `v` have the shape (tokens of this rank, width): one head. `positions` has the place of each of these tokens in the sequence (int64): the
# shards may be in order, zigzag, or anything else. Return the attention of this rank's queries over *all* keys that are not behind them,
#
# $$\text{out}_i = \sum_{j:\ \text{pos}_j \le \text{pos}_i} w_{ij}\, v_j, \qquad w_i = \text{softmax}_j\!\left(\tfrac{q_i \cdot k_j}{\sqrt d}\right),$$
#
# in the dtype of `q`.
#
# - Keys, values *and* their positions go round the ring: $p-1$ blocks from each rank, to its two neighbours only. Queries and results stay at home.
# - At most $3(p-1)$ rounds: keys, values and positions may be three messages of a step.
# - Scores may be large: subtract a maximum. What is the maximum of a block that a query must not see at all?
# - **Merge each block when it comes, and let go of it.** The sequence has no room on one rank: on many ranks the check counts the memory at each send. Beside the next block a rank may keep one summary of all blocks so far
#   (maximum, sum, output), but not all blocks, nor all scores.


# %% nbgrader={"grade_id": "ring_attention", "solution": true}
def ring_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Returns causal attention of this rank's queries over the keys and values of all ranks."""
    ### BEGIN SOLUTION
    rank, p = dist.get_rank(), dist.get_world_size()
    block = [k.contiguous(), v.contiguous(), positions.contiguous()]
    top = torch.full((len(q), 1), float("-inf"), dtype=torch.float64)
    total, out = torch.zeros_like(top), torch.zeros(q.shape, dtype=torch.float64)
    for step in range(p):
        works, coming = [], []
        if step < p - 1:
            coming = [torch.empty_like(t) for t in block]
            sends = [dist.P2POp(dist.isend, t, (rank + 1) % p) for t in block]
            works = dist.batch_isend_irecv(sends + [dist.P2POp(dist.irecv, t, (rank - 1) % p) for t in coming])
        keys, values, places = block
        scores = q.double() @ keys.double().T / q.shape[1] ** 0.5
        scores = scores.masked_fill(places[None, :] > positions[:, None], float("-inf"))
        new = torch.maximum(top, scores.amax(dim=1, keepdim=True))
        seen = new > float("-inf")  # until a query has seen a key, there is nothing to scale
        weights = torch.where(seen, (scores - new).exp(), 0)
        old = torch.where(seen, (top - new).exp(), 0)
        total, out, top = total * old + weights.sum(dim=1, keepdim=True), out * old + weights @ values.double(), new
        for work in works:
            work.wait()
        block = coming
    return (out / total).to(q.dtype)
    ### END SOLUTION


# %% name="check_ring"
check(ring_attention)

# %% [markdown] name="ring_live"
# On the live world, 4 tokens a rank in zigzag order: the cell compares with one process, and counts the bytes.


# %% name="try_ring"
def ring_of_ranks():
    rank, p = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 4 * p, 8)
    mine = torch.tensor(places(rank, p, 4 * p))
    scores = (q @ k.T / 8**0.5).masked_fill(torch.ones(4 * p, 4 * p).triu(1).bool(), float("-inf"))
    wanted = (scores.softmax(-1) @ v)[mine]
    return (ring_attention(q[mine], k[mine], v[mine], mine) - wanted).abs().max().item()


results, trace = world.trace(ring_of_ranks, deadline=20)
print("largest difference below 1e-5:", max(results) < 1e-5)
print("rank 0 sends", sum(e.nbytes for e in trace if e.rank == 0 and e.op in ("send", "isend")), "bytes")

# %% [markdown] name="ulysses_task"
# ## 2. Turn tokens into heads
#
# Now `q`, `k` and `v` have the shape (tokens of this rank, heads, width), all with the same number of heads, which $p$ divides. The sequence is in the order of ranks: rank 0 has its
# beginning. Return causal attention of this rank's tokens over the whole sequence, in every head, with the shape of `q`.
#
# - Each rank computes $1/p$ of the heads, over *all* tokens. So it needs its heads of everybody's tokens, and sends nothing else: $4\,\frac{p-1}{p}$ of a shard in all, for queries, keys, values and results.
# - `all_to_all_single` sends the $i$-th part of the *first* dimension to rank $i$. Which dimension must come first, and what must be contiguous?
# - The way back is the same turn, the other way round. In which order do the heads come?


# %% nbgrader={"grade_id": "ulysses_attention", "solution": true}
def ulysses_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Returns causal attention of this rank's tokens over the whole sequence, in every head."""
    ### BEGIN SOLUTION
    p = dist.get_world_size()
    n, heads, width = q.shape

    def to_heads(t: torch.Tensor) -> torch.Tensor:
        parts = t.reshape(n, p, heads // p, width).transpose(0, 1).contiguous()
        received = torch.empty_like(parts)
        dist.all_to_all_single(received, parts)
        return received.reshape(p * n, heads // p, width).transpose(0, 1).double()

    queries, keys, values = to_heads(q), to_heads(k), to_heads(v)
    scores = queries @ keys.transpose(1, 2) / width**0.5
    later = torch.ones(p * n, p * n, dtype=torch.bool).triu(1)
    result = scores.masked_fill(later, float("-inf")).softmax(dim=-1) @ values
    parts = result.to(q.dtype).transpose(0, 1).reshape(p, n, heads // p, width).contiguous()
    back = torch.empty_like(parts)
    dist.all_to_all_single(back, parts)
    return back.transpose(0, 1).reshape(n, heads, width)
    ### END SOLUTION


# %% name="check_ulysses"
check(ulysses_attention)

# %% [markdown] name="ulysses_live"
# On the live world, with two heads a rank:


# %% name="try_ulysses"
def ulysses_of_ranks():
    rank, p = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 4 * p, 2 * p, 8)
    wanted = torch.nn.functional.scaled_dot_product_attention(
        *(t.transpose(0, 1) for t in (q, k, v)), is_causal=True
    ).transpose(0, 1)
    mine = slice(4 * rank, 4 * (rank + 1))
    return (ulysses_attention(q[mine], k[mine], v[mine]) - wanted[mine]).abs().max().item()


print("largest difference below 1e-5:", max(world.run(ulysses_of_ranks, deadline=20)) < 1e-5)

# %% [markdown] name="question"
# ## 3. Which of the two?
#
# A model has 64 query heads and 8 key heads of width 128 and numbers of 2 bytes; a sequence of 65,536 tokens is split over 8 ranks. How many MB does each rank send in one layer,
# forward, with the ring (keys and values only) and with Ulysses? What changes with 32 ranks, and what with the backward pass? Two or three sentences, with numbers.

# %% [markdown] nbgrader={"grade_id": "which_way", "grade": true, "solution": true, "points": 2}
# A rank has 8192 tokens. Ring: 2 x 8192 x 8 heads x 128 x 2 bytes = 33.6 MB a block, 7 times: 235 MB. Ulysses: (2 x 64 + 2 x 8) x 8192 x 128 x 2 bytes x 7/8 = 264 MB, about the same. With 32 ranks
# a rank has 2048 tokens; the ring still sends 31 x 8.4 = 260 MB, but Ulysses only (128 + 2 x 32) x 2048 x 256 x 31/32 = 98 MB, although the 8 key heads must be sent four times as often. Backward
# Ulysses sends the same again, and the ring a little more than twice as much, keys and values and their gradients: so with both passes Ulysses sends less on 8 ranks too. (1 point for
# both figures with 8 ranks, 1 for: the ring stays the same and Ulysses shrinks with the ranks, or for the backward pass.)

# %% [markdown] name="marking"
# ## Marking
#
# These cells give each exercise's points times the score that `check` gives; you can run them too.

# %% nbgrader={"grade_id": "ring_attention-graded", "grade": true, "locked": true, "points": 10} allranks={"exercise": "ring_attention"}
round(10 * check(ring_attention).score, 2)

# %% nbgrader={"grade_id": "ulysses_attention-graded", "grade": true, "locked": true, "points": 6} allranks={"exercise": "ulysses_attention"}
round(6 * check(ulysses_attention).score, 2)

# %% [markdown] name="recap"
# The sequence is split, and attention alone must communicate: keys and values go round, or tokens become heads. Both are collectives that you wrote before, an
# all-gather and an all-to-all, with work between the steps. **Send the small tensors, and share the masked work out evenly before you split the sequence.**

# %% [markdown] name="hand_in"
# **Before you hand in:** save the notebook and run the last cell. It says whether the notebook would be taken as it is saved, and which answers are empty.

# %% name="stop_world"
from allranks import ready

world.stop()
ready()
