# %% [markdown] name="title"
# # Can a machine find it?
#
# {{here}}
#
# **A server has eight GPUs, but not every two of them are joined by a link. Can a program find an all-gather for it that is faster than the best rings, in less time than you need to read this page?**
#
# {{picture}}
#
# The NVLinks of a DGX-1 with eight V100. A double line is two links.

# %% name="first_picture"
from allranks import explore

explore.search(steps=5, rounds=11, nbytes=3 << 20)

# %% [markdown] name="first_question"
# **Ask the picture.** Suppose that a program finds an all-gather with 5 steps instead of 7. How far up may its point go before the rings are faster, for 48 KiB in all and for 48 MiB?

# %% name="start_world"
import time
from dataclasses import replace

import torch
import torch.distributed as dist

from allranks import Executor, Player, World, bench, plots, predict, predictions, race, schedules

world = World()
world

# %% [markdown] name="machine_intro"
# ## 1. A machine as a table
#
# So far people wrote the algorithms: a ring, a tree, recursive doubling. Each suits a machine in which all pairs are alike. In a DGX-1 they are not. Each GPU has six NVLinks of 25 GB/s in
# each direction, to only four others. `race.task("cube-mesh")` has the machine link by link. The number in a square says how many links lead from the row's GPU to the column's:

# %% name="machine"
task = race.task("cube-mesh")
lanes = [[0] * 8 for _ in range(8)]
for (_, src, dst), link in task.fabric.links.items():
    lanes[src][dst] = link.bytes_per_s // 25_000_000_000
plots.matrix(lanes, "to GPU", "from GPU")

# %% [markdown] name="bounds"
# In an all-gather each GPU has one part, of $L$ bytes, and needs the seven others. Two things limit every algorithm:
#
# - **Bytes.** Seven parts enter a GPU over six links: at least $\frac{7}{6} L\beta$, with $\beta$ the seconds a byte of one link.
# - **Steps.** GPU 0 has no link to 5, 6 and 7. A message needs $\alpha$, so at least $2\alpha$.

# %% name="bound"
print(f"{task.nbytes >> 20} MiB in all: at least {task.bound.picoseconds / 1e6:.1f} µs; {task.bound.why}")

# %% [markdown] name="rings_intro"
# ## 2. The rings
#
# NCCL cuts such a machine into rings. The double links form one ring through all GPUs, the single links another. Both are used in both directions: six rings of one link each. So each part is cut into six
# chunks, and each ring carries one.

# %% name="rings"
DOUBLE, SINGLE = (0, 1, 3, 2, 6, 7, 5, 4), (0, 2, 1, 5, 6, 4, 7, 3)


def ring_moves(ring, way, first, end):
    """Chunks `first` to `end` of each part go round the ring, one way or the other."""
    for step in range(7):
        for place, src in enumerate(ring):
            owner = ring[(place - way * step) % 8]
            chunks = range(6 * owner + first, 6 * owner + end)
            yield schedules.Move(step, src, ring[(place + way) % 8], chunks)


moves = [
    *ring_moves(DOUBLE, 1, 0, 2),
    *ring_moves(DOUBLE, -1, 2, 4),
    *ring_moves(SINGLE, 1, 4, 5),
    *ring_moves(SINGLE, -1, 5, 6),
]
rings = schedules.Schedule("all_gather", "six rings", 8, 48, tuple(moves))
print(race.judge(rings, task).text())

# %% [markdown] name="rings_explained"
# The judge of [the race](../../docs/race.md) proves that every GPU ends with all parts, and times each message. All links are busy all the time, so the bytes are the least. What is lost is latency: seven steps cost $7\alpha$. The
# time is
#
# $$t = S\,\alpha + \frac{R}{C}\,L\,\beta,$$
#
# with $S$ steps, parts cut into $C$ chunks, and $R$ **rounds**: in a step with $r$ rounds a single link carries $r$ chunks, a double link $2r$. The rings have $S = 7$, $C = 6$, $R = 7$. The least bytes are $R/C = 7/6$.

