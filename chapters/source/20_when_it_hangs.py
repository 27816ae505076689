# %% [markdown] name="title"
# # When it hangs
#
# **A run on 512 GPUs prints "step 1041", and then nothing. No error, no crash: 512 processes wait. Which of them is to blame, and how
# do you find out before the night is over?**
#
# 40 minutes · CPU ok, 2 or more GPUs better · before it: [All-reduce](07_all_reduce.ipynb), [Data parallel, by hand](14_data_parallel.ipynb)

# %% name="start_world"
import os
import signal
import statistics
import time

import torch
import torch.distributed as dist
from ipywidgets import FloatText, IntText

from allranks import Player, RanksStuck, World, ask, bench, check, plots
from allranks.wire import run

world = World(ranks=4)
world

# %% [markdown] name="skipped"
# ## 1. It hangs later than it broke
#
# In [Data parallel](14_data_parallel.ipynb) collectives met in the order of the calls. Now rank 1 finds no usable sample in step 2 and skips it, as `continue` so easily does.
# Each rank brings the number of its step. **Predict**: in which of the steps 0 to 4 do the others get stuck?

# %% name="guess_step"
guess = IntText(description="step:")
guess

# %% tags=["raises-exception"] name="skip"
# %%ranks --deadline 2
for step in range(5):
    if step == 2 and rank == 1:
        continue
    gradient = torch.tensor([float(step)])
    dist.all_reduce(gradient)
    print(f"step {step}: {gradient.item():g}")

# %% [markdown] name="skip_explained"
# Not in step 2. There the others met the step 3 *of rank 1*, and the sum of two different steps went into the model without a word. They wait in step 4, in which
# rank 1 is done. "A skipped collective hangs the others" is true only where no other call follows: before that it **pairs with the next one**.
#
# Read the report from below. Its last line but one says who waits, in which **collective number** (each rank counts the calls of a group from its beginning, those
# of our World included), and **who is missing**. That is where it stopped; the mistake is at that point or before.
#
# (On GPUs a call is only queued, and the CPU goes on to the line that needs the result, or to the end of the cell: there the report shows *that* line, or says that a rank waits for its GPU. Which collective it is, the
# flight recorder of section 4 tells.)

# %% [markdown] name="standings"
# ## 2. The report, as data
#
# Rank 0 wants to hand out new weights while the others average gradients. **Predict**: what do the ranks get?

# %% name="guess_desync"
guess = ask("an error that names both calls", "they wait, each in its own call", "numbers, and they are wrong")
guess


# %% name="desync"
def two_plans():
    if dist.get_rank() == 0:
        dist.broadcast(torch.ones(4, 2), src=0)
    else:
        dist.all_reduce(torch.ones(8))


try:
    world.run(two_plans, deadline=2)
except RanksStuck as stuck:
    for s in stuck.statuses:
        print(f"rank {s.rank}: {s.op}, shape {s.shape}, {s.dtype}, collective {s.seq}, line {s.line}: {s.text}")

# %% [markdown] name="desync_explained"
# All ranks are at the same number, but not in the same collective: a **desync**. Gloo says nothing, each call just waits for messages that will not come. NCCL
# calls mismatches undefined. The mend is in the table: two lines of code where there should be one.
#
# The **wire** (from [Point to point](02_point_to_point.ipynb)) sees all calls, compares them, and needs no deadline:

# %% name="wire_desync"
run(two_plans, ranks=world.ranks).failure

# %% [markdown] name="dtype"
# ### Worse than a hang
#
# Rank 0 has a counter in int32, the others in float32: four bytes each. Everybody brings 1. **Predict**: an error, a hang or a number?

# %% name="guess_dtype"
guess = ask("an error", "a hang", "a number")
guess


# %% name="dtype_live"
def two_dtypes():
    x = torch.ones(1, dtype=torch.int32 if dist.get_rank() == 0 else torch.float32)
    dist.all_reduce(x)
    return x.item()


