# %% [markdown] name="title"
# # Scatter
#
# **Rank 0 has read an embedding table of 64 GB. Each of 64 ranks keeps one 64th of it. How many times faster is it to scatter the table than to broadcast all of it to all ranks?**
#
# 30 minutes · CPU ok, 2 or more GPUs better · before it: [Broadcast](03_broadcast.ipynb)
#
# {{picture}}
#
# *Above:* rank 0 has all parts. *Below:* each rank has its own. The colour says whose numbers.

# %% name="start_world"
import math

import torch
import torch.distributed as dist

from allranks import Player, World, predict, predictions, schedules
from allranks.wire import run


world = World()
world

# %% [markdown] name="guess_intro"
# A broadcast gives every rank 64 GB, a scatter 1 GB. All links are alike, 50 GB/s. Section 4 has the answer.

# %% name="first_guess"
first_guess = predict(
    "How many times faster is the scatter than the best broadcast?",
    low=0.5,
    high=100,
    log=True,
    title="The scatter is faster by",
)
first_guess

# %% [markdown] name="promise"
# ## 1. What it promises
#
# `dist.scatter(tensor, scatter_list, src)`: rank `src` provides a list with one tensor for each rank, and rank $r$ receives number $r$ of the list in
# its `tensor`. The other ranks provide no list, only the tensor to receive into.

# %% name="first_scatter"
# %%ranks
mine = torch.zeros(2)
if rank == 0:
    table = torch.arange(2.0 * world_size)
    dist.scatter(mine, list(table.chunk(world_size)), src=0)
else:
    dist.scatter(mine, src=0)
print(mine.tolist())

# %% [markdown] name="promise_explained"
# Rank 0 also gets its own part, by a copy. The call looks different on the root, but it is one collective. Two branches with the same collective are
# fine, as long as every rank makes the same *sequence* of collectives.
#
# Programs often write `scatter_list=parts if rank == 0 else None`. What happens if the others pass a list too?

# %% tags=["raises-exception"] name="too_many_lists"
# %%ranks --deadline 4
mine, table = torch.zeros(2), torch.arange(2.0 * world_size)
dist.scatter(mine, list(table.chunk(world_size)), src=0)
print(mine.tolist())

# %% [markdown] name="lists_explained"
# The others found the mistake before they communicated and raised an error, so rank 0 waited for them. **An error on one rank makes another rank
# hang**: look for the rank that is *not* waiting.

# %% [markdown] name="parts"
# ## 2. Cutting the parts
#
# `scatter` needs parts of the same size, one for each rank.

# %% name="guess_pieces"
guess = predict(
    "How many pieces do `chunk(4)` and `tensor_split(4)` make of 9 numbers?",
    choices=["4 and 4", "3 and 4", "4 and 3"],
    title="`chunk(4)` and `tensor_split(4)` of 9 numbers",
)
guess

# %% name="pieces"
nine = torch.arange(9)
print("chunk       ", [piece.tolist() for piece in nine.chunk(4)])
print("tensor_split", [piece.tolist() for piece in nine.tensor_split(4)])

# %% name="reveal_pieces" jupyter={"source_hidden": true}
# the answer: run this cell
guess.reveal(
    "3 and 4",
    usual="4 and 4",
    why="both are asked for four. But `chunk` makes pieces of 3, which is 9/4 rounded up, until nothing is left: after three pieces nothing is.",
)

# %% [markdown] name="pieces_explained"
# `tensor_split` always makes as many pieces
# as you ask for, but of different sizes. For a scatter, **pad** to a multiple of $p$ and remove the padding afterwards.
#
# Now take a table with 4 rows and one column for each rank; rank $r$ must get column $r$. The cell uses a group with Gloo and CPU tensors, as in
# [Point to point](02_point_to_point.ipynb), because NCCL refuses it.

# %% name="guess_columns"
guess = predict(
    "Rank 0 scatters the columns of a table with Gloo. What happens?",
    choices=["nothing", "it raises an error", "ranks get wrong numbers"],
    title="Columns of a table, scattered",
)
guess

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
guess.reveal(
    "ranks get wrong numbers",
    usual="nothing goes wrong",
    why="each piece has the right shape. But a column is a view with gaps, and Gloo (torch 2.13) took the numbers that lie next to each other in memory.",
)

