"""`allranks simulate --algorithm nccl`: what NCCL's tuner would choose, and what it takes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from allranks.base.errors import counted
from allranks.cli._shared import CommandError, duration

if TYPE_CHECKING:
    from allranks.theory.cost.nccl_price import NcclPrice


def priced(options: SimpleNamespace) -> dict[str, Any]:
    """What the command prints as JSON, for its options. Raises CommandError or CostError."""
    from allranks.theory.cost import bus_factor
    from allranks.theory.cost.nccl import call
    from allranks.theory.cost.nccl_bounds import bound_s
    from allranks.theory.cost.nccl_machines import machine
    from allranks.theory.cost.nccl_price import price_of
    from allranks.theory.cost.nccl_tables import VERSION
    from allranks.theory.cost.own_cluster import own_measurements

    where, nbytes = machine(options.name or "dgx-h100"), options.nbytes
    collective = options.collective.lower().replace("-", "_")
    nodes = _nodes(options.nodes, options.ranks, where.gpus_per_node)
    how = {"nvls": not options.no_nvls, "sharp": options.sharp, "one_process": options.one_process}
    asked = call(collective, nbytes, where, nodes, options.ranks, options.version or VERSION, **how)
    own = own_measurements(options.calibrate) if options.calibrate else []
    price = price_of(asked, own, None if options.floor is None else 1e6 * options.floor)
    before = price_of(asked) if price.own else price
    return {
        "collective": collective,
        "topology": where.name,
        "ranks": asked.ranks,
        "nodes": nodes,
        "bytes": nbytes,
        **_choice(price),
        **_ring(collective, asked.ranks, nbytes, price),
        "lower_bound_seconds": bound_s(asked),
        "seconds": price.seconds,
        "algbw_gb_per_s": nbytes / price.seconds / 1e9,
        "busbw_gb_per_s": nbytes * float(bus_factor(collective, asked.ranks)) / price.seconds / 1e9,
        "median": price.seconds,
        "low": price.low_s,
        "high": price.high_s,
        "low_seconds": price.low_s,
        "high_seconds": price.high_s,
        "coverage": price.coverage,
        "kind": price.kind,
        "sites": price.sites,
        "own_measurements": price.own,
        "width": price.width,
        "width_before": before.width,
        "parts": price.parts,
        "machine_source": where.source,
        "nccl_version": asked.version.number,
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
        "tuner_seconds": price.tuner_s,
    }


def _ring(collective: str, ranks: int, nbytes: int, price: NcclPrice) -> dict[str, Any]:
    """Steps and bytes that a rank sends, where NCCL's algorithm has a fixed number of these."""
    from allranks.theory.cost import terms

    if price.option is None or price.option.algorithm != "ring" or collective in ("broadcast", "reduce"):
        return {"steps": None, "bytes_per_rank": None}
    found = terms(collective, "ring", ranks, nbytes)
    return {"steps": int(found.messages), "bytes_per_rank": float(found.nbytes)}


def in_words(found: dict[str, Any]) -> str:
    """The result for a terminal."""
    from allranks.theory.cost.calibrated import PARTS

    where = f"{counted(found['nodes'], 'node')} of {found['topology']}"
    chosen = found["algorithm"] + (
        f" with {found['protocol']}, {found['channels']} channels" if found["protocol"] else ""
    )
    parts = ", ".join(f"{PARTS[name]} x {factor:.2f}" for name, factor in _largest(found))
    lines = [
        f"{found['collective']}, {found['ranks']} ranks, {found['bytes']} bytes, on {where}, "
        f"as NCCL {found['nccl_version']} would",
        f"  chosen       {chosen}",
        f"  time         {interval(found)}",
        f"  busbw        {found['busbw_gb_per_s']:.4g} GB/s (algbw {found['algbw_gb_per_s']:.4g}), "
        "as nccl-tests counts them",
        f"  width        x {found['width']:.2g}: {parts}",
        f"  learned from {found['sites']} sites ({found['kind']}), each held against the others: docs/validation.md",
    ]
    if found["own_measurements"]:
        lines.append(
            f"  yours        {found['own_measurements']} measurements of your own: "
            f"x {found['width_before']:.2g} wide before, x {found['width']:.2g} now"
        )
    if "not known" in found["machine_source"]:
        lines.append(f"  machine      {found['machine_source']}")
    return "\n".join(lines)


def interval(found: dict[str, Any]) -> str:
    """Such as "13 to 31 µs (8 of 10 sites), most likely 20 µs"."""
    low, high, middle = (duration(float(f"{found[key]:.2g}")) for key in ("low", "high", "median"))
    number, unit = low.split()
    low = number if unit == high.split()[1] else low
    return f"{low} to {high} ({10 * found['coverage']:.0f} of 10 sites), most likely {middle}"


def _largest(found: dict[str, Any]) -> list[tuple[str, float]]:
    """The parts of the width that widen it by more than 1 %, the largest first."""
    return sorted(((n, f) for n, f in found["parts"].items() if f > 1.01), key=lambda part: -part[1])
