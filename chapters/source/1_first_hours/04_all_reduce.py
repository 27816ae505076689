# %% [markdown] name="title"
# # All-reduce
#
# {{here}}
#
# **A model of 7 billion parameters trains on 32 GPUs. After each step every GPU must hold the mean of all 32 gradients.
# What is the smallest number of bytes that each GPU must send, and how long does that take?**
#
# {{picture}}
#
# *Above:* each rank has numbers of its own, a gradient. *Below:* every rank holds the same sum; the stripes say that all four are in it. Where are they
# added? No machine stands between the ranks, so they must add themselves.

# %% [markdown] name="my_model_needs"
# **My model** needs this after every step: 64 GPUs add 14 GB of gradients.

# %% name="start_world"
import statistics

import torch
import torch.distributed as dist

from allranks import Player, World, bench, check, cost, plots, predict, predictions, schedules

world = World()
world

# %% [markdown] name="guess_intro"
# A gradient has one number per parameter. In bfloat16 that is 2 bytes. Section 4 has the answer.

# %% name="question"
n = 7_000_000_000 * 2
print(f"each GPU holds {n / 1e9:g} GB of gradients")
first_guess = predict(
    "32 GPUs, 14 GB of gradients each. How many GB does each GPU send in one all-reduce?",
    low=1,
    high=1000,
    unit="GB",
    log=True,
    title="GB that each GPU sends",
)
first_guess

# %% [markdown] name="why_mean"
# ## 1. Why training needs the mean of gradients
#
# In data-parallel training every rank has the same weights and a share of the batch. Here is a small model of this kind: every rank builds the same
# weights and the same samples, but uses only its own 16 samples.

# %% name="own_gradient"
# %%ranks
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
inputs = torch.randn(16 * world_size, 4)
targets = inputs.sum(dim=1, keepdim=True)
mine = slice(16 * rank, 16 * (rank + 1))
loss = torch.nn.functional.mse_loss(model(inputs[mine]), targets[mine])
loss.backward()
print(f"{model.bias.grad.item():+.4f}")

# %% [markdown] name="why_mean_guess"
# Different shares give different gradients. If every rank used its own gradient, there would be $p$ different models after one step.
#
# What gradient would a single process have found with the samples of all ranks? Calculate it from the numbers above.

# %% name="mean_gradient"
# %%ranks
for parameter in model.parameters():
    dist.all_reduce(parameter.grad)
    parameter.grad /= world_size

whole = torch.nn.functional.mse_loss(model(inputs), targets)
alone = torch.autograd.grad(whole, model.bias)[0]
print(f"together {model.bias.grad.item():+.4f}\nalone    {alone.item():+.4f}")

# %% [markdown] name="why_mean_explained"
# The mean of all gradients is the gradient of the whole batch. That holds because each share has 16 samples; with unequal
# shares a mean of means is not the mean. This pair of lines, an all-reduce and a division, is the core of
# `DistributedDataParallel`: `all_reduce` gives every rank the sum of all ranks' tensors, element by element.

# %% [markdown] name="ring"
# ## 2. The ring
#
# How would *you* do it? If every rank sends its tensor of $n$ bytes to every other rank, each rank sends $(p-1)\,n$ bytes. If all ranks send to rank
# 0, which adds and answers, then rank 0 alone sends and receives $(p-1)\,n$ bytes while the others wait.
#
# The ring cuts the tensor into $p$ chunks (`tensor_split(p)` does, into lengths that differ by at most one). Every rank sends only to its right-hand neighbour and receives only from its left.
# Step through it, here with four ranks, and follow chunk 0. When is its sum complete, and where?

# %% name="watch"
Player(schedules.ring_all_reduce(ranks=4), bound=False)

# %% name="guess_growth"
ranks = [2**k for k in range(1, 11)]
curve = predict(
    "Sketch: bytes that each rank sends in a ring all-reduce of n bytes, from 2 to 1024 ranks.",
    sketch={"x": ranks, "low": 0, "high": 8, "unit": "n", "x_label": "ranks"},
    title="Bytes that each rank sends",
)
curve

# %% [markdown] name="derive"
# Chunk 0 is complete after step 3, on rank 3. The chunks travel around the ring twice. In the first pass, **reduce-scatter**, a rank adds the
# arriving chunk to its own; at the end each rank has one finished chunk. In the second pass, **all-gather**, ranks send the finished chunks on and
# store them.
#
# **Derive the cost.** How long is a chunk? How many does a rank send in one pass? Then write a formula in $p$ and $n$ for all bytes that one rank
# sends. The next cell compares it with the messages of the schedule.


