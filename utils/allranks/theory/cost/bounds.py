"""Lower bounds: the messages and bytes that every algorithm for a collective needs."""

from __future__ import annotations

from fractions import Fraction

from allranks.theory.cost.terms import Terms, check_collective, check_size
from allranks.theory.schedules import Number, ceil_lg
from allranks.theory.topology import Topology


def lower_bound(collective: str, ranks: int, nbytes: Number) -> Terms:
    """The least messages, bytes and reduced bytes of any algorithm over point-to-point links.

    Each of the three terms is a bound by itself; no algorithm need reach all of them. They do not hold for reduction inside
    switches (SHARP, NVLS). Raises CostError. Chan et al. 2007; for all_reduce Patarasuk & Yuan 2009.

    >>> cost.lower_bound("all_reduce", 4, 1000).nbytes
    Fraction(1500, 1)
    """
    check_collective(collective)
    check_size(ranks, nbytes)
    p, n = ranks, Fraction(nbytes)
    rounds, part = Fraction(ceil_lg(p)), n * (p - 1) / p
    whole = n if p > 1 else Fraction(0)
    match collective:
        case "broadcast":
            return Terms(rounds, whole)
        case "reduce":
            return Terms(rounds, whole, part)
        case "reduce_scatter":
            return Terms(rounds, part, part)
        case "all_reduce":
            return Terms(rounds, 2 * part, part)
        case "barrier":
            return Terms(rounds)
    return Terms(rounds, part)


def lower_bound_seconds(
    collective: str,
    ranks: int,
    nbytes: float,
    topology: Topology,
    gamma: float = 0.0,
    *,
    switches: bool = False,
    sharp: bool = False,
) -> float:
    """The least seconds of any algorithm on this machine.

    The larger of two bounds: of a rank, whose bytes take its fastest link, and its network card at the same time; and of a
    node, whose network cards carry all that it exchanges with other nodes. `nbytes` is as in `cost`; `gamma` is seconds a byte
    reduced. With `switches`, those inside a node add (NVLS), so that a rank sends each byte of an all_reduce once; with
    `sharp`, those between nodes do.

    >>> from allranks.topology import uniform
    >>> cost.lower_bound_seconds("all_reduce", 4, 4000, uniform(alpha_s=1.0, bytes_per_s=1000.0))
    8.0
    """
    nic, m = topology.nic, topology.nodes(ranks)
    links = [topology.inside] + ([nic] if nic is not None and m > 1 else [])
    own = [topology.inside]
    if topology.host is not None and ranks > (topology.ranks_per_island or topology.ranks_per_node):
        own.append(topology.host)
    rate = max(link.bytes_per_s for link in own) + (nic.bytes_per_s if nic is not None and m > 1 else 0.0)
    bound = lower_bound(collective, ranks, Fraction(nbytes))
    added = collective == "all_reduce" and ranks > 1
    sent = float(nbytes) if added and switches else float(bound.nbytes)
    # the larger of the two, not their sum: one segment can be added while the next arrives
    alpha_s = min(link.alpha_s for link in links)
    rank = max(float(bound.messages) * alpha_s + sent / rate, float(bound.reduced_nbytes) * gamma)
    if nic is None or m == 1:
        return rank
    share = float(nbytes) if added and sharp else _node_share(collective, ranks, topology, nbytes)
    rounds, reached = 0, 1
    while reached < m:  # in one round each rank of a node can reach another node
        rounds, reached = rounds + 1, reached * (topology.ranks_per_node + 1)
    return max(rank, rounds * nic.alpha_s + share / (topology.nics_per_node * nic.bytes_per_s))


def _node_share(collective: str, ranks: int, topology: Topology, nbytes: float) -> float:
    """The least bytes that the cards of the busiest node carry in one direction: nodes are taken as ranks of a smaller world."""
    m, full = topology.nodes(ranks), ranks % topology.ranks_per_node == 0
    # in all_to_all a node sends what all its ranks send
    vector = Fraction(nbytes) * (topology.ranks_per_node if collective == "all_to_all" else 1)
    if full or collective in ("broadcast", "reduce", "all_reduce"):
        return float(lower_bound(collective, m, vector).nbytes)
    return 0.0  # nodes of different sizes own parts of different sizes; only the bound of the ranks counts
