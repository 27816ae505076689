# %% [markdown] name="title"
# # Lab 4: other ways to all-reduce
#
# **The ring needs 1022 steps on 512 ranks, one after the other, even for a single number. Can you do it in 9? And what if the ranks are in nodes, with a slow network between the nodes?**
#
# | you write | difficulty | minutes | points |
# |---|---|---|---|
# | `recursive_doubling_all_reduce` | medium to hard | 40 | 6 |
# | `hierarchical_all_reduce` | hard | 45 | 6 |
# | one answer in words | medium | 10 | 2 |
#
# CPU ok. The chapter *All-reduce algorithms* has the pictures, *Reduce-scatter* and *Barrier and groups* explain the parts of the second exercise; in this notebook you write the code.

# %% [markdown] name="rules"
# **Three rules that matter here**
#
# - Each exercise is right for any number of ranks from 1 up, any shape, any dtype that can be added, and sizes that the number of ranks does not divide.
# - The first is written with sends and receives, the second with these or with collectives on groups that you make.
# - Every message is counted, and a send may wait until its receiver is ready.
#
# {{contract.md}}

# %% nbgrader={"grade_id": "imports", "locked": true}
import torch
import torch.distributed as dist

from allranks import Player, World, check, schedules

# %% [markdown] name="live"
# ## A world to try things in
#
# `World` starts one process, a *rank*, on each GPU if there are at least two GPUs; otherwise four ranks on the CPU. On GPUs (NCCL) a circle of `isend`
# and `recv` can hang where it does not on the CPU (gloo): put sends and receives that belong together into one batch, `dist.batch_isend_irecv`, or
# start `World(backend="gloo")` instead.

# %% name="start_world"
world = World()
world

# %% [markdown] name="predict"
# Rank $r$ holds $10^r$. It swaps numbers with the rank whose number differs in the lowest bit (`rank ^ 1`) and adds the number that it receives. (With an
# odd number of ranks the last one has no partner.) What do ranks 0 and 1 print? And with four ranks: with which rank must each rank swap next, so that
# all hold 1111? Write it down first.

# %% name="prediction"
prediction = {"rank 0": 0, "rank 1": 0, "next partners of ranks 0, 1, 2, 3": [0, 0, 0, 0]}

# %% name="one_swap"
# %%ranks
x, partner = torch.tensor([10.0**rank]), rank ^ 1
arrived = torch.zeros(1)
if partner < world_size:
    swap = [dist.P2POp(dist.isend, x, partner), dist.P2POp(dist.irecv, arrived, partner)]
    for work in dist.batch_isend_irecv(swap):
        work.wait()
x += arrived
print(int(x.item()))

# %% [markdown] name="doubling_task"
# ## 1. Recursive doubling
#
# In round $i$ swap the whole vector with the rank whose number differs in bit $i$, and add. After each round you hold the sum of twice as many ranks, so there are $\lg p$ rounds.

# %% name="watch_doubling"
Player(schedules.recursive_doubling_all_reduce(ranks=8))

# %% [markdown] name="fold"
# That works for powers of two. For any other $p$ let $q$ be the largest power of two below it, so that $e = p-q$ ranks are too many. *Fold* them:
# each of them sends its vector to a partner, waits during the $\lg q$ rounds, and gets the result at the end. You can choose which ranks wait;
# $\lceil\lg p\rceil+2$ rounds are allowed. Watch 6 ranks: which ranks wait here?

# %% name="watch_fold"
Player(schedules.recursive_doubling_all_reduce(ranks=6))

# %% [markdown] name="doubling_traps"
# `check` recognizes two common mistakes:
#
# - You must not change the tensor that you send before `wait()`, so receive into another buffer and add afterwards.
# - Two ranks that swap by *send, then receive* wait for each other: put both into one batch, as in the cell above.