print("live:", world.run(two_dtypes, deadline=3))
print("wire:", run(two_dtypes, ranks=world.ranks).failure.message)

# %% [markdown] name="dtype_explained"
# [All-reduce](07_all_reduce.ipynb) showed why: ranks read each other's bits as their own dtype. No deadline finds this, for nobody waits. A check before the call does:
# `TORCH_DISTRIBUTED_DEBUG=DETAIL` makes PyTorch compare operation, shape and dtype before each collective. It is slow, so it is for the hunt and not for the run.

# %% [markdown] name="faults"
# ## 3. Four ways to break a healthy program
#
# So far the program was wrong. Here it is right, and the *machine* breaks. `world.fault(rank, kind)` breaks one thing in the next call; then it is forgotten.


# %% name="training"
def training():
    for _ in range(200):
        time.sleep(0.02)  # forward and backward
        dist.all_reduce(torch.ones(8))
    return "trained"


# %% [markdown] name="kill_question"
# **A rank dies.** After half a second rank 1 gets SIGKILL, as from a system that is out of memory. **Predict**: what do the others see?

# %% name="guess_kill"
guess = ask("all get an error at once", "all wait for the deadline", "some get an error, some may wait")
guess

# %% tags=["raises-exception"] name="kill"
world.fault(rank=1, kind="kill", after_s=0.5)
world.run(training, deadline=3)

# %% [markdown] name="kill_explained"
# Those with an open exchange with rank 1 see a broken connection, and at once. A rank that just then waits for somebody alive has nothing to complain of: it waits for a neighbour
# that has given up. Which is which depends on the moment; run it again. (With two ranks there is only a neighbour.)
#
# Note what the errors do *not* say: "killed". "Connection closed by peer" is **an innocent rank talking about another**. Our World knows the truth because it asked the
# operating system. In a cluster, look first for the process that is gone (exit code, kernel log), and among log lines for the earliest.

# %% [markdown] name="pause_question"
# **A rank stops without dying.** Rank 1 gets SIGSTOP: it is there, its connections are open, it does nothing. So does a rank in a stuck file system or a debugger. **Predict**.

# %% name="guess_pause"
guess = ask("a broken connection, as before", "all others wait, and no error ever comes", "the others go on without it")
guess

# %% tags=["raises-exception"] name="pause"
world.fault(rank=1, kind="pause", after_s=0.5)
world.run(training, deadline=2)

# %% [markdown] name="pause_explained"
# No error, for nothing is broken that the network could see. Only a deadline ends it. PyTorch has one: 10 minutes by default with NCCL, 30 with other backends. **Does not answer** is the
# report's word for the culprit: it could not even say where it is. The others all can, and all are in the same collective.

# %% [markdown] name="drop_question"
# **A message is lost.** Each rank receives from its left and passes on to its right, as in a pipeline of model stages. Rank 0's message never leaves. **Predict**: who waits, and for whom?

# %% name="guess_drop"
guess = ask(
    "rank 1, for rank 0; the others are done", "each of the others, for its left neighbour", "all ranks, rank 0 too"
)
guess


# %% tags=["raises-exception"] name="drop"
def pipeline():
    rank, p = dist.get_rank(), dist.get_world_size()
    x = torch.zeros(1)
    if rank > 0:
        dist.recv(x, rank - 1)
    if rank < p - 1:
        dist.send(x + 1, rank + 1)


world.fault(rank=0, kind="drop_message")
world.run(pipeline, deadline=2)

# %% [markdown] name="drop_explained"
# The report names each wait with its **peer**. Follow them: each rank blames its left neighbour, back to rank 1, which blames rank 0, which is *done*. **The end of the chain is the suspect**: a rank that
# waits for nobody. If the chain closes to a circle, it is a deadlock and the program is wrong.

# %% [markdown] name="slow_question"
# **A rank is slow.** Each of rank 1's operations begins 50 ms late: a hot card, a busy CPU, a slow disk. We run ten steps, healthy and then slow, and record both.
# **Predict** two things: how many seconds longer does it take, and **on which rank do the all-reduces look shortest**?

