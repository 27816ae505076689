# %% [markdown] name="title"
# # Reduce
#
# {{here}}
#
# **1024 ranks train; one of them writes the log. Every step it needs the mean loss over all tokens and the slowest rank's step time. How does it get
# them, what does that cost, and what do the tensors of the other 1023 ranks hold afterwards?**
#
# {{picture}}
#
# *Above:* each rank has numbers of its own. *Below:* rank 0 has their sum; stripes say whose numbers are in it. The other boxes are empty:
# what do they hold?

# %% name="start_world"
import time

import torch
import torch.distributed as dist

from allranks import Player, World, bench, check, cost, predict, predictions, schedules

world = World()
world

# %% [markdown] name="guess_intro"
# Say that a message takes 5 µs, whatever its size. Section 4 has the answer to this question:

# %% name="question"
first_guess = predict(
    "After how many µs is the sum of 1024 ranks' numbers on one rank, at best?",
    low=1,
    high=10000,
    unit="µs",
    log=True,
    title="µs until the sum is on one rank",
)
first_guess

# %% [markdown] name="promise"
# ## 1. What it promises
#
# `dist.reduce(tensor, dst)` adds the tensors of all ranks and puts the sum into the tensor of rank `dst`, in place. `dst` is also called the root.
# All ranks must call it, also those that get nothing.
#
# Rank $r$ contributes $r+1$; the root is rank 0, and gets the sum.

# %% name="guess_others"
guess_others = predict(
    "Rank 0 gets the sum. What do the other ranks hold after `reduce`?",
    choices=["what they had before", "the sum too", "0", "something else"],
    title="After `reduce` the others hold",
)
guess_others

# %% name="others"
# %%ranks
x = torch.tensor([rank + 1.0])
dist.reduce(x, dst=0)
print(x.item())

# %% name="reveal_others" jupyter={"source_hidden": true}
# the answer: run this cell
guess_others.reveal(
    "what they had before" if world["x"][-1].item() == world.ranks and world["x"][1].item() == 2 else "something else",
    why="Their tensors are undefined after the call: Gloo uses them for partial sums. (With two ranks it happens to leave them, and so does NCCL.)",
)

# %% [markdown] name="others_explained"
# With Gloo on four ranks the others end with 9, 7 and 4: partial sums on their way to rank 0. (Of two ranks the
# second keeps its 2.) Gloo uses your tensor for intermediate results. NCCL's ring doesn't (2.30.7, `src/device/reduce.h`): there the others hold what
# they had. With eight numbers instead of one, the other ranks of Gloo hold a mixture:

# %% name="patchwork"
# %%ranks
x = torch.full((8,), rank + 1.0)
dist.reduce(x, dst=0)
print([int(value) for value in x])

# %% [markdown] name="patchwork_explained"
# Another backend, size or version leaves other numbers. They are **undefined**, and torch's documentation promises nothing about them.
#
# ### All ranks look at the mean
#
# Each rank stops training when the mean loss falls below 1.2. Rank $r$'s loss is $r+1$, so the mean is at least 1.5 and no rank should stop.

# %% name="guess_stop"
guess_stop = predict(
    "Every rank looks at its own tensor and stops if the mean there is below 1.2. "
    "What happens at the barrier of the next step?",
    choices=["all go on", "all stop", "some stop, and the others wait for them"],
    title="Every rank looks at its own mean: at the next step",
)
guess_stop

# %% tags=["raises-exception"] name="early_stop"
# %%ranks --deadline 3
loss = torch.tensor([rank + 1.0])
dist.reduce(loss, dst=0)
mean = loss.item() / world_size
print(f"mean here: {mean:.2f}")
if mean >= 1.2:
    dist.barrier()  # the next step

# %% name="reveal_stop" jupyter={"source_hidden": true}
# the answer: run this cell
guess_stop.reveal(
    "some stop, and the others wait for them",
    why="Only the root has the mean; the others divide an undefined number, and some of them stop.",
)

