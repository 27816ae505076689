# %% [markdown] name="title"
# # Data parallel, by hand
#
# {{here}}
#
# **Several processes train one model, each on its own share of every batch. After 50 steps all must hold the same weights, and these must be the
# weights of a single process that has all the data. What must they agree on, and when?**
#
# {{picture}}
#
# *Above:* each of four processes has its share of the batch. *Below:* what they must hold after every step: the same weights.

# %% name="first_picture"
from allranks import explore

explore.data_parallel(p=8, each=4, machine="dgx-h100")

# %% [markdown] name="first_question"
# **Ask the picture.** Each GPU gets twice as many sequences: does it send twice as much? And with twice as many GPUs? Over Ethernet, how many
# sequences must each of 64 GPUs have, so that they train at least 32 times as fast as one?

# %% [markdown] name="my_model_needs"
# One GPU would take 72 s for a step of **my model** with 1 million tokens. 64 GPUs can share the tokens; then a step takes 1.20 s, if all
# GPUs agree on one gradient. Until its state is sharded it does not fit: 134 GB for a GPU with 80 GB.

# %% name="start_world"
import torch
import torch.distributed as dist

from allranks import Player, World, bench, check, plots, predict, predictions, schedules

world = World()
world

# %% [markdown] name="equal"
# ## 1. Equal at the start
#
# Data parallelism keeps a full copy of the model on every rank, and the copies must always be equal. At the start they are different, unless
# something makes them equal. Here each rank builds its model with random weights, as most scripts do.

# %% name="build"
# %%ranks
torch.manual_seed(rank)  # as if the script set no seed
model = torch.nn.Linear(3, 1)
print(f"{model.weight[0, 0].item():+.4f}")

# %% [markdown] name="equal_guess"
# You could give all ranks the same seed. But if one rank draws a random number before it builds the model, or is the only one that loads a checkpoint,
# the copies differ in spite of it. `dist.broadcast(tensor, src=0)` copies rank 0's tensor into that of every other rank:

# %% name="broadcast"
# %%ranks
for tensor in model.state_dict().values():
    dist.broadcast(tensor, src=0)
print(f"{model.weight[0, 0].item():+.4f}")

# %% [markdown] name="equal_explained"
# All ranks have rank 0's number. So don't rely on seeds: rank 0 broadcasts its weights and buffers ([Broadcast](../2_collectives/10_broadcast.ipynb) shows why both). `DistributedDataParallel` does the same when you wrap
# a model. Then only rank 0 needs the checkpoint.
#
# ## 2. A share of the data for each rank
#
# Each sample should be read once, by one rank. torch's `DistributedSampler` gives indices to each rank; this needs no messages, because all ranks compute
# the same order. How many of $2p + 1$ samples does each of $p$ ranks get?

# %% name="sampler"
# %%ranks
from torch.utils.data import DistributedSampler

dataset = range(2 * world_size + 1)
for drop_last in (False, True):
    sampler = DistributedSampler(dataset, shuffle=False, drop_last=drop_last)
    print(f"drop_last={drop_last}: {list(sampler)}")

# %% [markdown] name="sampler_explained"
# Three, because the first samples are used again so that all ranks get equally many; two with `drop_last`, which leaves the last one out. In both
# cases all ranks get the same number; section 6 shows why this is important.
#
# All ranks must shuffle in the same way; otherwise several ranks would read the same sample, and some samples would be missed. All shuffle with the
# same seed.

# %% name="guess_epoch"
guess_epoch = predict(
    "Nobody tells the sampler the epoch. What happens?",
    choices=["every epoch has a new order", "every epoch has the same order", "an error"],
    title="A sampler that does not know the epoch",
)
guess_epoch

# %% name="epochs"
# %%ranks
sampler = DistributedSampler(range(4 * world_size))
with torch.device("cpu"):  # it shuffles with a generator of the CPU
    print("first epoch ", list(sampler))
    print("second epoch", list(sampler))
    sampler.set_epoch(1)
    print("set_epoch(1)", list(sampler))

# %% name="reveal_epoch" jupyter={"source_hidden": true}
# the answer: run this cell
guess_epoch.reveal(
    "every epoch has the same order",
    why="All ranks must shuffle alike, so the order follows from the seed and the epoch's number, and that number stays 0. Call `sampler.set_epoch(epoch)`.",
)

