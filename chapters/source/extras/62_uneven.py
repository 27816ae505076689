# %% [markdown] name="title"
# # Uneven
#
# {{here}}
#
# **64 ranks have parts of different length, and one of them has as much as all others together. Where does each part begin in the whole, and how many times too many bytes does an all-gather move if it pads?**
#
# {{picture}}
#
# The number of rows differs from rank to rank. All rows together have one order, and somebody must know where each part begins.

# %% name="first_picture"
from allranks import explore

explore.uneven(p=16, share=0.25)

# %% [markdown] name="first_question"
# **Ask the picture.** Drag the top of the long part to a half of all: how many times the needed bytes does padding move on 16 ranks? How many will it be on 64?

# %% name="start_world"
import torch
import torch.distributed as dist

from allranks import World, bench, check, plots, predict, predictions

world = World()
world

# %% [markdown] name="scan_intro"
# ## 1. Where do mine begin?
#
# Rank $r$'s first row stands behind all rows of the ranks before it: its place is the sum of *their* numbers of rows. Such a sum over all lower ranks is an **exclusive scan** (`MPI_Exscan`); with the own
# number it is an **inclusive scan** (`MPI_Scan`). With it one numbers the tokens of an expert, the samples of a data loader, or the parts of a file that many ranks write. torch.distributed has no scan. For one number, a gather does:

# %% name="by_gather"
# %%ranks
rows = torch.tensor([2 * rank + 1])
counts = torch.empty(world_size, dtype=torch.int64)
dist.all_gather_single(counts, rows)
first = counts[:rank].sum().item()
print(f"{rows.item()} rows, numbers {first} to {first + rows.item() - 1}")

# %% [markdown] name="scan_why"
# That brings $p$ numbers to each rank. If the numbers are a *vector*, such as the tokens for each of 256 experts, or if $p$ is large, add on the way instead. Simplest is a chain: rank 0 sends to rank 1, which adds and sends
# to rank 2. That takes $p-1$ rounds.
#
# **Doubling** takes $\lceil\lg p\rceil$ (Hillis and Steele): in round $k = 0, 1, 2, \dots$ every rank sends its sum so far to the rank $2^k$ above it. After round $k$ a rank has the sum of the $2^{k+1}$ ranks that end with itself.


# %% name="guess_messages"
messages = predict(
    "A chain sends 1,023 messages on 1,024 ranks, in as many rounds. How many does doubling send in all?",
    low=1000,
    high=1_000_000,
    unit="messages",
    log=True,
    title="Messages of a scan over 1,024 ranks",
)
messages


# %% name="inclusive_scan"
# %%ranks
def inclusive_scan(x):
    total, distance = x.clone(), 1
    while distance < world_size:
        arrived, ops = torch.zeros_like(total), []
        if rank + distance < world_size:
            ops.append(dist.P2POp(dist.isend, total, rank + distance))
        if rank >= distance:
            ops.append(dist.P2POp(dist.irecv, arrived, rank - distance))
        for work in dist.batch_isend_irecv(ops) if ops else []:
            work.wait()
        total = arrived + total
        distance *= 2
    return total


# %% name="scan_live"
# %%ranks
print("sum up to here:", inclusive_scan(rows).item())

# %% name="scan_numbers"
print("ranks  rounds  messages  (a chain: rounds = messages)")
for p in (4, 8, 64, 1024):
    distances = [2**k for k in range((p - 1).bit_length())]
    print(f"{p:5} {len(distances):6} {sum(p - d for d in distances):9} {p - 1:15}")

# %% name="reveal_messages" jupyter={"source_hidden": true}
# the answer: run this cell
messages.reveal(
    sum(1024 - 2**k for k in range(10)),
    why="In each of 10 rounds all ranks but the highest send one: many more messages than the chain's, but those of a round go at the same time.",
)

# %% [markdown] name="exclusive"
# How does an inclusive scan become an exclusive one? Subtract what is yours, if it is a whole number. With floats that loses digits, and with a maximum instead of a sum it is impossible.

# %% [markdown] name="scan_mine_task"
# ### Your turn
#
# The code below subtracts and loses digits. **Return the sum of all lower ranks** (zeros on rank 0) in as many rounds, without subtracting.


