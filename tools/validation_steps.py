"""Holds `training_step` against published steps of training: a part of docs/validation.md, its figure, and the band that `plan` quotes.

`python tools/validation.py` runs it. Nothing is fitted to these steps.
"""

from __future__ import annotations

import csv
import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Protocol

from allranks.theory.cost.plan import Model, Plan
from allranks.theory.cost.step import TrainingStep, training_step
from allranks.theory.topology import preset

ROOT = Path(__file__).resolve().parent.parent
MEASURED = ROOT / "docs" / "measured" / "step_times.csv"
FIGURE = ROOT / "docs" / "measured" / "validation_steps.svg"
BAND = ROOT / "utils" / "allranks" / "theory" / "cost" / "step_bands.py"
MACHINE = {"A100-80GB": "dgx-a100", "H100-80GB": "dgx-h100", "H100-96GB(500W)": "dgx-h100"}
# layers, hidden, heads, words; where the row's note does not say them: arXiv:2205.05198, table 3, and arXiv:2407.21783, table 3
SHAPES = {
    "GPT 22B": (48, 6144, 64, 51200), "GPT 175B": (96, 12288, 96, 51200), "GPT 530B": (105, 20480, 128, 51200),
    "GPT 1T": (128, 25600, 160, 51200), "Llama 3 405B": (126, 16384, 128, 128256), "Llama 3.1 8B": (32, 4096, 32, 128256),
    "Llama 3.1 70B": (80, 8192, 64, 128256),
}  # fmt: skip
# heads of the rows whose note has the rest: arXiv:2104.04473, table 1; for the others hidden / 128
HEADS = {
    "GPT 1.7B": 24,
    "GPT 7.5B": 32,
    "GPT 18.4B": 48,
    "GPT 76.1B": 80,
    "GPT 145.6B": 96,
    "GPT 529.6B": 128,
    "GPT 1008B": 160,
}


@dataclass(frozen=True)
class Family:
    """What a source's runs have in common: ZeRO stage, flash attention, and whether tensor parallel sending overlaps."""

    name: str
    zero_stage: int
    flash: bool
    overlap: bool


FAMILIES = {
    "Narayanan 2021": Family("Megatron 2021, A100", 0, False, False),
    "Korthikanti 2022": Family("Megatron 2022, A100", 0, False, False),
    "Megatron-LM README": Family("Megatron Core, H100", 1, True, True),
    "Llama 3": Family("Llama 3, H100", 1, True, False),
    "torchtitan": Family("torchtitan, H100 of 500 W", 3, True, False),
}


@dataclass(frozen=True)
class Row:
    """One published step and its price."""

    family: Family
    model: str
    gpus: int
    measured_s: float
    step: TrainingStep

    @property
    def ratio(self) -> float:
        return self.step.seconds / self.measured_s

    @property
    def group(self) -> str:
        return self.family.name


def rows(path: Path = MEASURED) -> tuple[list[Row], Counter[str]]:
    """The steps that can be priced; and how many of each kind can't."""
    found, left_out = [], Counter[str]()
    for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines()):
        why = _left_out(row)
        if why:
            left_out[why] += 1
            continue
        family = next(family for start, family in FAMILIES.items() if row["source"].startswith(start))
        plan = _plan(row, family)
        overlap = family.overlap or "async TP" in row["note"]
        recompute = "full" if row["recompute"] == "full" else "selective"
        eager, power = "eager" in row["note"], 500 / 700 if "500W" in row["hardware"] else 1.0
        options = {"flash": family.flash, "eager": eager, "power": power}
        step = training_step(plan, tensor_overlap=overlap, recompute=recompute, **options)
        found.append(Row(family, row["model"], int(row["gpus"]), _measured_s(row, plan), step))
    return found, left_out


def _left_out(row: dict[str, str]) -> str:
    if row["precision"].lower() not in ("fp16", "bf16"):
        return "in 8 or 4 bits, for which there is no curve of products"
    if "MoE" in row["note"]:
        return "a mixture of experts, whose shape the row does not have"
    if "does not add up" in row["note"] or row["hardware"] not in MACHINE:
        return "its split does not give its GPUs, or its machine is no preset"
    return ""


