# %% [markdown] name="title"
# # When it hangs
#
# {{here}}
#
# **A run on 512 GPUs prints "step 1041", and then nothing. There is no error and no crash: 511 processes wait for one. Which one, and how do you find it quickly?**
#
# {{picture}}
#
# 512 ranks. The hatched ones wait. Do you see the one that does not?

# %% [markdown] name="my_model_needs"
# A step of **my model** on 64 GPUs has 160 collective calls, and every GPU must make each of them. One GPU leaves out one call. Which of the
# others notices, and what do I see?

# %% name="start_world"
import os
import pickle
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist

from allranks import RanksStuck, World, check, plots, predict, predictions, profiles
from allranks.wire import run

world = World()
world

# %% [markdown] name="skipped"
# **If your ranks are on GPUs**, some reports look different: with NCCL a call returns when it is *queued*, and the rank waits later, where it needs the
# result. The text says where, and [What changes on NCCL](42_what_changes_on_nccl.ipynb) says why. `World(backend="gloo")` instead of `World()` shows
# every report as it is described here.
#
# ## 1. One rank skips a step
#
# In [Data parallel](../3_one_model/20_data_parallel.ipynb) collectives were matched in the order of the calls. Now rank 1 finds no usable sample in step 2 and skips
# the step with `continue`. Each rank contributes the number of its step.

# %% name="guess_step"
guess_step = predict(
    "Rank 1 skips step 2. In which of the steps 0 to 4 do the others get stuck?",
    low=0,
    high=4,
    title="The others get stuck in step",
)
guess_step

# %% tags=["raises-exception"] name="skip"
# %%ranks --deadline 2
for step in range(5):
    if step == 2 and rank == 1:
        continue
    gradient = torch.tensor([float(step)])
    dist.all_reduce(gradient)
    print(f"step {step}: {gradient.item():g}")

# %% name="reveal_step" jupyter={"source_hidden": true}
# the answer: run this cell
guess_step.reveal(
    4,
    why="The others' call of step 2 is matched with rank 1's next call, of step 3, and so on; only at the end there is one call too few.",
)

# %% [markdown] name="skip_explained"
# **The hang comes after the mistake.** Before it the sum mixes two different steps, and no error says so. "If one rank skips a collective, the others hang" is true only if that rank makes no other call
# afterwards.
#
# Read the report from the bottom. The line before the last says which ranks wait, in which **collective number** (each rank counts its calls of a
# group; those that our World makes are left out), and **which rank is missing**. There the program stopped; the mistake is at that point or before it.
#
# (On GPUs a call is only queued, and the CPU continues to the line that needs the result, or to the end of the cell: there the report shows *that*
# line, or says that a rank waits for its GPU. The flight recorder of section 4 tells which collective it is.)

# %% [markdown] name="standings"
# ## 2. The report, as data
#
# Rank 0 broadcasts new weights while the others average gradients, here on the CPU in a group with Gloo.

# %% name="guess_desync"
guess_desync = predict(
    "Rank 0 calls broadcast while the others call all_reduce, with Gloo. What happens?",
    choices=[
        "an error that names both calls",
        "they wait, each in its own call",
        "numbers, and they are wrong",
    ],
    title="Broadcast on one rank, all_reduce on the others",
)
guess_desync


# %% name="desync"
def two_plans(group=None):
    if dist.get_rank() == 0:
        dist.broadcast(torch.ones(4, 2, device="cpu"), src=0, group=group)
    else:
        dist.all_reduce(torch.ones(8, device="cpu"), group=group)


try:
    world.run(lambda: two_plans(dist.new_group(backend="gloo")), deadline=2)
except RanksStuck as stuck:
    for s in stuck.statuses:
        print(f"rank {s.rank}: {s.op}, shape {s.shape}, {s.dtype}, collective {s.seq}, line {s.line}: {s.text}")

# %% name="reveal_desync" jupyter={"source_hidden": true}
# the answer: run this cell
guess_desync.reveal(
    "they wait, each in its own call",
    why="No rank sees another's call: each waits for messages that will never come.",
)

# %% [markdown] name="desync_explained"
# All ranks are at the same number, but not in the same collective: this is a **desync**. Gloo reports nothing. The table shows what to fix: the ranks are at two different lines of code, where there should be one. (NCCL calls mismatches undefined:
# its calls return, and then the ranks may wait for their GPUs, or hold anything. The flight recorder of section 4 shows both calls.)
#
# The **wire** (from [Point to point](../1_first_hours/03_point_to_point.ipynb)) sees all calls and compares them, so it needs no deadline:

