# %% [markdown] name="title"
# # Topology
#
# {{here}}
#
# **32 GPUs on four nodes sum 1 GB in 9 ms, or in 39 ms, and each GPU sends equally many bytes in both cases. What is different? And how can you
# predict it for a machine that is new to you?**
#
# {{picture}}
#
# Four nodes with eight GPUs each, as in a DGX H100: the lines are as wide as the links, inside a node and out of it.

# %% [markdown] name="my_model_needs"
# **My model** on 1,024 GPUs has groups of 4 that share every layer. In each step a GPU sends 6.4 GB to the others of its group, and 3.5 GB of
# gradients to the other replicas. Which of the 1,024 should be a group?

# %% name="start_world"
from dataclasses import replace

import torch
import torch.distributed as dist

from allranks import Player, World, cost, doctor, execute, plots, predict, predictions
from allranks import run_schedule, schedules, simulate
from allranks.topology import preset, round_robin

world = World()
world

# %% [markdown] name="point"
# ## 1. The link out of a node
#
# **A collective is as slow as its busiest link. So ask how many bytes leave a node, and how many GPUs share the link out of it.** Four machines, in bytes a second *in one direction*. (An H100's NVLink is sold as 900 GB/s, both
# directions together; NCCL counts with 371 in one. A "400 Gb/s" card is 50 GB/s.)

# %% name="presets"
print(f"{'':16}{'ranks a node':>14}{'inside GB/s':>13}{'card GB/s':>11}{'cards':>7}{'inside : share of cards':>26}")
for name in ("dgx-a100", "dgx-h100", "gb200-nvl72", "cloud-ethernet"):
    machine = preset(name)
    inside, card = machine.inside.bytes_per_s / 1e9, machine.nic.bytes_per_s / 1e9
    ratio = inside / (card * machine.nics_per_node / machine.ranks_per_node)
    print(f"{name:16}{machine.ranks_per_node:14}{inside:13.1f}{card:11.1f}{machine.nics_per_node:7}{ratio:24.1f}:1")

# %% [markdown] name="presets_explained"
# A byte that leaves the node takes 7 to 20 times as long as one inside. On `dgx-h100` each GPU has its own card; on `cloud-ethernet` eight GPUs share one.
#
# ## 2. One ring through all nodes
#
# The slowest hop sets the speed of a ring. With $\alpha_2, \beta_2$ for a hop between nodes:
#
# $$T_\text{ring} = 2(p-1)\,\alpha_2 + 2\,\frac{p-1}{p}\,n\,\beta_2$$
#
# Four DGX nodes, 32 ranks in order, 1 GB.

# %% name="guess_ring"
guess_ring = predict(
    "How many of a node's eight cards does the ring use for sending?",
    low=0,
    high=8,
    title="Cards of a node that the ring uses",
)
guess_ring

# %% name="ring"
n, gpus = 10**9, 32
dgx, cloud = preset("dgx-h100"), preset("cloud-ethernet")
one_ring = simulate("all_reduce", "ring", gpus, n, dgx)
formula = cost.price("all_reduce", "ring", gpus, n, dgx.nic.alpha_s, dgx.nic.beta_s_per_byte)
used = {dgx.nic_of(m.src) for m in one_ring.schedule.moves if dgx.node(m.src) != dgx.node(m.dst)}
print(f"simulated {1e3 * one_ring.seconds:.1f} ms, formula {1e3 * formula:.1f} ms; cards used: {used}")

# %% name="reveal_ring" jupyter={"source_hidden": true}
# the answer: run this cell
guess_ring.reveal(
    len(
        {
            card
            for card in used
            if dgx.node(next(m.src for m in one_ring.schedule.moves if dgx.nic_of(m.src) == card)) == 0
        }
    ),
    why="With ranks in order only the last GPU of a node has its right neighbour on another node.",
)

# %% [markdown] name="ring_explained"
# So it takes 39 ms, and NVLink is idle most of the time.
#
# ## 3. Placement of ranks
#
# A launcher may place ranks in turns instead: rank 0 on node 0, rank 1 on node 1, and so on. Then **every** hop of the ring leaves its node.

# %% name="guess_robin"
on_dgx = predict(
    "Every hop leaves its node: how many times slower is that on DGX nodes, with a card for each GPU?",
    low=0.5,
    high=16.0,
    title="Round robin is slower by, on DGX nodes",
)
on_cloud = predict(
    "And on cloud nodes, where eight GPUs share a card?",
    low=0.5,
    high=16.0,
    title="Round robin is slower by, on cloud nodes",
)
display(on_dgx, on_cloud)