# %% name="scan_mine"
def exclusive_scan(tensor):
    rank, p, distance = dist.get_rank(), dist.get_world_size(), 1
    total = tensor.contiguous().clone()
    while distance < p:
        ops, arrived = [], torch.empty_like(total)
        if rank + distance < p:
            ops.append(dist.P2POp(dist.isend, total, rank + distance))
        if rank >= distance:
            ops.append(dist.P2POp(dist.irecv, arrived, rank - distance))
        for work in dist.batch_isend_irecv(ops) if ops else []:
            work.wait()
        if rank >= distance:
            total = arrived + total
        distance *= 2
    return total - tensor  # your turn: lose no digit. Add what comes to two sums, one of them without your own


check(exclusive_scan)

# %% [markdown] name="scan_mine_answer"
# <details><summary><b>An answer</b></summary>
#
# ```python
# def exclusive_scan(tensor):
#     rank, p, distance = dist.get_rank(), dist.get_world_size(), 1
#     total = tensor.contiguous().clone()
#     below = torch.zeros_like(total)
#     while distance < p:
#         ops, arrived = [], torch.empty_like(total)
#         if rank + distance < p:
#             ops.append(dist.P2POp(dist.isend, total, rank + distance))
#         if rank >= distance:
#             ops.append(dist.P2POp(dist.irecv, arrived, rank - distance))
#         for work in dist.batch_isend_irecv(ops) if ops else []:
#             work.wait()
#         if rank >= distance:
#             below = arrived + below
#             total = arrived + total
#         distance *= 2
#     return below
# ```
# </details>

# %% [markdown] name="lists_intro"
# ## 2. Who takes unequal parts
#
# Now move the rows. torch's collectives take *lists*, and nothing in a list says that its tensors are equally long. Four calls with parts of different length: which ones does Gloo take?

# %% name="guess_lists"
lists = predict(
    "all_gather with a list, reduce_scatter with a list, all_to_all with lists, all_to_all_single with splits: how many of the four take unequal parts with Gloo (torch 2.13)?",
    choices=["none", "one", "two", "all four"],
    title="Calls that take unequal parts, with Gloo",
)
lists


# %% name="unequal_lists"
# %%ranks
gloo = dist.new_group(backend="gloo")
lengths = [r + 1 for r in range(world_size)]


def parts(values=0.0):
    return [torch.full((n,), values, device="cpu") for n in lengths]


mine = torch.full((rank + 1,), float(rank), device="cpu")
sent = torch.ones(sum(lengths), device="cpu")
got = torch.empty(world_size * (rank + 1), device="cpu")
calls = {
    "all_gather, list": lambda: dist.all_gather(parts(), mine, group=gloo),
    "reduce_scatter, list": lambda: dist.reduce_scatter(mine.clone(), parts(1.0), group=gloo),
    "all_to_all, lists": lambda: dist.all_to_all(list(got.split(rank + 1)), parts(), group=gloo),
    "all_to_all_single": lambda: dist.all_to_all_single(got, sent, [rank + 1] * world_size, lengths, group=gloo),
}
# %% name="lists_live"
# %%ranks
for name, call in calls.items():
    try:
        call()
        said = "works"
    except (RuntimeError, ValueError) as error:
        said = f"refused: {str(error).splitlines()[0].rpartition(': ')[2]}"
    if rank == 0:
        print(f"{name:22} {said}")

# %% name="reveal_lists" jupyter={"source_hidden": true}
# the answer: run this cell
lists.reveal(
    "two",
    why="reduce_scatter and all_to_all_single take them, the other two check for equal sizes and refuse.",
)

# %% [markdown] name="lists_table"
# On NCCL it is another list:
#
# | | Gloo (torch 2.13) | NCCL |
# |---|---|---|
# | `all_gather`, list | refused | works: torch makes $p$ broadcasts of it, in one group of calls; NCCL from 2.29 runs that group as one kernel |
# | `all_gather_single` | refused | refused: the output must be $p$ inputs long |
# | `reduce_scatter`, list | works | a group of $p$ reduces |
# | `all_to_all_single`, splits | works, also with zeros | works: sends and receives in one group |
# | `all_to_all`, lists | refused | works, the same way |
# | `scatter`, `gather`, list | refused *on the root only*: the others wait | the same: only the root has the list, and checks it |
#
# (`ProcessGroupNCCL.cpp`; Gloo's column is measured on 3 ranks.) A program that must run on both needs one of three ways.
#
# ## 3. Three ways to gather unequal parts
#
# 1. **Pad**: every part as long as the longest, one all-gather, then cut.
# 2. **$p$ broadcasts**, each part at its own length.
# 3. **An all-to-all** with splits in which every rank sends its part to everybody.
#
# All of them need the lengths first: one all-gather of 8 bytes a rank. Give the last rank as much as all others together, and count the calls (alpha) and bytes (beta) of each way.


