# %% [markdown] name="title"
# # Broadcast
#
# {{here}}
#
# **One of 1024 ranks has loaded a model of 7 billion parameters, 14 GB. All other ranks need it. Must it be sent 1023 times, and how long does that take?**
#
# {{picture}}
#
# *Above:* what each rank has before. *Below:* what it has afterwards. Each place is a rank, and the colour says whose numbers it has. The picture does not show
# who sends to whom; this chapter does.

# %% name="start_world"
import math

import torch
import torch.distributed as dist

from allranks import Player, World, bench, check, plots, predict, predictions, schedules
from allranks.wire import run


world = World()
world

# %% [markdown] name="guess_intro"
# Each rank has one link with 50 GB/s. To send the model over one link takes 0.28 seconds. Section 6 has the answer to the question above.

# %% name="first_guess"
first_guess = predict(
    "After how many seconds does the last of 1024 ranks have the 14 GB?",
    low=0.1,
    high=1000,
    unit="s",
    log=True,
    title="Seconds until the last of 1024 ranks has it",
)
first_guess

# %% [markdown] name="why"
# ## 1. Equal at the start
#
# Data parallelism averages *gradients*. So models that are equal at the start stay equal, but something must make them equal first. Here every rank
# builds a small model with a batch norm, each from its own random seed.
#
# Then rank 0 broadcasts its parameters.

# %% name="guess_equal"
guess_equal = predict(
    "Rank 0 broadcasts its parameters to all. Are the models the same afterwards?",
    choices=["yes", "no, the parameters differ", "no, something else differs"],
    title="Equal after a broadcast of the parameters?",
)
guess_equal

# %% name="parameters_only"
# %%ranks
torch.manual_seed(rank)
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
model(torch.randn(8, 4))  # one forward pass: the batch norm updates its running mean

for parameter in model.parameters():
    dist.broadcast(parameter.data, src=0)

weights = sum(p.sum().item() for p in model.parameters())
output = model.eval()(torch.ones(1, 4)).sum().item()
print(f"weights {weights:+.4f}\noutput  {output:+.4f}")

# %% name="reveal_equal" jupyter={"source_hidden": true}
# the answer: run this cell
guess_equal.reveal(
    "no, something else differs",
    why="The running mean of a batch norm is a buffer and not a parameter, so no broadcast of parameters carries it.",
)

# %% [markdown] name="equal_explained"
# The whole state must be equal:

# %% name="whole_state"
# %%ranks
for tensor in model.state_dict().values():
    dist.broadcast(tensor, src=0)
print(f"output {model(torch.ones(1, 4)).sum().item():+.4f}")

# %% [markdown] name="whole_state_explained"
# `DistributedDataParallel` does this when you wrap a model: it broadcasts the state of rank 0. (So equal weights don't need equal seeds.) It also
# broadcasts buffers again before each forward pass, unless you turn that off.
#
# ## 2. What it promises
#
# After `dist.broadcast(tensor, src)` every rank of the group holds the bytes that rank `src`, the **root**, had, **in place**. All ranks call it with
# the same `src` and with a tensor of the same shape and dtype. For Python objects there is `broadcast_object_list`, which pickles them.
#
# In a sub-group the root is easy to get wrong. In a group of all ranks except the first, which rank is `src=1`, and which is `group_src=0`?

# %% name="in_a_group"
# %%ranks
group = dist.new_group(list(range(1, world_size)))
if rank > 0:
    x, y = torch.tensor([rank]), torch.tensor([rank])
    dist.broadcast(x, src=1, group=group)
    dist.broadcast(y, group_src=0, group=group)
    print(x.item(), y.item())

# %% [markdown] name="group_explained"
# They are the same: `src` is the rank in the world, `group_src` the rank in the group. Code with `src=0` works until somebody uses it in a group without rank 0.
#
# ### Two mistakes
#
# Rank 0 broadcasts 4 numbers, the others expect 6. NCCL leaves such calls undefined: they may hang, crash or deliver wrong data. So the next cells use
# a second group with Gloo and CPU tensors, as in [Point to point](../1_first_hours/03_point_to_point.ipynb).