# %% name="robin"
flat = schedules.ring_all_reduce(gpus)
seats = round_robin(gpus, ranks_per_node=8)  # the place of each rank
slower = {}
for machine in (dgx, cloud):
    good, bad = (run_schedule(s, n, machine).seconds for s in (flat, flat.placed(seats)))
    slower[machine.name] = bad / good
    print(f"{machine.name:16} in order {1e3 * good:7.1f} ms, round robin {1e3 * bad:7.1f} ms: {bad / good:.1f} times")

# %% name="reveal_robin" jupyter={"source_hidden": true}
# the answer: run this cell
display(
    on_dgx.reveal(
        slower[dgx.name],
        why="Eight times as many bytes leave the node, but over eight cards, seven of which were idle before.",
    ),
    on_cloud.reveal(
        slower[cloud.name],
        why="All eight ranks of a node wait for one card.",
    ),
)

# %% [markdown] name="robin_explained"
# **A bad placement costs time if links are shared.** So the 4 GPUs of **my model** that share every layer must be on one node, and the replicas may be on different ones.
#
# ## 4. Two levels
#
# Send less between nodes, as in [Barrier and groups](../2_collectives/16_barrier_and_groups.ipynb). With $m$ nodes of $g$ ranks:
# reduce-scatter in each node, so that each rank owns a $g$-th; all-reduce this part between the ranks with the same place; all-gather in each node. **Derive**
# the time before you unfold it.
#
# <details><summary><b>The derivation</b></summary>
#
# $$T_\text{two} = \underbrace{2(g-1)\,\alpha_1 + 2\tfrac{g-1}{g}\,n\,\beta_1}_{\text{inside}} + \underbrace{2(m-1)\,\alpha_2 + 2\tfrac{m-1}{m}\,\tfrac{n}{g}\,\beta_2}_{\text{between}}$$
# </details>
#
# Ring and two levels (here: `hierarchical`) on two small nodes. How many ranks send between nodes at a time?

# %% name="watch"
small = replace(dgx, ranks_per_node=4, nics_per_node=4)
traces = [simulate("all_reduce", name, 8, 10**8, small).trace for name in ("ring", "hierarchical")]
Player(*traces, titles=("Ring", "Two levels"))

# %% [markdown] name="two_guess"
# In *leader* one rank of each node sums the node's vectors and talks to the other nodes.

# %% name="guess_two"
guess_two = predict(
    "1 GB on four cloud nodes: which is the fastest?",
    choices=["ring", "hierarchical", "leader"],
    title="The fastest in the cloud",
)
guess_two

# %% name="two_levels"
ways = ["ring", "hierarchical", "leader"]
for machine in (dgx, cloud):
    for name in ways:
        found = simulate("all_reduce", name, gpus, n, machine)
        print(f"{machine.name:16}{name:14}{1e3 * found.seconds:8.1f} ms,", end=" ")
        print(f"a rank sends at most {found.bytes_per_rank / 1e9:.3f} GB")

# %% name="reveal_two" jupyter={"source_hidden": true}
# the answer: run this cell
guess_two.reveal(
    min(ways, key=lambda name: simulate("all_reduce", name, gpus, n, cloud).seconds),
    why="In the cloud all eight parts share one card, so two levels save little there, and their steps inside the node cost more than that.",
)

# %% [markdown] name="two_explained"
# With two levels it takes 9 ms, with as many bytes from each rank as in the ring: all eight cards work. The leader uses one.
#
# In the cloud all eight parts share one card. It carries $1.5\,n$ instead of the ring's $1.94\,n$, which saves 36 ms, but the steps inside cost 56 ms
# on PCIe: there the plain ring is faster, while each phase waits for the last. **Two levels help most if a node has more cards than one ring uses.**

# %% [markdown] name="placement_intro"
# Choose a machine, an algorithm and a placement, and see what leaves each node over which card.

# %% name="placement"
from allranks import explore

explore.placement()

# %% [markdown] name="in_pieces"
# ### Over all cards, in pieces
#
# Libraries cut a vector into pieces, so that cards send one piece while the links inside carry another, and run eight rings, each over another card. What is left of the difference?

# %% name="two_formula"
inner, outer = ((link.alpha_s, link.beta_s_per_byte) for link in (dgx.inside, dgx.nic))
two = simulate("all_reduce", "hierarchical", gpus, n, dgx)
print(
    f"formula {1e3 * cost.two_level(4, 8, n, inner, outer):.3f} ms, simulated {1e3 * two.seconds:.3f} ms",
    end="; ",
)
print(f"no algorithm is faster than {1e3 * two.lower_bound_seconds:.1f} ms")
for machine in (dgx, cloud):
    for name in ("ring channels", "hierarchical channels"):
        print(f"{machine.name:16}{name:24}{1e3 * simulate('all_reduce', name, gpus, n, machine).seconds:6.1f} ms")

