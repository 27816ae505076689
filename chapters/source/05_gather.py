# %% [markdown] name="title"
# # Gather
#
# **One learner trains, many actors play. In each round every actor sends 10 MB of experience, and the learner's GPU needs 50 ms to learn from all of it. From how
# many actors on is the learner's link busier than its GPU?**
#
# 35 minutes · CPU ok, 2 or more GPUs better · before it: [Scatter](04_scatter.ipynb)

# %% name="start_world"
import torch
import torch.distributed as dist
from ipywidgets import FloatText, IntText

from allranks import Player, World, ask, check, schedules


world = World(ranks=4)
world

# %% [markdown] name="guess_intro"
# The link has 50 GB/s, and a message takes 5 µs to get going. **Guess the number now.** Section 4 has the answer.

# %% name="first_guess"
first_guess = IntText(description="actors:")
first_guess

# %% [markdown] name="promise"
# ## 1. What it promises
#
# `dist.gather(tensor, gather_list, dst)` is a scatter backwards: every rank brings a `tensor`, and rank `dst` finds that of rank $r$ in place $r$ of its `gather_list`. The others bring no list
# and learn nothing.
#
# **Predict** what rank 0 prints. Look closely at how it makes its list.

# %% name="guess_list"
guess = ask("[1, 2, 3, 4]", "[4, 4, 4, 4]", "[0, 0, 0, 0]", "an error")
guess

# %% name="same_room"
# %%ranks
mine = torch.tensor([rank + 1.0])
room = [torch.zeros(1)] * world_size if rank == 0 else None
dist.gather(mine, room, dst=0)
if rank == 0:
    print([tensor.item() for tensor in room])

# %% [markdown] name="same_room_explained"
# `[t] * 4` is a list of four names for *one* tensor. Each piece overwrote the one before (Gloo fills the list in rank order), and the list shows the last one four times. It is a mistake of Python rather than of communication, but this is where it
# bites. With a tensor for each:

# %% name="own_room"
# %%ranks
room = [torch.zeros(1) for _ in range(world_size)] if rank == 0 else None
dist.gather(mine, room, dst=0)
if rank == 0:
    print([tensor.item() for tensor in room])

# %% [markdown] name="uneven"
# Episodes have different lengths. **Predict**: rank $r$ brings $r+1$ numbers, and rank 0 has room for just that from each. What happens?

# %% name="guess_uneven"
guess = ask("it works", "rank 0 raises an error, the others wait", "all ranks raise an error")
guess

# %% tags=["raises-exception"] name="uneven_run"
# %%ranks --deadline 4
episode = torch.full((rank + 1,), float(rank))
room = [torch.zeros(r + 1) for r in range(world_size)] if rank == 0 else None
dist.gather(episode, room, dst=0)

# %% [markdown] name="uneven_explained"
# A gather wants one size from all. Only the root has the list, so only the root can see that the sizes differ: it refuses, and the others wait for it, as in [Scatter](04_scatter.ipynb). There are two ways out. **Pad** to the longest, which an `all_reduce` with `MAX` finds out, and send the lengths along. Or **`gather_object`**, which takes anything:

# %% name="ways_out"
# %%ranks
episode = torch.full((rank + 1,), float(rank))
length = torch.tensor([len(episode)])
dist.all_reduce(length, op=dist.ReduceOp.MAX)
filled = torch.nn.functional.pad(episode, (0, length.item() - len(episode)), value=-1)
room = [torch.empty_like(filled) for _ in range(world_size)] if rank == 0 else None
dist.gather(filled, room, dst=0)

objects = [None] * world_size if rank == 0 else None
dist.gather_object({"rank": rank, "rewards": episode.tolist()}, objects, dst=0)
if rank == 0:
    print(*room, *objects, sep="\n")

# %% [markdown] name="ways_out_explained"
# `gather_object` pickles on one side and unpickles on the other: slower, over the CPU, and whoever sends a pickle can run code at the receiver. It is for settings and reports, not for training data.

# %% [markdown] name="learner"
# ## 2. An actor-learner that learns
#
# A slot machine has 10 arms, and arm $i$ pays $i/9$ on average, with some noise. Nobody tells the ranks. In each round the learner's weights go **out** (broadcast), every rank plays 64 times, and the experience comes
# **in** (gather). Rank 0 raises the chances of whatever paid more than the mean (REINFORCE, Williams 1992).
#
# **Predict** the mean pay in the last of 60 rounds. Chance is 0.5.

# %% name="guess_pay"
guess = FloatText(description="pay:")
guess