# %% name="wire_desync"
run(two_plans, ranks=world.ranks).failure

# %% [markdown] name="dtype"
# ### Worse than a hang
#
# Rank 0 has a counter in int32, the others in float32: four bytes each. Each rank contributes 1.


# %% name="dtype_live"
def two_dtypes(group=None):
    x = torch.ones(1, dtype=torch.int32 if dist.get_rank() == 0 else torch.float32, device="cpu")
    dist.all_reduce(x, group=group)
    return x.item()


print("live:", world.run(lambda: two_dtypes(dist.new_group(backend="gloo")), deadline=3))
print("wire:", run(two_dtypes, ranks=world.ranks).failure.message)

# %% [markdown] name="dtype_explained"
# [All-reduce](../1_first_hours/04_all_reduce.ipynb) showed why: ranks read each other's bits as their own dtype. A deadline can't find this mistake, because no rank
# waits. A check before the call finds it: `TORCH_DISTRIBUTED_DEBUG=DETAIL` makes PyTorch compare operation, shape and dtype before each collective.
# It is slow: use it only to look for a mistake.

# %% [markdown] name="faults"
# ## 3. Four ways to break a healthy program
#
# So far the program was wrong. Here it is right, and the *machine* fails. `world.fault(rank, kind)` causes one fault, only in the next call.


# %% name="training"
def training():
    for _ in range(200):
        time.sleep(0.02)  # forward and backward
        x = torch.ones(8)
        dist.all_reduce(x)
        x[0].item()  # for the log; on a GPU the rank waits here
    return "trained"


# %% [markdown] name="kill_question"
# **A rank dies.** After half a second rank 1 gets SIGKILL, as it would on a machine that is out of memory.

# %% name="guess_kill"
guess_kill = predict(
    "Rank 1 is killed. What do the others see?",
    choices=["all get an error at once", "all wait for the deadline", "some get an error, some may wait"],
    title="A rank is killed: the others",
)
guess_kill

# %% tags=["raises-exception"] name="kill"
world.fault(rank=1, kind="kill", after_s=0.5)
world.run(training, deadline=3)

# %% name="reveal_kill" jupyter={"source_hidden": true}
# the answer: run this cell
guess_kill.reveal(
    "some get an error, some may wait",
    why="Only ranks that use the broken connection at that moment notice it; others wait for a neighbour that has already stopped. (With NCCL they may all wait; with two ranks the other one gets an error.)",
)

# %% [markdown] name="kill_explained"
# Which ranks get an error depends on the moment; run it again.
#
# The errors do *not* say "killed". "Connection closed by peer" means that **a healthy rank reports another rank's end**. Our World knows the true
# cause because it asked the operating system. In a cluster, look first for the process that has ended (exit code, kernel log), and for the earliest
# log line. torchrun names it, *Root Cause (first observed failure)*, with its exit code.
#
# With NCCL the others may see nothing at all: their calls have returned, and their GPUs wait for bytes that nobody sends. Only in the network between
# nodes does a broken connection show. In each rank a thread of PyTorch, the **watchdog**, looks at the queue and ends the process if a call has been in
# it for longer than the group's timeout.

# %% [markdown] name="pause_question"
# **A rank stops without dying.** Rank 1 gets SIGSTOP: the process exists, its connections are open, but it does nothing. A rank that waits for a file
# system or stands in a debugger behaves in the same way.

# %% tags=["raises-exception"] name="pause"
world.fault(rank=1, kind="pause", after_s=0.5)
world.run(training, deadline=2)

# %% [markdown] name="pause_explained"
# There is no error, because the connections still work. Only a deadline ends the wait. PyTorch has one: 10 minutes by default with NCCL (the
# watchdog's), 30 with other backends. The report says **does not answer** of the rank that is the cause: it could not even say where it is. All others can, and all of
# them are in the same collective.

# %% [markdown] name="drop_question"
# **A message is lost.** Each rank receives from its left neighbour and sends to its right one, as in a pipeline of model stages. Rank 0's message is
# never sent. Which ranks wait, and for which rank?


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
# The report names the **peer** of each wait. Follow the peers: each rank waits for its left neighbour; rank 1 waits for rank 0, which is *done*. **Look
# at the end of the chain**: the rank there waits for no other rank. If the chain is a circle, it is a deadlock, and the program is wrong. (With NCCL
# a pair's *first* message makes the program wait in the call, as here. Later short ones are queued, and the rank waits for its GPU.)