# %% name="guess_steps"
fewest = predict(
    "The same bytes on every link (7 rounds of a sixth of a part each), but in fewer steps. What is the least number of steps that you think is possible?",
    choices=["2", "3", "4", "5", "6"],
    title="Steps of an all-gather with the least bytes",
)
fewest

# %% [markdown] name="search_intro"
# ## 3. The search
#
# Now state the question without an answer in mind, as SCCL did (Cai et al., PPoPP 2021): *is there an all-gather of $C$ chunks a part, in which a link carries $r_s$ chunks in step $s$?* SCCL gave it to a
# solver of logic. `schedules.search_all_gather` is simpler, 130 lines of Python:
#
# 1. In each step each GPU takes as many missing chunks as its links can bring: a **maximum matching** between chunks and links.
# 2. Which chunks it prefers is random. After the last step, count the chunks that are missing anywhere.
# 3. Change a few preferences. Keep the change unless more chunks are missing. Repeat until none is.
#
# This is **hill climbing**. What it returns has been proved, as every schedule here. Begin with whole parts in two steps:

# %% name="two_steps"
two = schedules.search_all_gather(lanes, chunks=1, rounds=(1, 1))
print(two)
print(race.judge(two, task).text())

# %% [markdown] name="two_steps_explained"
# Two steps are possible, but there is room for $2 \cdot 6 = 12$ parts, and only 7 are needed: $R/C = 2$ instead of $7/6$. Now the hard question. Six chunks a part, seven rounds, so that no
# link may ever carry a chunk in vain; and three steps:

# %% name="three_steps"
began = time.perf_counter()
found = schedules.search_all_gather(lanes, chunks=6, rounds=(2, 3, 2))
print(f"{found}, after {time.perf_counter() - began:.1f} s")
print(race.judge(found, task).text())

# %% name="reveal_steps" jupyter={"source_hidden": true}
# the answer: run this cell
fewest.reveal(
    "3",
    why="The search found three steps. That two are impossible is shown further down.",
)

# %% name="guess_none"
tight = predict(
    "The same seven rounds in two steps, as (3, 4)?",
    choices=[
        "the search finds one",
        "the search proves that there is none",
        "the search gives up, and we know nothing",
        "the least rounds rule it out",
    ],
    title="Seven rounds in two steps",
)
tight

# %% name="two_tight"
try:
    print(schedules.search_all_gather(lanes, chunks=6, rounds=(3, 4), tries=300))
except schedules.ScheduleError as error:
    print(error)

# %% name="reveal_none" jupyter={"source_hidden": true}
# the answer: run this cell
tight.reveal(
    "the search gives up, and we know nothing",
    why="Hill climbing can only find; that nothing is there is shown by a solver that tries all cases, as SCCL's, or by an argument.",
)

# %% [markdown] name="argument"
# Here a person can show it. In seven rounds of sixths no link may ever be idle, so the steps must be $(3, 4)$:
#
# - GPU 0 gets part 7 only through GPUs 3 and 4, each of which gets it over a single link. So $2 r_1 \ge 6$.
# - In step 1 a double link has only the six chunks of its sender's own part to carry. So $2 r_1 \le 6$.
# - In step 2 the double link from GPU 3 to GPU 1 must bring $2 \cdot 4 = 8$ chunks that GPU 1 lacks. GPU 3 now has all of part 2, but GPU 1 already has half of it. So GPU 3 can bring the other half, and the half of part 7 that it holds: six chunks.
#
# **A bound proves that nothing better exists, and a schedule proves that it can be done. A search that stops without either has proved nothing.**
#
# Look at what was found: there is no pattern to see.

# %% name="watch"
Player(found)

# %% [markdown] name="sizes_intro"
# ## 4. Which one, for which size?
#
# Few steps with more bytes, or more steps with fewer? There are now four all-gathers. The best one depends on the size. **Before you run the cells:** for
# which sizes can an algorithm reach the lower bound, for small ones, for large ones, or for those between?