# %% name="guess_wrong"
guess_wrong = predict(
    "Rank 0 broadcasts 4 numbers, and the others expect 6. What happens with Gloo?",
    choices=["an error on every rank", "they wait for ever", "a result, and it is wrong"],
    title="4 numbers where 6 are expected",
)
guess_wrong

# %% tags=["raises-exception"] name="short"
# %%ranks --deadline 5
gloo = dist.new_group(backend="gloo")
x = torch.full((4 if rank == 0 else 6,), float(rank), device="cpu")
dist.broadcast(x, src=0, group=gloo)
print(x.tolist())

# %% name="reveal_wrong" jupyter={"source_hidden": true}
# the answer: run this cell
guess_wrong.reveal(
    "a result, and it is wrong",
    why="A message carries only bytes, and nobody compares the sizes: the first four numbers arrive, and the rest stays as it was (torch 2.13).",
)

# %% [markdown] name="short_explained"
# The last two numbers are what the rank
# had before. But with four ranks or more, look at rank 3: its last two numbers are those of *rank 1*. Rank 3 got its copy from rank 1; section 4
# explains why. And what happens if every rank says that it is the root?


# %% name="roots"
def everyone_is_root(group=None):
    dist.broadcast(torch.zeros(1, device="cpu"), src=dist.get_rank(), group=group)


# %% tags=["raises-exception"] name="roots_live"
world.run(lambda: everyone_is_root(dist.new_group(backend="gloo")), deadline=3)
world.reset()  # runs only if there was no error: then unread data may be left in the connections

# %% name="roots_wire"
run(everyone_is_root, ranks=4).failure

# %% [markdown] name="roots_explained"
# Every rank sends and none receives. Each live rank knows only its own call; the wire saw all the calls and compares them. (On NCCL this too is
# undefined: each rank's data may even arrive somewhere.)

# %% [markdown] name="flat"
# ## 3. Flat
#
# How would you do it with `send` and `recv`? The root sends to one after the other:


# %% name="flat_broadcast"
def flat_broadcast(tensor, src):
    rank, p = dist.get_rank(), dist.get_world_size()
    whole = tensor.contiguous()  # a copy only where the tensor is a view with gaps
    if rank != src:
        dist.recv(whole, src)
        tensor.copy_(whole)
        return
    for other in range(p):
        if other != src:
            dist.send(whole, other)


# %% name="flat_live"
def try_it(broadcast, *arguments):
    tensor = torch.full((8,), float(dist.get_rank()))
    broadcast(tensor, 1, *arguments)
    return tensor[-1].item()


world.run(try_it, flat_broadcast)

# %% [markdown] name="flat_cost"
# A message of $n$ bytes takes $\alpha + n\beta$ ([why communication decides](../1_first_hours/02_why_communication.ipynb)), and the root can send only one at a time.
# So it takes $(p-1)(\alpha + n\beta)$, and while the root sends, $p-2$ ranks do nothing. Some of them could help: after the first message one of them
# has the tensor too.

# %% name="guess_rounds"
eight = predict(
    "Every rank that has the tensor sends it to another one. After how many rounds do 8 ranks have it?",
    low=0,
    high=16,
    title="Rounds for 8 ranks",
)
thousand = predict("And 1024 ranks?", low=1, high=1024, log=True, title="Rounds for 1024 ranks")
display(eight, thousand)

# %% [markdown] name="tree"
# ## 4. Tree
#
# Play both on one clock. Which ranks send in the last round?

# %% name="watch_tree"
Player(schedules.flat_broadcast(8), schedules.binomial_broadcast(8))

# %% name="reveal_rounds" jupyter={"source_hidden": true}
# the answer: run this cell
for p in (8, 1024):
    tree, flat = schedules.binomial_broadcast(p), schedules.flat_broadcast(p)
    print(f"{p:5} ranks: the tree takes {tree.steps} rounds, flat takes {flat.steps}")
display(
    eight.reveal(
        3,
        why="In each round every rank that has the tensor sends it: 1, 2, 4, 8 ranks have it.",
    ),
    thousand.reveal(
        10,
        why="The number of ranks that have it doubles in each round, and ten doublings make 1024.",
        within=0,
    ),
)