# %% [markdown] name="epochs_explained"
# ## 3. Train together
#
# [All-reduce](../1_first_hours/04_all_reduce.ipynb) averaged the gradients of one step. Now a whole training run. One function trains in three ways: `"alone"` uses the whole batch without communication, `"averaged"` uses a share and
# averages gradients, `"never averaged"` uses a share without communication.


# %% name="train"
def make_model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))


def share_of_batch(step, alone=False):
    rank, p = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1000 + step)
    x = torch.randn(16 * p, 8)
    mine = slice(None) if alone else slice(16 * rank, 16 * (rank + 1))
    return x[mine], x[mine].sum(dim=1, keepdim=True).sin()


# %% name="train_loop"
def train(way, steps=50):
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    history = []
    for step in range(steps):
        x, y = share_of_batch(step, alone=way == "alone")
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        if way == "averaged":
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= dist.get_world_size()
        optimizer.step()
        history.append(torch.nn.utils.parameters_to_vector(model.parameters()).detach().clone())
    return torch.stack(history)


# %% [markdown] name="train_guess"
# Two differences after 50 steps are interesting, each the largest over all weights: between two ranks that averaged, and between a rank that averaged and the single process. The runs take about 4 s.

# %% name="guess_difference"
options = ["exactly 0", "below 0.0001", "about 0.001", "about 0.1"]
ranks_guess = predict(
    "After 50 steps: the largest difference between two ranks that averaged?",
    choices=options,
    title="Difference between two ranks",
)
alone_guess = predict(
    "And between a rank that averaged and the single process?",
    choices=options,
    title="Difference from the single process",
)
display(ranks_guess, alone_guess)

# %% name="runs"
runs = {way: [h.cpu() for h in world.run(train, way)] for way in ("alone", "averaged", "never averaged")}
averaged, alone = runs["averaged"], runs["alone"][0]
print(f"first and last rank, averaged: {(averaged[0][-1] - averaged[-1][-1]).abs().max():.1e}")
print(f"averaged and alone:            {(averaged[0][-1] - alone[-1]).abs().max():.1e}")
never = runs["never averaged"]
print(f"first and last rank, never:    {(never[0][-1] - never[-1][-1]).abs().max():.1e}")

# %% name="reveal_difference" jupyter={"source_hidden": true}
# the answer: run this cell
display(
    ranks_guess.reveal(
        options[0],
        why="An all-reduce gives all ranks the same bits, and the same optimizer computes the same weights from them.",
    ),
    alone_guess.reveal(
        options[1],
        why="A single process adds the losses of a batch in another order, so it rounds in other places, and the difference grows a little with each step.",
    ),
)

# %% name="figure"
figure, axes = plots.chart("step", "largest difference from alone")
for way in ("never averaged", "averaged"):
    axes.semilogy((runs[way][0] - alone).abs().amax(dim=1), label=way)
axes.legend()
figure

# %% [markdown] name="runs_explained"
# Data-parallel training is *the same algorithm*, not the same bits.
#
# The ranks exchanged only gradients: no weights, no optimizer state, no data.

# %% [markdown] name="mean_or_sum"
# ### Sum or mean?
#
# `all_reduce` adds; you must divide. If you forget that, how many times as far do the weights move in the first step, with SGD and with Adam?


# %% name="forgot"
def first_step(kind, divide):
    model = make_model()
    before = torch.nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.01)
    x, y = share_of_batch(0)
    torch.nn.functional.mse_loss(model(x), y).backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size() if divide else 1
    optimizer.step()
    return (torch.nn.utils.parameters_to_vector(model.parameters()).detach() - before).norm().item()


for kind in ("SGD", "Adam"):
    print(f"{kind:5} {world.run(first_step, kind, False)[0] / world.run(first_step, kind, True)[0]:.3f} times")

# %% [markdown] name="forgot_explained"
# With SGD this multiplies the learning rate by $p$: a run that works on two GPUs may diverge on 64. Adam divides each gradient by its own size, so
# the factor cancels; you don't notice the bug until you clip gradients.
#
# **Your turn.** Write the whole function: the mean of a tensor over all ranks, with one `all_reduce`, for any floating dtype and any layout, without
# changing the input. `check` tells you what you forgot.


# %% name="mean_mine"
def distributed_mean(tensor):
    mean = tensor.clone()
    # your turn
    return mean