# %% name="three_ways"
def lengths_of_all(x):
    lengths = torch.empty(dist.get_world_size(), dtype=torch.int64)
    dist.all_gather_single(lengths, torch.tensor([len(x)]))
    return lengths.tolist()


def padded(x, lengths):
    p, long = len(lengths), max(lengths)
    mine = torch.zeros(long)
    mine[: len(x)] = x
    whole = torch.empty(p * long)
    dist.all_gather_single(whole, mine)
    return torch.cat([part[:n] for part, n in zip(whole.view(p, long), lengths, strict=True)])


# %% name="two_more"
def broadcasts(x, lengths):
    parts = [torch.empty(n) for n in lengths]
    parts[dist.get_rank()] = x.clone()
    for root, part in enumerate(parts):
        dist.broadcast(part, root)
    return torch.cat(parts)


def by_all_to_all(x, lengths):
    whole = torch.empty(sum(lengths))
    dist.all_to_all_single(whole, x.repeat(len(lengths)), lengths, [len(x)] * len(lengths))
    return whole


# %% name="gather_them"
def my_part():
    rank, p, small = dist.get_rank(), dist.get_world_size(), 50_000
    x = torch.full((small if rank < p - 1 else small * (p - 1),), float(rank))
    return x, lengths_of_all(x)


def gather(way):
    x, lengths = my_part()
    ranks = torch.arange(float(dist.get_world_size()))
    return torch.equal(way(x, lengths), ranks.repeat_interleave(torch.tensor(lengths)))


def timed(way):
    x, lengths = my_part()
    return bench.seconds_of(lambda: way(x, lengths), iterations=5)[0]


# %% name="brought" jupyter={"source_hidden": true}
# run this cell: it counts what comes to rank 0
def brought(event, p):
    """The bytes that an operation of some rank brings to rank 0; an event counts what its rank puts in."""
    if event.op == "broadcast":
        return event.nbytes if event.rank == 0 else 0
    if event.rank == 0 or event.op == "all_reduce":
        return 0
    return event.nbytes // p if event.op.startswith("all_to_all") else event.nbytes


# %% name="count_bytes"
for way in (padded, broadcasts, by_all_to_all):
    results, trace = world.trace(gather, way)
    calls = sum(event.rank == 0 and event.op != "all_reduce" for event in trace) - 1
    nbytes = sum(brought(event, world.ranks) for event in trace) - 8 * (world.ranks - 1)  # without the lengths
    nbytes -= 4 * 50_000 * (way is broadcasts)  # rank 0's own broadcast brings it nothing
    took = world.run(timed, way)[0]
    print(f"{way.__name__:14} right: {all(results)}, calls: {calls}, {nbytes:10,} bytes, {1e3 * took:6.2f} ms")

# %% [markdown] name="price_intro"
# Even on few ranks padding moves more bytes than are needed; the last column says what that costs on your machine. On 64 ranks it moves 32 times the needed bytes, and the memory for the result is 32 times as large before it is cut. Price the three ways for 64 ranks, with $\alpha = 10$ µs and 50 GB/s: a ring for the padded all-gather, $p$ binomial trees one after the other, and an all-to-all in which the rank
# with the long part sends it $p-1$ times.

# %% name="price_ways"
p, alpha, beta, total = 64, 10e-6, 1 / 50e9, 64e6
shares = [1 / 64, 0.05, 0.1, 0.25, 0.5, 0.9]
padded_ms = [1e3 * (p - 1) * (alpha + share * total * beta) for share in shares]  # and of an all-to-all: see below
broadcasts_ms = 1e3 * 6 * (p * alpha + total * beta)
figure, axes = plots.chart("share of the longest part", "ms")
axes.semilogy(shares, padded_ms, marker="o", label="padded, or all-to-all")
axes.semilogy(shares, [broadcasts_ms] * len(shares), marker="o", label="broadcasts")
axes.legend()
figure

