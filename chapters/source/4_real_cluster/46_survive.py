# %% [markdown] name="title"
# # Survive
#
# {{here}}
#
# **16,384 GPUs train for 54 days, and every three hours something fails. How does such a job lose minutes and not days, and how often must it save?**
#
# {{picture}}
#
# Four ranks, time goes to the right. Rank 1 dies in a step. The others need a moment, and then they repeat that step without it.

# %% name="first_picture"
from allranks import explore

explore.interval(minutes=5, cost=60)

# %% [markdown] name="first_question"
# **Ask the picture.** Guess the best interval, then drag to it: is a neighbour much worse? Then let a checkpoint take 10 s: which helps more, a better interval or
# a cheaper checkpoint?

# %% name="start_world"
import shutil
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from allranks import World, check, plots, predict, predictions

folder = Path(tempfile.mkdtemp())
world = World()
world

# %% [markdown] name="dies"
# ## 1. A rank dies, the others go on
#
# In [When it hangs](45_when_it_hangs.ipynb) `world.fault` killed a rank: some of the others got an error, some waited, and the run was over. Now the
# others must go on. Each of them has a copy of the weights, so nothing is lost but the dead rank's samples. Three things are needed:
#
# 1. **Close the old group.** A rank whose neighbours are alive sees no error. It waits until *they* close their connections.
# 2. **Agree who is left.** Every rank must come to the same list. The list must be kept by something that does not die with a rank: here a file (`FileStore`).
# 3. **Agree where to go on.** A rank may have finished the last step while its neighbour saw an error in it.
#
# If your ranks are on GPUs: this chapter's groups use Gloo and CPU tensors. Section 3 says what NCCL needs.


# %% name="agree"
def agree(store, number, step, members, wait_s=1.0):
    """Which ranks are left, and at which step each of them is: the same answer on every rank."""
    store.set(f"{number}/{dist.get_rank()}", str(step))
    began = time.monotonic()
    while True:
        here = [r for r in members if store.check([f"{number}/{r}"])]
        if len(here) == len(members) - 1 or time.monotonic() - began > wait_s:
            break
        time.sleep(0.01)
    found = " ".join(f"{r}:{int(store.get(f'{number}/{r}'))}" for r in here)
    chosen = store.compare_set(f"{number}/members", "", found).decode()  # the first one decides for all
    return {int(r): int(s) for r, s in (pair.split(":") for pair in chosen.split())}


def reduced(tensor, group):
    """Whether the sum came."""
    try:
        dist.all_reduce(tensor, group=group)
    except RuntimeError:
        return False
    return True


# %% [markdown] name="agree_explained"
# `compare_set` writes only if nothing is there yet, and returns what is there. So the first rank's list counts, even if another rank saw one rank more.
#
# Each rank's gradient is 1, and the weight grows by the *mean* of the gradients. After 30 steps it must be 30, with or without a death.

# %% name="guess_divisor"
divisor = predict(
    "Four ranks. One dies, and the other three still divide the sum of their gradients by 4. How long is the step, against the right one?",
    choices=["as long", "three quarters", "four thirds"],
    title="Divided by the old number of ranks, the step is",
)
divisor


# %% name="train"
def train(path, steps=30):
    rank, store, p = dist.get_rank(), dist.FileStore(path), dist.get_world_size()
    members, step, weight = list(range(p)), 0, torch.zeros(1, device="cpu")
    group = dist.new_group(backend="gloo", timeout=timedelta(seconds=5))
    while step < steps:
        time.sleep(0.02)  # forward and backward
        gradient = torch.ones(1, device="cpu")
        if reduced(gradient, group):
            weight += gradient / len(members)  # not / p
            step += 1
            continue
        began = time.monotonic()
        dist.destroy_process_group(group)
        group = None  # now its connections are closed, and ranks that still wait get an error too
        steps_of = agree(store, p - len(members), step, members)
        members = sorted(steps_of)
        if rank not in members:
            return print("came too late: the others went on without this rank")
        group = dist.new_group(members, backend="gloo", use_local_synchronization=True)
        newest = max(members, key=steps_of.get)
        dist.broadcast(weight, newest, group=group)
        step = steps_of[newest]
        took = 1e3 * (time.monotonic() - began)
        print(f"an error in step {steps_of[rank]}; ranks {members} go on from step {step}, {took:.0f} ms later")
    print(f"{step} steps, weight {weight.item():g}, the last mean was over {len(members)}")


