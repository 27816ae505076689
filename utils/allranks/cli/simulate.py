"""`allranks simulate`: how long a collective takes on a machine that you describe."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from allranks.cli import _nccl, _own
from allranks.cli._shared import CommandError, Size, duration

if TYPE_CHECKING:
    from allranks.theory.simulator.simulation import Simulation
    from allranks.theory.topology import Topology

# what every method takes; what is in neither list says how single messages go
ALL_TAKE = {"collective", "algorithm", "nbytes", "name", "nodes", "ranks", "as_json"}
# what only NCCL's tuner takes
TUNERS = {
    "no_nvls": "--no-nvls",
    "sharp": "--sharp",
    "floor": "--floor",
    "version": "--nccl",
    "one_process": "--one-process",
    "calibrate": "--calibrate",
}


@click.command(name="simulate")
@click.option("--collective", default="all_reduce", show_default=True, help="In torch's spelling.")
@click.option(
    "--algorithm",
    help="ring, recursive-doubling, ...; --list shows all. nccl: what NCCL would choose. Default: the textbook's, "
    "on several nodes over every card at once (ring-channels, for all_to_all pairwise-channels).",
)
@click.option("--ranks", type=int, help="In all. Default: 8, or what fills --nodes.")
@click.option("--nodes", type=click.IntRange(min=1), help="How many nodes of the preset.")
@click.option(
    "--bytes", "nbytes", type=Size(), default="1MiB", show_default=True, help="The full vector: 25MB, 1GiB, ..."
)
@click.option("--topology", "name", metavar="PRESET|FILE", help="dgx-a100, ... (--list), or a file of `allranks fit`.")
@click.option("--bandwidth", type=float, help="Bytes/s and direction of every link, instead of a preset.")
@click.option("--alpha", type=float, help="Seconds a message; with --bandwidth. Default: 0.")
@click.option("--gamma", type=float, default=0.0, help="Seconds a byte reduced.")
@click.option("--root", type=int, help="The root, if there is one.")
@click.option(
    "--segments", type=int, help="Segments of a pipelined algorithm. Default: the best by its formula, at most 64."
)
@click.option("--ranks-per-node", type=int, help="Of hierarchical algorithms. Default: the machine's.")
@click.option("--in-flight", type=int, help="Chunks that PAT sends at once. Default: all of a step.")
@click.option(
    "--straggler", multiple=True, metavar="RANK=FACTOR", help="This rank's messages take FACTOR times as long."
)
@click.option(
    "--background", multiple=True, metavar="KIND=SHARE", help="Others use SHARE of inside, host, nic or leaf links."
)
@click.option("--fail", multiple=True, metavar="KIND:WHERE:INDEX", help="A failed link: nic:0:3 is card 3 of node 0.")
@click.option(
    "--slow-link",
    multiple=True,
    metavar="NODE:CARD=FACTOR",
    help="A byte through this card takes FACTOR times as long.",
)
@click.option(
    "--lost-card", multiple=True, metavar="NODE:CARD", help="A card that has failed; the next takes its bytes."
)
@click.option("--nodes-per-leaf", type=int, help="Nodes below one leaf switch.")
@click.option("--oversubscription", type=float, help="Bandwidth of a leaf's ports over that of its uplinks.")
@click.option("--rails", is_flag=True, help="A leaf switch for each card number.")
@click.option("--trace", type=click.Path(path_type=Path), help="Write the trace, for the player and Trace.load.")
@click.option("--chrome", type=click.Path(path_type=Path), help="Write the trace for Perfetto.")
@click.option("--floor", type=float, help="Seconds that a call takes at least; with --algorithm nccl.")
@click.option("--no-nvls", is_flag=True, help="NVLink's switches do not add; with --algorithm nccl.")
@click.option("--sharp", is_flag=True, help="InfiniBand's switches add (NCCL_COLLNET_ENABLE=1); with --algorithm nccl.")
@click.option("--nccl", "version", help="NCCL's version, 2.27 or 2.30 (the default); with --algorithm nccl.")
@click.option("--one-process", is_flag=True, help="One process drives all GPUs of a node; with --algorithm nccl.")
@click.option(
    "--calibrate",
    type=click.Path(path_type=Path),
    help="Measurements of this machine (nccl-tests' output, or a file of `allranks fit`) that narrow the interval; "
    "with --algorithm nccl.",
)
@click.option("--list", "as_list", is_flag=True, help="List collectives, algorithms, formulas and presets.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def command(context: click.Context, **options: Any) -> None:
    """Simulates a collective on a machine, message by message.

    Without --topology and --bandwidth the machine is dgx-h100. The exit status is 2 if nothing can be simulated.
    """
    asked = SimpleNamespace(**options)
    if asked.as_list:
        click.echo(json.dumps(_catalogue()) if asked.as_json else _in_words(_catalogue()))
        return
    said = {name for name in options if context.get_parameter_source(name) is not ParameterSource.DEFAULT}
    found, words = _method(asked, said)(asked)
    click.echo(json.dumps(found) if asked.as_json else words)


def _method(asked: SimpleNamespace, said: set[str]) -> Callable[[SimpleNamespace], tuple[dict[str, Any], str]]:
    """Which of the four ways answers; `said` are the options on the command line. Raises CommandError."""
    by_message = said - ALL_TAKE - TUNERS.keys()
    if (asked.name or "").startswith("tpu-"):
        if said - {"collective", "nbytes", "name", "as_json"}:
            raise CommandError("A slice of TPUs takes --collective and --bytes only: its shape is the number of ranks.")
        return _by_torus
    if asked.algorithm == "nccl":
        if by_message:
            raise CommandError(
                "--algorithm nccl takes --collective, --bytes, --topology, --nodes, --ranks, "
                f"{' and '.join(', '.join(TUNERS.values()).rsplit(', ', 1))}: "
                "NCCL's tuner sees no single message, so that nothing can be slowed down or traced."
            )
        return _by_tuner
    if tuners := [option for name, option in TUNERS.items() if name in said]:
        raise CommandError(f"{tuners[0]} goes with --algorithm nccl.")
    if asked.algorithm == "measured":
        if by_message:
            raise CommandError(
                "--algorithm measured takes --collective, --bytes, --topology FILE, --nodes and --ranks."
            )
        return _by_measurements
    # a file in which this collective was measured answers, unless somebody says how its messages go
    if asked.algorithm is None and not by_message and _own.has(asked.name, asked.collective):
        return _by_measurements
    return _by_messages


def _by_torus(asked: SimpleNamespace) -> tuple[dict[str, Any], str]:
    """A formula's price on a slice of TPUs, as an object and in words."""
    from allranks.theory.cost import torus_price

    found = torus_price(asked.collective, asked.nbytes, asked.name)
    axes = ", ".join(f"{n} in a {'ring' if ring else 'line'}" for n, ring in zip(found.shape, found.rings, strict=True))
    answer = {
        "collective": found.collective, "topology": asked.name, "ranks": found.ranks, "bytes": asked.nbytes,
        "seconds": found.seconds, "moving_seconds": found.moving_s, "hops": found.hops, "measured": False,
    }  # fmt: skip
    return answer, (
        f"{found.collective}, {found.ranks} chips, {asked.nbytes} bytes, on {asked.name}: {axes}\n"
        f"  time         {duration(found.seconds)}\n"
        f"  for bytes    {duration(found.moving_s)}, all axes at once\n"
        f"  for hops     {duration(found.hops_s)} ({found.hops} hops)\n"
        "  measured     nothing: this is a formula"
    )