# %% name="guess_slow"
guess, shortest = FloatText(description="s longer:"), IntText(description="rank:")
display(guess, shortest)


# %% name="slow"
def ten_steps():
    for _ in range(10):
        time.sleep(0.01)
        dist.all_reduce(torch.ones(8))


_, healthy = world.trace(ten_steps)
world.fault(rank=1, kind="slow", delay_s=0.05)
_, slow = world.trace(ten_steps)
print(f"measured: {slow.seconds - healthy.seconds:.2f} s longer;  10 steps of 0.05 s: {10 * 0.05:.2f} s")

# %% name="slow_timeline"
plots.timeline(slow)

# %% [markdown] name="slow_explained"
# What is over or short of the 0.50 s is the machine's own unevenness, which both runs have. Bars are time inside `all_reduce`. The slow rank has the *shortest*, since everybody is there when it comes. **The culprit's profile looks best.** Anyone who reads only rank 0's
# profile sees "the all-reduce takes most of the step" and buys a faster network, in vain.
#
# A synchronous step takes $T = \max_r t_r + t_{\text{comm}}$, where $t_r$ is the compute time of rank $r$. So one rank that is 5 % slower makes the job up to 5 % slower:

# %% name="slow_cost"
p, slower = 512, 0.05
print(
    f"one of {p} GPUs {100 * slower:g} % slower: the others idle like {(p - 1) * (1 - 1 / (1 + slower)):.0f} GPUs switched off"
)

# %% [markdown] name="wire_faults"
# ### The same on the wire
#
# On the wire a rank can break itself. **Predict** which of these four is found only by waiting.

# %% name="guess_wire"
guess = ask("dies", "stops", "loses", "dawdles")
guess


# %% name="wire_programs"
def dies():
    if dist.get_rank() == 1:
        os._exit(1)
    dist.all_reduce(torch.ones(8))


def stops():
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    dist.all_reduce(torch.ones(8))


def loses():
    if dist.get_rank() == 1:
        dist.recv(torch.empty(1), 0)  # rank 0 never sent it


def dawdles():
    if dist.get_rank() == 1:
        time.sleep(0.2)
    dist.all_reduce(torch.ones(8))


# %% name="wire_explains"
for program in (dies, stops, loses, dawdles):
    outcome = run(program, ranks=world.ranks, wall_s=2)
    print(f"{program.__name__:8} {outcome.failure.message if outcome.failure else 'nothing wrong'}")

# %% [markdown] name="wire_explained"
# A stopped rank needs a clock even there (we gave it 2 s): from outside, "stopped" looks like "not yet". And slow is not wrong, so the wire, whose clock counts messages and not sleep, has nothing to say. Lost messages and
# dead ranks are *facts*, and whoever sees all ranks sees them at once.

# %% [markdown] name="monitored"
# ## 4. Asking who is there
#
# `monitored_barrier` is a barrier with a deadline of its own, in which rank 0 collects everybody's answer. It needs a group that works on CPUs (Gloo). Rank 1 stays away. **Predict** which
# rank's error names rank 1.

# %% name="guess_monitored"
guess = ask("every rank's", "rank 0's only", "rank 1's")
guess

# %% tags=["raises-exception"] name="monitored_run"
# %%ranks --deadline 5
from datetime import timedelta

group = dist.new_group(backend="gloo")
if rank != 1:
    dist.monitored_barrier(group, timeout=timedelta(seconds=1))
print("passed")

# %% [markdown] name="monitored_explained"
# Rank 0 names the missing one; all others are told to look at rank 0's log. Put one before a suspicious collective, on a Gloo group beside your NCCL group; by default it stops at the first missing rank, and
# `wait_all_ranks=True` collects all. It is for debugging: it makes all ranks meet.
#
# The failed wait has closed connections, so this group is of no use any more. In a job you would end it; here:

# %% name="reset"
world.reset()