# %% name="actor_learner"
def play(rounds):
    rank, p = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    weights, pay = torch.zeros(10), []
    room = [torch.empty(64, 2) for _ in range(p)] if rank == 0 else None
    for _ in range(rounds):
        dist.broadcast(weights, src=0)  # weights out
        arms = torch.multinomial(weights.softmax(dim=0), 64, replacement=True)
        rewards = arms / 9 + 0.1 * torch.randn(64)
        dist.gather(torch.stack([arms, rewards], dim=1), room, dst=0)  # experience in
        if rank == 0:
            learn(weights, torch.cat(room))
        pay.append(rewards.mean().item())
    return pay


def learn(weights, experience):
    arms, rewards = experience[:, 0].long(), experience[:, 1]
    better = torch.nn.functional.one_hot(arms, 10) - weights.softmax(dim=0)
    weights += 10 * ((rewards - rewards.mean())[:, None] * better).mean(dim=0)


pay = world.run(play, 60)

# %% name="reveal_pay"
for r in (0, 5, 20, 59):
    print(f"round {r:2}: " + "  ".join(f"rank {rank} {history[r]:.2f}" for rank, history in enumerate(pay)))
print(f"you said {guess.value:g}; the last round paid {sum(history[-1] for history in pay) / world.ranks:.2f}")

# %% name="my_trace"
results, trace = world.trace(play, 3)
Player(trace)

# %% [markdown] name="trace_explained"
# `world.trace` runs a function as `world.run` does, and records what was sent: these are three rounds as they just ran, on this machine's clock. Each has two collectives of opposite direction. Rank 0 learns between a gather and the next broadcast, and all the others stand still in that
# broadcast until it is done. That idle time is the price of keeping step.

# %% [markdown] name="algorithms"
# ## 3. Flat and tree
#
# A gather can be done flat, the root receiving from one after the other, or by a tree in which ranks collect what they pass on. **Predict**: in which does the root *receive* fewer bytes?

# %% name="guess_root"
guess = ask("flat", "tree", "the same in both")
guess

# %% name="watch"
Player(schedules.flat_gather(8), schedules.binomial_gather(8), nbytes=8_000)

# %% name="prices"
alpha, beta = 5e-6, 1 / 50e9
for per_rank in (100, 10_000_000):
    n = 64 * per_rank
    flat, tree = (make(64).price(n, alpha, beta) for make in (schedules.flat_gather, schedules.binomial_gather))
    print(f"64 ranks, {per_rank:8} bytes from each: flat {1e3 * flat:7.3f} ms, tree {1e3 * tree:7.3f} ms")

# %% [markdown] name="algorithms_explained"
# The same in both: everything must come in at the root, $\frac{p-1}{p}n$ of $n$ bytes in all. The tree needs $\lceil\lg p\rceil$ messages in a row instead of $p-1$, which counts only if they are short:
#
# $$T_\text{flat} = (p-1)\,\alpha + \frac{p-1}{p}\,n\beta \qquad T_\text{tree} = \lceil\lg p\rceil\,\alpha + \frac{p-1}{p}\,n\beta$$
#
# Mind what $n$ is. If each rank brings $m$ bytes, then $n = pm$ and the root receives $(p-1)\,m$: it **grows with the number of ranks**. That is new. In the chapters before, $n$ was a property of the model.

# %% [markdown] name="question"
# ## 4. The question

# %% name="answer"
m, gpu_s = 10e6, 0.050
actors = next(k for k in range(1, 10_000) if k * (alpha + m * beta) > gpu_s)
print(f"you said {first_guess.value}; from {actors} actors on the link is the bottleneck")
for k in (10, 100, 1000, 10_000):
    print(f"{k:6} actors: link {1e3 * k * (alpha + m * beta):8.1f} ms a round, GPU {1e3 * gpu_s:.0f} ms")

# %% [markdown] name="answer_explained"
# (50 ms for any amount of experience is generous to the GPU.) The pattern has a name in networking, *incast*: many senders, one receiver. A faster algorithm can't help, for the root's link is busy without a break.
# Only a change of *what is sent* can.
#
# **Send less.** What does the learner do with it? If it *adds*, as with gradients, somebody can add on the way. **Predict**: 512 ranks have a gradient of 10 MB each. How many MB must the root receive if they are
# gathered, and how many if they are reduced by a tree?

# %% name="guess_less"
gathered, reduced = FloatText(description="gather, MB:"), FloatText(description="reduce, MB:")
display(gathered, reduced)

# %% name="less"
m = 10_000_000


def into_root(schedule, n):
    """Bytes that rank 0 receives."""
    sizes = schedule.chunk_nbytes(n)
    return sum(sizes[chunk] for move in schedule.moves if move.dst == 0 for chunk in move.chunks)