# %% name="sizes"
plans = {"2 steps, 2 rounds of 1": two, "3 steps, 7 rounds of 1/6": found, "six rings, 7 steps": rings}
plans["2 steps, 3 rounds of 1/2"] = schedules.search_all_gather(lanes, chunks=2, rounds=(1, 2))
sizes = [3 * 2**k for k in range(11, 26)]  # 48 chunks divide each
times = {
    name: [race.judge(plan, replace(task, nbytes=nbytes)).picoseconds / 1e6 for nbytes in sizes]
    for name, plan in plans.items()
}

# %% name="sizes_plot"
figure, axes = plots.chart("bytes in all", "time / lower bound", size=(7.6, 4))
bounds = [replace(task, nbytes=nbytes).bound.picoseconds / 1e6 for nbytes in sizes]
for name, took in times.items():
    axes.semilogx(sizes, [t / bound for t, bound in zip(took, bounds, strict=True)], label=name)
equal = 8 / 7 * 150e9 * 2e-6  # bytes: seven eighths of them enter a GPU over 150 GB/s in one latency of 2 µs
axes.vlines(equal, 1, 3.6, color=plots.SOFT, linewidth=1)
axes.text(1.1 * equal, 1.05, f"both limits alike: {equal / 1e3:.0f} kB", fontsize=9, color=plots.SOFT)
axes.legend()
figure

# %% name="best"
for nbytes, *took in zip(sizes, *times.values(), strict=True):
    name, best = min(zip(times, took, strict=True), key=lambda pair: pair[1])
    print(f"{nbytes:>9} bytes: {best:8.1f} µs, {name}")

# %% [markdown] name="sizes_explained"
# Up to about 1.2 MB two steps win, with parts cut in half; above it three steps. The rings never win: they send the same bytes as the three steps, and pay four latencies more.
# That is why a library keeps several algorithms, and chooses by size.
#
# **Why has each curve a hump?** The lower bound is the larger one of two times: two latencies, or one latency and the bytes. At the thin line both are alike. An
# algorithm pays for all, its latencies *and* its bytes, so there it is farthest from the bound. With far fewer bytes the bytes cost nearly nothing, with far more the latencies do.
#
# ## 5. The same backwards
#
# A search for one collective gives two more without another search. Play an all-gather **backwards**: where a chunk was sent from $a$ to $b$ and stored, $b$ now sends its sum to $a$, which adds it. That is a
# reduce-scatter. One after the other makes an all-reduce.


# %% name="backwards"
def backwards(schedule):
    """The reduce-scatter that an all-gather is when it runs backwards."""
    last = schedule.steps - 1
    turned = [schedules.Move(last - m.step, m.dst, m.src, m.chunks, reduce=True) for m in schedule.moves]
    turned.sort(key=lambda m: m.step)
    return replace(schedule, collective="reduce_scatter", moves=tuple(turned))


def both(schedule):
    """First backwards, then forwards: an all-reduce."""
    later = [replace(m, step=m.step + schedule.steps) for m in schedule.moves]
    return replace(schedule, collective="all_reduce", moves=(*backwards(schedule).moves, *later))


# %% name="backwards_proved"
for schedule in (backwards(found), both(found)):
    schedule.verify()
    print(schedule)

# %% [markdown] name="part_mine_task"
# ### Your turn
#
# An all-gather is eight broadcasts at once. Take out the one of `root`: the moves that carry its chunks, which are numbered from 0 in a broadcast. `verify` proves it, or says what is missing where.


# %% name="part_mine"
def broadcast_in(schedule, root):
    """The broadcast from `root` that is a part of an all-gather."""
    each = schedule.chunks // schedule.ranks  # chunks of a part; rank 1 has chunks each, ..., 2 * each - 1
    moves = [schedules.Move(m.step, m.src, m.dst, m.chunks) for m in schedule.moves]  # your turn: so far all of them
    return schedules.Schedule("broadcast", "a part of it", schedule.ranks, each, tuple(moves), root)


# %% name="judge_part"
for root in (0, 5):
    part = broadcast_in(found, root)
    try:
        part.verify()
        print(f"from GPU {root}: right, {part}")
    except schedules.ScheduleError as error:
        print(f"from GPU {root}: {error}")