def _by_tuner(asked: SimpleNamespace) -> tuple[dict[str, Any], str]:
    """What NCCL would choose and how long that takes, as an object and in words."""
    found = _nccl.priced(asked)
    return found, _nccl.in_words(found)


def _by_measurements(asked: SimpleNamespace) -> tuple[dict[str, Any], str]:
    """What the topology's file measured, as an object and in words."""
    found = _own.priced(asked.collective, asked.nbytes, asked.name, asked.nodes, asked.ranks)
    return found, _own.in_words(found)


def _by_messages(asked: SimpleNamespace) -> tuple[dict[str, Any], str]:
    """The simulation of every message, as an object and in words; writes the traces that were asked for."""
    from allranks.theory.cost.nccl_bounds import machine_bound_s
    from allranks.theory.simulator.simulation import simulate

    machine = _machine(asked.name, asked.bandwidth, asked.alpha)
    ranks = _ranks(asked.ranks, asked.nodes, machine)
    healthy = _with_leaves(machine, asked)
    machine = _disturbed(healthy, asked.straggler, asked.background, asked.fail, asked.slow_link, asked.lost_card)
    names = ("root", "segments", "ranks_per_node", "in_flight")
    options = {name: value for name in names if (value := getattr(asked, name)) is not None}
    traced = asked.trace or asked.chrome
    wanted = asked.algorithm or _default(asked.collective, ranks, machine, traced or options)
    method = "events" if traced else None
    found = simulate(
        asked.collective, wanted, ranks, asked.nbytes, machine, gamma=asked.gamma, method=method, **options
    )
    try:
        if asked.trace:
            found.trace.save(asked.trace)
        if asked.chrome:
            found.trace.to_chrome(asked.chrome)
    except OSError as error:
        raise CommandError(f"The trace can't be written: {error.strerror or error} ({error.filename}).") from None
    cost: dict[str, float] = {}
    if machine != healthy:
        whole = simulate(asked.collective, wanted, ranks, asked.nbytes, healthy, gamma=asked.gamma, **options).seconds
        cost = {"healthy_seconds": whole, "times_as_long": found.seconds / whole if whole else 1.0}
    # the same lower bound as with --algorithm nccl: where the machine's switches add, they may
    bound_s = machine_bound_s(found.collective, ranks, found.nbytes, machine, asked.gamma)
    band = _band(found, bound_s)
    answer = found.to_dict() | {"lower_bound_seconds": bound_s} | band | cost
    return answer, _report(found, bound_s, band, cost)


