# %% [markdown] name="title"
# # Gather
#
# **One learner trains, many actors play. In each round every actor sends 10 MB of experience, and the learner's GPU needs 50 ms to learn from all of
# it. With how many actors does the learner's link need more time than its GPU?**
#
# 35 minutes · CPU ok, 2 or more GPUs better · before it: [Scatter](04_scatter.ipynb)
#
# {{picture}}
#
# *Above:* each rank has one part. *Below:* rank 0 has all of them, in the order of ranks; the other ranks get nothing.

# %% name="start_world"
import torch
import torch.distributed as dist

from allranks import Player, World, check, predict, predictions, schedules


world = World()
world

# %% [markdown] name="guess_intro"
# The link has 50 GB/s, and the latency of a message is 5 µs. Section 4 has the answer.

# %% name="first_guess"
first_guess = predict(
    "With how many actors does the learner's link need more time than its GPU?",
    low=1,
    high=10000,
    log=True,
    title="Actors until the link is the bottleneck",
)
first_guess

# %% [markdown] name="promise"
# ## 1. What it promises
#
# `dist.gather(tensor, gather_list, dst)` is the opposite of a scatter: every rank provides a `tensor`, and rank `dst` receives that of rank $r$ in
# place $r$ of its `gather_list`. The others provide no list and receive nothing. In the next cell look closely at how rank 0 makes its
# list.

# %% name="guess_list"
guess = predict(
    "`room = [torch.zeros(1)] * world_size`, then a gather of 1, 2 and so on into it. What does rank 0 print?",
    choices=["1, 2 and so on", "the last rank's number everywhere", "zeros", "an error"],
    title="Gathered into `[torch.zeros(1)] * world_size`",
)
guess

# %% name="same_room"
# %%ranks
mine = torch.tensor([rank + 1.0])
room = [torch.zeros(1)] * world_size if rank == 0 else None
dist.gather(mine, room, dst=0)
if rank == 0:
    print([tensor.item() for tensor in room])

# %% name="reveal_list" jupyter={"source_hidden": true}
# the answer: run this cell
guess.reveal(
    "the last rank's number everywhere",
    usual="1, 2 and so on",
    why="the list has a place for each rank. But `[t] * p` is a list of p names for one tensor: each piece overwrote the one before.",
)

# %% [markdown] name="same_room_explained"
# (Gloo fills the list
# in rank order. With NCCL the pieces race each other, and another rank's may be the last.) This is a mistake in Python, not in communication, but it often
# happens here. With a separate tensor for each rank it works:

# %% name="own_room"
# %%ranks
room = [torch.zeros(1) for _ in range(world_size)] if rank == 0 else None
dist.gather(mine, room, dst=0)
if rank == 0:
    print([tensor.item() for tensor in room])

# %% [markdown] name="uneven"
# Episodes have different lengths. Rank $r$ sends $r+1$ numbers, and rank 0 has a tensor of the right size for each. What happens?

# %% tags=["raises-exception"] name="uneven_run"
# %%ranks --deadline 4
episode = torch.full((rank + 1,), float(rank))
room = [torch.zeros(r + 1) for r in range(world_size)] if rank == 0 else None
dist.gather(episode, room, dst=0)

# %% [markdown] name="uneven_explained"
# A gather needs the same size from all ranks. Only the root has the list, so only the root can see that the sizes differ: it raises an error, and the
# others wait for it, as in [Scatter](04_scatter.ipynb). (With NCCL messages as short as these may fit into a buffer; then the others don't wait, and
# their numbers are lost.) There are two solutions. **Pad** to the largest length, which an `all_reduce` with `MAX`
# finds, and send the lengths too. Or use **`gather_object`**, which takes any Python object:

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
# `gather_object` pickles on one side and unpickles on the other: this is slower, uses the CPU, and a rank that sends a pickle can run code on the
# receiver. Use it for settings and reports, not for training data.

# %% [markdown] name="learner"
# ## 2. An actor-learner that learns
#
# A slot machine has 10 arms, and arm $i$ pays $i/9$ on average, with some noise. The ranks don't know this. In each round the learner's weights go **out**
# (broadcast), every rank plays 64 times, and the experience comes **in** (gather). Rank 0 raises the probability of arms that paid more than the mean
# (REINFORCE, Williams 1992).
# Random play pays 0.5.

