# %% [markdown] name="title"
# # Scatter and gather
#
# {{here}}
#
# **In reinforcement learning many actors play with the model, and one learner trains it. In each round every actor sends the learner 10 MB of
# experience: what it did, and what that brought. The learner's GPU needs 50 ms for a round. From how many actors on does its link need more time?**
#
# {{picture}}
#
# *From the top to the middle:* rank 0 has all parts, then each rank has its own. This is a **scatter**. *From the middle to the bottom:* rank 0 has all
# of them again. This is a **gather**, the mirror image. The colour says whose numbers: in between each rank has made results of its part.

# %% name="start_world"
import math

import torch
import torch.distributed as dist

from allranks import Player, World, check, predict, predictions, schedules


world = World()
world

# %% [markdown] name="guess_intro"
# The link has 50 GB/s in each direction, and the latency of a message is 5 µs. Section 5 has the answer.

# %% name="first_guess"
first_guess = predict(
    "From how many actors on does the learner's link need more time than its GPU?",
    low=1,
    high=10000,
    log=True,
    title="Actors until the link is the bottleneck",
)
first_guess

# %% [markdown] name="promise"
# ## 1. What they promise
#
# - `dist.scatter(tensor, scatter_list, src)`: rank `src` has a list with one tensor for each rank; rank $r$ receives number $r$ in its `tensor`.
# - `dist.gather(tensor, gather_list, dst)`: every rank gives a `tensor`; rank `dst` receives that of rank $r$ in place $r$ of its `gather_list`.
#
# Only the root has a list. Here rank 0 hands out numbers, every rank squares its own, and the results come back:

# %% name="there_and_back"
# %%ranks
mine = torch.zeros(2)
parts = list(torch.arange(2.0 * world_size).chunk(world_size)) if rank == 0 else None
room = [torch.zeros(2) for _ in range(world_size)] if rank == 0 else None
dist.scatter(mine, parts, src=0)
print("my part", mine.tolist())
dist.gather(mine**2, room, dst=0)
if rank == 0:
    print("results", [tensor.tolist() for tensor in room])

# %% [markdown] name="promise_explained"
# Rank 0 also gets its own part, by a copy. The root's call looks different, but it is one collective, which every rank makes. What happens if the others
# give a list too?

# %% tags=["raises-exception"] name="too_many_lists"
# %%ranks --deadline 4
dist.scatter(mine, list(torch.arange(2.0 * world_size).chunk(world_size)), src=0)
print(mine.tolist())

# %% [markdown] name="lists_explained"
# The others found the mistake before they communicated and raised an error, so rank 0 waited for them. **An error on one rank makes another rank
# hang**: look for the rank that is *not* waiting.
#
# ### Parts of one size
#
# Both want tensors of the same size from all ranks. Into how many pieces do these two cut nine numbers?

# %% name="pieces"
nine = torch.arange(9)
print("chunk       ", [piece.tolist() for piece in nine.chunk(4)])
print("tensor_split", [piece.tolist() for piece in nine.tensor_split(4)])

# %% [markdown] name="pieces_explained"
# Both were asked for four. `chunk` makes pieces of 3, which is 9/4 rounded up, until nothing is left: three pieces. `tensor_split` makes four, of different
# sizes. So **pad** to a multiple of $p$ before a scatter, and cut the padding off afterwards.
#
# For a gather the lengths are often known only to their ranks: episodes differ. Here rank $r$ sends $r+1$ numbers, and rank 0 has the right room for each.

# %% tags=["raises-exception"] name="uneven_run"
# %%ranks --deadline 4
episode = torch.full((rank + 1,), float(rank))
room = [torch.zeros(r + 1) for r in range(world_size)] if rank == 0 else None
dist.gather(episode, room, dst=0)

# %% [markdown] name="uneven_explained"
# Only the root has the list, so only the root can see that the sizes differ: it raises an error, and the others wait for it. (With NCCL messages as short
# as these may fit into a buffer; then the others don't wait, and their numbers are lost.) Two ways out: pad to the largest length, which an `all_reduce`
# with `MAX` finds, and send the lengths too; or `gather_object`, which takes any Python object.

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
# `gather_object` pickles and unpickles: this is slower, uses the CPU, and a rank that sends a pickle can run code on the receiver. Use it for settings
# and reports, not for training data. [Uneven](../extras/62_uneven.ipynb) has all other ways.

