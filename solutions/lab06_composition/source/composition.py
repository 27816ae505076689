# %% [markdown] name="title"
# # Lab 6: build your own collective
#
# **A language model has a vocabulary of 128,000 words, and its last layer is split over 8 GPUs, so each GPU has 16,000 logits of every
# row. You need probabilities, the best words, and the loss. Must any GPU have the whole row?**
#
# | you write | difficulty | minutes | points |
# |---|---|---|---|
# | `distributed_softmax` | medium | 25 | 5 |
# | `distributed_top_k` | medium to hard | 35 | 6 |
# | `distributed_cross_entropy` | medium | 25 | 5 |
# | one answer in words | easy | 10 | 2 |
#
# CPU ok. It helps to do Lab 3 first; the chapter *Composing collectives* has the pictures.

# %% [markdown] name="rules"
# **Three rules that matter here**
#
# - Each exercise is right for any number of ranks from 1 up, any number of rows (none too), any floating dtype, and tensors that aren't contiguous.
# - The softmax and the cross-entropy are written with `all_reduce`, the top k with any collectives on tensors.
# - Every byte is counted: a function that gathers whole rows gives the right numbers but gets no points for messages.
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
# Rank $r$ holds one logit, $1000 + r$. With four ranks their softmax is 0.03, 0.09, 0.24, 0.64. The next cell computes it by the formula $e^{x_i} / \sum_j e^{x_j}$,
# with one all-reduce. What do the ranks print? Write it down first.

# %% name="prediction"
prediction = {"rank 0": 0.0, "the last rank": 0.0}

# %% name="as_the_formula_says"
# %%ranks
x = torch.tensor([1000.0 + rank])
total = x.exp()
dist.all_reduce(total)
print((x.exp() / total).item())

# %% [markdown] name="formula_explained"
# In float32 $e^{89}$ is already infinite. On one machine the usual fix is to subtract the row's maximum first, which does not change the result. Here no rank *knows* the row's maximum.

# %% [markdown] name="softmax_task"
# ## 1. Softmax over a split row
#
# `logits` holds this rank's columns of every row; the last dimension is split (with a single row it is the only dimension). The ranks' shares may
# differ by one column; every rank has at least one. Return the softmax of *these* columns over the *whole* rows, in the dtype of `logits`. It must be
# right for logits of 10,000 too.
#
# You have at most **two** all-reduces, of **one** value for each row.


# %% nbgrader={"grade_id": "distributed_softmax", "solution": true}
def distributed_softmax(logits: torch.Tensor) -> torch.Tensor:
    """Returns this rank's columns of the softmax over the last dimension, which is split over the ranks."""
    ### BEGIN SOLUTION
    top = logits.amax(dim=-1, keepdim=True).contiguous()
    dist.all_reduce(top, op=dist.ReduceOp.MAX)
    parts = torch.exp(logits - top)
    total = parts.sum(dim=-1, keepdim=True).contiguous()
    dist.all_reduce(total)
    return parts / total
    ### END SOLUTION


# %% name="check_softmax"
check(distributed_softmax)

# %% [markdown] name="softmax_live"
# Run it on the live world, with two rows of logits near 10,000 and three columns on each rank. The cell compares the result with `torch.softmax` of the whole rows.


# %% name="try_softmax"
def softmax_of_ranks():
    rank, p = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)  # the same rows everywhere, so that we can compare
    rows = 10_000 + 5 * torch.randn(2, 3 * p)
    mine = slice(3 * rank, 3 * (rank + 1))
    wanted = torch.softmax(rows, -1)[:, mine]
    return (distributed_softmax(rows[:, mine]) - wanted).abs().max().item()


results, trace = world.trace(softmax_of_ranks, deadline=20)
print("largest difference:", max(results))
for event in trace:
    if event.rank == 0:
        print(f"rank 0: {event.op}, {event.nbytes} bytes")

# %% [markdown] name="softmax_growth"
# These are the bytes for two rows. With 16,000 columns on each rank they would be the same.

# %% [markdown] name="top_k_task"
# ## 2. The top k of all ranks
#
# To choose the next word, programs often take the 50 best of 128,000. Return three tensors of length `k`, the same on every rank:
#
# - the `k` largest values of all ranks, largest first, in the dtype of `tensor`,
# - the rank on which each of them is (int64),
# - its index in that rank's tensor, flattened (int64).
#
# Of equal values the one on the lower rank comes first, then the one with the lower index. NaN counts as the largest, as in `torch.topk`. The values
# may be whole numbers too. `k` may be 0, and is at most the number of all values. Each rank may receive at most $16 \cdot k \cdot p$ bytes.

# %% [markdown] name="top_k_traps"
# Why are $k$ candidates from each rank enough, and why are fewer not enough? Avoid two common mistakes:
#
# - `torch.topk` promises nothing about the order of equal values. `torch.sort(..., stable=True)` does.
# - All ranks hold equally many values, but perhaps fewer than `k`: one rank's 2 values can't fill 5 places.


