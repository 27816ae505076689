# %% [markdown] name="title"
# # All-gather
#
# **A model of 7 billion parameters is cut over 8 GPUs, an eighth each. Every layer needs its whole weight matrix to
# compute. Who has to get what from whom, and how much memory and time does that cost?**
#
# 40 minutes · CPU ok, 2 or more GPUs better · before it: [All-reduce](07_all_reduce.ipynb)

# %% name="start_world"
import torch
import torch.distributed as dist
from ipywidgets import FloatText, IntText

from allranks import Player, World, ask, bench, check, schedules

world = World(ranks=4)
world

# %% [markdown] name="guess_intro"
# **Guess now.** The weights are bfloat16, 2 bytes each, 14 GB in all. In one forward pass every GPU must have seen all of them. How many
# GB does each GPU *receive*, and how many does it *send*? Section 5 has the answer.

# %% name="question"
first_received, first_sent = FloatText(description="received:"), FloatText(description="sent:")
display(first_received, first_sent)

# %% [markdown] name="promise"
# ## 1. What it promises
#
# Every rank brings a piece; afterwards every rank has all pieces, **in the order of ranks**. Nothing is added. In torch it comes in two forms,
# and both need room that you make:

# %% name="two_forms"
# %%ranks
piece = torch.tensor([10.0 * rank, 10.0 * rank + 1])

as_list = [torch.empty(2) for _ in range(world_size)]
dist.all_gather(as_list, piece)

as_one = torch.empty(2 * world_size)
dist.all_gather_single(as_one, piece)
print(as_list[-1].tolist(), as_one.tolist())

# %% [markdown] name="two_forms_explained"
# `all_gather_single` fills one tensor and is what the libraries use: no list, no copy. Before torch 2.13 it was called
# `all_gather_into_tensor`; the old name still works, in 2.13 with a warning.
#
# How big is the result? Every rank has a piece of 1000 numbers. **Predict** how many numbers the result has with 4 ranks, and with 1024.

# %% name="guess_growth"
guess_4, guess_1024 = IntText(description="4 ranks:"), IntText(description="1024:")
display(guess_4, guess_1024)

# %% name="growth"
for p, guess in ((4, guess_4), (1024, guess_1024)):
    print(f"{p:5} ranks: you said {guess.value}, the result has {1000 * p} numbers on every rank")

# %% [markdown] name="growth_explained"
# An all-reduce leaves the size as it was. An all-gather makes it $p$ times as large, **on every rank**. That is the first thing to ask of one:
# does the result fit?

# %% [markdown] name="layer"
# ## 2. A layer whose weights are elsewhere
#
# Here is the use that made it famous. Each rank keeps some rows of a weight matrix. To apply the layer it gathers all rows, multiplies, and throws
# them away again. That is the forward pass of a fully sharded layer (FSDP, ZeRO-3), in three lines:

# %% name="sharded_layer"
# %%ranks
torch.manual_seed(0)
whole = torch.randn(3 * world_size, 8)  # only to have something to compare with
shard = whole.chunk(world_size)[rank].clone()  # what this rank keeps: 3 rows
inputs = torch.randn(16, 8)

weight = torch.empty(3 * world_size, 8)
dist.all_gather_single(weight, shard)
outputs = inputs @ weight.T
print(tuple(shard.shape), tuple(weight.shape), torch.equal(outputs, inputs @ whole.T))

# %% [markdown] name="layer_explained"
# Between layers a rank holds $\tfrac1p$ of the parameters, plus the one layer that is being used. The price is this all-gather for every layer in
# the forward pass, and again in the backward pass if the rows were thrown away.
#
# Now the backward pass. `shard` is a parameter, so it should get a gradient. **Predict**: does the gathered tensor have one to give?

# %% name="guess_grad"
guess = ask("yes, autograd sees through", "no, and nothing is said", "no, and there is an error")
guess

# %% tags=["raises-exception"] name="grad"
# %%ranks --deadline 5
parameter = shard.clone().requires_grad_()
parts = [torch.empty(3, 8) for _ in range(world_size)]
dist.all_gather(parts, parameter)
print(torch.cat(parts).requires_grad)

# %% [markdown] name="grad_explained"
# The collectives called as `dist.…` move numbers, and autograd does not look through them. (It does look through those of
# `torch.distributed._functional_collectives`, an interface with an underscore still, and through the older ones of
# `torch.distributed.nn.functional`, most of which torch 2.13 calls deprecated.) A contrastive loss that gathers the embeddings of all
# ranks in this way gets no gradient through what it gathered, and nothing is said. (`all_gather_single` does raise in torch 2.13, about a view
# changed in place: a safe failure with a strange name.)
#
# What *should* the gradient be? Rank 0's piece is used on every rank, so every rank has a gradient for it, and they must be summed and brought
# to rank 0; likewise for all other pieces. That is a collective too, and the [next chapter](10_reduce_scatter.ipynb) writes it.