# %% name="guess_pay"
guess = predict("What is the mean pay in the last of 60 rounds?", low=0.0, high=1.0, title="Mean pay in the last round")
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

# %% name="reveal_pay" jupyter={"source_hidden": true}
# the answer: run this cell
for r in (0, 5, 20, 59):
    print(f"round {r:2}: " + "  ".join(f"rank {rank} {history[r]:.2f}" for rank, history in enumerate(pay)))
guess.reveal(
    sum(history[-1] for history in pay) / world.ranks,
    usual="below 0.8",
    why="learning by trial sounds slow. But every round brings 64 plays of each rank, and the best of ten arms soon stands out.",
    marks={"random play": 0.5},
)

# %% name="my_trace"
results, trace = world.trace(play, 3)
Player(trace)

# %% [markdown] name="trace_explained"
# `world.trace` runs a function like `world.run`, and records what was sent: you see three rounds as they just ran, with this machine's times. Each
# round has two collectives in opposite directions. Rank 0 learns between a gather and the next broadcast, and all other ranks wait in that broadcast
# until rank 0 is done. They are idle because all ranks work in rounds.

# %% [markdown] name="algorithms"
# ## 3. Flat and tree
#
# A gather can be flat: the root receives from one rank after the other. Or it can use a tree, in which ranks collect pieces and send them on
# together.

# %% name="guess_root"
guess = predict(
    "With which of the two does the root receive fewer bytes?",
    choices=["flat", "tree", "the same in both"],
    title="The root receives fewer bytes with",
)
guess

# %% name="watch"
Player(schedules.flat_gather(8), schedules.binomial_gather(8), nbytes=8_000)

# %% name="prices"
alpha, beta = 5e-6, 1 / 50e9
for per_rank in (100, 10_000_000):
    n = 64 * per_rank
    flat, tree = (make(64).price(n, alpha, beta) for make in (schedules.flat_gather, schedules.binomial_gather))
    print(f"64 ranks, {per_rank:8} bytes from each: flat {1e3 * flat:7.3f} ms, tree {1e3 * tree:7.3f} ms")

# %% name="reveal_root" jupyter={"source_hidden": true}
# the answer: run this cell
guess.reveal(
    "the same in both",
    usual="tree",
    why="the root receives fewer messages there. But they are longer: every byte that another rank has must arrive, whoever passes it on.",
)

# %% [markdown] name="algorithms_explained"
# $\frac{p-1}{p}n$ of the $n$ bytes must arrive at the root. The tree needs $\lceil\lg p\rceil$ messages one after the
# other instead of $p-1$, which matters only if they are short:
#
# $$T_\text{flat} = (p-1)\,\alpha + \frac{p-1}{p}\,n\beta \qquad T_\text{tree} = \lceil\lg p\rceil\,\alpha + \frac{p-1}{p}\,n\beta$$
#
# Note what $n$ is. If each rank sends $m$ bytes, then $n = pm$ and the root receives $(p-1)\,m$ bytes, which **grows with the number of ranks**. In
# the chapters before, $n$ was a property of the model and did not grow.

# %% [markdown] name="question"
# ## 4. The question

# %% name="answer"
m, gpu_s = 10e6, 0.050
actors = next(k for k in range(1, 10_000) if k * (alpha + m * beta) > gpu_s)
print(f"from {actors} actors on the link is the bottleneck")
for k in (10, 100, 1000, 10_000):
    print(f"{k:6} actors: link {1e3 * k * (alpha + m * beta):8.1f} ms a round, GPU {1e3 * gpu_s:.0f} ms")

# %% name="reveal_answer" jupyter={"source_hidden": true}
# the answer: run this cell
first_guess.reveal(
    actors,
    usual="some thousands",
    why="50 GB/s is much more than 10 MB. But all messages end at one link, one after the other, and each takes 0.2 ms of the 50.",
)