# %% [markdown] name="early_stop_explained"
# With Gloo the last rank used its undefined number and stopped. With NCCL every rank except 0 divides its own loss by $p$ and
# stops. The network was
# fine. **If all ranks decide, all ranks must know the result**: use `all_reduce`, or let the root decide and broadcast the decision. (The waiting
# ranks could not be freed; the world has started new ones.)

# %% [markdown] name="metrics"
# ## 2. Which mean?
#
# Batches differ. Rank $r$ has $r+1$ samples and its loss is the mean over them. Which line below is the mean over all samples: the
# mean of the ranks' means, or the sum of losses divided by the number of samples?

# %% name="mean"
# %%ranks
torch.manual_seed(rank)
losses = torch.rand(rank + 1) + rank  # one number per sample; later ranks have more samples and more loss

means = losses.mean()
dist.reduce(means, dst=0)

sums = torch.stack([losses.sum(), torch.tensor(float(losses.numel()))])
dist.reduce(sums, dst=0)
if rank == 0:
    print(f"mean of means  {means.item() / world_size:.4f}")
    print(f"sum over count {(sums[0] / sums[1]).item():.4f}")

# %% name="reveal_mean"
everything = torch.cat(world["losses"])
print(f"all {everything.numel()} samples in one place: {everything.mean():.4f}")

# %% [markdown] name="mean_explained"
# Send what can be added: sums and counts, side by side in one tensor, so that it costs one call. Sums add, and so do counts, histograms and the
# entries of a confusion matrix. A median does not, nor does an area under a curve; for them the data must be gathered.
#
# Some questions need another operation than a sum. Which one answers "how long did the slowest rank take?"

# %% name="slowest"
# %%ranks
step_s = torch.tensor([0.100 + 0.03 * (rank == world_size - 1)])
for op in ("SUM", "AVG", "MAX", "MIN"):
    value = step_s.clone()
    dist.reduce(value, dst=0, op=getattr(dist.ReduceOp, op))
    if rank == 0:
        print(f"{op:4} {value.item():.4f} s")

# %% [markdown] name="slowest_explained"
# `MAX`: a synchronous step is as slow as its slowest rank. Note the `clone`: without it the second call would use the undefined numbers that the first call left.

# %% [markdown] name="tree"
# ## 3. A tree
#
# If all ranks send to the root, it receives $p-1$ messages one after the other. But pairs can add at the same time, then pairs of pairs: a **binomial
# tree**.

# %% name="guess_steps"
guess_steps = predict(
    "Pairs add, then pairs of pairs. How many steps for 6 ranks?",
    low=0,
    high=12,
    title="Steps of the tree for 6 ranks",
)
guess_steps

# %% name="watch"
Player(schedules.flat_reduce(ranks=8), schedules.binomial_reduce(ranks=8))

# %% name="reveal_steps" jupyter={"source_hidden": true}
# the answer: run this cell
eight, six = schedules.binomial_reduce(ranks=8), schedules.binomial_reduce(ranks=6)
print(f"8 ranks: {eight.steps} steps, 6 ranks: {six.steps}")
guess_steps.reveal(
    six.steps,
    why="A step can halve the ranks that still hold something, rounded up: 6, 3, 2, 1.",
)

# %% [markdown] name="tree_explained"
# $\lceil\lg p\rceil$ steps, where $\lg$ is the logarithm to base 2. Every rank except the root sends exactly once, after it has added everything that
# it receives. The tree is that of a broadcast, with all messages in the opposite direction.
#
# **Write it for any root.** The code below is right for `dst = 0`: in each round the upper half of the remaining ranks sends to the lower half. Run
# it, read the verdict, and fix it. The idea: call the root "place 0", and count places from there.


# %% name="tree_reduce"
def tree_reduce(tensor, dst):
    rank, p = dist.get_rank(), dist.get_world_size()
    whole = tensor.clone(memory_format=torch.contiguous_format)
    arriving = torch.empty_like(whole)
    place = rank  # your turn: how far is this rank from dst?

    for bit in reversed(range((p - 1).bit_length())):
        distance = 1 << bit
        if distance <= place < 2 * distance:
            dist.send(whole, place - distance)  # your turn: which rank is at that place?
        elif place < distance and place + distance < p:
            dist.recv(arriving, place + distance)  # your turn
            whole += arriving

    if rank == dst:
        tensor.copy_(whole)


