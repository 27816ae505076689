# %% [markdown] name="title"
# # The network
#
# {{here}}
#
# **Every card does its 400 Gb/s when you test it alone. With all cards sending at once, some messages take three times as long, each day other ones. Nothing is
# broken. And then one cable is. How do you tell the two apart, from nothing but the ranks' times?**
#
# {{picture}}
#
# Four messages leave a leaf switch. It has four uplinks, one to each spine switch above; a hash has sent two messages the same way, and one uplink
# carries nothing.

# %% name="flows"
from allranks import explore

explore.flows(ranks=8, seed=2)

# %% [markdown] name="first_question"
# **Ask the picture.** There are as many spines as ranks. Drag the first slider: with how many hashes does no rank share an uplink? Then drag the second one.

# %% name="start_world"
import random
from dataclasses import replace
from itertools import permutations
from statistics import fmean

import torch
import torch.distributed as dist

from allranks import World, bench, check, plots, predict, predictions, simulate, topology

world = World()
world

# %% [markdown] name="collide"
# ## 1. Two flows, one cable
#
# Cards hang on **leaf** switches, leaf switches on **spine** switches. A message to another leaf can go over any spine. All packets of one flow should go the same
# way, so that they arrive in order. So an Ethernet switch computes a hash of the numbers in the packet's headers, and the hash chooses the uplink (**ECMP**, equal-cost
# multipath). The hash knows nothing of load. (An InfiniBand switch has a table instead: one uplink for each destination. It knows nothing of load either.)
#
# Now 128 ranks of one leaf each send to a rank of another leaf, over 128 spines.
# <!-- ECMP by a hash of header fields: RFC 2992 (2000); that it collides for the few large flows of training: Gangidi et al., "RDMA over Ethernet for Distributed AI
# Training at Meta Scale", SIGCOMM 2024, and Llama 3, arXiv:2407.21783, section 3.3.1. InfiniBand: a switch forwards by the destination LID, InfiniBand Architecture Specification,
# volume 1, chapter 18; NCCL gives a queue pair one LID, NCCL 2.30.7 src/transport/net_ib/connect.cc 420 -->

# %% name="guess_collisions"
collisions = predict(
    "128 flows, 128 spines, a hash: the slowest flow takes how many times as long as one alone, in the mean?",
    low=1.0,
    high=16.0,
    title="128 flows on 128 spines: the slowest, times one alone",
)
collisions

# %% [markdown] name="flows_code"
# Each hash is that of another start of the job, with other port numbers. This is all that the picture computes:


# %% name="loads"
def slowest(flows, spines, seed, parts=1):
    """Vectors over the busiest uplink, if each flow is cut in so many parts, and each part is hashed."""
    on = [0.0] * spines
    for rank in range(flows):
        for part in range(parts):
            on[topology.hashed_spine(rank, flows + rank, part, seed, spines)] += 1 / parts
    return max(on)


seeds = range(1000)
for p in (2, 8, 32, 128):
    times = [slowest(p, p, seed) for seed in seeds]
    print(
        f"{p:4} flows, {p:4} spines: x {fmean(times):.2f} in the mean, at worst x {max(times):.0f}",
        end="; ",
    )
    print(f"nobody shares with {100 * fmean(t == 1 for t in times):.1f} % of the hashes")

# %% name="reveal_collisions" jupyter={"source_hidden": true}
# the answer: run this cell
collisions.reveal(
    fmean(times),  # of 128 flows
    why="The more balls are thrown into as many boxes, the more are in the fullest box. A ring waits for its slowest hop, so all ranks wait for that uplink.",
)