# %% [markdown] name="ring"
# ## 3. The ring, half of it
#
# You know this from the all-reduce: its second walk. Each rank first sends its own piece to the right, then whatever came from the left.
#
# **Predict**: which piece does rank 0 send last, of four? Then step through it.

# %% name="guess_last"
guess = IntText(description="piece:")
guess

# %% name="watch"
ring = schedules.ring_all_gather(ranks=4)
Player(ring)

# %% name="reveal_last"
last = [move.chunks[0] for move in ring.moves if move.src == 0][-1]
print(f"you said {guess.value}, rank 0 sends piece {last} last; it never sends piece 1, its neighbour's own")

# %% [markdown] name="yours"
# **Write it.** The result holds the pieces in rank order, so each goes straight to its place: `pieces[i]` is a view of rank $i$'s.
# `swap` starts a send and a receive together and waits for both, as in [Point to point](02_point_to_point.ipynb). Below, every rank sends its own piece
# in *every* step. Run it, read what `check` says, and mend the marked line.


# %% name="ring_all_gather"
def ring_all_gather(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    left, right = (rank - 1) % p, (rank + 1) % p
    result = tensor.new_zeros(p, *tensor.shape)
    pieces = list(result)
    pieces[rank].copy_(tensor)

    def swap(leaving, arriving):
        """To the right, and from the left, as one batch (NCCL wants that)."""
        both = [dist.P2POp(dist.isend, leaving, right), dist.P2POp(dist.irecv, arriving, left)]
        for work in dist.batch_isend_irecv(both):
            work.wait()

    for step in range(p - 1):
        if step == 0:
            swap(pieces[rank], pieces[left])
        else:
            swap(pieces[rank], pieces[left])  # your turn

    return result.flatten(0, 1)


check(ring_all_gather)

# %% [markdown] name="ring_answer"
# <details><summary><b>A hint</b></summary>
#
# In step 0 rank $r$ sends piece $r$. In every later step it sends what it received in the step before, which came from one further to the left.
# </details>
# <details><summary><b>An answer</b></summary>
#
# ```python
#         swap(pieces[(rank - step) % p], pieces[(left - step) % p])
# ```
#
# That is right for step 0 too.
# </details>
#
# And here are your own messages, from the live ranks. Once `check` is content, the captions read like the schedule's above:

# %% name="ring_live"
_, trace = world.trace(lambda: ring_all_gather(torch.ones(4)), deadline=10)
print(trace.summary())
Player(trace)

# %% [markdown] name="fewer_steps"
# ## 4. Fewer steps
#
# $p-1$ steps are many when pieces are small. A rank that has two pieces could send both. **Recursive doubling** swaps all that is there with a partner
# 1, 2, 4 ... ranks away, and needs a power of two. **Bruck**'s algorithm takes any $p$: in step $k$ a rank sends what it has, or as much of it as is still missing, to
# the rank $2^k$ places to its left.
#
# **Predict**: 6 ranks; how many steps has Bruck? And does it send more bytes than the ring?

# %% name="guess_bruck"
guess_steps = IntText(description="steps:")
guess_bytes = ask("more bytes", "the same")
display(guess_steps, guess_bytes)

# %% name="watch_bruck"
Player(schedules.bruck_all_gather(ranks=6), schedules.ring_all_gather(ranks=6))

# %% name="reveal_bruck"
print(f"you said {guess_steps.value} steps, {guess_bytes.value}")
for build in (schedules.bruck_all_gather, schedules.ring_all_gather):
    schedule = build(6)
    print(
        f"{schedule.algorithm:6}: {schedule.steps} steps, each rank sends {schedule.bytes_sent(6000)[0]} of 6000 bytes"
    )

# %% [markdown] name="bruck_explained"
# The same bytes: each rank must receive the $p-1$ pieces that it lacks, and here nothing arrives twice. $\lceil\lg p\rceil$ steps, for what a rank
# knows can at most double in each. Both bounds are met at once, so on paper nothing is better. (Bruck pays with a local copy at the end, to
# turn the pieces into rank order.)

# %% [markdown] name="price"
# ## 5. What it costs
#
# Let $n$ be the bytes of the **result**, so a piece has $n/p$. With $\alpha$ seconds per message and $\beta$ per byte:
#
# $$T_\text{ring} = (p-1)\,\alpha + \tfrac{p-1}{p}\,n\beta \qquad T_\text{Bruck} = \lceil\lg p\rceil\,\alpha + \tfrac{p-1}{p}\,n\beta$$
#
# **A trap.** Many texts call the *piece* $D$ and write $(p-1)D$. That is the same number. Others mix the two, and are wrong by a
# factor of $p$. Always ask: of the piece, or of the whole?
#
# Now the question from the top: 14 GB in bfloat16, 8 GPUs; 200 GB/s in each direction and 5 µs a message are assumed.

# %% name="answer"
n, p, alpha, beta = 14e9, 8, 5e-6, 1 / 200e9
moved = max(schedules.ring_all_gather(p).bytes_sent(int(n)))
print(f"you said {first_received.value:g} received and {first_sent.value:g} sent")
print(f"each GPU receives {moved / 1e9:.2f} GB and sends {moved / 1e9:.2f} GB: all but its own eighth")
print(f"time at 200 GB/s: {1e3 * schedules.ring_all_gather(p).price(int(n), alpha, beta):.1f} ms, in one call")
for layers in (32, 320):
    each = schedules.ring_all_gather(p).price(int(n / layers), alpha, beta)
    print(f"in {layers:3} calls, one a layer: {1e3 * layers * each:.1f} ms")

# %% [markdown] name="answer_explained"
# Cutting it into layers costs a little more $\alpha$, and saves the memory that the whole exercise is about. FSDP starts the next layer's
# all-gather while this one computes, so that the time hides: in the forward pass because the CPU runs ahead of the GPU, in the backward pass by
# prefetching, on by default in FSDP1 and FSDP2.

# %% [markdown] name="measure"
# ### Measured here
#
# `bench.sweep` times the library's all-gathers and all-reduces on your ranks, for pieces from 1 KiB to 4 MiB, best of twelve. **Predict** for the last row, pieces of 4 MiB each: the all-gather of them, and an all-reduce of a tensor as large as its result. The all-gather takes ...

# %% name="guess_half"
guess = ask("about half as long", "about as long", "longer")
guess

# %% name="timings"
totals, measured = [1024 * 4**k * world.ranks for k in range(7)], {}
for name in ("all_gather", "all_reduce"):
    call = bench.Call(name)
    measured[name] = bench.sweep(world, call, totals, iterations=12, passes=3, warmups=2, budget_s=1.0)

# %% [markdown] name="fit"
# An iteration takes as long as its slowest rank. Every other size goes into the fit of $\alpha$ and $\beta$, in which each counts by its *relative* error; the sizes
# between them are the test.

# %% name="fit_model"
p, gathers = world.ranks, measured["all_gather"]
gather_s, reduce_s = ([row.best_us / 1e6 for row in sweep.rows] for sweep in measured.values())
fitted = gathers.fit(gathers.rows[::2])
alpha, beta = fitted.alpha_s.value, fitted.beta_s_per_byte.value
print(f"{'result KiB':>10}{'gather ms':>11}{'model ms':>10}{'busbw GB/s':>12}{'all-reduce ms':>15}{'ratio':>7}")
for total, t, r in zip(totals, gather_s, reduce_s, strict=True):
    model = schedules.ring_all_gather(p).price(total, alpha, beta)
    busbw = total / t * (p - 1) / p / 1e9
    print(f"{total // 1024:10}{1e3 * t:11.2f}{1e3 * model:10.2f}{busbw:12.2g}{1e3 * r:15.2f}{r / t:7.1f}")

# %% [markdown] name="measure_explained"
# By the formulas an all-reduce is two walks and an all-gather is one: half the steps and half the bytes, so the ratio should be 2. Yours
# differs where the machine is busy with something that the formula doesn't price, such as waking a waiting process, or adding.
#
# **busbw** here is $\frac nt\cdot\frac{p-1}{p}$ with $n$ the whole result (nccl-tests, `PERFORMANCE.md`). Put in the piece instead, and your network looks
# $p$ times slower.

# %% [markdown] name="pitfalls"
# ## 6. Pitfalls
#
# Sentences have different lengths. The last rank has one number more than the others, and everybody makes room for that. **Predict.**

# %% name="guess_unequal"
choices = ["it works", "an error", "numbers, and they are wrong"]
guess = ask(*choices)
guess

# %% tags=["raises-exception"] name="unequal"
# %%ranks --deadline 5
lengths = [3] * (world_size - 1) + [4]
mine = torch.full((lengths[rank],), float(rank))
out = [torch.empty(length) for length in lengths]
dist.all_gather(out, mine)
print(out)

# %% [markdown] name="unequal_explained"
# Gloo wants equal sizes, and says so. What works everywhere is the padding of [Gather](05_gather.ipynb): gather the lengths first, pad to the longest, gather, and cut.

# %% name="padded"
# %%ranks
length = torch.tensor([mine.numel()])
lengths = torch.empty(world_size, dtype=length.dtype)
dist.all_gather_single(lengths, length)

padded = torch.nn.functional.pad(mine, (0, int(lengths.max()) - mine.numel()))
rows = torch.empty(world_size * int(lengths.max()))
dist.all_gather_single(rows, padded)
print([row[:k].tolist() for row, k in zip(rows.view(world_size, -1), lengths.tolist(), strict=True)])

# %% [markdown] name="dtype_guess"
# The second is quickly written: an integer piece, and room made with `torch.zeros(1)`. **Predict.**

# %% name="guess_dtype"
guess = ask(*choices)
guess

# %% tags=["raises-exception"] name="dtype"
# %%ranks --deadline 5
mine = torch.tensor([rank])
out = [torch.zeros(1) for _ in range(world_size)]
dist.all_gather(out, mine)

# %% [markdown] name="dtype_explained"
# `torch.tensor([0])` is int64 and `torch.zeros(1)` float32; on one rank torch can see that, and refuses. (Between ranks nobody checks.) Make room
# with `torch.empty_like(mine)`.
#
# Third, an old acquaintance from [Gather](05_gather.ipynb): `[torch.empty(2)] * world_size` is one tensor, $p$ times. **Predict** what it holds afterwards.

# %% name="guess_alias"
guess = ask("rank 0's piece", "the last rank's piece", "an error")
guess

# %% tags=["raises-exception"] name="alias"
# %%ranks --deadline 5
mine = torch.tensor([10.0 * rank, 10.0 * rank + 1])
out = [torch.empty(2)] * world_size
dist.all_gather(out, mine)
print([t.tolist() for t in out])

# %% [markdown] name="alias_explained"
# All places are the same memory, so the last one written stays and no error tells you. Write the list with a comprehension.

# %% [markdown] name="where"
# ## 7. Where you meet it
#
# - **FSDP, ZeRO-3**: parameters before each layer's forward, and again before its backward if they were thrown away. **ZeRO-1 and 2**: the updated
#   parameters, once a step.
# - **Sequence parallelism**: activations before a tensor-parallel layer; together with a reduce-scatter it replaces an all-reduce, with equal volume.
# - **Contrastive losses**: the embeddings of all ranks.
# - **Evaluation**: predictions; or only their counts, if a sum would do. **Checkpoints**: rather not; each rank writes its own shard.
#
# Forward an all-gather, backward a reduce-scatter (section 2): that is why FSDP has both.

# %% [markdown] name="quiz"
# ## 8. Check yourself
#
# <details><summary>1. Every rank has 100 MB, p = 64. How much does each receive, and what must it have room for?</summary>
#
# 63 · 100 MB = 6.3 GB, and 6.4 GB.
# </details>
#
# <details><summary>2. You want the maximum of a value over all ranks, and gather all values to take it. Better?</summary>
#
# An all-reduce with `MAX`: the result stays as small as one value. If you also want to know *where* it is, one all-gather of pairs (value, index) is enough.
# </details>
#
# <details><summary>3. NCCL's all-reduce has a tree. Does its all-gather have one?</summary>
#
# No. It has the ring; CollNetDirect and NVLS, where a network or a switch helps; and PAT, which takes a logarithmic number of steps and by default needs one GPU per node (2.30.7).
# </details>

# %% [markdown] name="recap"
# ## Recap
#
# An all-gather leaves all pieces on every rank, in rank order, and multiplies memory by $p$. Each rank receives what it lacks, $\frac{p-1}{p}$ of the result,
# in $p-1$ steps round a ring or $\lceil\lg p\rceil$ by Bruck. It cuts the thread of autograd, wants equal sizes and one dtype. **Half of an all-reduce:
# the half that adds nothing.**
#
# **Now you:** [Lab 5](../labs/lab05_sharding/sharding.ipynb) begins with the ring.
#
# **Next question:** and the other half? [Reduce-scatter](10_reduce_scatter.ipynb).
#
# **Sources.** [PyTorch, torch.distributed](https://docs.pytorch.org/docs/stable/distributed.html) ·
# R. Thakur, R. Rabenseifner, W. Gropp, *Optimization of collective communication operations in MPICH*, Int. J. High Perform. Comput. Appl. 19(1), 2005 ·
# J. Bruck et al., *Efficient algorithms for all-to-all communications in multiport message-passing systems*, IEEE Trans. Parallel Distrib. Syst. 8(11), 1997 ·
# [NVIDIA, nccl-tests PERFORMANCE.md](https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md) ·
# S. Rajbhandari et al., *ZeRO*, [arXiv:1910.02054](https://arxiv.org/abs/1910.02054) ·
# Y. Zhao et al., *PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel*, PVLDB 16(12), 2023, [arXiv:2304.11277](https://arxiv.org/abs/2304.11277) ·
# [PyTorch, fully_shard](https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html)

# %% name="stop_world"
world.stop()