# %% [markdown] name="slow_question"
# **A rank is slow.** Each of rank 1's operations begins 50 ms late, as with a hot card, a busy CPU or a slow disk. We run ten steps without and then
# with the fault, and record both.


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
# The difference from 0.50 s comes from the machine's own variations, which both runs have. The bars are time inside `all_reduce`. **The profile of the slow rank looks best.** If you read only rank 0's
# profile, you see "the all-reduce takes most of the step", and may buy a faster network that does not help.
#
# A synchronous step takes $T = \max_r t_r + t_{\text{comm}}$, where $t_r$ is the compute time of rank $r$. So one rank that is 5 % slower makes the job up to 5 % slower.

# %% name="guess_idle"
guess_idle = predict(
    "One of 512 GPUs is 5 % slower. The others wait for it: as if how many GPUs were switched off?",
    low=0,
    high=512,
    unit="GPUs",
    title="One of 512 is 5 % slower: lost are",
)
guess_idle

# %% name="slow_cost"
p, slower = 512, 0.05
print(
    f"one of {p} GPUs {100 * slower:g} % slower: the others idle like {(p - 1) * (1 - 1 / (1 + slower)):.0f} GPUs switched off"
)

# %% name="reveal_idle" jupyter={"source_hidden": true}
# the answer: run this cell
guess_idle.reveal(
    (p - 1) * (1 - 1 / (1 + slower)),
    within=3,
    why="In each step all the other 511 wait for a twenty-first part of it, and 511 / 21 is 24.",
)

# %% [markdown] name="wire_faults"
# ### The same on the wire
#
# On the wire a program can cause its own faults. In the four programs below, rank 1 ends its process, is stopped by SIGSTOP, waits for a
# message that nobody sends, or is slow.


# %% name="wire_programs"
def dies():
    if dist.get_rank() == 1:
        os._exit(1)
    dist.all_reduce(torch.ones(8))


def stops():
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    dist.all_reduce(torch.ones(8))


def waits():
    if dist.get_rank() == 1:
        dist.recv(torch.empty(1), 0)  # rank 0 never sent it


def delays():
    if dist.get_rank() == 1:
        time.sleep(0.2)
    dist.all_reduce(torch.ones(8))


# %% name="guess_limit"
guess_limit = predict(
    "The wire sees every message. Which of the four faults does it find only after its time limit?",
    choices=["rank 1 dies", "rank 1 is stopped", "rank 1 waits for a message", "rank 1 is slow"],
    title="Found only after the time limit",
)
guess_limit

# %% name="wire_explains"
for program in (dies, stops, waits, delays):
    outcome = run(program, ranks=world.ranks, wall_s=2)
    print(f"{program.__name__:8} {outcome.failure.message if outcome.failure else 'nothing wrong'}")

# %% name="reveal_limit" jupyter={"source_hidden": true}
# the answer: run this cell
guess_limit.reveal(
    "rank 1 is stopped",
    why="From outside a stopped rank looks like one that still computes; an end and a message that nobody sends are seen at once, and a slow rank is no error.",
)

# %% [markdown] name="wire_explained"
# (The limit here is 2 s. The wire's clock counts messages and not sleep, so the slow rank does not look slow there.)

# %% [markdown] name="monitored"
# ## 4. Asking which ranks are there
#
# `monitored_barrier` is a barrier with its own deadline, in which rank 0 collects an answer from every rank. It needs a group that works on CPUs
# (Gloo). Rank 1 does not call it. Which rank's error names rank 1?

# %% tags=["raises-exception"] name="monitored_run"
# %%ranks --deadline 5
from datetime import timedelta

group = dist.new_group(backend="gloo")
if rank != 1:
    dist.monitored_barrier(group, timeout=timedelta(seconds=1))
print("passed")

# %% [markdown] name="monitored_explained"
# Rank 0 names the missing rank; the errors of the others, if there are any, say that you should look at rank 0's log. Put such a barrier before a suspicious collective,
# on a Gloo group beside your NCCL group. By default it stops at the first missing rank; `wait_all_ranks=True` collects all. Use it only for
# debugging: all ranks wait for each other in it.
#
# The failed wait has closed connections, so this group can't be used any more. A real job you would end; here we reset the world:

# %% name="reset"
world.reset()