# %% [markdown] name="answer_explained"
# (In reality more experience would take the GPU more than 50 ms.) In networking this pattern is called *incast*: many senders, one receiver. A faster
# algorithm can't help, because the root's link is busy all the time. You must change *what is sent*.
#
# **Send less.** What does the learner do with the data? If it *adds* them, as with gradients, other ranks can add before they send. Say that 512
# ranks have a gradient of 10 MB each.

# %% name="guess_less"
guess = predict(
    "512 gradients of 10 MB are reduced by a tree. How many MB does the root receive? (Gathered, it would be 5110.)",
    low=1,
    high=10000,
    unit="MB",
    log=True,
    title="MB into the root if 512 gradients are reduced",
)
guess

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

# %% name="reveal_less" jupyter={"source_hidden": true}
# the answer: run this cell
guess.reveal(
    into_root(schedules.binomial_reduce(512), m) / 1e6,
    usual="10 MB",
    why="a sum is as long as one gradient. But the root receives one such sum in each round of the tree, and 512 ranks need nine rounds.",
    marks={"gathered": 5110},
)

# %% [markdown] name="less_explained"
# Large-scale deep learning began with this pattern: workers sent gradients to **parameter servers** and fetched weights (Li et al. 2014, and before
# it Dean et al. 2012). The servers' links were full, so there were many servers, each for a slice of the weights. If every worker is the server of
# one slice, this is a reduce-scatter and an all-gather, together an [all-reduce](07_all_reduce.ipynb). A ring does it with two neighbours for each
# rank, and no server is needed.
#
# Actor-learner RL still uses the pattern, because experience can't be added. So systems compress it, and send it in pieces to several learners.

# %% [markdown] name="late"
# ## 5. Waiting for the slowest
#
# The last rank's episode takes 0.4 seconds longer than those of the others. (If you have only two ranks, think of a third.) With a gather, after how many milliseconds can the learner use the first rank's experience?

# %% name="late_gather"
# %%ranks
import time


def now():
    if device.type == "cuda":
        torch.cuda.synchronize()  # GPU calls only queue the work
    return time.perf_counter()


x = torch.tensor([float(rank)])
room = [torch.zeros(1) for _ in range(world_size)] if rank == 0 else None
dist.barrier()
start = now()
time.sleep(0.4 if rank == world_size - 1 else 0)
dist.gather(x, room, dst=0)
gathered_ms = 1e3 * (now() - start)

# %% [markdown] name="first_come_intro"
# Instead, the learner can receive from whichever rank comes first. NCCL can't do that, so the cell uses Gloo and CPU tensors, as in
# [Point to point](02_point_to_point.ipynb):

# %% name="first_come"
# %%ranks
gloo = dist.new_group(backend="gloo")
x, arrivals = torch.tensor([float(rank)], device="cpu"), []
dist.barrier(gloo)
start = time.perf_counter()
time.sleep(0.4 if rank == world_size - 1 else 0)
if rank == 0:
    for _ in range(world_size - 1):
        sender = dist.recv(x, group=gloo)
        arrivals.append((sender, 1e3 * (time.perf_counter() - start)))
else:
    dist.send(x, dst=0, group=gloo)

# %% name="reveal_late"
print(f"the gather returned after {world['gathered_ms'][0]:.0f} ms, with everything")
print("whoever comes first: " + ", ".join(f"rank {r} after {ms:.0f} ms" for r, ms in world["arrivals"][0]))

# %% [markdown] name="late_explained"
# On the root a gather ends when the slowest rank has sent. If the learner takes messages in the order of arrival, it is always busy, but it learns
# from experience that was made with *older* weights than its own. In A3C (Mnih et al. 2016) workers send gradients instead of experience, and the
# learner accepts old ones; IMPALA (Espeholt et al. 2018) corrects for the age. So you must choose: with collectives all ranks work in rounds, with
# point-to-point messages they need not.

# %% [markdown] name="measure"
# ## 6. Measured here
#
# A gather of 4 MB from each, among 2 ranks, 3 ranks, and so on. $\alpha$ is measured with 4 bytes, $\beta$ with two ranks; the other rows test the model.
#
# How does the time change with twice the number of senders?


