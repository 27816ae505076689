# %% [markdown] name="title"
# # All-reduce algorithms
#
# **A training step on 1024 GPUs ends with two all-reduces: a loss of 4 bytes, and 14 GB of gradients. Should the same
# algorithm do both? And how does a library know?**
#
# 45 minutes · CPU ok · before it: [All-reduce](07_all_reduce.ipynb), where the ring and $\alpha$, $\beta$ are explained

# %% name="start_world"
import math

import matplotlib.pyplot as plt
import torch
import torch.distributed as dist
from ipywidgets import FloatText, IntText

from allranks import Player, World, ask, bench, check, cost, plots, schedules
from allranks.wire import run

world = World(ranks=4)
world

# %% [markdown] name="guess_intro"
# **Guess now.** Suppose that a message takes 5 µs plus its bytes at 200 GB/s. How many *times* longer does the ring take for
# the 4 bytes than the best algorithm there is? Section 5 has the answer.

# %% name="question"
first_guess = FloatText(description="times:")
first_guess

# %% [markdown] name="flat"
# ## 1. Through one rank
#
# The first idea anybody has: all send to rank 0, which adds, and sends the sum to all. That is the **flat** algorithm. It is
# correct, and it is this short:


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
# The tensor has 1000 bytes. **Predict**: how many bytes does rank 0 send, and how many does each of the others? `world.trace` runs
# the function on the live ranks and writes down their messages.

# %% name="guess_flat"
guess_root, guess_others = IntText(description="rank 0:"), IntText(description="the others:")
display(guess_root, guess_others)

# %% name="flat_trace"
_, trace = world.trace(lambda: flat_all_reduce(torch.ones(250)))
print(f"you said {guess_root.value} and {guess_others.value}")
print("bytes sent by each rank:", trace.bytes_sent())

# %% [markdown] name="flat_explained"
# Rank 0 sends $p-1$ full vectors and receives as many, one after the other; the others wait for their turn. A message of $m$ bytes
# takes $\alpha + m\beta$ seconds ($\alpha$ to get it going, $\beta$ per byte), so for $n$ bytes
#
# $$T_\text{flat} = 2(p-1)(\alpha + n\beta).$$
#
# On 1024 ranks that is 2046 full vectors through one link. Both terms grow with $p$.

# %% [markdown] name="tree"
# ## 2. A tree
#
# Why should only rank 0 add? Let pairs add, then the winners of the pairs, and so on: a **binomial tree**. The sum comes back
# the same way.
#
# **Predict**: how many steps for 8 ranks, up and down together? The flat algorithm, on the left, needs 14.

# %% name="guess_tree"
guess = IntText(description="steps:")
guess

# %% name="watch_tree"
Player(schedules.flat_all_reduce(ranks=8), schedules.tree_all_reduce(ranks=8))

# %% name="reveal_tree"
tree = schedules.tree_all_reduce(ranks=8)
print(f"you said {guess.value}, it takes {tree.steps}; for 1024 ranks {2 * math.ceil(math.log2(1024))}")

# %% [markdown] name="tree_explained"
# With $\lg p$ for the logarithm to base 2, rounded up,
#
# $$T_\text{tree} = 2\lg p\,(\alpha + n\beta).$$
#
# Each doubling of the world costs two steps more, instead of twice as many. But half of the ranks are done after one message, and
# look on.

# %% [markdown] name="doubling"
# ## 3. Nobody looks on
#
# If a pair adds, why should only *one* of the two have the sum? Let both send to each other. In step $k$ every rank swaps its whole
# sum with the rank whose number differs in bit $k$: with `rank ^ 1`, then `rank ^ 2`, then `rank ^ 4`. This is **recursive doubling**.
#
# **Predict** the partner of rank 5 in the second step, and after how many steps 8 ranks are done.

# %% name="guess_doubling"
guess_partner, guess_steps = IntText(description="partner:"), IntText(description="steps:")
display(guess_partner, guess_steps)