# %% tags=["raises-exception"] name="shrink"
world.fault(rank=1, kind="kill", after_s=0.5)
world.run(lambda: train(f"{folder}/members"), deadline=20)

# %% name="reveal_divisor" jupyter={"source_hidden": true}
# the answer: run this cell
divisor.reveal(
    "three quarters",
    why="The sum of three gradients is divided by 4 instead of 3; nothing reports an error, and the learning rate is silently smaller.",
)

# %% [markdown] name="shrink_explained"
# The report names the rank that died. But look at what the others printed: they went on in a smaller group, and the weight is right.
# (The new group's ranks are renumbered: rank 2 of the World is rank 1 of the new group.)
#
# `use_local_synchronization=True` is important: by default *all* ranks of the World must call `new_group`, also the dead one.
#
# The figures at the end of the lines are what the survival cost: some milliseconds and one repeated step, instead of a restart of everything.
#
# **The batch is smaller now.** Either each survivor takes more samples, or the job waits for a spare rank. This must be decided before, and not at
# three in the morning.
#
# ## 2. A vote at the end of the step
#
# A rank may also fail *without* dying: a NaN, a data loader that fails, an error in one call. It still takes part, but its gradient must not count.
# So a step ends with a question: **may we commit it?**

# %% name="guess_zero"
zero = predict(
    "Rank 1's gradient holds a NaN. It multiplies its gradient by 0 and takes part in the all-reduce. What do the others get?",
    choices=["the sum of the others", "NaN in one element", "NaN in all elements"],
    title="A NaN, multiplied by 0",
)
zero

# %% name="vote"
# %%ranks
gradient = torch.full((4,), float(rank + 1))
if rank == 1:
    gradient[2] = float("nan")
times_zero = gradient * (0.0 if gradient.isnan().any() else 1.0)
dist.all_reduce(times_zero)
print("times zero:", times_zero.tolist())

healthy = torch.tensor([float(gradient.isfinite().all())])
dist.all_reduce(healthy)
count = int(healthy)
for at_least in (world_size - 1, world_size):
    print(f"{count} healthy, {at_least} wanted:", "commit" if count >= at_least else "nobody commits")

# %% name="reveal_zero" jupyter={"source_hidden": true}
# the answer: run this cell
zero.reveal(
    "NaN in one element",
    why="0 times NaN is NaN, and a NaN spoils no element but its own. So put zeros in the place of the gradient; do not multiply by zero.",
)

# %% [markdown] name="vote_explained"
# Here the vote is a call of its own. It may also travel behind the gradient, one number more: then it costs no second round of messages, and the sum of the votes says by how many the sum of the gradients must be divided. You write
# that below. A vote knows only what went wrong *before* the
# all-reduce: if that fails on one rank, only a vote after it tells, so torchft votes after it. All ranks get the same sum, so all decide alike,
# *also the rank that failed*: it must make the same step, or its weights differ from now on.
#
# The price by the formula for a ring: $2(p-1)\alpha + 2\frac{p-1}{p}\,n\,\beta$. One number more is nothing compared with $n$. A vote of its own costs
# $2(p-1)\alpha$, and you can measure that:

# %% name="vote_price"
# %%ranks
from allranks import bench

votes, numbers = torch.zeros(1), torch.zeros(2**12 + 1)


def one_call():
    dist.all_reduce(numbers)


def two_calls():
    dist.all_reduce(numbers)
    dist.all_reduce(votes)


vote_s, one_s, two_s = bench.seconds_of(lambda: dist.all_reduce(votes), one_call, two_calls, iterations=21)
if rank == 0:
    print(
        f"the vote alone {1e6 * vote_s:.0f} µs; 16 KiB with the vote inside {1e6 * one_s:.0f} µs, beside it {1e6 * two_s:.0f} µs"
    )

