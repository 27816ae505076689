# %% [markdown] name="title"
# # All-gather
#
# {{here}}
#
# **A model of 7 billion parameters is split over 8 GPUs, an eighth each. Every layer needs its whole weight matrix to compute. What must each GPU get
# from the others, and how much memory and time does that cost?**
#
# {{picture}}
#
# *Above:* each rank has one part. *Below:* every rank has all parts, side by side: nothing is added.

# %% name="start_world"
import torch
import torch.distributed as dist

from allranks import Player, World, bench, check, cost, predict, predictions, schedules

world = World()
world

# %% [markdown] name="guess_intro"
# The weights are bfloat16, 2 bytes each, 14 GB in all. In one forward pass every GPU needs all of them. Section 5 has
# the answer.

# %% name="question"
first_guess = predict(
    "How many GB does each of the 8 GPUs receive in one forward pass?",
    low=0.0,
    high=28.0,
    unit="GB",
    title="GB that each GPU receives",
)
first_guess

# %% [markdown] name="promise"
# ## 1. What it promises
#
# Every rank contributes a piece; afterwards every rank has all pieces, **in the order of ranks**. Nothing is added. torch has two forms of it; for
# both you provide the tensors that receive the pieces:

# %% name="two_forms"
# %%ranks
piece = torch.tensor([10.0 * rank, 10.0 * rank + 1])

as_list = [torch.empty(2) for _ in range(world_size)]
dist.all_gather(as_list, piece)

as_one = torch.empty(2 * world_size)
dist.all_gather_single(as_one, piece)
print(as_list[-1].tolist(), as_one.tolist())

# %% [markdown] name="two_forms_explained"
# `all_gather_single` fills one tensor, without a list and without a copy; libraries use this form. Its name is new:
#
# | | torch up to 2.12 | 2.13 and 2.14 | 2.15 |
# |---|---|---|---|
# | `all_gather_single`, `reduce_scatter_single` | only on this course's ranks | yes | yes |
# | `all_gather_into_tensor`, `reduce_scatter_tensor` | yes | yes, with a warning | yes |
#
# A script that must run on all of them takes what is there: `getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor`.
#
# How big is the result? Every rank has a piece of 1000 numbers.

# %% name="guess_growth"
guess_growth = predict(
    "1024 ranks, a piece of 1000 numbers on each. How many numbers do all ranks together hold after the all-gather?",
    low=1000,
    high=10_000_000_000,
    log=True,
    title="Numbers on 1024 ranks after an all-gather",
)
guess_growth

# %% name="growth"
for p in (4, 1024):
    print(
        f"{p:5} ranks: the result has {1000 * p:,} numbers on every rank, {1000 * p * p:,} on all together",
    )

# %% name="reveal_growth" jupyter={"source_hidden": true}
# the answer: run this cell
guess_growth.reveal(
    1000 * 1024 * 1024,
    why="Each rank holds all 1024 pieces, so what all ranks hold grows with the square of their number.",
)

# %% [markdown] name="growth_explained"
# So first ask: is there enough memory for the result?

# %% [markdown] name="layer"
# ## 2. A layer with sharded weights
#
# This is its best-known use. Each rank keeps some rows of a weight matrix. To apply the layer it gathers all rows, multiplies, and frees them again.
# That is the forward pass of a fully sharded layer (FSDP, ZeRO-3), in three lines:

# %% name="sharded_layer"
# %%ranks
torch.manual_seed(0)
whole = torch.randn(3 * world_size, 8)  # only for the comparison
shard = whole.chunk(world_size)[rank].clone()  # what this rank keeps: 3 rows
inputs = torch.randn(16, 8)

weight = torch.empty(3 * world_size, 8)
dist.all_gather_single(weight, shard)
outputs = inputs @ weight.T
print(tuple(shard.shape), tuple(weight.shape), torch.equal(outputs, inputs @ whole.T))

# %% [markdown] name="layer_explained"
# Between layers a rank holds $\tfrac1p$ of the parameters, plus the one layer that is being used. The cost is this all-gather for every layer in the
# forward pass, and again in the backward pass if the rows were freed.
#
# Now the backward pass. `shard` is a parameter, so it should get a gradient.

# %% name="guess_grad"
guess_grad = predict(
    "Does `shard` get a gradient through the tensor that `all_gather` gathered?",
    choices=["yes, autograd sees through", "no, and nothing is said", "no, and there is an error"],
    title="A gradient through `all_gather`?",
)
guess_grad