# %% [markdown] name="collide_explained"
# So a larger network, with as many spines for each rank, does not help. A web server does not notice collisions, because it has thousands of small flows that average
# out. A training job has few flows, and each of them fills a card.
#
# Three remedies follow: more flows (section 3), a switch that looks at the load (4), and ways that nobody shares (6).
#
# ## 2. What NCCL asks of the card
#
# With InfiniBand and RoCE the unit is the **queue pair**: a queue of work to send and one to receive, in the card's memory, joined to a queue pair of the other side.
# A thread of the CPU (the proxy, [Inside NCCL](43_inside_nccl.ipynb)) posts the work; the card reads the GPU's memory and sends. The operating system is not asked, and no byte passes through the CPU's
# memory: that is **RDMA**.
#
# 1. The receiver's proxy writes to the sender: *slot 3 is free, this is its address*. A small message, called the clear-to-send.
# 2. The sender's card *writes* into that slot, and the last write carries a number. The receiver's CPU and GPU have no part in it.
# 3. The number appears in the receiver's completion queue. Its proxy tells the kernel on the GPU.
#
# The queue pairs are *reliable connections*: the card counts packets, repeats lost ones, and reports an error when it has repeated often enough.
# <!-- NCCL 2.30.7 src/transport/net_ib/connect.cc 648, 1157 (IBV_QPT_RC); p2p.cc 100, 144 (RDMA_WRITE, RDMA_WRITE_WITH_IMM as the last); the clear-to-send is the fifo
# of p2p.cc, documented with NCCL_IB_FIFO_TC in docs/userguide/source/env.rst 355. Without GPUDirect RDMA the bytes go through host memory: env.rst 1113. Read 2026-11 -->
#
# ## 3. Many queue pairs
#
# On Ethernet, RDMA is wrapped in UDP (**RoCE v2**, port 4791). The card makes the UDP source port from the numbers of the two queue pairs, to give the hash something to work with.
# So another queue pair is another flow, and may get another uplink. (On InfiniBand it has the same destination, so it takes the same way.) `NCCL_IB_QPS_PER_CONNECTION` (default 1) gives each connection several. With
# `NCCL_IB_SPLIT_DATA_ON_QPS=1` each message is cut over all of them; by default (since 2.20) they take messages in turn.
# <!-- port 4791 and the source port as entropy: InfiniBand Architecture Specification, Annex A17 (RoCEv2, 2014); NCCL sets flow_label 0 (connect.cc 416), and Linux' rdma_get_udp_sport then takes both QP
# numbers (include/rdma/ib_verbs.h); env.rst 1011-1030 (2.30.7): defaults 1 and 0 -->

# %% name="guess_pairs"
pairs = predict(
    "The 128 flows again, with eight queue pairs for each connection: how many times as long does the slowest take now?",
    low=1.0,
    high=6.0,
    title="With eight queue pairs: the slowest, times one alone",
)
pairs

# %% name="queue_pairs"
figure, axes = plots.chart("queue pairs a connection", "the slowest flow, times one alone")
counts = [1, 2, 4, 8, 16, 32]
for p in (8, 32, 128):
    mean = {parts: fmean(slowest(p, p, seed, parts) for seed in range(60)) for parts in counts}
    axes.semilogx(counts, list(mean.values()), marker="o", label=f"{p} flows, {p} spines")
axes.set(xticks=counts, xticklabels=counts, ylim=(1, None))
axes.legend()
figure

# %% name="reveal_pairs" jupyter={"source_hidden": true}
# the answer: run this cell
pairs.reveal(
    mean[8],  # of 128 flows
    why="1,024 small parts spread more evenly than 128 large ones, but by chance some uplink still gets about twice its share.",
)