# %% [markdown] name="tree_explained"
# In each round the number of ranks that have it doubles. So $\lceil \lg p \rceil$ rounds are enough ($\lg$ is the logarithm to base 2).
# Fewer are impossible, because in each round a rank can send to at most one other rank. In all
#
# $$T_\text{tree} = \lceil \lg p \rceil\,(\alpha + n\beta).$$
#
# The drawing is called a binomial tree, and a round is what its schedule calls a *step*. Each rank but the root receives once; the root sends $\lceil\lg p\rceil$ times.
#
# ### Your turn
#
# The function below is called tree but is flat. **Make it a tree.** Number the ranks from the root, `me = (rank - src) % p`. In the round in which `have` ranks have the tensor, which rank sends to which?


# %% name="tree_broadcast"
def tree_broadcast(tensor, src):
    rank, p = dist.get_rank(), dist.get_world_size()
    whole = tensor.contiguous()  # a copy only where the tensor is a view with gaps
    if rank != src:
        dist.recv(whole, src)
        tensor.copy_(whole)
        return
    for other in range(p):
        if other != src:
            dist.send(whole, other)


check(tree_broadcast)

# %% [markdown] name="tree_answer"
# <details><summary><b>A hint</b></summary>
#
# With `have` ranks that have it, those with `me < have` send to `me + have`, if there is such a rank. Those with `have <= me < 2 * have` receive. Then `have` doubles.
# </details>
# <details><summary><b>An answer</b></summary>
#
# ```python
# def tree_broadcast(tensor, src):
#     rank, p = dist.get_rank(), dist.get_world_size()
#     me, have = (rank - src) % p, 1
#     whole = tensor.contiguous()  # a copy only where the tensor is a view with gaps
#     while have < p:
#         if me < have and me + have < p:
#             dist.send(whole, (rank + have) % p)
#         elif have <= me < 2 * have:
#             dist.recv(whole, (rank - have) % p)
#         have *= 2
#     tensor.copy_(whole)
# ```
# </details>

# %% [markdown] name="chain"
# ## 5. A pipeline
#
# In the tree the whole tensor is sent $\lceil\lg p\rceil$ times one after the other: 10 times for 1024 ranks. For a long tensor this is slow, because each rank needs only $n$ bytes.
#
# The opposite of a tree is a **chain**: every rank sends the tensor to the next rank. With the whole tensor this is as slow as flat. But if the
# tensor is cut into $k$ **segments**, a rank can send the first segment on while the second arrives. Compare one segment with six:

# %% name="watch_chain"
Player(
    schedules.pipelined_chain_broadcast(4, segments=1),
    schedules.pipelined_chain_broadcast(4, segments=6),
    nbytes=12_000,
    titles=("1 segment", "6 segments"),
)

# %% [markdown] name="chain_predict"
# On the right a step moves a sixth of the bytes. **Predict**: how many steps are there for $p$ ranks and $k$ segments? Write the formula; the cell compares it with the schedule.


# %% name="chain_formula"
def chain_steps(p, k):
    return 0  # your formula


for p, k in ((4, 1), (4, 6), (8, 6), (8, 100)):
    counted = schedules.pipelined_chain_broadcast(p, segments=k).steps
    print(f"p = {p}, k = {k:3}:  yours {chain_steps(p, k):4}   counted {counted:4}")

# %% [markdown] name="chain_answer"
# <details><summary><b>The derivation</b></summary>
#
# The first segment reaches the last of $p$ ranks after $p-1$ steps. Then in each step one more segment arrives there, and $k-1$ are still missing: $p - 1 + k - 1$. In code: `p + k - 2`.
# </details>
#
# Each step takes $\alpha + \frac{n}{k}\beta$, so
#
# $$T_\text{chain} = (p+k-2)\left(\alpha + \frac{n}{k}\,\beta\right).$$
#
# With few segments each step is long; with many segments there are many steps. Here is the code, with all its messages:


# %% name="chain_broadcast"
def chain_broadcast(tensor, src, segments):
    rank, p = dist.get_rank(), dist.get_world_size()
    me, sending = (rank - src) % p, []
    for segment in tensor.tensor_split(segments):
        if me > 0:
            dist.recv(segment, (rank - 1) % p)
        if me < p - 1:
            sending.append(dist.isend(segment, (rank + 1) % p))
    for work in sending:
        work.wait()