# %% tags=["raises-exception"] name="grad"
# %%ranks --deadline 5
parameter = shard.clone().requires_grad_()
parts = [torch.empty(3, 8) for _ in range(world_size)]
dist.all_gather(parts, parameter)
print(torch.cat(parts).requires_grad)

# %% name="reveal_grad" jupyter={"source_hidden": true}
# the answer: run this cell
guess_grad.reveal(
    "no, and nothing is said",
    why="`dist.all_gather` writes into tensors that autograd does not connect with `shard`, and nothing warns you.",
)

# %% [markdown] name="grad_explained"
# Autograd does not see the collectives called as `dist.…`. (It does see those of `torch.distributed._functional_collectives`,
# which is still a private interface, and the older ones of `torch.distributed.nn.functional`; torch 2.13 calls five of these deprecated, `all_gather` too.) If a
# contrastive loss gathers the embeddings of all ranks in this way, it gets no gradient through the gathered tensors, and there is no error.
# (`all_gather_single` does raise an error in torch 2.13, about a view that was changed in place: the message is strange, but the failure is safe.)
#
# What *should* the gradient be? Every rank uses rank 0's piece, so every rank has a gradient for it; these gradients must be summed and sent to rank 0.
# The same holds for all other pieces. This is a collective too, and the [next chapter](14_reduce_scatter.ipynb) writes it.

# %% [markdown] name="ring"
# ## 3. The ring, half of it
#
# You know this from [All-reduce](../1_first_hours/04_all_reduce.ipynb): it is the second pass. Each rank first sends its own piece to the right, and then each piece that
# it receives from the left.
#
# Lock in an answer, then step through it.

# %% name="guess_last"
guess_last = predict(
    "Four ranks: which piece does rank 0 send last?",
    choices=["piece 0", "piece 1", "piece 2", "piece 3"],
    title="Rank 0 sends last",
)
guess_last

# %% name="watch"
ring = schedules.ring_all_gather(ranks=4)
Player(ring)

# %% name="reveal_last" jupyter={"source_hidden": true}
# the answer: run this cell
last = [move.chunks[0] for move in ring.moves if move.src == 0][-1]
guess_last.reveal(
    f"piece {last}",
    why="The pieces come from the left, first rank 3's, then rank 2's, so piece 2 is the last one that rank 0 passes on; piece 1 is its neighbour's own.",
)

# %% [markdown] name="fewer_steps"
# ## 4. Fewer steps
#
# $p-1$ steps are many when pieces are small. A rank that has two pieces could send both. In **recursive doubling** a rank swaps all its pieces with a
# partner 1, 2, 4 ... ranks away; this needs a power of two. **Bruck**'s algorithm works for any $p$: in step $k$ a rank sends its pieces
# to the rank $2^k$ places to its left.
#
# How many steps does that take for 6 ranks, and how many bytes?

# %% name="guess_bruck"
guess_bruck = predict(
    "Bruck's algorithm on 6 ranks: does a rank send more bytes than in the ring?",
    choices=["more bytes", "the same", "fewer bytes"],
    title="Bruck compared with the ring",
)
guess_bruck

# %% name="watch_bruck"
Player(schedules.bruck_all_gather(ranks=6), schedules.ring_all_gather(ranks=6))

# %% name="reveal_bruck"
for build in (schedules.bruck_all_gather, schedules.ring_all_gather):
    schedule = build(6)
    print(
        f"{schedule.algorithm:6}: {schedule.steps} steps, each rank sends {schedule.bytes_sent(6000)[0]} of 6000 bytes"
    )

# %% name="seen_bruck" jupyter={"source_hidden": true}
# the answer: run this cell
guess_bruck.reveal(
    "the same",
    why="Each rank must receive the other five pieces, and here too no piece arrives twice.",
)

# %% [markdown] name="bruck_explained"
# In the last step a rank sends only the pieces that are still missing there. It takes $\lceil\lg p\rceil$ steps; fewer are
# impossible, because the number of pieces on a rank can at most double in each step. Bruck reaches both bounds at once, so by the formulas no
# algorithm is better.
#
# **Write it.** A rank's buffer holds the pieces in the order of distance: place $i$ is the piece of rank $(r+i) \bmod p$, so what arrives goes after what is
# there. The function below is right for one rank only. Run it, read what `check` says, and repair the two marked lines.