def _plan(row: dict[str, str], family: Family) -> Plan:
    noted = re.search(r"hidden (\d+) layers (\d+) V=(\d+)", row["note"])
    if noted:
        hidden, layers, words = map(int, noted.groups())
        heads = HEADS.get(row["model"], hidden // 128) if row["precision"] == "fp16" else hidden // 128
    else:
        layers, hidden, heads, words = SHAPES[row["model"]]
    parameters, pp, dp, batch = 1e9 * float(row["params_b"]), int(row["pp"]), int(row["dp"]), int(row["batch"])
    chunks = int(row["vpp"] or 1)
    stages = -(-layers // (pp * chunks)) * pp * chunks  # stages of unequal length wait for the longest
    parameters = hidden * words + (parameters - hidden * words) * stages / layers
    model = Model(row["model"], parameters, stages, hidden, int(row["seq"]), heads=heads, vocabulary=words)
    # where the size of a microbatch is not told: 1, or with FSDP all that a rank has
    micro = int(row["micro_batch"] or (batch // dp if family.zero_stage == 3 else 1))
    machine = preset(MACHINE[row["hardware"]])
    split = {"dp": dp, "tp": int(row["tp"]), "pp": pp, "zero_stage": family.zero_stage, "chunks": chunks}
    return Plan(model, machine, batch=batch, microbatch=micro, **split)


def _measured_s(row: dict[str, str], plan: Plan) -> float:
    tokens = plan.batch * plan.model.sequence
    if row["seconds_per_step"]:
        return float(row["seconds_per_step"])
    if row["tokens_per_s_per_gpu"]:
        return tokens / float(row["tokens_per_s_per_gpu"]) / int(row["gpus"])
    if row["seconds_per_step_computed"]:
        return float(row["seconds_per_step_computed"])
    flop = (6e9 * float(row["params_b"]) + 12 * 126 * plan.model.hidden * plan.model.sequence) * tokens
    return flop / (1e12 * float(row["tflops_per_gpu"]) * int(row["gpus"]))


def section(found: list[Row], left_out: Counter[str]) -> list[str]:
    """The lines of docs/validation.md on steps."""
    by_family: dict[str, list[float]] = defaultdict(list)
    for row in found:
        by_family[row.family.name].append(row.ratio)
    every = [row.ratio for row in found]
    near = sum(0.8 <= ratio <= 1.25 for ratio in every) / len(every)
    held, (middle, half) = inside(found), learned(found)
    typical = math.exp(median(abs(math.log(ratio)) for ratio in every))
    return [
        "## Steps of training",
        "",
        "`training_step` (and `allranks plan`) against [published steps](measured/step_times.csv) in 16 bits. Nothing is fitted to them:",
        "products go by their size, and the links are the presets'. Where the size of a microbatch is not told it is taken to be 1 (with FSDP,",
        "all that a rank has).",
        "",
        "![Predicted over measured for each step](measured/validation_steps.svg)",
        "",
        "| runs | steps | median of predicted / measured | from .. to |",
        "|---|---|---|---|",
        *(
            f"| {name} | {len(values)} | {median(values):.2f} | {min(values):.2f} to {max(values):.2f} |"
            for name, values in by_family.items()
        ),
        f"| all | {len(every)} | {median(every):.2f} | {min(every):.2f} to {max(every):.2f} |",
        "",
        f"Within 25 %: {100 * near:.0f} % of all. Typical factor: {typical:.2f}. torchtitan's H100s have a limit of 500 W instead of 700, and two of its",
        "runs have no fused kernels (eager): both are in the model (`power=`, `eager=`). What is left there, such as selective recomputation by",
        "operation, is in the band.",
        "",
        f"The band of a step is learned with one family of runs left out at a time: {sum(held)} of {len(held)} steps lie in the band that the other families",
        f"give ({100 * sum(held) / len(held):.0f} %). The band that `plan` prints is learned from all: {math.exp(middle - half):.2f} to {math.exp(middle + half):.2f} times what the model says, most likely {math.exp(middle):.2f}.",
        "",
        "| runs | model | GPUs | split | measured s | predicted s | ratio |",
        "|---|---|---|---|---|---|---|",
        *(
            f"| {row.family.name} | {row.model} | {row.gpus} | {_split(row.step.plan)} | {row.measured_s:.2f} | {row.step.seconds:.2f} | {row.ratio:.2f} |"
            for row in found
        ),
        "",
        "Left out:",
        "",
        *(f"- {count} rows: {why}." for why, count in sorted(left_out.items())),
        "",
    ]


def _split(plan: Plan) -> str:
    return f"dp {plan.dp}, tp {plan.tp}, pp {plan.pp}" + (f" x {plan.chunks}" if plan.chunks > 1 else "")


class Foretold(Protocol):
    """A published value: predicted / measured, and the group of runs that it belongs to."""

    @property
    def ratio(self) -> float: ...
    @property
    def group(self) -> str: ...


def learned(found: Sequence[Foretold]) -> tuple[float, float]:
    """Median and half width of log(measured / predicted) that hold 80 %, with all groups alike, however many values they have.

    For the next one of n groups the quantile is 0.8 (n + 1) / n (conformal): the fewer are known, the wider.
    """
    families = Counter(row.group for row in found)
    logs = [(-math.log(row.ratio), 1 / families[row.group]) for row in found]
    middle = median(value for value, _ in logs)
    away, whole, so_far = sorted((abs(value - middle), weight) for value, weight in logs), len(families), 0.0
    for distance, weight in away:
        so_far += weight
        if so_far >= 0.8 * (whole + 1) - 1e-9:
            return middle, distance
    return middle, away[-1][0]


def inside(found: Sequence[Foretold]) -> list[bool]:
    """For each value whether the band that the other groups give holds it; nothing where there are no others."""
    result = []
    for row in found:
        others = [other for other in found if other.group != row.group]
        if not others:
            continue
        middle, half = learned(others)
        result.append(abs(-math.log(row.ratio) - middle) <= half)
    return result


def band(found: list[Row]) -> str:
    """step_bands.py."""
    middle, half = learned(found)
    numbers = ", ".join(f"{math.exp(value):.3f}" for value in (middle, middle - half, middle + half))
    families = len({row.family for row in found})
    head = BAND.read_text(encoding="utf-8").split("# measured")[0]
    return (
        f"{head}# measured / predicted: median, and the ends that hold 8 of 10 steps with all families of runs alike; steps, families\n"
        f"STEP_BAND: tuple[float, float, float, int, int] = ({numbers}, {len(found)}, {families})\n"
    )


def figure(found: list[Row]) -> str:
    """Predicted over measured seconds on two scales of powers, as SVG; a colour for each family."""
    width, height, left, bottom = 720, 360, 56, 40
    colours = dict(
        zip((f.name for f in FAMILIES.values()), ("#0072b2", "#56b4e9", "#d55e00", "#009e73", "#cc79a7"), strict=True)
    )
    low, high = math.log(0.25), math.log(160)

    def x(seconds: float) -> float:
        return left + (width - left - 220) * (math.log(seconds) - low) / (high - low)

    def y(seconds: float) -> float:
        return (height - bottom) - (height - bottom - 12) * (math.log(seconds) - low) / (high - low)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    ends = (0.25 * 1.25, 160 / 1.25)
    corners = [(ends[0], ends[0] * 0.8), (ends[1], ends[1] * 0.8), (ends[1], ends[1] * 1.25), (ends[0], ends[0] * 1.25)]
    parts.append(
        f'<polygon points="{" ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in corners)}" fill="#e8eef4"/>'
        f'<line x1="{x(ends[0]):.1f}" y1="{y(ends[0]):.1f}" x2="{x(ends[1]):.1f}" y2="{y(ends[1]):.1f}" stroke="#c8ccd0"/>'
    )
    for seconds in (0.5, 1, 2, 5, 10, 20, 50, 100):
        parts.append(
            f'<text x="{x(seconds):.1f}" y="{height - 22}" text-anchor="middle" fill="#444">{seconds:g}</text>'
        )
        parts.append(f'<text x="{left - 8}" y="{y(seconds) + 4:.1f}" text-anchor="end" fill="#444">{seconds:g}</text>')
    for row in found:
        colour = colours[row.family.name]
        parts.append(
            f'<circle cx="{x(row.measured_s):.1f}" cy="{y(row.step.seconds):.1f}" r="4" fill="{colour}" fill-opacity="0.8"/>'
        )
    for at, (name, colour) in enumerate(colours.items()):
        parts.append(f'<circle cx="{width - 196}" cy="{24 + 22 * at}" r="4" fill="{colour}"/>')
        parts.append(f'<text x="{width - 184}" y="{28 + 22 * at}" fill="#444">{name}</text>')
    parts.append(
        f'<text x="{left}" y="{height - 4}" fill="#444">across: measured seconds a step; up: predicted; grey: within 25 %</text>'
    )
    return "\n".join([*parts, "</svg>", ""])