# %% [markdown] name="queue_pairs_explained"
# It helps and is not free: the card keeps a state for each queue pair, and in split mode a small message becomes many. Meta's Llama 3 cluster used 16 flows between
# two GPUs and switches that hash further header fields.
# <!-- Llama 3, arXiv:2407.21783, section 3.3.1, "Load balancing": 16 network flows between two GPUs, E-ECMP; the cost in latency of split mode: env.rst 1022 -->
#
# ## 4. Adaptive routing
#
# The other remedy: a flow need not stay on one way. With **adaptive routing** the switch sends *each packet* over the emptiest uplink (in the first picture: the
# other button). Packets then arrive in another order, and a number that says "all is there" must not overtake the data. So above 8 KiB (`NCCL_IB_AR_THRESHOLD`) NCCL writes
# the data first and sends the number in a message of its own. NCCL sends in this manner by default on InfiniBand, not on RoCE (`NCCL_IB_ADAPTIVE_ROUTING`). The switches must
# be set up for it too: on InfiniBand, for the service level that NCCL uses (`NCCL_IB_SL`).
# <!-- env.rst 987, 1058 (2.30.7); src/transport/net_ib/init.cc 441 (ar = 1 if the link layer is InfiniBand); p2p.cc 132-145 -->
#
# <details><summary>On Amazon's EFA: a cloud without queue pairs</summary>
#
# **EFA** has no connected queue pairs to spread: its protocol, SRD, sends the packets of each message over many ways, delivers them in any order, and leaves the order to software.
# NCCL does not speak it. A **net plugin** does: `libnccl-net.so`, here `aws-ofi-nccl`, turns NCCL's connections into **libfabric**'s reliable datagrams. It cuts a message above
# 128 KiB into parts of at least about this size, and shares them out over the GPU's cards. If the plugin is not found, NCCL takes what it has itself, in the end TCP sockets, and only the log says so (`NCCL_NET_PLUGIN`, `NCCL_NET`).
# </details>
# <!-- SRD: Shalev et al., "A Cloud-Optimized Transport Protocol for Elastic and Scalable HPC", IEEE Micro 2020; aws-ofi-nccl 2daf7d3 (2026-08-12): README.md (maps connections to
# libfabric's connection-less reliable interface, FI_EP_RDM), include/nccl_ofi_param.h 160 (min_stripe_size 128 KiB), src/nccl_ofi_scheduler.cpp 47 (number of stripes); how NCCL looks for plugins: env.rst 451 -->
#
# ## 5. Full queues
#
# Two flows share an uplink that carries one. The other bytes go into the switch's queue, which grows. With TCP the switch drops packets, and the sender slows down. RDMA cards of the first generations send *everything* from the lost packet on again, so the switch must not drop:
#
# - **PFC** (priority flow control): a switch that is nearly full tells the port before it to *pause*, for one priority. The pause travels backwards, and stops flows that never wanted the full link.
# - **ECN**: long before, the switch marks packets. The receiver's card tells the sender's, which slows down (the DCQCN algorithm). Then PFC is only the last resort.
# - **InfiniBand** needs neither: a port sends only if the next one has granted it space (credits). But a port that is full grants nothing, so here, too, the waiting spreads back to the senders.
#
# So all your traffic must be in the class for which the network has these rules. NCCL marks its packets with `NCCL_IB_TC` (and `NCCL_IB_SL` on InfiniBand). The default is 0, which on
# many RoCE networks is the class *without* rules. A wrong traffic class shows only under load.
# <!-- PFC: IEEE 802.1Qbb (2011); pauses that spread: Guo et al., "RDMA over Commodity Ethernet at Scale", SIGCOMM 2016 (also go-back-N); DCQCN: Zhu et al., SIGCOMM 2015;
# NCCL_IB_TC, NCCL_IB_SL default 0: env.rst 329-353. Meta ran 400G RoCE without DCQCN, with the receiver's clear-to-send as admission: Gangidi et al., SIGCOMM 2024 -->
#
# <details><summary>On RoCE: which address of the card?</summary>
#
# A card has several addresses, its **GIDs** (v1 or v2, IPv4 or IPv6, one for each VLAN), and both sides must use the same kind. `NCCL_IB_GID_INDEX` was needed once;
# since 2.21 NCCL looks for one itself: IPv4 and version 2. An index copied from another cluster is a common cause of "no route" and timeouts.
# </details>
# <!-- env.rst 277-325: default -1 (chosen by NCCL); NCCL_IB_ADDR_FAMILY AF_INET and NCCL_IB_ROCE_VERSION_NUM 2, since 2.21 -->
#
# ## 6. Rails
#
# A flow that needs no uplink can't share one. On **rails**, card $k$ of all nodes is on leaf switches of its own ([Topology](40_topology.ipynb)). NCCL builds rings that stay on one card number
# (`NCCL_CROSS_NIC`), and for a message to another card number it first copies over NVLink to the GPU whose card is on the right rail (**PXN**). Eight nodes with two cards each, every rank sends to the
# next node, same card:
# <!-- env.rst 147-171 (NCCL_CROSS_NIC, default 2: the same card if it is not slower), 1351-1373 (PXN, since 2.12) -->