# %% [markdown] name="channels_explained"
# Only the busiest link counts now. On DGX nodes eight rings are as good as two levels. In the cloud all still share one card, and two levels win after
# all, because they send less over it. (NCCL has no algorithm named two levels: it has such rings; a tree that is a chain inside each node; and NVLS, in which the switch adds.)

# %% [markdown] name="beyond"
# ## 5. Beyond the card: leaves and rails
#
# Cards are connected to leaf switches, and these to spine switches by uplinks. With **oversubscription** 4:1 there are a quarter as many uplinks as ports. A leaf of 32 ports can serve all cards of four nodes; or card $k$ of 32
# nodes: **rails**. Eight nodes, 1 GB. *Scattered*: neighbouring nodes are on different leaves. Which row stays the same from 1:1 to 8:1?

# %% name="designs"
rows = ("two levels", "two levels, scattered", "two levels, scattered, rails", "one ring, rails")

# %% name="rails"
levels64, ring64 = schedules.hierarchical_all_reduce(64, 8), schedules.ring_all_reduce(64)
# whole nodes, in turns to two leaves
scattered = levels64.placed(round_robin(64, ranks_per_node=32, together=8))
leaves, by_rail = replace(dgx, nodes_per_leaf=4), replace(dgx, nodes_per_leaf=32, rails=True)
designs = [(levels64, leaves), (scattered, leaves), (scattered, by_rail), (ring64, by_rail)]
print(f"{'ms':30}" + "".join(f"{over:7}:1" for over in (1, 2, 4, 8)))
for row, (schedule, machine) in zip(rows, designs, strict=True):
    times = [run_schedule(schedule, n, replace(machine, oversubscription=over)).seconds for over in (1, 2, 4, 8)]
    print(f"{row:30}" + "".join(f"{1e3 * t:9.1f}" for t in times))

# %% [markdown] name="rails_explained"
# Two levels send between nodes only from place $k$ to place $k$. On rails these messages stay on one switch, so uplinks and the order of nodes do not
# matter. The ring does not suit rails: it leaves a node over card 7 and enters the next over card 0, by an uplink. (NCCL can first move data to the GPU whose card is on the right rail: **PXN**.)
#
# ### A torus: no switch at all
#
# Chips of a TPU v5e have links to four neighbours, and no switch. A collective runs along both axes at once. An axis is a ring if its last chip has a link to its first. Which slice below has rings?

# %% name="torus"
for shape in ("tpu-v5e-8x8", "tpu-v5e-16x16"):
    price = cost.torus_price("all_reduce", n, shape)
    print(
        f"{shape:14} all-reduce of 1 GB: {1e3 * price.seconds:5.1f} ms; its axes are rings: {price.rings}",
    )
    price = cost.torus_price("all_to_all", n, shape)
    print(f"{'':14} all-to-all, 1 GB from each chip: {1e3 * price.seconds:5.1f} ms")

# %% [markdown] name="torus_explained"
# (By formula; nothing of it is measured.) On a v5e only an axis of 16 is a ring, so four times as many chips sum in half the time, and the all-to-all takes as long on four times as many
# chips: between the halves of an axis a ring has two links for each row, a line one. So a group should fill an axis that is a ring.
# <!-- jax-ml/scaling-book 0819a7d (2025-02-18; 7e97132 corrected the rates of the first version), tpus.md: the links, wraparound on axes of 16 only, 45 GB/s a link and direction; sharding.md: the formulas, in utils/allranks/theory/cost/torus.py.
# Google's page of the v5e has 400 GB/s a chip, both ways over 4 ports: 50, the nominal rate. Looked up 2026-11 -->
#
# ## 6. A machine that is new to you
#
# Which devices are there, what links connect them, and which rank is where? `allranks doctor` answers the first two, and each rank the third.

# %% name="doctor"
for examine in (doctor.gpus, doctor.links, doctor.cores, doctor.shared_memory):
    line = examine()
    print(f"{line.name:14} {line.found}")

# %% name="hosts"
# %%ranks
import socket

hosts = [None] * world_size
dist.all_gather_object(hosts, socket.gethostname())
print(f"device {device}; my node has ranks {[r for r, host in enumerate(hosts) if host == hosts[rank]]}")