# %% [markdown] name="flight"
# ### The flight recorder
#
# Nobody can ask 512 ranks by hand. PyTorch's **flight recorder** keeps the last collectives of each rank in memory; `TORCH_FR_BUFFER_SIZE` says how many (2000 by default, 0 is off; its older name is
# `TORCH_NCCL_TRACE_BUFFER_SIZE`). When an NCCL call passes its deadline on any rank, all ranks write them to files: that is on unless `TORCH_NCCL_DUMP_ON_TIMEOUT=0` turns it off (torch 2.15 also says `TORCH_FR_DUMP_ON_TIMEOUT`), and `TORCH_FR_DUMP_TEMP_FILE` says where. You then read them together, as section 2 did:
#
# 1. Which group? A job with a mesh has many.
# 2. Which collective number is the smallest that not all have begun? Who has not? That rank is missing; ask what it does *instead*.
# 3. Have all begun it? Compare operation, shape and dtype: a mismatch.
# 4. All equal, and still no end? Then suspect the network or a machine, not the program.
#
# NCCL has its own such service, RAS (since 2.24, on by default): `ncclras` asks the running job.

# %% [markdown] name="profile"
# ## 5. Slow, but not stuck: reading a trace
#
# Four questions for a trace of a slow job. Do communication calls dominate after backward? Do ranks keep step? Are there too many small collectives? Is the traffic between nodes? `Trace` holds each call with
# its bytes, start and end, so the first three are a few lines:


# %% name="reader"
def read(trace):
    by_rank = [[e for e in trace if e.rank == rank] for rank in range(trace.ranks)]
    last_came = [max(e.start for e in together) for together in zip(*by_rank, strict=True)]
    for rank, calls in enumerate(by_rank):
        inside = sum(e.end - e.start for e in calls) / trace.seconds
        waiting = sum(came - e.start for e, came in zip(calls, last_came, strict=True)) / trace.seconds
        size = statistics.median(e.nbytes for e in calls)
        print(
            f"rank {rank}: {len(calls)} calls of {size:g} bytes; {inside:4.0%} of the time inside, {waiting:4.0%} waiting"
        )


read(slow)

# %% [markdown] name="reader_explained"
# *Waiting* is the time before the last rank came. It belongs to no network; only what is left of *inside* is communication. Rank 1 hardly waits, all others nearly always: **compare the ranks' starts, not their durations.**
#
# Now a step of a model with 64 small parameters, each all-reduced by itself after its backward pass. **Predict** how many times faster one all-reduce of all 256 KiB together is.

# %% name="guess_small"
guess = FloatText(description="times:")
guess


# %% name="pieces"
def averaging(pieces):
    parts = torch.ones(65536).chunk(pieces)  # 256 KiB in all
    for part in parts:
        dist.all_reduce(part)


def timed(pieces):
    return bench.seconds_of(lambda: averaging(pieces), iterations=5)[0]


_, trace = world.trace(averaging, 64)
read(trace)

# %% [markdown] name="pieces_model"
# With $k$ pieces of together $n$ bytes on a ring ([All-reduce](07_all_reduce.ipynb)), $\alpha$ seconds a message and $\beta$ a byte,
#
# $$T(k) = k \cdot 2(p-1)\,\alpha + 2\,\frac{p-1}{p}\,n\,\beta.$$
#
# Only the first term knows $k$: a straight line. One piece and 64 pieces fix it (so they fit by construction); 4 and 16 are the test. `bench.seconds_of` gives
# the median of five, as the slowest rank took it.

# %% name="pieces_measured"
counts = (1, 4, 16, 64)
measured = {k: world.run(timed, k)[0] for k in counts}
per_call = (measured[64] - measured[1]) / 63
for k in counts:
    model = measured[1] + (k - 1) * per_call
    print(f"{k:3} pieces: measured {1e3 * measured[k]:7.2f} ms   model {1e3 * model:7.2f} ms")
print(f"{measured[64] / measured[1]:.0f} times; 2(p-1) alpha = {1e6 * per_call:.0f} µs a call")