# %% name="formula"
def bytes_sent(p, n):
    return 0  # your formula


for p in (2, 3, 4, 8):
    counted = schedules.ring_all_reduce(ranks=p).bytes_sent(840)[0]
    print(f"p = {p}, n = 840:  yours {bytes_sent(p, 840):6g}   counted {counted:6}")

# %% [markdown] name="formula_answer"
# <details><summary><b>The derivation</b></summary>
#
# A chunk is $n/p$ bytes long. One pass has $p-1$ steps, because a chunk has visited all $p$ ranks after $p-1$ hops. A rank sends one chunk in each step, and there are two passes:
#
# $$2 \cdot (p-1) \cdot \frac{n}{p} = 2\,\frac{p-1}{p}\,n$$
#
# In code: `2 * (p - 1) / p * n`.
# </details>
#
# How does it grow with $p$? The next cell shows it, and the plot below the number of steps.

# %% name="reveal_growth" jupyter={"source_hidden": true}
# the answer: run this cell
curve.reveal(
    lambda p: 2 * (p - 1) / p,
    why="The chunks shrink as fast as their number grows; what grows is the number of steps.",
    it="it levels off, below 2 n",
    label="2 (p−1)/p · n",
)

# %% name="growth"
counts = [2**k for k in range(1, 11)]
terms = [cost.terms("all_reduce", "ring", p, 1) for p in counts]
growth, (above, below) = plots.chart("ranks p", "", size=(6.4, 4.4), rows=2)
above.semilogx(counts, [float(term.nbytes) for term in terms], marker="o")
above.set(ylabel="bytes sent by a rank, n", ylim=(0, 2.2))
below.semilogx(counts, [int(term.messages) for term in terms], marker="o")
below.set(ylabel="steps, one after the other", xticks=counts, xticklabels=counts)
growth

# %% [markdown] name="growth_explained"
# The bytes (above) stay below $2n$, but the steps (below) grow with $p$: 2046 for 1024 ranks. So "the time of a ring does not depend on the number of ranks" is only half true: it holds
# for long tensors, whose time depends on the bytes, but not for short ones, whose time depends on the steps.

# %% [markdown] name="yours"
# ## 3. Your own ring
#
# This is the circle of [Point to point](03_point_to_point.ipynb) again: if all ranks send first, all wait. So `swap` below starts the send *and*
# the receive with `batch_isend_irecv`, and then waits for both: you must not use either buffer before that.
#
# The first pass is given below. **Write the second** (two lines are enough) and run the cell: `check` forks its own ranks, counts every message, and
# says at once what is wrong. You can `swap` as in the first pass, with two differences: other chunks are sent, and the arriving chunk is not added.