# %% [markdown] name="legend"
# `nvidia-smi topo -m` names the connection between each two devices, from near to far: **NV#** (so many NVLinks), **PIX** (one PCIe bridge), **PXB**
# (several), **PHB** (the CPU's host bridge), **NODE** (several host bridges of one NUMA node), **SYS** (across sockets). Look for GPUs that are `SYS` apart, and for each GPU the nearest card (`PIX` or `PXB`).


# %% [markdown] name="measured_explained"
# ### busbw against the number of nodes
#
# By the ring's formula the busbw of a long vector is the same for any number of nodes. And by NCCL's own tuner?

# %% name="busbw_nodes"
figure, axes = plots.chart("nodes of 8 H100", "busbw, GB/s")
nodes = [1, 2, 4, 8, 16, 32, 64]
for nbytes, name in ((2**30, "1 GiB"), (2**24, "16 MiB"), (2**20, "1 MiB")):
    seconds = [cost.nccl_choice("all_reduce", nbytes, "dgx-h100", nodes=count).us / 1e6 for count in nodes]
    busbw = [2 * (8 * m - 1) / (8 * m) * nbytes / s / 1e9 for m, s in zip(nodes, seconds, strict=True)]
    axes.semilogx(nodes, busbw, marker="o", label=name)
    print(f"{name:7} on 1, 2, 4 and 64 nodes, in GB/s:", *(f"{busbw[k]:4.0f}" for k in (0, 1, 2, -1)))
axes.set(xticks=nodes, xticklabels=nodes)
axes.legend()
figure

# %% [markdown] name="busbw_nodes_explained"
# **Two nodes say little about many.** Between two nodes a tree (here NVLSTree: the switches add too) sends $n$ bytes out of each node, and a ring $1.88\,n$. So busbw is above the 400 GB/s of all eight cards. From four nodes on
# the tree's busiest node sends $2n$ too: a fifth of busbw is gone, and from there to 64 nodes only 3 % more. Others measured the same step: 430 GB/s on one and two nodes, 320 on more ([NCCL 1221](https://github.com/NVIDIA/nccl/issues/1221), H100s, eight cards of
# 400 Gb/s a node). To measure the *network* on two nodes, force the ring: `NCCL_ALGO=Ring`. If your own curve (`allranks bench`) goes on falling beyond four nodes, look for shared links. The short vectors fall because their time is $\alpha$.
# <!-- nccl issue 1031, a maintainer: figures of two nodes "can be misleading when comparing it to >2 nodes unless you set NCCL_ALGO=RING"; nccl-tests issue 196 says the same. Looked up 2026-11 -->
#
# ## 7. Wrong assumptions about placement
#
# Most programs assume that ranks with neighbouring numbers are on one node. We pretend that ranks $0$ to $g-1$ are one node and the rest another, run ring and two levels on the live ranks, in order and round robin, and count the bytes between the nodes.

# %% name="guess_crossing"
names = ("ring", "ring, round robin", "two levels", "two levels, round robin")
guess_crossing = predict(
    "Two levels, but the ranks are placed round robin and the program does not know: what happens?",
    choices=["an error", "a wrong sum", "the right sum, with more bytes between nodes", "nothing changes"],
    title="Two levels with the wrong placement",
)
guess_crossing


# %% name="crossing"
def total(schedule):
    x = torch.full((120_000,), dist.get_rank() + 1.0)
    return execute(schedule, x).unique().tolist()


p = world.ranks
g = p // 2 if p % 2 == 0 else 1  # two "nodes"; an odd number of ranks makes nodes of one
ring, levels = schedules.ring_all_reduce(p), schedules.hierarchical_all_reduce(p, g)
seats = round_robin(p, g)
plans = dict(zip(names, (ring, ring.placed(seats), levels, levels.placed(seats)), strict=True))
each = replace(dgx, ranks_per_node=g, nics_per_node=g)
shared = replace(each, nics_per_node=1)

