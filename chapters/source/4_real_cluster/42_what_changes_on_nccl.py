# %% [markdown] name="title"
# # What changes on NCCL
#
# {{here}}
#
# **Your program runs on this laptop with gloo. Tomorrow it runs on the cluster's GPUs with NCCL. Will it still be right?**
#
# {{picture}}
#
# `World(rules="nccl")` runs the ranks on the CPU under NCCL's rules: it accepts what NCCL accepts, refuses what NCCL refuses, and lets a program hang
# where it hangs on NCCL. The default device stands for the rank's GPU.

# %% name="start_world"
import time

import torch
import torch.distributed as dist

from allranks import World, check, plots, predict, predictions

world = World(rules="nccl")
world

# %% [markdown] name="returned"
# ## 1. Where do the ranks wait?
#
# Rank 0 is one second late. On gloo the other ranks wait for it inside `dist.all_reduce`. They then read `x.sum().item()`.

# %% name="guess_returned"
guess_returned = predict(
    "Rank 0 is late. Where do the other ranks wait on NCCL?",
    choices=["in dist.all_reduce, as on gloo", "in x.sum()", "in .item(), where the value is needed"],
    title="On NCCL the others wait",
)
guess_returned


# %% name="late"
def late():
    if dist.get_rank() == 0:
        time.sleep(1)
    began = time.monotonic()
    x = torch.ones(4)
    dist.all_reduce(x)
    returned = time.monotonic()
    value = x.sum().item()
    return value, returned - began, time.monotonic() - returned


answers = world.run(late)
for rank, (value, call_s, read_s) in enumerate(answers):
    print(f"rank {rank}: sum {value:g}, all_reduce returned after {call_s:.2f} s, reading it took {read_s:.2f} s more")

# %% name="reveal_returned" jupyter={"source_hidden": true}
# the answer: run this cell
guess_returned.reveal(
    "in .item(), where the value is needed",
    why="On NCCL the call only puts the work into a queue of the GPU; the program waits where it needs the value.",
)

# %% name="late_figure"
figure, axes = plots.chart("seconds since rank 1 began", "", size=(7, 1 + 0.4 * world.ranks))
for rank, (_, call_s, read_s) in enumerate(answers):
    start = 1.0 if rank == 0 else 0.0
    axes.barh(rank, call_s, left=start, color=plots.WIRE, label="the call" if rank == 0 else None)
    axes.barh(rank, read_s, left=start + call_s, color=plots.WORK, label="reading the value" if rank == 0 else None)
axes.set(
    yticks=range(world.ranks),
    yticklabels=[f"rank {r}" for r in range(world.ranks)],
)
axes.invert_yaxis()
axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2, frameon=False)
figure

# %% [markdown] name="returned_explained"
# **Returned is not done.** On NCCL a call only puts the operation into the GPU's queue, a *stream*, and returns. What you compute from `x` goes into the same queue, behind it. The
# CPU waits only where it needs a value: in `.item()`, `.tolist()`, `print(x)`, `if x > 0`, or in `torch.cuda.synchronize()`.
#
# (The part for the call is so thin that you hardly see it. In this world the CPU waits a little earlier than on a GPU: at the first *computation* with `x`, here in `x.sum()`. The CPU has to compute it itself.)
#
# What follows from it:
#
# - **A time taken around the call is wrong.** It measures how long it takes to queue. Synchronise before you start and before you stop the clock:
#   `torch.cuda.synchronize()`, or events in the stream (`torch.cuda.Event(enable_timing=True)`), as `bench.sweep` does.
# - **Some calls do wait on the CPU**: `dist.barrier()`, the making of a group, and a first call that connects ranks.
# - **An error shows up late**, at the line that reads the value. Reports of a hang name both lines: where the rank waits and where the operation was begun.