# %% [markdown] name="columns_explained"
# NCCL takes only contiguous tensors: there the root raises an error, and the others wait for it, because only the root has
# the list. Give collectives contiguous tensors: `[column.contiguous() for column in columns]`. This mistake is common when a weight matrix is split by
# columns.

# %% [markdown] name="algorithms"
# ## 3. Flat and tree
#
# Flat: the root sends each rank its part. Tree: the root sends *half of all parts* to one rank, which sends them on in the same way. Watch both.

# %% name="guess_root"
guess = predict(
    "With which of the two does the root send fewer bytes?",
    choices=["flat", "tree", "the same in both"],
    title="The root sends fewer bytes with",
)
guess

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
guess.reveal(
    "the same in both",
    usual="tree",
    why="the root sends fewer messages there. But they are longer: whoever forwards a part must get it first, so each part but the root's own leaves the root once in both.",
)

# %% [markdown] name="algorithms_explained"
# The root must send every part except its own, $\frac{p-1}{p}n$ bytes, and with both algorithms it sends each part once. The tree saves *messages*:
# it needs $\lceil\lg p\rceil$ instead of $p-1$. In exchange some bytes travel twice or more, but on links that are otherwise idle:
#
# $$T_\text{flat} = (p-1)\,\alpha + \frac{p-1}{p}\,n\beta \qquad T_\text{tree} = \lceil\lg p\rceil\,\alpha + \frac{p-1}{p}\,n\beta$$
#
# Both reach the lower bound for bytes. So for long tables the tree is not faster; for short ones it is much faster:

# %% name="prices"
alpha, beta = 5e-6, 1 / 50e9
for n in (64_000, 64_000_000, 64_000_000_000):
    flat, tree = (make(64).price(n, alpha, beta) for make in (schedules.flat_scatter, schedules.binomial_scatter))
    print(f"{n / 1e6:9.3f} MB to 64 ranks: flat {1e3 * flat:9.3f} ms, tree {1e3 * tree:9.3f} ms")

# %% [markdown] name="question"
# ## 4. The question
#
# The best broadcast for a long tensor was the chain of segments, which takes $(\sqrt{(p-2)\alpha} + \sqrt{n\beta})^2$. We compare it with the scatter by a tree.

# %% name="answer"
p, n = 64, 64e9
scatter = math.log2(p) * alpha + (p - 1) / p * n * beta
broadcast = (math.sqrt((p - 2) * alpha) + math.sqrt(n * beta)) ** 2
print(f"broadcast, flat:   {(p - 1) * (alpha + n * beta):7.3f} s")
print(f"broadcast, chain:  {broadcast:7.3f} s")
print(f"scatter:           {scatter:7.3f} s")
print(f"scattering is {broadcast / scatter:.2f} times as fast as the chain")

# %% name="reveal_answer" jupyter={"source_hidden": true}
# the answer: run this cell
first_guess.reveal(
    broadcast / scatter,
    usual="64",
    why="each rank gets a 64th of the bytes. But the root's link is the bottleneck, and all 64 GB must leave it once in both cases.",
    marks={"64 ranks": 64},
    it=f"{broadcast / scatter:.2f} times",
)

# %% [markdown] name="answer_explained"
# So why scatter? For **memory**: afterwards a rank holds 1 GB and not 64. And it keeps the other ranks' links free, which a broadcast uses all the
# time. If you need *speed*, don't start from one rank: if each of 64 ranks reads a 64th of the file, they use 64 links.

# %% [markdown] name="measure"
# ### Measured here
#
# The same comparison on your ranks, 16 MB in all. `bench.seconds_of` runs on every rank: all begin together, and it gives the median of 20 times of
# the slowest rank. Is the scatter again about as slow as the broadcast?

# %% name="timings"
# %%ranks
from allranks import bench