# %% [markdown] name="pieces_explained"
# The bytes never changed. Where the points leave the line, the machine was busy, or short calls do not use a ring. On CPUs $\alpha$ is mostly the waking of processes that wait. This is why DDP fills buckets of 25 MiB: 14 GB of gradients are up to 535 calls, and on 32 ranks with an $\alpha$ of
# 5 µs each pays $62 \cdot 5 = 310$ µs, 166 ms in all. Too few pieces are no better, for then none can start before backward ends.
#
# **After backward.** What the step pays for is the exposed part, $t_{\text{exposed}} = t_{\text{step}} - t_{\text{compute}}$; time that hides behind backward is free. If calls go on long after backward ended, the last bucket
# is too big, nothing overlaps, or the links are too slow. **Between nodes?** Time the same call in a group within one node and in a group across nodes.
#
# Your own trace, as a film:

# %% name="film"
Player(world.trace(pipeline)[1])

# %% [markdown] name="exercise"
# ## 6. Yours: the log line
#
# This averaged gradients well for months. Then somebody added a line for the log. Run it, read what `check` says, and **mend it without losing the norm**.


# %% name="distributed_mean"
def distributed_mean(tensor):
    mean = (tensor / dist.get_world_size()).contiguous()
    dist.all_reduce(mean)
    if dist.get_rank() == 0:
        norm = mean.norm()
        dist.all_reduce(norm, op=dist.ReduceOp.MAX)  # the largest of all ranks, for the log
    return mean


check(distributed_mean)

# %% [markdown] name="exercise_answer"
# <details><summary><b>A hint</b></summary>
#
# What do the ranks hold after the first all-reduce? Is there anything left to compare?
# </details>
# <details><summary><b>An answer</b></summary>
#
# All hold the same mean, bit for bit, so its norm is the same too. Delete the second `dist.all_reduce`. (If the numbers did differ, the call would have to stand *before* the `if`.)
# </details>

# %% [markdown] name="quiz"
# ## 7. Check yourself
#
# <details><summary>1. Ranks 0 to 6 wait in collective 812. Rank 7 has finished collective 811 and computes. Did it skip a call?</summary>
#
# The numbers can't tell: each rank counts only what it calls, and its 811th meets the others' 811th, whatever it was meant to be. Rank 7 is the one that is missing; the line where it computes says why.
# </details>
#
# <details><summary>2. In the log, 511 ranks say "connection closed by peer", one says nothing. Where do you look?</summary>
#
# At the one that says nothing: it is dead. Its exit code and its machine's kernel log say why.
# </details>
#
# <details><summary>3. Rank 0's profile shows 70 % of the time in all-reduce. Faster network?</summary>
#
# Not before you have compared the starts of all ranks. If one comes late each time, the 70 % are waiting.
# </details>

# %% [markdown] name="recap"
# ## Recap
#
# A hang shows where ranks stopped, not where they parted: a skipped call first pairs with the next one. Operation, peer, shape, dtype and collective number of every rank tell a missing rank from a mismatch, a dead from a paused and a slow one; wrong dtypes
# and wrong order give numbers and no hang at all. In a trace, compare starts before durations. **Ask all ranks, and look for the one that differs.**
#
# **Now you:** six broken programs wait in [Lab 10](../labs/lab10_debugging/debugging.ipynb): which rank, which line, which kind, and then the repair.
#
# **Next question:** can you train a small transformer in three ways, and explain every byte? [Capstone](21_capstone.ipynb)
#
# **Sources.** [PyTorch, torch.distributed: debugging](https://docs.pytorch.org/docs/stable/distributed.html#debugging-torch-distributed-applications) ·
# [PyTorch, monitored_barrier](https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.monitored_barrier) ·
# [NVIDIA, NCCL user guide](https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/index.html) (collective functions; RAS) ·
# S. Li et al., *PyTorch Distributed*, [arXiv:2006.15704](https://arxiv.org/abs/2006.15704)

# %% name="stop_world"
world.stop()