# %% name="watch_doubling"
Player(schedules.recursive_doubling_all_reduce(ranks=8))

# %% name="reveal_doubling"
swaps = schedules.recursive_doubling_all_reduce(ranks=8)
partner = next(move.dst for move in swaps.by_step[1] if move.src == 5)
print(f"you said {guess_partner.value} and {guess_steps.value}: rank {partner}, and {swaps.steps} steps")

# %% [markdown] name="doubling_explained"
# Half the steps of the tree, and no return trip: $T = \lg p\,(\alpha + n\beta)$. No algorithm can have fewer steps, for a number
# can reach at most twice as many ranks in each.
#
# In code it is one loop. We run it on the **wire**: eight forked processes with a clock that is computed. Each message takes
# exactly $\alpha + m\beta$, so you time your own code on a cluster that you don't have.


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
# Now six ranks. **Predict.**

# %% name="guess_six"
guess = ask("it works", "some ranks get a wrong sum", "a rank sends to a rank that isn't there")
guess

# %% name="six"
outcome = run(doubling, ranks=6, args=(torch.ones(250),))
print(outcome.failure)

# %% [markdown] name="six_explained"
# The bit trick needs a power of two. The usual mend, taken from MPICH, is the **fold**: let $q$ be the largest power of two up to
# $p$. $p-q$ even ranks give their vector to the rank above and rest; $q$ ranks run the loop; then the resting ones get the result. That
# is two steps more.
#
# **Write the fold.** `active` lists the $q$ ranks that run the loop, which is done. `check` tries 1 to 8 ranks on the wire. As it
# stands, resting ranks end with what they brought, and the verdict says so of the first of them.


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
# Only ranks below `2 * (p - q)` have anything to do: the even ones are not in `active`, the odd ones are.
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
# Recursive doubling swaps *whole* vectors: $n\lg p$ bytes per rank, where the ring sends less than $2n$. **Rabenseifner** joins the ring's
# idea to the doubling's partners: first a reduce-scatter in which the pieces halve, then an all-gather in which they double.
#
# **Predict.** For 8 ranks and 840 bytes: how many does a rank send? The ring, on the right, sends 1470 in 14 steps.

# %% name="guess_halving"
guess = IntText(description="bytes:")
guess

# %% name="watch_halving"
halving, ring = schedules.rabenseifner_all_reduce(ranks=8), schedules.ring_all_reduce(ranks=8)
Player(halving, ring, nbytes=840)

# %% name="reveal_halving"
print(f"you said {guess.value}; {max(halving.bytes_sent(840))} bytes in {halving.steps} steps")
for p in (8, 12):
    sent = max(schedules.rabenseifner_all_reduce(p).bytes_sent(8400))
    print(f"p = {p:2}: at most {sent / 8400:.2f} n from one rank, the ring {2 * (p - 1) / p:.2f} n")

# %% [markdown] name="halving_explained"
# $\tfrac n2 + \tfrac n4 + \dots = \tfrac{p-1}{p}n$ in each half: the bytes of the ring in $2\lg p$ steps,
#
# $$T = 2\lg p\,\alpha + 2\tfrac{p-1}{p}n\beta.$$
#
# Off powers of two the fold sends whole vectors, which costs $2n\beta$ more (MPICH, after Thakur, Rabenseifner & Gropp 2005).
#
# On paper this beats the ring at every size, for powers of two. **So why does anyone use rings?** The formula lets any two ranks talk at full speed,
# whoever else is talking. Put ranks 0 to 7 on one machine and 8 to 15 on another: with which does the least cross from the first to
# the second? (The last column shows them dealt out alternately.)

# %% name="guess_cross"
choices = ["ring", "recursive doubling", "rabenseifner", "double binary tree"]
guess = ask(*choices, description="least:")
guess