# %% name="ring_all_reduce"
def ring_all_reduce(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    left, right = (rank - 1) % p, (rank + 1) % p
    flat = tensor.contiguous().view(-1)
    chunks = flat.tensor_split(p)

    def swap(leaving, arriving):
        """To the right, and from the left, as one batch (NCCL needs that)."""
        both = [dist.P2POp(dist.isend, leaving, right), dist.P2POp(dist.irecv, arriving, left)]
        for work in dist.batch_isend_irecv(both):
            work.wait()

    for step in range(p - 1):  # reduce-scatter
        mine = chunks[(rank - step - 1) % p]
        arriving = torch.empty_like(mine)
        swap(chunks[(rank - step) % p], arriving)
        mine += arriving

    # all-gather: your turn

    tensor.copy_(flat.view_as(tensor))


check(ring_all_reduce)

# %% [markdown] name="ring_answer"
# <details><summary><b>A hint</b></summary>
#
# After the first pass rank $r$ holds the finished chunk $(r+1) \bmod p$, and sends it in step 0. In every later step it sends the chunk that it received in the step before.
# </details>
# <details><summary><b>An answer</b></summary>
#
# ```python
#     for step in range(p - 1):  # all-gather
#         swap(chunks[(rank + 1 - step) % p], chunks[(rank - step) % p])
# ```
# </details>
#
# Run it on the live ranks and compare it with the real all-reduce. The inputs are whole numbers, so the bits must agree:


# %% name="ring_live"
def same_as_the_real_one():
    ours = torch.arange(10.0) * (dist.get_rank() + 1)
    theirs = ours.clone()
    ring_all_reduce(ours)
    dist.all_reduce(theirs)
    return torch.equal(ours, theirs)


world.run(same_as_the_real_one, deadline=5)

# %% [markdown] name="ring_live_explained"
# You see `True` for every rank when your second pass is right. NCCL's ring cuts each chunk further, so
# that adding and sending overlap, and it uses many rings at once.

# %% [markdown] name="bound"
# ## 4. What it costs
#
# ### No algorithm can send less
#
# Take one element of the vector. Number all messages that carry it, or a partial sum of it, in order of time.
#
# 1. One rank is the first to know the total. Before that, each of the *other* $p-1$ ranks must have sent at least one message, or its number would be
#    missing in the total. So the first rank knows the total only after at least $p-1$ messages.
# 2. Each of the other $p-1$ ranks needs one more message to learn the total, and this message comes later.
#
# So every element is sent at least $(p-1)+(p-1)$ times. For $n$ bytes that is $2(p-1)\,n$ in all. If all ranks send equally much, it is
# $2\frac{p-1}{p}n$ per rank; a rank can send less only if another sends more. The ring sends exactly this minimum (Patarasuk & Yuan 2009).
#
# The proof has one condition: only ranks add. A switch that adds on the way (SHARP, Graham et al. 2016; NVLS inside an
# NVSwitch) needs less ([Without messages](../4_real_cluster/44_without_messages.ipynb)).

# %% [markdown] name="price"
# ### The time
#
# The usual model: a message of $m$ bytes takes $\alpha + m\beta$ seconds. $\alpha$ is the time before a message starts to move, $\beta$ the time for
# each byte. The ring has $2(p-1)$ steps of $n/p$ bytes:
#
# $$T = 2(p-1)\,\alpha + 2\,\frac{p-1}{p}\,n\,\beta$$
#
# (plus the additions, $\frac{p-1}{p}n\gamma$, which mostly happen during the sending.) `schedule.price` adds this up step by step for any algorithm,
# so we can compare four of them on 32 ranks. We assume a link with 5 µs for each message and 200 GB/s in each direction.
#
# In *flat* all ranks send to rank 0, which adds and sends the sum back. In a *tree* pairs add, then pairs of pairs, and the sum returns the same way.
# In *recursive doubling* two ranks swap their whole sums; in each step the partner is twice as far away.

# %% name="names"
names = ["flat_all_reduce", "tree_all_reduce", "recursive_doubling_all_reduce", "ring_all_reduce"]

# %% name="guess_fastest"
choices = [name.removesuffix("_all_reduce").replace("_", " ") for name in names]
guess_fastest = predict(
    "32 ranks sum 1 KB: which of the four is the fastest?",
    choices=choices,
    title="The fastest for 1 KB",
)
guess_fastest

# %% name="competition"
alpha, beta = 5e-6, 1 / 200e9
plots.scaling(
    [schedules.ALGORITHMS[name](32) for name in names],
    [10**k for k in range(2, 10)],
    alpha,
    beta,
)

# %% name="reveal_fastest" jupyter={"source_hidden": true}
# the answer: run this cell
guess_fastest.reveal(
    min(choices, key=lambda name: schedules.find("all_reduce", name)(32).price(1000, alpha, beta)),
    why="For 1 KB only the number of steps counts: recursive doubling has 5, the tree 10, and the ring and the flat way 62.",
)

# %% [markdown] name="competition_explained"
# For short tensors the algorithm with the fewest steps is fastest, for long ones the one with the fewest bytes; in between it depends on $\alpha$ and
# $\beta$. Therefore libraries have several algorithms and choose by size.
#
# Now the opening question: 7 billion bfloat16 gradients, 32 GPUs, 200 GB/s in each direction.

# %% name="answer"
ring = schedules.ring_all_reduce(ranks=32)
sent = max(ring.bytes_sent(n)) / 1e9
print(f"bytes alone:          {1e3 * ring.price(n, 0, beta):8.1f} ms")
print(f"with 5 µs a message:  {1e3 * ring.price(n, alpha, beta):8.1f} ms")
print(f"at 200 gigaBITS/s:    {1e3 * ring.price(n, 0, 8 * beta):8.1f} ms")

# %% name="reveal_answer" jupyter={"source_hidden": true}
# the answer: run this cell
first_guess.reveal(
    sent,
    why="Sums are made on the way, so each chunk goes round twice, once to be added and once to be copied: 2 · 31/32 · 14 GB.",
    marks={"n": 14},
)

# %% [markdown] name="answer_explained"
# Such figures hold only under their conditions: bandwidth per direction, one call for all gradients, no overlap with the backward pass. The last line
# shows a common error: makers give the speed of network cards in gigabits, that of NVLink in gigabytes, and often add both directions.

# %% [markdown] name="measure"
# ### Measured here
#
# Now test the model. `bench.sweep` times real all-reduces on your ranks, from 1 KiB to 64 MiB (on GPUs to 1 GiB, where their bandwidth stops growing), each up to 15 times.
#
# How does the time change when the tensor grows from 1 KiB to 4 KiB? The cell takes 5 to 15 s.

# %% name="timings"
sizes = bench.up_to_plateau(world)
sweep = bench.sweep(world, bench.Call("all_reduce"), sizes, iterations=15, passes=3, warmups=1, budget_s=1.0)

# %% [markdown] name="fit"
# Here we take the **median** of each size, the time that a program usually meets; so this $\alpha$ and $\beta$ are larger than those of the best tries
# ([Point to point](03_point_to_point.ipynb)). The four smallest sizes give $\alpha$ (the
# median of their four values). The largest size gives $\beta$, so the model agrees with it by construction. The other sizes test the model.
#
# The first plot shows two bandwidths. **algbw** is $n/t$: how fast you got the result. **busbw** is algbw times $2\frac{p-1}{p}$: the bytes a second
# that each rank's link carried. Compare it with the hardware (nccl-tests, `PERFORMANCE.md`).

# %% name="fit_model"
best, measured = zip(*((row.best_us / 1e6, row.median_us / 1e6) for row in sweep.rows), strict=True)
p = world.ranks
plateau = statistics.median(measured[:4])
alpha = plateau / (2 * (p - 1))
beta = (measured[-1] - plateau) / (2 * (p - 1) / p * sizes[-1])
model = [schedules.ring_all_reduce(p).price(nbytes, alpha, beta) for nbytes in sizes]
print(bench.fitted_words(world, alpha, beta))

# %% name="bandwidth"
plots.bandwidth({"all_reduce": list(zip(sizes, measured, strict=True))}, factor=2 * (p - 1) / p)

# %% name="figure"
figure, axes = plots.chart("bytes", "seconds")
axes.fill_between(sizes, best, measured, color=plots.WIRE, alpha=0.35, label="measured, from the best to the median")
axes.loglog(sizes, measured, "o", color=plots.INK, label="measured, median")
axes.loglog(sizes, model, "--", color=plots.SOFT, label="model")
axes.legend()
figure

# %% [markdown] name="measure_explained"
# The curve is first flat, where the steps take most of the time, then it rises, where the bytes do. Where is the bend on your machine? In the model
# it is at $n = p\,\alpha/\beta$, where both terms are equal.
#
# Why do model and measurement differ? Our $\alpha$ includes more than the link. On CPUs it includes waking the process that waits, and if there are
# more ranks than cores, ranks take turns; the shaded band, from the best to the median, shows how much that varies. Gloo also cuts each chunk into at least two segments, to add
# one while the other travels (`gloo/allreduce.cc`). The formula includes neither.

# %% [markdown] name="definition"
# ## 5. What it promises
#
# Let $x^{(r)}$ be the tensor of rank $r$. After the call every rank $r$ holds, in place of its own,
#
# $$y_i = x^{(0)}_i \oplus x^{(1)}_i \oplus \dots \oplus x^{(p-1)}_i \quad\text{for every element } i,$$
#
# where $\oplus$ is the operation, a sum unless you say otherwise. The conditions: every rank of the group calls it, with the same shape, the same
# dtype and the same operation. The library does not check this (section 8).

# %% name="operations"
# %%ranks
for op in ("SUM", "AVG", "MIN", "MAX", "PRODUCT"):
    y = torch.tensor([rank + 1.0])
    dist.all_reduce(y, op=getattr(dist.ReduceOp, op))
    print(f"{op:8} {y.item():g}")

# %% [markdown] name="operations_explained"
# Integers also have `BAND`, `BOR` and `BXOR` (not on NCCL), and NCCL has `PREMUL_SUM`. Which one answers "did any rank see
# a NaN?" Each rank contributes 0 or 1; `MAX` tells whether any rank did, `SUM` tells how many did.
#
# `AVG` seems to save you the division. Take gradients of 60,000 in float16, whose largest finite value
# is 65,504. Which of these three ways gives 60,000?

# %% name="overflow"
# %%ranks
gradient = torch.full((1,), 60000.0, dtype=torch.float16)
late = gradient.clone()
dist.all_reduce(late)
late /= world_size

early = gradient / world_size
dist.all_reduce(early)

average = gradient.clone()
dist.all_reduce(average, op=dist.ReduceOp.AVG)
print(f"sum, then divide {late.item():g}\ndivide, then sum {early.item():g}\nAVG              {average.item():g}")

# %% [markdown] name="overflow_explained"
# The sum is too large for float16, and infinity divided by $p$ is still infinity. That is why PyTorch's own hook for DDP divides first, with the
# comment "to avoid overflow, especially for FP16". The disadvantage: very small gradients become even smaller.
#
# If `AVG` gave `inf` too, your backend added first. Gloo in torch 2.13 does; the documentation of `ReduceOp` says that `AVG`
# divides before summing and exists on NCCL only. **Where overflow matters, divide by hand.**

# %% [markdown] name="in_place"
# ## 6. In place
#
# Most functions of torch return a new tensor and leave their input. A collective writes into memory that you give it. Here rank $r$ prints `x` and what the call returned:

# %% name="in_place_run"
# %%ranks
x = torch.tensor([rank + 1.0])
result = dist.all_reduce(x)
print(f"{x.item():g}, {result}")

# %% [markdown] name="in_place_explained"
# `x` holds the sum, and the call returned nothing. If you need the old numbers, keep `x.clone()`: `before = x` is only a second name of the same memory, an *alias* (with a picture in
# [Scatter and gather](../2_collectives/11_scatter_and_gather.ipynb)). The next cell calls it again on the same `x`.

# %% name="guess_twice"
guess_twice = predict(
    "Four ranks hold 10 after the all-reduce of 1, 2, 3 and 4. What do they hold after a second one?",
    low=0,
    high=100,
    title="Four ranks: after a second all-reduce",
)
guess_twice

# %% name="twice"
# %%ranks
dist.all_reduce(x)
print(f"{x.item():g}")

# %% name="reveal_twice" jupyter={"source_hidden": true}
# the answer: run this cell
guess_twice.reveal(
    40,
    why="Every rank contributes what it holds now, and that is the first sum: 4 times 10.",
)

# %% [markdown] name="twice_explained"
# Running a notebook cell twice, or averaging a gradient that was averaged
# already, is a mistake that raises no error.
#
# "In place" means in *memory*, so the tensor must have no gaps: a column or a transposed matrix is not **contiguous**. [Scatter and gather](../2_collectives/11_scatter_and_gather.ipynb)
# shows what a library does with it. Call the collective on `t.contiguous()`, then copy the result
# back.

# %% [markdown] name="floats"
# ## 7. The same bits?
#
# Each rank draws 100,000 random numbers and all are summed. Then the notebook adds the same numbers itself, in the
# order of ranks. How many of the 100,000 results differ, in at least one bit, between two ranks,
# and between a rank and the notebook?

# %% name="guess_bits"
guess_bits = predict(
    "What percentage of the results differ, in at least one bit, between two ranks?",
    low=0,
    high=100,
    unit="%",
    title="Results that differ between two ranks",
)
guess_bits

# %% name="random_sums"
# %%ranks
torch.manual_seed(rank)
values = torch.randn(100_000)
total = values.clone()
dist.all_reduce(total)

# %% name="compare_bits"
totals, serial = world["total"], sum(world["values"])


def percent_different(a, b):
    return f"{100 * (a != b).float().mean():.1f} % differ, by at most {(a - b).abs().max():.1e}"


print("first rank and last rank:", percent_different(totals[0], totals[-1]))
print("first rank and notebook: ", percent_different(totals[0], serial))
print("0.1 + (0.2 + 0.3) == (0.1 + 0.2) + 0.3 is", 0.1 + (0.2 + 0.3) == (0.1 + 0.2) + 0.3)

# %% name="reveal_bits" jupyter={"source_hidden": true}
# the answer: run this cell
guess_bits.reveal(
    100 * (totals[0] != totals[-1]).float().mean().item(),
    why="A sum is made once and then copied to all ranks, so all have the same bits; another order of additions, as in the notebook, gives others.",
)

# %% [markdown] name="floats_explained"
# Between ranks PyTorch promises this: "After the call `tensor` is going to be bitwise identical in all
# processes" (documentation of `all_reduce`). Training relies on that promise: replicas that start equal stay
# equal only if each of them adds the same bits.
#
# There is no such promise for another order of additions, because each order rounds differently. (With two ranks there is only one order.) So never
# compare the result of an all-reduce with `==`; use `torch.allclose`. And expect a run on 8 GPUs to
# differ from the same run on 4.

# %% [markdown] name="where"
# ## 8. Find it in torch
#
# **Your task.** Open `torch/distributed/algorithms/ddp_comm_hooks/default_hooks.py` (`python -c "import torch; print(torch.__path__[0])"` says in which folder torch is) and look for `_allreduce_fut`. DDP needs the mean of the gradients. Does it divide before the all-reduce or after it, and what would the other order risk in float16?
#
# <details><summary><b>Answer</b></summary>
#
# Before: `tensor.div_(...)` stands above `dist.all_reduce`. A sum that is divided later may be too large for float16, as you saw above.
# </details>
#
# ### The mistake that is not reported
#
# Rank 0 contributes an int32, the others float32, in a group with Gloo, because NCCL leaves this undefined. Error, hang, or a number?

# %% tags=["raises-exception"] name="dtype"
# %%ranks --deadline 5
gloo = dist.new_group(backend="gloo")
x = torch.ones(1, dtype=torch.int32 if rank == 0 else torch.float32, device="cpu")
dist.all_reduce(x, group=gloo)
print(x.item())

# %% [markdown] name="dtype_explained"
# Every rank should hold $p$. Messages carry only bytes, and each rank read them as its own dtype: rank 0 added the *bits* of a float to an
# integer. NCCL calls such a mismatch undefined: a hang, a crash or corrupted data (NCCL user guide). Don't
# count on an error.

# %% [markdown] name="quiz"
# ## 9. Check yourself
#
# <details><summary>1. Eight ranks, 1 GB each. How much does each rank send in a ring, and in how many steps?</summary>
#
# 2 · 7/8 · 1 GB = 1.75 GB, in 14 steps.
# </details>
#
# <details><summary>2. A run logs its loss with an all-reduce of 4 bytes on 1024 ranks. Is the ring a good choice?</summary>
#
# No. It takes 2046 steps, one after the other, for a few bytes. Recursive doubling takes 10.
# </details>
#
# <details><summary>3. Two ranks of a job print slightly different weights after 1000 steps. Is it rounding?</summary>
#
# No: an all-reduce gives all ranks the same bits. Look for what differs: a seed, a skipped parameter, a buffer that is not synchronised.
# </details>

# %% [markdown] name="recap"
# ## Recap
#
# An all-reduce puts the combination of all tensors on every rank, in place and with the same bits. The ring does a reduce-scatter followed by an
# all-gather and sends $2\frac{p-1}{p}n$ bytes per rank, which is the least that point-to-point links allow. But it needs $2(p-1)$ steps. **The ring sends the fewest bytes that are possible, but needs many messages.**
#
# **Now you:** [Lab 3](../../labs/lab03_all_reduce/all_reduce.ipynb) asks for the whole ring, with nothing given.
#
# **Next question:** what is the ring's first half good for alone? [Reduce-scatter](../2_collectives/14_reduce_scatter.ipynb)
#
# {{side_trips}}
#
# **Sources.** P. Patarasuk and X. Yuan, *Bandwidth optimal all-reduce algorithms for clusters of workstations*, J. Parallel Distrib.
# Comput. 69(2), 2009, [doi:10.1016/j.jpdc.2008.09.002](https://doi.org/10.1016/j.jpdc.2008.09.002) ·
# [PyTorch, torch.distributed](https://docs.pytorch.org/docs/stable/distributed.html) ·
# [PyTorch, DistributedDataParallel](https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html) ·
# [NVIDIA, nccl-tests PERFORMANCE.md](https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md) ·
# [Gloo, allreduce.cc](https://github.com/pytorch/gloo/blob/main/gloo/allreduce.cc) ·
# R. Graham et al., *Scalable Hierarchical Aggregation Protocol (SHArP)*, COMHPC 2016

# %% name="what_you_knew"
predictions()

# %% name="stop_world"
world.stop()

# %% name="done"
from allranks import done

done("04")
