# %% [markdown] name="title"
# # Topology
#
# **32 GPUs on four nodes sum 1 GB in 9 ms, or in 39 ms, and each of them sends equally many bytes in both cases. What differs? And how do you see it coming on a machine that you have
# been given?**
#
# 45 minutes · CPU ok, 2 or more GPUs better · before it: [All-reduce](07_all_reduce.ipynb), [Barrier and groups](12_barrier_and_groups.ipynb)

# %% name="start_world"
import itertools
import shutil
import statistics
import subprocess
import time
from dataclasses import replace

import torch
import torch.distributed as dist
from ipywidgets import Checkbox, FloatText, IntText, Layout

from allranks import World, ask, check, cost, doctor, schedules, topology
from allranks.player import Player
from allranks.simulate import run_schedule, simulate

world = World(ranks=4)
world

# %% [markdown] name="here"
# ## 1. What is this machine?
#
# Three questions, before you start a job: which devices are there, what joins them, and who shares what? `allranks doctor` answers the first two in a terminal; these are its lines.

# %% name="doctor"
for examine in (doctor.gpus, doctor.links, doctor.cores, doctor.shared_memory):
    line = examine()
    print(f"{line.name:14} {line.found}")

# %% name="seats"
# %%ranks
from allranks.engines import nodes

seat = nodes.look(rank)
print(f"{seat['host']}: {seat['cores']} cores, {len(seat['gpus'])} GPUs, device {device}")

# %% [markdown] name="tools"
# Ranks of one `host` are on one node. The next cell asks the system's own tools, as far as they are there: sockets and NUMA nodes of the CPU, and the GPUs' table.

# %% name="tools_run"
wanted = ("Model name", "Thread", "Core", "Socket", "NUMA node")
if shutil.which("lscpu"):
    lines = subprocess.run(["lscpu"], capture_output=True, text=True).stdout.splitlines()
    print(*(line for line in lines if line.strip().startswith(wanted)), sep="\n")

# %% name="nvidia"
if shutil.which("nvidia-smi"):
    print(subprocess.run(["nvidia-smi", "topo", "-m"], capture_output=True, text=True).stdout)
else:
    print("no nvidia-smi here")

# %% [markdown] name="legend"
# `nvidia-smi topo -m` names the way between each two devices, from near to far: **NV#** (so many NVLinks), **PIX** (one PCIe bridge), **PXB** (several), **PHB** (through the CPU's host bridge), **NODE** (several host bridges of one NUMA node),
# **SYS** (across sockets). Look for two things: GPUs that are `SYS` apart, and for each GPU the network card that is `PIX`: that is *its* card.
#
# Tables can be wrong; a stopwatch is not. **Predict**: are some pairs of our ranks nearer to each other than others?

# %% name="guess_near"
guess = ask("yes, by a factor of 2 or more", "no, all alike")
guess


# %% name="distances"
def ping(x, peer, first):
    if first:
        dist.send(x, peer)
    dist.recv(x, peer)
    x.item()  # on a GPU, waits until it is there
    if not first:
        dist.send(x, peer)


def half_round_trips():
    rank, p, found = dist.get_rank(), dist.get_world_size(), {}
    for a, b in itertools.combinations(range(p), 2):
        dist.barrier()
        times = []
        for _ in range(30 if rank in (a, b) else 0):
            start = time.perf_counter()
            ping(torch.zeros(1), b if rank == a else a, first=rank == a)
            times.append((time.perf_counter() - start) / 2)
        found[a, b] = statistics.median(times) if times else None
    return found


# %% name="distance_table"
by_rank = world.run(half_round_trips)
distances = {(a, b): by_rank[a][a, b] for a, b in by_rank[0]}
for (a, b), seconds in distances.items():
    print(f"{a} and {b}: {1e6 * seconds:6.0f} µs")

# %% [markdown] name="distances_explained"
# On one socket all pairs are alike, apart from who happens to have the processor. On a machine of several sockets or nodes you would see blocks: small numbers within, large ones between. That picture *is* the topology, as
# a program feels it.
#
# ## 2. Machines on paper
#
# Four machines that come with the package. A `Link` has $\alpha$ and bytes a second **in one direction**. An H100's NVLink is sold as 900 GB/s: both directions together, so 450 in one, of which NCCL's
# own tables count on 371. A "400 Gb/s" card is 50 GB/s.