check(distributed_mean)

# %% [markdown] name="mean_answer"
# <details><summary><b>An answer</b></summary>
#
# ```python
#     mean = tensor.clone(memory_format=torch.contiguous_format)
#     dist.all_reduce(mean)
#     mean /= dist.get_world_size()
# ```
#
# A plain `clone()` keeps a transposed layout, and collectives need contiguous memory.
# </details>

# %% [markdown] name="ddp"
# ## 4. DDP itself
#
# `DistributedDataParallel` wraps a model and does all this in hooks that run *during* `backward()`. Let us compare what it sends with what our loop
# sends. `world.trace` records one step of each.

# %% name="guess_calls"
guess_calls = predict(
    "The model has four parameter tensors. How many all-reduces does DDP call in a step?",
    low=0,
    high=10,
    title="All-reduces that DDP calls",
)
guess_calls


# %% name="ddp_step"
def step_by_hand():
    model = make_model()
    x, y = share_of_batch(0)
    torch.nn.functional.mse_loss(model(x), y).backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()
    return [parameter.grad for parameter in model.parameters()]


def step_with_ddp():
    model = torch.nn.parallel.DistributedDataParallel(make_model())
    x, y = share_of_batch(0)
    torch.nn.functional.mse_loss(model(x), y).backward()
    return [parameter.grad for parameter in model.parameters()]


# %% name="ddp_compare"
(by_hand, hand_trace), (by_ddp, ddp_trace) = world.trace(step_by_hand), world.trace(step_with_ddp)
print(f"largest difference: {max((a - b).abs().max() for a, b in zip(by_hand[0], by_ddp[0], strict=True)):.1e}")
for name, trace in (("by hand", hand_trace), ("DDP", ddp_trace)):
    print(f"{name:8}", [(event.op, event.nbytes) for event in trace if event.rank == 0])

# %% name="reveal_calls" jupyter={"source_hidden": true}
# the answer: run this cell
guess_calls.reveal(
    sum(e.op == "all_reduce" and e.rank == 0 for e in ddp_trace),
    why="DDP copies all gradients into one bucket and reduces that at once.",
)

# %% name="ddp_player"
Player(hand_trace, ddp_trace, titles=("By hand", "DDP"))

# %% [markdown] name="ddp_explained"
# Each lane is a rank, each bar a call: point at a short one to see its name. A bar begins when its rank makes the call, so a long one is mostly waiting for the others. DDP first compares the shapes and broadcasts the weights (section 1),
# once. A **bucket** holds about 25 MiB of gradients (`bucket_cap_mb`), because a call costs the same $2(p-1)\alpha$ with four bytes or four million.

# %% [markdown] name="price"
# ## 5. What it costs
#
# With $K$ gradient tensors of $n$ bytes in all, and one ring all-reduce for each:
#
# $$T = 2(p-1)\,K\alpha + 2\,\frac{p-1}{p}\,n\,\beta$$
#
# and with one flat bucket the same with $K = 1$. The next cell uses 100 tensors of 16 KiB. How many times faster is the flat bucket here? (It takes 5 to 15 s.)

# %% name="timings"
# %%ranks
import functools

from allranks import bench


def reduce_all(tensors):
    for tensor in tensors:
        dist.all_reduce(tensor)