# %% [markdown] name="commit_mine_task"
# ### Your turn
#
# One call for the update and the vote. The code below lets every rank count, and always commits. **A rank counts** if it says `healthy` and its update has finite numbers only; if fewer than `at_least` count, no weight changes,
# on any rank.


# %% name="commit_mine"
def commit_step(weights, update, healthy, at_least):
    # the update, and this rank's vote behind it
    message = torch.zeros(update.numel() + 1, dtype=update.dtype)
    message[:-1] = update.reshape(-1)  # your turn: who counts, and what does a rank send that does not?
    message[-1] = 1
    dist.all_reduce(message)
    count = int(message[-1])
    weights += (message[:-1] / count).reshape(weights.shape)  # and when does nobody commit?
    return count


check(commit_step)

# %% [markdown] name="commit_mine_answer"
# <details><summary><b>An answer</b></summary>
#
# ```python
# def commit_step(weights, update, healthy, at_least):
#     message = torch.zeros(update.numel() + 1, dtype=update.dtype)  # the update, and this rank's vote behind it
#     if healthy and update.isfinite().all():
#         message[:-1] = update.reshape(-1)
#         message[-1] = 1
#     dist.all_reduce(message)
#     count = int(message[-1])
#     if count >= at_least:
#         weights += (message[:-1] / count).reshape(weights.shape)
#     return count
# ```
# </details>

# %% [markdown] name="torchft"
# ## 3. A quorum in each step: torchft
#
# **torchft** does both in every step. A *lighthouse*, a process that does not train, hears from each replica; one that is silent for 5 s (by default) counts
# as gone. `start_quorum` asks it who takes part in this step. Errors in the all-reduce are noted and not raised. `should_commit` is the vote, **among the ranks of one replica**:
# enough replicas, and no error on any of these ranks? So one replica may commit a step and another one not. The one that did not is a step behind, and the next quorum *heals* it, like a
# replica that comes back: it copies the weights from a replica that is ahead, without any file.
#
# <!-- torchft 7eb7087 (2026-04-03): torchft/manager.py 856-921 (should_commit, "different replica groups may return different values"), src/manager.rs (should_commit counts the ranks of its group) -->
#
# This works only across **copies**. If a model is split over 8 GPUs and copied 16 times, one dead GPU takes its whole replica away. The other 15 have
# everything that is needed. If there is one copy only, a dead rank's part is gone, and only a checkpoint has it.
#
# **On NCCL** nothing raises an error: calls are queued, and the GPU waits. Somebody must *abort* the communicator. torch's watchdog does not by default: it ends the process
# (`TORCH_NCCL_ASYNC_ERROR_HANDLING=3`). With 2 it aborts, and the process goes on. torchft's group aborts by itself, after a timeout of its own (60 s by default). NCCL 2.27 has
# `ncclCommShrink`, which the survivors call, and torch 2.13 `dist.shrink_group`; with the flag `SHRINK_ABORT` it ends what is under way. Try your versions
# before you rely on it: with NCCL 2.31 and later it is [reported to hang](https://github.com/pytorch/pytorch/issues/194679).
#
# <!-- torch 2.13: include/torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp, ErrorHandlingMode and the TODO above TORCH_NCCL_ASYNC_ERROR_HANDLING (3 is the default). torchft 7eb7087: process_group.py:738 (_stream_timeout), :798 -->
#
# **torchrun** (`--nnodes 2:4 --max-restarts 3`) does none of this. When one process fails, it ends *all* processes of the job, and starts them again, perhaps
# with other ranks. The script must load its own checkpoint.
#
# ## 4. Save on p ranks, load on half of them
#
# The weights are split over the ranks by rows. Each rank saves its part at the same time, to a file of its own. `torch.distributed.checkpoint` (DCP)
# needs to know which part it is: a `DTensor` says so.