# %% [markdown] name="memory"
# ## 2. Which memory do you hand over?
#
# A collective reads and writes *memory*. Two programs below look shorter than those above; which memory do they give? First, rank 0 makes the list for the gather in one line.

# %% name="guess_list"
guess_list = predict(
    "`room = [torch.zeros(1)] * world_size`, then a gather of 1, 2 and so on into it. What does rank 0 print?",
    choices=["1, 2 and so on", "the last rank's number everywhere", "zeros", "an error"],
    title="Gathered into `[torch.zeros(1)] * world_size`",
)
guess_list

# %% name="same_room"
# %%ranks
mine = torch.tensor([rank + 1.0])
room = [torch.zeros(1)] * world_size if rank == 0 else None
dist.gather(mine, room, dst=0)
if rank == 0:
    print([tensor.item() for tensor in room])

# %% name="reveal_list" jupyter={"source_hidden": true}
# the answer: run this cell
PICTURE = """<svg viewBox="0 0 372 96" width="372" height="96" font-size="13" fill="currentColor">
<text x="0" y="24" font-family="monospace">room[0]</text><text x="0" y="66" font-family="monospace">room[1]</text>
<g fill="none" stroke="currentColor" stroke-width="1.6"><path d="M64 20C96 20 100 36 142 36m-8-4 8 4-8 4"/>
<path d="M64 62C96 62 100 48 142 48m-8-4 8 4-8 4"/><rect x="146" y="18" width="72" height="50" rx="4"/></g>
<text x="182" y="48" text-anchor="middle" font-weight="600">last</text><text x="232" y="38">one memory,</text>
<text x="232" y="56">many names</text></svg>"""
guess_list.reveal(
    "the last rank's number everywhere",
    why="`[t] * p` is a list of p names for one tensor, so each piece overwrites the one before.",
    picture=PICTURE,
)

# %% [markdown] name="same_room_explained"
# (Gloo fills the list in rank order. With NCCL the pieces race each other, and another rank's may be the last.) Such second names are called **aliases**:
# `b = a` is one too, and so is a view such as `a[2:]`. A list comprehension makes a tensor for each rank, and `a.clone()` makes a copy.
#
# Second, rank 0 has a table with one column for each rank and scatters the columns. (The cell uses a group with Gloo and CPU tensors, as in
# [Point to point](../1_first_hours/03_point_to_point.ipynb).)

# %% name="guess_columns"
guess_columns = predict(
    "Rank 0 scatters the columns of a table with Gloo. What happens?",
    choices=["each rank gets its column", "an error", "wrong numbers"],
    title="Columns of a table, scattered",
)
guess_columns

# %% name="columns"
# %%ranks --deadline 4
gloo = dist.new_group(backend="gloo")
with torch.device("cpu"):
    column = torch.zeros(4, 1)
    columns = torch.arange(4.0 * world_size).view(4, world_size).chunk(world_size, dim=1)
dist.scatter(column, list(columns) if rank == 0 else None, src=0, group=gloo)
print("got ", column.view(-1).int().tolist())
print("want", columns[rank].reshape(-1).int().tolist())

# %% name="reveal_columns" jupyter={"source_hidden": true}
# the answer: run this cell
guess_columns.reveal(
    "wrong numbers",
    why="A column is a view with gaps, and Gloo (torch 2.13) takes the numbers that lie next to each other in memory.",
)

# %% [markdown] name="columns_explained"
# A tensor without gaps, row after row, is **contiguous**. A column, a transposed matrix, every second element are not. What happens to them depends on the call.
# Gloo's `send` refuses them, its `gather` makes a copy, and its `scatter`, `broadcast`, `reduce` and `all_reduce` take the wrong numbers
# (torch 2.13; [pytorch#192920](https://github.com/pytorch/pytorch/issues/192920)). Most of NCCL's collectives refuse them. But `send` over NCCL only warned before torch 2.15, and sent the
# memory as it lies ([pytorch#114982](https://github.com/pytorch/pytorch/pull/114982)). So give a collective `t.contiguous()`, which copies only if it must. Where the result must go back into
# a view, call the collective on the copy, then write it back: `table[:, 0] = column`. (A plain `t.clone()` keeps a transposed layout;
# `t.clone(memory_format=torch.contiguous_format)` makes a copy that is contiguous.)

