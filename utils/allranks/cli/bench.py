"""`allranks bench`: measures a collective on live ranks, prints nccl-tests' table, fits alpha and beta of a link."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from allranks.base.errors import size_in_words
from allranks.cli._shared import CommandError, Size

if TYPE_CHECKING:
    from allranks.machine.bench import Call, Prediction, Sweep
    from allranks.ranks.world import World

_WIDTHS = (12, 12, 9, 6, 5, 11, 13, 9, 7, 11, 13, 9, 7)


@click.command(name="bench")
@click.option("--collective", default="all_reduce", show_default=True, help="In torch's spelling.")
@click.option("--algorithm", help="One of the course's own instead of the backend's: ring, tree, rabenseifner, ...")
@click.option("--ranks", type=int, help="The world size. Default: one a GPU, or 4 on the CPU.")
@click.option("--backend", type=click.Choice(["gloo", "nccl"]), help="Default: what fits the machine.")
@click.option("--min-bytes", "-b", type=Size(), default="8", show_default=True)
@click.option(
    "--max-bytes", "-e", type=Size(), default="16MiB", show_default=True, help="As large as memory allows: 4GiB."
)
@click.option("--factor", "-f", type=int, default=2, show_default=True, help="From one size to the next.")
@click.option("--iterations", "-n", type=int, default=20, show_default=True, help="Timed calls a size.")
@click.option("--warmups", "-w", type=int, default=5, show_default=True, help="Calls before those.")
@click.option(
    "--passes", type=int, default=4, show_default=True, help="Passes through all sizes that share those calls."
)
@click.option("--dtype", "-d", default="float32", show_default=True)
@click.option("--op", "-o", default="sum", show_default=True, help="sum, prod, min, max or avg.")
@click.option("--root", "-r", type=int, default=0, show_default=True)
@click.option("--also-ranks", type=int, help="Predict this world size from the fit, then measure it too.")
@click.option("--csv", "csv_file", type=click.Path(path_type=Path), help="Write the table to this file.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    collective, algorithm, ranks, backend, min_bytes, max_bytes, factor, iterations, warmups, dtype, op, root,
    passes, also_ranks, csv_file, as_json,
) -> None:  # fmt: skip
    """Measures a collective over sizes on live ranks, as nccl-tests does, and fits alpha and beta.

    The exit status is 1 if an element is wrong, and 2 if nothing could be measured.
    """
    from allranks.base.errors import CourseError
    from allranks.machine import bench
    from allranks.ranks.world import World

    try:
        if also_ranks is not None and also_ranks < 1:
            raise bench.BenchError(f"The other world would have {also_ranks} ranks; it needs at least 1.")
        call = bench.Call(collective.replace("-", "_"), dtype, op, root, algorithm)
        sizes = bench.sizes(min_bytes, max_bytes, factor)
        options = {"iterations": iterations, "warmups": warmups, "passes": passes}
        # World prints on standard output that it is ready; standard output is for the result
        with contextlib.redirect_stdout(sys.stderr):
            with World(ranks, backend=backend) as world:
                found = _swept(world, call, sizes, options)
            other = None
            if also_ranks is not None:
                with World(also_ranks, backend=backend) as world:
                    other = _swept(world, call, sizes, options)
        if csv_file:
            csv_file.write_text(found.to_csv(), encoding="utf-8")
        # one rank has no link: there is nothing to fit and nothing to predict
        known = other is not None and len(found.rows) >= 3 and min(found.ranks, other.ranks) > 1
        prediction = other.prediction(found.fit()) if known else None
    except CourseError:
        raise
    except (OSError, ValueError) as error:
        if not csv_file:
            raise
        raise CommandError(f"The file can't be written: {error}.") from None
    if as_json:
        data = found.to_dict()
        if other is not None:
            data |= {"also": other.to_dict(), "prediction_for_also": prediction and prediction.to_dict()}
        click.echo(json.dumps(data))
    else:
        click.echo(report(found))
        if other is not None:
            click.echo(f"\n{report(other)}")
        if prediction is not None:
            click.echo(f"\n{_predicted(prediction)}")
    sys.exit(1 if found.wrong or (other is not None and other.wrong) else 0)


def _swept(world: World, call: Call, sizes: list[int], options: dict[str, int]) -> Sweep:
    """The sweep, measured with a progress bar on standard error."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from allranks.machine.bench import sweep

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    console = Console(file=sys.__stderr__)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        total = len(sizes) * min(options["passes"], max(1, options["iterations"]))
        task = bar.add_task(f"{call.collective}, {world.ranks} ranks", total=total)
        return sweep(world, call, sizes, progress=lambda: bar.advance(task), in_place=True, **options)