# %% [markdown] name="wait"
# ## 2. What `wait()` promises
#
# With `async_op=True` the operation runs in a queue of its own, beside your computation. The next cell reads too early. On a GPU its `value` may be the old value, the sum, or a mix: the
# read and the operation are in two queues, and nothing says which is first. This world gives you no such number, but stops with the reason.


# %% name="too_early_program"
def too_early():
    x = torch.ones(4)
    work = dist.all_reduce(x, async_op=True)
    value = x.sum().item()
    work.wait()
    return value


# %% tags=["raises-exception", "not-on-nccl"] name="too_early"
world.run(too_early)


# %% [markdown] name="in_time_intro"
# Now with `wait()` before the read:


# %% name="in_time_program"
def in_time():
    x = torch.ones(4)
    work = dist.all_reduce(x, async_op=True)
    y = torch.ones(4) * 3  # does not touch x: this is what asynchronous operations are for
    work.wait()
    return (x + y).sum().item()


# %% name="in_time"
world.run(in_time)

# %% [markdown] name="wait_explained"
# On a GPU nobody stops you: you get a number, and often it is the right one. Here the world knows which memory an operation still uses, and says
# so. The same holds for the other direction: a tensor that is being *sent* must not be changed before `wait()`.
#
# On gloo `work.wait()` waits until the operation is done. On NCCL it only makes the **stream** wait: what you compute next comes after the
# operation, and the CPU goes on at once (unless you give `wait` a timeout).

# %% [markdown] name="device"
# ## 3. Only tensors on the GPU
#
# Gloo refuses only two of the nine lines of the next cell: int16, and a message to oneself. But one that it accepts is wrong: of the column it sums four numbers that lie side by side in memory, which are a row
# ([Scatter and gather](../2_collectives/11_scatter_and_gather.ipynb)). Read the nine lines; the cell after your guess runs them under NCCL's rules and prints what each one gets.


# %% name="refused_programs"
def refused():
    rank = dist.get_rank()
    x = torch.ones(4, 4)
    programs = {
        "a tensor with device='cpu'": lambda: dist.all_reduce(torch.ones(4, device="cpu")),
        "a CPU tensor plus a GPU tensor": lambda: x + torch.ones(4, 4, device="cpu"),
        "x.numpy()": lambda: x.numpy(),
        "a generator for the CPU": lambda: torch.randn(4, generator=torch.Generator()),
        "a column": lambda: dist.all_reduce(x[:, 0]),
        "int16": lambda: dist.all_reduce(torch.ones(4, dtype=torch.int16)),
        "ReduceOp.BOR": lambda: dist.all_reduce(torch.ones(4, dtype=torch.int32), op=dist.ReduceOp.BOR),
        "recv from anybody": lambda: dist.recv(x[0]),
        "a message to oneself": lambda: dist.isend(x[0], rank),
    }
    found = {}
    for name, program in programs.items():
        try:
            program()
        except Exception as error:
            found[name] = str(error)
    return found


# %% name="guess_refused"
guess_refused = predict(
    "How many of the nine lines end with an error under NCCL's rules?",
    low=0,
    high=9,
    title="Refused, of nine lines",
)
guess_refused

# %% tags=["not-on-nccl"] name="refused"
reasons = world.run(refused)[0]
for name, reason in reasons.items():
    print(f"{name}\n    {reason}\n")

# %% name="reveal_refused" jupyter={"source_hidden": true}
# the answer: run this cell
guess_refused.reveal(
    len(reasons),
    why="NCCL has no names for some types and operations, needs memory without gaps on the rank's own GPU, and a named peer for each message.",
)

