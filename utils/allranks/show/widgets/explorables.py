"""Pictures that answer at once: sliders and buttons over the cost model, computed in the browser.

Each function returns a widget. The browser has the formulas of `allranks.cost` too (a test holds the two equal), so a
picture answers within a frame, and on pages without a kernel. `values` holds what the reader chose; it can be set.
The pictures with which chapters begin are in `explorables_first` and `explorables_plans`.
"""

from __future__ import annotations

from typing import Any

from allranks.show.widgets.explorable import Explorable
from allranks.show.widgets.explorables_first import (
    attention,
    bits,
    compress,
    flag,
    fsdp,
    interval,
    late,
    path,
    pipeline,
    protocols,
    recompute,
    recover,
    router,
    search,
    uneven,
    writes,
)
from allranks.show.widgets.explorables_placement import ALGORITHM_NAMES, MACHINES, PLACEMENT_NAMES, placements
from allranks.show.widgets.explorables_plans import data_parallel, sharded, splits, tensor
from allranks.theory import cost, topology
from allranks.theory.cost import workload
from allranks.theory.cost.workload import Cluster

__all__ = [
    "Explorable",
    "attention",
    "bits",
    "compress",
    "crossover",
    "data_parallel",
    "flag",
    "flows",
    "fsdp",
    "interval",
    "late",
    "overlap",
    "path",
    "pipeline",
    "placement",
    "protocols",
    "recompute",
    "recover",
    "router",
    "search",
    "sharded",
    "skew",
    "splits",
    "tensor",
    "uneven",
    "writes",
]

_ALGORITHMS = ("ring", "tree", "recursive doubling", "rabenseifner", "double binary tree")
_MOST_SEGMENTS = 64


def crossover(ranks: int = 24, nbytes: float = 2e6, alpha_s: float = 5e-6, bytes_per_s: float = 50e9) -> Explorable:
    """Five all-reduce algorithms over the size of the tensor: which is the fastest, and from where on.

    The double binary tree has the best number of segments up to 64, as in `simulate`. Raises CostError for impossible
    figures.

    Example:
        >>> explore.crossover(ranks=1024, nbytes=4).text()
        'At 4 bytes on 1024 ranks recursive doubling is the fastest: 50 µs; the ring takes 1.02e+04 µs.'
    """
    values = {"p": ranks, "n": nbytes, "alpha": alpha_s, "rate": bytes_per_s}
    cost.price("all_reduce", "ring", ranks, nbytes, alpha_s, 1 / bytes_per_s)
    return Explorable("crossover", {}, values, _crossover_text)


def overlap(
    parameters: float = 7e9,
    ranks: int = 32,
    bytes_per_s: float = 200e9,
    alpha_s: float = 5e-6,
    bucket_nbytes: float = 1e9,
    backward_s: float = 0.12,
) -> Explorable:
    """How much of the all-reduce of bfloat16 gradients a step waits for, by bucket size and backward time.

    The figures are those of `workload.ddp`. Raises WorkloadError for impossible ones.

    Example:
        >>> explore.overlap(bucket_nbytes=25 << 20, backward_s=0.3).text()
        'Of 301.5 ms of communication in 535 calls the step waits 2.0 ms.'
    """
    workload.ddp(parameters, Cluster(ranks, bytes_per_s, alpha_s), bucket_nbytes=bucket_nbytes, backward_s=backward_s)
    job = {"nbytes": 2 * parameters, "ranks": ranks, "alpha": alpha_s, "bytesPerS": bytes_per_s}
    return Explorable("overlap", {"job": job}, {"bucket": bucket_nbytes, "backward": backward_s}, _overlap_text)


def flows(ranks: int = 8, seed: int = 2, parts: int = 1) -> Explorable:
    """Flows that a hash spreads over spine switches: how much longer the slowest takes, by hash and by queue pairs.

    Each of `ranks` ranks of one leaf switch sends to one of another, over as many spines, in `parts` queue pairs. The
    figures are those of `topology.spine_loads`. Raises TopologyError for impossible ones.

    Example:
        >>> explore.flows(ranks=8, seed=1).text()
        'The slowest flow takes 2 times as long as one alone; 2 of 8 uplinks carry nothing.'
    """
    topology.spine_loads(ranks, ranks, parts, seed)
    return Explorable("flows", {}, {"p": ranks, "seed": seed, "parts": parts, "way": "hash"}, _flows_text)


def placement(nbytes: int = 10**9, ranks: int = 32) -> Explorable:
    """Which link an all-reduce waits for, by machine, algorithm and placement of ranks, as `run_schedule` simulates it.

    Raises TopologyError if `ranks` do not fill nodes of 8.

    Example:
        >>> explore.placement().text()
        'ring, ranks in order, on dgx-h100: 39.1 ms; the busiest card carries 1.94 GB.'
    """
    data = {
        "nbytes": nbytes,
        "ranks": ranks,
        "machine_names": MACHINES,
        "algorithm_names": ALGORITHM_NAMES,
        "placement_names": PLACEMENT_NAMES,
        "machines": {name: placements(name, ranks, nbytes) for name in MACHINES},
    }
    return Explorable(
        "placement", data, {"machine": "dgx-h100", "algorithm": "ring", "placement": "in order"}, _placement_text
    )


