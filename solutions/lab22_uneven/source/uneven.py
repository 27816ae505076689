# %% [markdown] name="title"
# # Lab 22: uneven
#
# **Each rank has another number of rows. Where do mine begin in the whole, and how do all ranks get all rows without a byte of padding?**
#
# | you write | difficulty | minutes | points |
# |---|---|---|---|
# | `exclusive_scan` | medium | 35 | 6 |
# | `all_gather_v` | medium | 40 | 7 |
# | one answer in words | medium | 15 | 2 |
#
# CPU ok. The chapter *Uneven* has the ideas: the scan whose distance doubles, padding, and p broadcasts.

# %% [markdown] name="rules"
# **Three rules that matter here**
#
# - Each exercise is written with sends and receives. It is right for any number of ranks from 1 up, any dtype, and views with gaps, which the wire does not take.
# - Every byte and every round is counted, and all exercises are run with sends that wait for their receiver.
# - Inputs stay as they are.
#
# {{contract.md}}

# %% nbgrader={"grade_id": "imports", "locked": true}
import torch
import torch.distributed as dist

from allranks import World, check

# %% [markdown] name="live"
# ## A world to try things in
#
# `World` starts one process, a *rank*, on each GPU if there are at least two GPUs; otherwise four ranks on the CPU.

# %% name="start_world"
world = World()
world

# %% [markdown] name="predict"
# Ranks 0 to 3 have 3, 0, 2 and 4 tokens. All tokens are numbered one after the other, in the order of ranks. Which number has the first token of each rank? Write them down first.

# %% name="prediction"
prediction = [0, 0, 0, 0]


# %% name="offsets"
counts = [3, 0, 2, 4]
print("first token of each rank:", [sum(counts[:rank]) for rank in range(4)])

# %% [markdown] name="scan_task"
# ## 1. The sum of all lower ranks
#
# Return the elementwise sum of `tensor` over all *lower* ranks: rank 0 returns zeros, rank 1 rank 0's tensor, rank 2 the sum of ranks 0 and 1.
#
# - In $\lceil \lg p \rceil + 1$ rounds at most: $p-1$ rounds from neighbour to neighbour are too many.
# - In each round a rank sends one vector at most. To send all the tensors that a sum is made of costs too many bytes.
# - A rank has no partner at distance $2^k$ below rank 0 or above rank $p-1$: it just doesn't send, or doesn't receive.
# - Two things grow from round to round: the sum that you send, and the sum that you return. Do not get one of them from the other by subtraction: $(10^9 + 1) - 10^9$ is 0 in float32.