n = 4_000_000 // world_size * world_size
whole, part = torch.zeros(n), torch.zeros(n // world_size)
parts = list(whole.chunk(world_size)) if rank == 0 else None
broadcast_s, scatter_s = bench.seconds_of(
    lambda: dist.broadcast(whole, src=0), lambda: dist.scatter(part, parts, src=0), iterations=20
)

# %% name="measured"
p, b, s = world.ranks, world["broadcast_s"][0], world["scatter_s"][0]
print(f"broadcast {1e3 * b:.3g} ms, scatter {1e3 * s:.3g} ms: {b / s:.1f} times")
print(f"model, a link for each rank:        {p / (p - 1):.1f} times (n against n (p-1)/p)")
print(f"model, all ranks share one memory:  {p:.1f} times (n (p-1) against n (p-1)/p)")

# %% [markdown] name="measured_explained"
# The first model is that of section 4, for long tensors. (With two ranks both models say 2.) With CPU processes the result is usually nearer to the second: the ranks have no separate
# links, and a few cores copy all messages through one memory, so the time depends on the **total** of all bytes. A broadcast moves $n(p-1)$ in all, a
# scatter $n\frac{p-1}{p}$.
#
# The bottleneck decides which model holds. Always ask what the ranks share.

# %% [markdown] name="together"
# ## 5. Scatter, then all-gather
#
# If each rank has one part, and then all ranks exchange their parts, every rank has all parts.

# %% name="guess_together"
guess = predict(
    "A scatter, then an all-gather of the parts: which collective does the same?",
    choices=["all_reduce", "broadcast", "all_to_all", "gather"],
    title="Scatter, then all-gather is a",
)
guess

# %% name="together_run"
# %%ranks
table, mine = torch.arange(2.0 * world_size), torch.zeros(2)
if rank != 0:
    table.zero_()
dist.scatter(mine, list(table.chunk(world_size)) if rank == 0 else None, src=0)
dist.all_gather(list(table.chunk(world_size)), mine)
print(table.tolist())

# %% name="reveal_together" jupyter={"source_hidden": true}
# the answer: run this cell
guess.reveal(
    "broadcast",
    usual="all_to_all",
    why="in the end everybody has got something from everybody. But all of it came from one rank: every rank now holds what the root had.",
)

# %% [markdown] name="together_explained"
# It is a good one: the root sends each byte once, then all links are used. It takes $2\frac{p-1}{p}n\beta$ plus latencies; it is van
# de Geijn's algorithm of the last chapter. (The pieces of `table` are views of it, so a number that is written to a piece is in the table.)

# %% [markdown] name="datasets"
# ## 6. Not for data sets
#
# It seems natural to let rank 0 read the data and scatter the batches. But then one rank reads, decodes and sends for all ranks in every step. The
# usual way needs no message: every rank computes which samples belong to it.

# %% name="guess_sampler"
guess = predict(
    "`DistributedSampler` distributes 2p + 1 samples over p ranks. How many does each rank get?",
    choices=["2 or 3, each sample once", "3, some samples twice", "2, some samples left out"],
    title="2p + 1 samples over p ranks: each gets",
)
guess

# %% name="sampler"
# %%ranks
from torch.utils.data import DistributedSampler

sampler = DistributedSampler(range(2 * world_size + 1), num_replicas=world_size, rank=rank, shuffle=False)
print(list(sampler))

# %% name="reveal_sampler" jupyter={"source_hidden": true}
# the answer: run this cell
guess.reveal(
    "3, some samples twice",
    usual="2 or 3, each sample once",
    why="that is how one would share them. But every rank must make the same number of steps, or the last all-reduce waits for ever.",
)

# %% [markdown] name="sampler_explained"
# The sampler repeats samples from the beginning
# (`drop_last=True` leaves some out instead). This does no harm in training. But an accuracy over a test set counts these samples twice.

# %% [markdown] name="where"
# ## 7. Where you meet it
#
# - **Loading sharded models** from one reader: `distribute_tensor` of DTensor scatters rank 0's tensor over a mesh.
# - **Parameter servers**: each worker gets its slice of work or weights.
# - **Serving**: one rank receives the requests and scatters them.
# - **Inside other collectives**: in van de Geijn's broadcast; and reduce-scatter is a scatter of sums.
#
# NCCL has `ncclScatter` only since 2.28.3; before that a scatter over NCCL was a group of sends and receives.

# %% [markdown] name="yours"
# ## 8. Your turn: a scatter by a tree
#
# This function is flat. `whole` holds `p` parts of `len(output)` numbers on rank 0 and is `None` elsewhere. **Make it a tree**: in the first round
# rank 0 sends the upper half of the parts to the rank in the middle. The cell
# below it runs your function on the wire, compares what arrives, and counts rounds and rank 0's messages.


# %% name="tree_scatter"
def tree_scatter(output, whole):
    rank, p, m = dist.get_rank(), dist.get_world_size(), len(output)
    if rank == 0:
        for other in range(1, p):
            dist.send(whole[other * m : (other + 1) * m], other)
        output.copy_(whole[:m])
    else:
        dist.recv(output, 0)
    return output


# %% name="judge"
print(f"{'ranks':>5}{'':3}{'result':8}{'rounds':>7}{'at best':>9}{'messages of rank 0':>20}")
for p in (2, 3, 4, 5, 8):
    whole = torch.arange(3.0 * p)
    inputs = [(torch.zeros(3), whole if rank == 0 else None) for rank in range(p)]
    outcome = run(tree_scatter, ranks=p, per_rank=inputs, alpha=1, beta=0)
    if outcome.failure:
        print(f"{p:5}   {outcome.failure}")
        continue
    right = all(torch.equal(r, part) for r, part in zip(outcome.results, whole.chunk(p), strict=True))
    first = sum(message.src == 0 for message in outcome.trace.messages())
    best = math.ceil(math.log2(p))
    print(f"{p:5}{'':3}{'right' if right else 'WRONG':8}{float(outcome.seconds):7g}{best:9}{first:20}")

# %% [markdown] name="tree_answer"
# <details><summary><b>A hint</b></summary>
#
# Let `distance` be the largest power of two below `p`, and halve it in each round. A rank that is a multiple of `2 * distance` sends all its parts from number `distance` on to `rank + distance`, if there is such a rank,
# and keeps the others. The receiver gets one part for itself and for each rank after it, but at most `distance` parts.
# </details>
# <details><summary><b>An answer</b></summary>
#
# ```python
# def tree_scatter(output, whole):
#     rank, p, m = dist.get_rank(), dist.get_world_size(), len(output)
#     distance = 2 ** (p - 1).bit_length()
#     held = whole
#     while distance > 1:
#         distance //= 2
#         if rank % (2 * distance) == 0 and rank + distance < p:
#             dist.send(held[distance * m :], rank + distance)
#             held = held[: distance * m]
#         elif rank % (2 * distance) == distance:
#             held = output.new_empty(min(distance, p - rank) * m)
#             dist.recv(held, rank - distance)
#     return output.copy_(held[:m])
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
# <details><summary>2. A scatter of 100 GB takes 2 s on links of 50 GB/s. Which algorithm would be faster?</summary>
#
# None, because the root's link is busy all the time. Only a scatter from several roots would be faster.
# </details>
#
# <details><summary>3. In a tree some parts travel three times. Why doesn't that cost time?</summary>
#
# These transfers happen at the same time on different links. They cost time if links are shared, as between processes of one machine.
# </details>

# %% [markdown] name="recap"
# ## Recap
#
# A scatter gives rank $r$ part $r$ of the root's list; parts have one size and are contiguous in memory, and only the root provides the list. A tree
# needs fewer messages than a flat scatter, but with both the root's link carries $\frac{p-1}{p}n$ bytes, so a long scatter is hardly faster than a
# pipelined broadcast. **Scatter to save memory; to save time, don't start from one rank.**
#
# **Next question:** the opposite direction. Hundreds of actors send data to one learner. When is its link full? The next chapter is [Gather](05_gather.ipynb).
#
# **Sources.** R. Thakur, R. Rabenseifner, W. Gropp, *Optimization of Collective Communication Operations in MPICH*, Int. J. High Performance Computing Applications 19(1), 2005 (costs) ·
# E. Chan et al., *Collective communication: theory, practice, and experience*, Concurrency and Computation 19(13), 2007 (lower bounds) ·
# M. Barnett et al., *Interprocessor Collective Communication Library (InterCom)*, SHPCC 1994 (van de Geijn's broadcast) ·
# [PyTorch, torch.distributed](https://docs.pytorch.org/docs/stable/distributed.html) ·
# [PyTorch, torch.utils.data](https://docs.pytorch.org/docs/stable/data.html) (DistributedSampler) ·
# [PyTorch, DTensor](https://docs.pytorch.org/docs/stable/distributed.tensor.html)

# %% name="what_you_knew"
predictions()

# %% name="stop_world"
world.stop()