def skew(
    ranks: int = 8,
    hottest: float = 0.5,
    nbytes: float = 560 * 7168 * 2,
    alpha_s: float = 5e-6,
    bytes_per_s: float = 50e9,
) -> Explorable:
    """How much longer an all-to-all takes if one expert gets the share `hottest` of all tokens, with and without a
    capacity.

    The figures are those of `cost.skewed_exchange_s`. Raises CostError for impossible ones.

    Example:
        >>> explore.skew(ranks=8, hottest=0.5).text()
        '50 % of the tokens go to expert 0: 597 µs instead of 175 µs, 3.4 times as long.'
    """
    cost.skewed_exchange_s(ranks, nbytes, hottest, alpha_s, 1 / bytes_per_s)
    data = {"nbytes": nbytes, "alpha": alpha_s, "bytesPerS": bytes_per_s}
    excess = (hottest - 1 / ranks) / (1 - 1 / ranks) if ranks > 1 else 0.0
    return Explorable("skew", data, {"p": ranks, "excess": excess, "capacity": 0}, _skew_text)


def all_reduce_s(algorithm: str, ranks: int, nbytes: float, alpha_s: float, beta_s_per_byte: float) -> float:
    """Seconds of an all-reduce as `crossover` draws it: the double tree with its best number of segments up to 64."""
    figures = ("all_reduce", algorithm, ranks, nbytes, alpha_s, beta_s_per_byte)
    if algorithm != "double binary tree":
        return float(cost.price(*figures))
    return min(float(cost.price(*figures, segments=k)) for k in range(1, _MOST_SEGMENTS + 1))


def _crossover_text(data: dict[str, Any], values: dict[str, Any]) -> str:
    p, n, link = values["p"], values["n"], (values["alpha"], 1 / values["rate"])
    times = {name: all_reduce_s(name, p, n, *link) for name in _ALGORITHMS}
    best = min(times, key=lambda name: times[name])
    return (
        f"At {n:,.0f} bytes on {p} ranks {best} is the fastest: {1e6 * times[best]:.3g} µs; "
        f"the ring takes {1e6 * times['ring']:.3g} µs."
    )


def _overlap_text(data: dict[str, Any], values: dict[str, Any]) -> str:
    job = data["job"]
    cluster = Cluster(job["ranks"], job["bytesPerS"], job["alpha"])
    found = workload.ddp(job["nbytes"] / 2, cluster, bucket_nbytes=values["bucket"], backward_s=values["backward"])
    waits = 1e3 * (found.exposed_s or 0.0)
    return f"Of {1e3 * found.seconds:.1f} ms of communication in {found.calls} calls the step waits {waits:.1f} ms."


def _flows_text(data: dict[str, Any], values: dict[str, Any]) -> str:
    p = values["p"]
    loads = [1.0] * p if values["way"] == "adaptive" else topology.spine_loads(p, p, values["parts"], values["seed"])
    if max(loads) == 1:
        return "Every uplink carries as much: the slowest flow takes no longer than one alone."
    return (
        f"The slowest flow takes {max(loads):.3g} times as long as one alone; "
        f"{loads.count(0)} of {p} uplinks carry nothing."
    )


def _placement_text(data: dict[str, Any], values: dict[str, Any]) -> str:
    placed = data["machines"][values["machine"]]["placements"][values["placement"]]
    run = placed["runs"][values["algorithm"]]
    node, card = run["busiest"]
    return (
        f"{values['algorithm']}, ranks {PLACEMENT_NAMES[values['placement']]}, on {values['machine']}: "
        f"{1e3 * run['seconds']:.1f} ms; the busiest card carries {run['cards'][node][card] / 1e9:.2f} GB."
    )


def _skew_text(data: dict[str, Any], values: dict[str, Any]) -> str:
    p, capacity = values["p"], values["capacity"] or None
    hottest = 1 / p + values["excess"] * (1 - 1 / p)
    figures = {"alpha": data["alpha"], "beta": 1 / data["bytesPerS"]}
    even = cost.skewed_exchange_s(p, data["nbytes"], 1 / p, **figures)
    now = cost.skewed_exchange_s(p, data["nbytes"], hottest, capacity=capacity, **figures)
    return (
        f"{100 * hottest:.0f} % of the tokens go to expert 0: {1e6 * now:.0f} µs instead of {1e6 * even:.0f} µs, "
        f"{now / even:.1f} times as long."
    )