# %% nbgrader={"grade_id": "recursive_doubling_all_reduce", "solution": true}
def recursive_doubling_all_reduce(tensor: torch.Tensor) -> None:
    """Replaces `tensor` by its sum over all ranks, in place, in ceil(lg p) + 2 rounds at most; every rank calls it."""
    ### BEGIN SOLUTION
    rank, p = dist.get_rank(), dist.get_world_size()
    q = 1 << (p.bit_length() - 1)  # the largest power of two up to p
    total = tensor.clone(memory_format=torch.contiguous_format)
    arrived = torch.empty_like(total)
    if rank >= q:  # too many: hand over, and wait for the result
        dist.send(total, rank - q)
        dist.recv(total, rank - q)
    else:
        if rank + q < p:
            dist.recv(arrived, rank + q)
            total += arrived
        bit = 1
        while bit < q:
            swap = [dist.P2POp(dist.isend, total, rank ^ bit), dist.P2POp(dist.irecv, arrived, rank ^ bit)]
            for work in dist.batch_isend_irecv(swap):
                work.wait()
            total += arrived
            bit *= 2
        if rank + q < p:
            dist.send(total, rank + q)
    tensor.copy_(total)
    ### END SOLUTION


# %% name="check_doubling"
check(recursive_doubling_all_reduce)

# %% [markdown] name="doubling_live"
# Run it on the live world, and watch your own messages.


# %% name="try_doubling"
def doubling_of_ranks():
    mine = torch.full((3,), 10.0 ** dist.get_rank())
    recursive_doubling_all_reduce(mine)
    return mine


results, trace = world.trace(doubling_of_ranks, deadline=20)
print([t.tolist() for t in results])
Player(trace)

# %% [markdown] name="nodes_task"
# ## 2. All-reduce in two levels
#
# Real clusters have nodes: $g$ GPUs connected by NVLink, and $m$ nodes connected by a network that is at least ten times slower. Then the bytes that
# each rank sends *to another node* matter most.
#
# **Predict**, for 2 nodes of 4 ranks and a vector of $n$ bytes: how many of the $n$ bytes does the busiest rank send to the other
# node in a ring, and in recursive doubling? Then run the cell. (In `leader`, only one rank of each node communicates with other nodes.)


# %% name="between_nodes"
def busiest_between_nodes(schedule, ranks_per_node, nbytes):
    """Bytes that the busiest rank sends to other nodes."""
    lengths = schedule.chunk_nbytes(nbytes)
    sent = [0] * schedule.ranks
    for move in schedule.moves:
        if move.src // ranks_per_node != move.dst // ranks_per_node:
            sent[move.src] += sum(lengths[chunk] for chunk in move.chunks)
    return max(sent)


for schedule in (
    schedules.ring_all_reduce(8),
    schedules.recursive_doubling_all_reduce(8),
    schedules.leader_all_reduce(8, ranks_per_node=4),
    schedules.hierarchical_all_reduce(8, ranks_per_node=4),
):
    print(f"{schedule.algorithm:20} {busiest_between_nodes(schedule, 4, 8000) / 8000:.2f} n")

# %% [markdown] name="nodes_how"
# The last line comes from three steps:
#
# 1. **Reduce-scatter inside each node**: each of its $g$ ranks then holds $1/g$ of the node's sum.
# 2. **All-reduce between nodes**, among the ranks with the same place in their nodes: $g$ all-reduces at once, each with only $n/g$ bytes.
# 3. **All-gather inside each node.**
#
# Node $i$ has the ranks $ig$ to $(i+1)g-1$, and $g$ divides $p$.

# %% name="watch_hierarchical"
Player(schedules.hierarchical_all_reduce(ranks=8, ranks_per_node=4))

# %% [markdown] name="nodes_tools"
# Here you may use collectives on groups that you make: `dist.new_group([0, 1])` makes one, and then only its members call `dist.all_reduce(x, group=group)`. Avoid three common mistakes:
#
# - `new_group` is itself collective: **every** rank calls it for **every** group, in the same order, members or not.
# - `reduce_scatter` and `all_gather` need chunks of equal length: pad with zeros to a multiple of $g$, and remove the padding afterwards.
# - The group between nodes has *one* rank of each node. A group of all ranks would send too many bytes between nodes.


