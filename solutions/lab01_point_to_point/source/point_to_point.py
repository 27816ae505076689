# %% [markdown] name="title"
# # Lab 1: point to point
#
# **How long does it take to send nothing at all? And why can ranks wait for each other for ever, although each of them runs a reasonable program?**
#
# | you do | difficulty | minutes | points |
# |---|---|---|---|
# | `ring_shift` | easy | 20 | 4 |
# | `halo_exchange` | easy | 15 | 3 |
# | who waited for whom, in words | easy | 5 | 2, by hand |
# | `fit_line` | medium | 15 | 3 |
# | `ping_pong` and a model of your link | medium | 20 | 3, by hand |
#
# CPU ok. The chapter *Point to point* has the pictures; in this notebook you write the code.

# %% [markdown] name="rules"
# **Three rules that matter here**
#
# - `ring_shift` and `halo_exchange` are right for any number of ranks from 1 up, any shape and any dtype. They use sends and receives, no collectives.
# - A send may wait until its receiver is ready.
# - `fit_line` is tested on links that the grader invents. Your teacher reads what you measure and what you write in words.
#
# {{contract.md}}

# %% nbgrader={"grade_id": "imports", "locked": true}
import statistics
import time

import torch
import torch.distributed as dist

from allranks import Player, World, check
from allranks.plots import fit
from allranks.wire import run

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
# Rank 0 sends two numbers to the last rank. The ranks between them hold a `letter` too, and do nothing. What do the ranks print?
# Write it down first.

# %% name="prediction"
prediction = {"rank 0": [0, 0], "rank 1": [0, 0], "the last rank": [0, 0]}

# %% name="first_message"
# %%ranks
letter = torch.full((2,), float(rank))
if rank == 0:
    dist.send(letter, world_size - 1)
if rank == world_size - 1:
    dist.recv(letter, 0)
print(letter.tolist())

# %% [markdown] name="first_message_explained"
# A send and its receive are *two* calls on *two* ranks, and both must be made. The receiver provides the memory, so it must know shape and dtype beforehand. The other ranks do nothing.

# %% [markdown] name="shift_task"
# ## 1. Shift around the ring
#
# The ranks form a circle. Every rank sends a tensor to the rank `k` places further: rank $r$ gets the tensor of rank $(r-k) \bmod p$. `k` may be 0,
# negative, or larger than $p$. Return the tensor that arrives and don't change your own. Send it straight to that rank, or on from neighbour to
# neighbour; nobody else gets it.
#
# `check` recognizes three common mistakes:
#
# - If every rank *sends first*, each waits for a receiver that is itself still sending. Put both into one **batch**, which starts them together:
#   `works = dist.batch_isend_irecv([dist.P2POp(dist.isend, outgoing, to), dist.P2POp(dist.irecv, arrived, source)])`, then `wait()` for each of the
#   `works`. It is right on gloo and on NCCL. (`isend`, then `recv`, then `wait()` is right by the rules of the marking too, but on NCCL a rank's
#   single messages queue one behind the other, and the circle can hang.)
# - Gloo and NCCL refuse a tensor that is not contiguous: send `tensor.contiguous()`.
# - If `k` is a multiple of $p$, each rank is its own neighbour.


# %% nbgrader={"grade_id": "ring_shift", "solution": true}
def ring_shift(tensor: torch.Tensor, k: int) -> torch.Tensor:
    """Returns the tensor of rank (r - k) mod p on rank r; every rank calls it with the same k."""
    ### BEGIN SOLUTION
    rank, p = dist.get_rank(), dist.get_world_size()
    if k % p == 0:
        return tensor.clone()
    outgoing = tensor.contiguous()
    arrived = torch.empty_like(outgoing)
    pair = [dist.P2POp(dist.isend, outgoing, (rank + k) % p), dist.P2POp(dist.irecv, arrived, (rank - k) % p)]
    for work in dist.batch_isend_irecv(pair):
        work.wait()
    return arrived
    ### END SOLUTION


# %% name="check_shift"
check(ring_shift)

# %% [markdown] name="shift_live"
# The next cell shifts by one place on the live world: each rank should get ten times the number of its left neighbour (four ranks get 30, 0, 10, 20). `world.trace` also records each message that *your* code sent. Press play.


# %% name="try_shift"
def shift_of_ranks(k):
    return ring_shift(torch.tensor([10.0 * dist.get_rank()]), k)


results, trace = world.trace(shift_of_ranks, 1, deadline=20)
print([t.item() for t in results])
Player(trace)

# %% [markdown] name="deadlock_task"
# ## 2. Fix a deadlock
#
# A simulation of heat flow gives each rank a piece of a hot ring of metal. In every time step each rank needs the edge
# of its left and of its right neighbour. A colleague wrote this.