for p in (8, 64, 512):
    gather = into_root(schedules.binomial_gather(p), p * m)
    reduce = into_root(schedules.binomial_reduce(p), m)
    print(f"{p:4} ranks: gather {gather / 1e6:6.0f} MB, reduce by a tree {reduce / 1e6:4.0f} MB")
print(f"you said {gathered.value:g} and {reduced.value:g} for 512")

# %% [markdown] name="less_explained"
# Large-scale deep learning began this way round: workers sent gradients to **parameter servers** and fetched weights (Li et al. 2014, and before it Dean et al. 2012). The servers' links filled up, so there were many servers, each for a slice of the weights. Take that to the end, every
# worker a server for its slice, and you have a reduce-scatter and an all-gather: together an [all-reduce](07_all_reduce.ipynb), which a ring does with two neighbours for each rank. The server is gone.
#
# Actor-learner RL kept the pattern, because experience can't be added up. So systems send it compressed, in pieces, to several learners.

# %% [markdown] name="late"
# ## 5. Waiting for the slowest
#
# The last rank's episode takes 0.4 seconds longer than those of the others. **Predict**: after how many milliseconds does the learner have the first rank's experience in its hands, with a gather?

# %% name="guess_late"
guess = FloatText(description="ms:")
guess

# %% name="late_gather"
# %%ranks
import time

x = torch.tensor([float(rank)])
room = [torch.zeros(1) for _ in range(world_size)] if rank == 0 else None
dist.barrier()
start = time.perf_counter()
time.sleep(0.4 if rank == world_size - 1 else 0)
dist.gather(x, room, dst=0)
if device.type == "cuda":
    torch.cuda.synchronize()
gathered_ms = 1e3 * (time.perf_counter() - start)

# %% name="first_come"
# %%ranks
x, arrivals = torch.tensor([float(rank)]), []
dist.barrier()
start = time.perf_counter()
time.sleep(0.4 if rank == world_size - 1 else 0)
if dist.get_backend() == "gloo":  # NCCL has to be told the source
    if rank == 0:
        for _ in range(world_size - 1):
            sender = dist.recv(x)
            arrivals.append((sender, 1e3 * (time.perf_counter() - start)))
    else:
        dist.send(x, dst=0)

# %% name="reveal_late"
print(f"you said {guess.value:g} ms; the gather returned after {world['gathered_ms'][0]:.0f} ms, with everything")
print("whoever comes first: " + ", ".join(f"rank {r} after {ms:.0f} ms" for r, ms in world["arrivals"][0]))

# %% [markdown] name="late_explained"
# For its root a gather is over when the slowest has come. Taking messages as they come keeps the learner busy, and now it learns from experience that was made with *older* weights than its own. A3C (Mnih et al. 2016), whose
# workers send gradients instead of experience, puts up with their age; IMPALA (Espeholt et al. 2018) corrects for it. Collectives keep step, point-to-point needn't: that is the real choice here.

# %% [markdown] name="measure"
# ## 6. Measured here
#
# A gather of 4 MB from each, among 2 ranks, 3 ranks, and so on. $\alpha$ is measured with 4 bytes, $\beta$ with two ranks; the other rows are the test.
#
# **Predict**: with twice the number of senders, the time ...

# %% name="guess_growth"
guess = ask("hardly changes", "doubles", "grows fourfold")
guess


