# %% [markdown] name="title"
# # Lab 12: make it fast
#
# **Your ring of lab 3 is correct. On two nodes it takes seven times as long as it must. What does it wait for, and how near to the lower bound can you get?**
#
# | you write | difficulty | minutes | points |
# |---|---|---|---|
# | `segmented_ring` | medium to hard | 40 | 6 |
# | `two_way_ring` | medium | 25 | 4 |
# | `two_level_ring` | medium to hard | 40 | 6 |
# | `overlapped_ring` | medium | 30 | 5 |
# | one answer in words | medium | 15 | 2 |
#
# CPU ok. The chapter [Make it fast](../../chapters/4_real_cluster/47_make_it_fast.ipynb) has the ideas: the critical path, segments, directions, levels, and work that hides messages.

# %% [markdown] name="rules"
# **Three rules that matter here**
#
# - All four are all-reduces: replace `tensor` by its sum over all ranks, in place. They are right for any number of ranks from 1 up, any size, any dtype, and tensors with gaps, and use sends and receives (best `dist.batch_isend_irecv`). How you reach the sum is free.
# - Then your function runs on a machine that you don't have, in **virtual time**: every message takes the time that its links need, and a GPU sends one message at a time and receives one at a time. The time is compared with the **lower bound**: no algorithm can be faster.
# - Within the factor that is asked you get all points for speed; a slower answer gets half of its share, (factor asked) / (your factor) / 2. `check(function)` tells your factor, the critical path, and what would help.
#
# {{contract.md}}

# %% nbgrader={"grade_id": "imports", "locked": true}
from collections import deque
from dataclasses import replace

import torch
import torch.distributed as dist

from allranks import Player, World, check, topology
from allranks.wire import run

# %% [markdown] name="live"
# ## A world to try things in
#
# `World` starts one process, a *rank*, on each GPU if there are at least two GPUs; otherwise four ranks on the CPU.

# %% name="start_world"
world = World()
world

# %% [markdown] name="ring"
# Here is a ring that is correct for contiguous tensors. Start from it; yours must take tensors with gaps too (chapter 47 shows how).