# %% [markdown] name="part_mine_answer"
# <details><summary><b>An answer</b></summary>
#
# ```python
# def broadcast_in(schedule, root):
#     each = schedule.chunks // schedule.ranks
#     moves = []
#     for m in schedule.moves:
#         mine = tuple(c - root * each for c in m.chunks if c // each == root)
#         if mine:
#             moves.append(schedules.Move(m.step, m.src, m.dst, mine))
#     return schedules.Schedule("broadcast", "a part of it", schedule.ranks, each, tuple(moves), root)
# ```
# </details>

# %% [markdown] name="live_intro"
# ## 6. On your ranks
#
# A schedule is data, so your ranks can run what the search found. Suppose that your ranks form a ring, and that each can use both its links at once. How many steps does an all-gather need on $p$ ranks? The course's
# ring takes $p-1$.

# %% name="guess_live"
half = predict(
    "Eight ranks in a ring, with links to both neighbours: the fewest steps of an all-gather?",
    choices=["3", "4", "7", "8"],
    title="Steps both ways round a ring of eight",
)
half

# %% name="live_search"
p = world.ranks
ring_lanes = [[int((a - b) % p in (1, p - 1)) for b in range(p)] for a in range(p)]
rounds = [2] * (p // 2)
if p % 2 == 0 and p > 2:
    rounds[0] = 1  # (p - 1) parts of two chunks over two links: p - 1 rounds
mine = schedules.search_all_gather(ring_lanes, chunks=2, rounds=rounds)
one_way = schedules.ring_all_gather(p)
print(mine, one_way, sep="\n")


# %% name="live_run"
def gathered():
    """Each rank has its own part of a vector; all_gather fills in the rest."""
    rank, part = dist.get_rank(), 6
    x = torch.zeros(part * dist.get_world_size())
    x[rank * part : (rank + 1) * part] = rank + 1
    return Executor(mine)(x).view(-1, part).mean(1).tolist()


results = world.run(gathered)
print(results[0], all(result == results[0] for result in results))


# %% name="live_time"
def measure(nbytes):
    x, runs = torch.zeros(nbytes // 4), [Executor(schedule) for schedule in (mine, one_way)]
    return bench.seconds_of(*(lambda run=run: run(x) for run in runs))


for nbytes in (2**12, 2**20):
    both_ways, one = world.run(measure, nbytes)[0]
    print(f"{nbytes:>8} bytes: both ways {1e3 * both_ways:.2f} ms, one way {1e3 * one:.2f} ms")

# %% name="reveal_live" jupyter={"source_hidden": true}
# the answer: run this cell
half.reveal(
    "4",
    why="The rank opposite is four steps away, whichever way round, and in four steps all parts fit.",
)

# %% [markdown] name="live_explained"
# The result is right on real ranks: a proof on symbols holds for numbers too. The model says $\lfloor p/2 \rfloor$ latencies instead of $p-1$ (2 instead of 3 on four ranks), and half the bytes on each link. Your machine may say that both take the same, as four
# ranks on two cores did: they share cores and memory, and have no two links each. **The search is as good as the machine that you describe to it.**
#
# ## 7. A link fails
#
# GPUs 0 and 4 lose their double link. A library must now take rings through what is left. The search gets a new table (about 4 s):

# %% name="broken"
broken = [list(row) for row in lanes]
broken[0][4] = broken[4][0] = 0
repaired = schedules.search_all_gather(broken, chunks=6, rounds=(3, 4, 5))
print(repaired)
print(f"{race.judge(repaired, task).picoseconds / 1e6:.1f} µs, without the link between GPUs 0 and 4")

# %% [markdown] name="exercise"
# **Your turn.** Twelve rounds are not the least. Seven parts of six chunks must enter GPU 0 over the four links that are left. How many rounds must there be? Find rounds that reach this number.
#
# <details><summary><b>An answer</b></summary>
#
# $7 \cdot 6 / 4 = 10.5$, so 11 rounds. `rounds=(3, 4, 4)` is found; with other ways to share out the 11 the search may give up.
#
# ```python
# best = schedules.search_all_gather(broken, chunks=6, rounds=(3, 4, 4))
# ```
# </details>

# %% [markdown] name="limits"
# ## 8. How far it goes
#
# Eight GPUs are few. The number of possible schedules grows so fast that a solver that tries all cases ends at about this size. What is done for larger machines:
#
# - **TACCL** (Shah et al., NSDI 2023): a person sketches the algorithm, a solver of mixed-integer programs fills it in.
# - **TACOS** (Won et al., MICRO 2024): greedy matching of chunks to links, step by step, as here but without going back.
# - **SyCCL** ([SIGCOMM 2025](https://github.com/aliyun/syccl)): splits the task along the machine's symmetries.
# - **ForestColl** (Zhao et al., arXiv:2402.06787): packs spanning trees, in polynomial time; its bytes are the least on any network, its latency is not.
#
# Or a person finds the pattern. That is what [the race](../../docs/race.md) is for: thirteen tasks, up to 4096 ranks, and a score. `allranks race` lists them; this chapter's schedule leads in `cube-mesh` with 0.906.

# %% [markdown] name="gpu_intro"
# ## 9. From the list to the GPU
#
# NCCL's collectives run NCCL's algorithms only. **MSCCL++** runs yours. In its Python you say which chunk goes from which buffer into which other GPU's, through a channel: `MemoryChannel` (the GPU's threads write over NVLink or xGMI), `PortChannel` (a network card or a copy engine does, started by a thread on the CPU) or `SwitchChannel` (the
# switch adds). How long is the program of one GPU for the schedule that was found?


# %% name="as_program"
def program(schedule, gpu):
    """What one GPU does, step by step: puts into others' buffers with a signal, then waits for what it is to get."""
    lines = []
    for step in schedule.by_step:
        lines += [f"put {len(m.chunks):2} chunks into GPU {m.dst}, signal" for m in step if m.src == gpu]
        lines += [f"wait for GPU {m.src}" for m in step if m.dst == gpu]
    return lines


print(*program(found, 0), sep="\n")
channels = {(m.src, m.dst) for m in found.moves}
print(f"all GPUs: {sum(len(program(found, gpu)) for gpu in range(8))} lines, {len(channels)} channels")

# %% [markdown] name="gpu_explained"
# Three steps of four puts and four waits; double links carry twice as many chunks. MSCCL++'s compiler writes an execution plan in JSON: for each GPU and each block of threads the list of puts, signals and waits. One kernel, the executor, reads the plan and does it. The way into a torch program is short: its library stands in for NCCL (`LD_PRELOAD=libmscclpp_nccl.so`), so
# `backend="nccl"` stays, and a selector chooses a plan for each call. What a schedule here does not say, and a plan must: which thread block does what, and who signals whom before a buffer is used again
# ([Without messages](../4_real_cluster/44_without_messages.ipynb)).
# <!-- microsoft/mscclpp 1f5f065 (2026-08-20): docs/dsl/concepts.md 33-61 (channels), docs/tutorials/04-port-channel.md 59 (and ProxyService at 7a8e183: a thread on the host), docs/dsl/quick_start.md (JSON plan, executor_test.py), docs/dsl/integration.md 1-19 (NCCL interposition, selector), README.md (CUDA
# and ROCm); arXiv:2504.09014. Looked up 2026-11 -->

# %% [markdown] name="recap"
# ## Recap
#
# An algorithm is a list of messages, so a program can look for it. On a DGX-1 it finds an all-gather in three steps with the least bytes on every link, faster than six rings at every size, in seconds. **A schedule that is found must be proved; that nothing was found proves nothing.**
#
# **Now you:** [a race task of your choice](../../docs/race.md).
#
# **Next question:** every message has its place now. What if one of them never comes? [When it hangs](../4_real_cluster/45_when_it_hangs.ipynb)
#
# Sources: Cai et al., *Synthesizing Optimal Collective Algorithms*, PPoPP 2021; the links of a DGX-1 and their bound of 7/6 as in [microsoft/msccl-tools](https://github.com/microsoft/msccl-tools).

# %% name="what_you_knew"
predictions()

# %% name="stop_world"
world.stop()

# %% name="done"
from allranks import done

done("63")
