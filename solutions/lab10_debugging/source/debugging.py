# %% [markdown] name="title"
# # Lab 10: find the fault
#
# **Here are six short programs, and each is broken. Three hang, one crashes, and two return wrong numbers without an error. Which rank, which line, and what kind of mistake is it?**
#
# | you write | difficulty | minutes | points |
# |---|---|---|---|
# | `diagnosis` | hard | 35 | 6 |
# | `mirror` | easy | 10 | 3 |
# | `hand_out` | medium | 15 | 3 |
# | `mean_of_samples` | medium | 10 | 3 |
# | `count_samples`, `mean_loss`, `share_settings` | easy | 10 | none, for practice |
# | one answer in words | medium | 10 | 2 |
#
# CPU ok. The chapter *When it hangs* has the tools; this notebook has the broken programs.

# %% [markdown] name="rules"
# **Three rules that matter here**
#
# - First the *diagnosis*: for each program the rank, the line and the kind, all three right. One part alone gives no points.
# - It holds for **any number of ranks**, because the rank with the mistake may then be another one.
# - Then the *repair*: you write three of the programs again as functions, by the rules of all labs.
#
# {{contract.md}}

# %% nbgrader={"grade_id": "imports", "locked": true}
import torch
import torch.distributed as dist

from allranks import World, check
from allranks.wire import run

# %% nbgrader={"grade_id": "kinds", "locked": true}
EVERY = -1  # instead of a rank, where all do the same wrong thing

DTYPE = 1  # tensors that meet have different dtypes; the line that makes the wrong one
SHAPE = 2  # tensors that meet have different shapes; the line that makes the wrong one
ORDER = 3  # the same calls, on some rank in another order; the line that decides the order
ROOT = 4  # ranks name different roots; the line that names it
DEADLOCK = 5  # a circle of ranks that wait for each other; the line in which they wait
BUFFER = 6  # a buffer that is still in use is written to; the line that writes
NEVER_WAITED = 7  # nobody waits for what was started; the line that starts it
EARLY = 8  # a rank leaves before a call that the others make; the line that leaves
GROUP = 9  # a group that only some ranks make; the line that makes it

# %% [markdown] name="live"
# ## The live world
#
# `World` starts one process, a *rank*, on each GPU if there are at least two GPUs; otherwise four ranks on the CPU. A call that hangs ends after its
# deadline, and the report says in which line each rank waits. Some of the next cells end in an error on purpose.
#
# **On GPUs** a call returns when it is queued, so a rank may wait in a later line than the one with the call; and NCCL does not define what calls do that
# don't match (programs 4 and 5 may hang there, or not). The text describes what the CPU shows: `World(backend="gloo")` starts four ranks on the CPU.

# %% name="start_world"
world = World()
world

# %% [markdown] name="lines"
# Lines are counted from 1, in the program's own cell (menu *View*, *Show Line Numbers*). **Predict** before each run: what will you see?

# %% [markdown] name="patient_1"
# ## 1. It crashes, on all ranks
#
# Every rank needs to know how many samples each rank has.


# %% nbgrader={"grade_id": "broken_count_samples", "locked": true}
def broken_count_samples(samples):
    """Returns how many samples each rank has, in rank order."""
    mine = torch.tensor([len(samples)])
    counts = [torch.zeros(1) for _ in range(dist.get_world_size())]
    dist.all_gather(counts, mine)
    return torch.cat(counts)


# %% name="run_count_samples" tags=["raises-exception"]
world.run(lambda: broken_count_samples(torch.zeros(dist.get_rank() + 5)))

# %% [markdown] name="patient_2"
# ## 2. It returns, and the numbers are wrong
#
# Each rank has the sum of the losses of its samples, and the number of its samples. Here every rank has a loss of 6, and the counts are 1, 2, 3 and so
# on. So with $p$ ranks the mean is $12 / (p+1)$ (with four ranks 24 / 10).


# %% nbgrader={"grade_id": "broken_mean_loss", "locked": true}
def broken_mean_loss(loss, count):
    """Returns the mean loss of all samples; `loss` is the sum over this rank's `count` samples."""
    pair = [loss.clone(), count.clone()]
    order = (0, 1) if dist.get_rank() < dist.get_world_size() - 1 else (1, 0)
    for i in order:
        dist.all_reduce(pair[i])
    return pair[0] / pair[1]


