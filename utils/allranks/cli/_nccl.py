"""`allranks simulate --algorithm nccl`: what NCCL's tuner would choose, and what it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from allranks.cli._shared import CommandError

if TYPE_CHECKING:
    from allranks.theory.cost.nccl_machines import NcclMachine
    from allranks.theory.cost.nccl_price import NcclPrice


def priced(
    collective: str,
    nbytes: int,
    topology: str | None,
    nodes: int | None,
    ranks: int | None,
    floor_us: float | None,
    nvls: bool = True,
    sharp: bool = False,
) -> dict[str, Any]:
    """What the command prints as JSON. Raises CommandError or CostError."""
    from allranks.theory.cost import bus_factor
    from allranks.theory.cost.nccl_machines import machine
    from allranks.theory.cost.nccl_price import nccl_price

    where = machine(topology or "dgx-h100")
    nodes = _nodes(nodes, ranks, where.gpus_per_node)
    ranks = nodes * where.gpus_per_node if ranks is None else ranks
    collective = collective.lower().replace("-", "_")
    price = nccl_price(collective, nbytes, where, nodes=nodes, ranks=ranks, floor_us=floor_us, nvls=nvls, sharp=sharp)
    return {
        "collective": collective,
        "topology": where.name,
        "ranks": ranks,
        "nodes": nodes,
        "bytes": nbytes,
        **_choice(price),
        **_ring(collective, ranks, nbytes, price),
        "lower_bound_seconds": _bound_s(collective, ranks, nodes, nbytes, where, nvls, sharp),
        "seconds": price.seconds,
        "algbw_gb_per_s": nbytes / price.seconds / 1e9,
        "busbw_gb_per_s": nbytes * float(bus_factor(collective, ranks)) / price.seconds / 1e9,
        "low_seconds": price.low_s,
        "high_seconds": price.high_s,
        "kind": price.kind,
        "points": price.points,
        "spread": price.spread,
        "network_seconds": price.network_s,
        "floor_seconds": price.floor_s,
    }


def _nodes(nodes: int | None, ranks: int | None, per_node: int) -> int:
    if nodes is not None:
        return nodes
    if ranks is None or ranks <= per_node:
        return 1
    if ranks % per_node:
        raise CommandError(f"{ranks} ranks do not fill nodes of {per_node} GPUs evenly; say how many with --nodes.")
    return ranks // per_node


def _choice(price: NcclPrice) -> dict[str, Any]:
    option = price.option
    if option is None:  # groups of sends and receives: the tuner does not see them
        return {"algorithm": "sends and receives", "protocol": None, "channels": None, "tuner_seconds": None}
    return {
        "algorithm": option.algorithm,
        "protocol": option.protocol,
        "channels": option.channels,
        "tuner_seconds": 1e-6 * option.us,
    }


def _ring(collective: str, ranks: int, nbytes: int, price: NcclPrice) -> dict[str, Any]:
    """Steps and bytes that a rank sends, where NCCL's algorithm has a fixed number of these."""
    from allranks.theory.cost import terms

    if price.option is None or price.option.algorithm != "ring" or collective in ("broadcast", "reduce"):
        return {"steps": None, "bytes_per_rank": None}
    found = terms(collective, "ring", ranks, nbytes)
    return {"steps": int(found.messages), "bytes_per_rank": float(found.nbytes)}


def _bound_s(
    collective: str, ranks: int, nodes: int, nbytes: int, where: NcclMachine, nvls: bool, sharp: bool
) -> float:
    """What must move, over all links at once; where switches add, an all_reduce sends each byte once."""
    from allranks.theory.cost import bus_factor

    here = where.graphs(ranks // nodes, nodes)
    switch = here.nvls if nvls else None
    inside = switch or here.ring
    factor = 1.0 if switch and collective == "all_reduce" else float(bus_factor(collective, ranks))
    bound = nbytes * factor / (1e9 * max(inside.channels * inside.inside, here.ring.channels * here.ring.inside))
    if nodes > 1:
        out = 1.0 if sharp and collective == "all_reduce" else float(bus_factor(collective, nodes))
        between = out * nbytes / (1e9 * here.ring.channels * here.ring.between)
        bound = max(bound, between)
    return bound


def in_words(found: dict[str, Any], seconds_in_words: Any) -> str:
    """The result for a terminal."""
    where = f"{found['nodes']} node{'s' if found['nodes'] > 1 else ''} of {found['topology']}"
    chosen = found["algorithm"] + (
        f" with {found['protocol']}, {found['channels']} channels" if found["protocol"] else ""
    )
    low, high = (seconds_in_words(found[key]) for key in ("low_seconds", "high_seconds"))
    parts = [
        f"network {seconds_in_words(found['network_seconds'])}",
        f"the call {seconds_in_words(found['floor_seconds'])}",
    ]
    return "\n".join(
        [
            f"{found['collective']}, {found['ranks']} ranks, {found['bytes']} bytes, on {where}, as NCCL 2.30.7 would",
            f"  chosen       {chosen}",
            f"  time         {seconds_in_words(found['seconds'])}, of which beyond the tuner's own: {', '.join(parts)}",
            f"  busbw        {found['busbw_gb_per_s']:.4g} GB/s (algbw {found['algbw_gb_per_s']:.4g}), "
            "as nccl-tests counts them",
            f"  band         {low} to {high}: half of {found['points']} published measurements "
            f"({found['kind']}) lie so far from their predictions",
        ]
    )