# %% name="presets"
print(f"{'':16}{'ranks a node':>14}{'inside GB/s':>13}{'card GB/s':>11}{'cards':>7}{'inside : share of cards':>26}")
for name, machine in topology.PRESETS.items():
    inside, card = machine.inside.bytes_per_s / 1e9, machine.nic.bytes_per_s / 1e9
    ratio = inside / (card * machine.nics_per_node / machine.ranks_per_node)
    print(f"{name:16}{machine.ranks_per_node:14}{inside:13.1f}{card:11.1f}{machine.nics_per_node:7}{ratio:24.1f}:1")
print(topology.preset("dgx-h100").source)

# %% [markdown] name="presets_explained"
# ($\alpha$s of the presets are teaching values of the right order.) The last column is what this chapter is about: leaving the node is 7 to 20 times slower than staying. *(With `cloud-ethernet`, eight GPUs share one card.)*
#
# ## 3. One ring through all nodes
#
# A ring of $p$ ranks moves at the pace of its slowest hop, for each rank waits for its left neighbour. With $\alpha_2, \beta_2$ for a hop between nodes:
#
# $$T_\text{ring} = 2(p-1)\,\alpha_2 + 2\,\frac{p-1}{p}\,n\,\beta_2$$
#
# Four DGX H100 nodes, 32 ranks in order, 1 GB. **Predict** the time, and how many of a node's eight cards the ring uses to send.

# %% name="guess_ring"
milliseconds, cards = FloatText(description="ms:"), IntText(description="cards:")
display(milliseconds, cards)

# %% name="ring"
n, p = 10**9, 32
dgx, cloud = topology.preset("dgx-h100"), topology.preset("cloud-ethernet")
ring = simulate("all_reduce", "ring", p, n, dgx)
formula = cost.price("all_reduce", "ring", p, n, dgx.nic.alpha_s, dgx.nic.beta_s_per_byte)
used = {dgx.nic_of(m.src) for m in ring.schedule.moves if dgx.node(m.src) != dgx.node(m.dst)}
print(f"simulated {1e3 * ring.seconds:.1f} ms, formula {1e3 * formula:.1f} ms; cards used: {used}")
one_node = simulate("all_reduce", "ring", 8, n, dgx)
print(f"you said {milliseconds.value:g} ms and {cards.value}; in one node: {1e3 * one_node.seconds:.1f} ms")

# %% [markdown] name="ring_explained"
# One card of eight works, and NVLink idles most of the time. Now the launcher numbers the ranks differently: round robin, rank 0 on node 0, rank 1 on node 1, so that **every** hop leaves its node. `placed` gives the schedule's ranks
# other seats. **Predict** how many times slower it gets, on DGX nodes and on cloud nodes.

# %% name="guess_robin"
on_dgx, on_cloud = FloatText(description="DGX, times:"), FloatText(description="cloud, times:")
display(on_dgx, on_cloud)


# %% name="placed"
def placed(schedule, seats):
    moves = tuple(replace(m, src=seats[m.src], dst=seats[m.dst]) for m in schedule.moves)
    return replace(schedule, moves=moves)