# %% name="rails"
dgx, n = topology.preset("dgx-h100"), 10**9
pods = topology.Topology("pods", 2, dgx.inside, dgx.nic, nics_per_node=2, nodes_per_leaf=2)
neighbours = [(rank, (rank + 2) % 16) for rank in range(16)]
alone = n / dgx.nic.bytes_per_s
for name, design in (("pods", pods), ("rails", replace(pods, nodes_per_leaf=8, rails=True))):
    fabrics = [topology.hashed_fabric(design, 16, seed) for seed in range(100)]
    up = sum(any(cable[0] == "up" for cable in fabrics[0].route(*flow)) for flow in neighbours)
    times = [max(topology.flow_seconds(fabric, neighbours, n)) / alone for fabric in fabrics]
    print(
        f"{name:6} {up:2} of 16 flows use an uplink; the slowest takes x {fmean(times):.2f} in the mean of 100 hashes"
    )

# %% [markdown] name="rails_explained"
# On rails below one leaf no flow can collide with another, whatever the hash. But this holds only if card $k$ sends to card $k$: from card 0 straight to card 1, without PXN, every flow would need an uplink.
#
# ## 7. A cable that is gone
#
# A cable is pulled, and no acknowledgement comes. The card waits (`NCCL_IB_TIMEOUT`), sends again, and gives up after `NCCL_IB_RETRY_CNT` repetitions.

# %% name="guess_gone"
gone = predict(
    "With NCCL's defaults: how long after a cable is pulled does the card report an error?",
    low=0.01,
    high=1000,
    unit="s",
    log=True,
    title="From the pulled cable to the error",
)
gone

# %% name="timeout"
for exponent, retries in ((14, 7), (18, 7), (20, 7), (22, 7)):
    seconds = 4.096e-6 * 2**exponent * retries
    print(f"NCCL_IB_TIMEOUT={exponent}, NCCL_IB_RETRY_CNT={retries}: {seconds:6.1f} s")

# %% name="reveal_gone" jupyter={"source_hidden": true}
# the answer: run this cell
gone.reveal(
    4.096e-6 * 2**20 * 7,
    why="One wait is 4.096 microseconds times two to the 20th, about 4.3 seconds, and there are seven repetitions.",
)

# %% [markdown] name="gone_explained"
# (Timeout 20 is the default since 2.23; it was 18 since 2.14, and 14 before. The card may round the time up.) A link that comes back within this time, a **flap**, costs a pause and no error.
# Longer, and the communicator is lost: go on without the node ([Survive](46_survive.ipynb)).
# <!-- env.rst 208-275: 4.096 us * 2^timeout, the product with the count, the defaults -->
#
# Unless the GPU has a second port. NCCL can join the ports of one GPU to one device (NIC fusion), and since 2.29.7 (2026-02) `NCCL_IB_RESILIENCY_PORT_FAILOVER=1` lets it go on over the other port; since
# 2.30 (2026-04) `NCCL_IB_RESILIENCY_PORT_RECOVERY=1` takes the first one back when it works again. Both are off by default.
# <!-- NCCL 2.30.7 src/transport/net_ib/p2p_resiliency.cc 13, p2p_resiliency_recovery.cc 10 (default 0); nccl pull 2023 (2.29.5a2: only fused devices), issue 2044 (recovery in 2.30), roadmap issue 2090 -->
#
# ## 8. A cable that is slow
#
# A dirty connector is worse. The port is up and every message arrives, but packets are repeated, or the port fell back to half its rate. Often only *one direction* is slow, since each has its own fibre.

