"""The constants of NCCL 2.30.7's tuner, each with its place in NVIDIA/nccl (tag v2.30.7-1).

They are what NCCL *expects*, and by which it chooses; docs/cost_model.md says how far measurements agree.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from allranks.theory.cost.terms import CostError

PROTOCOLS = ("LL", "LL128", "Simple")
GENERATIONS = ("Volta", "Ampere", "Hopper", "Blackwell")

# GB/s that NCCL expects of all NVLinks of one GPU together: src/graph/topo.h; an H200 has an H100's links
NVLINK_GB_PER_S = {"V100": 120.0, "A100": 240.0, "H100": 371.0, "H200": 371.0, "B200": 722.0}

# microseconds before the first step, by algorithm, for LL, LL128 and Simple: src/graph/tuning.cc, lines 148 to 155
BASE_US = {
    "tree": (6.8, 14.0, 8.4),
    "ring": (6.6, 14.0, 8.4),
    "nvls": (0.0, 0.0, 0.0),
    "nvls_tree": (0.0, 0.0, 0.0),
    "pat": (8.0, 8.0, 8.0),
    "collnet_direct": (0.0, 0.0, 0.0),
    "collnet_chain": (0.0, 0.0, 0.0),
}

# microseconds of one step over each kind of link: src/graph/tuning.cc, the lines after the base latencies
HOP_US = {
    "NVLink": {"tree": (0.6, 1.25, 4.0), "ring": (0.6, 1.9, 3.4), "nvls": (0.0, 0.0, 25.0),
               "nvls_tree": (0.0, 0.0, 25.0), "pat": (0.0, 0.0, 4.0),
               "collnet_direct": (0.0, 0.0, 3.7), "collnet_chain": (0.0, 0.0, 2.8)},
    "PCIe": {"tree": (1.0, 1.9, 4.0), "ring": (1.0, 2.5, 5.7), "nvls": (0.0, 0.0, 0.0),
             "nvls_tree": (0.0, 0.0, 0.0), "pat": (0.0, 0.0, 4.0),
             "collnet_direct": (0.0, 0.0, 3.7), "collnet_chain": (0.0, 0.0, 2.8)},
    "network": {"tree": (5.0, 8.5, 14.0), "ring": (2.7, 4.0, 14.0), "nvls": (0.0, 0.0, 18.0),
                "nvls_tree": (0.0, 0.0, 20.9), "pat": (0.0, 0.0, 14.0),
                "collnet_direct": (0.0, 0.0, 31.0), "collnet_chain": (0.0, 0.0, 30.0)},
}  # fmt: skip

# most GB/s, by generation, on one node, on two, and on three or more: src/graph/tuning.cc, lines 177 to 211.
# LL's is a total; the others are for each channel.
LL_MOST = {
    "Volta": (39.0, 39.0, 20.4),
    "Ampere": (87.7, 22.5, 19.0),
    "Hopper": (141.0, 45.0, 35.0),
    "Blackwell": (282.0, 90.0, 70.0),
}
RING_LL128_MOST = {
    "Volta": (20.0, 20.0, 20.0),
    "Ampere": (20.0, 20.0, 20.0),
    "Hopper": (36.7, 36.7, 36.7),
    "Blackwell": (40.0, 40.0, 40.0),
}
TREE_LL128_MOST = {
    "Volta": (20.0, 20.0, 20.0),
    "Ampere": (20.0, 20.0, 20.0),
    "Hopper": (36.7, 36.7, 29.0),
    "Blackwell": (55.6, 31.67, 20.0),
}
TREE_MOST = {
    "Volta": (26.5, 18.5, 10.0),
    "Ampere": (24.0, 23.6, 17.8),
    "Hopper": (38.7, 41.4, 36.0),
    "Blackwell": (70.0, 42.8, 24.0),
}
NVLS_TREE_MOST = {
    "Volta": (0.0, 0.0, 0.0),
    "Ampere": (0.0, 0.0, 0.0),
    "Hopper": (0.0, 57.7, 45.5),
    "Blackwell": (0.0, 96.0, 80.0),
}
NVLS_EFFICIENCY = {"Volta": 0.0, "Ampere": 0.0, "Hopper": 0.85, "Blackwell": 0.74}

# what a tree really reaches of its bandwidth, for messages of 64 B, 128 B, ... 256 MiB: src/graph/tuning.cc, lines 623 to 627
TREE_CORRECTION = {
    "LL": (1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1, 1),
    "LL128": (1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1, 1),
    "Simple": (.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9, .9),
}  # fmt: skip

NET_OVERHEAD_US = {"Intel": 1.0, "AMD": 2.0, "Arm": 1.0}  # to post a message: src/graph/tuning.cc, line 228
RING_LL128_SHARE = 0.92
TREE_SHARE = 0.92
TREE_LL_PART = 3.8
TREE_LL128_SHARE = (7 / 9, 120 / 128)  # on one node, on several
TREE_PATTERN_SHARE = 0.85  # where a node's tree has two ends at the network: line 353
COLLNET_RANK_US = 0.4  # of each rank of a node, to serialize its parts
COLLNET_NET_SHARE = 0.9  # of a card's bandwidth, in all_gather and reduce_scatter
COLLNET_HOPPER_SHARE = 0.85
PAT_SHARE = 0.75
PAT_LATENCY_PART = 3.5
PAT_LINEAR_US = 2.8  # a rank: line 433
RING_PLATEAU = {"Volta": 1.9, "Ampere": 1.4, "Hopper": 1.4, "Blackwell": 1.4}  # line 647
RING_PLATEAU_NBYTES = 64  # a channel and rank
NVLS_MOST_RANKS = 32  # in a node, for all_gather and reduce_scatter: NCCL_MAX_NVLS_ARITY

# bytes a thread must have, and the threads of a channel: src/include/comm.h, lines 49 to 51, and device.h, lines 93 to 114
THREAD_NBYTES = {"LL": 8, "LL128": 8, "Simple": 64}
THREADS = {"LL": 512, "LL128": 640, "Simple": 512}
CHANNEL_TRAFFIC_NBYTES = 32 << 10  # src/enqueue.cc, line 585

Most = dict[str, tuple[float, float, float]]


@dataclass(frozen=True)
class Version:
    """What changes between versions of NCCL: caps in GB/s of a channel, and microseconds of a hop of NVLSTree between nodes.

    >>> from allranks.theory.cost.nccl_tables import version_of
    >>> version_of("2.27").tree_most["Blackwell"], version_of("2.30").tree_most["Blackwell"]
    ((77.4, 82.8, 72.0), (70.0, 42.8, 24.0))
    """

    number: str
    ring_ll128_most: Most
    tree_ll128_most: Most
    tree_most: Most
    nvls_tree_most: Most
    nvls_tree_net_us: float


VERSION = "2.30"
# src/graph/tuning.cc at the tags v2.27.7-1 and v2.30.7-1
VERSIONS = {
    "2.27": Version(
        "2.27.7",
        RING_LL128_MOST | {"Blackwell": (73.4, 73.4, 73.4)},
        TREE_LL128_MOST | {"Blackwell": (73.4, 73.4, 58.0)},
        TREE_MOST | {"Blackwell": (77.4, 82.8, 72.0)},
        dict.fromkeys(GENERATIONS, (math.inf, math.inf, math.inf)),
        14.0,
    ),
    "2.30": Version("2.30.7", RING_LL128_MOST, TREE_LL128_MOST, TREE_MOST, NVLS_TREE_MOST, 20.9),
}


def version_of(name: str) -> Version:
    """The constants of a version of NCCL. Raises CostError for one whose source is not known here.

    >>> from allranks.theory.cost.nccl_tables import version_of
    >>> version_of("2.30").number
    '2.30.7'
    """
    if name not in VERSIONS:
        raise CostError(
            f"NCCL {name} is not known: the tables are of {', '.join(VERSIONS)}, and no later tag of the public source was read"
        )
    return VERSIONS[name]
