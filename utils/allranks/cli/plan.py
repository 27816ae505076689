"""`allranks plan`: the splits of a training run that fit, by the seconds of a step."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, get_args

import click

from allranks.cli._shared import CommandError
from allranks.theory.cost.rooflines import Recompute

if TYPE_CHECKING:
    from allranks.theory.cost.plan import Model
    from allranks.theory.cost.step import TrainingStep

_FIGURES = ("parameters", "layers", "hidden", "sequence", "heads", "vocabulary")


@click.command(name="plan")
@click.option("--model", "name", default="7B", show_default=True, help="A model of `cost.plan.MODELS`.")
@click.option("--parameters", type=float, help="Instead of the model's; so are the next five.")
@click.option("--layers", type=int)
@click.option("--hidden", type=int)
@click.option("--sequence", type=int)
@click.option("--heads", type=int, help="Of attention; for --recompute none.")
@click.option("--vocabulary", type=int)
@click.option("--topology", "machine", metavar="PRESET|FILE", default="dgx-h100", show_default=True)
@click.option("--ranks", type=int, default=64, show_default=True, help="GPUs in all.")
@click.option("--batch", type=int, default=256, show_default=True, help="Sequences in a step.")
@click.option("--tp", type=int, help="Tensor parallel ranks. Default for these: all that are possible are tried.")
@click.option("--pp", type=int, help="Pipeline stages.")
@click.option("--ep", type=int, help="Expert parallel ranks.")
@click.option("--zero", "zero_stage", type=int, help="ZeRO stage, 0 to 3.")
@click.option("--microbatch", type=int, help="Sequences at a time.")
@click.option("--cp", type=int, help="Context parallel ranks. Default: 1.")
@click.option("--chunks", type=int, help="Parts of the layers on each stage of an interleaved pipeline. Default: 1.")
@click.option("--recompute", type=click.Choice(get_args(Recompute)), help="Default: selective and full are tried.")
@click.option("--tensor-overlap", is_flag=True, help="Tensor parallel sending hides behind products in tp pieces.")
@click.option("--top", type=click.IntRange(min=1), default=5, show_default=True, help="How many splits to show.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(name, machine, ranks, batch, recompute, tensor_overlap, top, as_json, **given) -> None:
    """Ranks the splits of a training run over GPUs by the seconds of a step.

    Splits that do not fit into memory are refused. The exit status is 2 if none fits.
    """
    from allranks.theory.cost import ranking

    figures = {key: given.pop(key) for key in _FIGURES if key in given}
    split = {key: value for key, value in given.items() if value is not None}
    model = _model(name, {key: value for key, value in figures.items() if value is not None})
    found = ranking.ranked_plans(
        model, machine, ranks, batch, recompute=recompute, tensor_overlap=tensor_overlap, **split
    )
    if as_json:
        shown = [_as_data(step) for step in found[:top]]
        click.echo(
            json.dumps({"model": model.name, "topology": machine, "ranks": ranks, "fit": len(found), "plans": shown})
        )
        return
    click.echo(_in_words(found, top, machine))


def _model(name: str, figures: dict[str, Any]) -> Model:
    from allranks.theory.cost.plan import MODELS, custom_model

    known = {key.lower(): model for key, model in MODELS.items()}
    if name.lower() not in known:
        raise CommandError(f"There is no model {name!r}; there are {', '.join(MODELS)}.")
    return custom_model(known[name.lower()], **figures) if figures else known[name.lower()]


def _interval(step: TrainingStep) -> tuple[float, float, float, int, int]:
    """Median, low and high seconds of a step, and the steps and families of runs that the interval is learned from.

    None is less than the useful arithmetic takes at the GPUs' peak.
    """
    from allranks.theory.cost.step_bands import STEP_BAND

    *shares, points, families = STEP_BAND
    median, low, high = (max(share * step.seconds, step.spent["useful"]) for share in shares)
    return median, low, high, points, families


def _as_data(step: TrainingStep) -> dict[str, Any]:
    from allranks.theory.cost.calibrated import COVERAGE

    split = step.plan
    median, low, high, points, families = _interval(step)
    names = ("dp", "tp", "pp", "cp", "ep", "zero_stage", "microbatch", "chunks")
    return {name: getattr(split, name) for name in names} | {
        "recompute": step.recompute,
        "seconds": step.seconds,
        "median": median,
        "low": low,
        "high": high,
        "low_seconds": low,
        "high_seconds": high,
        "coverage": COVERAGE,
        "points": points,
        "sites": families,
        "mfu": step.mfu,
        "bytes": step.nbytes,
        "gpu_bytes": step.gpu.nbytes,
        "memory": step.memory,
        "spent": step.spent,
    }


def _in_words(found: list[TrainingStep], top: int, machine: str) -> str:
    from allranks.theory.cost.ranking import in_words

    best = found[0]
    count = f"{len(found)} splits fit" if len(found) > 1 else "One split fits"
    lines = [
        f"{best.plan.model.name}, {best.plan.ranks} x {best.gpu.name} ({machine}), {best.plan.batch} sequences of "
        f"{best.plan.model.sequence} a step: {count} into {best.gpu.nbytes / 1e9:.0f} GB",
        f"{'seconds':>9} {'MFU':>5} {'GB':>5}  split",
    ]
    for step in found[:top]:
        lines.append(f"{step.seconds:9.3f} {step.mfu:5.0%} {step.nbytes / 1e9:5.0f}  {in_words(step)}")
    median, low, high, points, families = _interval(best)
    lines.append(
        f"Measured: {low:.3g} to {high:.3g} s for the first (8 of 10 published "
        f"steps), most likely {median:.3g}; learned from {points} steps of {families} families "
        "of runs."
    )
    return "\n".join(lines)