# %% name="guess_slow"
slow = predict(
    "1 GB, 32 GPUs, rings over all 32 cards. One cable has half its rate. How many times as long is the all-reduce?",
    low=1.0,
    high=4.0,
    title="One of 32 cables at half its rate: all-reduce",
)
slow

# %% name="slow_cable"
took = {}
for name in ("ring", "ring channels", "hierarchical"):
    well, ill = (simulate("all_reduce", name, 32, n, m).seconds for m in (dgx, dgx.with_slow_nic(0, 3, 2.0)))
    took[name] = ill / well
    print(f"{name:14} {1e3 * well:5.1f} ms, with one slow cable {1e3 * ill:5.1f} ms: x {ill / well:.2f}")

# %% name="reveal_slow" jupyter={"source_hidden": true}
# the answer: run this cell
slow.reveal(
    took["ring channels"],
    within=0.2,
    why="One of eight rings runs at half speed, and the call ends with its slowest ring: 31 healthy cables wait. It is not quite twice, because healthy rings wait for NVLink (371 GB/s), not for the eight cards (400 GB/s together). (One single ring does not use card 3.)",
)

# %% [markdown] name="plant"
# Which cable? No rank sees a cable: a rank sees how long *its message* took. We plant one, in a network with four leaf switches, and measure with noise. The next cell hides it from you; `seed` draws another one.


# %% name="planted"
seed = 7
secret = random.Random(seed)
healthy = topology.hashed_fabric(pods, 16, seed=seed)
cables = list(topology.cable_names(healthy))
hidden = secret.choice(cables)
sick = healthy.with_slow_link(2, hidden)
ways = [[[cables.index(c) for c in healthy.route(a, b) if c in cables] for b in range(16)] for a in range(16)]


def send_all(flows):
    """Sends 1 GB over each flow, all at once: (src, dst, seconds) of each, up to 3 % too long."""
    times = topology.flow_seconds(sick, flows, n)
    return [(a, b, s * (1 + 0.03 * secret.random())) for (a, b), s in zip(flows, times, strict=True)]


print(
    f"{len(cables)} cables, counting directions, for example: {topology.cable_names(healthy)[cables[40]]}",
)

# %% [markdown] name="alone"
# **One pair at a time** is the textbook's way: nobody shares, so a slow message has a bad cable on its way. What do the slow ones have in common?