# %% [markdown] name="ways_explained"
# Padding is best while parts are about equal: one call, $(p-1)\alpha$. Broadcasts as binomial trees cost $p\,\lceil\lg p\rceil$ latencies and $\lceil\lg p\rceil$ times the
# bytes, however uneven the parts are. NCCL's broadcast is a ring, which passes each byte on once, and NCCL runs all $p$ in one group, so latencies overlap. The all-to-all has the same price as
# padding here: the rank with the long part sends it $p-1$ times.
#
# **A reduce-scatter of unequal parts** is the same the other way round: pad, or $p$ reduces, or one list call where it is taken. Sharded training avoids the question. FSDP2 cuts each parameter's *rows* in $p$ chunks, as
# `torch.chunk` does: 10 rows on 4 ranks are 3, 3, 3 and 1. It **pads** the last shards, in the buffers of its collectives.

# %% name="guess_rows"
five = predict(
    "FSDP2 cuts a parameter of 5 rows for 4 ranks. How many rows have the four shards?",
    choices=["2, 1, 1, 1", "2, 2, 1, 0", "5, 0, 0, 0"],
    title="5 rows on 4 ranks",
)
five

# %% name="row_shards"
for rows, p in ((10, 4), (5, 4), (4096, 6)):
    shards = [len(piece) for piece in torch.empty(rows, 1).chunk(p)]
    shards += [0] * (p - len(shards))
    print(f"{rows} rows on {p} ranks: {shards}, {100 * (p * max(shards) / rows - 1):.1f} % padding")

# %% name="reveal_rows" jupyter={"source_hidden": true}
# the answer: run this cell
five.reveal(
    "2, 2, 1, 0",
    why="Each chunk has 5/4 rows, rounded up to 2, as long as there are rows. All four are padded to 2, so 8 rows are moved for 5: 60 % more.",
)

# %% [markdown] name="gatherv"
# ## 4. gatherv and scatterv
#
# To one rank, MPI has `MPI_Gatherv` and `MPI_Scatterv`: counts and places on the root. torch has neither, and its `gather` wants equal parts. Sends and receives are enough: the root knows the lengths, so every message has its own.


# %% name="gather_v"
# %%ranks
def gather_v(x, lengths, root=0):
    if rank != root:
        ops = [dist.P2POp(dist.isend, x, root)]
    else:
        parts = [x if r == root else torch.empty(n) for r, n in enumerate(lengths)]
        ops = [dist.P2POp(dist.irecv, part, r) for r, part in enumerate(parts) if r != root]
    for work in dist.batch_isend_irecv(ops) if ops else []:
        work.wait()
    return torch.cat(parts) if rank == root else None


# %% name="scatter_v"
# %%ranks
def scatter_v(whole, lengths, root=0):
    mine = torch.empty(lengths[rank])
    ops = [dist.P2POp(dist.irecv, mine, root)] if rank != root else []
    if rank == root:
        parts = whole.split(lengths)
        mine = parts[root].clone()
        ops = [dist.P2POp(dist.isend, part, r) for r, part in enumerate(parts) if r != root]
    for work in dist.batch_isend_irecv(ops) if ops else []:
        work.wait()
    return mine


# %% name="gatherv_live"
# %%ranks
few, lengths = torch.full((rank + 1,), float(rank)), [r + 1 for r in range(world_size)]
whole = gather_v(few, lengths)
print("back again:", torch.equal(scatter_v(whole, lengths), few))

# %% [markdown] name="gatherv_price"
# (Here all ranks know the lengths; else one gather of 8 bytes brings them to the root.) The root's link carries everything, so no tree can beat $(\text{total} - \text{own})\,\beta$: a tree saves latencies, $\lg p$ instead of
# $p - 1$, and moves some bytes several times. For long parts the plain way is the right one.
#
# ## 5. Only to neighbours
#
# Often a rank has a *few* partners: its neighbours in a grid, the owners of the edges of its piece of a graph. MPI calls it a **neighborhood collective** (`MPI_Neighbor_alltoallv`). In torch it is one `batch_isend_irecv` with a pair
# for each neighbour. Compare with an all-to-all in which most splits are zero.

# %% name="guess_zeros"
zeros = predict(
    "An all-to-all on 1,024 ranks in which each rank has data for 2 others only, and splits of 0 for the rest. What do the zeros cost?",
    choices=["nothing at all", "no data, but time", "as much as full messages"],
    title="Splits of zero",
)
zeros


