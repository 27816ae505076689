# %% [markdown] name="title"
# # Make it fast
#
# {{here}}
#
# **Your ring all-reduce is correct. On two nodes of four GPUs it takes far longer than an all-reduce must. What does it wait for, and which change helps?**
#
# {{picture}}
#
# The same with two nodes of two GPUs, time to the right: each box is a message, in the row of the rank that receives it. The long ones decide how long it takes.

# %% name="first_picture"
from allranks import explore

explore.path(nvlink=150, card=50, way="one ring")

# %% [markdown] name="first_question"
# **Ask the picture.** Which of the two links would you make faster? Drag it and see. Then choose *two levels*, and ask again.

# %% name="start_world"
import functools
import time
from dataclasses import replace

import torch
import torch.distributed as dist

from allranks import Player, World, bench, check, cost, plots, predict, predictions, run_schedule, schedules, topology
from allranks.wire import compute, run

world = World()
world

# %% [markdown] name="ring_intro"
# Correct is not fast. This is the ring of lab 3, as good as any:


# %% name="ring"
def ring_all_reduce(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    flat = tensor.contiguous().view(-1)
    chunks = flat.tensor_split(p)
    for step in range(2 * (p - 1)):
        into = chunks[(rank - step - 1) % p]
        arrived = torch.empty_like(into)
        both = [
            dist.P2POp(dist.isend, chunks[(rank - step) % p], (rank + 1) % p),
            dist.P2POp(dist.irecv, arrived, (rank - 1) % p),
        ]
        for work in dist.batch_isend_irecv(both):
            work.wait()
        into.copy_(into + arrived if step < p - 1 else arrived)
    tensor.copy_(flat.view(tensor.shape))


# %% [markdown] name="machine"
# The machine: two nodes of four H100s, each GPU with a network card of its own. NVLink carries 371 GB/s (what NCCL counts with; the line rate is 450), a card 50 GB/s. We don't have it, but the **wire** has a
# virtual clock: real code, real messages, and the time that these links would need. To be quick we send a small vector, 128 numbers or 512 bytes, and the clock charges each byte as if it were 2 MiB: so all of it takes
# as long as 1 GiB.
#
# No all-reduce on this machine can be faster than its **lower bound**: each node must send at least $n$ bytes to the other one, over its four cards.

# %% name="guess_ratio"
first_guess = predict(
    "1 GiB on 8 GPUs in two nodes: how many times the lower bound does the ring take?",
    low=1,
    high=20,
    title="The ring takes, in lower bounds",
)
first_guess

# %% name="run_ring"
nodes = replace(topology.preset("dgx-h100"), name="nodes of 4 H100s", ranks_per_node=4, nics_per_node=4)
one_gib = {"ranks": 8, "args": (torch.ones(128),), "topology": nodes, "scale": 2**21}
plain = run(ring_all_reduce, **one_gib)
bound = run_schedule(schedules.ring_all_reduce(8), 2**30, nodes).lower_bound_seconds
print(f"{1e3 * plain.seconds:.1f} ms; the lower bound is {1e3 * bound:.1f} ms")

# %% name="reveal_ratio" jupyter={"source_hidden": true}
# the answer: run this cell
first_guess.reveal(
    plain.seconds / bound,
    why="All that a node exchanges goes through one of its four cards, and each step waits for it.",
)

# %% [markdown] name="path_intro"
# ## 1. What does it wait for?
#
# Go backwards from the rank that ends last. What did it wait for? A message. Why did that message not start earlier? Its sender was not ready, because it
# waited for another message; and so on, back to the start. This chain is the **critical path**. Its pieces follow one another without a gap, so they
# add up to the whole time. What is not on it can become faster, and nothing changes.

# %% name="path"
print(*plain.critical_path.sentences(), sep="\n")

# %% name="watch_path"
Player(plain.critical_path.marked(plain.trace), axis="time")

# %% [markdown] name="path_explained"
# Fourteen messages, every one over a network card. The messages inside the nodes, seven times as fast, are not on the path at all: their ranks wait for the card (hatched).
#
# ## 2. What if?
#
# A common advice: cut the chunks into **segments**, so that they flow. What would eight segments do for this ring?

# %% name="guess_segments"
guess_segments = predict(
    "The same ring, each chunk in 8 segments that flow one behind the other: how many times faster?",
    choices=["not faster", "1.3 times", "2 times", "8 times"],
    title="Eight segments make this ring faster by",
)
guess_segments

# %% name="what_if"
for change in plain.what_if(any_order=True):
    print(change.sentence())

# %% name="reveal_segments" jupyter={"source_hidden": true}
# the answer: run this cell
guess_segments.reveal(
    "not faster",
    why="Segments let a rank send while it receives or adds, but here the slow card is busy all the time already: only other cards can help.",
)

# %% [markdown] name="what_if_explained"
# These are not estimates. The wire has recorded who sent what, in which order. `what_if` runs the same messages on the clock again, several times at once, each with a part of the
# vector: in 2, 4, 8 ... segments; half of it with the ranks in reverse order (both directions); a part for each GPU of a node. The first is not in the list, so it does not help.
#
# ## 3. When segments help
#
# A chain: rank 0 sends its vector to rank 1, rank 1 to rank 2, and so on. Here each rank waits until the *whole* vector is there. What is on the path now?


# %% name="chain"
def chain(tensor):
    rank = dist.get_rank()
    if rank > 0:
        dist.recv(tensor, rank - 1)
    if rank < dist.get_world_size() - 1:
        dist.send(tensor, rank + 1)


alpha, beta = 2e-6, 1 / 371e9  # a message and a byte over NVLink
slow = run(chain, ranks=8, args=(torch.ones(1024),), alpha=alpha, beta=2**10 * beta)  # a byte stands for 1 KiB
print(f"{1e6 * slow.seconds:.1f} µs")
print(*slow.critical_path.sentences(), *(change.sentence() for change in slow.what_if()), sep="\n")

# %% [markdown] name="price"
# All seven messages are on the path, one after the other: $(p-1)(\alpha + n\beta)$. In $k$ segments it has $p+k-2$ of them, each a $k$-th as long (the price):
#
# $$T(k) = (p + k - 2)\left(\alpha + \frac{n\beta}{k}\right), \qquad k^* = \sqrt{\frac{(p-2)\,n\beta}{\alpha}}.$$

# %% name="segments_curve"
p, n = 8, 4 * 2**20
tried = [1, 2, 4, 8, 16, 32, 64]
node = replace(topology.preset("dgx-h100"), name="one node")
clock = [run_schedule(schedules.pipelined_chain_broadcast(p, segments=k), n, node).seconds for k in tried]
formula = [(p + k - 2) * (alpha + n * beta / k) for k in tried]
figure, axes = plots.chart("segments k", "µs for 4 MiB along 8 ranks")
axes.semilogx(tried, [1e6 * t for t in clock], "o", label="on the clock")
axes.semilogx(tried, [1e6 * t for t in formula], "--", label="formula")
axes.set(ylim=0, xticks=tried, xticklabels=tried)
axes.legend()
print(f"best k by the formula: {((p - 2) * n * beta / alpha) ** 0.5:.1f}")
figure

# %% [markdown] name="segments_explained"
# With too few segments ranks wait for the end of a long message, with too many the path is all $\alpha$. The formula has the same form wherever work passes from one rank to the next: also for a ring whose ranks must *add* a chunk before they send it on.
#
# ## 4. All cards
#
# Back to the two nodes. **Both directions**: half of the vector goes the other way round, through a second card of each node. **Two levels**: a reduce-scatter inside each node, then
# each GPU exchanges its quarter over its *own* card, then an all-gather inside.

# %% name="guess_levels"
guess_levels = predict(
    "Two levels instead of one ring, on two nodes of 4 GPUs with a card each: how many times faster?",
    low=1,
    high=10,
    title="Two levels are faster by",
)
guess_levels


# %% name="compare"
def on_two_nodes(name, **options):
    return run_schedule(schedules.find("all_reduce", name)(8, **options), 2**30, nodes)


levels = on_two_nodes("hierarchical", ranks_per_node=4)
ways = {"ring": on_two_nodes("ring"), "leader": on_two_nodes("leader", ranks_per_node=4)}
for name, found in (ways | {"rabenseifner": on_two_nodes("rabenseifner"), "two levels": levels}).items():
    parts = ", ".join(f"{link} {1e3 * s:.1f} ms" for link, s in found.critical_path.by_link().items())
    print(f"{name:13}{1e3 * found.seconds:6.1f} ms, {found.seconds / bound:4.1f} bounds; the path: {parts}")

# %% name="reveal_levels" jupyter={"source_hidden": true}
# the answer: run this cell
guess_levels.reveal(
    plain.seconds / levels.seconds,
    why="A card carries n/4 each way, seven times less than the ring's 1.75 n, but now the path goes inside the nodes too, where the ring never waited.",
)

# %% [markdown] name="levels_explained"
# Two levels spend about as much time inside the nodes as over the cards, so both count now. (*Leader* is two levels with one GPU that sends for its node: one card again.
# Rabenseifner swaps its large pieces with near ranks first, so it has two levels by itself.)
#
# The player shows the two levels, with their critical path:

# %% name="watch_levels"
Player(levels.critical_path.marked(levels.trace), axis="time")

# %% [markdown] name="overlap"
# ## 5. Hide it
#
# The bound is for the all-reduce alone. A training step has other work: computing the gradients of the layer before. Can the messages travel meanwhile?
# On the wire `compute(seconds)` takes virtual time; here for as long as the ring takes.


# %% name="overlap_wire"
def work_then_ring(tensor, seconds):
    compute(seconds)
    ring_all_reduce(tensor)


work_s = plain.seconds
both = run(work_then_ring, **{**one_gib, "args": (torch.ones(128), work_s)})
print(f"{1e3 * both.seconds:.1f} ms")
print(*both.critical_path.sentences(), *(change.sentence() for change in both.what_if()), sep="\n")

# %% [markdown] name="overlap_live"
# (Segments help here, because the work is cut with them: a part travels while the next one is computed.)
#
# The same with your own ranks: `time.sleep` stands for a GPU that computes while its CPU is free. The all-reduce is the library's, begun with `async_op=True`; it has 4 MiB or, between fast GPUs, more.

# %% name="guess_overlap"
guess_overlap = predict(
    "Work takes as long as the all-reduce, and they run at the same time: how long, in all-reduces?",
    low=0.5,
    high=2.5,
    title="Both at the same time take, in all-reduces",
)
guess_overlap


# %% name="overlap_measured"
def overlap():
    # so many numbers that their all-reduce takes a millisecond, also between GPUs
    numel, alone = bench.lasting(lambda n: functools.partial(dist.all_reduce, torch.zeros(n)), 2**20)
    x = torch.zeros(numel)

    def meanwhile(seconds):
        handle = dist.all_reduce(x, async_op=True)
        time.sleep(seconds)
        handle.wait()

    def after(seconds):
        time.sleep(seconds)
        dist.all_reduce(x)

    return alone, *bench.seconds_of(lambda: after(alone), lambda: meanwhile(alone), iterations=9)


alone, after, meanwhile = world.run(overlap)[0]
print(f"alone {1e3 * alone:.2f} ms, after work {1e3 * after:.2f} ms, at the same time {1e3 * meanwhile:.2f} ms")

# %% name="reveal_overlap" jupyter={"source_hidden": true}
# the answer: run this cell
guess_overlap.reveal(
    meanwhile / alone,
    why="The messages travel in another thread, so both together take a little more than the longer of the two."
    if meanwhile < 1.6 * alone
    else "With a core for each rank it would be little more than 1. But your ranks share few cores, and sending needs a core too.",
)

# %% [markdown] name="overlap_explained"
# With a ring of your own nothing travels by itself from one step to the next: the next step begins only when your code has added and sent. So the work must be cut into pieces, one for each step. Lab 12 asks for that.
#
# ## 6. On this machine
#
# Do segments help *your* ranks? Fit $\alpha$ and $\beta$ from two sizes of the plain ring, price the ring in 4 segments with them, and measure it.


# %% name="in_segments"
def in_segments(tensor, k=4):
    for part in tensor.tensor_split(k):  # no overlap here: only what more messages cost
        ring_all_reduce(part)


def timed(nbytes):
    x = torch.zeros(nbytes // 4)
    return bench.seconds_of(lambda: ring_all_reduce(x), lambda: in_segments(x), iterations=9)


# %% name="measured"
p, sizes = world.ranks, [2**12, 2**17, 2**22]
measured = [world.run(timed, size)[0] for size in sizes]
b = max((measured[-1][0] - measured[0][0]) / (2 * (p - 1) / p * (sizes[-1] - sizes[0])), 0.0)
a = max(measured[0][0] / (2 * (p - 1)) - b * sizes[0] / p, 0.0)
print(f"alpha {1e6 * a:.0f} µs, beta {1e9 * b:.2f} ns a byte")
for size, (whole, parts) in zip(sizes, measured, strict=True):
    price = cost.price("all_reduce", "ring", p, size, a, b) + 3 * 2 * (p - 1) * a
    four = f"4 rings of a quarter {1e3 * parts:6.2f} ms, price {1e3 * price:6.2f} ms"
    print(f"{size:9,} bytes: ring {1e3 * whole:6.2f} ms, {four}")

# %% [markdown] name="measured_explained"
# For the small size nearly all is $\alpha$, and four times as many messages take about four times as long. On a laptop's ranks, which share cores and one memory, no link is idle that a segment could use. So the critical path
# of *this* machine says: fewer messages, fewer copies. [Chapter 17](../2_collectives/17_all_reduce_algorithms.ipynb) has that story.
#
# ## 7. Your own code
#
# `check` judges the messages of an exercise; with `topology=` it also says how long the answer takes on that machine, and why. (In a terminal: `allranks check ring_all_reduce FILE --topology dgx-h100`.)

# %% name="check_on_topology"
verdict = check(ring_all_reduce, topology="dgx-h100")
print(*verdict.speed, sep="\n")

# %% [markdown] name="two_way_mine_task"
# **Your turn.** The verdict says what would help: both directions. The ring below already takes a list of ways. **Give it two**, with half of the vector each. `check` allows at most 1.75 times the lower bound, for 1 GiB on nodes of two H100 with a card each: the second direction uses the second card.


# %% name="two_way_mine"
def two_way_ring(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    flat = tensor.reshape(-1).clone()
    ways = [(1, flat.tensor_split(p))]  # your turn: all goes to the right (1). Which half goes to the left (-1)?
    for step in range(2 * (p - 1)):
        ops, arriving = [], []
        for way, chunks in ways:
            into = chunks[(rank - way * (step + 1)) % p]
            arriving.append((into, torch.empty_like(into)))
            ops.append(dist.P2POp(dist.isend, chunks[(rank - way * step) % p], (rank + way) % p))
            ops.append(dist.P2POp(dist.irecv, arriving[-1][1], (rank - way) % p))
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        for into, arrived in arriving:
            into.copy_(into + arrived if step < p - 1 else arrived)
    tensor.copy_(flat.view(tensor.shape))


check(two_way_ring)

# %% [markdown] name="two_way_mine_answer"
# <details><summary><b>An answer</b></summary>
#
# ```python
# def two_way_ring(tensor):
#     rank, p = dist.get_rank(), dist.get_world_size()
#     flat = tensor.reshape(-1).clone()
#     right, left = flat.tensor_split(2)
#     ways = [(1, right.tensor_split(p)), (-1, left.tensor_split(p))]
#     for step in range(2 * (p - 1)):
#         ops, arriving = [], []
#         for way, chunks in ways:
#             into = chunks[(rank - way * (step + 1)) % p]
#             arriving.append((into, torch.empty_like(into)))
#             ops.append(dist.P2POp(dist.isend, chunks[(rank - way * step) % p], (rank + way) % p))
#             ops.append(dist.P2POp(dist.irecv, arriving[-1][1], (rank - way) % p))
#         for work in dist.batch_isend_irecv(ops):
#             work.wait()
#         for into, arrived in arriving:
#             into.copy_(into + arrived if step < p - 1 else arrived)
#     tensor.copy_(flat.view(tensor.shape))
# ```
# </details>

# %% [markdown] name="quiz"
# ## 8. Check yourself
#
# <details><summary>1. You make a message faster that is not on the critical path. What changes?</summary>
#
# Nothing: another chain of messages decides the time.
# </details>
#
# <details><summary>2. You make everything on the critical path twice as fast. Is the program twice as fast?</summary>
#
# Only if no other chain becomes the critical one. Look again after each change.
# </details>
#
# <details><summary>3. The path consists of start-up (alpha) only. Which changes help?</summary>
#
# Fewer steps (a tree, recursive doubling), or several small all-reduces in one. Segments make it worse.
# </details>
#
# <details><summary>4. "60 % of the path is rank 3's wait for rank 2's sends." Is rank 2 slow?</summary>
#
# Not necessarily. It may have waited itself: then the path goes on through it, to another rank. Only where the path says *computing* is the rank itself the reason.
# </details>

# %% [markdown] name="recap"
# ## Recap
#
# A correct program takes as long as its critical path: messages and computing, one after the other. The ring on two nodes waits for one of four cards; segments don't help it, a second direction gives 1.8 times, two levels 3.9 times.
# Segments help where work passes from rank to rank; overlap hides the rest. **Ask what the slowest path waits for, and change only that.**
#
# **Now you:** [Lab 12](../../labs/lab12_make_it_fast/make_it_fast.ipynb): a segmented ring, both directions, two levels, and work meanwhile, each judged by its time against the bound.
#
# **Next question:** and in a whole training job? [Your own job](48_your_own_job.ipynb)
#
# **Sources.** P. Patarasuk, X. Yuan, *Bandwidth optimal all-reduce algorithms for clusters of workstations*, J. Parallel Distrib. Comput. 69(2), 2009 ·
# E. Chan, M. Heimlich, A. Purkayastha, R. van de Geijn, *Collective communication: theory, practice, and experience*, Concurrency Computat. 19, 2007 ·
# C.-Q. Yang, B. P. Miller, *Critical path analysis for the execution of parallel and distributed programs*, ICDCS 1988 ·
# [NCCL, topo.h](https://github.com/NVIDIA/nccl/blob/master/src/graph/topo.h) (NVLink's bandwidth)

# %% name="what_you_knew"
predictions()

# %% name="stop_world"
world.stop()

# %% name="done"
from allranks import done

done("47")
