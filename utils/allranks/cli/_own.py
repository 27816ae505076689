"""`allranks simulate --topology FILE`: what your own measurements say."""

from __future__ import annotations

from typing import Any

from allranks.cli._shared import CommandError, duration


def has(name: str | None, collective: str) -> bool:
    """Whether the name means a file in which this collective was measured. Raises TopologyError or CostError."""
    from allranks.theory.topology import is_file_name

    if name is None or not is_file_name(name):
        return False
    from allranks.theory.cost import OwnCluster

    wanted = collective.lower().replace("-", "_")
    return any(sweep.collective == wanted for sweep in OwnCluster.load(name).sweeps)


def priced(collective: str, nbytes: int, name: str | None, nodes: int | None, ranks: int | None) -> dict[str, Any]:
    """What the command prints as JSON. Raises CommandError, CostError or TopologyError."""
    from allranks.theory.cost import OwnCluster, algbw_gb_per_s, busbw_gb_per_s

    if name is None:
        raise CommandError("--algorithm measured needs --topology FILE, a file that `allranks fit` wrote.")
    cluster = OwnCluster.load(name)
    if nodes is not None:
        wanted = nodes * cluster.topology.ranks_per_node
        if ranks is not None and ranks != wanted:
            raise CommandError(f"{nodes} nodes of {cluster.topology.name} have {wanted} ranks, not {ranks}.")
        ranks = wanted
    collective = collective.lower().replace("-", "_")
    price = cluster.price(collective, nbytes, ranks)
    ranks = price.sweep.ranks if ranks is None else ranks
    error = price.error
    return {
        "collective": collective,
        "algorithm": "measured",
        "topology": cluster.topology.name,
        "ranks": ranks,
        "bytes": nbytes,
        "seconds": price.seconds,
        "low_seconds": None if error is None else price.seconds / (1 + error),
        "high_seconds": None if error is None else price.seconds * (1 + error),
        "held_out_error": error,
        "extrapolated": list(price.beyond),
        "algbw_gb_per_s": algbw_gb_per_s(nbytes, price.seconds),
        "busbw_gb_per_s": busbw_gb_per_s(collective, ranks, nbytes, price.seconds),
    }


def in_words(found: dict[str, Any]) -> str:
    """The result for a terminal."""
    lines = [
        f"{found['collective']}, {found['ranks']} ranks, {found['bytes']} bytes, as measured on {found['topology']}",
        f"  time         {duration(found['seconds'])}",
    ]
    if found["held_out_error"] is not None:
        lines.append(
            f"  band         {duration(found['low_seconds'])} to "
            f"{duration(found['high_seconds'])}: half of the sizes that a fit had not seen lie so far "
            "from it"
        )
    lines.append(f"  bandwidth    algbw {found['algbw_gb_per_s']:.2f} GB/s, busbw {found['busbw_gb_per_s']:.2f} GB/s")
    if found["extrapolated"]:
        lines.append(f"  extrapolated: {'; '.join(found['extrapolated'])}")
    return "\n".join(lines)
