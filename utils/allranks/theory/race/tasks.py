"""The tasks of the race: a collective, its bytes, and a machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property

from allranks.base.errors import CourseError
from allranks.theory.race.bounds import Bound, lower_bound
from allranks.theory.topology import DGX1_LANES, PRESETS, Fabric, Link, Topology, mesh_fabric, node_fabric, torus_fabric

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


class RaceError(CourseError, ValueError):
    """An entry that can't be raced, or a leaderboard that does not hold; the message says why."""


@dataclass(frozen=True)
class Task:
    """One task. `nbytes` is as in `cost`: the full vector; in all_to_all, what one rank sends. `fabric` is the machine.

    >>> race.task("torus-broadcast").fabric.name
    'torus 8 x 8'
    """

    name: str
    title: str
    collective: str
    ranks: int
    nbytes: int
    machine: str
    build: Callable[[], Fabric] = field(repr=False)
    root: int | None = None
    # the machine as NCCL's tuner knows it and its number of nodes, where there is one
    nccl: tuple[str, int] | None = None

    @cached_property
    def fabric(self) -> Fabric:
        """The machine's links."""
        return self.build()

    @cached_property
    def bound(self) -> Bound:
        """No schedule is faster."""
        return lower_bound(self.collective, self.nbytes, self.fabric, self.root)


H100 = PRESETS["dgx-h100"]
_ETHERNET = Link("100 Gb/s", 10e-6, 12.5e9)
# single-GPU nodes below leaf switches of eight nodes, whose two uplinks carry a quarter of what their ports can
TREE = Topology("tree 4:1", 1, _ETHERNET, _ETHERNET, nodes_per_leaf=8, oversubscription=4.0)
SWITCH = Topology("switch", 16, H100.inside)
TORUS_LINK = Link("torus link", 1e-6, 50e9)
NVLINK2 = Link("NVLink 2", 2e-6, 25e9)


def _h100(nodes: int) -> Callable[[], Fabric]:
    return lambda: node_fabric(H100, 8 * nodes)


def _rails(nodes: int, leaf: int, oversubscription: float) -> Callable[[], Fabric]:
    rails = replace(H100, name="dgx-h100 rails", nodes_per_leaf=leaf, rails=True, oversubscription=oversubscription)
    return lambda: node_fabric(rails, 8 * nodes)


_H100_WORDS = (
    "8 GPUs a node, NVLink 371 GB/s and 2 µs, a card of 50 GB/s and 5 µs for each GPU, one switch joins all cards"
)

# The tasks by name.
TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Task(
            "two-nodes",
            "256 MiB on two nodes",
            "all_reduce",
            16,
            256 * MIB,
            f"2 x dgx-h100: {_H100_WORDS}",
            _h100(2),
            nccl=("dgx-h100", 2),
        ),
        Task(
            "one-kibibyte",
            "1 KiB on eight nodes: only latency counts",
            "all_reduce",
            64,
            KIB,
            f"8 x dgx-h100: {_H100_WORDS}",
            _h100(8),
            nccl=("dgx-h100", 8),
        ),
        Task(
            "sixteen-gibibytes",
            "16 GiB on eight nodes: only bandwidth counts",
            "all_reduce",
            64,
            16 * GIB,
            f"8 x dgx-h100: {_H100_WORDS}",
            _h100(8),
            nccl=("dgx-h100", 8),
        ),
        Task(
            "big-world",
            "64 MiB on 4096 ranks",
            "all_reduce",
            4096,
            64 * MIB,
            "512 x dgx-h100, rail-optimised: card i of 32 nodes is below one leaf switch; " + _H100_WORDS,
            _rails(512, 32, 1.0),
            nccl=("dgx-h100", 512),
        ),
        Task(
            "oversubscribed",
            "all-to-all on an oversubscribed tree",
            "all_to_all",
            64,
            16 * MIB,
            "64 single-GPU nodes, 12.5 GB/s and 10 µs each; 8 leaf switches of 8 nodes, each with 2 uplinks "
            "of 12.5 GB/s (4:1). A message takes the uplink and the downlink that its node's place below its "
            "leaf switch gives, modulo 2",
            lambda: node_fabric(TREE, 64),
        ),
        Task(
            "rail-exchange",
            "all-to-all where rails meet only at the top",
            "all_to_all",
            128,
            16 * MIB,
            "16 x dgx-h100, rail-optimised: card i of all 16 nodes is below leaf switch i; a message to "
            "another rail goes up and down, and the uplinks of a leaf have a quarter of its ports' bandwidth; "
            + _H100_WORDS,
            _rails(16, 16, 4.0),
        ),
        Task(
            "torus-broadcast",
            "broadcast on a torus",
            "broadcast",
            64,
            256 * MIB,
            "an 8 x 8 torus: four links a rank, 50 GB/s and 1 µs a hop each",
            lambda: torus_fabric(8, 8, TORUS_LINK),
            root=0,
        ),
        Task(
            "torus-sum",
            "all-reduce on a torus",
            "all_reduce",
            64,
            256 * MIB,
            "an 8 x 8 torus: four links a rank, 50 GB/s and 1 µs a hop each",
            lambda: torus_fabric(8, 8, TORUS_LINK),
        ),
        Task(
            "slow-rank",
            "one rank is four times as slow",
            "all_reduce",
            16,
            256 * MIB,
            "16 ranks on one switch, 371 GB/s and 2 µs each; all that rank 5 sends or receives takes four "
            "times as long",
            lambda: node_fabric(SWITCH, 16).with_slow_rank(5, 4),
        ),
        Task(
            "slow-card",
            "one network card is four times as slow",
            "all_gather",
            32,
            224 * MIB,
            f"4 x dgx-h100: {_H100_WORDS}; card 3 of node 2 takes four times as long",
            lambda: _h100(4)().with_slow_link(4, ("card out", 2, 3), ("card in", 2, 3)),
        ),
        Task(
            "mixed-links",
            "three kinds of links",
            "all_reduce",
            32,
            64 * MIB,
            "4 x cloud-ethernet: nodes of two PCIe islands of 4 GPUs (31.5 GB/s, 4 µs), joined by a bridge "
            "(31.5 GB/s, 5 µs); one card of 12.5 GB/s and 50 µs for the 8 GPUs of a node",
            lambda: node_fabric(PRESETS["cloud-ethernet"], 32),
        ),
        Task(
            "cube-mesh",
            "all-gather where not all are neighbours",
            "all_gather",
            8,
            6 * MIB,
            "a DGX-1 with 8 V100: single and double NVLinks of 25 GB/s and 2 µs to four neighbours each; no "
            "link, no message",
            lambda: mesh_fabric("DGX-1", DGX1_LANES, NVLINK2),
        ),
        Task(
            "hundred",
            "reduce-scatter for a hundred ranks",
            "reduce_scatter",
            100,
            10**6,
            "100 ranks on one switch, 25 GB/s and 5 µs each",
            lambda: node_fabric(Topology("wide switch", 100, Link("port", 5e-6, 25e9)), 100),
        ),
    )
}


def task(name: str) -> Task:
    """A task by its name. Raises RaceError, which names the nearest one.

    >>> race.task("one-kibibyte").nbytes
    1024
    """
    found = TASKS.get(name.lower().replace("_", "-").replace(" ", "-"))
    if found is None:
        near = get_close_matches(name, TASKS, 1)
        hint = f"the nearest is {near[0]}" if near else f"there are {', '.join(TASKS)}"
        raise RaceError(f"there is no task {name!r}; {hint}")
    return found