# %% [markdown] name="learner"
# ## 3. A learner and its actors
#
# A slot machine has 10 arms; arm $i$ pays $i/9$ on average, with some noise. Rank 0 does not know this. In each round it hands 64 arms to each rank
# (scatter), every rank pulls its arms, and the rewards come back (gather). Then rank 0 raises the probability of the arms that paid more than the mean
# (REINFORCE, Williams 1992). Random play pays 0.5. What does the last of 60 rounds pay?


# %% name="actor_learner"
def play(rounds):
    rank, p = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    weights, pay, arms, parts, room = torch.zeros(10), [], torch.empty(64), None, None
    for _ in range(rounds):
        if rank == 0:
            chosen = torch.multinomial(weights.softmax(dim=0), 64 * p, replacement=True)
            parts, room = list(chosen.float().chunk(p)), [torch.empty(64) for _ in range(p)]
        dist.scatter(arms, parts, src=0)  # hand the work out
        rewards = arms / 9 + 0.1 * torch.randn(64)
        dist.gather(rewards, room, dst=0)  # collect the experience
        if rank == 0:
            learn(weights, chosen, torch.cat(room))
        pay.append(rewards.mean().item())
    return pay


def learn(weights, arms, rewards):
    better = torch.nn.functional.one_hot(arms, 10) - weights.softmax(dim=0)
    weights += 10 * ((rewards - rewards.mean())[:, None] * better).mean(dim=0)


pay = world.run(play, 60)
for r in (0, 5, 20, 59):
    print(f"round {r:2}: " + "  ".join(f"rank {rank} {history[r]:.2f}" for rank, history in enumerate(pay)))

# %% name="my_trace"
results, trace = world.trace(play, 3)
Player(trace)

# %% [markdown] name="trace_explained"
# `world.trace` runs a function like `world.run` and records what was sent: three rounds as they just ran, with this machine's times. Rank 0 learns between
# a gather and the next scatter, and all other ranks wait in that scatter: they work in rounds.
#
# ### Waiting for the slowest
#
# The last rank's episode takes 0.4 seconds longer. (If you have only two ranks, think of a third.) With a gather, when can the learner use rank 1's
# experience? It can also receive from whichever rank comes first; NCCL can't do that, so the cell uses Gloo.

# %% name="late"
# %%ranks
import time

gloo = dist.new_group(backend="gloo")
with torch.device("cpu"):
    x, room = (
        torch.tensor([float(rank)]),
        [torch.zeros(1) for _ in range(world_size)] if rank == 0 else None,
    )
    dist.all_reduce(torch.zeros(1), group=gloo)  # all begin together
begun_s, arrivals = time.perf_counter(), []
time.sleep(0.4 if rank == world_size - 1 else 0)
dist.gather(x, room, dst=0, group=gloo)
gathered_ms, begun_s = 1e3 * (time.perf_counter() - begun_s), time.perf_counter()
time.sleep(0.4 if rank == world_size - 1 else 0)
if rank == 0:
    for _ in range(world_size - 1):
        sender = dist.recv(x, group=gloo)
        arrivals.append((sender, 1e3 * (time.perf_counter() - begun_s)))
else:
    dist.send(x, dst=0, group=gloo)

# %% name="came"
print(f"the gather returned after {world['gathered_ms'][0]:.0f} ms, with everything")
print("whoever comes first: " + ", ".join(f"rank {r} after {ms:.0f} ms" for r, ms in world["arrivals"][0]))

# %% [markdown] name="late_explained"
# On the root a gather ends when the slowest rank has sent. If the learner takes messages in the order of arrival, it is always busy, but it learns
# from experience that was made with *older* weights than its own. In A3C (Mnih et al. 2016) there is no learner: each worker applies its
# gradients to shared weights, which others may have changed in the meantime. IMPALA (Espeholt et al. 2018) corrects for the age.

# %% [markdown] name="algorithms"
# ## 4. Flat and tree
#
# Flat: the root sends each rank its part. Tree: the root sends *about half of all parts* to one rank, which sends them on in the same way. Watch both.

# %% name="guess_root"
guess_root = predict(
    "With which of the two does the root send fewer bytes?",
    choices=["flat", "tree", "the same in both"],
    title="The root sends fewer bytes with",
)
guess_root

# %% name="watch"
Player(schedules.flat_scatter(8), schedules.binomial_scatter(8), nbytes=8_000)