check(tree_reduce)

# %% [markdown] name="tree_answer"
# <details><summary><b>A hint</b></summary>
#
# The place of rank `r` is `(r - dst) % p`, and the rank at place `i` is `(i + dst) % p`.
# </details>
# <details><summary><b>An answer</b></summary>
#
# ```python
#     place = (rank - dst) % p
#             dist.send(whole, (place - distance + dst) % p)
#             dist.recv(arriving, (place + distance + dst) % p)
# ```
# </details>
#
# Your function works on a copy, so the other ranks' tensors stay as they were. `dist.reduce` does not promise this, and it costs memory. The copy is
# [contiguous](11_scatter_and_gather.ipynb), as messages must be.

# %% [markdown] name="price"
# ## 4. What it costs
#
# With $\alpha$ seconds per message, $\beta$ per byte sent and $\gamma$ per byte added, and $n$ bytes in each tensor:
#
# $$T_\text{flat} = (p-1)(\alpha + n\beta + n\gamma) \qquad T_\text{tree} = \lceil\lg p\rceil\,(\alpha + n\beta + n\gamma)$$
#
# In each step the tree sends the whole tensor. For long tensors it is better to cut it: a reduce-scatter, after which each rank has $\tfrac1p$ of the sum, and a
# gather to the root, $2\lg p\,\alpha + 2\tfrac{p-1}{p}n\beta + \tfrac{p-1}{p}n\gamma$ (Rabenseifner, for powers of two). Or use the pipelined chain
# of [Broadcast](10_broadcast.ipynb) in the opposite direction: for long tensors it takes about $n\beta$, half as long. NCCL does this, and calls it a
# ring.

# %% name="answer"
alpha, beta = 5e-6, 1 / 200e9  # 5 µs and 200 GB/s are assumed
p = 1024
for name in ("flat_reduce", "binomial_reduce", "rabenseifner_reduce"):
    schedule = schedules.ALGORITHMS[name](p)
    times = [schedule.price(n, alpha, beta) for n in (8, 10**9)]
    print(f"{name:20} 8 bytes: {1e6 * times[0]:7.1f} µs     1 GB: {1e3 * times[1]:7.1f} ms")

# %% name="reveal_answer" jupyter={"source_hidden": true}
# the answer: run this cell
first_guess.reveal(
    1e6 * schedules.binomial_reduce(p).price(8, alpha, beta),
    why="Pairs add at the same time, so ten steps are enough for 1024 ranks.",
)

# %% [markdown] name="compare_guess"
# An all-reduce gives the sum to *all ranks*. How much longer does that take?

# %% name="guess_compare"
guess_compare = predict(
    "How long does an all-reduce of 8 bytes take, compared with a reduce, with the best algorithm for each?",
    choices=["twice as long", "a little longer", "just as long"],
    title="An all-reduce takes, compared with a reduce",
)
guess_compare

# %% name="compare"
reduce, everybody = schedules.binomial_reduce(1024), schedules.recursive_doubling_all_reduce(1024)
for schedule in (reduce, everybody):
    microseconds = 1e6 * schedule.price(8, alpha, beta)
    print(f"{schedule.collective:11} {microseconds:5.1f} µs, {len(schedule.moves):6} messages in all")

# %% name="reveal_compare" jupyter={"source_hidden": true}
# the answer: run this cell
guess_compare.reveal(
    "just as long",
    why="In recursive doubling both ranks of a pair send at the same time, so both have the sum at once and nothing must be sent back.",
)

# %% [markdown] name="compare_explained"
# In the tree one rank of each pair sends and is then done; in *recursive doubling* ([All-reduce
# algorithms](17_all_reduce_algorithms.ipynb)) both send, at the same time. That is why many training loops simply call `all_reduce` for a metric. A
# reduce sends fewer messages, which matters if links are shared.
#
# NCCL has neither of the two. Its reduce is always a chain of all ranks (its ring; [nccl#971](https://github.com/NVIDIA/nccl/issues/971)); for an all-reduce of a few bytes on many nodes it takes a tree. So the 8 bytes pass
# 1023 hops one after the other. Here are 128 machines of 8 GPUs with the constants of NCCL's tuner: 6.6 µs to start, 0.6 µs a hop over NVLink, 2.7 µs over the network.