# %% name="crossing"
print(f"{'16 ranks':20}{'ranks 0-7 | 8-15':>18}{'even | odd':>12}")
for name in choices:
    schedule, row = schedules.find("all_reduce", name)(16), []
    sizes = schedule.chunk_nbytes(2**20)
    for machine in (lambda r: r // 8, lambda r: r % 2):
        crossing = [m for m in schedule.moves if (machine(m.src), machine(m.dst)) == (0, 1)]
        row.append(sum(sizes[c] for m in crossing for c in m.chunks) / 2**20)
    print(f"{name:20}{row[0]:16.2f} n{row[1]:10.2f} n")

# %% [markdown] name="crossing_explained"
# With neighbours on one machine the ring crosses once: 1.88 $n$. Rabenseifner starts with the farthest partner and the largest
# pieces, so 8 $n$ go through. Deal the ranks out alternately and it is the other way round: 1 $n$ against 15. **An algorithm is as good as its
# placement.** The double tree is next.

# %% [markdown] name="double_tree"
# ### Two trees
#
# A tree can also have few bytes, if the vector is cut into $k$ segments that follow one another: a pipeline. What remains is that on the
# way up an inner rank takes $2n$ from its two children, while a leaf takes nothing. The remedy (Sanders, Speck & Träff 2009): **two** trees, each for half
# of the vector. Look for a rank that has children in both.

# %% name="trees"
for tree in schedules.two_trees(8):
    inner = sorted({parent for parent in tree.parent if parent is not None})
    print("parents of ranks 0 to 7:", tree.parent, " with children:", inner)

# %% name="watch_double"
Player(schedules.double_binary_tree_all_reduce(ranks=8, segments=4), layout="ring")

# %% [markdown] name="segments_guess"
# There is none: who adds in one tree is a leaf in the other. NCCL makes its
# second tree in the same way, by mirroring the first, or moving it on by one rank (`src/graph/trees.cc`).
#
# **Predict**: 10 MB on 32 ranks. How many segments should each half have?

# %% name="guess_segments"
guess = ask("one", "about four", "about a hundred", "as many as possible")
guess

# %% name="segments"
for k in (1, 2, 4, 8, 16, 32, 64, 256):
    pipeline = schedules.double_binary_tree_all_reduce(32, segments=k)
    print(f"k = {k:3}: {pipeline.steps:5} steps, {1e3 * pipeline.price(10**7, alpha, beta):6.3f} ms")

# %% [markdown] name="segments_explained"
# Too few, and most ranks wait for the first segment; too many, and each costs its $\alpha$. With the best $k$ the bytes cost about
# $2n\beta$, like the ring's, after a number of steps that grows as $\lg p$.

# %% [markdown] name="price"
# ## 5. The competition
#
# Now all of them on 32 ranks, with 5 µs a message and 200 GB/s in each direction (assumed). **Predict**: at about which size does recursive
# doubling lose the lead?

# %% name="guess_lead"
guess = ask("1 KB", "1 MB", "1 GB", "never")
guess

# %% name="competition"
names = ["flat", "recursive doubling", "rabenseifner", "ring", "double binary tree"]
sizes = [10**k for k in range(2, 10)]
rivals = [schedules.find("all_reduce", name)(32) for name in names]
plots.scaling(rivals, sizes, alpha, beta)

# %% name="winners"
for n in (10**3, 10**5, 10**6, 10**7, 10**9):
    times = {s.algorithm: s.price(n, alpha, beta) for s in rivals}
    best = min(times, key=times.get)
    print(f"{n:13,} bytes: {best:20} {1e3 * times[best]:8.3f} ms    ring {1e3 * times['ring']:8.3f} ms")

# %% [markdown] name="winners_explained"
# (The double tree is drawn with eight segments a half throughout; a library would choose.) Short vectors want few steps, long ones few
# bytes. Two algorithms of $a\alpha + b\,n\beta$ and $a'\alpha + b'n\beta$ cross where
#
# $$n = \frac{(a'-a)\,\alpha}{(b-b')\,\beta},$$
#
# if that is above 0; else one of them is never slower. **Predict**: ring and Rabenseifner (*halving-doubling*), on 32 ranks and on 24?

# %% name="guess_crossing"
guess = ask("on both", "on 32 only", "on 24 only", "on neither", description="they cross:")
guess


# %% name="crossing_formula"
def crossing(one, other, p, alpha, beta):
    """The bytes at which both take equally long; None where one is never slower."""
    a, b = (cost.terms("all_reduce", name, p, 1) for name in (one, other))
    messages, volume = b.messages - a.messages, a.nbytes - b.nbytes
    return float(messages / volume) * alpha / beta if messages * volume > 0 else None


def in_kb(n):
    return "never" if n is None else f"{n / 1e3:,.0f} KB"


pairs = [("tree", "ring"), ("recursive doubling", "rabenseifner"), ("rabenseifner", "ring")]
print(f"you said {guess.value}")
for p in (4, 24, 32, 1024):
    print(f"p = {p:4}:", ",  ".join(f"{a} | {b} {in_kb(crossing(a, b, p, alpha, beta))}" for a, b in pairs))

# %% [markdown] name="crossing_formula_explained"
# Left of the bar stands who wins below that size. Now the question from the top, with the formulas, since 1024 ranks are many messages to add up:

# %% name="answer"
p, n_gradients = 1024, 14e9
lg = math.log2(p)
for what, n in (("4 bytes", 4), ("14 GB", n_gradients)):
    doubling_s = lg * (alpha + n * beta)
    ring_s = 2 * (p - 1) * alpha + 2 * (p - 1) / p * n * beta
    print(f"{what:8} recursive doubling {1e3 * doubling_s:9.3f} ms   ring {1e3 * ring_s:9.3f} ms")
print(f"you guessed {first_guess.value:g} times; it is {2 * (p - 1) / lg:.0f} for very short vectors")

# %% [markdown] name="measure"
# ### Measured here
#
# The model says what should happen if every rank has a link of its own. Your four ranks may share cores and memory. **Predict** the
# order for 8 MiB: recursive doubling against flat on *this* machine. (It joins where the world is a power of two.) `bench.seconds_of`
# runs on every rank and gives the median of nine calls, as the slowest rank took them.

# %% name="guess_here"
guess = ask("flat is faster", "recursive doubling is faster")
guess


# %% name="timing"
def timing(algorithm, nbytes):
    tensor = torch.zeros(nbytes // 4)
    return bench.seconds_of(lambda: algorithm(tensor), iterations=9)[0]


# %% name="measured"
functions = {"flat": flat_all_reduce, "recursive doubling": doubling}
if world.ranks & (world.ranks - 1):  # not a power of two
    del functions["recursive doubling"]
print(f"{world.ranks} ranks{'1 KiB':>20}{'8 MiB':>12}{'busiest sends':>16}{'all send':>11}")
for name, function in (functions | {"library": dist.all_reduce}).items():
    ms = [1e3 * world.run(timing, function, n)[0] for n in (2**10, 2**23)]
    like = schedules.find("all_reduce", "ring" if name == "library" else name)(world.ranks).bytes_sent(2**23)
    print(f"{name:20}{ms[0]:5.2f} ms{ms[1]:9.2f} ms{max(like) / 2**23:14.2f} n{sum(like) / 2**23:9.2f} n")

# %% [markdown] name="measured_explained"
# (For the library the bytes of a ring are given, which is what Gloo does by default; NCCL may choose otherwise.)
#
# Which column explains your 8 MiB? With a link for each rank it is the *busiest* rank. Where all messages go through one memory, as on a
# CPU, it is nearer to what *all* send together, and the modest flat algorithm looks good. A measurement on a laptop says little about a
# cluster, unless you know which resource was short.
#
# So where do the lines cross *here*? `bench.sweep` times tree, ring and halving-doubling on your ranks, from 1 KiB to 16 MiB, best of twelve. The ring's own times give
# $\alpha$ and $\beta$, and these go into the formula for the others (dashed). **Look** first where dots and dashes part.

# %% name="sweep"
rivals, measured = ("tree", "rabenseifner", "ring"), {}
sizes = [2**10 * 4**k for k in range(8)]
for name in rivals:
    call = bench.Call("all_reduce", algorithm=name)
    measured[name] = bench.sweep(world, call, sizes, iterations=12, passes=3, warmups=2, budget_s=1.0)
fitted = measured["ring"].fit()
here = fitted.alpha_s.value, fitted.beta_s_per_byte.value
print(f"alpha {1e6 * here[0]:.0f} µs, beta {1e9 * here[1]:.2f} ns a byte")

# %% name="crossing_measured"
times = {name: [row.best_us for row in measured[name].rows] for name in rivals}
for name in rivals:
    (line,) = plt.loglog(sizes, times[name], "o", label=name)
    terms = [cost.terms("all_reduce", name, world.ranks, n) for n in sizes]
    plt.loglog(sizes, [1e6 * t.seconds(*here) for t in terms], "--", color=line.get_color())
plt.gca().set(xlabel="bytes", ylabel="µs")
plt.legend()
plt.show()
for one, other in (("tree", "ring"), ("tree", "rabenseifner"), ("rabenseifner", "ring")):
    faster = [a < b for a, b in zip(times[one], times[other], strict=True)]
    turns = [f"{sizes[i] // 1024} and {sizes[i + 1] // 1024} KiB" for i in range(7) if faster[i] != faster[i + 1]]
    says = in_kb(crossing(one, other, world.ranks, *here))
    print(f"{one} | {other}: formula {says}; measured", "; ".join(f"between {t}" for t in turns) or "never")

# %% [markdown] name="crossing_measured_explained"
# Where a pair changes places more than once, the two are equal within what your machine jitters. Where it changes far from the formula's size, ask the
# column above: in one memory, all three send the same $2(p-1)\,n$ together (for a power of two), which leaves the steps to decide.

# %% [markdown] name="nccl"
# ## 6. What NCCL picks
#
# NCCL 2.30.7 knows six algorithms for all-reduce: **Ring**, **Tree** (a chain in each machine, a double tree between them), CollNetDirect and CollNetChain (a network
# that adds), **NVLS** and NVLSTree (an NVSwitch that adds). Recursive doubling and Rabenseifner are not among them. Each comes in up to three
# *protocols*: LL and LL128 send flags with the data, so nobody waits for a separate signal, at a cost in bandwidth; Simple has full bandwidth.
#
# Before each call a **tuner** predicts a time for every enabled pair and takes the smallest: latency plus bytes over bandwidth, your
# $\alpha$ and $\beta$. Its constants are in `src/graph/tuning.cc`; here are those for GPUs on NVLink and protocol LL, in µs.


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
# Inside a machine NCCL's tree is a *chain*; only between machines it branches. **Predict** which has the lower latency on one machine of 8
# GPUs, and how many times lower it is on 128 machines.

# %% name="guess_tuner"
guess_one = ask("ring", "tree", description="1 machine:")
guess_many = FloatText(description="128, times:")
display(guess_one, guess_many)

# %% name="tuner_table"
print(f"you said {guess_one.value} and {guess_many.value:g} times")
for nodes in (1, 2, 4, 16, 128):
    ring_us, tree_us = tuner_latency_us(nodes)
    print(f"{nodes:4} machines: ring {ring_us:7.1f} µs   tree {tree_us:6.1f} µs   ratio {ring_us / tree_us:5.2f}")

# %% [markdown] name="tuner_explained"
# On one machine they are equal within 2 %. For long vectors the ring has the edge: the tuner credits it with busbw $\cdot\,p/(2(p-1))$ and the
# tree with half of busbw, times 0.92 for Simple. So the tree takes short vectors on many machines, the ring long ones. (The sketch leaves
# out the network card's own latency, caps on bandwidth and a correction of the tree's for size. It was read in the source, not measured.)
#
# On one machine with 8 H100s, NVLS reaches a busbw of about 480 GB/s, where the ring has 365 to 370
# ([nccl#1455](https://github.com/NVIDIA/nccl/issues/1455)). The bound of $2\frac{p-1}{p}n$ holds for links between ranks; a switch that adds is not bound by it.
#
# To see your own: `NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=TUNING` prints the table. `NCCL_ALGO=allreduce:tree` forces a choice, for experiments;
# since 2.24 NCCL fails if it can't obey.

# %% [markdown] name="where"
# ## 7. Where you meet it
#
# - **Loss, gradient norm, overflow flag**: bytes. All $\alpha$, so few steps, or better one call for all three.
# - **Tensor parallelism**: an activation, inside one machine.
# - **DDP**: buckets of 25 MiB by default. Between machines the choice may change with the bucket's size.
# - **Benchmarks**: busbw of a tree on two nodes can exceed the network card's; force the ring to measure a network
#   ([nccl-tests#196](https://github.com/NVIDIA/nccl-tests/issues/196)).

# %% [markdown] name="quiz"
# ## 8. Check yourself
#
# <details><summary>1. Do all ranks have the same bits after recursive doubling?</summary>
#
# Yes. Two partners compute $a+b$ and $b+a$, which are equal in floating point. Only the grouping of three or more changes bits, and that is
# the same for all. The same as the ring's they need not be.
# </details>
#
# <details><summary>2. 96 ranks, 100 bytes. How many steps does recursive doubling take with the fold?</summary>
#
# $q = 64$: one step in, six swaps, one back. Eight.
# </details>
#
# <details><summary>3. Why is "the tree is logarithmic" not true of NCCL on one 8-GPU machine?</summary>
#
# Inside a machine its tree is a chain: 7 hops up and 7 down, as many as a ring's 14 steps.
# </details>

# %% [markdown] name="recap"
# ## Recap
#
# Flat, tree and recursive doubling move whole vectors, in $2(p-1)$, $2\lg p$ and $\lg p$ steps. Ring, Rabenseifner and the pipelined double tree
# send about $2n$ per rank and differ in steps, and in whose links they use. A library prices its algorithms for each size and takes the cheapest.
# **Short vectors want few steps, long ones few bytes, and the placement can turn the order round.**
#
# **Now you:** [Lab 4](../labs/lab04_algorithms/algorithms.ipynb) asks for recursive doubling, fold included.
#
# **Next question:** the ring was two walks. What is each of them good for alone? [All-gather](09_all_gather.ipynb) first.
#
# **Sources.** R. Thakur, R. Rabenseifner, W. Gropp, *Optimization of collective communication operations in MPICH*, Int. J. High Perform.
# Comput. Appl. 19(1), 2005 · R. Rabenseifner, *Optimization of Collective Reduction Operations*, ICCS 2004 · P. Sanders, J. Speck, J. L. Träff, *Two-tree algorithms for full bandwidth broadcast, reduction and scan*,
# Parallel Computing 35, 2009 · [MPICH, src/mpi/coll](https://github.com/pmodels/mpich/tree/main/src/mpi/coll) (costs in its comments) ·
# [NCCL, tuning.cc](https://github.com/NVIDIA/nccl/blob/master/src/graph/tuning.cc) ·
# [NCCL, environment variables](https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html) ·
# [Gloo, allreduce.cc](https://github.com/pytorch/gloo/blob/main/gloo/allreduce.cc)

# %% name="stop_world"
world.stop()
