"""What `placement` shows: all-reduces simulated for each machine, placement and algorithm; each link's bytes."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

from allranks.theory.schedules import Schedule, find
from allranks.theory.simulator.simulation import run_schedule
from allranks.theory.topology import Topology, preset, round_robin

# what the reader chooses from: the value, and its name on the page
MACHINES = {"dgx-h100": "a card for each GPU", "cloud-ethernet": "one card for eight"}
ALGORITHM_NAMES = {"ring": "ring", "rabenseifner": "Rabenseifner", "hierarchical": "two levels"}
PLACEMENT_NAMES = {
    "in order": "in order",
    "round robin": "round robin",
    "pairs": "pairs, round robin",
    "shuffled": "shuffled",
}


@cache
def placements(machine: str, ranks: int, nbytes: int) -> dict[str, Any]:
    """For each placement the seats and, by algorithm, the simulated seconds and the bytes over each link."""
    topology = preset(machine)
    g = topology.ranks_per_node
    shuffled = list(range(ranks))
    random.Random(7).shuffle(shuffled)
    seats = {
        "in order": list(range(ranks)),
        "round robin": round_robin(ranks, g),
        "pairs": round_robin(ranks, g, together=2),
        "shuffled": shuffled,
    }
    schedules = {
        name: find("all_reduce", name)(ranks, **({"ranks_per_node": g} if name == "hierarchical" else {}))
        for name in ALGORITHM_NAMES
    }
    found = {
        name: {"seats": where, "runs": {a: _run(s.placed(where), nbytes, topology) for a, s in schedules.items()}}
        for name, where in seats.items()
    }
    nic = topology.nic
    return {
        "placements": found,
        "ranks_per_node": g,
        "cards": topology.nics_per_node,
        "card_bytes_per_s": nic.bytes_per_s if nic else 0.0,
        "inside_bytes_per_s": topology.inside.bytes_per_s,
    }


def _run(schedule: Schedule, nbytes: int, topology: Topology) -> dict[str, Any]:
    """The simulated seconds; bytes out of each card and between nodes; what the busiest rank sends in its node."""
    sizes, nodes = schedule.chunk_nbytes(nbytes), topology.nodes(schedule.ranks)
    cards = [[0] * topology.nics_per_node for _ in range(nodes)]
    between = [[0] * nodes for _ in range(nodes)]
    inside = [0] * schedule.ranks
    for move in schedule.moves:
        size = sum(sizes[chunk] for chunk in move.chunks)
        a, b = topology.node(move.src), topology.node(move.dst)
        if a == b:
            inside[move.src] += size
        else:
            cards[a][topology.nic_of(move.src)] += size
            between[a][b] += size
    most, node, card = max((n, -a, -c) for a, row in enumerate(cards) for c, n in enumerate(row))
    rate = topology.nic.bytes_per_s if topology.nic else 1.0
    return {
        "seconds": run_schedule(schedule, nbytes, topology).seconds,
        "cards": cards,
        "between": between,
        "inside": max(inside),
        "inside_s": max(inside) / topology.inside.bytes_per_s,
        "card_s": most / rate,
        "busiest": [-node, -card],
    }