# %% name="with_nccl"
between = 128 - 1
chain_us = 6.6 + (1023 - between) * 0.6 + between * 2.7
tree_us = cost.nccl_choice("all_reduce", 8, "dgx-h100", nodes=128).us
print(f"NCCL's reduce {chain_us:.0f} µs, its all-reduce {tree_us:.0f} µs")

# %% [markdown] name="with_nccl_explained"
# (Estimates, not measurements.) **With NCCL on many GPUs, all-reduce a few bytes, even if only one rank needs the sum.**
#
# ### Which ranks wait
#
# Rank 0 is half a second late.

# %% name="guess_wait"
guess_wait = predict(
    "Rank 0 is half a second late. Which ranks wait for it, in a reduce to rank 0 and in an all-reduce?",
    choices=[
        "all wait in both",
        "all in the all-reduce, not all in the reduce",
        "nobody waits in the reduce",
    ],
    title="Rank 0 is late: who waits",
)
guess_wait


# %% name="waiting"
def waited_s(collective):
    x = torch.ones(1)
    dist.all_reduce(x)
    x.item()  # now all ranks are here; on a GPU a call returns early, and reading the number waits for it
    if dist.get_rank() == 0:
        time.sleep(0.5)
    start = time.perf_counter()
    collective(x)
    x.item()
    return time.perf_counter() - start


waited = {}
for name, collective in {"reduce": lambda x: dist.reduce(x, dst=0), "all_reduce": dist.all_reduce}.items():
    waited[name] = world.run(waited_s, collective)
    print(f"{name:11}", [f"{seconds:.2f} s" for seconds in waited[name]])

# %% name="reveal_wait" jupyter={"source_hidden": true}
# the answer: run this cell
guess_wait.reveal(
    "all in the all-reduce, not all in the reduce"
    if max(waited["reduce"][1:]) > 0.25
    else "nobody waits in the reduce",
    why="A rank waits only for what it needs, and in a reduce most ranks need nothing from rank 0. (With two ranks the other one sends to the root itself, and Gloo lets it wait.)",
)

# %% [markdown] name="waiting_explained"
# In an all-reduce no rank can have the sum before the last rank calls it, so all ranks wait for all. In a reduce a rank may continue when its part
# has been sent; with Gloo and a short tensor this holds for all ranks except the one that sends to the root. (By its source NCCL writes a short tensor into a buffer of the receiver, so
# there nobody needs to wait for the root; not run here.) This is not promised: **a collective is
# not a barrier, unless its result needs all ranks.**

# %% [markdown] name="measure"
# ### Measured here
#
# A reduce and an all-reduce on your ranks. `bench.seconds_of` gives the median of nine times. The model uses a binomial tree for the reduce and a ring for the all-reduce; $\alpha$ comes from the shortest reduce and $\beta$ from the
# longest. Which is slower at 8 MiB?