# %% nbgrader={"grade_id": "exclusive_scan", "solution": true}
def exclusive_scan(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the sum of the tensors of all lower ranks, zeros on rank 0."""
    ### BEGIN SOLUTION
    rank, p = dist.get_rank(), dist.get_world_size()
    window = tensor.clone(memory_format=torch.contiguous_format)  # with the own tensor: what higher ranks need
    below = torch.zeros_like(window)  # without it: the result
    distance = 1
    while distance < p:
        arrived, ops = torch.zeros_like(window), []
        if rank + distance < p:
            ops.append(dist.P2POp(dist.isend, window, rank + distance))
        if rank >= distance:
            ops.append(dist.P2POp(dist.irecv, arrived, rank - distance))
        for work in dist.batch_isend_irecv(ops) if ops else []:
            work.wait()
        below, window = below + arrived, window + arrived
        distance *= 2
    return below
    ### END SOLUTION


# %% name="check_scan"
check(exclusive_scan)

# %% [markdown] name="scan_live"
# On the live world, with the tokens that each rank has for two experts: rank $r$ has $r+1$ for the first and one for the second.


# %% name="try_scan"
def first_places():
    return exclusive_scan(torch.tensor([dist.get_rank() + 1, 1])).tolist()


results, trace = world.trace(first_places, deadline=20)
print("first places:", results)
print("rank 0 sends", sum(event.rank == 0 and event.op == "send" for event in trace), "messages")

# %% [markdown] name="gather_task"
# ## 2. All rows on all ranks
#
# `tensor` has another number of rows on each rank, perhaps none; all other dimensions are equal. Return a list of $p$ tensors, in the order of ranks: all ranks' rows.
#
# - **No padding.** A rank receives the others' rows, and one number of 8 bytes for each rank's length.
# - **No rank sends more than all parts once.** If one rank has nearly everything, it must not send it $p-1$ times.
# - In $2(p-1)$ rounds at most: a ring for the lengths, a ring for the rows. How long is what comes next? In a round each rank sends and receives at the same time; a blocking
#   `send` and a blocking `recv`, ordered by even and odd ranks, need two rounds a step.
# - A tensor without rows has no bytes; it may be sent or not, but both ends must agree. Numbers of rows are whole numbers: send them in an integer dtype that holds
#   them, however many rows a rank has.


# %% nbgrader={"grade_id": "all_gather_v", "solution": true}
def all_gather_v(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Returns the list of all ranks' tensors, which have different numbers of rows."""
    ### BEGIN SOLUTION
    rank, p = dist.get_rank(), dist.get_world_size()

    def round_the_ring(parts: list[torch.Tensor]) -> None:
        """Every rank has its own part; each step passes on what came last."""
        for step in range(p - 1):
            goes, comes = (rank - step) % p, (rank - step - 1) % p
            pair = [
                dist.P2POp(dist.isend, parts[goes], (rank + 1) % p),
                dist.P2POp(dist.irecv, parts[comes], (rank - 1) % p),
            ]
            for work in dist.batch_isend_irecv(pair):
                work.wait()

    lengths = [torch.tensor([len(tensor)]) for _ in range(p)]
    round_the_ring(lengths)
    parts = [tensor.new_empty(int(length), *tensor.shape[1:]) for length in lengths]
    parts[rank].copy_(tensor)
    round_the_ring(parts)
    return parts
    ### END SOLUTION


# %% name="check_gather"
check(all_gather_v)

# %% [markdown] name="gather_live"
# On the live world rank $r$ has $r$ rows, and each row is the rank's number:


# %% name="try_gather"
def rows_of_all():
    rank = dist.get_rank()
    return [part.flatten().tolist() for part in all_gather_v(torch.full((rank, 1), float(rank)))]


print(world.run(rows_of_all, deadline=20)[0])

# %% [markdown] name="question"
# ## 3. Pad, or not?
#
# On 64 ranks each part has between 0.9 MB and 1.1 MB; in another program one part has 64 MB and the other 63 have 1 kB each. A message costs alpha = 10 µs and 20 ps a byte (50 GB/s). Estimate the time
# of an all-gather in a ring, padded to the longest part, and the time of your function, for both programs. When would you pad? Three or four sentences, with numbers.

# %% [markdown] nbgrader={"grade_id": "pad_or_not", "grade": true, "solution": true, "points": 2}
# Both ways need the lengths first, in a ring 63 x 10 us = 0.6 ms. Padded, 63 steps of 10 us + 1.1 MB x 20 ps = 32 us: 2.0 ms. Without padding nearly every step also has a part of about
# 1.1 MB on some link, so it takes as long; pad, since it is one library call. In the second program padding makes 63 steps of 64 MB: 63 x 1.29 ms = 81 ms and 4 GB of memory. In the ring without
# padding the 64 MB go on in each of the 63 steps too, from rank to rank, so it also takes about 81 ms, though only 64 MB come to each rank. A binomial tree would bring them in 6 x 1.29 = 7.7 ms,
# a chain in well-chosen pieces in 3.7 ms. Pad if parts are about equal, use broadcasts if one is much
# longer. (1 point for the first program, 1 for seeing that the long part alone decides in the second.)

# %% [markdown] name="marking"
# ## Marking
#
# These cells give each exercise's points times the score that `check` gives; you can run them too.

# %% nbgrader={"grade_id": "exclusive_scan-graded", "grade": true, "locked": true, "points": 6} allranks={"exercise": "exclusive_scan"}
round(6 * check(exclusive_scan).score, 2)

# %% nbgrader={"grade_id": "all_gather_v-graded", "grade": true, "locked": true, "points": 7} allranks={"exercise": "all_gather_v"}
round(7 * check(all_gather_v).score, 2)

# %% [markdown] name="recap"
# An exclusive scan says where each rank's part begins, in about $\lg p$ rounds. A ring carries unequal parts as they are, once everybody knows the lengths: no byte of padding, but the longest part makes
# every step as long as it is.

# %% [markdown] name="hand_in"
# **Before you hand in:** save the notebook and run the last cell. It says whether the notebook would be taken as it is saved, and which answers are empty.

# %% name="stop_world"
from allranks import ready

world.stop()
ready()
