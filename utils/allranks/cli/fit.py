"""`allranks fit`: your cluster's own numbers, from nccl-tests' output into a topology file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from allranks.base.errors import capital, counted, size_in_words, wrapped
from allranks.base.whole import write_whole
from allranks.cli._shared import CommandError, write_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from allranks.theory.cost import FittedSweep, Measured, OwnCluster
    from allranks.theory.cost.normal import Normal, Shape
    from allranks.theory.cost.pair_looks import PairReport


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
@click.option("--machine", help="NCCL's model to compare with, where the devices' names do not tell: dgx-h100, ...")
@click.option("--html", type=click.Path(path_type=Path), help="Write the comparison here, as one page to send on.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object: the topology file, the notes, and what is normal."
)
def command(files, out, name, collective, ranks, nodes, nics_per_node, machine, html, as_json) -> None:
    """Fits overhead, alpha, bandwidth and efficiency to what nccl-tests or `allranks bench` printed, one or more FILES.

    Tables of other tools are read by the names and units of their columns. Measurements
    of pairs (p2pBandwidthLatencyTest, nvbandwidth, osu_bw, ib_write_bw, sendrecv_perf) are told, and not fitted.

    The topology file goes into `allranks simulate --topology`, `allranks price --topology`, `cost.plan` and
    `topology.preset`. The exit status is 2 if nothing could be fitted.

    Each run is set beside what others published for the same machine and what NCCL's tuner foretells: where it falls
    off, the usual reasons, and the test that would tell. One size is too few for a fit, and is compared all the same.

    Example: all_reduce_perf -b 8 -e 8G -f 2 -g 8 > all_reduce.txt; allranks fit all_reduce.txt -o mine.json
    """
    from allranks.theory.cost import CostError, OwnCluster, fit_measured
    from allranks.theory.cost.normal import normal

    measured, pairs = _read(files, {"collective": collective, "ranks": ranks, "nodes": nodes})
    if pairs and not measured:
        if out or html:
            raise CommandError("These are measurements of pairs, to which no collective can be fitted.")
        click.echo(
            json.dumps({"topology": None, "notes": [], "normal": [], "pairs": [one.to_dict() for one in pairs]})
            if as_json
            else "\n\n".join(map(_pairs, pairs))
        )
        return
    if not as_json:
        for line in _wrong(measured):
            click.echo(line)
    told = [sweep for sweep in measured if sweep.collective != "barrier" and sweep.ranks > 1]
    compared = [normal(sweep, machine, nodes) for sweep in told]
    if html:
        _page(html, compared, files[0].name)
    try:
        sweeps, notes = fit_measured(measured, nodes)
    except CostError:
        if not as_json:  # one size is too few for a fit, and enough to be compared
            click.echo(
                "\n\n".join("\n".join(_normal(one, sweep, nodes)) for one, sweep in zip(compared, told, strict=True))
            )
            for note in dict.fromkeys(f"{sweep.collective}: {note}" for sweep in told for note in sweep.notes):
                click.echo(f"note: {note}", err=True)
        raise
    cluster = OwnCluster.of(name or (out.stem if out else files[0].stem), sweeps, nics_per_node)
    written = cluster.to_dict()
    if out:
        _write(out, json.dumps(written, indent=1) + "\n")
    if as_json:
        told_too = {"pairs": [one.to_dict() for one in pairs]} if pairs else {}
        normals = [one.to_dict() for one in compared]
        click.echo(json.dumps({"topology": written, "notes": notes, "normal": normals} | told_too))
        return
    click.echo("\n".join(_report(cluster)))
    for one, sweep in zip(compared, told, strict=True):
        click.echo("\n".join(["", *_normal(one, sweep, nodes)]))
    for pair in pairs:
        click.echo("\n" + _pairs(pair))
    for note in notes:
        if "has wrong elements at" not in note:  # told first
            click.echo(f"note: {note}", err=True)
    if out:
        click.echo(f"Written to {out}. Try: allranks simulate --topology {out} --bytes 100MB")


def _read(files: tuple[Path, ...], known: dict[str, Any]) -> tuple[list[Measured], list[PairReport]]:
    """The sweeps of collectives in the files, and what those that measure pairs say."""
    from allranks.theory.cost.nccl_tests import read_all, text_of
    from allranks.theory.cost.pair_looks import looks_of

    measured, pairs = [], []
    for file in files:
        sweeps, found, error = read_all(file, text_of(file), **known)
        if error is not None and not found:
            raise error
        if error is not None and " shows " in str(error):
            click.echo(f"note: {error}", err=True)
        measured += sweeps
        pairs += looks_of(found)
    return measured, pairs


def _wrong(measured: Iterable[Measured]) -> list[str]:
    """Runs with wrong results, which come before all figures: they are no measurements."""
    lines = []
    for sweep in measured:
        if sweep.wrong or sweep.failed:
            sizes = counted(len(sweep.wrong) + len(sweep.points), "size")
            bad = ", ".join(map(str, sweep.wrong[:5])) + (", ..." if len(sweep.wrong) > 5 else "")
            what = f"at {bad} bytes ({len(sweep.wrong)} of {sizes})" if sweep.wrong else f"({sweep.failed})"
            text = f"WRONG RESULTS: {sweep.collective} on {counted(sweep.ranks, 'rank')} has wrong elements {what}. "
            text += "Such a run is no measurement: find out why before you use any figure of it."
            lines += wrapped(text, "", "  ")
    return [*lines, ""] if lines else []


def _pairs(report: PairReport) -> str:
    """A measurement of pairs, for a terminal."""
    lines = [report.title, *(line for text in report.lines for line in wrapped(f"{capital(text)}.", "  ", "    "))]
    return "\n".join([*lines, *_shapes(report.shapes)])


def _shapes(shapes: Iterable[Shape]) -> list[str]:
    return [
        line
        for shape in shapes
        for line in (f"  {capital(shape.looks)}. Usual: {shape.usual}.", f"    What would tell: {shape.test}")
    ]


def _page(html: Path, compared: list[Normal], name: str) -> None:
    from allranks.show.pictures.busbw import busbw_page

    if not compared:
        raise CommandError("No run sends anything between ranks, so that there is no busbw to draw.")
    write_text(html, busbw_page(compared, name))


def _write(out: Path, text: str) -> None:
    """Writes the file whole, or leaves what was there."""
    if out.suffix.lower() != ".json":
        raise CommandError(f"{out} must end with .json: by that, other commands know a file from a preset's name.")
    try:
        write_whole(out, text)
    except OSError as error:
        raise CommandError(f"{out} can't be written: {error.strerror or error}.") from None


def _report(cluster: OwnCluster) -> list[str]:
    lines = [f"{cluster.topology.name}: nodes of {counted(cluster.topology.ranks_per_node, 'rank')}"]
    head = ("collective", "ranks", "nodes", "overhead us", "alpha us", "busbw GB/s", "at half from", "held-out error")
    widths = (16, 6, 6, 12, 10, 11, 22, 24)  # a half may lie between two sizes, each of several digits
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
        if s.setting:
            lines.append(f"    with {s.setting}")
        if (end := _end(s)) is not None:
            lines.append(f"    {end}")
    if any(s.efficiency[0][0] > 64 << 10 for s in cluster.sweeps):
        lines.append(
            "Where no size up to 64 KiB was measured, the latency is a guess: what the line through the others leaves."
        )
    together = {(s.collective, s.nodes > 1) for s in cluster.sweeps}
    if len(together) == len(cluster.sweeps):
        lines.append("Overhead and alpha of a collective can be told apart only where two world sizes were measured.")
    return lines


ROWS = 12  # of the comparison


def _normal(one: Normal, sweep: Measured, nodes: int | None) -> list[str]:
    """Whether the busbw is normal, for a terminal."""
    from allranks.theory.cost.normal import LARGE, LOW

    taken = "" if sweep.nodes or nodes else ", taken as"  # nothing says on how many
    where = f"{one.ranks} ranks{taken} on {counted(one.nodes, 'node')}" + (f" of {one.gpu}" if one.gpu else "")
    if one.domains < one.nodes:
        where += ", which share one NVLink domain (one node for NCCL)"
    lines = [f"Is it normal? {one.collective}, {where}" + (f", {sweep.setting}" if sweep.setting else "")]
    if not one.gpu:
        lines.append("  The file does not name a GPU that is known here: say --machine, such as dgx-h100.")
    rows = one.rows[-1 :: -max(1, len(one.rows) // ROWS)][::-1]
    head = ("size", "you GB/s", "published", "NCCL's model", "your share")
    lines.append("  " + "".join(cell.rjust(13) for cell in head))
    for nbytes, own, others, model in rows:
        reference = others or model
        cells = (size_in_words(nbytes), f"{own:.4g}", *("-" if x is None else f"{x:.4g}" for x in (others, model)))
        lines.append("  " + "".join(c.rjust(13) for c in (*cells, f"{own / reference:.0%}" if reference else "-")))
    if one.sites:
        faster = ""
        if one.below is not None:
            faster = f"; {counted(one.below, 'of them is', 'of them are')} faster at the largest size"
        at = "" if one.percentile is None else f" (percentile {100 * one.percentile:.0f})"
        lines.append(f"  Published by {len(one.sites)}: {', '.join(one.sites)}{faster}{at}.")
        if one.percentile is None:
            lines.append("  With fewer than five sites there is no percentile.")
    elif one.gpu:
        lines.append("  Nobody's measurement of such a machine is known here; the model is NCCL's tuner.")
    for what, busbw in one.roofs:
        lines.append(
            f"  Roof, where {what}: {busbw:.0f} GB/s."
            if what.startswith("the switch")
            else f"  Roof of {what}: {busbw:.0f} GB/s."
        )
    if one.of_reference is not None:
        largest = one.rows[-1][0]
        verdict = "normal" if one.of_reference >= LOW else "low"
        if largest < LARGE:
            verdict = f"no verdict, as the sizes end below {size_in_words(LARGE)}"
        lines.append(
            f"  {one.top:.4g} GB/s at {size_in_words(largest)} is {one.of_reference:.0%} of the reference: {verdict}."
        )
    if one.falls_off is not None:
        lines.append(f"  It leaves the reference at {size_in_words(one.falls_off)}, and stays below from there on.")
    return lines + _shapes(one.shapes)


def _end(sweep: FittedSweep) -> str | None:
    """Where a curve does not stay at its best: in words, what it ends with."""
    from allranks.theory.cost import bus_factor

    factor = float(bus_factor(sweep.collective, sweep.ranks))
    rates = [(n, n * factor / sweep.seconds(n)) for n, _ in sweep.efficiency]
    (at, best), (last, rate) = max(rates, key=lambda row: row[1]), rates[-1]
    if rate >= STAYS * best:
        return None
    ends = f"{rate / 1e9:.4g} GB/s at {size_in_words(last)}, its largest size ({rate / best:.0%})"
    return f"this busbw, at {size_in_words(at)}, is its best, and does not last: {ends}"


STAYS = 0.85  # of the best busbw: what ends lower did not stay there
GAP = 4  # sizes farther apart leave open where the half is


def _half(sweep: FittedSweep) -> str:
    """The measured size from which on half of the bandwidth is reached; after the one before, if that is far below."""
    from allranks.theory.cost import bus_factor

    factor = float(bus_factor(sweep.collective, sweep.ranks))
    sizes = [nbytes for nbytes, _ in sweep.efficiency]
    below = [i for i, n in enumerate(sizes) if n * factor / sweep.seconds(n) < sweep.bytes_per_s / 2]
    first = below[-1] + 1 if below else 0
    if first == len(sizes):  # the busbw falls off again
        return "no size"
    found = size_in_words(sizes[first])
    if not first:
        return f"<= {found}"
    return found if sizes[first] <= GAP * sizes[first - 1] else f"{size_in_words(sizes[first - 1])}..{found}"


def _held_out(sweep: FittedSweep) -> str:
    from statistics import median

    if not sweep.held_out:
        return "too few sizes"
    return f"{median(sweep.held_out):.1%} (worst {max(sweep.held_out):.1%})"