# %% nbgrader={"grade_id": "hierarchical_all_reduce", "solution": true}
def hierarchical_all_reduce(tensor: torch.Tensor, ranks_per_node: int) -> None:
    """Replaces `tensor` by its sum over all ranks, in place; each rank sends 2(m-1)/m x n/g to other nodes."""
    ### BEGIN SOLUTION
    rank, p, g = dist.get_rank(), dist.get_world_size(), ranks_per_node
    nodes = [dist.new_group(list(range(first, first + g))) for first in range(0, p, g)]
    places = [dist.new_group(list(range(place, p, g))) for place in range(g)]
    node, place = nodes[rank // g], places[rank % g]

    length = -(-tensor.numel() // g)
    padded = torch.zeros(g * length, dtype=tensor.dtype, device=tensor.device)
    padded[: tensor.numel()] = tensor.flatten()
    chunks = list(padded.split(length)) if length else [padded] * g
    mine = torch.empty_like(chunks[0])
    dist.reduce_scatter(mine, chunks, group=node)
    dist.all_reduce(mine, group=place)
    dist.all_gather(chunks, mine, group=node)
    tensor.copy_(torch.cat(chunks)[: tensor.numel()].view(tensor.shape))
    ### END SOLUTION


# %% name="check_hierarchical"
check(hierarchical_all_reduce)

# %% [markdown] name="nodes_live"
# Run it on the live world, as if each two ranks were a node (each one, if their number is odd). There are five numbers, so with two ranks a node one is
# padding.


# %% name="try_hierarchical"
def hierarchy_of_ranks():
    mine = torch.arange(5) * 10 ** dist.get_rank()
    hierarchical_all_reduce(mine, 2 if dist.get_world_size() % 2 == 0 else 1)
    return mine


results, trace = world.trace(hierarchy_of_ranks, deadline=20)
print([t.tolist() for t in results])
for event in trace:
    if event.rank == 0:
        print(f"rank 0: {event.op}, {event.nbytes} bytes")

# %% [markdown] name="break_it"
# **Break it on purpose.** Swap steps 1 and 2: all-reduce between nodes first. The sum is still right. What does `check` say?

# %% [markdown] name="question"
# ## 3. Choose
#
# 64 ranks in 8 nodes of 8; inside a node 400 GB/s, between nodes 50 GB/s for each rank, in each direction; 5 µs for each message. Which of ring,
# recursive doubling and two levels would you use for 4 bytes, and which for 1 GB? Answer in two or three sentences, with a number for both. (A flat
# ring also sends between nodes, and is as slow as its slowest link.)

# %% [markdown] nbgrader={"grade_id": "choose", "grade": true, "solution": true, "points": 2}
# 4 bytes: only the number of rounds matters. Recursive doubling has lg 64 = 6, 30 µs; the ring 126, 630 µs; two levels with rings
# 2·7 + 2·7 = 28, 140 µs. 1 GB: two levels. Inside 2·7/8 · 1 GB / 400 GB/s = 4.4 ms, between 2·7/8 · 0.125 GB / 50 GB/s = 4.4 ms,
# together about 9 ms; a flat ring sends 2·63/64 · 1 GB at 50 GB/s, 39 ms; recursive doubling sends 3 of its 6 rounds of 1 GB
# between nodes, 60 ms and more. (1 point for each size, with its number.)

# %% [markdown] name="marking"
# ## Marking
#
# These two cells give the points. Each is the exercise's points times the score that `check` gives; you can run them too.

# %% nbgrader={"grade_id": "recursive_doubling_all_reduce-graded", "grade": true, "locked": true, "points": 6} allranks={"exercise": "recursive_doubling_all_reduce"}
round(6 * check(recursive_doubling_all_reduce).score, 2)

# %% nbgrader={"grade_id": "hierarchical_all_reduce-graded", "grade": true, "locked": true, "points": 6} allranks={"exercise": "hierarchical_all_reduce"}
round(6 * check(hierarchical_all_reduce).score, 2)

# %% [markdown] name="recap"
# Recursive doubling sends the whole vector in each of $\lg p$ rounds and is the fastest for short messages. Two levels send most bytes over the fast
# links and only $1/g$ of them over the slow ones. **Which algorithm is best depends on the size and on the network.** The next lab uses the two
# halves of the ring separately.

# %% [markdown] name="hand_in"
# **Before you hand in:** save the notebook and run the last cell. It says whether the notebook would be taken as it is saved, and which answers are empty.

# %% name="stop_world"
from allranks import ready

world.stop()
ready()