def _with_leaves(machine: Topology, asked: SimpleNamespace) -> Topology:
    """The machine with the leaf switches of the options. Raises CommandError."""
    changes = {
        "nodes_per_leaf": asked.nodes_per_leaf,
        "oversubscription": asked.oversubscription,
        "rails": asked.rails or None,
    }
    machine = replace(machine, **{key: value for key, value in changes.items() if value is not None})
    if machine.nodes_per_leaf is None and (asked.oversubscription is not None or asked.rails):
        raise CommandError(
            f"--oversubscription and --rails are about leaf switches, and {machine.name} has none; give "
            "--nodes-per-leaf too."
        )
    return machine


def _default(collective: str, ranks: int, machine: Topology, by_message: object) -> str:
    """The textbook's algorithm; on several nodes, where no single message is asked for, over every card."""
    from allranks.theory.cost import TEXTBOOK
    from allranks.theory.simulator import channels

    name = collective.lower().replace("-", "_")
    every_card = name in channels.USUAL and machine.nodes(ranks) > 1 and not by_message
    return channels.USUAL[name] if every_card else TEXTBOOK.get(name, "ring")


def _machine(name: str | None, bandwidth: float | None, alpha: float | None) -> Topology:
    """The machine of the options: a preset, or equal links. Raises CommandError."""
    from allranks.theory.topology import preset, uniform

    if bandwidth is None:
        if alpha is not None:
            raise CommandError("--alpha goes with --bandwidth; a preset has its own latencies.")
        return preset(name or "dgx-h100")
    if name is not None:
        raise CommandError("Give --topology or --bandwidth, not both.")
    return uniform(0.0 if alpha is None else alpha, bandwidth)


def _ranks(ranks: int | None, nodes: int | None, machine: Topology) -> int:
    """How many ranks: as said, or as many as fill the nodes. Raises CommandError."""
    if nodes is None:
        return 8 if ranks is None else ranks
    if machine.ranks_per_node >= 1 << 30:
        raise CommandError("--nodes goes with a preset: equal links have no nodes.")
    if ranks is not None and ranks != nodes * machine.ranks_per_node:
        raise CommandError(f"{nodes} nodes of {machine.name} have {nodes * machine.ranks_per_node} ranks, not {ranks}.")
    return nodes * machine.ranks_per_node


def _disturbed(
    machine: Topology,
    straggler: tuple[str, ...],
    background: tuple[str, ...],
    fail: tuple[str, ...],
    slow_link: tuple[str, ...],
    lost_card: tuple[str, ...],
) -> Topology:
    """The machine with slow ranks, busy links and failed links, as the options say. Raises CommandError."""
    for rank, factor in _parsed("--straggler", straggler, "=", "RANK=FACTOR, for example 3=2.5", int, float):
        machine = machine.with_straggler(rank, factor)
    for kind, share in _parsed("--background", background, "=", "KIND=SHARE, for example nic=0.3", str, float):
        machine = machine.with_background(kind, share)
    for kind, where, index in _parsed("--fail", fail, ":", "KIND:WHERE:INDEX, for example nic:0:3", str, int, int):
        machine = machine.with_failure(kind, where, index)
    for place, factor in _parsed("--slow-link", slow_link, "=", "NODE:CARD=FACTOR, for example 0:3=2", str, float):
        for node, card in _parsed("--slow-link", (place,), ":", "NODE:CARD=FACTOR, for example 0:3=2", int, int):
            machine = machine.with_slow_nic(node, card, factor)
    for node, card in _parsed("--lost-card", lost_card, ":", "NODE:CARD, for example 0:3", int, int):
        machine = machine.with_failure("nic", node, card)
    return machine