# %% [markdown] name="flight"
# ### The flight recorder
#
# You can't look at 512 ranks by hand. PyTorch's **flight recorder** keeps the last collectives of each rank in memory; `TORCH_FR_BUFFER_SIZE` says
# how many (2000 by default, 0 is off; its older name is
# `TORCH_NCCL_TRACE_BUFFER_SIZE`). When an NCCL call exceeds its deadline on a rank, that rank tells the others through the store, and each writes its records to a file. This is on unless
# `TORCH_NCCL_DUMP_ON_TIMEOUT=0` turns it off (in torch 2.15 also `TORCH_FR_DUMP_ON_TIMEOUT`), and `TORCH_FR_DUMP_TEMP_FILE` says where.
#
# **Not every rank writes one.** A rank that was killed can't, and a rank that is already in `destroy_process_group` doesn't (in torch 2.15, a rank that
# waits for nothing may not either). So a missing file is a clue.
#
# Gloo's calls are recorded too, but nobody writes them. Here each rank writes its own, after a second, while `two_plans` from section 2 waits. The cell
# takes 8 s, because a rank's first look for its source lines takes one or two:


# %% name="flight_dump"
def recorded(folder):
    from torch._C._distributed_c10d import _dump_fr_trace

    path = folder / f"dump_rank{dist.get_rank()}"
    threading.Timer(1, lambda: path.write_bytes(_dump_fr_trace())).start()
    two_plans(dist.new_group(backend="gloo"))


folder = Path(tempfile.mkdtemp())
try:
    world.run(recorded, folder, deadline=8)
except RanksStuck:
    cause = profiles.explain(profiles.read(folder)).causes[0]
    print(cause.text())

# %% [markdown] name="flight_explained"
# `profiles` reads such files (in a terminal: `allranks explain FOLDER`) and asks four questions:
#
# 1. Which group? A job with a mesh has many.
# 2. Which collective number is the smallest that not all ranks have begun? Which rank has not begun it? That rank is missing; find out what it does *instead*.
# 3. If all ranks have begun it, compare operation, shape and dtype. If they differ, it is a mismatch.
# 4. If all are equal, look at the network or a machine, not at the program.
#
# Ranks' calls are matched by group and number, never by their place in the file: the recorder keeps the last ones only. NCCL has a similar service,
# RAS (since 2.24, on by default): `ncclras` asks the running job. [Your own job](48_your_own_job.ipynb) reads more such files.
#
# **At which line does a rank stand?** `py-spy dump --pid PID` prints the Python stack of any running process. torch 2.13 can collect the stacks and flight records of all ranks on one page
# (`torch.distributed.debug.start_debug_server()` on every rank; experimental, for trusted networks only).
# <!-- torch 2.13: distributed/elastic/multiprocessing/errors/__init__.py:200; distributed/debug/__init__.py -->

# %% [markdown] name="frtrace"
# torch ships a reader of its own, `torchfrtrace FOLDER`. It needs the members of each group, which only NCCL's backend writes down; so the cell adds them to copies of our files.
#
# <!-- torch 2.13: distributed/flight_recorder/fr_trace.py; components/builder.py:86 (pg_config is filled when getNCCLComm is called), components/utils.py:706 (missing dump files) -->


# %% name="frtrace_code"
def with_groups(folder):
    """Copies of the files, each with the members of its groups."""
    copies = Path(tempfile.mkdtemp())
    for path in folder.iterdir():
        dump = pickle.loads(path.read_bytes())
        members = str(list(range(world.ranks)))
        groups = {entry["process_group"] for entry in dump["entries"]}
        dump["pg_config"] = {name: {"name": name, "desc": desc, "ranks": members} for name, desc in groups}
        (copies / path.name).write_bytes(pickle.dumps(dump))
    return copies