# %% nbgrader={"grade_id": "stuck_halo", "locked": true}
def stuck_halo(edge):
    """Returns the edges of the left and of the right neighbour."""
    rank, p = dist.get_rank(), dist.get_world_size()
    left, right = (rank - 1) % p, (rank + 1) % p
    from_left, from_right = torch.empty_like(edge), torch.empty_like(edge)
    dist.send(edge, right)
    dist.recv(from_left, left)
    dist.send(edge, left)
    dist.recv(from_right, right)
    return from_left, from_right


# %% [markdown] name="deadlock_predict"
# **Predict** before you run the next cell: which ranks get past the first line that sends? Would it help if `edge` were a
# single number?
#
# `wire.run` runs a function on its own forked ranks, here four, and carries every message. It knows at once when no rank can continue, so it needs no
# deadline.

# %% name="see_deadlock"
edges = [(torch.tensor([10.0 * rank]),) for rank in range(4)]
run(stuck_halo, ranks=4, per_rank=edges).deadlock

# %% [markdown] name="deadlock_repair"
# Now write your version. It should return the same, for any number of ranks. With two ranks both neighbours are the same rank; with one rank, it is its own neighbour.


# %% nbgrader={"grade_id": "halo_exchange", "solution": true}
def halo_exchange(edge: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the edges of the left and of the right neighbour on the ring; every rank calls it."""
    ### BEGIN SOLUTION
    rank, p = dist.get_rank(), dist.get_world_size()
    if p == 1:
        return edge.clone(), edge.clone()
    left, right = (rank - 1) % p, (rank + 1) % p
    edge = edge.contiguous()
    from_left, from_right = torch.empty_like(edge), torch.empty_like(edge)
    calls = [dist.P2POp(dist.isend, edge, right), dist.P2POp(dist.isend, edge, left)]
    calls += [dist.P2POp(dist.irecv, from_left, left), dist.P2POp(dist.irecv, from_right, right)]
    for work in dist.batch_isend_irecv(calls):
        work.wait()
    return from_left, from_right
    ### END SOLUTION


# %% name="check_halo"
check(halo_exchange)

# %% [markdown] name="halo_live"
# On the live world rank 0 should hold the edges of the last rank and of rank 1.


# %% name="try_halo"
def halo_of_ranks():
    return halo_exchange(torch.tensor([10.0 * dist.get_rank()]))


results, trace = world.trace(halo_of_ranks, deadline=10)
print([[edge.item() for edge in edges] for edges in results])
Player(trace)

# %% [markdown] name="deadlock_question"
# **In words** (2 points): which rank waited for which rank in `stuck_halo`? Answer in a complete sentence or with a picture of arrows. And why does
# your change break the circle? Two or three sentences.

# %% [markdown] nbgrader={"grade_id": "who_waits", "grade": true, "solution": true, "points": 2}
# Every rank is in its first send: rank 0 waits for 1 to receive, 1 for 2, 2 for 3, and 3 for 0, a cycle, so no rank reaches a recv. In a batch (or with
# isend) a rank starts its sends and its receives together, so every send has its receiver, and there is no circle of waits. (1 point for the cycle, 1
# for why the change breaks it. Ordering by parity, even ranks send first and odd ones receive first, is equally good, if it also works for 3 ranks. It
# is right on NCCL too: there the first message between two ranks waits until both are there, and by parity the receiver comes.)

# %% [markdown] name="pingpong_task"
# ## 3. What does a message cost?
#
# The model of this course: a message of $n$ bytes takes $\alpha + n\beta$ seconds. $\alpha$ is the price of a message of any size, $\beta$ the price
# of a byte. No table has them for your machine; you must measure them.
#
# In a *ping-pong* rank 0 sends $n$ bytes to rank 1, which sends them back at once. One clock, on rank 0, measures both ways; half of that is one
# message. (Two clocks on two ranks would not agree.) The other ranks do nothing. Rank 0 sends first and rank 1 receives first, so nobody waits in a
# circle, with any library. On a GPU a call returns when it is queued: there call `torch.cuda.synchronize()` before you look at the clock.


# %% nbgrader={"grade_id": "ping_pong", "solution": true}
def ping_pong(nbytes: int, repeats: int) -> list[float]:
    """Returns the seconds of one message of `nbytes` bytes, `repeats` of them, on rank 0; [] on the others."""
    ### BEGIN SOLUTION
    rank = dist.get_rank()
    if rank > 1:
        return []
    ball = torch.zeros(nbytes, dtype=torch.uint8)
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        if rank == 0:
            dist.send(ball, 1)
            dist.recv(ball, 1)
        else:
            dist.recv(ball, 0)
            dist.send(ball, 0)
        if ball.is_cuda:  # there the calls only start the work
            torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / 2)
    return times if rank == 0 else []
    ### END SOLUTION


# %% [markdown] name="measure"
# The first message of a pair also opens their connection, so it is left out. Of the others we keep the median.

# %% name="measure_link"
world.run(ping_pong, 1, 5)
sizes = [1, 64, 1024, 16 * 1024, 64 * 1024, 256 * 1024, 1 << 20]
points = [(nbytes, statistics.median(world.run(ping_pong, nbytes, 31)[0][1:])) for nbytes in sizes]
for nbytes, seconds in points:
    print(f"{nbytes:>9} bytes {1e6 * seconds:10.1f} µs")

# %% [markdown] name="fit_task"
# Now find $\alpha$ and $\beta$ so that the line goes near *all* points. The times differ by orders of magnitude, so in a plain least-squares fit only
# the longest would matter. Make the *relative* error small. The check invents links, from two GPUs to two cities, measures them with an error of up
# to 3 %, and accepts $\alpha$ and $\beta$ within 10 % of the best fit. On some links every single time is off by 15 to 22 %: there no two points are
# good enough, so use them all.


# %% nbgrader={"grade_id": "fit_line", "solution": true}
def fit_line(points: list[tuple[int, float]]) -> tuple[float, float]:
    """Returns (alpha, beta) in seconds and seconds a byte, for points (nbytes, seconds)."""
    ### BEGIN SOLUTION
    # (alpha + n beta) / t should be 1: linear in alpha and beta
    rows = torch.tensor([[1 / t, n / t] for n, t in points], dtype=torch.float64)
    ones = torch.ones(len(points), 1, dtype=torch.float64)
    alpha, beta = torch.linalg.lstsq(rows, ones).solution.flatten().tolist()
    return alpha, beta
    ### END SOLUTION


# %% name="check_fit"
check(fit_line)

# %% name="show_fit"
alpha, beta = fit_line(points)
print(f"alpha = {1e6 * alpha:.1f} µs, 1/beta = {1e-9 / beta:.2f} GB/s")
fit(points, alpha, beta)

# %% [markdown] name="calibrate_task"
# ### Calibrate yourself
#
# How long do 512 KiB take, a size that you have not measured? First **write down** your own guess, from the table above and without the formula. It
# is never marked. Then compare it with the model and with the measurement. Copy the three lines into your answer: outputs are not handed in.

# %% name="guess"
guess_us = 0.0

# %% name="calibrate"
nbytes = 512 * 1024
model_us = 1e6 * (alpha + nbytes * beta)
measured_us = 1e6 * statistics.median(world.run(ping_pong, nbytes, 31)[0][1:])
print(f"your guess {guess_us:8.0f} µs")
print(f"your model {model_us:8.0f} µs, {abs(model_us / measured_us - 1):.0%} off")
print(f"measured   {measured_us:8.0f} µs")

# %% [markdown] name="calibrate_question"
# **In words** (3 points): write down your $\alpha$ (µs) and $1/\beta$ (GB/s), how far the *model* was off at 512 KiB, and at which
# size $\alpha$ and $n\beta$ are equal. Below that size, what would you change about a program that sends many messages?

# %% [markdown] nbgrader={"grade_id": "calibration", "grade": true, "solution": true, "points": 3}
# The figures are those of the student's machine, printed above; with an alpha of 50 µs and 2 GB/s the two terms are equal at
# n = alpha/beta = 100 kB. Below it a message costs about alpha, whatever its size, so put many small messages into one. (1 point for
# alpha and 1/beta with units and in agreement with the table; 1 for the model's error at 512 KiB, in full up to 50 %, half
# up to 100 % or with a good reason for more: other work on the machine, or a
# line that bends where a tensor falls out of the cache; 1 for alpha/beta and the consequence. The guess gives no points.)

# %% [markdown] name="marking"
# ## Marking
#
# These three cells give the points of the functions. Each is the exercise's points times the score that `check` gives; you can run them too.
# A person reads the answers in words.

# %% nbgrader={"grade_id": "ring_shift-graded", "grade": true, "locked": true, "points": 4} allranks={"exercise": "ring_shift"}
round(4 * check(ring_shift).score, 2)

# %% nbgrader={"grade_id": "halo_exchange-graded", "grade": true, "locked": true, "points": 3} allranks={"exercise": "halo_exchange"}
round(3 * check(halo_exchange).score, 2)

# %% nbgrader={"grade_id": "fit_line-graded", "grade": true, "locked": true, "points": 3} allranks={"exercise": "fit_line"}
round(3 * check(fit_line).score, 2)

# %% [markdown] name="recap"
# A message needs a call on each of two ranks, so the *order* of calls matters and not only their number. It costs $\alpha$, even if it is short, and
# $\beta$ for each byte. **If ranks wait for each other in a circle, the program hangs, whatever the size of the messages.** In the next lab one tensor goes to all ranks, and you count
# rounds.

# %% [markdown] name="hand_in"
# **Before you hand in:** save the notebook and run the last cell. It says whether the notebook would be taken as it is saved, and which answers are empty.

# %% name="stop_world"
from allranks import ready

world.stop()
ready()