world.run(try_it, chain_broadcast, 3)

# %% [markdown] name="best_k"
# The wire has a virtual clock: it times your messages by $\alpha$ and $\beta$ that we choose. So we can test the formula with the real program on 8
# ranks, even if this machine has fewer cores. A message costs 1 and each number of the tensor 0.01; we send 3200 numbers, which cost 32 together.

# %% name="guess_k"
guess_k = predict(
    "8 ranks, a message costs 1, the whole tensor 32. How many segments are fastest?",
    choices=["1", "4", "16", "64", "256"],
    title="The fastest number of segments",
)
guess_k

# %% name="virtual"
p, numbers, alpha, beta = 8, 3200, 1.0, 0.01 / 4  # 4 bytes a number
segments = (1, 4, 16, 64, 256)
timed = []
for k in segments:
    inputs = [(torch.zeros(numbers), 0, k)] * p
    timed.append(float(run(chain_broadcast, ranks=p, per_rank=inputs, alpha=alpha, beta=beta).seconds))
best = math.sqrt((p - 2) * 4 * numbers * beta / alpha)
print(f"the formula's best is k = {best:.1f}\n")
print(f"{'k':>4}{'your messages':>15}{'formula':>9}")
for k, t in zip(segments, timed, strict=True):
    print(f"{k:4}{t:15.1f}{(p + k - 2) * (alpha + 4 * numbers / k * beta):9.1f}")

# %% name="reveal_k" jupyter={"source_hidden": true}
# the answer: run this cell
guess_k.reveal(
    str(segments[timed.index(min(timed))]),
    why="With few segments the ranks wait for long messages; with many, the latencies take longer than the bytes.",
)

# %% [markdown] name="best_k_explained"
# They agree. The best number of segments is where the derivative is zero:
#
# $$k^* = \sqrt{(p-2)\,\frac{n\beta}{\alpha}}, \qquad T = \left(\sqrt{(p-2)\,\alpha} + \sqrt{n\beta}\right)^2.$$
#
# For a long tensor the second term is much larger than the first, and $T$ approaches $n\beta$: the time to send the tensor *once*, for any number of
# ranks. Less is impossible, because each rank must receive $n$ bytes.

# %% [markdown] name="cost"
# ## 6. The question
#
# There is one more algorithm, for tensors of medium size: **scatter, then all-gather** (van de Geijn). The root scatters $p$ pieces by a tree, then a ring all-gathers them:
# $(\lceil\lg p\rceil + p - 1)\,\alpha + 2\frac{p-1}{p}n\beta$.
#
# Which is the fastest on 1024 ranks for 1 KB, 10 MB and 14 GB, with 5 µs for each message and 50 GB/s?

# %% name="names"
names = ("flat", "tree", "scatter, all-gather", "chain, best k")


# %% name="competition"
def prices(p, n, alpha=5e-6, beta=1 / 50e9):
    lg = math.ceil(math.log2(p))
    k = max(1, round(math.sqrt((p - 2) * n * beta / alpha)))
    return (
        (p - 1) * (alpha + n * beta),
        lg * (alpha + n * beta),
        (lg + p - 1) * alpha + 2 * n * (p - 1) / p * beta,
        (p + k - 2) * (alpha + n / k * beta),
    )


rows = [prices(1024, n) for n in (10**3, 10**7, 14 * 10**9)]
print(f"{'1024 ranks':21}{'1 KB':>14}{'10 MB':>14}{'14 GB':>14}")
for name, *times in zip(names, *rows, strict=True):
    print(f"{name:21}" + "".join(f"{1e3 * t:11.2f} ms" for t in times))
print(f"\nthe lower bound is {14e9 / 50e9:.2f} s")

# %% name="reveal_first" jupyter={"source_hidden": true}
# the answer: run this cell
first_guess.reveal(
    rows[2][3],
    why="A rank can send a segment on while the next one arrives: all links work at once, and the last rank has it after little more than the time of one copy.",
    marks={"one copy": 0.28},
)

