"""`allranks fit`: your cluster's own numbers, from nccl-tests' output into a topology file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from allranks.cli._shared import CommandError, size_in_words

if TYPE_CHECKING:
    from allranks.theory.cost import FittedSweep, OwnCluster


@click.command(name="fit")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--out", "-o", type=click.Path(path_type=Path), help="Write the topology file here (mine.json).")
@click.option("--name", help="The machine's name in the file. Default: the file's own.")
@click.option("--collective", help="What ran, where the output does not tell: all_reduce, ...")
@click.option("--ranks", type=click.IntRange(min=1), help="How many ranks ran, where the output does not tell.")
@click.option(
    "--nodes", type=click.IntRange(min=1), help="On how many nodes, where the output does not tell. Default: 1."
)
@click.option("--nics-per-node", type=click.IntRange(min=1), help="Network cards of a node. Default: one a rank.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: the topology file and the notes.")
def command(files, out, name, collective, ranks, nodes, nics_per_node, as_json) -> None:
    """Fits overhead, alpha, bandwidth and efficiency to what nccl-tests or `allranks bench` printed, one or more FILES.

    The topology file goes into `allranks simulate --topology`, `allranks price --topology`, `cost.plan` and
    `topology.preset`. The exit status is 2 if nothing could be fitted.

    Example: all_reduce_perf -b 8 -e 8G -f 2 -g 8 > all_reduce.txt; allranks fit all_reduce.txt -o mine.json
    """
    from allranks.theory.cost import OwnCluster, fit_measured, read_measured_file

    measured = [
        sweep for file in files for sweep in read_measured_file(file, collective=collective, ranks=ranks, nodes=nodes)
    ]
    sweeps, notes = fit_measured(measured, nodes)
    cluster = OwnCluster.of(name or (out.stem if out else files[0].stem), sweeps, nics_per_node)
    written = cluster.to_dict()
    if out:
        _write(out, json.dumps(written, indent=1) + "\n")
    if as_json:
        click.echo(json.dumps({"topology": written, "notes": notes}))
        return
    click.echo("\n".join(_report(cluster)))
    for note in notes:
        click.echo(f"note: {note}", err=True)
    if out:
        click.echo(f"Written to {out}. Try: allranks simulate --topology {out} --bytes 100MB")


def _write(out: Path, text: str) -> None:
    """Writes the file whole, or leaves what was there."""
    if out.suffix.lower() != ".json":
        raise CommandError(f"{out} must end with .json: by that, other commands know a file from a preset's name.")
    half = out.with_name(out.name + ".part")
    try:
        half.write_text(text, encoding="utf-8")
        half.replace(out)
    except OSError as error:
        raise CommandError(f"{out} can't be written: {error.strerror or error}.") from None


def _report(cluster: OwnCluster) -> list[str]:
    lines = [f"{cluster.topology.name}: nodes of {cluster.topology.ranks_per_node} ranks"]
    head = ("collective", "ranks", "nodes", "overhead us", "alpha us", "busbw GB/s", "at half from", "held-out error")
    widths = (16, 6, 6, 12, 10, 11, 13, 24)
    lines.append(
        "".join(text.rjust(w) if i else text.ljust(w) for i, (text, w) in enumerate(zip(head, widths, strict=True)))
    )
    for s in cluster.sweeps:
        cells = (
            s.collective, str(s.ranks), str(s.nodes), f"{1e6 * s.overhead_s:.1f}", f"{1e6 * s.alpha_s:.2f}",
            f"{s.bytes_per_s / 1e9:.4g}", _half(s), _held_out(s),
        )  # fmt: skip
        lines.append(
            "".join(
                text.rjust(w) if i else text.ljust(w) for i, (text, w) in enumerate(zip(cells, widths, strict=True))
            )
        )
    together = {(s.collective, s.nodes > 1) for s in cluster.sweeps}
    if len(together) == len(cluster.sweeps):
        lines.append("Overhead and alpha of a collective can be told apart only where two world sizes were measured.")
    return lines


def _half(sweep: FittedSweep) -> str:
    """The smallest measured size that reaches half of the bandwidth."""
    from allranks.theory.cost import bus_factor

    factor = float(bus_factor(sweep.collective, sweep.ranks))
    return size_in_words(next(n for n, _ in sweep.efficiency if n * factor / sweep.seconds(n) >= sweep.bytes_per_s / 2))


def _held_out(sweep: FittedSweep) -> str:
    from statistics import median

    if not sweep.held_out:
        return "too few sizes"
    return f"{median(sweep.held_out):.1%} (worst {max(sweep.held_out):.1%})"
