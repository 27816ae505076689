"""What a collective of NCCL costs: the tuner's time, corrected by what sites measured, with an interval that 8 of 10 sites hold.

The choice of algorithm and protocol is the tuner's. How much longer a call takes than the tuner says (launch, CPU, network) is learned
from published measurements: see `calibrated.py` and docs/validation.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from allranks.theory.cost import calibrated
from allranks.theory.cost.calibrated import COVERAGE, Point
from allranks.theory.cost.nccl import Call, NcclOption, call
from allranks.theory.cost.nccl_bands import LINK_BANDS
from allranks.theory.cost.nccl_bounds import roof_s
from allranks.theory.cost.nccl_machines import NcclMachine
from allranks.theory.cost.nccl_tables import VERSION
from allranks.theory.cost.nccl_tests import Measured
from allranks.theory.cost.terms import CostError

_PEER_US = 5.0  # to send one of all_to_all's messages to another node, as a tree's hop with LL
_CALL_US = 15.0
_EXCHANGE_SHARE = 0.92  # of the links' bandwidth that all_to_all reaches


@dataclass(frozen=True)
class NcclPrice:
    """`seconds` is the median; at `coverage` of the sites (8 of 10) the time lies from `low_s` to `high_s`.

    `option` is the tuner's choice (None for all_to_all, which it does not see), `tuner_s` its time. `parts` says where the width
    comes from, as factors: "floor", "hop", "bandwidth", "algorithm". `kind` names the measurements, such as "several nodes, up to
    64 KiB", and `sites` counts the sites that have such. `own` is how many of one's own measurements were used.

    >>> price = cost.nccl_price("all_reduce", 2**30, "dgx-h100", nodes=2)
    >>> price.low_s < price.seconds < price.high_s, price.kind, price.coverage
    (True, 'several nodes, from 256 MiB', 0.8)
    """

    seconds: float
    low_s: float
    high_s: float
    option: NcclOption | None
    tuner_s: float
    kind: str
    sites: int
    parts: dict[str, float] = field(default_factory=dict)
    own: int = 0
    coverage: float = COVERAGE

    @property
    def width(self) -> float:
        """High over low."""
        return self.high_s / self.low_s


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
    one_process: bool = False,
    version: str = VERSION,
    own: Iterable[Measured] = (),
) -> NcclPrice:
    """What NCCL takes on a machine. Arguments and errors as `nccl_options`; all_to_all too, with `nbytes` that one rank sends.

    `own` are measurements of this machine (`cost.read_measured`): each sweep's smallest and largest size narrow the interval.
    `floor_us` does the same from one number, the microseconds that 8 bytes take beyond the tuner's time. `one_process`: a single
    process drives all GPUs of a node (nccl-tests' -g 8), which takes longer to launch. What sites measured is learned on the tables of
    the default `version`; another one changes the tuner's choice and time.

    >>> price = cost.nccl_price("all_reduce", 2**30, "dgx-h100")
    >>> price.option.algorithm, round(1e3 * price.seconds)
    ('nvls', 4)
    """
    asked = call(collective, nbytes, on, nodes, ranks, version, nvls=nvls, sharp=sharp, one_process=one_process)
    return price_of(asked, own, floor_us)


def price_of(asked: Call, own: Iterable[Measured] = (), floor_us: float | None = None) -> NcclPrice:
    """`nccl_price` of a call. Raises CostError."""
    if floor_us is not None and not 0 <= floor_us < math.inf:
        raise CostError(f"the floor is {1e-6 * floor_us:g} s; it must be 0 or more, and finite")
    us, option, question = tuned(asked)
    mine = _own_points(own, asked)
    if floor_us is not None:
        small = Call(asked.machine, "all_reduce", 8, asked.nodes, asked.ranks, one_process=asked.one_process)
        first, _, point = tuned(small)
        mine.append(replace(point, y=math.log((first + floor_us) / first)))
    seconds, sites = 1e-6 * us, calibrated.sites_like(question)
    median, low, high, parts = calibrated.foretell(question, mine, least_s(option, asked) / seconds)
    kind = kind_of(asked.nodes, asked.nbytes)
    return NcclPrice(seconds * median, seconds * low, seconds * high, option, seconds, kind, sites, parts, len(mine))


def least_s(option: NcclOption | None, asked: Call) -> float:
    """The seconds below which no interval of this choice reaches: `roof_s`; in each node NVLSTree also does what NVLS does on one.

    Raises CostError.
    """
    algorithm = option.algorithm if option else "exchange"
    least = roof_s(algorithm, asked)
    if algorithm != "nvls_tree" or asked.per_node == 1:
        return least
    alone = Call(asked.machine, asked.collective, asked.nbytes, 1, asked.per_node, version=asked.version)
    return max(least, price_of(alone).low_s)


def link_interval(parts: Sequence[tuple[str, float, float]]) -> dict[str, float | int | str]:
    """The interval of what the links alone say, for parts of (kind, seconds, lower bound): where 8 of 10 sites lie, summed.

    No end of a part lies below its lower bound.

    >>> from allranks.theory.cost.nccl_price import link_interval
    >>> found = link_interval([("one node, from 256 MiB", 1.0, 0.8)])
    >>> found["low"], found["low"] < found["median"] < found["high"], found["coverage"]
    (0.8, True, 0.8)
    """
    named = list(dict.fromkeys(kind for kind, _, _ in parts))
    median, low, high = (
        sum(max(LINK_BANDS[kind][end] * seconds, least) for kind, seconds, least in parts) for end in range(3)
    )
    return {
        "median": median, "low": low, "high": high, "low_seconds": low, "high_seconds": high, "coverage": COVERAGE,
        "kind": "; ".join(named), "sites": min(LINK_BANDS[kind][3] for kind in named),
    }  # fmt: skip


def tuned(asked: Call) -> tuple[float, NcclOption | None, Point]:
    """The microseconds that the tuner expects, its choice, and the question to ask `calibrated`."""
    option, collective, nodes = None, asked.collective, asked.nodes
    if collective == "all_to_all":
        us, hops, name = _exchange_us(asked), 0, "exchange"
    else:
        option = asked.choice()
        us, hops, name = option.us, _hops(option.algorithm, collective, nodes), f"{option.algorithm} {option.protocol}"
    network = asked.machine.network if nodes > 1 else ""
    launch = "one" if asked.one_process and nodes == 1 else ""
    return us, option, Point("", asked.machine.name, network, nodes, collective, launch, asked.nbytes, name, hops)


def _own_points(own: Iterable[Measured], asked: Call) -> list[Point]:
    """The smallest and the largest size of each sweep, as points of one more site. Raises CostError."""
    found, alone = [], asked.one_process and asked.nodes == 1
    for sweep in own:
        nodes = sweep.nodes or max(1, -(-sweep.ranks // asked.machine.gpus_per_node))
        ends = sorted(sweep.points)
        for nbytes, seconds in dict.fromkeys((ends[0], ends[-1])):
            us, _, point = tuned(call(sweep.collective, nbytes, asked.machine, nodes, sweep.ranks, one_process=alone))
            found.append(replace(point, y=math.log(1e6 * seconds / us)))
    return found


def kind_of(nodes: int, nbytes: float) -> str:
    """The kind of measurement, by which bands are told apart.

    >>> from allranks.theory.cost.nccl_price import kind_of
    >>> kind_of(2, 1024)
    'several nodes, up to 64 KiB'
    """
    size = ("up to 64 KiB", "between", "from 256 MiB")[calibrated.size_class(nbytes)]
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


def _exchange_us(asked: Call) -> float:
    """all_to_all: a message to each rank; those to other nodes share the node's cards."""
    here, ranks = asked.per_node, asked.ranks
    one = asked.machine.graphs(here, 1).ring if here > 1 else None
    inside = 0.0 if one is None else asked.nbytes * (here - 1) / ranks / (one.channels * one.inside)
    between = 0.0
    if asked.nodes > 1:
        cards = asked.graphs.ring
        between = asked.nbytes * (ranks - here) / ranks * here / (cards.channels * cards.between)
    return _CALL_US + _PEER_US * (ranks - here) + max(inside, between) / 1000 / _EXCHANGE_SHARE