# %% [markdown] name="device_explained"
# Most of these are one habit: **make tensors on `device`, and keep them there.** `%%ranks` and `world.run` set the default device, so `torch.ones(4)` is
# on it. A script of your own first takes its GPU, `torch.cuda.set_device(local_rank)`, and then writes `torch.set_default_device("cuda")`, or `device=...` in each line.
# Without the first call all ranks of a node take GPU 0, and NCCL refuses two ranks on one GPU. What comes from outside (NumPy, a `DataLoader`, a file, an
# argument) is in the CPU's memory: move it with `.to(device)`. If the default device is a GPU, a `DataLoader` with `shuffle=True` needs `generator=torch.Generator(device)`.
# <!-- NCCL 2.29.7 src/init.cc 974 ("Duplicate GPU detected"); 2.30.7 src/init.cc 1057 ("Multiple Ranks are using the same GPU/Partition"), unless NCCL_MULTI_RANK_GPU_ENABLE=1 -->

# %% [markdown] name="messages"
# ## 4. Messages: a queue and a first meeting
#
# Each rank sends to its right neighbour, then receives from its left one. The send is asynchronous, so on gloo this is right.

# %% name="guess_circle"
guess_circle = predict(
    "Every rank starts `isend` to the right, then receives from the left. What does NCCL do?",
    choices=["it works, as on gloo", "it hangs", "an error"],
    title="A circle of `isend` on NCCL",
)
guess_circle


# %% name="circle"
def circle():
    rank, p = dist.get_rank(), dist.get_world_size()
    mine, arrived = torch.full((4,), float(rank)), torch.empty(4)
    work = dist.isend(mine, (rank + 1) % p)
    dist.recv(arrived, (rank - 1) % p)
    work.wait()
    return arrived[0].item()


# %% tags=["raises-exception", "not-on-nccl"] name="circle_run"
world.run(circle, deadline=3)

# %% name="reveal_circle" jupyter={"source_hidden": true}
# the answer: run this cell
guess_circle.reveal(
    "it hangs",
    why="NCCL connects two ranks at their first message, and for that both wait on the CPU until the other has come.",
)

# %% [markdown] name="circle_explained"
# NCCL connects two ranks at their first message, and **both wait on the CPU until the other has come** to that message. Here each rank waits for
# its right neighbour, which waits for *its* right neighbour.
#
# (With only two ranks, each takes the other's *send* for the answer. They are connected wrongly: on GPUs both calls return, and both ranks hang where they read the value.)
#
# Once the pairs are connected, a small message fits into NCCL's buffers, so the same circle passes. A message larger than these buffers (from some kilobytes
# to several megabytes, by version and link; 16 KiB here) hangs again: the messages of a rank go through one queue, and the receive can't start before the
# send is done. So such a program works in the test and hangs in production. Send and receive in one **batch**: there the order of the two does not matter.


# %% name="batch_program"
def batch():
    rank, p = dist.get_rank(), dist.get_world_size()
    mine, arrived = torch.full((4,), float(rank)), torch.empty(4)
    pair = [dist.P2POp(dist.isend, mine, (rank + 1) % p), dist.P2POp(dist.irecv, arrived, (rank - 1) % p)]
    for work in dist.batch_isend_irecv(pair):
        work.wait()
    return arrived[0].item()


# %% name="batch"
world.run(batch)

# %% [markdown] name="tags"
# Tags are ignored: NCCL hands over the messages of a pair in the order in which they were sent. The next program receives by tag, in the other order. On
# NCCL the two tensors are swapped, and nobody says so.


# %% name="by_tag"
def by_tag():
    loss, accuracy = torch.tensor([0.7]), torch.tensor([0.9])
    if dist.get_rank() == 0:
        dist.send(loss, 1, tag=1)
        dist.send(accuracy, 1, tag=2)
    elif dist.get_rank() == 1:
        dist.recv(accuracy, 0, tag=2)
        dist.recv(loss, 0, tag=1)
    return loss.item(), accuracy.item()


# %% tags=["raises-exception", "not-on-nccl"] name="tag_order"
world.run(by_tag)

# %% [markdown] name="mirror_mine_task"
# ### Your turn
#
# Rank $r$ and rank $p-1-r$ exchange their tensors. On gloo the code below passes all its cases. **Make it right on NCCL**; `check(..., rules="nccl")` judges it under the rules of this chapter.