# %% name="alone_measured"
between = [(a, b) for a, b in permutations(range(16), 2) if ways[a][b]]
singles = [send_all([flow])[0] for flow in between]
typical = sorted(s for _, _, s in singles)[len(singles) // 2]
late = [set(ways[a][b]) for a, b, s in singles if s > 1.3 * typical]
common = set.intersection(*late)
print(f"{len(singles)} messages one after the other, {sum(s for *_, s in singles):.1f} s; {len(late)} are slow")
print("all slow ones use:", *(topology.cable_names(healthy)[cables[c]] for c in common), sep="\n  ")

# %% [markdown] name="alone_explained"
# That names it. But the number of pairs grows with the square: 16 ranks have 224 pairs between nodes, 16,384 ranks have 268 million of all kinds. And many bad cables show only under load. So measure **many at once**, in rounds: in each
# round every rank sends to one other and receives from one other, a *permutation*. Then flows share uplinks, and a healthy one looks slow too:

# %% name="rounds_measured"
rounds = []
for _ in range(40):
    order = secret.sample(range(16), 16)
    rounds.append(send_all([(a, b) for a, b in enumerate(order) if ways[a][b]]))
slow_ones = [(a, b) for flows in rounds for a, b, s in flows if s > 1.3 * typical]
passing = sum(cables.index(hidden) in ways[a][b] for a, b in slow_ones)
print(f"{sum(map(len, rounds))} messages in {len(rounds)} rounds, {len(slow_ones)} are slow")
print(f"the hidden cable is on the way of {passing} of them")

# %% [markdown] name="your_turn"
# ### Your turn: find the bad cable
#
# You have `ways[src][dst]`, the numbers of the cables of each way, and `rounds`, lists of `(src, dst, seconds)` of messages that were sent at once. Return the number of the bad cable. The version below takes the cable with the longest mean.
# The check has other networks, also with rails, with messages that are late because a computer was busy, and with a healthy cable that many flows always share.


# %% name="find_bad_cable"
def find_bad_cable(ways, rounds):
    times = {}
    for flows in rounds:
        for src, dst, seconds in flows:
            for cable in ways[src][dst]:
                times.setdefault(cable, []).append(seconds)
    return max(times, key=lambda cable: sum(times[cable]) / len(times[cable]))  # your turn


# %% name="check"
check(find_bad_cable)

# %% [markdown] name="find_answer"
# <details><summary><b>A hint</b></summary>
#
# Count in each round how many flows use each cable. If four flows share a cable, each gets a quarter of it. So divide a flow's time by the number of flows on the cable: the cable is *at least* as fast as that. One flow that was quick enough
# shows for ever that a cable is good.
# </details>
# <details><summary><b>An answer</b></summary>
#
# ```python
# from collections import Counter
#
# def find_bad_cable(ways, rounds):
#     most = {}
#     for flows in rounds:
#         sharing = Counter(cable for src, dst, _ in flows for cable in ways[src][dst])
#         for src, dst, seconds in flows:
#             for cable in ways[src][dst]:
#                 most[cable] = min(most.get(cable, seconds), seconds / sharing[cable])
#     return max(most, key=most.get)
# ```
# </details>
#
# Measure your own ranks in rounds, as on a cluster. On one machine they share one memory or one switch, so differences are chance:


# %% name="own_rounds"
def one_round(k, x, y):
    rank, p = dist.get_rank(), dist.get_world_size()
    ops = [dist.P2POp(dist.isend, x, (rank + k) % p), dist.P2POp(dist.irecv, y, (rank - k) % p)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()


def all_rounds():
    x, y = torch.ones(2**20), torch.empty(2**20)
    return bench.seconds_of(*(lambda k=k: one_round(k, x, y) for k in range(1, dist.get_world_size())))


for k, seconds in enumerate(world.run(all_rounds)[0], 1):
    print(f"each rank to the one {k} further on: {1e3 * seconds:.2f} ms")

# %% [markdown] name="own_cluster"
# ## 9. On your own cluster
#
# | you ask | command | look at |
# |---|---|---|
# | which network? | `NCCL_DEBUG=INFO` | `NET/IB : Using [0]mlx5_0:1/RoCE` or `/IB`, a plugin's name, or, too slow, `NET/Socket` |
# | GPUDirect? | the same log | `via NET/IB/0/GDRDMA`; without `GDRDMA` bytes pass through host memory |
# | is the port healthy? | `ibstat`, `ibstatus`; EFA: `fi_info -p efa` | state Active, and the *rate* |
# | which GIDs? | `show_gids` | the v2 entry with your IPv4 address |
# | is it retransmitting? | `rdma statistic`, before and after a run | `packet_seq_err`, `local_ack_timeout_err`, `rnr_nak_retry_err` that grow |
# | pauses? | `ethtool -S eth0` | counters of pause frames of your priority (their names differ by driver) |
# | the cable itself | `mlxlink -d DEVICE` | width, speed, errors |
# | one pair | `ib_write_bw -d mlx5_0 -a`, on the other side with the host's name; `--use_cuda=0` from GPU memory | against the line rate |
# | all pairs, in rounds | nccl-tests' `sendrecv_perf` on pairs of nodes, then other pairs | the one that is slow *in every pairing* |
# | the adapters | `NCCL_IB_HCA==mlx5_0,mlx5_1` | with `=`, or `mlx5_1` also means `mlx5_10` |
# <!-- commands and counters: NCCL 2.30.7 docs/userguide/source/troubleshooting/networking_troubleshooting.rst; NCCL_IB_HCA: env.rst 174-205; the log lines: src/transport/net_ib/init.cc, nccl issue 133 -->
#
# First measure pairs with half of the nodes against the other half, then change the pairs: a node that is slow with every partner has a bad card or cable; nodes that are slow only across leaves have a bad uplink; what is
# slow today and not tomorrow is the hash.
#
# ## 10. Check yourself
#
# <details><summary>1. The all-reduce takes 10 ms or 20 ms from one start of the job to the next, on the same nodes. What do you suspect, and what do you try?</summary>
#
# Collisions: new queue pairs have new ports, and the hash deals anew. Try more queue pairs for each connection, adaptive routing if switches and cards have it, and see whether ranks are placed along the rails.
# </details>
#
# <details><summary>2. One message in a thousand takes 4 s longer, and there is no error. Which number tells you why?</summary>
#
# 4.3 s is one local ack timeout with `NCCL_IB_TIMEOUT=20`, and `local_ack_timeout_err` of `rdma statistic` counts it. The *last* packet of a message, or its acknowledgement, was lost. If another one is lost, the
# receiver sees a gap in the numbers and asks at once (`packet_seq_err`).
# </details>
#
# <details><summary>3. A cluster with EFA reaches a twentieth of the expected bandwidth. What do you look for first?</summary>
#
# The plugin: `NET/Socket` in the log. `libnccl-net.so` was not found in the container.
# </details>

# %% [markdown] name="recap"
# ## Recap
#
# A message between nodes is a write by a card into memory that the receiver has granted. A hash chooses its uplink, and a call waits for the uplink that got most. More queue pairs and adaptive routing even this out; rails avoid it. A dead
# cable is an error after half a minute; a slow one is no error at all. **Count who shares each cable before you call it bad: a flow's time, divided by the number of flows, shows how fast the cable is at least.**
#
# **Now you:** [Lab 23](../../labs/lab23_bad_cable/bad_cable.ipynb) grades your search for the cable.
#
# **Next question:** what does the library do with such a network? [Inside NCCL](43_inside_nccl.ipynb). Then go back to [Your own job](48_your_own_job.ipynb).
#
# **Sources.** [NVIDIA, NCCL user guide: environment variables](https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html) and its networking troubleshooting, NCCL 2.30.7 (2026-06) ·
# [NVIDIA, NCCL, src/transport/net_ib](https://github.com/NVIDIA/nccl/tree/master/src/transport/net_ib) ·
# [aws-ofi-nccl](https://github.com/aws/aws-ofi-nccl) (2026-08) ·
# A. Gangidi et al., *RDMA over Ethernet for distributed AI training at Meta scale*, SIGCOMM 2024 ·
# Llama team, *The Llama 3 herd of models*, [arXiv:2407.21783](https://arxiv.org/abs/2407.21783), section 3.3 ·
# Y. Zhu et al., *Congestion control for large-scale RDMA deployments*, SIGCOMM 2015 (DCQCN) ·
# C. Guo et al., *RDMA over commodity Ethernet at scale*, SIGCOMM 2016 ·
# L. Shalev et al., *A cloud-optimized transport protocol for elastic and scalable HPC*, IEEE Micro 2020 (SRD)

# %% name="what_you_knew"
predictions()

# %% name="stop_world"
world.stop()

# %% name="done"
from allranks import done

done("49")