def _parsed(
    option: str, values: tuple[str, ...], mark: str, form: str, *types: Callable[[str], Any]
) -> Iterator[tuple[Any, ...]]:
    """Each value, cut at `mark` into parts of these types. Raises CommandError, which shows `form`."""
    for value in values:
        parts = value.split(mark)
        try:
            yield tuple(kind(part) for kind, part in zip(types, parts, strict=True))
        except ValueError:
            raise CommandError(f"{option} {value!r} can't be read; write {form}.") from None


def _band(found: Simulation, bound_s: float) -> dict[str, Any]:
    """Where 8 of 10 sites that published lie; {} unless it is every card of a preset at once."""
    from allranks.theory.cost.nccl_price import kind_of, link_interval
    from allranks.theory.topology import PRESETS

    if found.method != "closed form" or PRESETS.get(found.topology.name) != found.topology or not found.seconds:
        return {}
    kind = kind_of(found.topology.nodes(found.ranks), found.nbytes)
    return link_interval([(kind, found.seconds, bound_s)])


def _report(found: Simulation, bound_s: float, band: dict[str, Any], cost: dict[str, float]) -> str:
    """The result for a terminal."""
    words = [
        f"{found.algorithm} {found.collective}, {found.ranks} ranks, {found.nbytes} bytes, on {found.topology.name}",
        f"  time         {duration(found.seconds)}",
        f"  lower bound  {duration(bound_s)}",
        f"  steps        {found.steps}",
        f"  bytes sent   {found.bytes_per_rank} by the busiest rank",
    ]
    if found.busbw_gb_per_s is not None:
        words.append(f"  bandwidth    algbw {found.algbw_gb_per_s:.2f} GB/s, busbw {found.busbw_gb_per_s:.2f} GB/s")
    ways = {
        "symmetry": "one of several equal parts of the machine",
        "closed form": "in closed form, every card at once",
    }
    how = ways.get(found.method, "message by message")
    words.append(f"  simulated    {how}")
    if cost:
        words.append(
            f"  disturbed    {cost['times_as_long']:.3g} times the {duration(cost['healthy_seconds'])} of the "
            "same machine in health"
        )
    if band:
        words.append(
            f"  measured     {_nccl.interval(band)}: {band['sites']} sites ({band['kind']}); "
            "--algorithm nccl knows more"
        )
    return "\n".join(words)


def _catalogue() -> dict[str, list[dict[str, Any]]]:
    """Every algorithm with its formula, and every preset with its links."""
    from allranks.theory.cost import FORMULAS
    from allranks.theory.cost.nccl_machines import MACHINES
    from allranks.theory.topology import PRESETS

    return {
        "algorithms": [
            {"collective": f.collective, "algorithm": f.algorithm.replace(" ", "-"), "formula": f.text,
             "source": f.source}
            for f in FORMULAS.values()
        ],
        "topologies": [
            {"topology": t.name, "ranks_per_node": t.ranks_per_node, "nics_per_node": t.nics_per_node,
             "links": [{"link": x.name, "alpha_s": x.alpha_s, "bytes_per_s": x.bytes_per_s, "source": x.source}
                       for x in (t.inside, t.host, t.nic) if x], "source": t.source}
            for t in PRESETS.values()
        ],
        "nccl_machines": [
            {"topology": m.name, "gpu": m.gpu, "gpus_per_node": m.gpus_per_node, "one_node": sorted(m.one),
             "several_nodes": sorted(m.several), "source": m.source}
            for m in MACHINES.values()
        ],
    }  # fmt: skip


def _in_words(catalogue: dict[str, list[dict[str, Any]]]) -> str:
    """The catalogue for a terminal."""
    from allranks.theory.simulator.channels import ALGORITHMS

    lines = [f"{a['collective']:<15}{a['algorithm']:<20}{a['formula']}" for a in catalogue["algorithms"]]
    for t in catalogue["topologies"]:
        links = ", ".join(f"{x['link']} {x['bytes_per_s'] / 1e9:g} GB/s" for x in t["links"])
        lines.append(f"{t['topology']:<15}{t['ranks_per_node']} ranks a node: {links}")
    names = ", ".join(m["topology"] for m in catalogue["nccl_machines"])
    over = [f"{name.replace(' ', '-')} ({', '.join(calls)})" for name, calls in ALGORITHMS.items()]
    every_card = f"over every card of a node at once, with --algorithm {'; '.join(over)}"
    return "\n".join([*lines, every_card, f"with --algorithm nccl: {names}"])