# %% name="neighbours"
# %%ranks
def neighbours(edges):
    """edges: what goes to each neighbour. Returns what comes from each; both know the length."""
    came = {peer: torch.empty(min(rank, peer) + 1) for peer in edges}
    ops = [dist.P2POp(dist.isend, edge, peer) for peer, edge in edges.items()]
    ops += [dist.P2POp(dist.irecv, place, peer) for peer, place in came.items()]
    for work in dist.batch_isend_irecv(ops) if ops else []:
        work.wait()
    return came


# %% name="edges"
# %%ranks
near = [peer for peer in (rank - 1, rank + 1) if 0 <= peer < world_size]
edges = {peer: torch.full((min(rank, peer) + 1,), float(rank)) for peer in near}
by_edges = neighbours(edges)

# %% name="neighbours_live"
# %%ranks
splits = [len(edges[r]) if r in edges else 0 for r in range(world_size)]
flat = torch.cat([edges[r] for r in sorted(edges)]) if edges else torch.empty(0)
came = torch.empty(sum(splits))
dist.all_to_all_single(came, flat, splits, splits)
print(
    "the same:",
    torch.equal(came, torch.cat([by_edges[r] for r in sorted(by_edges)])),
    "neighbours:",
    near,
)

# %% name="neighbour_price"
alpha, beta, nbytes = 10e-6, 1 / 50e9, 100e3
for p in (4, 64, 1024):
    linear = 2 * (alpha + nbytes * beta)
    pairwise = (p - 1) * alpha + 2 * nbytes * beta  # one round for each other rank, empty or not
    print(f"{p:5} ranks: 2 neighbours {1e6 * linear:6.0f} us, all-to-all in p-1 rounds {1e6 * pairwise:8.0f} us")

# %% name="reveal_zeros" jupyter={"source_hidden": true}
# the answer: run this cell
zeros.reveal(
    "no data, but time",
    why="Each rank must first know how much comes from each other one, usually by another all-to-all of p numbers. Then torch leaves out the empty sends on NCCL, but Gloo sends an empty message to each of the p-1 others, as in the last column.",
)

# %% [markdown] name="check_yourself"
# <!-- gloo 081799c alltoallv.cc: a send and a receive for each other rank, whatever the length; torch/csrc/cuda/nccl.cpp, all2all_single_unequal_split: none where a count is 0 -->
#
# ## 6. Check yourself
#
# <details><summary>1. Why does gather in section 2 fail on the root only, and why is that worse than failing everywhere?</summary>
#
# Only the root has the list, so only it sees that lengths differ. The others have sent, or wait for it: the job hangs instead of ending.
# </details>
#
# <details><summary>2. A scan with the maximum instead of the sum: what changes?</summary>
#
# One operation. Any associative operation can be scanned, also the merge of softmax summaries. It need not be commutative, if what arrived stands on the left (`arrived + total`), since it comes from lower ranks.
# </details>
#
# <details><summary>3. Parts differ by at most one row. Pad or not?</summary>
#
# Pad: at most one row a rank is wasted, and it is one call with all of the library's algorithms behind it.
# </details>

# %% [markdown] name="recap"
# ## Recap
#
# An exclusive scan says where a part begins, in $\lg p$ rounds. Unequal parts are padded if they are about equal, broadcast one by one if one is much longer, and sent with splits if each pair has another size. Which list calls
# take them depends on the backend. **Exchange the lengths first; then every rank knows how much comes.**
#
# **Now you:** [Lab 22](../../labs/lab22_uneven/uneven.ipynb): an exclusive scan that loses no digit, and an all-gather without padding.
#
# **Next question:** how do several GPUs train one model? [Data parallel, by hand](../3_one_model/20_data_parallel.ipynb)
#
# **Sources.** W. D. Hillis and G. L. Steele, *Data parallel algorithms*, CACM 1986, [doi:10.1145/7902.7903](https://doi.org/10.1145/7902.7903) ·
# [MPI 4.1](https://www.mpi-forum.org/docs/mpi-4.1/mpi41-report.pdf), sections 6.5 to 6.8, 6.11 and 8.6 ·
# [PyTorch, ProcessGroupNCCL.cpp](https://github.com/pytorch/pytorch/blob/main/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp) (`allgather`, `alltoall_base`) ·
# T. Hoefler and J. L. Träff, *Sparse collective operations for MPI*, IPDPS 2009

# %% name="what_you_knew"
predictions()

# %% name="stop_world"
world.stop()

# %% name="done"
from allranks import done

done("62")