gradients = [torch.zeros(4096) for _ in range(100)]
small, flat = [torch.zeros(1)] * 100, [torch.cat(gradients)]
long = [torch.zeros(bench.up_to_plateau()[-1] // 4)]
calls = [functools.partial(reduce_all, tensors) for tensors in (small, long, flat, gradients)]
measured = bench.seconds_of(*calls, iterations=5)

# %% [markdown] name="fit"
# `bench.seconds_of` runs on every rank, times the four in turns (between two events, if they run on GPUs), and gives for each the median of five times of the slowest rank. A hundred calls
# with one number each give $\alpha$; one call so long that more bytes would bring no more bandwidth gives $\beta$. The hundred calls with gradients test the model.

# %% name="table"
p, n = world.ranks, 100 * 4096 * 4
small, long, flat, many = world["measured"][0]
alpha = small / 100 / (2 * (p - 1))
beta = max(long - small / 100, 0) / (2 * (p - 1) / p * bench.up_to_plateau(world)[-1])
model = 100 * schedules.ring_all_reduce(p).price(n // 100, alpha, beta)
print(f"{bench.fitted_words(world, alpha, beta)}; flat {1e3 * flat:.1f} ms")
print(f"100 calls: measured {1e3 * many:.1f} ms, model {1e3 * model:.1f} ms")
print(f"the flat bucket is {many / flat:.1f} times as fast")

# %% [markdown] name="efficiency"
# In the model nearly all the time of the 100 calls is $\alpha$; this is the main point, whatever the factor on your machine. If ranks share cores,
# the factor is hard to predict: each of the hundred calls waits until the slowest of $p$ processes is awake.
#
# Now a step of the picture's size: 14 GB of bfloat16 gradients (7 billion parameters), in one call, as there, or in DDP's 535 buckets of 25 MiB,
# at an assumed 200 GB/s and 5 µs a message. Let the rest of the step take 500 ms. How large is the efficiency, compute over total, if nothing overlaps?

# %% name="efficiency_shown"
for p in (2, 8, 32, 128, 1024):
    parts = []
    for calls, name in ((1, "one call"), (535, "535 buckets")):
        comm = calls * 2 * (p - 1) * 5e-6 + 2 * (p - 1) / p * 14e9 / 200e9
        parts.append(f"{name} {1e3 * comm:7.1f} ms, efficiency {0.5 / (0.5 + comm):4.0%}")
    print(f"{p:5} GPUs: {'; '.join(parts)}")

# %% [markdown] name="efficiency_explained"
# In one call the time levels off: nearly all of it is for the bytes, and these are never more than $2n$, whatever the batch. So with more data for
# each GPU, waiting is a smaller share of the step. (Over Ethernet each of the picture's 64 GPUs needs three sequences.)
#
# In buckets every call pays the ring's $2(p-1)$ messages again, and on 1024 GPUs these take seconds. So with many GPUs one takes larger buckets, and
# NCCL takes a tree for vectors of such a size: on 128 nodes of 8 GPUs that is 28 steps instead of 2046
# ([All-reduce algorithms](../2_collectives/17_all_reduce_algorithms.ipynb)).
#
# Then data parallelism works with thousands of GPUs if each keeps its number of samples (*weak* scaling). The batch grows with $p$, so you must choose a
# new learning rate. Most of the time that is left can be hidden behind the backward pass; the next chapter shows how.

# %% [markdown] name="server_intro"
# ### Before the ring: a server
#
# The first large systems had **parameter servers** (Dean et al. 2012, Li et al. 2014): workers send their gradients to a server, which adds them and sends back the new weights. Rank 0 is the server, and has no
# data of its own.


# %% name="guess_server"
guess_server = predict(
    "128 workers, one server, equal links: how many times as long as with a ring of the workers does a step's sending take?",
    low=0.1,
    high=1000,
    log=True,
    title="One server takes, compared with a ring",
)
guess_server


# %% name="with_server"
def with_server(numbers):
    rank, workers = dist.get_rank(), range(1, dist.get_world_size())
    mine = torch.full((numbers,), float(rank))
    if rank == 0:
        parts = [torch.empty(numbers) for _ in workers]
        exchange(
            [dist.P2POp(dist.irecv, part, worker) for worker, part in zip(workers, parts, strict=True)],
        )
        mean = sum(parts) / len(workers)
        exchange([dist.P2POp(dist.isend, mean, worker) for worker in workers])
    else:
        mean = torch.empty(numbers)
        exchange([dist.P2POp(dist.isend, mine, 0)])
        exchange([dist.P2POp(dist.irecv, mean, 0)])
    return mean[0].item()


def exchange(operations):
    for work in dist.batch_isend_irecv(operations):
        work.wait()


# %% name="server_counted"
numbers = 1000 * (world.ranks - 1)
results, trace = world.trace(with_server, numbers)
sent = [sum(e.nbytes for e in trace if e.rank == rank and e.op == "send") for rank in range(world.ranks)]
ring = schedules.ring_all_reduce(world.ranks - 1).bytes_sent(4 * numbers) if world.ranks > 2 else [0]
print(
    "the workers' mean:",
    results,
    "\nbytes sent with a server:",
    sent,
    f"\na ring of the workers: {max(ring):.0f} each",
)

# %% name="server_price"
for p in (4, 40, 128):
    server, ring = 2 * p * 100e6 / 1.25e9, 2 * (p - 1) / p * 100e6 / 1.25e9
    print(f"{p:4} workers, 100 MB, 10 Gb/s: one server {server:5.2f} s, a ring {ring:.2f} s")

# %% name="reveal_server" jupyter={"source_hidden": true}
# the answer: run this cell
guess_server.reveal(
    server / ring,
    why="All gradients go in over the server's one link, and all weights come out of it; in a ring each link carries less than two gradients.",
    it=f"{server / ring:.0f} times",
)

# %% [markdown] name="server_explained"
# The server's link carries $2(p-1)n$, so more workers make each step longer, and one needs many servers. In February 2017 **Baidu** brought the ring of supercomputers to deep learning: training on 40 GPUs became 31
# times as fast as on one. Uber's **Horovod** made it a library: 88 % efficiency on 128 GPUs, where TensorFlow's servers had lost half. Today DDP and NCCL have it built in. Servers remain where not all
# workers need all weights (embeddings), and where nobody should wait for the slowest: a server can answer each worker *at once*, with weights that are some steps old.

# %% [markdown] name="uneven"
# ## 6. When ranks do different things
#
# **One batch short.** The last rank has 3 batches, the others 4. After 3 seconds the deadline ends the cell.

# %% tags=["raises-exception"] name="uneven_run"
# %%ranks --deadline 3
gradient = torch.ones(1)
for _ in range(3 if rank == world_size - 1 else 4):
    dist.all_reduce(gradient)

# %% [markdown] name="uneven_explained"
# The fourth all-reduce needs every rank, and the last rank is done. So samplers give equal shares. (On GPUs the last call returns, and the others wait for it at the end of the cell.) If shares must be unequal, use `torch.distributed.algorithms.Join`: with it a rank without batches still takes part in the others' collectives.
#
# **A parameter that was not used.** This model has two heads. Here even ranks use head A and odd ranks head B, so on each rank one head has no gradient. The loop skips this head:


# %% name="unused"
def two_heads(skip_unused):
    rank = dist.get_rank()
    heads = {name: torch.zeros(2, requires_grad=True) for name in "AB"}
    used = heads["A" if rank % 2 == 0 else "B"]
    (used * (rank + 1.0)).sum().backward()  # its gradient is rank + 1

    for head in heads.values():
        if head.grad is None and skip_unused:
            continue
        if head.grad is None:
            head.grad = torch.zeros_like(head)
        dist.all_reduce(head.grad)
    return {name: None if head.grad is None else head.grad.tolist() for name, head in heads.items()}


# %% [markdown] name="unused_guess"
# Head A should get the sum over the even ranks, and head B that over the odd ones: with four ranks $1 + 3 = 4$ and $2 + 4 = 6$.

# %% name="guess_unused"
guess_unused = predict(
    "Even ranks used head A, odd ranks head B, and each skips the other head. What does rank 0 get for head A?",
    choices=["the even ranks' sum", "the sum of all ranks", "an error", "a hang"],
    title="Rank 0's gradient of head A",
)
guess_unused

# %% name="unused_run"
print("skipping:")
for rank, heads in enumerate(world.run(two_heads, True)):
    print("  rank", rank, heads)
print("zeros instead:", world.run(two_heads, False)[0])

# %% name="reveal_unused" jupyter={"source_hidden": true}
# the answer: run this cell
guess_unused.reveal(
    "the sum of all ranks",
    why="Collectives have no names: the one call of each rank is matched with the one call of the others, whatever it is for.",
)

# %% [markdown] name="unused_explained"
# There is no error, but gradients are
# wrong, and the copies become different. Collectives have no names: **the first call of one rank is matched with the first call of the others**. A
# rank without a gradient must contribute zeros.
#
# DDP notices this one step later. Run it and read the message:


# %% tags=["raises-exception"] name="ddp_unused"
class TwoHeads(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = torch.nn.ModuleDict({name: torch.nn.Linear(2, 1) for name in "AB"})

    def forward(self, x, name):
        return self.heads[name](x)


def ddp_unused(find):
    model = torch.nn.parallel.DistributedDataParallel(TwoHeads(), find_unused_parameters=find)
    for _ in range(2):
        model(torch.ones(1, 2), "A" if dist.get_rank() % 2 == 0 else "B").sum().backward()
    return model.module.heads["A"].weight.grad.tolist()


print("find_unused_parameters=True:", world.run(ddp_unused, True)[0])
world.run(ddp_unused, False)

# %% [markdown] name="ddp_unused_explained"
# `find_unused_parameters=True` searches the graph after each forward pass, and marks parameters that the backward pass will not reach as ready, with
# zeros. The search takes time, and DDP can't reorder its buckets. The option is for correctness, not for speed.

# %% [markdown] name="random"
# **Equal random numbers.** All ranks began with `torch.manual_seed(0)`, to have equal weights. Are their dropout masks equal too?

# %% name="dropout"
# %%ranks
for seed in (0, rank):
    torch.manual_seed(seed)
    kept = torch.nn.functional.dropout(torch.ones(16), p=0.5) > 0
    print("".join("#" if x else "." for x in kept))

# %% [markdown] name="random_explained"
# Equal seeds give equal masks: each rank drops the same units for its samples, so the noise does not average out over the batch. Build the model with one seed, then seed with `seed + rank`.

# %% [markdown] name="quiz"
# ## 7. Check yourself
#
# <details><summary>1. Two ranks have 30 and 10 samples in the last batch. Each averages its loss, then gradients are averaged. What is wrong?</summary>
#
# Each of the 10 samples counts three times as much as each of the 30. Reduce the *sum* of the losses' gradients and the number of samples, then divide.
# </details>
#
# <details><summary>2. Copies must be equal, but you suspect that they are not. How do you find out with a few bytes?</summary>
#
# Each rank computes a checksum $h$ of its weights, and an all-reduce with `MAX` takes $(h, -h)$: if the two results do not cancel, some rank differs.
# </details>
#
# <details><summary>3. Does each rank need to send its optimizer state?</summary>
#
# No. Equal state plus equal gradients gives equal state. (But it is in memory $p$ times; ZeRO avoids that.)
# </details>

# %% [markdown] name="recap"
# ## Recap
#
# Data parallelism makes equal copies with a broadcast, gives each rank its share of every batch, and averages gradients with an all-reduce. With
# equal weights and equal gradients the copies stay equal to the last bit. It is the same algorithm as one process with the whole batch, apart from
# rounding. It fails if a rank does something different: another seed, one batch fewer, a skipped parameter. **Every rank must make the same calls in the same order, because calls are matched by their order.**
#
# **Now you:** [Lab 3](../../labs/lab03_all_reduce/all_reduce.ipynb) grades `distributed_mean`.
#
# **Next question:** how much of the communication can be hidden behind the backward pass? [Overlap and bucketing](21_overlap_and_bucketing.ipynb).
#
# **Sources.** S. Li et al., *PyTorch Distributed: experiences on accelerating data parallel training*, [arXiv:2006.15704](https://arxiv.org/abs/2006.15704) ·
# [PyTorch, DistributedDataParallel](https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html) ·
# [PyTorch, DistributedSampler](https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler) ·
# [PyTorch, Join](https://docs.pytorch.org/docs/stable/distributed.algorithms.join.html) ·
# A. Gibiansky, *[Bringing HPC techniques to deep learning](http://research.baidu.com/bringing-hpc-techniques-deep-learning/)*, Baidu 2017 ·
# A. Sergeev and M. Del Balso, *Horovod*, [arXiv:1802.05799](https://arxiv.org/abs/1802.05799) ·
# M. Li et al., *Scaling distributed machine learning with the parameter server*, OSDI 2014 ·
# P. Goyal et al., *Accurate, large minibatch SGD*, [arXiv:1706.02677](https://arxiv.org/abs/1706.02677) (learning rates)

# %% [markdown] name="my_model_now"
# ## My model
#
# Each card below is an **axis**, one way to split the training run, and this chapter opened one. The course's own choices are pressed: press another
# one, and see what it costs. What you choose is kept with your notebooks.
#
# All seconds of my model, here and later, are computed for a step in which nothing goes wrong. Published steps took 0.9 to 2.1 times as long as the same
# formulas say ([how true the prices are](../../docs/validation.md)).

# %% name="my_model"
from allranks import my_model

my_model("data_parallel")

# %% name="what_you_knew"
predictions()

# %% name="stop_world"
world.stop()

# %% name="done"
from allranks import done

done("20")
