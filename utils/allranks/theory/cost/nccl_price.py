"""What a collective of NCCL costs: the tuner's time, and what measurements found beyond it, with a band.

The tuner's own numbers leave out the call itself and much of what a network adds. Three numbers of each machine stand for
these: `floor_us` for a call, and `small_hop_us` and `bulk_hop_us` for each hop between nodes. They are medians of published
measurements (docs/validation.md); the choice of algorithm and protocol is the tuner's and does not depend on them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from allranks.theory.cost.nccl import NcclOption, nccl_choice
from allranks.theory.cost.nccl_bands import BANDS
from allranks.theory.cost.nccl_machines import NcclMachine, machine
from allranks.theory.cost.terms import CostError, check_size

SMALL_NBYTES, BULK_NBYTES = 2**16, 2**20  # up to here a hop costs small_hop_us, from there bulk_hop_us
LARGE_NBYTES = 2**28
_PEER_US = 5.0  # to send one of all_to_all's messages to another node, as a tree's hop with LL
_CALL_US = 15.0
_EXCHANGE_SHARE = 0.92  # of the links' bandwidth that all_to_all reaches


@dataclass(frozen=True)
class NcclPrice:
    """`seconds`, and a band: half of `points` published measurements of this kind lie from `low_s` to `high_s`.

    `option` is the tuner's choice (None for all_to_all, which it does not see); `network_s` and `floor_s` are the parts of
    `seconds` that the tuner leaves out. `kind` names the measurements, such as "several nodes, up to 64 KiB".

    >>> price = cost.nccl_price("all_reduce", 2**30, "dgx-h100", nodes=2)
    >>> price.low_s < price.seconds < price.high_s, price.kind
    (True, 'several nodes, from 256 MiB')
    """

    seconds: float
    low_s: float
    high_s: float
    option: NcclOption | None
    network_s: float
    floor_s: float
    kind: str
    points: int

    @property
    def spread(self) -> float:
        """How far half of the measurements lie from the prediction, as a share: the larger side of the band."""
        return max(self.high_s / self.seconds, self.seconds / self.low_s) - 1


def nccl_price(
    collective: str,
    nbytes: float,
    on: str | NcclMachine = "dgx-h100",
    *,
    nodes: int = 1,
    ranks: int | None = None,
    floor_us: float | None = None,
    nvls: bool = True,
    sharp: bool = False,
) -> NcclPrice:
    """What NCCL takes on a machine. Arguments and errors as `nccl_options`; all_to_all too, with `nbytes` that one rank sends.

    `floor_us` replaces the machine's own overhead of a call: fit it to your smallest message.

    >>> price = cost.nccl_price("all_reduce", 2**30, "dgx-h100")
    >>> price.option.algorithm, round(1e3 * price.seconds, 1)
    ('nvls', 4.0)
    """
    where = machine(on) if isinstance(on, str) else on
    ranks = where.gpus_per_node * nodes if ranks is None else ranks
    if floor_us is not None and not 0 <= floor_us < math.inf:
        raise CostError(f"the floor is {1e-6 * floor_us:g} s; it must be 0 or more, and finite")
    option = None
    if collective == "all_to_all":
        us, hops = _exchange_us(where, nodes, ranks, nbytes), (nodes > 1) * (ranks - ranks // max(nodes, 1))
    else:
        option = nccl_choice(collective, nbytes, where, nodes=nodes, ranks=ranks, nvls=nvls, sharp=sharp)
        us, hops = option.us, _hops(option.algorithm, collective, nodes)
    network = hops * where.small_hop_us
    if collective != "all_to_all":  # its messages leave side by side
        network += hops * (where.bulk_hop_us - where.small_hop_us) * _bulk_share(nbytes)
    floor = (where.floor_us if nodes == 1 else where.floor_between_us) if floor_us is None else floor_us
    seconds = 1e-6 * (us + network + floor)
    kind = kind_of(nodes, nbytes)
    low, high, points = BANDS[kind]
    return NcclPrice(seconds, seconds * low, seconds * high, option, 1e-6 * network, 1e-6 * floor, kind, points)


def kind_of(nodes: int, nbytes: float) -> str:
    """The kind of measurement, by which bands are told apart.

    >>> from allranks.theory.cost.nccl_price import kind_of
    >>> kind_of(2, 1024)
    'several nodes, up to 64 KiB'
    """
    size = "up to 64 KiB" if nbytes <= SMALL_NBYTES else "from 256 MiB" if nbytes >= LARGE_NBYTES else "between"
    return f"{'one node' if nodes == 1 else 'several nodes'}, {size}"


def _hops(algorithm: str, collective: str, nodes: int) -> int:
    """How often the slowest chunk goes from node to node."""
    if nodes == 1:
        return 0
    levels = int(math.log2(nodes))
    if algorithm in ("tree", "nvls_tree"):
        return 2 * levels
    if algorithm in ("nvls", "collnet_direct", "collnet_chain"):
        return 1  # to the switches that add, and back
    return levels if algorithm == "pat" else (nodes - 1) * (2 if collective == "all_reduce" else 1)


def _bulk_share(nbytes: float) -> float:
    """From 0 for small messages to 1 for large ones, even on a scale of powers."""
    if nbytes <= SMALL_NBYTES:
        return 0.0
    return min(1.0, math.log(nbytes / SMALL_NBYTES) / math.log(BULK_NBYTES / SMALL_NBYTES))


def _exchange_us(where: NcclMachine, nodes: int, ranks: int, nbytes: float) -> float:
    """all_to_all: a message to each rank; those to other nodes share the node's cards."""
    check_size(ranks, nbytes)
    if nodes < 1 or ranks % nodes or ranks // nodes > where.gpus_per_node:
        raise CostError(f"{ranks} ranks do not fill {nodes} nodes of up to {where.gpus_per_node} GPUs evenly")
    here = ranks // nodes
    one = where.graphs(here, 1).ring if here > 1 else None
    inside = 0.0 if one is None else nbytes * (here - 1) / ranks / (one.channels * one.inside)
    between = 0.0
    if nodes > 1:
        cards = where.graphs(here, nodes).ring
        between = nbytes * (ranks - here) / ranks * here / (cards.channels * cards.between)
    return _CALL_US + _PEER_US * (ranks - here) + max(inside, between) / 1000 / _EXCHANGE_SHARE