# %% name="count"
print(f"{'ranks':>5}{'':4}{'':8}{'steps':>6}{'the root sends':>16}{'all ranks send':>16}")
for p in (8, 64):
    for name, schedule in (("flat", schedules.flat_scatter(p)), ("tree", schedules.binomial_scatter(p))):
        sent = schedule.bytes_sent(p * 1000)
        print(f"{p:5}{'':4}{name:8}{schedule.steps:6}{sent[0] / 1000:10.0f} parts{sum(sent) / 1000:10.0f} parts")

# %% name="reveal_root" jupyter={"source_hidden": true}
# the answer: run this cell
guess_root.reveal(
    "the same in both",
    why="A rank that forwards a part must get it first, so each part but the root's own leaves the root once in both.",
)

# %% [markdown] name="mirror"
# A gather is this film backwards: the same messages, with sender and receiver exchanged. The next line compares them.

# %% name="backwards"
there = {(move.src, move.dst, move.chunks) for move in schedules.binomial_scatter(64).moves}
back = {(move.dst, move.src, move.chunks) for move in schedules.binomial_gather(64).moves}
print(there == back)

# %% [markdown] name="algorithms_explained"
# So both have the same price. Let $n$ be the bytes of all $p$ parts:
#
# $$T_\text{flat} = (p-1)\,\alpha + \frac{p-1}{p}\,n\beta \qquad T_\text{tree} = \lceil\lg p\rceil\,\alpha + \frac{p-1}{p}\,n\beta$$
#
# Every part except the root's own must pass the root's link, so both reach the lower bound for bytes. The tree saves *messages*; in exchange some bytes
# travel several times, but on links that are otherwise idle. For short parts it is much faster, for long ones not at all:

# %% name="prices"
alpha, beta = 5e-6, 1 / 50e9
for part in (100, 10_000_000):
    flat, tree = (make(64).price(64 * part, alpha, beta) for make in (schedules.flat_gather, schedules.binomial_gather))
    print(f"64 ranks, parts of {part:8} bytes: flat {1e3 * flat:7.3f} ms, tree {1e3 * tree:7.3f} ms")

# %% [markdown] name="question"
# ## 5. The question
#
# Note what $n$ is. If each actor sends $m$ bytes, then $n = pm$, and the root receives $(p-1)\,m$ bytes, which **grows with the number of ranks**. In
# [Broadcast](10_broadcast.ipynb) $n$ was a property of the model and did not grow.

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
    why="All messages end at one link, one after the other, and each takes 0.2 ms of the 50.",
)

# %% [markdown] name="answer_explained"
# In networking this is called *incast*: many senders, one receiver. A faster algorithm can't help, because the root's link is busy all the time. You must
# change *what is sent*. If the learner *adds* what it gets, as with gradients, other ranks can add before they send. Say that 512 ranks have a gradient
# of 10 MB each.

# %% name="guess_less"
guess_less = predict(
    "512 gradients of 10 MB are reduced by a tree. How many MB does the root receive? (Gathered, it would be 5110.)",
    low=1,
    high=10000,
    unit="MB",
    log=True,
    title="MB into the root if 512 gradients are reduced",
)
guess_less

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
guess_less.reveal(
    into_root(schedules.binomial_reduce(512), m) / 1e6,
    why="The root receives one sum of 10 MB in each round of the tree, and 512 ranks need nine rounds.",
    marks={"gathered": 5110},
)

# %% [markdown] name="less_explained"
# Large-scale deep learning began with this pattern: workers sent gradients to **parameter servers** and fetched weights (Li et al. 2014, and before
# it Dean et al. 2012). The servers' links were full, so there were many servers, each for a slice of the weights. If every worker is the server of
# one slice, this is an [all-reduce](../1_first_hours/04_all_reduce.ipynb). Experience can't be added, so actor-learner systems compress it, or have several learners.
#
# ### From one rank to all
#
# Rank 0 has read an embedding table of 64 GB, and each of 64 ranks keeps one 64th of it.

# %% name="guess_faster"
guess_faster = predict(
    "How many times faster is it to scatter the table than to broadcast all of it by the best broadcast, the chain?",
    low=0.5,
    high=100,
    log=True,
    title="The scatter is faster by",
)
guess_faster