# %% name="plain_ring"
def plain_ring(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    chunks = tensor.tensor_split(p)
    for step in range(2 * (p - 1)):
        into = chunks[(rank - step - 1) % p]
        arrived = torch.empty_like(into)
        ops = [
            dist.P2POp(dist.isend, chunks[(rank - step) % p], (rank + 1) % p),
            dist.P2POp(dist.irecv, arrived, (rank - 1) % p),
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        into.copy_(into + arrived if step < p - 1 else arrived)


# %% [markdown] name="predict"
# Two nodes of 4 H100s, each GPU with a network card of its own, 1 GiB. Inside a node a GPU sends 371 GB a second (NCCL's figure), over its card 50. What takes most of the ring's time? Write it down first:
# `"inside the nodes"`, `"over the network cards"` or `"both alike"`.

# %% name="prediction"
prediction = ""

# %% name="where_it_waits"
fours = replace(topology.preset("dgx-h100"), name="nodes of 4 H100s", ranks_per_node=4, nics_per_node=4)
machine = {"topology": fours, "scale": 2**21}  # each byte of our 512 stands for 2 MiB
outcome = run(plain_ring, ranks=8, args=(torch.ones(128),), **machine)
print(f"{1e3 * outcome.seconds:.1f} ms")
print(*outcome.critical_path.sentences(), sep="\n")

# %% name="watch_ring"
Player(outcome.critical_path.marked(outcome.trace), axis="time")

# %% [markdown] name="segmented_task"
# ## 1. Add while the next segment travels
#
# On one node of H100s an add takes as long as a message: `add(into, part)` adds `part` to `into` in place, and takes its time for each element. Use it for every sum. The plain ring receives, adds, and only then
# sends. So the link is idle while the ranks add, and they add nothing while it is busy.
#
# - Cut each chunk into segments. A segment can go on as soon as *it* is added.
# - Number what a rank does: step 0 segment 0, step 0 segment 1, and so on. With $k$ segments, what is sent as number $u$ was received as number $u-k$. So keep up to $k$ exchanges under way, and finish the oldest
#   one before you begin the next.
# - A `deque` is good for that: `append` at one end, `popleft` at the other.
#
# Asked: at most 1.25 times the bound.


# %% nbgrader={"grade_id": "segmented_ring", "solution": true}
def segmented_ring(tensor: torch.Tensor, add) -> None:
    """Replaces tensor by its sum over all ranks, in place; every sum is made by add(into, part)."""
    ### BEGIN SOLUTION
    rank, p, k = dist.get_rank(), dist.get_world_size(), 8
    flat = tensor.contiguous().view(-1)
    chunks = [chunk.tensor_split(k) for chunk in flat.tensor_split(p)]
    under_way: deque = deque()

    def finish() -> None:
        number, works, arrived = under_way.popleft()
        for work in works:
            work.wait()
        step, j = divmod(number, k)
        into = chunks[(rank - step - 1) % p][j]
        if step < p - 1:
            add(into, arrived)
        else:
            into.copy_(arrived)

    for number in range(2 * (p - 1) * k):
        if number >= k:
            finish()
        step, j = divmod(number, k)
        arrived = torch.empty_like(chunks[(rank - step - 1) % p][j])
        ops = [
            dist.P2POp(dist.isend, chunks[(rank - step) % p][j], (rank + 1) % p),
            dist.P2POp(dist.irecv, arrived, (rank - 1) % p),
        ]
        under_way.append((number, dist.batch_isend_irecv(ops), arrived))
    while under_way:
        finish()
    tensor.copy_(flat.view(tensor.shape))
    ### END SOLUTION


# %% name="check_segmented"
check(segmented_ring)

# %% [markdown] name="two_way_task"
# ## 2. Both directions
#
# Nodes of two GPUs, a card each. The ring leaves every node through one card and enters it through the other; each card could also do the opposite at the same time. Half of the vector goes to the right, half to the
# left, *at the same time*.
#
# - Chunks of the left half move as in a mirror: replace `rank - step` by `rank + step`.
# - One batch for each step, with four operations.
#
# Asked: at most 1.75 times the bound.


# %% nbgrader={"grade_id": "two_way_ring", "solution": true}
def two_way_ring(tensor: torch.Tensor) -> None:
    """Replaces tensor by its sum over all ranks, in place; half of it goes round in each direction."""
    ### BEGIN SOLUTION
    rank, p = dist.get_rank(), dist.get_world_size()
    flat = tensor.contiguous().view(-1)
    halves = [(half.tensor_split(p), way) for half, way in zip(flat.tensor_split(2), (1, -1), strict=True)]
    for step in range(2 * (p - 1)):
        ops, arriving = [], []
        for chunks, way in halves:
            into = chunks[(rank - way * (step + 1)) % p]
            arrived = torch.empty_like(into)
            arriving.append((into, arrived))
            ops.append(dist.P2POp(dist.isend, chunks[(rank - way * step) % p], (rank + way) % p))
            ops.append(dist.P2POp(dist.irecv, arrived, (rank - way) % p))
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        for into, arrived in arriving:
            into.copy_(into + arrived if step < p - 1 else arrived)
    tensor.copy_(flat.view(tensor.shape))
    ### END SOLUTION


# %% name="check_two_way"
check(two_way_ring)

# %% [markdown] name="two_level_task"
# ## 3. Two levels
#
# Nodes of four GPUs, a card each. Even with both directions only two of the four cards carry bytes. So: a reduce-scatter inside each node, after which each rank has a quarter of its node's sum; an all-reduce of this quarter
# among the ranks with the same place in their nodes, each over its own card; an all-gather inside each node. Node $i$ has the ranks $ig$ to $ig+g-1$, with $g$ = `ranks_per_node`.
#
# - One function for all three: a ring among a list of ranks, for some of its steps.
# - Which quarter does a rank have after the reduce-scatter? Your ring decides; use the same one on all nodes.
#
# Asked: at most 2 times the bound.


# %% nbgrader={"grade_id": "two_level_ring", "solution": true}
def two_level_ring(tensor: torch.Tensor, ranks_per_node: int) -> None:
    """Replaces tensor by its sum over all ranks, in place, with little traffic between the nodes."""
    ### BEGIN SOLUTION
    rank, p, g = dist.get_rank(), dist.get_world_size(), ranks_per_node
    flat = tensor.contiguous().view(-1)

    def ring(part: torch.Tensor, members: list[int], steps: range) -> torch.Tensor:
        """These steps of a ring among the members; returns the chunk that is whole here after the reduce-scatter."""
        size, me = len(members), members.index(rank)
        chunks = part.tensor_split(size)
        for step in steps:
            into = chunks[(me - step - 1) % size]
            arrived = torch.empty_like(into)
            ops = [
                dist.P2POp(dist.isend, chunks[(me - step) % size], members[(me + 1) % size]),
                dist.P2POp(dist.irecv, arrived, members[(me - 1) % size]),
            ]
            for work in dist.batch_isend_irecv(ops):
                work.wait()
            into.copy_(into + arrived if step < size - 1 else arrived)
        return chunks[(me + 1) % size]

    node = list(range(rank // g * g, rank // g * g + g))
    places = list(range(rank % g, p, g))
    mine = ring(flat, node, range(g - 1))
    ring(mine, places, range(2 * (len(places) - 1)))
    ring(flat, node, range(g - 1, 2 * (g - 1)))
    tensor.copy_(flat.view(tensor.shape))
    ### END SOLUTION


# %% name="check_two_level"
check(two_level_ring)

# %% [markdown] name="overlapped_task"
# ## 4. Work meanwhile
#
# The gradients of one layer are summed while those of another are computed. `work()` computes one of `pieces` pieces; call it exactly `pieces` times. What you began before `work()` travels meanwhile; nothing new begins in it.
#
# - Begin the exchange of a step, do a share of the work, then wait. How many pieces must be done after step $s$ of $2(p-1)$, so that they are spread evenly?
# - With one rank there are no steps, but the work must be done.
#
# Asked: at most 1.25 times the bound, which is the larger of the work and the all-reduce.


# %% nbgrader={"grade_id": "overlapped_ring", "solution": true}
def overlapped_ring(tensor: torch.Tensor, work, pieces: int) -> None:
    """Replaces tensor by its sum over all ranks, in place, and calls work() so many times meanwhile."""
    ### BEGIN SOLUTION
    rank, p = dist.get_rank(), dist.get_world_size()
    flat = tensor.contiguous().view(-1)
    chunks, steps, done = flat.tensor_split(p), 2 * (p - 1), 0
    for step in range(steps):
        into = chunks[(rank - step - 1) % p]
        arrived = torch.empty_like(into)
        ops = [
            dist.P2POp(dist.isend, chunks[(rank - step) % p], (rank + 1) % p),
            dist.P2POp(dist.irecv, arrived, (rank - 1) % p),
        ]
        handles = dist.batch_isend_irecv(ops)
        while done * steps < pieces * (step + 1):
            work()
            done += 1
        for handle in handles:
            handle.wait()
        into.copy_(into + arrived if step < p - 1 else arrived)
    for _ in range(done, pieces):
        work()
    tensor.copy_(flat.view(tensor.shape))
    ### END SOLUTION


# %% name="check_overlapped"
check(overlapped_ring)

# %% [markdown] name="live_task"
# ## 5. On real ranks
#
# All four on the live world: the sums must be right there too. (How fast they are on your CPU is another question: its ranks share one memory, and no link is idle while another one is busy.)


# %% name="try_live"
def same_sum(name):
    rank, p = dist.get_rank(), dist.get_world_size()
    tensor = torch.arange(1000.0) + rank
    wanted = p * torch.arange(1000.0) + sum(range(p))
    match name:
        case "segmented":
            segmented_ring(tensor, lambda into, part: into.add_(part))
        case "two ways":
            two_way_ring(tensor)
        case "two levels":
            two_level_ring(tensor, p // 2 if p % 2 == 0 else 1)
        case "overlapped":
            overlapped_ring(tensor, lambda: None, 7)
    return torch.equal(tensor, wanted)


for name in ("segmented", "two ways", "two levels", "overlapped"):
    print(f"{name}: right on every rank: {all(world.run(same_sum, name))}")

# %% [markdown] name="watch_task"
# Look at the critical path of your two levels, on the machine of the prediction. What does it wait for now?

# %% name="watch_two_levels"
faster = run(lambda tensor: two_level_ring(tensor, 4), ranks=8, args=(torch.ones(128),), **machine)
print(f"{outcome.seconds / faster.seconds:.1f} times as fast as the plain ring")
print(*faster.critical_path.sentences(), sep="\n")
Player(faster.critical_path.marked(faster.trace), axis="time")

# %% [markdown] name="question"
# ## 6. What is worth doing?
#
# A colleague has a plain ring of 4 KiB on 8 GPUs of one node, $\alpha$ = 2 µs, and wants to cut it in 8 segments. Another has 1 GiB on 16 nodes of 8 GPUs that share *one* network card a node, and wants two levels. What do you tell each of
# them? Name what the critical path consists of, and give the numbers that decide. Three or four sentences.

# %% [markdown] nbgrader={"grade_id": "worth_doing", "grade": true, "solution": true, "points": 2}
# 4 KiB: a chunk has 512 bytes, which take 1.4 ns at 371 GB/s, against 2 µs for each message: the path is all start-up. Eight segments make 112 messages of 14, so it gets up to eight times slower; fewer steps would help (recursive doubling: 3 instead of
# 14). 1 GiB on 16 nodes with one card each: a plain ring sends 2 · 127/128 = 1.98 n through each card, two levels 8 · 2 · 15/16 · n/8 = 1.88 n: the card carries almost the same bytes, so two levels save only 5.5 % of
# them. With one card a node the ring is already near the bound; two levels help where each rank has a card. (1 point for start-up and the eight times, 1 for the equal bytes through the one card.)

# %% [markdown] name="marking"
# ## Marking
#
# These cells give each exercise's points times the score that `check` gives; you can run them too.

# %% nbgrader={"grade_id": "segmented_ring-graded", "grade": true, "locked": true, "points": 6} allranks={"exercise": "segmented_ring"}
round(6 * check(segmented_ring).score, 2)

# %% nbgrader={"grade_id": "two_way_ring-graded", "grade": true, "locked": true, "points": 4} allranks={"exercise": "two_way_ring"}
round(4 * check(two_way_ring).score, 2)

# %% nbgrader={"grade_id": "two_level_ring-graded", "grade": true, "locked": true, "points": 6} allranks={"exercise": "two_level_ring"}
round(6 * check(two_level_ring).score, 2)

# %% nbgrader={"grade_id": "overlapped_ring-graded", "grade": true, "locked": true, "points": 5} allranks={"exercise": "overlapped_ring"}
round(5 * check(overlapped_ring).score, 2)

# %% [markdown] name="recap"
# Four ways to the same sum. Each of them removes what the critical path waited for: the add, the idle direction, the idle cards, the idle processor. **Ask what the slowest path waits for, and change only that.**

# %% [markdown] name="hand_in"
# **Before you hand in:** save the notebook and run the last cell. It says whether the notebook would be taken as it is saved, and which answers are empty.

# %% name="stop_world"
from allranks import ready

world.stop()
ready()