# %% name="timings"
# %%ranks
def timed_gather(group, nbytes):
    p = dist.get_world_size(group)
    x, best = torch.zeros(nbytes // 4), float("inf")
    room = [torch.zeros_like(x) for _ in range(p)] if rank == 0 else None
    for _ in range(20):
        dist.barrier(group)
        start = time.perf_counter()
        dist.gather(x, room, dst=0, group=group)
        if device.type == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
    return best


groups = [dist.new_group(list(range(p))) for p in range(2, world_size + 1)]
times = [[timed_gather(group, n) for n in (4, 4_000_000)] for p, group in enumerate(groups, 2) if rank < p]

# %% name="table"
times, m = world["times"][0], 4_000_000
alpha = times[0][0]
beta = (times[0][1] - alpha) / m
print(f"alpha = {1e6 * alpha:.0f} µs, 1/beta = {1e-9 / beta:.2f} GB/s\n")
print(f"{'ranks':>5}{'measured ms':>13}{'model ms':>10}{'ratio':>7}")
for p, (_, t) in enumerate(times, start=2):
    model = (p - 1) * (alpha + m * beta)
    print(f"{p:5}{1e3 * t:13.2f}{1e3 * model:10.2f}{t / model:7.2f}")

# %% [markdown] name="measure_explained"
# The time is that of the root: the others are done as soon as their own message is gone. It grows with the number of senders, since their messages come in one after the other. Where the ratio is below 1, the senders' work (copying, waking up) overlapped
# with the root's; above 1, too few cores had to do it all.

# %% [markdown] name="where"
# ## 7. Where you meet it
#
# - **Actor-learner RL**: experience in. In RL for language models too: generated answers and their rewards go to the trainer.
# - **Evaluation**: predictions to rank 0, which computes a score that is no sum (a ranking, an AUC).
# - **Logging and checkpoints**: reports of all ranks with `gather_object`; a full state for one file. (Sharded checkpoints avoid it: each rank writes its own part.)
# - **Not gradients**, any more.

# %% [markdown] name="yours"
# ## 8. Yours: who found the best?
#
# Each rank has a tensor of rewards, and their lengths may differ. `distributed_argmax` is to tell *every* rank the largest, which rank has it, and at which index there. This one collects all tensors everywhere. **Send less**: 16
# bytes from each rank suffice. (Of several largest, that of the lowest rank counts, and there the lowest index. A NaN counts as the largest, as in `torch.argmax`.) What does a rank need to know of the others?


# %% name="distributed_argmax"
def distributed_argmax(tensor):
    p = dist.get_world_size()
    everyones = [torch.empty_like(tensor) for _ in range(p)]
    dist.all_gather(everyones, tensor)
    flat = torch.stack(everyones).reshape(p, -1)
    best = int(flat.max(dim=1).values.argmax())
    return flat[best].max().item(), best, int(flat[best].argmax())


check(distributed_argmax)

# %% [markdown] name="argmax_answer"
# <details><summary><b>A hint</b></summary>
#
# A rank can do its own part without anybody: its own maximum and where it is. A number of at most 8 bytes and an int64 are 16. (Each in a dtype of its own: float64 rounds whole numbers above $2^{53}$.)
# </details>
# <details><summary><b>An answer</b></summary>
#
# ```python
# def distributed_argmax(tensor):
#     def everyones(number):
#         numbers = [torch.empty_like(number) for _ in range(dist.get_world_size())]
#         dist.all_gather(numbers, number)
#         return torch.stack(numbers)
#
#     flat = tensor.reshape(-1)
#     index = flat.argmax()
#     values, indices = everyones(flat[index]), everyones(index)
#     best = int(values.argmax())
#     return values[best].item(), best, int(indices[best])
# ```
# </details>

# %% [markdown] name="quiz"
# ## 9. Check yourself
#
# <details><summary>1. 100 actors send 1 MB each, then 200 actors send 1 MB each. How does the time of the gather change, flat and tree?</summary>
#
# It doubles in both: the learner's link takes 100 MB, then 200 MB. Only the latencies differ.
# </details>
#
# <details><summary>2. A learner gathers the gradients of all actors and averages them. What would you change?</summary>
#
# Reduce instead of gather, and if all need the result, all-reduce. The root's link then carries a few gradients instead of all.
# </details>
#
# <details><summary>3. After a gather the ranks other than the root go on with their list. What is in it?</summary>
#
# They have none. Whoever needs the result everywhere wants an all-gather.
# </details>

# %% [markdown] name="recap"
# ## Recap
#
# A gather puts everybody's tensor, all of one size, into a list on one rank, and leaves nothing on the others. What the root receives grows with the number of ranks, so that its link is full sooner or later, with any algorithm; what can be added should be reduced
# instead. And it waits for the slowest. If you can't afford that, take messages as they come and live with older weights. **Weights out, experience in: it is the way in that fills the link.**
#
# **Now you:** [Lab 3](../labs/lab03_all_reduce/all_reduce.ipynb) marks `distributed_argmax`, with ties and NaNs.
#
# **Next question:** what if the root wants only the sum? What do the others hold then? The next chapter is [Reduce](06_reduce.ipynb).
#
# **Sources.** M. Li et al., *Scaling Distributed Machine Learning with the Parameter Server*, OSDI 2014 · J. Dean et al., *Large Scale Distributed Deep Networks*, NeurIPS 2012 ·
# V. Mnih et al., *Asynchronous Methods for Deep Reinforcement Learning*, [arXiv:1602.01783](https://arxiv.org/abs/1602.01783) ·
# L. Espeholt et al., *IMPALA*, [arXiv:1802.01561](https://arxiv.org/abs/1802.01561) ·
# R. Williams, *Simple Statistical Gradient-Following Algorithms for Connectionist Reinforcement Learning*, Machine Learning 8, 1992 ·
# [PyTorch, torch.distributed](https://docs.pytorch.org/docs/stable/distributed.html) ·
# R. Thakur, R. Rabenseifner, W. Gropp, *Optimization of Collective Communication Operations in MPICH*, Int. J. High Performance Computing Applications 19(1), 2005

# %% name="stop_world"
world.stop()