robin = [i % 4 * 8 + i // 4 for i in range(p)]
flat = schedules.ring_all_reduce(p)
for machine in (dgx, cloud):
    good, bad = (run_schedule(s, n, machine).seconds for s in (flat, placed(flat, robin)))
    print(f"{machine.name:16} in order {1e3 * good:7.1f} ms, round robin {1e3 * bad:7.1f} ms: {bad / good:.1f} times")

# %% [markdown] name="placed_explained"
# On the DGX nothing changes: each GPU has a card of its own, seven of which were idle. In the cloud eight ranks queue for one card. **Placement costs where links are shared.**
#
# ## 4. Two levels
#
# If leaving is dear, leave with less, as the hierarchical all-reduce of [Barrier and groups](12_barrier_and_groups.ipynb) did. $m$ nodes of $g$ ranks: reduce-scatter in each node, so that each rank owns a $g$-th; all-reduce that between the ranks with the same place; all-gather in each node.
#
# $$T_\text{two} = \underbrace{2(g-1)\,\alpha_1 + 2\tfrac{g-1}{g}\,n\,\beta_1}_{\text{inside}} + \underbrace{2(m-1)\,\alpha_2 + 2\tfrac{m-1}{m}\,\tfrac{n}{g}\,\beta_2}_{\text{between}}$$
#
# Watch both, on two small nodes of four. Which bars are long on the left, and how many ranks send between nodes at a time?

# %% name="watch"
small = replace(dgx, ranks_per_node=4, nics_per_node=4)
Player(*(simulate("all_reduce", name, 8, 10**8, small).trace for name in ("ring", "hierarchical")))

# %% [markdown] name="two_guess"
# Four ways to sum 1 GB on 32 ranks. *Leader*: one rank of each node sums for it and speaks for it. *Eight rings*: each has an eighth of the vector and leaves its nodes by another card, as NCCL does with its channels. **Predict** the fastest, on each machine.

# %% name="guess_two"
names = ["ring", "hierarchical", "leader", "eight rings"]
on_dgx = ask(*names, description="DGX:")
on_cloud = ask(*names, description="cloud:")
display(on_dgx, on_cloud)


# %% name="eight_rings"
def rings(nodes, g):
    p, moves = nodes * g, []
    for k in range(g):  # ring k leaves every node from its rank k
        seats = [node * g + (k + 1 + i) % g for node in range(nodes) for i in range(g)]
        for m in placed(schedules.ring_all_reduce(p), seats).moves:
            moves.append(replace(m, chunks=(k * p + m.chunks[0],)))
    return schedules.Schedule("all_reduce", f"{g} rings", p, g * p, tuple(moves))


eight = rings(4, 8)
eight.verify()

# %% name="two_levels"
found = {}
for machine in (dgx, cloud):
    for name in ("ring", "hierarchical", "leader"):
        found[machine.name, name] = simulate("all_reduce", name, p, n, machine).seconds
    found[machine.name, "eight rings"] = run_schedule(eight, n, machine).seconds

# %% name="two_table"
for (machine, name), seconds in found.items():
    print(f"{machine:16}{name:14}{1e3 * seconds:8.1f} ms")

# %% [markdown] name="two_explained"
# On the DGX the two levels and the eight rings use all cards, and win by a factor of four. The leader wins nothing: it carries the whole vector over *its* card. In the cloud there is one card for all, so eight parts through it
# are no better than one, and what the two levels do inside costs PCIe time on top: there the plain ring wins. **Two levels pay where a node has more cards than one ring uses.**
#
# Check the formula, then look at how far this is from what any algorithm needs:

# %% name="formula"
inner, outer = ((link.alpha_s, link.beta_s_per_byte) for link in (dgx.inside, dgx.nic))
two = simulate("all_reduce", "hierarchical", p, n, dgx)
print(f"formula {1e3 * cost.two_level(4, 8, n, inner, outer):.3f} ms, simulated {1e3 * two.seconds:.3f} ms")
print(f"a rank sends {two.bytes_per_rank / 1e9:.3f} GB, in the flat ring {ring.bytes_per_rank / 1e9:.3f} GB")
print(
    f"no algorithm is faster than {1e3 * two.lower_bound_seconds:.1f} ms; busbw {two.busbw_gb_per_s:.0f} GB/s, one card has {dgx.nic.bytes_per_s / 1e9:.0f}"
)

# %% [markdown] name="formula_explained"
# The phases run one after the other here, so inside and between never overlap; a pipelined library gets nearer to the bound. A *bus bandwidth* above a card's is no miracle: a rank sends most of its bytes over NVLink.
#
# NCCL does not offer "hierarchical" by that name. It has many rings at once, a tree that is a chain inside each node and a tree between nodes, and NVLS, where the switch adds.
#
# ## 5. Live: two nodes that are none
#
# One machine can play two. Sub-groups do the same three calls that a job on two nodes would make.

# %% name="live_groups"
# %%ranks
g = max(1, world_size // 2) if world_size % 2 == 0 else 1
node = [dist.new_group(list(range(first, first + g))) for first in range(0, world_size, g)][rank // g]
place = [dist.new_group(list(range(first, world_size, g))) for first in range(g)][rank % g]

x = torch.arange(8.0 * g) + rank
whole, mine = x.clone(), torch.empty(8)
dist.all_reduce(whole)
dist.reduce_scatter_single(mine, x, group=node)
dist.all_reduce(mine, group=place)
dist.all_gather_single(x, mine, group=node)
print(f"place {rank % g} of node {rank // g}: equal {torch.equal(x, whole)}")

# %% [markdown] name="follow_intro"
# To count what crosses, `follow` executes any schedule with real messages. It can also make the link between the "nodes" slow: before such a message it sleeps as long as that link would need.


# %% name="follow"
def follow(schedule, x, node_of, s_per_byte=0.0):
    rank, chunks = dist.get_rank(), x.tensor_split(schedule.chunks)
    for moves in schedule.by_step:
        sending = []
        for move in [m for m in moves if m.src == rank]:
            cargo = torch.cat([chunks[c] for c in move.chunks])
            if node_of[move.dst] != node_of[rank]:
                time.sleep(s_per_byte * cargo.nbytes)
            sending.append((dist.isend(cargo, move.dst), cargo))
        for move in [m for m in moves if m.dst == rank]:
            mine = [chunks[c] for c in move.chunks]
            arriving = torch.empty(sum(map(len, mine)))
            dist.recv(arriving, move.src)
            for part, new in zip(mine, arriving.split([len(part) for part in mine]), strict=True):
                part.add_(new) if move.reduce else part.copy_(new)
        for work, _ in sending:
            work.wait()


# %% [markdown] name="crossing_intro"
# Four plans: the ring in order and round robin, two levels, and **two levels by a program that believes the wrong thing**: it takes neighbours in number for neighbours in space, and the launcher went round robin. **Predict** the bytes that cross
# between the nodes, all ranks together, for $n$ = 480 kB on four ranks. (One of them crosses 960 kB.)

# %% name="guess_crossing"
plans = ("ring in order", "ring, round robin", "two levels", "two levels, wrong")
crossing = {name: FloatText(description=name, style={"description_width": "initial"}) for name in plans}
display(*crossing.values())

# %% name="crossing"
q = world.ranks
g = q // 2 if q % 2 == 0 else 1
m, nbytes = q // g, 480_000
in_order, round_robin = [r // g for r in range(q)], [r % m for r in range(q)]
levels = schedules.hierarchical_all_reduce(q, g)
flat = schedules.ring_all_reduce(q)
pairs = [(flat, in_order), (flat, round_robin), (levels, in_order), (levels, round_robin)]


def summing(schedule, node_of, s_per_byte=0.0, count=nbytes // 4):
    x = torch.full((count,), dist.get_rank() + 1.0)
    follow(schedule, x, node_of, s_per_byte)
    return x[0].item(), x[-1].item()


# %% name="crossing_counted"
for name, (schedule, node_of) in zip(plans, pairs, strict=True):
    results, trace = world.trace(summing, schedule, node_of)
    crossed = sum(message.nbytes for message in trace.messages() if node_of[message.src] != node_of[message.dst])
    right = set(results) == {(q * (q + 1) / 2,) * 2}
    print(f"{name:20} sum right: {right}, crossed {crossed / 1e3:6.0f} kB, you said {crossing[name].value:g}")

# %% [markdown] name="crossing_explained"
# In order, a ring crosses on $m$ of its $p$ hops; round robin on all. Two levels cross $2(m-1)\,n$ in all, evenly over the ranks. And the wrong belief gives the right sum, no warning and a multiple of the traffic: **only a stopwatch or a count
# tells.** (With two ranks, or an odd number, our nodes have one rank each, and all four are alike.)
#
# Now with the slow link: 10 MB/s a rank between the nodes. The same figures go into a topology, and `run_schedule` says beforehand how long each takes. **Predict** how many times slower the wrong belief is than the right one.

# %% name="guess_slow"
guess = FloatText(description="times:")
guess


# %% name="emulated"
def timed(schedule, node_of):
    times = []
    for _ in range(4):
        dist.barrier()
        start = time.perf_counter()
        summing(schedule, node_of, 1 / 10e6)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


alpha = min(distances.values())
near, far = topology.Link("here", alpha, 1e9), topology.Link("slow", alpha, 10e6)
paper = topology.Topology("two nodes", g, near, nic=far, nics_per_node=g)

# %% name="emulated_table"
took = {}
for name, (schedule, node_of) in zip(plans, pairs, strict=True):
    seats = sorted(range(q), key=lambda r: (node_of[r], r))  # who sits first, second, ... node by node
    modelled = run_schedule(placed(schedule, [seats.index(r) for r in range(q)]), nbytes, paper).seconds
    took[name] = max(world.run(timed, schedule, node_of))
    print(f"{name:20} model {1e3 * modelled:6.1f} ms, measured {1e3 * took[name]:6.1f} ms")
print(f"wrong over right: {took['two levels, wrong'] / took['two levels']:.1f} times")

# %% [markdown] name="emulated_explained"
# The model knows the slow link; what it does not know is the time to copy, to wake and to sleep a little longer than asked, which every message adds. The order of the four should be the model's. Note that here the
# round-robin *ring* costs nothing extra, as on the DGX: each rank has a card of its own.
#
# ## 6. Rails, crowded leaves, slow ranks
#
# Cards hang on leaf switches, and leaves on spines by uplinks. To save money there are fewer uplinks than ports: **oversubscription** 4:1 means a quarter. Let a leaf have 32 ports. It can serve all cards of four nodes; or card $k$ of
# *32* nodes, one leaf for each $k$: **rails**.
#
# Eight nodes, 64 ranks, 1 GB, two levels. *Scattered*: the scheduler deals the nodes out so that neighbours never share a leaf. **Predict** which rows stay the same from 1:1 to 8:1.

# %% name="guess_rails"
rows = ("two levels", "two levels, scattered", "two levels, scattered, rails", "one ring, rails")
boxes = [Checkbox(description=row, layout=Layout(width="auto")) for row in rows]
display(*boxes)

# %% name="rails"
levels64, ring64 = schedules.hierarchical_all_reduce(64, 8), schedules.ring_all_reduce(64)
scattered = placed(levels64, [(r // 8 % 2 * 4 + r // 16) * 8 + r % 8 for r in range(64)])
leaves, by_rail = replace(dgx, nodes_per_leaf=4), replace(dgx, nodes_per_leaf=32, rails=True)
designs = [(levels64, leaves), (scattered, leaves), (scattered, by_rail), (ring64, by_rail)]
print(f"{'ms':30}" + "".join(f"{over:7}:1" for over in (1, 2, 4, 8)))
for row, (schedule, machine) in zip(rows, designs, strict=True):
    times = [run_schedule(schedule, n, replace(machine, oversubscription=over)).seconds for over in (1, 2, 4, 8)]
    print(f"{row:30}" + "".join(f"{1e3 * t:9.1f}" for t in times))

# %% [markdown] name="rails_explained"
# Two levels send between nodes only from place $k$ to place $k$. On rails that is one switch: nothing climbs, so uplinks and the order of nodes stop mattering. Without rails the order decides: neighbours below one leaf climb rarely, scattered ones always. The flat ring fits rails badly: it leaves a node
# by card 7 and enters the next by card 0, on another rail, so every hop between nodes climbs.
#
# (NCCL can hand data over NVLink to the GPU whose card is on the right rail before it leaves: PXN.)
#
# **A slow rank.** Rank 5 needs twice as long for each message. **Predict** who suffers: the flat ring, two levels, or both?

# %% name="guess_straggler"
guess = ask("the ring", "two levels", "both")
guess

# %% name="stragglers"
broken = {
    "healthy": dgx,
    "rank 5 slow": dgx.with_straggler(5, 2.0),
    "rank 7 slow": dgx.with_straggler(7, 2.0),
    "card 3 gone": dgx.with_failure("nic", 0, 3),
    "cards half used": dgx.with_background("nic", 0.5),
}
for what, machine in broken.items():
    ring, two = (simulate("all_reduce", name, p, n, machine).seconds for name in ("ring", "hierarchical"))
    print(f"{what:16} ring {1e3 * ring:6.1f} ms   two levels {1e3 * two:6.1f} ms")

# %% [markdown] name="stragglers_explained"
# Rank 5 of the ring sends over NVLink only, and twice as slow is still faster than a card. Rank 7 is the one that leaves the node: there the whole ring halves its pace. Two levels have every rank on the critical path, so any slow one
# counts; and one dead card among 32 makes all wait, since two ranks now share the next. **The fast plan uses everything, so it needs everything to work.** That is why clusters are tested link by link.

# %% [markdown] name="pitfalls"
# ### Before a large job
#
# - **Print who sits where**: rank, host, GPU, card, as in section 1. `LOCAL_RANK` picks the GPU; a launcher that numbers round robin turns "neighbours" into strangers.
# - **The right network.** With several interfaces, NCCL's sockets may pick the slow one: `NCCL_SOCKET_IFNAME`, `NCCL_IB_HCA`; for Gloo `GLOO_SOCKET_IFNAME`.
# - **Let NCCL tell.** `NCCL_DEBUG=INFO` with `NCCL_DEBUG_SUBSYS=GRAPH` prints rings and trees; `NCCL_TOPO_DUMP_FILE` writes what it found. Without peer access (`NCCL_P2P_LEVEL`) or GPUDirect RDMA (`NCCL_NET_GDR_LEVEL`) bytes pass through the host's memory.
# - **Measure in a node and across nodes**, each with nccl-tests. Two nodes may flatter (trees there can beat the card's bandwidth); take more.
#
# ## 7. Yours
#
# In [Barrier and groups](12_barrier_and_groups.ipynb) one group was missing. This is the leader's way, and its sum is right. **Make each rank carry its own part between the nodes.** `check` counts the bytes that leave a node.


# %% name="hierarchical"
def hierarchical_all_reduce(tensor, ranks_per_node):
    rank, p, g = dist.get_rank(), dist.get_world_size(), ranks_per_node
    node = [dist.new_group(list(range(first, first + g))) for first in range(0, p, g)][rank // g]
    leaders = dist.new_group(list(range(0, p, g)))

    whole = tensor.contiguous()
    leader = rank // g * g
    dist.reduce(whole, dst=leader, group=node)
    if rank == leader:
        dist.all_reduce(whole, group=leaders)
    dist.broadcast(whole, src=leader, group=node)
    tensor.copy_(whole)


check(hierarchical_all_reduce)

# %% [markdown] name="hierarchical_answer"
# <details><summary><b>A hint</b></summary>
#
# Sections 4 and 5 have the three calls. Vectors that $g$ does not divide want padding.
# </details>
# <details><summary><b>An answer</b></summary>
#
# ```python
# def hierarchical_all_reduce(tensor, ranks_per_node):
#     rank, p, g = dist.get_rank(), dist.get_world_size(), ranks_per_node
#     node = [dist.new_group(list(range(first, first + g))) for first in range(0, p, g)][rank // g]
#     place = [dist.new_group(list(range(first, p, g))) for first in range(g)][rank % g]
#
#     length = -(-tensor.numel() // g)
#     whole = tensor.new_zeros(g * length)
#     whole[: tensor.numel()] = tensor.flatten()
#     mine = tensor.new_empty(length)
#     dist.reduce_scatter_single(mine, whole, group=node)
#     dist.all_reduce(mine, group=place)
#     dist.all_gather_single(whole, mine, group=node)
#     tensor.copy_(whole[: tensor.numel()].view(tensor.shape))
# ```
# </details>

# %% [markdown] name="quiz"
# ## 8. Check yourself
#
# <details><summary>1. Scattered nodes, no rails, 4:1. How do you get the speed back without new switches?</summary>
#
# Number the nodes leaf by leaf (schedulers have an option for it), so that a ring of nodes climbs once a leaf and not at every hop.
# </details>
#
# <details><summary>2. Eight GPUs and one 100 Gb/s card a node: what does a two-level all-reduce save?</summary>
#
# Messages, hardly bytes: the card carries $2\frac{m-1}{m}n$ either way, a ring's card nearly $2n$.
# </details>
#
# <details><summary>3. Tensor, pipeline and data parallelism on 4 nodes of 8. Which goes where?</summary>
#
# Tensor inside (every layer, can't hide), pipeline and data between (few bytes, or they hide).
# </details>
#
# <details><summary>4. The busbw that you measure on two nodes is 50 GB/s, on a machine with eight 50 GB/s cards. First suspicion?</summary>
#
# One card of eight is used: one ring, or seven cards that NCCL did not find.
# </details>

# %% [markdown] name="recap"
# ## Recap
#
# A collective moves at the pace of its slowest link, so count what crosses it and who shares it. Two levels let every rank carry $n/g$ between nodes over its own card; that pays where cards are many, and only if the program's idea of a node is the launcher's.
# Rails serve such plans; a slow rank or a dead card slows all. **Find the slowest link, and send little over it, over as many cards as there are.**
#
# **Now you:** [Lab 4](../labs/lab04_algorithms/algorithms.ipynb) marks it by the bytes that leave a node.
#
# **Next question:** and when it does not run slowly, but not at all? [When it hangs](20_when_it_hangs.ipynb)
#
# **Sources.** [NVIDIA, nvidia-smi](https://docs.nvidia.com/deploy/nvidia-smi/index.html) (`topo`) ·
# [NVIDIA, NCCL user guide: environment variables](https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html) ·
# [NVIDIA, NCCL, topo.h](https://github.com/NVIDIA/nccl/blob/master/src/graph/topo.h) (371 GB/s) ·
# [NVIDIA, nccl-tests PERFORMANCE.md](https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md) ·
# W. Wang et al., *Rail-only: a low-cost high-performance network for training LLMs with trillion parameters*, [arXiv:2307.12169](https://arxiv.org/abs/2307.12169) ·
# H. Mikami et al., *Massively distributed SGD: ImageNet/ResNet-50 training in a flash*, [arXiv:1811.05233](https://arxiv.org/abs/1811.05233) (2D torus: two levels of rows and columns)

# %% name="stop_world"
world.stop()