# %% name="crossing_counted"
print(f"{'':24}{'right':>7}{'kB cross':>10}{'1 GB, a card each':>20}{'one a node':>13}")
kb = {}
for name, plan in plans.items():
    sums, trace = world.trace(total, plan)
    crossed = sum(message.nbytes for message in trace.messages() if message.src // g != message.dst // g)
    kb[name] = crossed / 1e3
    right = all(found == [p * (p + 1) / 2] for found in sums)
    own, one = (1e3 * run_schedule(plan, n, machine).seconds for machine in (each, shared))
    print(f"{name:24}{right!s:>7}{crossed / 1e3:10.0f}{own:17.1f} ms{one:10.1f} ms")

# %% name="reveal_crossing" jupyter={"source_hidden": true}
# the answer: run this cell
guess_crossing.reveal(
    "the right sum, with more bytes between nodes"
    if kb["two levels, round robin"] > kb["two levels"]
    else "nothing changes",
    why="The sum is right for any placement; only the large part now goes between the nodes. (With two ranks, or an odd number, all four are alike.)",
)

# %% [markdown] name="crossing_explained"
# Nothing warns you: **you notice it only if you count bytes or measure time.**
#
# ### Your turn: find the real placement
#
# Return the ranks of each node, as lists, for *any* numbering of the `hosts`; the version below assumes that neighbours
# are on one node. The next cell counts the bytes between nodes.


# %% name="ranks_by_node"
def ranks_by_node(hosts):
    g = hosts.count(hosts[0])
    return [list(range(first, first + g)) for first in range(0, len(hosts), g)]  # your turn


# %% name="judge"
for launcher, order in (("in order", range(8)), ("round robin", round_robin(8, 4)), ("by pairs", round_robin(8, 4, 2))):
    hosts = [f"node{seat // 4}" for seat in order]
    together = [rank for node in ranks_by_node(hosts) for rank in node]  # the schedule's ranks, node by node
    plan = schedules.hierarchical_all_reduce(8, 4).placed(together)
    sizes = plan.chunk_nbytes(480_000)
    crossed = sum(sizes[c] for m in plan.moves if hosts[m.src] != hosts[m.dst] for c in m.chunks)
    print(f"{launcher:12} nodes {ranks_by_node(hosts)}: {crossed / 1e3:.0f} kB cross, 960 are enough")

# %% [markdown] name="judge_answer"
# <details><summary><b>A hint</b></summary>
#
# One list for each different host. `dict.fromkeys(hosts)` has each once, in the order of their first ranks.
# </details>
# <details><summary><b>An answer</b></summary>
#
# ```python
# def ranks_by_node(hosts):
#     return [[rank for rank, host in enumerate(hosts) if host == node] for node in dict.fromkeys(hosts)]
# ```
# </details>

# %% [markdown] name="pitfalls"
# ## 8. Find it in torch
#
# **Your task.** Open `torch/distributed/device_mesh.py` (`python -c "import torch; print(torch.__path__[0])"` says in which folder torch is) and look for `arange`. A mesh of nodes and GPUs: which ranks does torch assume to be on one node?
#
# <details><summary><b>Answer</b></summary>
#
# Those with neighbouring numbers: it numbers the ranks with `arange` and cuts them in rows. With another placement give the ranks yourself.
# </details>
#
# ## 9. Check yourself
#
# <details><summary>1. Scattered nodes, no rails, 4:1. How do you get the speed back without new switches?</summary>
#
# Number the nodes leaf by leaf, so that a ring of nodes uses an uplink once for each leaf.
# </details>
#
# <details><summary>2. busbw on two nodes is 50 GB/s, and each has eight cards of 50 GB/s. Why?</summary>
#
# Only one card of eight is used: there is one ring, or NCCL did not find seven cards (`NCCL_DEBUG_SUBSYS=GRAPH`).
# </details>

# %% [markdown] name="recap"
# ## Recap
#
# Count the bytes on the busiest link and the ranks that share it. With two levels every rank sends $n/g$ between
# nodes over its own card; rails do the same for switches. Both help only if the program knows the real placement. **Find the slowest link, send as little over it as you can, and use all network cards at once.**
#
# **Now you:** [Lab 4](../../labs/lab04_algorithms/algorithms.ipynb) grades the two-level all-reduce, by the bytes that leave a node.
#
# **Next question:** the ranks are placed, and the job starts. What if it stops, without an error? [When it hangs](45_when_it_hangs.ipynb)
#
# {{side_trips}}
#
# **Sources.** [NVIDIA, nvidia-smi](https://docs.nvidia.com/deploy/nvidia-smi/index.html) (`topo`) ·
# [NVIDIA, NCCL, topo.h](https://github.com/NVIDIA/nccl/blob/master/src/graph/topo.h) (371 GB/s) ·
# J. Austin et al., [How To Scale Your Model](https://jax-ml.github.io/scaling-book/tpus/) (a TPU's links) ·
# W. Wang et al., *Rail-only*, [arXiv:2307.12169](https://arxiv.org/abs/2307.12169) ·
# H. Mikami et al., *Massively distributed SGD*, [arXiv:1811.05233](https://arxiv.org/abs/1811.05233) (2D torus)

# %% name="what_you_knew"
predictions()

# %% name="stop_world"
world.stop()

# %% name="done"
from allranks import done

done("40")
