"""The times that NCCL 2.30.7's tuner predicts for an all-reduce (src/graph/tuning.cc and topo.h)."""

from __future__ import annotations

import math

from allranks.cost.terms import CostError, check_size

# NCCL 2.30.7: microseconds that a call takes before its first step, by (algorithm, protocol) (src/graph/tuning.cc).
NCCL_BASE_US = {("tree", "LL"): 6.8, ("tree", "LL128"): 14.0, ("tree", "Simple"): 8.4,
                ("ring", "LL"): 6.6, ("ring", "LL128"): 14.0, ("ring", "Simple"): 8.4}  # fmt: skip
# NCCL 2.30.7: microseconds of one step over each kind of link, by (algorithm, protocol) (src/graph/tuning.cc).
NCCL_HOP_US = {
    "NVLink": {("tree", "LL"): 0.6, ("tree", "LL128"): 1.25, ("tree", "Simple"): 4.0,
               ("ring", "LL"): 0.6, ("ring", "LL128"): 1.9, ("ring", "Simple"): 3.4},
    "PCIe": {("tree", "LL"): 1.0, ("tree", "LL128"): 1.9, ("tree", "Simple"): 4.0,
             ("ring", "LL"): 1.0, ("ring", "LL128"): 2.5, ("ring", "Simple"): 5.7},
    "network": {("tree", "LL"): 5.0, ("tree", "LL128"): 8.5, ("tree", "Simple"): 14.0,
                ("ring", "LL"): 2.7, ("ring", "LL128"): 4.0, ("ring", "Simple"): 14.0},
}  # fmt: skip
# NCCL 2.30.7: the bandwidth in GB/s that NCCL expects of all NVLinks of one GPU together (src/graph/topo.h).
NCCL_NVLINK_GB_PER_S = {"V100": 120.0, "A100": 240.0, "H100": 371.0, "B200": 722.0}
_NCCL_RING_FACTOR = {"LL": 0.5, "LL128": 0.92, "Simple": 1.0}
_NCCL_TREE_FACTOR = {"LL": 0.92 / 3.8, "LL128": 0.92 * 7 / 9, "Simple": 0.92}


def nccl_latency_us(algorithm: str, protocol: str, ranks: int, nodes: int = 1, link: str = "NVLink") -> float:
    """Microseconds of latency that NCCL's tuner predicts for an all-reduce, from constants of its model.

    ring: base + (steps - inter) intra + inter net, with steps = 2(p-1) and inter = 2(nodes-1); tree: base + 2[(p/nodes - 1)
    intra + lg(nodes) net], with a chain inside each node. The factor 1.4 for large Simple messages between nodes is left
    out. `link` is "NVLink" or "PCIe". Raises CostError.

    >>> round(cost.nccl_latency_us("ring", "LL", 8), 3)
    15.0
    """
    key = _nccl_key(algorithm, protocol)
    check_size(ranks, 0)
    if link not in NCCL_HOP_US or nodes < 1 or ranks % nodes:
        raise CostError(
            f"NCCL's model knows NVLink and PCIe, and equal nodes; here are {ranks} ranks on {nodes} nodes by {link!r}"
        )
    intra, net = NCCL_HOP_US[link][key], NCCL_HOP_US["network"][key]
    if algorithm == "ring":
        inter = 2 * (nodes - 1)
        return NCCL_BASE_US[key] + (2 * (ranks - 1) - inter) * intra + inter * net
    return NCCL_BASE_US[key] + 2 * ((ranks // nodes - 1) * intra + math.log2(nodes) * net)


def nccl_bandwidth_gb_per_s(algorithm: str, protocol: str, ranks: int, bus_gb_per_s: float) -> float:
    """The algorithm bandwidth that NCCL's tuner predicts for an all-reduce in one node whose bus has `bus_gb_per_s`.

    In 10^9 bytes a second. ring: bus * p / 2(p-1) times the protocol's factor; tree: bus / 2 times the factor. The limits on
    LL and the tree's correction by size are left out, so that trees are faster here than in NCCL. Raises CostError.

    >>> cost.nccl_bandwidth_gb_per_s("ring", "Simple", 8, bus_gb_per_s=371.0)
    212.0
    """
    _nccl_key(algorithm, protocol)
    check_size(ranks, 0)
    if ranks == 1:
        return math.inf
    if algorithm == "ring":
        return bus_gb_per_s * _NCCL_RING_FACTOR[protocol] * ranks / (2 * (ranks - 1))
    return bus_gb_per_s * _NCCL_TREE_FACTOR[protocol] / 2


def nccl_time_us(
    algorithm: str, protocol: str, ranks: int, nbytes: float, bus_gb_per_s: float, link: str = "NVLink"
) -> float:
    """Microseconds that the tuner predicts in one node: latency + nbytes / (1000 * bandwidth in GB/s). Raises CostError.

    >>> round(cost.nccl_time_us("ring", "Simple", 8, nbytes=212_000_000, bus_gb_per_s=371.0))
    1056
    """
    bandwidth = nccl_bandwidth_gb_per_s(algorithm, protocol, ranks, bus_gb_per_s)
    return nccl_latency_us(algorithm, protocol, ranks, link=link) + nbytes / (1000 * bandwidth)


def nccl_choice(ranks: int, nbytes: float, bus_gb_per_s: float, link: str = "NVLink") -> tuple[str, str, float]:
    """(algorithm, protocol, microseconds) of the fastest pair, as the tuner chooses in one node. Raises CostError.

    >>> cost.nccl_choice(8, nbytes=8, bus_gb_per_s=371.0)[:2]
    ('ring', 'LL')
    """
    options = [(a, p, nccl_time_us(a, p, ranks, nbytes, bus_gb_per_s, link)) for a, p in NCCL_BASE_US]
    return min(options, key=lambda option: option[2])


def _nccl_key(algorithm: str, protocol: str) -> tuple[str, str]:
    if (algorithm, protocol) not in NCCL_BASE_US:
        raise CostError(
            f"NCCL's model here has ring and tree with LL, LL128 and Simple, not {algorithm!r} with {protocol!r}"
        )
    return algorithm, protocol