# %% name="timings"
# %%ranks
def timed_gather(group, nbytes):
    p = dist.get_world_size(group)
    x, best = torch.zeros(nbytes // 4), float("inf")
    room = [torch.zeros_like(x) for _ in range(p)] if rank == 0 else None
    for _ in range(20):
        dist.barrier(group)
        start = now()
        dist.gather(x, room, dst=0, group=group)
        best = min(best, now() - start)
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
    print(f"{p:5}{1e3 * t:13.3f}{1e3 * model:10.3f}{t / model:7.2f}")

# %% [markdown] name="measure_explained"
# (With two ranks the table has one row, and it tests nothing.) This is the root's time; the other ranks are done as soon as their own message is sent. It grows with the number of senders, because their messages
# arrive one after the other. If the ratio is below 1, the senders' work (copying, waking up) overlapped with the root's; if it is above 1, too few
# cores had to do all the work.

# %% [markdown] name="where"
# ## 7. Where you meet it
#
# - **Actor-learner RL**: experience in. In RL for language models too: generated answers and their rewards go to the trainer.
# - **Evaluation**: predictions to rank 0, which computes a score that is no sum (a ranking, an AUC).
# - **Logging and checkpoints**: reports of all ranks with `gather_object`; a full state for one file. (Sharded checkpoints avoid it: each rank writes its own part.)
# - **Gradients** no longer: they are all-reduced.

# %% [markdown] name="yours"
# ## 8. Your turn: which rank has the largest?
#
# Each rank has a tensor of rewards, and their lengths may differ. `distributed_argmax` must return on *every* rank the largest value, the rank that
# has it, and its index there. This version collects all tensors on all ranks. **Send less**: 16 bytes from each rank are enough. (If several values
# are the largest, take that of the lowest rank, and there the lowest index. A NaN counts as the largest, as in `torch.argmax`.) What does a rank need
# to know about the others?


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
# A rank can find its own maximum and its index without messages. A number of at most 8 bytes and an int64 are 16 bytes. (Send each in its own dtype:
# float64 rounds whole numbers above $2^{53}$.)
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
# It doubles with both: the learner's link carries 100 MB, then 200 MB. Only the latencies differ.
# </details>
#
# <details><summary>2. A learner gathers the gradients of all actors and averages them. What would you change?</summary>
#
# Reduce instead of gather, or all-reduce if all ranks need the result. Then the root's link carries a few gradients instead of all.
# </details>
#
# <details><summary>3. After a gather the ranks other than the root use their list. What is in it?</summary>
#
# They have none. If all ranks need the result, use an all-gather.
# </details>

# %% [markdown] name="recap"
# ## Recap
#
# A gather puts the tensors of all ranks, which have one size, into a list on one rank; the others get nothing. The root receives more with every
# rank, so with enough ranks its link is full, with any algorithm. If the data can be added, reduce them instead. A gather also waits for the slowest
# rank; if that takes too long, take messages in the order of arrival and accept older weights. **Weights go out, experience comes in: the incoming
# data fill the root's link.**
#
# **Now you:** [Lab 3](../labs/lab03_all_reduce/all_reduce.ipynb) grades `distributed_argmax`, with ties and NaNs.
#
# **Next question:** what if the root needs only the sum? What do the others hold then? The next chapter is [Reduce](06_reduce.ipynb).
#
# **Sources.** M. Li et al., *Scaling Distributed Machine Learning with the Parameter Server*, OSDI 2014 · J. Dean et al., *Large Scale Distributed Deep Networks*, NeurIPS 2012 ·
# V. Mnih et al., *Asynchronous Methods for Deep Reinforcement Learning*, [arXiv:1602.01783](https://arxiv.org/abs/1602.01783) ·
# L. Espeholt et al., *IMPALA*, [arXiv:1802.01561](https://arxiv.org/abs/1802.01561) ·
# R. Williams, *Simple Statistical Gradient-Following Algorithms for Connectionist Reinforcement Learning*, Machine Learning 8, 1992 ·
# [PyTorch, torch.distributed](https://docs.pytorch.org/docs/stable/distributed.html) ·
# R. Thakur, R. Rabenseifner, W. Gropp, *Optimization of Collective Communication Operations in MPICH*, Int. J. High Performance Computing Applications 19(1), 2005

# %% name="what_you_knew"
predictions()

# %% name="stop_world"
world.stop()