# %% name="timing"
def timing(collective, nbytes):
    tensor = torch.zeros(nbytes // 4)
    return bench.seconds_of(lambda: collective(tensor), iterations=9)[0]


# %% name="measured"
sizes = [2**10, 2**15, 2**20, 2**23]
calls = {"reduce": lambda x: dist.reduce(x, dst=0), "all_reduce": dist.all_reduce}
seconds = {name: [world.run(timing, call, n)[0] for n in sizes] for name, call in calls.items()}
tree, ring = schedules.binomial_reduce(world.ranks), schedules.ring_all_reduce(world.ranks)
alpha = seconds["reduce"][0] / tree.steps
beta = max(seconds["reduce"][-1] / tree.steps - alpha, 1e-15) / sizes[-1]
print(f"{'KiB':>6}{'reduce ms':>12}{'tree model':>12}{'all_reduce ms':>15}{'ring model':>12}")
for i, n in enumerate(sizes):
    model = [1e3 * schedule.price(n, alpha, beta) for schedule in (tree, ring)]
    measured = [1e3 * seconds[name][i] for name in calls]
    print(f"{n // 1024:6}{measured[0]:12.3f}{model[0]:12.3f}{measured[1]:15.3f}{model[1]:12.3f}")

# %% [markdown] name="measure_explained"
# If the all-reduce is slower than the model of a ring, the ranks may share something: all your ranks may use one memory, and an all-reduce moves
# twice as many bytes through it in all. And your backend may use other algorithms than the model: in section 1 the ranks of Gloo held mixed pieces, so it
# cuts the tensor, while a tree would send it whole. If a short all-reduce is faster than the model, a part of our $\alpha$ is paid once a call and not in each step. For a reduce NCCL has only the ring (2.30.7, `tuning.cc`).

# %% [markdown] name="where"
# ## 5. Find it in torch
#
# **Your task.** Open `torch/distributed/nn/functional.py` (`python -c "import torch; print(torch.__path__[0])"` says in which folder torch is) and look for `_Reduce`. This reduce can be differentiated. Which collective is its backward pass?
#
# <details><summary><b>Answer</b></summary>
#
# A broadcast from the same rank: the root's gradient goes to every rank that contributed.
# </details>
#
# You also meet it here:
#
# - **Metrics and logs**: sums and counts to rank 0, once in a number of steps.
# - **Not gradients**: every rank updates its parameters, so every rank needs the sum (an all-reduce) or its own part of the sum (a reduce-scatter).
# - **Parameter servers**: workers reduce their gradients to the server, which broadcasts its weights: together an all-reduce through one machine.
# - **Reduce-scatter**: it is $p$ reduces, one for each chunk, each with another root.
#
# In a sub-group, `dst` is a rank of the whole world, and `group_dst` one of the group, as in [Broadcast](10_broadcast.ipynb).

# %% [markdown] name="quiz"
# ## 6. Check yourself
#
# <details><summary>1. Only rank 0 needs the loss, so only rank 0 calls <code>reduce</code>. What happens?</summary>
#
# It waits until its deadline. All ranks of the group must call a collective.
# </details>
#
# <details><summary>2. <code>dist.reduce(loss, 0)</code> where <code>loss</code> is the tensor on which <code>backward</code> was called. Is this harmless?</summary>
#
# No: the call overwrites the number on every rank, on most ranks with an undefined one. Reduce a copy: <code>loss.detach().clone()</code>.
# </details>
#
# <details><summary>3. How would you find out on which rank the loss was NaN?</summary>
#
# A sum tells only that there is a NaN. Gather one flag from each rank, or all-gather it if all ranks must react.
# </details>

# %% [markdown] name="recap"
# ## Recap
#
# A reduce puts the sum on one rank and leaves undefined numbers on all others. A tree does it in $\lceil\lg p\rceil$ steps; each rank except the root
# sends once. For a few bytes an all-reduce takes as long, and with NCCL on many GPUs a tenth of the time. **After a reduce only the root has the sum; what the others hold is not defined.**
#
# **Now you:** [Lab 2](../../labs/lab02_rooted/rooted.ipynb) asks for this tree and for that of the broadcast.
#
# **Next question:** one rank has the sum. What if nothing is added, and every rank needs what all have? [All-gather](13_all_gather.ipynb). The core goes on with
# [Reduce-scatter](14_reduce_scatter.ipynb).
#
# **Sources.** [PyTorch, torch.distributed](https://docs.pytorch.org/docs/stable/distributed.html) ·
# R. Thakur, R. Rabenseifner, W. Gropp, *Optimization of collective communication operations in MPICH*, Int. J. High Perform. Comput. Appl. 19(1), 2005 ·
# R. Rabenseifner, *Optimization of Collective Reduction Operations*, ICCS 2004 ·
# [NCCL, tuning.cc](https://github.com/NVIDIA/nccl/blob/master/src/graph/tuning.cc)

# %% name="what_you_knew"
predictions()

# %% name="stop_world"
world.stop()

# %% name="done"
from allranks import done

done("12")
