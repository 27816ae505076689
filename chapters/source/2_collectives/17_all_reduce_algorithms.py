# %% [markdown] name="title"
# # All-reduce algorithms
#
# {{here}}
#
# **A training step on 1024 GPUs ends with two all-reduces: a loss of 4 bytes, and 14 GB of gradients. Should one algorithm do both? And how does a library choose?**
#
# {{picture}}
#
# Three all-reduces of eight ranks: a line joins two ranks that exchange messages. All three give the same sum. Their steps are not equally long: in one
# step a rank of *doubling* sends the whole vector, of the *ring* an eighth, of the *double tree* a sixteenth at a time.

# %% name="start_world"
import math

import torch
import torch.distributed as dist

from allranks import Player, World, bench, check, cost, explore, plots, predict, predictions, schedules
from allranks.wire import run

world = World()
world

# %% [markdown] name="guess_intro"
# Suppose that a message takes 5 µs plus its bytes at 200 GB/s. Section 5 has the answer for the 4 bytes.

# %% name="question"
first_guess = predict(
    "4 bytes on 1024 GPUs: how many times longer does the ring take than the best algorithm?",
    low=1,
    high=1000,
    log=True,
    title="For 4 bytes the ring takes longer by",
)
first_guess

# %% [markdown] name="flat"
# ## 1. Through one rank
#
# The simplest idea: all ranks send to rank 0, which adds, and sends the sum to all. This is the **flat** algorithm:


# %% name="flat_all_reduce"
def flat_all_reduce(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    if rank > 0:
        dist.send(tensor, 0)
        dist.recv(tensor, 0)
        return
    arriving = torch.empty_like(tensor)
    for peer in range(1, p):
        dist.recv(arriving, peer)
        tensor += arriving
    for peer in range(1, p):
        dist.send(tensor, peer)


# %% [markdown] name="flat_guess"
# The tensor has 1000 bytes. How many bytes does rank 0 send, and how many does each of the others? `world.trace` runs the function on the live ranks and records their messages.

# %% name="flat_trace"
_, trace = world.trace(lambda: flat_all_reduce(torch.ones(250)))
print("bytes sent by each rank:", trace.bytes_sent())

# %% [markdown] name="flat_explained"
# Rank 0 sends $p-1$ full vectors and receives as many, one after the other; the others wait for their turn. A message of $m$ bytes
# takes $\alpha + m\beta$ seconds ($\alpha$ before it moves, $\beta$ per byte), so for $n$ bytes
#
# $$T_\text{flat} = 2(p-1)(\alpha + n\beta).$$
#
# On 1024 ranks that is 2046 full vectors through one link. Both terms grow with $p$.

# %% [markdown] name="tree"
# ## 2. A tree
#
# Other ranks can add too: one rank of each pair adds, then these ranks form pairs, and so on. This is a **binomial tree**. The sum returns the same way.
# The flat algorithm, on the left, needs 14 steps.

# %% name="guess_tree"
guess_tree = predict(
    "How many steps does the tree take for 8 ranks, up and down together?",
    low=0,
    high=16,
    title="Steps of the tree for 8 ranks",
)
guess_tree

# %% name="watch_tree"
Player(schedules.flat_all_reduce(ranks=8), schedules.tree_all_reduce(ranks=8))

# %% name="reveal_tree" jupyter={"source_hidden": true}
# the answer: run this cell
tree = schedules.tree_all_reduce(ranks=8)
print(f"8 ranks: {tree.steps} steps, 1024 ranks: {2 * math.ceil(math.log2(1024))}")
guess_tree.reveal(
    tree.steps,
    why="Three steps bring all numbers to one rank, since 8 is 2 · 2 · 2, and three more bring the sum back.",
)

# %% [markdown] name="tree_explained"
# With $\lg p$ for the logarithm to base 2, rounded up,
#
# $$T_\text{tree} = 2\lg p\,(\alpha + n\beta).$$
#
# If the world is twice as large, there are only two more steps, not twice as many. But half of the ranks are done after one message and then wait.

# %% [markdown] name="doubling"
# ## 3. All ranks work
#
# When a pair adds, *both* ranks can have the sum: let both send to each other. In step $k$ every rank swaps its whole
# sum with the rank whose number differs in bit $k$: with `rank ^ 1`, then `rank ^ 2`, then `rank ^ 4`. This is **recursive doubling**.
#
# Who is the partner of rank 5 in the second step?

# %% name="guess_doubling"
guess_doubling = predict(
    "Recursive doubling: after how many steps are 8 ranks done?",
    low=0,
    high=16,
    title="Steps of recursive doubling for 8 ranks",
)
guess_doubling

# %% name="watch_doubling"
Player(schedules.recursive_doubling_all_reduce(ranks=8))

# %% name="reveal_doubling" jupyter={"source_hidden": true}
# the answer: run this cell
swaps = schedules.recursive_doubling_all_reduce(ranks=8)
partner = next(move.dst for move in swaps.by_step[1] if move.src == 5)
print(f"rank 5 swaps with rank {partner} in the second step")
guess_doubling.reveal(
    swaps.steps,
    why="Both ranks of a pair have the sum after each step, so nothing must be sent back.",
)

# %% [markdown] name="doubling_explained"
# This takes half the steps of the tree, because the sum need not be sent back: $T = \lg p\,(\alpha + n\beta)$. No algorithm can have fewer steps,
# because in each step a number can reach at most twice as many ranks.
#
# In code it is one loop. We run it on the **wire**: eight forked processes with a virtual clock. Each message takes exactly $\alpha + m\beta$, so you
# can time your own code on a cluster that you don't have.


# %% name="doubling_code"
def doubling(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    for bit in range(math.ceil(math.log2(p))):
        partner = rank ^ (1 << bit)
        arriving = torch.empty_like(tensor)
        both = [dist.P2POp(dist.isend, tensor, partner), dist.P2POp(dist.irecv, arriving, partner)]
        for work in dist.batch_isend_irecv(both):  # together: on NCCL one could be queued behind the other
            work.wait()
        tensor += arriving


# %% name="doubling_wire"
alpha, beta = 5e-6, 1 / 200e9
for function in (flat_all_reduce, doubling):
    outcome = run(function, ranks=8, args=(torch.ones(250),), alpha=alpha, beta=beta)
    print(f"{function.__name__:16} {1e6 * outcome.seconds:6.2f} µs for 1000 bytes on 8 ranks")

# %% [markdown] name="six_guess"
# Now six ranks.

# %% name="guess_six"
guess_six = predict(
    "The same code on six ranks: what happens?",
    choices=["it works", "some ranks get a wrong sum", "a rank sends to a rank that isn't there"],
    title="Recursive doubling on six ranks",
)
guess_six

# %% name="six"
outcome = run(doubling, ranks=6, args=(torch.ones(250),))
print(outcome.failure)

# %% name="reveal_six" jupyter={"source_hidden": true}
# the answer: run this cell
guess_six.reveal(
    "a rank sends to a rank that isn't there",
    why="`rank ^ 2**k` is a number for every rank, and for some it is the number of a rank that does not exist.",
)

# %% [markdown] name="six_explained"
# The partner `rank ^ 2**k` exists for all ranks only if $p$ is a power of two. MPICH's fix is the **fold**: let $q$ be the
# largest power of two up to $p$. At the start $p-q$ even ranks send their vector to the next rank and wait; $q$ ranks run the loop; then the waiting
# ranks get the result. That is two steps more.
#
# **Write the fold.** The loop is given; `active` lists the $q$ ranks that run it. `check` tries 1 to 8 ranks on the wire. With the code below,
# waiting ranks end with their own input, and the verdict says so for the first of them.


# %% name="recursive_doubling_all_reduce"
def recursive_doubling_all_reduce(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    q = 1 << (p.bit_length() - 1)
    active = [*range(1, 2 * (p - q), 2), *range(2 * (p - q), p)]
    whole = tensor.contiguous()
    arriving = torch.empty_like(whole)

    # before the loop: your turn

    if rank in active:
        for bit in range(q.bit_length() - 1):
            partner = active[active.index(rank) ^ (1 << bit)]
            both = [dist.P2POp(dist.isend, whole, partner), dist.P2POp(dist.irecv, arriving, partner)]
            for work in dist.batch_isend_irecv(both):
                work.wait()
            whole += arriving

    # after the loop: your turn

    tensor.copy_(whole)


check(recursive_doubling_all_reduce)

# %% [markdown] name="fold_answer"
# <details><summary><b>A hint</b></summary>
#
# Only ranks below `2 * (p - q)` take part in the fold: the even ones are not in `active`, the odd ones are.
# </details>
# <details><summary><b>An answer</b></summary>
#
# Before the loop:
# ```python
#     if rank not in active:
#         dist.send(whole, rank + 1)
#     elif rank < 2 * (p - q):
#         dist.recv(arriving, rank - 1)
#         whole += arriving
# ```
# After the loop:
# ```python
#     if rank not in active:
#         dist.recv(whole, rank + 1)
#     elif rank < 2 * (p - q):
#         dist.send(whole, rank - 1)
# ```
# </details>

# %% [markdown] name="halving"
# ## 4. Few steps and few bytes
#
# Recursive doubling swaps *whole* vectors: $n\lg p$ bytes per rank, where the ring sends less than $2n$. **Rabenseifner** combines the ring's idea
# with the partners of recursive doubling: first a reduce-scatter in which the pieces halve in each step, then an all-gather in which they double.
#
# For 8 ranks and 840 bytes, how many bytes does a rank send? The ring, on the right, sends 1470 in 14 steps.

# %% name="watch_halving"
halving, ring = schedules.rabenseifner_all_reduce(ranks=8), schedules.ring_all_reduce(ranks=8)
Player(halving, ring, nbytes=840)

# %% name="reveal_halving"
print(f"{max(halving.bytes_sent(840))} bytes in {halving.steps} steps")
for p in (8, 12):
    sent = max(schedules.rabenseifner_all_reduce(p).bytes_sent(8400))
    print(f"p = {p:2}: at most {sent / 8400:.2f} n from one rank, the ring {2 * (p - 1) / p:.2f} n")

# %% [markdown] name="halving_explained"
# $\tfrac n2 + \tfrac n4 + \dots = \tfrac{p-1}{p}n$ in each half: the bytes of the ring in $2\lg p$ steps,
#
# $$T = 2\lg p\,\alpha + 2\tfrac{p-1}{p}n\beta.$$
#
# If $p$ is not a power of two, the fold sends whole vectors, which costs $2n\beta$ more (MPICH, after Thakur, Rabenseifner & Gropp 2005).
#
# But the formula assumes that any two ranks can send at full speed, even while others send. Put ranks 0 to 7 on one machine and 8 to 15 on another: with which algorithm do the fewest
# bytes go from the first machine to the second? (*Far first* is the same
# algorithm with its partners in the other order: rank 0 begins with rank 8, not with rank 1. The table then also has another placement: even ranks on one machine, odd ones on the other.)

# %% name="guess_cross"
choices = ["ring", "recursive doubling", "rabenseifner", "rabenseifner far first", "double binary tree"]
guess_cross = predict(
    "Ranks 0 to 7 on one machine, 8 to 15 on another: with which do the fewest bytes cross?",
    choices=choices,
    title="Fewest bytes between two machines",
)
guess_cross

# %% name="crossing"
print(f"{'16 ranks':24}{'ranks 0-7 | 8-15':>16}{'even | odd':>12}")
for name in choices:
    schedule, row = schedules.find("all_reduce", name)(16), []
    sizes = schedule.chunk_nbytes(2**20)
    for machine in (lambda r: r // 8, lambda r: r % 2):
        crossing = [m for m in schedule.moves if (machine(m.src), machine(m.dst)) == (0, 1)]
        row.append(sum(sizes[c] for m in crossing for c in m.chunks) / 2**20)
    print(f"{name:24}{row[0]:14.2f} n{row[1]:10.2f} n")

# %% name="reveal_cross" jupyter={"source_hidden": true}
# the answer: run this cell
guess_cross.reveal(
    choices[2],
    why="Rabenseifner swaps its large pieces with near partners, and only small pieces go far; over the one link of the ring go nearly 2 n.",
)

# %% [markdown] name="crossing_explained"
# Rabenseifner starts with the nearest partner and the largest pieces; only pieces of $n/16$ go to the other machine, 1 $n$ in all. One link of the ring goes
# there, with 1.88 $n$. In the other order, or with the other placement, it is the opposite: 8 $n$ go between the machines. **How good an
# algorithm is depends on the placement.**
#
# **So why do people use rings?** Not for their bytes.
#
# - A rank of a ring has the same two neighbours in every step: two connections, two buffers. Partners that change need $\lg p$ of each.
# - All links are busy all the time. In a step of Rabenseifner either every rank uses the network between the machines, or nobody does. And the ring's
#   steps can overlap: while a piece is added, the one before is on its way. In Rabenseifner each step needs the whole step before.
# - It takes any $p$, without a fold.

# %% [markdown] name="double_tree"
# ### Two trees
#
# A tree can also send few bytes, if the vector is cut into $k$ segments that follow one another: a pipeline. One problem remains: on the way up an
# inner rank receives $2n$ from its two children, while a leaf receives nothing. The solution (Sanders, Speck & Träff 2009): **two** trees, each for
# half of the vector. Look for a rank that has children in both.

# %% name="trees"
for tree in schedules.two_trees(8):
    inner = sorted({parent for parent in tree.parent if parent is not None})
    print("parents of ranks 0 to 7:", tree.parent, " with children:", inner)

# %% name="watch_double"
Player(schedules.double_binary_tree_all_reduce(ranks=8, segments=4), layout="ring")

# %% [markdown] name="segments_guess"
# There is none: a rank that adds in one tree is a leaf in the other. NCCL makes its second tree in the same way: it mirrors the first, or shifts it by one rank (`src/graph/trees.cc`).
#
# Take 10 MB on 32 ranks. How many segments should each half have?

# %% name="segments"
tried = [2**j for j in range(9)]
pipelines = [schedules.double_binary_tree_all_reduce(32, segments=k) for k in tried]
figure, axes = plots.chart("segments k of each half", "ms for 10 MB on 32 ranks")
axes.semilogx(tried, [1e3 * pipeline.price(10**7, alpha, beta) for pipeline in pipelines], marker="o")
axes.set(ylim=0, xticks=tried, xticklabels=tried)
figure

# %% [markdown] name="segments_explained"
# With too few segments most ranks wait for the first one; with too many, each segment costs its $\alpha$. With the best $k$ the bytes cost about
# $2n\beta$, like the ring's, and the number of steps grows only with $\lg p$.

# %% [markdown] name="price"
# ## 5. The competition
#
# Now compare all of them on 32 ranks, with 5 µs for each message and 200 GB/s in each direction (assumed).

# %% name="competition"
explore.crossover(ranks=32, nbytes=1e6, alpha_s=alpha, bytes_per_s=1 / beta)

# %% [markdown] name="winners_explained"
# The strip below the axis names the winner of each size. **Drag** $\alpha$ and $\beta$: what moves the change to the right? (The
# double tree has its best number of segments, up to 64.) For short vectors the steps matter, for long ones the
# bytes. Two algorithms with the times $a\alpha + b\,n\beta$ and $a'\alpha + b'n\beta$ take equally long where
#
# $$n = \frac{(a'-a)\,\alpha}{(b-b')\,\beta},$$
#
# if this is above 0; otherwise one of them is never slower. Now ring and Rabenseifner (*halving-doubling*), on 32 ranks and on 24:

# %% name="guess_crossing"
guess_crossing = predict(
    "The times of ring and Rabenseifner over the size: do the two lines cross on 32 ranks, and on 24?",
    choices=["on both", "on 32 only", "on 24 only", "on neither"],
    title="Ring and Rabenseifner cross",
)
guess_crossing


# %% name="crossing_formula"
def crossing(one, other, p, alpha, beta):
    """The bytes at which both take equally long; None where one is never slower."""
    a, b = (cost.terms("all_reduce", name, p, 1) for name in (one, other))
    messages, volume = b.messages - a.messages, a.nbytes - b.nbytes
    return float(messages / volume) * alpha / beta if messages * volume > 0 else None


def in_kb(n):
    return "never" if n is None else f"{n / 1e3:,.0f} KB"


pairs = [("tree", "ring"), ("recursive doubling", "rabenseifner"), ("rabenseifner", "ring")]
for p in (4, 24, 32, 1024):
    print(f"p = {p:4}:", ",  ".join(f"{a} | {b} {in_kb(crossing(a, b, p, alpha, beta))}" for a, b in pairs))

# %% name="reveal_crossing" jupyter={"source_hidden": true}
# the answer: run this cell
guess_crossing.reveal(
    "on 24 only",
    why="On 32 ranks both send the same bytes, so the one with fewer steps is never slower; on 24 Rabenseifner also pays for the fold.",
)

# %% [markdown] name="crossing_formula_explained"
# The algorithm left of the bar is faster below that size. Now the opening question. We use the formulas, because with 1024 ranks there are many messages to add up:

# %% name="answer"
p, n_gradients = 1024, 14e9
lg = math.log2(p)
for what, n in (("4 bytes", 4), ("14 GB", n_gradients)):
    doubling_s = lg * (alpha + n * beta)
    ring_s = 2 * (p - 1) * alpha + 2 * (p - 1) / p * n * beta
    print(f"{what:8} recursive doubling {1e3 * doubling_s:9.3f} ms   ring {1e3 * ring_s:9.3f} ms")

# %% name="reveal_answer" jupyter={"source_hidden": true}
# the answer: run this cell
first_guess.reveal(
    2 * (p - 1) / lg,
    why="For 4 bytes only the number of steps counts: 2046 against 10.",
)

# %% [markdown] name="measure"
# ### Measured here
#
# The model says what should happen if every rank has its own link. Your ranks may share cores and memory. Which is faster for 8 MiB
# on *this* machine, recursive doubling or flat? (Recursive doubling needs a power of two.)


# %% name="timing"
def timing(algorithm, nbytes):
    tensor = torch.zeros(nbytes // 4)
    return bench.seconds_of(lambda: algorithm(tensor), iterations=9)[0]


# %% name="measured"
functions = {"flat": flat_all_reduce, "recursive doubling": doubling}
if world.ranks & (world.ranks - 1):  # not a power of two
    del functions["recursive doubling"]
functions["library"] = dist.all_reduce
took = {name: [1e3 * world.run(timing, f, n)[0] for n in (2**10, 2**23)] for name, f in functions.items()}
print(f"{world.ranks} ranks{'1 KiB':>22}{'8 MiB':>13}{'busiest sends':>16}{'all send':>11}")
for name, ms in took.items():
    like = schedules.find("all_reduce", "ring" if name == "library" else name)(world.ranks).bytes_sent(2**23)
    print(f"{name:20}{ms[0]:7.3f} ms{ms[1]:10.3f} ms{max(like) / 2**23:14.2f} n{sum(like) / 2**23:9.2f} n")

# %% [markdown] name="measured_explained"
# (For the library the table shows the bytes of a ring, which Gloo uses by default; NCCL may choose another algorithm.)
#
# Which column explains your 8 MiB? If each rank has its own link, it is the *busiest* rank's. If all messages go through one memory, as on a CPU, the
# time is nearer to what *all* ranks send together, and the simple flat algorithm looks good. A measurement on a laptop says little about a cluster
# if you don't know the bottleneck.
#
# At which sizes do the lines cross *here*? `bench.sweep` times tree, ring and halving-doubling on your ranks, from 1 KiB to where more bytes bring no more bandwidth, best of twelve, in 10 to 30 s. The ring's own times give
# $\alpha$ and $\beta$, and these are used in the formula for the others (dashed). **Look** first where dots and dashes differ.

# %% name="sweep"
rivals, measured = ("tree", "rabenseifner", "ring"), {}
sizes = bench.up_to_plateau(world)
for name in rivals:
    call = bench.Call("all_reduce", algorithm=name)
    measured[name] = bench.sweep(world, call, sizes, iterations=12, passes=3, warmups=2, budget_s=1.0)
fitted = measured["ring"].fit()
here = fitted.alpha_s.value, fitted.beta_s_per_byte.value
print(bench.fitted_words(world, *here, messages=True))

# %% name="crossing_measured" jupyter={"source_hidden": true}
# measured times and formulas in one figure: run this cell
times = {name: [row.best_us for row in measured[name].rows] for name in rivals}
figure, axes = plots.chart("bytes", "µs")
for name, mark, colour in zip(rivals, "osD", (plots.INK, plots.SOFT, plots.WORK), strict=True):
    axes.loglog(sizes, times[name], mark, color=colour, label=name)
    terms = [cost.terms("all_reduce", name, world.ranks, n) for n in sizes]
    axes.loglog(sizes, [1e6 * t.seconds(*here) for t in terms], "--", color=colour)
axes.legend()
display(figure)
for one, other in (("tree", "ring"), ("tree", "rabenseifner"), ("rabenseifner", "ring")):
    faster = [a < b for a, b in zip(times[one], times[other], strict=True)]
    turns = [
        f"{sizes[i] // 1024} and {sizes[i + 1] // 1024} KiB"
        for i in range(len(sizes) - 1)
        if faster[i] != faster[i + 1]
    ]
    says = in_kb(crossing(one, other, world.ranks, *here))
    print(f"{one} | {other}: formula {says}; measured", "; ".join(f"between {t}" for t in turns) or "never")

# %% [markdown] name="crossing_measured_explained"
# If the lines of two algorithms cross more than once, the two are equal within your machine's variations. If they cross far from the formula's size,
# look at the column *all send* above: in one memory, all three send the same $2(p-1)\,n$ together (for a power of two), so the number of steps
# decides. What your own code waits for on a cluster: [Make it fast](../4_real_cluster/47_make_it_fast.ipynb).

# %% [markdown] name="nccl"
# ## 6. What NCCL picks
#
# NCCL 2.30.7 knows six algorithms for all-reduce: **Ring**, **Tree** (a chain in each machine, a double tree between them), CollNetDirect and CollNetChain (a network
# that adds), **NVLS** and NVLSTree (an NVSwitch that adds). Recursive doubling and Rabenseifner are not among them. Each comes in up to three
# *protocols*: LL and LL128 send flags with the data, so no rank waits for a separate signal, but they have less bandwidth; Simple has full bandwidth.
#
# For a call that its ordinary kernels serve, a **tuner** predicts a time for every enabled pair and takes the smallest: latency plus bytes over bandwidth, your
# $\alpha$ and $\beta$. Its constants are in `src/graph/tuning.cc`; here are those for GPUs on NVLink and protocol LL, in µs.
#
# (The tuner does not see every call: NCCL first handles buffers that the program registered in *symmetric windows*, and copies by the GPU's copy engines.)


# %% name="tuner"
def tuner_latency_us(nodes, gpus=8):
    """Ring and Tree, NCCL 2.30.7: base, then each step at NVLink's or the network's price."""
    p = nodes * gpus
    steps, between = 2 * (p - 1), 2 * (nodes - 1)
    within = 0.6 if nodes == 1 else 1.0  # the network's overhead paces the whole ring: 1 µs, with AMD CPUs 2
    ring_us = 6.6 + (steps - between) * within + between * 2.7
    tree_us = 6.8 + 2 * ((gpus - 1) * 0.6 + math.log2(nodes) * 5.0)
    return ring_us, tree_us


# %% [markdown] name="tuner_guess"
# Inside a machine NCCL's tree is a *chain*; it branches only between machines. Which has the lower latency on one machine of 8
# GPUs, ring or tree? And on 128 machines, how many times lower?

# %% name="tuner_table"
machines = [1, 2, 4, 8, 16, 32, 64, 128]
ring_us, tree_us = zip(*map(tuner_latency_us, machines), strict=True)
print(f"ring over tree: {ring_us[0] / tree_us[0]:.2f} on 1 machine, {ring_us[-1] / tree_us[-1]:.1f} on 128")
figure, axes = plots.chart("machines of 8 GPUs", "latency, µs")
axes.loglog(machines, ring_us, marker="o", label="ring")
axes.loglog(machines, tree_us, marker="s", label="tree")
axes.set(xticks=machines, xticklabels=machines)
axes.legend()
figure

# %% [markdown] name="tuner_explained"
# On one machine they are equal within 2 %. For long vectors the ring is a little faster: the tuner assumes a bandwidth of busbw $\cdot\,p/(2(p-1))$
# for the ring, and of half of busbw for the tree, times 0.92 for Simple. So of these two NCCL takes the tree for short vectors on many machines, and the ring for
# long ones. (The code above leaves out the network card's own latency, limits on bandwidth and a correction of the tree for size. It comes from the
# source, not from measurements.)
#
# On one machine with 8 H100s, NVLS reaches a busbw of about 480 GB/s, where the ring has 365 to 370
# ([nccl#1455](https://github.com/NVIDIA/nccl/issues/1455)). The bound of $2\frac{p-1}{p}n$ holds for links between ranks, not for a switch that adds.
#
# To see your own: `NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=TUNING` prints the table. `NCCL_ALGO=allreduce:tree` forces a choice, for experiments;
# since 2.24 NCCL fails if it can't obey.

# %% [markdown] name="where"
# ## 7. Find NCCL's choice
#
# **Your task.** In a terminal, run `allranks simulate --algorithm nccl --topology dgx-h100 --nodes 2 --collective all_reduce --bytes 1MiB`, then the same with `1GiB`. Which two algorithms of section 6 does NCCL take on two nodes, and why not the same one?
#
# <details><summary><b>Answer</b></summary>
#
# A tree with LL128 for 1 MiB, because it has few steps; NVLSTree with Simple for 1 GiB, because the switches add and fewer bytes are sent.
# </details>

# %% [markdown] name="quiz"
# ## 8. Check yourself
#
# <details><summary>1. 96 ranks, 100 bytes. How many steps does recursive doubling take with the fold?</summary>
#
# $q = 64$: one step in, six swaps, one back. Eight.
# </details>
#
# <details><summary>2. Why is "the tree is logarithmic" not true of NCCL on one 8-GPU machine?</summary>
#
# Inside a machine its tree is a chain: 7 hops up and 7 down, as many as a ring's 14 steps.
# </details>

# %% [markdown] name="recap"
# ## Recap
#
# Flat, tree and recursive doubling move whole vectors, in $2(p-1)$, $2\lg p$ and $\lg p$ steps. Ring, Rabenseifner and the pipelined double tree
# send about $2n$ per rank and differ in the number of steps and in the links that they use. A library estimates the time of its algorithms for each
# size and takes the fastest. **For short vectors take the algorithm with few steps, for long ones the one with few bytes; a bad placement of the ranks can reverse that.**
#
# **Now you:** [Lab 4](../../labs/lab04_algorithms/algorithms.ipynb) asks for recursive doubling with the fold.
#
# **Next question:** the ring has two passes. What is the first of them good for alone? [Reduce-scatter](14_reduce_scatter.ipynb)
#
# **Sources.** R. Thakur, R. Rabenseifner, W. Gropp, *Optimization of collective communication operations in MPICH*, Int. J. High Perform.
# Comput. Appl. 19(1), 2005 · R. Rabenseifner, *Optimization of Collective Reduction Operations*, ICCS 2004 · P. Sanders, J. Speck, J. L. Träff, *Two-tree algorithms for full bandwidth broadcast, reduction and scan*,
# Parallel Computing 35, 2009 · [MPICH, src/mpi/coll](https://github.com/pmodels/mpich/tree/main/src/mpi/coll) (costs in its comments) ·
# [NCCL, tuning.cc](https://github.com/NVIDIA/nccl/blob/master/src/graph/tuning.cc) ·
# [NCCL, environment variables](https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html) ·
# [Gloo, allreduce.cc](https://github.com/pytorch/gloo/blob/main/gloo/allreduce.cc)

# %% name="what_you_knew"
predictions()

# %% name="stop_world"
world.stop()

# %% name="done"
from allranks import done

done("17")