# %% name="faster"
p, n = 64, 64e9
scatter = math.log2(p) * alpha + (p - 1) / p * n * beta
broadcast = (math.sqrt((p - 2) * alpha) + math.sqrt(n * beta)) ** 2
print(f"broadcast, chain:  {broadcast:7.3f} s")
print(f"scatter, tree:     {scatter:7.3f} s: {broadcast / scatter:.2f} times as fast")

# %% name="reveal_faster" jupyter={"source_hidden": true}
# the answer: run this cell
guess_faster.reveal(
    broadcast / scatter,
    why="The root's link is the bottleneck in both, and nearly the same bytes must leave it: 63 GB or 64 GB.",
    marks={"64 ranks": 64},
    it=f"{broadcast / scatter:.2f} times",
)

# %% [markdown] name="faster_explained"
# So why scatter? For **memory**: afterwards a rank holds 1 GB and not 64. If you need *speed*, don't start from one rank: if each of 64 ranks reads a
# 64th of the file, they use 64 links. The same holds for a data set: every rank computes which samples are its own, and no message is needed.

# %% name="sampler"
# %%ranks
from torch.utils.data import DistributedSampler

sampler = DistributedSampler(range(2 * world_size + 1), num_replicas=world_size, rank=rank, shuffle=False)
print(list(sampler))

# %% [markdown] name="sampler_explained"
# Of $2p+1$ samples each rank gets three. That makes $3p$, so $p-1$ samples are given to two ranks: every rank must make the same number of steps, or the last all-reduce waits for ever. (`drop_last=True`
# leaves some out instead.) In training this does no harm; an accuracy over a test set counts these samples twice.

# %% [markdown] name="measure"
# ## 6. Measured here
#
# A scatter of 4 MB to each rank and a gather of 4 MB from each, among 2 ranks, 3 ranks, and so on, by `bench.seconds_of`. $\alpha$ is measured with 4 bytes, $\beta$ with the gather of two ranks; all other figures test the model.


# %% name="timings"
# %%ranks
from allranks import bench


