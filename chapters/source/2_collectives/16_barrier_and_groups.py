# %% [markdown] name="title"
# # Barrier and groups
#
# {{here}}
#
# **64 GPUs train one model: 8 ranks share each layer, and 8 such groups share the data. Which ranks must communicate with each other, and what does it cost to wait for all ranks?**
#
# {{picture}}
#
# 64 ranks, each a square. The members of one row and of one column are numbered.

# %% name="start_world"
import time

import torch
import torch.distributed as dist

from allranks import Player, World, bench, check, predict, predictions, schedules

world = World()
world

# %% [markdown] name="definition"
# ## 1. What a barrier promises
#
# A barrier moves no data. It promises one thing: **no rank returns from it before all ranks have called it.** In the next cell rank $r$ is $0.3\,r$
# seconds late.

# %% name="guess_wait"
guess_wait = predict(
    "Each rank comes 0.3 s after the one before it. How many seconds does the last rank wait?",
    low=0.0,
    high=3.0,
    unit="s",
    title="Seconds that the last rank waits",
)
guess_wait

# %% name="wait"
# %%ranks
import time


def now():
    if torch.get_default_device().type == "cuda":
        torch.cuda.synchronize()  # on a GPU calls are only queued; the barrier alone waits on the CPU
    return time.perf_counter()


dist.barrier()
now()
time.sleep(0.3 * rank)
came = now()
dist.barrier()
waited_s = now() - came
print(f"waited {waited_s:.1f} s")

# %% name="reveal_wait" jupyter={"source_hidden": true}
# the answer: run this cell
guess_wait.reveal(
    round(world["waited_s"][-1], 1),
    why="When the last rank comes all others are there, so it waits for nobody; the early ones wait for it.",
)

# %% [markdown] name="wait_explained"
# A barrier takes as long as the *slowest* rank, and in every step one of 64 ranks is the slowest.
#
# A barrier orders events. A good use: one rank prepares something that the others then use.

# %% name="guess_file"
guess_file = predict(
    "Rank 0 writes a file and all read it. What happens without the marked barrier?",
    choices=["nothing: the others are slower anyway", "sometimes a rank finds no file", "always an error"],
    title="A file without the barrier",
)
guess_file

# %% name="file"
# %%ranks
import pathlib
import tempfile

place = [tempfile.mkdtemp() if rank == 0 else None]
dist.broadcast_object_list(place, src=0)
file = pathlib.Path(place[0]) / "vocabulary.txt"
if rank == 0:
    file.write_text("to be or not to be")
dist.barrier()  # without this line?
print(len(file.read_text().split()), "words")

# %% name="reveal_file" jupyter={"source_hidden": true}
# the answer: run this cell
guess_file.reveal(
    "sometimes a rank finds no file",
    why="Nothing holds the readers back, so now and then one of them is faster than the writer.",
)

# %% [markdown] name="file_explained"
# To fail sometimes is worse than always. But many barriers in training code are useless: an `all_reduce` already waits for all ranks
# that contribute numbers. Use a barrier where ranks depend on each other *outside* `torch.distributed`: files, clocks (the chapters use one before
# they measure), ports.

# %% name="tidy"
# %%ranks
dist.barrier()
if rank == 0:
    file.unlink()
    file.parent.rmdir()

# %% [markdown] name="dissemination"
# ## 2. How each rank learns that all have arrived
#
# The simple way: all ranks tell rank 0, then rank 0 tells all ranks. That is $2(p-1)$ messages at one rank. A better way: in round $k$ rank $r$ tells
# rank $r + 2^k$ "I am here, and so are all ranks that I have heard of". In each round a rank knows of twice as many ranks.

# %% name="guess_first"
guess_first = predict(
    "Eight ranks call this barrier at the same moment. Which of them knows first that all have come?",
    choices=["rank 0", "rank 7", "all in the same round"],
    title="Who knows first that all have come",
)
guess_first

# %% name="watch"
Player(schedules.dissemination_barrier(ranks=8))

# %% name="reveal_first" jupyter={"source_hidden": true}
# the answer: run this cell
guess_first.reveal(
    "all in the same round",
    why="No rank is special: after each round every rank has heard of twice as many, so all eight know it in the third.",
)

# %% [markdown] name="dissemination_explained"
# This **dissemination barrier** works for any $p$, has no root, and takes $\lceil\lg p\rceil$ rounds; NCCL uses it
# when its ranks start (`src/bootstrap.cc`). Here it is on live ranks:


# %% name="own_barrier"
def dissemination_barrier():
    rank, p = dist.get_rank(), dist.get_world_size()
    word, heard, hop = torch.zeros(1), torch.empty(1), 1
    while hop < p:
        pair = [
            dist.P2POp(dist.isend, word, (rank + hop) % p),
            dist.P2POp(dist.irecv, heard, (rank - hop) % p),
        ]
        for work in dist.batch_isend_irecv(pair):
            work.wait()
        heard.item()  # on a GPU this, not wait(), makes the CPU wait for the message
        hop *= 2


# %% name="own_wait"
def now():
    if torch.get_default_device().type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def waited():
    dist.barrier()
    now()
    time.sleep(0.3 * dist.get_rank())
    came = now()
    dissemination_barrier()
    return round(now() - came, 1)


results, trace = world.trace(waited)
print("waited:", results)
Player(trace)

# %% [markdown] name="price"
# ## 3. What it costs
#
# With $\alpha$ seconds a message, $T = \lceil\lg p\rceil\,\alpha$. There is no $\beta$, because there is no data. We measure $\alpha$ as half the
# time in which one number goes from rank 0 to rank 1 and back. `bench.seconds_of` times that and both barriers on all ranks, in turns.


# %% name="own_timings"
def timed():
    x, rank = torch.zeros(1), dist.get_rank()

    def ping():
        if rank == 0:
            dist.send(x, 1)
            dist.recv(x, 1)
        elif rank == 1:
            dist.recv(x, 0)
            dist.send(x, 0)

    return bench.seconds_of(ping, dissemination_barrier, dist.barrier, iterations=20)


ping_s, ours_s, library_s = world.run(timed)[0]
rounds = schedules.dissemination_barrier(world.ranks).steps
print(f"alpha {1e6 * ping_s / 2:.0f} µs, {rounds} rounds: model {1e6 * rounds * ping_s / 2:.0f} µs")
print(f"our barrier {1e6 * ours_s:.0f} µs")
print(f"dist.barrier {1e6 * library_s:.0f} µs")

# %% [markdown] name="price_explained"
# $\alpha$ was measured while only two ranks used the machine; in a barrier all ranks must be *awake*. With more ranks than cores, ranks take turns,
# and the barrier's time depends on these turns: expect several times the model. With Gloo the library's barrier also uses a separate thread that must
# wake; plain messages don't. With NCCL torch's barrier is an all-reduce of one number, for which
# the CPU then waits (`ProcessGroupNCCL.cpp`); so its time, and $\alpha$, contain the start of a kernel and that wait. On a cluster, first check whether ranks are late, as in section 1; the barrier itself is rarely slow.

# %% [markdown] name="groups"
# ## 4. Groups
#
# A group is a subset of the ranks with its own collectives. With ranks arranged in rows, `rank // columns` is a rank's row. A row has two ranks; with
# an odd number of ranks, all of them. What does rank 1 hold after summing its row, if rank $r$ contributes $r + 1$?