# %% name="mirror_mine"
def mirror(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    mine = tensor.contiguous()
    arrived = mine.clone()
    if rank != p - 1 - rank:
        work = dist.isend(mine, p - 1 - rank)  # your turn: these three lines
        dist.recv(arrived, p - 1 - rank)
        work.wait()
    return arrived


check(mirror, rules="nccl")

# %% [markdown] name="mirror_mine_answer"
# <details><summary><b>An answer</b></summary>
#
# ```python
# def mirror(tensor):
#     rank, p = dist.get_rank(), dist.get_world_size()
#     mine = tensor.contiguous()
#     arrived = mine.clone()
#     if rank != p - 1 - rank:
#         pair = [dist.P2POp(dist.isend, mine, p - 1 - rank), dist.P2POp(dist.irecv, arrived, p - 1 - rank)]
#         for work in dist.batch_isend_irecv(pair):
#             work.wait()
#     return arrived
# ```
# </details>

# %% [markdown] name="order"
# ## 5. All ranks make the same calls, in the same order
#
# If the ranks disagree about a collective's size, type or operation, gloo mostly raises an error. NCCL does not look: it may hang, crash, or give wrong
# numbers. This world compares the calls, and says what each rank asked for.


# %% name="mismatch_program"
def last_batch_is_smaller():
    rank, p = dist.get_rank(), dist.get_world_size()
    rows = 3 if rank == p - 1 else 4
    losses = torch.ones(rows)
    dist.all_reduce(losses)
    return losses.sum().item()


# %% tags=["raises-exception", "not-on-nccl"] name="mismatch"
world.run(last_batch_is_smaller)

# %% [markdown] name="order_explained"
# The order counts across *groups* too. The kernels of all communicators of a rank share the GPU. If rank 0 begins the collective of group A first and
# rank 1 that of group B, each GPU may be busy with a kernel that waits for the other.
#
# ## 6. What this world does not play
#
# - **Eager start.** With `init_process_group(..., device_id=device)` NCCL makes its communicator at once, and splits those of groups from it;
#   without it, at a group's first call. `World` gives `device_id`.
# - **Times.** They are gloo's. Only a GPU tells you how long NCCL takes.
# - **Graph capture.** `torch.cuda.graph` records kernels, NCCL's too, and replays them without the CPU: all ranks must capture and replay the same calls, and
#   nothing inside may read a value. There is no such thing on the CPU.
# - **The watchdog.** On a GPU torch looks at queued operations from a thread and ends the process after 10 minutes
#   ([When it hangs](45_when_it_hangs.ipynb)). It does not see a call that waits on the CPU for its connection.
# - **What the CPU does meanwhile.** A GPU's queue takes computations too; here the CPU waits at the first one that needs the result.
#
# ## Recap
#
# **A program that is right on gloo may be refused on NCCL, hang, or give wrong numbers, so try it under NCCL's rules first.**
#
# - A call queues; reading waits. `wait()` orders the stream.
# - Tensors live on `device`, contiguous, of a type that NCCL has.
# - Send and receive in a batch; tags and receives from anybody don't exist.
# - Same calls, same order, on all ranks and over all groups.
#
# **Would your own notebook run on the cluster?** Start Jupyter with `ALLRANKS_RULES=nccl`, and every `World()` has these rules. For an exercise:
# `check(my_function, rules="nccl")`.
#
# **Next question:** it is right there, too. What if it stops all the same, without an error? [When it hangs](45_when_it_hangs.ipynb)
#
# Sources: PyTorch 2.15, `ProcessGroupNCCL` and `distributed_c10d` (types, operations, tags, streams); NCCL 2.30 documentation, *Point-to-point
# communication*, *Group calls*, and *Using multiple NCCL communicators concurrently*.

# %% name="what_you_knew"
predictions()

# %% name="stop"
world.stop()

# %% name="done"
from allranks import done

done("42")