def calls(group, nbytes):
    """A scatter and a gather in the group; on the ranks outside, nothing."""
    if rank not in (members := dist.get_process_group_ranks(group)):
        return [lambda: None] * 2
    x = torch.zeros(nbytes // 4)
    many = [torch.zeros_like(x) for _ in members] if rank == 0 else None
    return [
        lambda: dist.scatter(x, many, src=0, group=group),
        lambda: dist.gather(x, many, dst=0, group=group),
    ]


groups = [dist.new_group(list(range(p))) for p in range(2, world_size + 1)]
times = [bench.seconds_of(*calls(group, 4), *calls(group, 4_000_000), iterations=15) for group in groups]

# %% name="table"
times, m = world["times"][0], 4_000_000
alpha = times[0][1]
beta = (times[0][3] - alpha) / m
print(f"alpha = {1e6 * alpha:.0f} µs, 1/beta = {1e-9 / beta:.2f} GB/s\n")
print(f"{'ranks':>5}{'scatter ms':>12}{'gather ms':>11}{'model ms':>10}{'gather/model':>14}")
for p, (_, _, scatter, gather) in enumerate(times, start=2):
    model = (p - 1) * (alpha + m * beta)
    print(f"{p:5}{1e3 * scatter:12.3f}{1e3 * gather:11.3f}{1e3 * model:10.3f}{gather / model:14.2f}")

# %% [markdown] name="measure_explained"
# Both grow with the number of ranks, because all messages pass the root. (`seconds_of`
# gives medians, so $\alpha$ and $\beta$ include the usual disturbance.) A ratio below 1 suggests that the other ranks' work (copying, waking up) overlapped with the root's; above 1, that too few cores had to do all the work.
# (With two ranks the table has one row, and only the scatter tests the model.)

# %% [markdown] name="where"
# ## 7. Find it in torch
#
# **Your task.** Open `torch/distributed/checkpoint/utils.py` (`python -c "import torch; print(torch.__path__[0])"` says in which folder torch is) and look for `reduce_scatter`. `torch.distributed.checkpoint` makes a plan before it saves. What does it gather, where, and what goes back? (The name is that of a helper; it is not the collective.)
#
# <details><summary><b>Answer</b></summary>
#
# It gathers an object of each rank on one coordinator, which makes the global plan, and scatters to each rank its part.
# </details>
#
# You also meet it here:
#
# - **Actor-learner RL**: work goes out, experience comes back. In RL for language models: prompts out; answers and their rewards back to the trainer.
# - **Loading sharded models** from one reader: `distribute_tensor` of DTensor scatters rank 0's tensor over a mesh.
# - **Serving**: one rank receives the requests and scatters them.
# - **Evaluation**: predictions to rank 0, which computes a score that is no sum (a ranking, an AUC).
# - **Logging and checkpoints**: reports of all ranks with `gather_object`; a full state for one file. (In a sharded checkpoint each rank writes its own part.)
# - **Inside other collectives**: van de Geijn's broadcast is a scatter and an all-gather; a reduce-scatter is a scatter of sums.
#
# NCCL itself has `ncclScatter` and `ncclGather` since 2.28.3. torch's own (`nccl.cpp`, as we read it) are sends and receives in one group.

# %% [markdown] name="yours"
# ## 8. Your turn: which rank has the largest?
#
# Each rank has a tensor of rewards, and their lengths may differ. `distributed_argmax` must return on *every* rank the largest value, the rank that
# has it, and its index there. This version collects all tensors on all ranks: `all_gather` is a gather
# whose list every rank gets ([All-gather](13_all_gather.ipynb)). **Send less**: 16 bytes from each rank are enough. (If several values
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
# <details><summary>1. 256 ranks must get 4 bytes each. Flat or tree?</summary>
#
# Tree: 8 latencies one after the other instead of 255. The bytes do not matter.
# </details>
#
# <details><summary>2. 100 actors send 1 MB each, then 200 actors send 1 MB each. How does the time of the gather change, flat and tree?</summary>
#
# It doubles with both: the learner's link carries 100 MB, then 200 MB. Only the latencies differ.
# </details>
#
# <details><summary>3. A learner gathers the gradients of all actors and averages them. What would you change?</summary>
#
# Reduce instead of gather, or all-reduce if all ranks need the result. Then the root's link carries a few gradients instead of all.
# </details>
#
# <details><summary>4. After a gather the ranks other than the root use their list. What is in it?</summary>
#
# They have none. If all ranks need the result, use an all-gather.
# </details>

# %% [markdown] name="recap"
# ## Recap
#
# A scatter gives rank $r$ part $r$ of the root's list; a gather puts the tensors of all ranks into a list on the root. One is the other backwards. Parts
# have one size and are contiguous, and each place of a list is a tensor of its own. A tree saves messages, but with any algorithm all parts pass
# the root's link. **Scatter what does not fit on one rank. If the root only adds what it gathers, use a reduce instead.**
#
# **Now you:** [Lab 2](../../labs/lab02_rooted/rooted.ipynb) asks for both by hand, without points. [Lab 3](../../labs/lab03_all_reduce/all_reduce.ipynb) grades
# `distributed_argmax`, with ties and NaNs.
#
# **Next question:** what if the root needs only the sum? What do the others hold then? [Reduce](12_reduce.ipynb). The core goes on with
# [Reduce-scatter](14_reduce_scatter.ipynb).
#
# **Sources.** R. Thakur, R. Rabenseifner, W. Gropp, *Optimization of Collective Communication Operations in MPICH*, Int. J. High Performance Computing Applications 19(1), 2005 ·
# E. Chan et al., *Collective communication: theory, practice, and experience*, Concurrency and Computation 19(13), 2007 (lower bounds) ·
# M. Li et al., *Scaling Distributed Machine Learning with the Parameter Server*, OSDI 2014 · J. Dean et al., *Large Scale Distributed Deep Networks*, NeurIPS 2012 ·
# V. Mnih et al., *Asynchronous Methods for Deep Reinforcement Learning*, [arXiv:1602.01783](https://arxiv.org/abs/1602.01783) ·
# L. Espeholt et al., *IMPALA*, [arXiv:1802.01561](https://arxiv.org/abs/1802.01561) ·
# R. Williams, *Simple Statistical Gradient-Following Algorithms for Connectionist Reinforcement Learning*, Machine Learning 8, 1992 ·
# [PyTorch, torch.distributed](https://docs.pytorch.org/docs/stable/distributed.html) ·
# [PyTorch, torch.utils.data](https://docs.pytorch.org/docs/stable/data.html) (DistributedSampler) ·
# [PyTorch, DTensor](https://docs.pytorch.org/docs/stable/distributed.tensor.html)

# %% name="what_you_knew"
predictions()

# %% name="stop_world"
world.stop()

# %% name="done"
from allranks import done

done("11")