# %% name="checkpoint_code"
def part_of(group, rows=10, columns=4):
    """The whole matrix, and this rank's rows as a DTensor over the group."""
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Shard

    whole = torch.arange(float(rows * columns), device="cpu").view(rows, columns)
    parts = whole.chunk(dist.get_world_size(group))
    here = dist.get_rank(group)
    mine = parts[here].clone() if here < len(parts) else whole[:0].clone()
    mesh = DeviceMesh.from_group(group, "cpu")
    return whole, DTensor.from_local(mine, mesh, [Shard(0)], shape=whole.shape, stride=whole.stride())


def save(path):
    import torch.distributed.checkpoint as dcp

    group = dist.new_group(backend="gloo")
    _, weights = part_of(group)
    dcp.save({"weights": weights}, checkpoint_id=path, process_group=group)
    print("saved", len(weights.to_local()), "rows")


# %% name="save_live"
world.run(lambda: save(f"{folder}/first"))
for path in sorted((folder / "first").iterdir()):
    print(f"{path.name:16} {path.stat().st_size:6} bytes")


# %% name="load_live"
def load_on_half(path):
    import torch.distributed.checkpoint as dcp

    half = list(range(max(dist.get_world_size() // 2, 1)))
    group = dist.new_group(half, backend="gloo")
    if dist.get_rank() not in half:
        return
    whole, weights = part_of(group)
    weights.to_local().fill_(-1)
    dcp.load({"weights": weights}, checkpoint_id=path, process_group=group)
    wanted = whole.chunk(len(half))[dist.get_rank()]
    print(f"loaded {len(wanted)} rows, equal in every bit: {torch.equal(weights.to_local(), wanted)}")


loaded = world.run(lambda: load_on_half(f"{folder}/first"))

# %% [markdown] name="load_explained"
# (The parts are tiny, so most bytes of a file only describe it.) This is **resharding on load**: no rank loaded just the part that one rank had saved. `.metadata` says which rows are in which file, and each rank reads the
# rows that it needs, from one file or from several. Draw it: who has which row, before and after?


# %% name="rows_moved"
def owners(rows, ranks):
    """Which rank has each row, if the rows are cut as torch.chunk cuts them."""
    return [r for r, part in enumerate(torch.arange(rows).chunk(ranks)) for _ in part]


rows, p, fewer = 10, world.ranks, max(world.ranks // 2, 1)
before, after = owners(rows, p), owners(rows, fewer)
figure, axes = plots.chart("row", "", size=(6.4, 2.0))
for height, split in ((1, before), (0, after)):
    for owner in sorted(set(split)):
        first, count = split.index(owner), split.count(owner)
        axes.barh(height, count - 0.05, left=first, color=plots.LINE)
        axes.text(first + count / 2, height, f"rank {owner}", ha="center", va="center")
axes.set(yticks=[0, 1], yticklabels=[f"on {fewer}", f"on {p}"])
print(sum(a != b for a, b in zip(before, after, strict=True)), "of", rows, "rows change their rank")
figure

# %% [markdown] name="rows_explained"
# A bar is what one rank has. If the ranks are alive, rows can travel in *messages* instead of files: you write that in the lab.
#
# `.metadata` is written **last**, by one rank, when all others are done. A folder without it is no checkpoint: a rank died while they saved.
# So never delete the last checkpoint before the next one is complete.
#
# ### Don't wait for the disk
#
# `async_save` returns before the file is written, and a thread writes while the training goes on. The cell below saves 64 MB in both ways. After `async_save` has
# returned, it *overwrites the weights at once*, as the optimizer would.

# %% name="guess_async"
stale = predict(
    "async_save has returned, the file is not written yet, and the weights are set to zero. What is in the checkpoint?",
    choices=["the old weights", "zeros", "some of both"],
    title="Weights changed while async_save writes",
)
stale


# %% name="async_live"
def both_ways(path):
    import torch.distributed.checkpoint as dcp

    group = dist.new_group(backend="gloo")
    _, weights = part_of(group, rows=4096, columns=4096)
    began = time.monotonic()
    dcp.save({"weights": weights}, checkpoint_id=f"{path}/waits", process_group=group)
    waits = time.monotonic() - began
    began = time.monotonic()
    writing = dcp.async_save({"weights": weights}, checkpoint_id=f"{path}/async", process_group=group)
    returns = time.monotonic() - began
    expected = weights.to_local().clone()
    weights.to_local().zero_()
    writing.result()
    written = time.monotonic() - began
    dcp.load({"weights": weights}, checkpoint_id=f"{path}/async", process_group=group)
    same = torch.equal(weights.to_local(), expected)
    return waits, returns, written, same


times = world.run(lambda: both_ways(folder), deadline=120)
waits, returns, written = (max(t[i] for t in times) for i in range(3))
print(f"save {waits:.2f} s; async_save returns after {returns:.2f} s, and has written after {written:.2f} s")
print("the old weights are in the checkpoint:", all(t[3] for t in times))

# %% name="reveal_async" jupyter={"source_hidden": true}
# the answer: run this cell
stale.reveal(
    "the old weights",
    why="async_save returns only when the weights are copied, and the copy is what it writes. The price is memory for one copy of the part.",
)

# %% [markdown] name="async_explained"
# The copy is called *staging*. So the training waits for the copy and not for the disk. (With an `async_stager` even the copy is made in the background. Then wait for
# `staging_completion` before the optimizer changes the weights.) Two limits: only one checkpoint should be under way at a time. And a part must not be a view of a larger
# tensor, which is why the cell clones it: with views, torch 2.13 raises on every rank but 0 (*Attempted to call copy_() on an invalid python storage*), while `async_save` returns on rank 0, whose
# `result()` then waits for ever for the others.
#
# ## 5. How often?
#
# Each checkpoint costs $C$ seconds in which the job waits. A failure comes every $M$ seconds on average (**MTBF**, mean time between failures), and loses
# on average half an interval $T$. So the lost share of time is about
#
# $$\frac{C}{T} + \frac{T}{2M}, \qquad \text{smallest at } T = \sqrt{2CM}, \quad \text{where it is } \sqrt{2C/M}.$$
#
# This is **Young's formula**; Daly's has more terms. First the MTBF of a large job. Llama 3 405B was trained on 16,384 GPUs, and in 54 days there were 419
# unexpected interruptions.

# %% name="guess_mtbf"
often = predict(
    "A job with such GPUs on 100,000 of them, with the same rate for each GPU: how many minutes from one interruption to the next?",
    low=1,
    high=1000,
    unit="minutes",
    log=True,
    title="Minutes between interruptions on 100,000 GPUs",
)
often

# %% name="mtbf"
days, unexpected, gpus = 54, 419, 16_384
mtbf = days * 86_400 / unexpected
print(f"one every {mtbf / 3600:.2f} hours; one GPU alone would run {days * gpus / unexpected / 365.25:.1f} years")
large = mtbf * gpus / 100_000
print(f"on 100,000 GPUs: one every {large / 60:.0f} minutes")

# %% name="reveal_mtbf" jupyter={"source_hidden": true}
# the answer: run this cell
often.reveal(
    large / 60,
    why="The parts fail independently, so the rate grows with their number: parts that fail every few years make a job that fails every half an hour.",
)

# %% name="guess_interval"
interval = predict(
    "100,000 GPUs, a failure every 30 minutes, and a checkpoint that takes 60 s. After how many minutes should the job save again?",
    low=1,
    high=200,
    unit="minutes",
    log=True,
    title="Minutes between two checkpoints",
)
interval


# %% name="formulas"
def young(cost, mtbf):
    return (2 * cost * mtbf) ** 0.5


def daly(cost, mtbf):
    return young(cost, mtbf) * (1 + (cost / (2 * mtbf)) ** 0.5 / 3 + cost / (18 * mtbf)) - cost


def goodput(interval, cost, mtbf, restart=0.0, behind=0.0, failures=100_000):
    """The share of time that is kept, in a simulation: each life ends at random, and keeps its complete intervals.

    A checkpoint that is written in the background counts `behind` seconds after the job goes on.
    """
    lives = torch.empty(failures, dtype=torch.float64)
    lives.exponential_(1 / mtbf, generator=torch.Generator().manual_seed(0))
    intervals = ((lives - restart - behind).clamp(min=0) / (interval + cost)).floor()
    return float((intervals * interval).sum() / lives.sum())


for cost in (10, 60, 300):
    best = young(cost, mtbf)
    print(
        f"C = {cost:3} s: Young {best / 60:4.1f} min (Daly {daly(cost, mtbf) / 60:4.1f}), "
        f"goodput {1 - (2 * cost / mtbf) ** 0.5:.3f} by the formula, {goodput(best, cost, mtbf):.3f} in the simulation"
    )

# %% name="reveal_interval" jupyter={"source_hidden": true}
# the answer: run this cell
interval.reveal(
    young(60, large) / 60,
    why="With a sixth of the time between failures the best interval is not a sixth: it goes with the root.",
    marks={"16,384 GPUs": young(60, mtbf) / 60},
)

# %% name="curve"
minutes = [2, 3, 5, 8, 12, 19, 30, 45, 80, 120]
figure, axes = plots.chart("minutes between checkpoints", "goodput")
for cost, marker in ((10, "o"), (60, "s"), (300, "^")):
    kept = [1 - cost / (60 * m) - 60 * m / (2 * mtbf) for m in minutes]
    (line,) = axes.semilogx(minutes, kept, label=f"C = {cost} s, formula")
    simulated = [goodput(60 * m, cost, mtbf) for m in minutes]
    axes.plot(minutes, simulated, marker, markersize=4, color=line.get_color(), label="simulation")
axes.set(xticks=minutes, xticklabels=minutes, ylim=(0.3, 1))
axes.minorticks_off()
axes.legend()
figure

# %% [markdown] name="curve_explained"
# The marks are the simulation, the lines the formula. Three things to see:
#
# - **The top is flat.** For $C = 60$ s all intervals from 12 to 30 minutes are nearly as good. The exact number does not matter.
# - **The cost matters more than the interval.** From 60 s to 10 s, the best goodput rises by 6 points. That is what `async_save` buys: $C$ becomes the time
#   of the copy. Not all of it: until the copy is written, $W$ seconds later, only the checkpoint *before* counts. So $W/M$ is lost on top.
# - The formula is too low where $T$ or $C$ is large compared with $M$: it is an approximation for $C \ll T \ll M$.
#
# A restart costs $R$ seconds *each time*, so the share $R/M$ is lost whatever you save. And with your World's own cost of a checkpoint:

# %% name="restart"
for restart in (0, 60, 600):
    kept = goodput(young(60, mtbf), 60, mtbf, restart)
    print(
        f"C = 60 s, a restart of {restart:3} s: goodput {kept:.3f}, formula {1 - (120 / mtbf) ** 0.5 - restart / mtbf:.3f}"
    )
kept = goodput(young(10, mtbf), 10, mtbf, behind=50)
print(f"C = 10 s, written 50 s later: goodput {kept:.3f}, formula {1 - (20 / mtbf) ** 0.5 - 50 / mtbf:.3f}")
print(
    f"on 100,000 GPUs, C = 60 s: every {young(60, large) / 60:.1f} min, goodput {goodput(young(60, large), 60, large):.2f}"
)
for name, cost in (("save", waits), ("async_save", returns)):
    print(f"your World, {name}, C = {cost:.2f} s, a failure an hour: save every {young(cost, 3600):.0f} s")

# %% [markdown] name="table"
# ## 6. Read the table yourself
#
# Llama 3's report lists the causes of the 419 interruptions (its Table 5). Its text says that 58.7 % are problems of GPUs. Six rows are about GPUs:

# %% name="table_rows"
gpu_rows = {  # interruptions, and the share that the table prints, in %
    "faulty GPU": (148, 30.1),
    "GPU HBM3 memory": (72, 17.2),
    "GPU SRAM memory": (19, 4.5),
    "GPU system processor": (17, 4.1),
    "silent data corruption": (6, 1.4),
    "GPU thermal interface and sensor": (6, 1.4),
}
for name, (count, printed) in gpu_rows.items():
    print(f"{name:34} {count:4}   {printed:4.1f} %")

# %% name="guess_share"
share = predict(
    "The counts of all rows of the table add up to 419. What is the share of these six rows, by their counts?",
    choices=["58.7 %, as the text says", "less", "more"],
    title="The share of GPUs in Llama 3's interruptions",
)
share

# %% name="table_checked"
for name, (count, printed) in gpu_rows.items():
    here = 100 * count / unexpected
    print(
        f"{name:34} {here:4.1f} %",
        "" if abs(here - printed) < 0.11 else f"  but the table prints {printed} %",
    )
counted, printed = (sum(row[i] for row in gpu_rows.values()) for i in (0, 1))
print(
    f"by the counts {counted} of {unexpected} = {100 * counted / unexpected:.1f} %; the printed shares add up to {printed:.1f} %"
)

# %% name="reveal_share" jupyter={"source_hidden": true}
# the answer: run this cell
share.reveal(
    "more",
    why="One printed share does not fit its count: 148 of 419 are 35.3 % and not 30.1 %, and the text's 58.7 % is the sum of the printed shares. Which of the two is the mistake, the report does not say.",
)

# %% [markdown] name="table_explained"
# The conclusion stays the same, only stronger: most failures are GPUs and their memory. The report also says that the job was making progress for more than 90 % of
# the time, and that people had to work on it by hand only three times. Section 5 tells what this asks for: short checkpoints *and* short restarts.
#
# ## 7. Check yourself
#
# <details><summary>1. Rank 1 died. Why did the chapter's ranks destroy the old group before they agreed?</summary>
#
# A rank whose neighbours are alive sees no error: it waits in the old all-reduce. Only when its neighbours close their connections does it get one.
# </details>
#
# <details><summary>2. Ranks 0 and 2 have finished step 10, rank 3 saw an error in it. Rank 3 repeats it with the others' next gradient. What goes wrong?</summary>
#
# The sum mixes gradients of two steps, and from then on rank 3's weights differ. So they agree on the newest step first, and rank 3 gets the weights of a
# rank that is there.
# </details>
#
# <details><summary>3. The MTBF is four times as long. How much longer is the best interval, and how much less is lost?</summary>
#
# The interval is twice as long, and the lost share is half: both go with the root.
# </details>

# %% [markdown] name="recap"
# ## Recap
#
# Survivors close the old group, agree on who is left and where to go on, and divide by the new number. A vote behind the gradient decides whether a step counts.
# What exists in copies can be healed from a rank that is alive; all else needs a checkpoint, which is saved in parts, loaded in other parts, and staged so that
# the job does not wait for the disk. **Make saving and restarting cheap, and then save every $\sqrt{2CM}$ seconds.**
#
# **Now you:** [Lab 17](../../labs/lab17_survive/survive.ipynb): a step that only healthy ranks decide, weights for ranks that come back, and rows that move to
# fewer or more ranks.
#
# **Next question:** the job goes on. How long was it away, and is it still the same training? [Recover](55_recover.ipynb). The core goes on with [Your own job](48_your_own_job.ipynb).
#
# **Sources.** Llama Team, *The Llama 3 herd of models*, [arXiv:2407.21783](https://arxiv.org/abs/2407.21783), section 3.3.4 and Table 5 ·
# J. W. Young, *A first order approximation to the optimum checkpoint interval*, [doi:10.1145/361147.361115](https://doi.org/10.1145/361147.361115) ·
# J. T. Daly, *A higher order estimate of the optimum checkpoint interval for restart dumps*, [doi:10.1016/j.future.2004.11.016](https://doi.org/10.1016/j.future.2004.11.016) ·
# [torchft](https://github.com/meta-pytorch/torchft) ·
# [PyTorch, torch.distributed.checkpoint](https://docs.pytorch.org/docs/stable/distributed.checkpoint.html) ·
# [PyTorch, torchrun](https://docs.pytorch.org/docs/stable/elastic/run.html) ·
# [NVIDIA, NCCL user guide](https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/index.html)

# %% name="what_you_knew"
predictions()

# %% name="stop_world"
shutil.rmtree(folder)
world.stop()

# %% name="done"
from allranks import done

done("46")