# %% name="run_mean_loss"
world.run(lambda: broken_mean_loss(torch.tensor([6.0]), torch.tensor([dist.get_rank() + 1.0])))

# %% [markdown] name="patient_3"
# ## 3. It hangs
#
# Rank $r$ needs the tensor of rank $p-1-r$.


# %% nbgrader={"grade_id": "broken_mirror", "locked": true}
def broken_mirror(tensor):
    """Returns the tensor of the rank p-1-r."""
    rank, p = dist.get_rank(), dist.get_world_size()
    partner = p - 1 - rank
    if partner == rank:
        return tensor.clone()
    arrived = torch.empty_like(tensor)
    dist.send(tensor, partner)
    dist.recv(arrived, partner)
    return arrived


# %% name="run_mirror" tags=["raises-exception", "not-on-nccl"]
world.run(lambda: broken_mirror(torch.tensor([10.0 * dist.get_rank()])), deadline=2)

# %% [markdown] name="patient_4"
# ## 4. It hangs, and all ranks that wait are in the same line
#
# Half of the ranks are on a second machine. Rank 0 has read the settings. (Think of 5 ranks too: what is `p // 2` then?)


# %% nbgrader={"grade_id": "broken_share_settings", "locked": true}
def broken_share_settings(settings):
    """Puts rank 0's settings on all ranks, in place; half of the ranks sit on a second machine."""
    rank, p = dist.get_rank(), dist.get_world_size()
    ranks_per_node = max(p // 2, 1)
    dist.broadcast(settings, src=rank - rank % ranks_per_node)


# %% name="run_share_settings" tags=["raises-exception", "not-on-nccl"]
world.run(lambda: broken_share_settings(torch.full((2,), float(dist.get_rank()))), deadline=2)

# %% [markdown] name="patient_5"
# ## 5. It returns, and the numbers are right only sometimes
#
# Rank 0 has a table and sends one row to each rank. To save memory there is only one buffer. We try it twenty times.


# %% nbgrader={"grade_id": "broken_hand_out", "locked": true}
def broken_hand_out(table):
    """Returns row r of rank 0's table on rank r."""
    rank, p = dist.get_rank(), dist.get_world_size()
    row = table[0].clone()
    if rank > 0:
        dist.recv(row, 0)
        return row
    works = []
    for peer in range(1, p):
        row.copy_(table[peer])
        works.append(dist.isend(row, peer))
    for work in works:
        work.wait()
    return table[0].clone()


# %% name="table"
def table():
    return torch.arange(2.0 * dist.get_world_size()).view(-1, 2)


# %% name="run_hand_out" tags=["not-on-nccl"]
wanted, right = world.run(table)[0], 0
for _ in range(20):
    rows = world.run(lambda: broken_hand_out(table()))
    right += torch.equal(torch.stack(rows), wanted)
print(f"right {right} times; the last time {[row.tolist() for row in rows]}")

# %% [markdown] name="patient_6"
# ## 6. It hangs, but not with every number of ranks
#
# Nine samples are distributed: each rank gets $\lceil 9/p \rceil$ of them, as long as there are any. (On your ranks it may return, and the mean is
# right. Then find a number of ranks with which it hangs; the wire below takes six.)


# %% nbgrader={"grade_id": "broken_mean_of_samples", "locked": true}
def broken_mean_of_samples(samples):
    """Returns the mean of all ranks' samples; a rank may have none."""
    if len(samples) == 0:
        return torch.tensor(0.0)
    total = torch.stack([samples.sum(), torch.tensor(float(len(samples)))])
    dist.all_reduce(total)
    return total[0] / total[1]


# %% name="deal"
def dealt():
    rank, p = dist.get_rank(), dist.get_world_size()
    each = -(-9 // p)  # rounded up
    return torch.arange(9.0)[rank * each : (rank + 1) * each]


# %% name="run_mean_of_samples" tags=["raises-exception"]
world.run(lambda: broken_mean_of_samples(dealt()), deadline=2)

# %% [markdown] name="witness"
# ## Ask the wire
#
# The wire runs a program with any number of ranks, compares all calls and needs no deadline. But it **does not find the mistake itself**: it reports
# what it noticed first, and that may be far from the mistake. If the calls match, it notices nothing.

# %% name="ask_the_wire"
cases = {
    "hand_out": lambda: broken_hand_out(torch.arange(12.0).view(6, 2)),
    "mean_of_samples": lambda: broken_mean_of_samples(dealt()),
    "mean_loss": lambda: broken_mean_loss(torch.tensor([6.0]), torch.tensor([dist.get_rank() + 1.0])),
}
for name, program in cases.items():
    failure = run(program, ranks=6).failure
    print(f"{name}: {failure.message if failure else 'nothing to report'}\n")

# %% [markdown] name="diagnosis_task"
# ## Your diagnosis
#
# `diagnosis("mirror")` is called on every rank and returns `(rank, line, kind)`:
#
# - **rank**: the lowest rank that does something wrong (not one that waits or raises an error), or `EVERY`. It may depend on the number of ranks,
#   `dist.get_world_size()`. You are asked only about worlds in which the program fails, so about *mirror* only with an even number of ranks.
# - **line** of the program's cell: the line with the mistake, not the line in which it is noticed.
# - **kind**: one of the names above; the comment of each name says which line is meant.


# %% nbgrader={"grade_id": "diagnosis", "solution": true}
def diagnosis(program: str) -> tuple[int, int, int]:
    """Returns (rank, line, kind) for one of the six programs, in a world of any size; every rank calls it."""
    ### BEGIN SOLUTION
    p = dist.get_world_size()
    each = -(-9 // p)  # samples of a rank, so that the first -(-9 // each) ranks have some
    return {
        "count_samples": (EVERY, 4, DTYPE),  # zeros are float32, a length is int64
        "mean_loss": (p - 1, 4, ORDER),
        "mirror": (EVERY, 8, DEADLOCK),
        "share_settings": (p // 2, 5, ROOT),
        "hand_out": (0, 10, BUFFER),
        "mean_of_samples": (-(-9 // each), 4, EARLY),
    }[program]
    ### END SOLUTION


# %% name="check_diagnosis"
check(diagnosis)

# %% [markdown] name="repair_task"
# ## The repairs
#
# Write programs 3, 5 and 6 again, so that they do what their docstrings promise: these give points. The other three, below them, are for practice. Copy
# the parts that are right. There are a few rules: send as many messages as the broken program meant to send, make tensors with gaps contiguous, don't
# change inputs (`share_settings` works in place), and a send may wait until its receiver is ready. Use the same kind of operations as the broken
# program: messages between two ranks in `mirror` and `hand_out`, `all_reduce` in the two means, collectives on tensors in `count_samples`, `broadcast`
# in `share_settings`.


# %% nbgrader={"grade_id": "mirror", "solution": true}
def mirror(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor of the rank p-1-r on rank r; every rank calls it."""
    ### BEGIN SOLUTION
    rank, p = dist.get_rank(), dist.get_world_size()
    partner = p - 1 - rank
    outgoing = tensor.contiguous()
    if partner == rank:
        return outgoing.clone()
    arrived = torch.empty_like(outgoing)
    pair = [dist.P2POp(dist.isend, outgoing, partner), dist.P2POp(dist.irecv, arrived, partner)]
    for work in dist.batch_isend_irecv(pair):
        work.wait()
    return arrived
    ### END SOLUTION


# %% name="check_mirror"
check(mirror)


# %% nbgrader={"grade_id": "hand_out", "solution": true}
def hand_out(table: torch.Tensor) -> torch.Tensor:
    """Returns row r of rank 0's table (p, n) on rank r; every rank calls it, and the others' tables don't count."""
    ### BEGIN SOLUTION
    if dist.get_rank() > 0:
        row = torch.empty_like(table[0])
        dist.recv(row, 0)
        return row
    rows = table.contiguous()  # a row is its own buffer
    sends = [dist.P2POp(dist.isend, rows[peer], peer) for peer in range(1, dist.get_world_size())]
    for work in dist.batch_isend_irecv(sends) if sends else []:
        work.wait()
    return table[0].clone()
    ### END SOLUTION


# %% name="check_hand_out"
check(hand_out)


# %% nbgrader={"grade_id": "mean_of_samples", "solution": true}
def mean_of_samples(samples: torch.Tensor) -> torch.Tensor:
    """Returns the mean of all ranks' samples, a tensor without dimensions; a rank may have none; every rank calls it."""
    ### BEGIN SOLUTION
    total = torch.stack([samples.sum(), samples.new_tensor(len(samples))])  # the sum of nothing is 0
    dist.all_reduce(total)
    return total[0] / total[1]
    ### END SOLUTION


# %% name="check_mean_of_samples"
check(mean_of_samples)

# %% [markdown] name="discharged"
# Run the three repairs on the live world:


# %% name="run_repaired"
def repaired():
    return {
        "mirror": mirror(torch.tensor([10.0 * dist.get_rank()])).item(),
        "hand_out": hand_out(table()).tolist(),
        "mean_of_samples": mean_of_samples(dealt()).item(),
    }


for rank, results in enumerate(world.run(repaired, deadline=10)):
    print(f"rank {rank}: {results}")

# %% [markdown] name="practice"
# **For practice**: programs 1, 2 and 4. Each repair is small.


# %% nbgrader={"grade_id": "count_samples", "solution": true}
def count_samples(samples: torch.Tensor) -> torch.Tensor:
    """Returns how many samples each rank has, in rank order, int64; every rank calls it."""
    ### BEGIN SOLUTION
    mine = torch.tensor([len(samples)])
    counts = [torch.zeros_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(counts, mine)
    return torch.cat(counts)
    ### END SOLUTION


# %% name="check_count_samples"
check(count_samples)


# %% nbgrader={"grade_id": "mean_loss", "solution": true}
def mean_loss(loss: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    """Returns the sum of all ranks' losses over the sum of their counts, elementwise; every rank calls it."""
    ### BEGIN SOLUTION
    pair = torch.stack([loss, count])  # one call can't come in two orders
    dist.all_reduce(pair)
    return pair[0] / pair[1]
    ### END SOLUTION


# %% name="check_mean_loss"
check(mean_loss)


# %% nbgrader={"grade_id": "share_settings", "solution": true}
def share_settings(settings: torch.Tensor) -> None:
    """Puts rank 0's settings on all ranks, in place; every rank calls it."""
    ### BEGIN SOLUTION
    buffer = settings.contiguous()
    dist.broadcast(buffer, src=0)
    settings.copy_(buffer)
    ### END SOLUTION


# %% name="check_share_settings"
check(share_settings)

# %% [markdown] name="question"
# ## In words
#
# Programs 2 and 5 raise no error when their numbers are wrong. A training run with such a mistake can continue for days. For each of the two, name a
# check that a program could make *while it runs* and that would find the mistake in the first step, and say what the check costs. Two to four
# sentences.

# %% [markdown] nbgrader={"grade_id": "silent", "grade": true, "solution": true, "points": 2}
# 2: compare a result that should be the same on all ranks: all_reduce it with MIN and with MAX (or all_gather it) and stop if they differ. This costs
# one small collective, a few alpha, and need not be done in every step. (Or
# TORCH_DISTRIBUTED_DEBUG=DETAIL, which compares calls but not their meaning: here both have one shape, so it would find nothing.)
# 5: the receivers can't know which data were meant, so send a checksum or the row's number with each row, and compare; or in tests overwrite a buffer
# between isend and wait, or run the program on a backend that checks (the wire). A checksum costs one more pass over the data. (1 point for each
# check that would work, with its cost.)

# %% [markdown] name="marking"
# ## Marking
#
# These cells give the points. Each is the exercise's points times the score that `check` gives; you can run them too.

# %% nbgrader={"grade_id": "diagnosis-graded", "grade": true, "locked": true, "points": 6} allranks={"exercise": "diagnosis"}
round(6 * check(diagnosis).score, 2)

# %% nbgrader={"grade_id": "mirror-graded", "grade": true, "locked": true, "points": 3} allranks={"exercise": "mirror"}
round(3 * check(mirror).score, 2)

# %% nbgrader={"grade_id": "hand_out-graded", "grade": true, "locked": true, "points": 3} allranks={"exercise": "hand_out"}
round(3 * check(hand_out).score, 2)

# %% nbgrader={"grade_id": "mean_of_samples-graded", "grade": true, "locked": true, "points": 3} allranks={"exercise": "mean_of_samples"}
round(3 * check(mean_of_samples).score, 2)

# %% [markdown] name="recap"
# Ranks that run the same program still differ in their data, their number and their timing, and such mistakes come from these differences. The rank
# that raises an error is rarely the cause, and the worst mistakes raise no error. **Find out what each rank called, in which order, with which tensor, and begin with the first difference.**

# %% [markdown] name="hand_in"
# **Before you hand in:** save the notebook and run the last cell. It says whether the notebook would be taken as it is saved, and which answers are empty.

# %% name="stop_world"
from allranks import ready

world.stop()
ready()