# %% name="bruck_all_gather"
def bruck_all_gather(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    buffer = tensor.new_empty(p, *tensor.shape)
    buffer[0] = tensor
    have = 1
    while have < p:
        count = min(have, p - have)  # what the receiver lacks
        distance = 1  # your turn: and in the later steps?
        leaving, arriving = buffer[:count], buffer[have : have + count]
        both = [
            dist.P2POp(dist.isend, leaving, (rank - distance) % p),
            dist.P2POp(dist.irecv, arriving, (rank + distance) % p),
        ]
        for work in dist.batch_isend_irecv(both):
            work.wait()
        have += count
    return buffer.flatten(0, 1)  # your turn: in the order of ranks


check(bruck_all_gather)

# %% [markdown] name="bruck_answer"
# <details><summary><b>A hint</b></summary>
#
# A rank that has `have` pieces has those of the ranks $r$ to $r$ + `have` - 1; where does the next one start? And `torch.roll(x, k, 0)` moves what is at place $i$ to place $i + k$, round the end.
# </details>
# <details><summary><b>An answer</b></summary>
#
# ```python
#         distance = have
# ```
#
# ```python
#     return buffer.roll(rank, 0).flatten(0, 1)
# ```
# </details>
#
# And here are your own messages, from the live ranks. When `check` passes, the captions are the same as in the schedule above, on your number of ranks:

# %% name="bruck_live"
_, trace = world.trace(lambda: bruck_all_gather(torch.ones(4)), deadline=10)
print(trace.summary())
Player(trace)

# %% [markdown] name="pat"
# Now look at Bruck's last step again: the most pieces go to the farthest rank, perhaps through the switches of the whole cluster. NCCL's **PAT** (since 2.23,
# with one GPU per node) turns the order round: the farthest rank comes first and gets one piece, the neighbour comes last and gets the most.

# %% name="watch_pat"
Player(schedules.pat_all_gather(ranks=8), schedules.bruck_all_gather(ranks=8), titles=("PAT", "Bruck"))

# %% name="pat_linear"
for ranks in (8, 64, 256, 1024):
    small, large = (int(cost.terms("all_gather", "pat", ranks, 1, in_flight=w).messages) for w in (None, 8))
    print(f"{ranks:5} ranks: {small} steps with small pieces, {large} with large ones; a ring takes {ranks - 1}")

# %% [markdown] name="pat_explained"
# Small pieces share one message. A piece of 512 KiB or more fills a slot of NCCL's buffer, so each is a message of its own, and eight are on their
# way at once: a step with $c$ pieces takes $\lceil c/8\rceil$ rounds. In all that is about $p/8$: with large pieces PAT is **linear** in $p$
# again, with an eighth of the ring's steps.
#
# With eight GPUs a node NCCL has neither Bruck nor PAT: an all-gather goes round a ring of all GPUs. On 128 such nodes (H100) its tuner expects 1.2 ms for a few bytes and 2.3 ms for
# 32 MiB, nearly all of it for the steps. That is one reason to shard over fewer GPUs, as [FSDP by hand](../3_one_model/23_fsdp_by_hand.ipynb) does with HSDP.

# %% [markdown] name="price"
# ## 5. What it costs
#
# Let $n$ be the bytes of the **result**, so a piece has $n/p$. With $\alpha$ seconds per message and $\beta$ per byte:
#
# $$T_\text{ring} = (p-1)\,\alpha + \tfrac{p-1}{p}\,n\beta \qquad T_\text{Bruck} = \lceil\lg p\rceil\,\alpha + \tfrac{p-1}{p}\,n\beta$$
#
# **A common mistake.** Many texts call the *piece* $D$ and write $(p-1)D$. That is the same number. Others confuse piece and result, and are wrong by
# a factor of $p$. Always ask which of the two is meant.
#
# Now the opening question: 14 GB in bfloat16 on 8 GPUs. We assume 200 GB/s in each direction and 5 µs for each message.

# %% name="answer"
n, p, alpha, beta = 14e9, 8, 5e-6, 1 / 200e9
moved = max(schedules.ring_all_gather(p).bytes_sent(int(n)))
print(f"each GPU receives {moved / 1e9:.2f} GB and sends {moved / 1e9:.2f} GB: all but its own eighth")
print(f"time at 200 GB/s: {1e3 * schedules.ring_all_gather(p).price(int(n), alpha, beta):.1f} ms, in one call")
for layers in (32, 320):
    each = schedules.ring_all_gather(p).price(int(n / layers), alpha, beta)
    print(f"in {layers:3} calls, one a layer: {1e3 * layers * each:.1f} ms")

# %% name="reveal_answer" jupyter={"source_hidden": true}
# the answer: run this cell
first_guess.reveal(
    moved / 1e9,
    why="Each GPU has its own eighth already and receives the other seven. (It also sends as much: an eighth to each of the seven others.)",
    marks={"all": 14},
)

# %% [markdown] name="answer_explained"
# One call for each layer costs a little more $\alpha$, but saves memory, which is the purpose of sharding. FSDP starts the next layer's all-gather
# while this layer computes, which hides the time. In the forward pass this works because the CPU runs ahead of the GPU, in the backward pass because
# of prefetching, which is on by default in FSDP1 and FSDP2.

# %% [markdown] name="measure"
# ### Measured here
#
# `bench.sweep` times the library's all-gathers and all-reduces on your ranks, for pieces from 1 KiB on until more bytes bring no more bandwidth, best of up to twelve. Look at the
# last row, with the largest pieces. Compare the all-gather with an all-reduce of a tensor as large as the all-gather's result. Does the all-gather take half as long?

# %% name="timings"
totals, measured = bench.up_to_plateau(world, first=1024 * world.ranks), {}
for name in ("all_gather", "all_reduce"):
    call = bench.Call(name)
    measured[name] = bench.sweep(world, call, totals, iterations=12, passes=3, warmups=2, budget_s=1.0)

# %% [markdown] name="fit"
# An iteration takes as long as its slowest rank. Every second size is used for the fit of $\alpha$ and $\beta$, by *relative* errors; the sizes between them test the model.

# %% name="fit_model"
p, gathers = world.ranks, measured["all_gather"]
gather_s, reduce_s = ([row.best_us / 1e6 for row in sweep.rows] for sweep in measured.values())
fitted = gathers.fit(gathers.rows[::2])
alpha, beta = fitted.alpha_s.value, fitted.beta_s_per_byte.value
print(bench.fitted_words(world, alpha, beta))
print(f"{'result KiB':>10}{'gather ms':>11}{'model ms':>10}{'busbw GB/s':>12}{'all-reduce ms':>15}{'ratio':>7}")
for total, t, r in zip(totals, gather_s, reduce_s, strict=True):
    model = schedules.ring_all_gather(p).price(total, alpha, beta)
    busbw = total / t * (p - 1) / p / 1e9
    print(f"{total // 1024:10}{1e3 * t:11.3f}{1e3 * model:10.3f}{busbw:12.3g}{1e3 * r:15.3f}{r / t:7.1f}")

# %% [markdown] name="measure_explained"
# By the formulas an all-reduce has two passes and an all-gather one: half the steps and half the bytes, so the ratio should be 2. Yours differs if
# the machine spends time on work that the formula leaves out, such as waking a waiting process, or adding.
#
# **busbw** here is $\frac nt\cdot\frac{p-1}{p}$ with $n$ the whole result (nccl-tests, `PERFORMANCE.md`). If you use the piece instead, your network seems $p$ times slower.

# %% [markdown] name="pitfalls"
# ## 6. Pitfalls
#
# Sentences have different lengths. The last rank has one number more than the others, and every rank makes its tensors large enough for that.
# (The cell makes a group with Gloo and CPU tensors, as in [Point to point](../1_first_hours/03_point_to_point.ipynb).)

# %% name="guess_unequal"
choices = ["it works", "an error", "numbers, and they are wrong"]
guess_unequal = predict(
    "The last rank's piece has one number more, and every rank makes room for it. What does Gloo do?",
    choices=choices,
    title="Pieces of unequal length with Gloo",
)
guess_unequal

# %% tags=["raises-exception"] name="unequal"
# %%ranks --deadline 5
lengths = [3] * (world_size - 1) + [4]
mine = torch.full((lengths[rank],), float(rank))
gloo = dist.new_group(backend="gloo")
out = [torch.empty(length, device="cpu") for length in lengths]
dist.all_gather(out, mine.cpu(), group=gloo)
print(out)

# %% name="reveal_unequal" jupyter={"source_hidden": true}
# the answer: run this cell
guess_unequal.reveal(
    choices[1],
    why="Gloo's all-gather needs equal sizes, and says so. (Under NCCL torch makes broadcasts of such a call, and it works.)",
)

# %% [markdown] name="unequal_explained"
# (What torch does for NCCL is in `ProcessGroupNCCL.cpp`.) The padding of [Scatter and gather](11_scatter_and_gather.ipynb) works with every backend: gather the lengths first, pad to the longest, gather, and cut.

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
# The second mistake is easy to make: the piece is an integer, and the tensors to receive are made with `torch.zeros(1)`.

# %% tags=["raises-exception"] name="dtype"
# %%ranks --deadline 5
mine = torch.tensor([rank])
out = [torch.zeros(1) for _ in range(world_size)]
dist.all_gather(out, mine)

# %% [markdown] name="dtype_explained"
# `torch.tensor([0])` is int64 and `torch.zeros(1)` float32; on one rank torch can see this, and raises an error. (Between ranks it does not check.)
# Make the tensors with `torch.empty_like(mine)`.
# (`[torch.empty(2)] * world_size` would be one tensor, $p$ times: [Scatter and gather](11_scatter_and_gather.ipynb).)

# %% [markdown] name="where"
# ## 7. Find it in torch
#
# **Your task.** Open `torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py` (`python -c "import torch; print(torch.__path__[0])"` says in which folder torch is) and look for `all_gather_single`. FSDP has many parameters and makes one call for a whole block. What is gathered?
#
# <details><summary><b>Answer</b></summary>
#
# One flat buffer with this rank's shards of all parameters of the block. So a block costs one α, and not one for each parameter.
# </details>
#
# You also meet it here:
#
# - **FSDP, ZeRO-3**: parameters before each layer's forward, and again before its backward if they were freed. **ZeRO-1 and 2**: the updated
#   parameters, once a step.
# - **Sequence parallelism**: activations before a tensor-parallel layer; together with a reduce-scatter it replaces an all-reduce, with equal volume.
# - **Contrastive losses**: the embeddings of all ranks.
# - **Evaluation**: predictions; or only their counts, if a sum is enough. **Checkpoints**: better not; each rank writes its own shard.
#
# The forward pass uses an all-gather, the backward pass a reduce-scatter (section 2): that is why FSDP has both.

# %% [markdown] name="quiz"
# ## 8. Check yourself
#
# <details><summary>1. Every rank has 100 MB, p = 64. How much does each rank receive, and how large is its result?</summary>
#
# 63 · 100 MB = 6.3 GB, and 6.4 GB.
# </details>
#
# <details><summary>2. You need the maximum of a value over all ranks, and gather all values to take it. What is better?</summary>
#
# An all-reduce with `MAX`: the result stays as small as one value. If you also need to know *where* it is, one all-gather of pairs (value, index) is enough.
# </details>
#
# <details><summary>3. NCCL's all-reduce has a tree. Does its all-gather have one?</summary>
#
# No. It has the ring; CollNetDirect and NVLS, if a network or a switch helps; and PAT, which takes a logarithmic number of steps and by default needs one GPU per node (2.30.7).
# </details>

# %% [markdown] name="recap"
# ## Recap
#
# An all-gather puts all pieces on every rank, in rank order, and so needs $p$ times the memory. Each rank receives the missing pieces,
# $\frac{p-1}{p}$ of the result, in $p-1$ steps of a ring or $\lceil\lg p\rceil$ steps of Bruck. Gradients do not flow through it, and it needs equal
# sizes and one dtype. **An all-gather is the second half of an all-reduce: it moves pieces and adds nothing.**
#
# **Now you:** [Lab 5](../../labs/lab05_sharding/sharding.ipynb) begins with Bruck or PAT, without a given loop.
#
# **Next question:** an all-gather is half of an all-reduce. What does the other half do? [Reduce-scatter](14_reduce_scatter.ipynb)
#
# **Sources.** [PyTorch, torch.distributed](https://docs.pytorch.org/docs/stable/distributed.html) ·
# R. Thakur, R. Rabenseifner, W. Gropp, *Optimization of collective communication operations in MPICH*, Int. J. High Perform. Comput. Appl. 19(1), 2005 ·
# J. Bruck et al., *Efficient algorithms for all-to-all communications in multiport message-passing systems*, IEEE Trans. Parallel Distrib. Syst. 8(11), 1997 ·
# [NVIDIA, nccl-tests PERFORMANCE.md](https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md) ·
# S. Rajbhandari et al., *ZeRO*, [arXiv:1910.02054](https://arxiv.org/abs/1910.02054) ·
# Y. Zhao et al., *PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel*, PVLDB 16(12), 2023, [arXiv:2304.11277](https://arxiv.org/abs/2304.11277) ·
# [PyTorch, fully_shard](https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html)

# %% name="what_you_knew"
predictions()

# %% name="stop_world"
world.stop()

# %% name="done"
from allranks import done

done("13")