# %% [markdown] name="competition_explained"
# Flat takes minutes, the tree seconds, and the pipeline 29 % longer than sending one copy. So the answer to the opening question is: yes, the
# model is sent 1023 times, because each rank must receive it; but different ranks send it, at the same time.
#
# For 10 MB the tree is still the fastest: with 1024 ranks the ring's latencies alone are 5 ms. Scatter and all-gather is the fastest from about 32 MB to 1 GB. The
# list below the figure says so, for 64 ranks too.
#
# A formula can be wrong. The package has the same algorithms as lists of messages, which it adds up step by step:

# %% name="compare_prices"
p, n, alpha, beta = 8, 9_600_000, 5e-6, 1 / 50e9
k = round(math.sqrt((p - 2) * n * beta / alpha))
chain = schedules.pipelined_chain_broadcast(p, segments=k)
makers = (schedules.flat_broadcast, schedules.binomial_broadcast, schedules.scatter_allgather_broadcast)
lists = [*(make(p) for make in makers), chain]
for name, schedule, t in zip(names, lists, prices(p, n), strict=True):
    counted = f"{len(schedule.moves):3} messages in {schedule.steps:2} steps"
    print(f"{name:21}{counted}: {1e6 * schedule.price(n, alpha, beta):7.1f} µs, formula {1e6 * t:7.1f} µs")

# %% name="figure"
sizes = [10**3 * 2**j for j in range(24)]
figure, axes = plots.chart("bytes", "seconds (model, 64 ranks)")
for name, times in zip(names, zip(*(prices(64, n) for n in sizes), strict=True), strict=True):
    axes.loglog(sizes, times, label=name)
axes.fill_between(sizes, [n / 50e9 for n in sizes], color=plots.HAIR, label="no less: n beta")
axes.legend()
figure

# %% name="winners"
for p in (64, 1024):
    last = None
    for n in (10**3 * 1.1**j for j in range(175)):
        winner = min(zip(prices(p, n), names, strict=True))[1]
        if winner != last:
            print(f"{p:4} ranks, from {n / 1e6:9.3f} MB on: {winner}")
        last = winner

# %% [markdown] name="measure"
# ### Measured here
#
# Now with real messages: the next cell times three broadcasts of ours and the library's on your ranks, for 4 KB and for 16 MB. `bench.seconds_of` runs
# on every rank and gives the median of 20 times ([why the median](../1_first_hours/03_point_to_point.ipynb)).
# $\alpha$ and $\beta$ come from the two figures of *flat*, so these two agree by construction; the other figures test the model.
#
# Which of the four do you expect to be fastest for 16 MB?