def report(found: Sweep) -> str:
    """The sweep for a terminal: nccl-tests' table, then the fit."""
    who = found.call.algorithm or f"{found.backend}'s own"
    about = ", ".join(f"{key} {value}" for key, value in found.about.items())
    lines = [f"# {found.call.collective} ({who}), {found.ranks} ranks, {found.backend}, {about}"]
    # one group of columns for each way that was measured
    groups = len(found.ways)
    ways = [cell for way in found.ways for cell in ("", way, "", "")]
    heads = ("size", "count", "type", "redop", "root", *("time", "algbw", "busbw", "#wrong") * groups)
    units = ("(B)", "(elements)", "", "", "", *("(us)", "(GB/s)", "(GB/s)", "") * groups)
    for row in ([["", "", "", "", "", *ways]] if groups > 1 else []) + [[*heads], [*units]]:
        lines.append(("#" + _line(row)[1:]).rstrip())
    for r in found.rows:
        cells = [str(r.size), str(r.count), r.type, r.redop, str(r.root)]
        for time_us, algbw, busbw, wrong in found.figures(r):
            cells += [f"{time_us:.2f}", f"{algbw:.3f}", f"{busbw:.3f}", str(wrong)]
        lines.append(_line(cells))
    lines.append(f"# wrong elements: {found.wrong}; average bus bandwidth: {found.average_busbw_gb_per_s:.4f} GB/s")
    if len(found.rows) >= 3 and found.ranks > 1:
        lines += ["", *_fitted(found)]
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return "".join(text.rjust(width) for text, width in zip(cells, _WIDTHS, strict=False))


def _fitted(found: Sweep) -> list[str]:
    """The lines about the fit of alpha and beta."""
    fitted = found.fit()
    latency, slope, alpha, beta = fitted.latency_s, fitted.s_per_byte, fitted.alpha_s, fitted.beta_s_per_byte
    lines = [
        "fit of the best times: latency + size x seconds a byte (95 % intervals)",
        f"  latency {latency.value * 1e6:.1f} us ({latency.low * 1e6:.1f} to {latency.high * 1e6:.1f}), "
        f"{slope.value * 1e9:.4f} ns a byte ({slope.low * 1e9:.4f} to {slope.high * 1e9:.4f})",
        f"  as {fitted.algorithm}: alpha {alpha.value * 1e6:.2f} us ({alpha.low * 1e6:.2f} to {alpha.high * 1e6:.2f}), "
        f"beta {beta.value * 1e9:.4f} ns ({beta.low * 1e9:.4f} to {beta.high * 1e9:.4f})",
    ]
    if fitted.half_nbytes is not None:
        lines.append(
            f"  latency turns into bandwidth at {size_in_words(fitted.half_nbytes)}: below it a call's time "
            "hardly depends on its size, above it time grows with it"
        )
    if len(found.rows) >= 6:
        held = found.prediction()
        lines.append(
            f"  a fit of every other size predicts the sizes between with a median error of {held.median_error:.1%} "
            f"(worst {held.worst[1]:.1%}, at {size_in_words(held.worst[0])})"
        )
    return lines


def _predicted(prediction: Prediction) -> str:
    return (
        f"the fit for {prediction.fitted_ranks} ranks predicts {prediction.ranks} ranks with a median error of "
        f"{prediction.median_error:.1%} (worst {prediction.worst[1]:.1%}, at {size_in_words(prediction.worst[0])})"
    )