def torchfrtrace(*arguments):
    program = [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", *map(str, arguments)]
    told = subprocess.run(program, capture_output=True, text=True)
    return (told.stdout + told.stderr).strip().splitlines()


copies = with_groups(folder)
print(*torchfrtrace("-j", copies, "--selected-ranks", 0, 1), sep="\n")
print(next(line for line in torchfrtrace(copies) if "error msg" in line))

# %% name="guess_file"
file_guess = predict(
    "The same files, but rank 1 was killed and left none. What does torchfrtrace say?",
    choices=["rank 1 is the culprit", "a file is missing, and it stops", "the same as before"],
    title="torchfrtrace without one rank's file",
)
file_guess

# %% name="frtrace_missing"
(copies / "dump_rank1").unlink()
print(torchfrtrace(copies)[-1])
print(profiles.explain(profiles.read(copies)).causes[0].text())

# %% name="reveal_file" jupyter={"source_hidden": true}
# the answer: run this cell
file_guess.reveal(
    "a file is missing, and it stops",
    why="It compares every rank of a group, so by default it wants every file; with --allow-incomplete-ranks it goes on with what is there.",
)

# %% [markdown] name="frtrace_explained"
# Use both: `-j` shows the calls side by side, and ours goes on without the files of the dead. In torch's report *culprits* are the ranks that differ from the file read first. If that one is wrong, all healthy ranks are named.
#
# <!-- torch 2.13: components/utils.py:457-461, in a comment of its authors -->

# %% [markdown] name="profile"
# ## 5. Slow, but not stuck: reading a trace
#
# The first question for a trace of a slow job: do all ranks start each call at the same time? `Trace` holds each call with
# its bytes, start and end, its group, and its number there, so a few lines tell:


# %% name="reader"
def read(trace):
    last_came = {}  # of each call: when the last rank made it
    for e in trace:
        last_came[e.group, e.seq] = max(e.start, last_came.get((e.group, e.seq), e.start))
    for rank in range(trace.ranks):
        calls = [e for e in trace if e.rank == rank]
        inside = sum(e.end - e.start for e in calls) / trace.seconds
        waiting = sum(last_came[e.group, e.seq] - e.start for e in calls) / trace.seconds
        size = statistics.median(e.nbytes for e in calls)
        print(
            f"rank {rank}: {len(calls)} calls of {size:g} bytes; {inside:4.0%} of the time inside, {waiting:4.0%} waiting"
        )


read(slow)

# %% [markdown] name="reader_explained"
# *Waiting* is the time until the last rank makes the call. The network does not cause it; only the rest of *inside* is communication. Rank 1 hardly
# waits, all others wait nearly all the time: **compare the ranks' starts, not their durations.**
#
# If all start together, ask three more questions. Are there many small calls, each of which pays its $\alpha$s? Do calls go on long after backward
# ([Overlap and bucketing](../3_one_model/21_overlap_and_bucketing.ipynb) has both)? Is the same call much slower in a group across nodes than in a group within one ([Topology](40_topology.ipynb))?

# %% [markdown] name="exercise"
# ## 6. Your turn: the log line
#
# This function averaged gradients correctly for months. Then somebody added a line for the log. Run it, read what `check` says, and **fix it, but keep the norm**.


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
# All ranks hold the same mean, bit for bit, so its norm is the same too. Delete the second `dist.all_reduce`. (If the numbers were different, the call would have to be *before* the `if`.)
# </details>

# %% [markdown] name="quiz"
# ## 7. Check yourself
#
# <details><summary>1. Ranks 0 to 6 wait in collective 812. Rank 7 has finished collective 811 and computes. Did it skip a call?</summary>
#
# The numbers can't tell: each rank counts only its own calls, and its 811th call is matched with the others' 811th, even if it is a different one.
# Rank 7 is missing; look at the line where it computes.
# </details>
#
# <details><summary>2. In the log, 511 ranks report "connection closed by peer", and one reports nothing. Where do you look?</summary>
#
# At the rank that reports nothing: it is dead. Its exit code and its machine's kernel log say why.
# </details>
#
# <details><summary>3. Rank 0's profile shows 70 % of the time in all-reduce. Do you need a faster network?</summary>
#
# First compare the starts of all ranks. If one rank is late each time, the 70 % are waiting.
# </details>

# %% [markdown] name="recap"
# ## Recap
#
# A hang shows where ranks stopped, not where the mistake is: after a skipped call the others' call first pairs with the next one. From the operation,
# peer, shape, dtype and collective number of every rank you can see whether a rank is missing, dead, paused or slow, or whether the calls don't
# match. Wrong dtypes and a wrong order can give wrong numbers and no hang. In a trace, compare starts before durations. **Compare what all ranks do, and find the one that does something else.**
#
# **Now you:** [Lab 10](../../labs/lab10_debugging/debugging.ipynb) has six broken programs. Find the rank, the line and the kind of mistake, then fix it.
#
# **Next question:** the job runs again, but slowly. What does it wait for? [Your own job](48_your_own_job.ipynb)
#
# {{side_trips}}
#
# **Sources.** [PyTorch, torch.distributed: debugging](https://docs.pytorch.org/docs/stable/distributed.html#debugging-torch-distributed-applications) ·
# [PyTorch, monitored_barrier](https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.monitored_barrier) ·
# [NVIDIA, NCCL user guide](https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/index.html) (collective functions; RAS) ·
# S. Li et al., *PyTorch Distributed*, [arXiv:2006.15704](https://arxiv.org/abs/2006.15704)

# %% name="what_you_knew"
predictions()

# %% name="stop_world"
shutil.rmtree(folder)
shutil.rmtree(copies)
world.stop()

# %% name="done"
from allranks import done

done("45")