# %% name="timed"
def timed_broadcast(broadcast, nbytes, *arguments):
    tensor = torch.zeros(nbytes // 4)
    return bench.seconds_of(lambda: broadcast(tensor, 0, *arguments), iterations=20)[0]


small, large = 4096, 16 * 2**20
contest = [(flat_broadcast,), (chain_broadcast, 1), (chain_broadcast, 16), (dist.broadcast,)]
live = [[world.run(timed_broadcast, f, n, *rest)[0] for n in (small, large)] for f, *rest in contest]

# %% name="live_table"
p = world.ranks
alpha = live[0][0] / (p - 1)
beta = (live[0][1] - live[0][0]) / (p - 1) / large
lg = math.ceil(math.log2(p))
steps = [(p - 1, 1), (p - 1, 1), (p + 14, 16), (lg, 1)]
print(f"{'ms':16}{'4 KB':>9}{'model':>9}{'16 MB':>9}{'model':>9}")
for name, row, (rounds, k) in zip(
    ("flat", "chain, k = 1", "chain, k = 16", "dist.broadcast"), live, steps, strict=True
):
    models = [rounds * (alpha + n / k * beta) for n in (small, large)]
    print(f"{name:16}" + "".join(f"{1e3 * t:9.3f}{1e3 * m:9.3f}" for t, m in zip(row, models, strict=True)))

# %% [markdown] name="live_explained"
# The model's last row is a tree, because Gloo uses a tree (`gloo/broadcast.cc`). NCCL uses a ring, which for a broadcast is the pipelined chain (`tuning.cc` has no other algorithm for it).
# So with NCCL even four bytes pass all ranks one after the other, and on many GPUs an all-reduce of a few bytes, which has a tree, is faster ([Reduce](12_reduce.ipynb) computes it).
#
# The pipeline may be slower than in the model. In the model every rank has its own link, and all links work at once. Processes on a few cores take
# turns, so work that should happen at the same time happens one after the other, and 16 segments wake processes 16 times. The *total* work is the
# same for all four; with too few cores the time depends on it. On GPUs each of our sends and receives starts a kernel of its own, which costs some µs.

# %% [markdown] name="where"
# ## 7. Find it in torch
#
# **Your task.** Open `torch/nn/parallel/distributed.py` (`python -c "import torch; print(torch.__path__[0])"` says in which folder torch is) and look for `_sync_module_states`. What does DDP broadcast when it is made, and from which rank?
#
# <details><summary><b>Answer</b></summary>
#
# The model's parameters and buffers, from rank 0 of its group (`src=0`). So all ranks begin with the same model, whatever each of them has initialised.
# </details>
#
# You also meet it here:
#
# - **DDP**: the model's state at the start, buffers at each forward pass.
# - **FSDP** ([sharded training](../3_one_model/22_sharded_training.ipynb)): one rank loads the checkpoint, the others get theirs from it (`sync_module_states=True` in FSDP1, `broadcast_from_rank0=True` of `StateDictOptions` for FSDP2).
# - **RL for language models**: after each update the trainer broadcasts its new weights to the machines that generate. [Scatter and gather](11_scatter_and_gather.ipynb) is about the opposite direction.
# - **Tensor parallelism**: all ranks of a group must read the same batch; one reads it and broadcasts.
# - **A stop signal**: one rank decides to end and tells the others. This is four bytes, so nearly all the time is $\alpha$. (With NCCL on many GPUs: an all-reduce with `MAX`.)

# %% [markdown] name="quiz"
# ## 8. Check yourself
#
# <details><summary>1. 64 ranks, a short tensor. How many rounds do flat, tree, and chain with one segment need?</summary>
#
# 63, 6 and 63.
# </details>
#
# <details><summary>2. A broadcast of 14 GB to 8 ranks takes 0.29 s on links of 50 GB/s. How much could a better algorithm gain?</summary>
#
# Almost nothing: no rank can receive 14 GB in less than 0.28 s.
# </details>
#
# <details><summary>3. Why broadcast a checkpoint at all? Every rank could read the file.</summary>
#
# If 1024 ranks each read 14 GB, the file system must deliver 14 TB. There is a third way: each rank reads a 1024th, and an all-gather puts the parts together.
# </details>

# %% [markdown] name="recap"
# ## Recap
#
# A broadcast gives every rank the root's bytes, in place; all ranks call it with the same root and shape, and the library does not check this. A tree
# needs the fewest rounds, $\lceil\lg p\rceil$, and is best for short
# tensors; a chain cut into segments comes close to $n\beta$ and is best for long ones. **Cut a long vector into segments: then a broadcast to many ranks takes hardly longer than sending to one.**
#
# **Now you:** [Lab 2](../../labs/lab02_rooted/rooted.ipynb) asks for the tree and for the pipeline.
#
# **Next question:** what if each rank needs only a *part* of what the root has? And how do the results come back?
# [Scatter and gather](11_scatter_and_gather.ipynb). The core goes on with [Reduce-scatter](14_reduce_scatter.ipynb).
#
# **Sources.** R. Thakur, R. Rabenseifner, W. Gropp, *Optimization of Collective Communication Operations in MPICH*, Int. J. High Performance Computing Applications 19(1), 2005 (costs) ·
# E. Chan et al., *Collective communication: theory, practice, and experience*, Concurrency and Computation 19(13), 2007 (lower bounds) ·
# M. Barnett et al., *Interprocessor Collective Communication Library (InterCom)*, SHPCC 1994 (van de Geijn's broadcast) ·
# [Gloo, broadcast.cc](https://github.com/pytorch/gloo/blob/main/gloo/broadcast.cc) · [NCCL, tuning.cc](https://github.com/NVIDIA/nccl/blob/master/src/graph/tuning.cc) ·
# [PyTorch, torch.distributed](https://docs.pytorch.org/docs/stable/distributed.html) ·
# [PyTorch, DistributedDataParallel](https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html)

# %% name="what_you_knew"
predictions()

# %% name="stop_world"
world.stop()

# %% name="done"
from allranks import done

done("10")