# %% name="rows"
# %%ranks
columns = 2 if world_size % 2 == 0 else world_size
rows = [dist.new_group(list(range(first, first + columns))) for first in range(0, world_size, columns)]
mine = rows[rank // columns]
x = torch.tensor([rank + 1.0])
dist.all_reduce(x, group=mine)
print(f"{x.item():g}; rank {rank} is number {dist.get_rank(mine)} of {dist.get_process_group_ranks(mine)}")

# %% [markdown] name="rows_explained"
# Every rank made *every* row, also those to which it does not belong. This is the rule: `new_group` is itself a collective of the whole world.
#
# A rank now has two numbers: its **global rank** and its **group rank**. `src=` in `dist.broadcast` is always a global rank, in any group; `group_src=` is the group rank.

# %% name="guess_outsider"
guess_outsider = predict(
    "A rank calls a collective of a group that it does not belong to. What happens?",
    choices=["an error", "it waits for ever", "nothing: its tensor stays"],
    title="A collective of somebody else's group",
)
guess_outsider

# %% name="outsider"
# %%ranks
import warnings

others = dist.new_group(list(range(world_size - 1)))
x = torch.ones(1)
with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    dist.all_reduce(x, group=others)
print(f"{x.item():g}", *(str(w.message) for w in warned))

# %% name="reveal_outsider" jupyter={"source_hidden": true}
# the answer: run this cell
guess_outsider.reveal(
    "nothing: its tensor stays",
    why="There is only a warning: the rank goes on with its own number.",
)

# %% [markdown] name="outsider_explained"
# In a log of 64 ranks such a line is easy to miss.
#
# **A group made by its members only.** Here only the members call `new_group`. (With `backend="gloo"` and CPU tensors the cell does the same in every
# world, on GPUs too.)

# %% name="guess_members"
guess_members = predict(
    "A group is made by its members only. When does the problem occur?",
    choices=["never", "when this group is used", "with the next group"],
    title="A group made by its members only: the problem comes",
)
guess_members

# %% tags=["raises-exception", "not-on-nccl"] name="members_only"
# %%ranks --deadline 4
if rank < world_size - 1:
    team = dist.new_group(list(range(world_size - 1)), backend="gloo")
    dist.all_reduce(torch.ones(1, device="cpu"), group=team)
print("so far, so good")
everybody = dist.new_group(list(range(world_size)), backend="gloo")
dist.all_reduce(torch.ones(1, device="cpu"), group=everybody)

# %% name="reveal_members" jupyter={"source_hidden": true}
# the answer: run this cell
guess_members.reveal(
    "with the next group",
    why="The members agree among themselves, but the last rank has counted one group fewer, so the next group has two numbers.",
)

# %% [markdown] name="members_explained"
# Each rank counts its groups, and ranks find each other by that number. The last rank has counted one group fewer, so it and the others look for each
# other under different names. The hang comes in correct code, perhaps thousands of lines later. (`use_local_synchronization=True` is for groups that
# only their members make.)
#
# Gloo connects a group when it is made. NCCL does too, if `init_process_group` was given a `device_id`, as in our World: it *splits* the world's
# communicator, and all its ranks take part in a split. So the members' split meets the last rank's next `new_group`, which splits differently, and
# NCCL does not define what comes of that. Without `device_id` a communicator forms only at the group's first collective.

# %% [markdown] name="mesh"
# ## 5. A mesh
#
# Rows and columns are so common that PyTorch makes them: `init_device_mesh` arranges the ranks in a grid and makes a group for each row and each
# column. Here is the grid of the 64 GPUs of the opening question:

# %% name="grid"
grid = torch.arange(64).view(8, 8)
row, column = divmod(13, 8)
print("tensor parallel with rank 13:", grid[row].tolist())
print("data parallel with rank 13:  ", grid[:, column].tolist())

# %% [markdown] name="grid_explained"
# Each rank is in two groups of 8. The innermost dimension has neighbouring numbers, which are on one node with fast links. Tensor parallelism uses
# this dimension, because it communicates in every layer. Data parallelism communicates once a step and can go between nodes. There are sixteen groups
# besides the world's own.
#
# Does summing the rows and then the columns give the sum of all ranks?

# %% name="mesh_live"
# %%ranks
from torch.distributed.device_mesh import init_device_mesh

teams = 2 if world_size % 2 == 0 else 1
mesh = init_device_mesh(device.type, (teams, world_size // teams), mesh_dim_names=("data", "tensor"))
x = torch.tensor([rank + 1.0])
dist.all_reduce(x, group=mesh.get_group("tensor"))
in_team = x.item()
dist.all_reduce(x, group=mesh.get_group("data"))
print(f"{mesh.get_coordinate()}: team {in_team:g}, all {x.item():g}")

# %% [markdown] name="hierarchy"
# Yes. This is the idea of the hierarchical all-reduce: first within the node, then between nodes. To sum whole tensors in both directions would send
# too much. After a reduce-scatter in the node, each rank sends only its part to the other nodes: $2\frac{m-1}{m}\cdot\frac{n}{g}$ bytes for $m$ nodes
# of $g$ ranks.
#
# **Your turn**: one group is missing. `place` should hold the ranks that have *my* place in each node; `None` means all ranks. Run `check` first to see what that costs.


# %% name="hierarchical"
def hierarchical_all_reduce(tensor, ranks_per_node):
    rank, p, g = dist.get_rank(), dist.get_world_size(), ranks_per_node
    node = [dist.new_group(list(range(first, first + g))) for first in range(0, p, g)][rank // g]
    place = None  # your turn

    length = -(-tensor.numel() // g)  # rounded up: chunks must be equal
    padded = tensor.new_zeros(g * length)
    padded[: tensor.numel()] = tensor.flatten()
    chunks = list(padded.view(g, length).unbind())
    mine = torch.empty_like(chunks[0])
    dist.reduce_scatter(mine, chunks, group=node)
    dist.all_reduce(mine, group=place)
    dist.all_gather(chunks, mine, group=node)
    tensor.copy_(torch.cat(chunks)[: tensor.numel()].view(tensor.shape))


check(hierarchical_all_reduce)

# %% [markdown] name="hierarchical_answer"
# <details><summary><b>A hint</b></summary>
#
# Every rank makes all $g$ groups of this kind and picks its own, as in the line above. `range` takes a third argument.
# </details>
# <details><summary><b>An answer</b></summary>
#
# ```python
#     place = [dist.new_group(list(range(first, p, g))) for first in range(g)][rank % g]
# ```
#
# The groups are made inside of the function only because `check` calls it on worlds of several sizes. A program makes its groups once, at the
# start: `new_group` is itself a collective, and on NCCL each group has a communicator with buffers of its own.
# </details>
#
# ## 6. Two groups
#
# Groups are independent, so the library does not compare the order of their calls. Rank 0 sums over the world and then with rank 1; rank 1 sums in the opposite order.

# %% name="guess_order"
guess_order = predict(
    "Rank 0 sums over the world and then with rank 1; rank 1 does it in the opposite order. What happens?",
    choices=["it works: the groups differ", "they wait for ever", "wrong sums"],
    title="Two groups in opposite orders",
)
guess_order

# %% tags=["raises-exception", "not-on-nccl"] name="order"
# %%ranks --deadline 3
pair = dist.new_group([0, 1])
x = torch.ones(1)
for group in (pair, None) if rank == 1 else (None, pair):
    if group is None or rank < 2:
        dist.all_reduce(x, group=group)

# %% name="reveal_order" jupyter={"source_hidden": true}
# the answer: run this cell
guess_order.reveal(
    "they wait for ever",
    why="Each of the two ranks waits in a call that the other makes only afterwards.",
)

# %% [markdown] name="order_explained"
# (On GPUs both calls return, and the two GPUs wait for each
# other in the same way: the report says so at the end of the cell.) **If two ranks share two groups, they must use them in the
# same order.** NCCL's user guide gives the same warning for communicators that are used at the same time.

# %% [markdown] name="where"
# ## 7. Find it in torch
#
# **Your task.** Open `torch/distributed/device_mesh.py` (`python -c "import torch; print(torch.__path__[0])"` says in which folder torch is) and look for `new_group`. `init_device_mesh` makes a group for each row and column of the mesh. Which other function does it use where the backend can do it, and what does that save?
#
# <details><summary><b>Answer</b></summary>
#
# `split_group`: one call makes all groups of a dimension by splitting a communicator that exists, instead of one call for each group.
# </details>
#
# You also meet it here:
#
# - **Tensor, pipeline, data, expert parallelism together**: one mesh dimension each.
# - **HSDP**, hybrid sharded data parallelism: shards within one dimension, copies along the other.
# - **Checkpoints**: rank 0 writes, all wait. *When it hangs* shows a barrier with a deadline that names the missing rank (`monitored_barrier`).
#
# ## 8. Check yourself
#
# <details><summary>1. 1024 ranks, 5 µs a message: what does the barrier itself take? And if one rank is 40 ms late?</summary>
#
# 10 rounds, 50 µs. If one rank is late, 40 ms: then the algorithm hardly matters.
# </details>
#
# <details><summary>2. In an 8 × 8 mesh, how many groups is each rank in, and how many are there?</summary>
#
# Each rank is in two; there are eight rows and eight columns.
# </details>
#
# <details><summary>3. You add a barrier before each all-reduce "to be safe". What has changed?</summary>
#
# Only the time. The all-reduce waits anyway, and if a rank does not call it, the program now hangs one line earlier. On GPUs it costs more than its
# messages: the CPU waits in the barrier, so it can't queue the next kernels ahead, and the GPU is idle until it has done so.
# </details>

# %% [markdown] name="recap"
# ## Recap
#
# In a barrier all ranks wait for the last one; the messages themselves take $\lceil\lg p\rceil$ rounds. With groups some ranks communicate without
# the others; all ranks make all groups, in the same order, and a mesh makes them by row and column. Two ranks that share two groups must use them in
# the same order. **Make groups in the same order on all ranks, and call only the group that needs to communicate.**
#
# **Now you:** [Lab 4](../../labs/lab04_algorithms/algorithms.ipynb) asks for the whole hierarchical all-reduce.
#
# **Next question:** softmax, argmax and the loss need a whole row, and no rank holds one. What must the ranks send to each other?
# [Composing collectives](18_composing.ipynb). The core goes on with [Data parallel, by hand](../3_one_model/20_data_parallel.ipynb).
#
# **Sources.** D. Hensgen, R. Finkel and U. Manber, *Two algorithms for barrier synchronization*, Int. J. Parallel Programming 17(1), 1988 ·
# [PyTorch, groups](https://docs.pytorch.org/docs/stable/distributed.html#groups) ·
# [PyTorch, DeviceMesh](https://docs.pytorch.org/docs/stable/distributed.html#devicemesh) ·
# [NCCL, bootstrap.cc](https://github.com/NVIDIA/nccl/blob/master/src/bootstrap.cc) ·
# [NCCL user guide, using multiple communicators concurrently](https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/communicators.html)

# %% name="what_you_knew"
predictions()

# %% name="stop_world"
world.stop()

# %% name="done"
from allranks import done

done("16")