# %% nbgrader={"grade_id": "distributed_top_k", "solution": true}
def distributed_top_k(tensor: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns (values, ranks, indices) of the k largest values of all ranks, largest first; every rank calls it."""
    ### BEGIN SOLUTION
    p = dist.get_world_size()
    flat = tensor.flatten()
    own = torch.sort(flat, descending=True, stable=True).indices[:k]  # k of them or fewer
    values = [torch.empty(len(own), dtype=flat.dtype, device=flat.device) for _ in range(p)]
    indices = [torch.empty_like(own) for _ in range(p)]
    dist.all_gather(values, flat[own])
    dist.all_gather(indices, own.contiguous())
    ranks = torch.arange(p, device=flat.device).repeat_interleave(len(own))
    # The candidates lie in the order of ranks, then of indices: a stable sort keeps that for equal values
    best = torch.sort(torch.cat(values), descending=True, stable=True).indices[:k]
    return torch.cat(values)[best], ranks[best], torch.cat(indices)[best]
    ### END SOLUTION


# %% name="check_top_k"
check(distributed_top_k)

# %% [markdown] name="top_k_live"
# Run it on the live world, with about 12,000 values in all, of which each rank sends only three to the others.


# %% name="try_top_k"
def top_k_of_ranks():
    rank, p = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    values = torch.randn(p, 12_000 // p)
    found = distributed_top_k(values[rank], 3)
    return found, values.flatten().topk(3).values


results, trace = world.trace(top_k_of_ranks, deadline=20)
(values, ranks, indices), wanted = results[0]
print("values ", values.tolist(), "\nwanted ", wanted.tolist())
print("ranks  ", ranks.tolist(), "\nindices", indices.tolist())
for event in trace:
    if event.rank == 0:
        print(f"rank 0: {event.op}, {event.nbytes} bytes")

# %% [markdown] name="loss_task"
# ## 3. The loss over a split vocabulary
#
# The cross entropy of a row with target $t$ is $\log \sum_j e^{x_j} - x_t$. Only one rank has $x_t$, and no rank knows the
# sum. Megatron-LM (Shoeybi et al., arXiv:1909.08053) computes the loss without gathering the logits. Do the same; it must also be right for logits
# near 10,000. All ranks have the same number of columns, $w$: rank $r$ has those from $rw$ on, and `targets` counts over all columns. Return one
# loss for each row. You may send at most three values for each row, in at most three all-reduces.
#
# A common mistake: a rank that does not hold the target's column must add 0, but it must still use a valid index.


# %% nbgrader={"grade_id": "distributed_cross_entropy", "solution": true}
def distributed_cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Returns the loss of each row; logits (rows, w) are this rank's columns, targets (rows,) count over all."""
    ### BEGIN SOLUTION
    width = logits.shape[1]
    top = logits.amax(dim=1).contiguous()
    dist.all_reduce(top, op=dist.ReduceOp.MAX)
    shifted = logits - top[:, None]
    local = targets - dist.get_rank() * width
    here = (local >= 0) & (local < width)
    chosen = shifted.gather(1, local.clamp(0, width - 1)[:, None])[:, 0]
    both = torch.stack([shifted.exp().sum(dim=1), torch.where(here, chosen, 0.0)])
    dist.all_reduce(both)  # the two sums in one message
    return both[0].log() - both[1]
    ### END SOLUTION


# %% name="check_loss"
check(distributed_cross_entropy)

# %% [markdown] name="loss_live"
# Run it on the live world, with six rows of logits near 10,000 and three columns on each rank. The cell compares the result with PyTorch's own loss of the whole rows.


# %% name="try_loss"
def loss_of_ranks():
    rank, p = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(2)
    rows, targets = 10_000 + 5 * torch.randn(6, 3 * p), torch.randint(3 * p, (6,))
    wanted = torch.nn.functional.cross_entropy(rows, targets, reduction="none")
    return distributed_cross_entropy(rows[:, 3 * rank : 3 * (rank + 1)], targets), wanted


for ours, wanted in world.run(loss_of_ranks, deadline=20)[:2]:
    print("ours  ", [f"{x:.4f}" for x in ours.tolist()])
    print("wanted", [f"{x:.4f}" for x in wanted.tolist()])

# %% [markdown] name="question"
# ## 4. What it saves
#
# There are 4096 rows, 128,000 columns, bfloat16, and 8 GPUs. How many bytes does each GPU *receive* if the logits are gathered with `all_gather`? And
# how many bytes does it send in two ring all-reduces of one float32 for each row? Two or three sentences, with numbers and the ratio.

# %% [markdown] nbgrader={"grade_id": "saves", "grade": true, "solution": true, "points": 2}
# Gathering: every GPU gets the columns of the other seven, 7/8 of 4096 x 128,000 x 2 bytes = 1.05 GB, that is about 918 MB. Two all-reduces: each
# sends 2 x 7/8 x 4096 x 4 bytes = 28.7 KB, together 57 KB, about 16,000 times less. This does not grow with the vocabulary. (1 point for each of the two numbers; rounding is fine.)

# %% [markdown] name="marking"
# ## Marking
#
# These cells give the points. Each is the exercise's points times the score that `check` gives; you can run them too.

# %% nbgrader={"grade_id": "distributed_softmax-graded", "grade": true, "locked": true, "points": 5} allranks={"exercise": "distributed_softmax"}
round(5 * check(distributed_softmax).score, 2)

# %% nbgrader={"grade_id": "distributed_top_k-graded", "grade": true, "locked": true, "points": 6} allranks={"exercise": "distributed_top_k"}
round(6 * check(distributed_top_k).score, 2)

# %% nbgrader={"grade_id": "distributed_cross_entropy-graded", "grade": true, "locked": true, "points": 5} allranks={"exercise": "distributed_cross_entropy"}
round(5 * check(distributed_cross_entropy).score, 2)

# %% [markdown] name="recap"
# A function of all data often needs only a *summary* of each rank: a maximum, a sum, $k$ candidates. Send the summaries; the large data stay on their
# rank. **Compute a short summary on each rank before you communicate.** In the next lab the data themselves must be sent, each piece to another rank.

# %% [markdown] name="hand_in"
# **Before you hand in:** save the notebook and run the last cell. It says whether the notebook would be taken as it is saved, and which answers are empty.

# %% name="stop_world"
from allranks import ready

world.stop()
ready()
