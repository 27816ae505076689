"""Holds `serve` against published measurements of inference: a part of docs/validation.md, and the bands that `price serve` quotes.

`python tools/validation.py` runs it. Two constants of the model were chosen on the rows for A100 ("chosen on"); all others were kept back.
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from allranks.theory.cost.serving import Serving, direct_all_reduce_s, serve
from allranks.theory.topology import preset
from validation_steps import inside, learned

ROOT = Path(__file__).resolve().parent.parent
MEASURED = ROOT / "docs" / "measured" / "serving.csv"
BAND = ROOT / "utils" / "allranks" / "theory" / "cost" / "serving_bands.py"
KINDS = {
    "first_token": "first token, 1 request",
    "token": "each further token, few requests",
    "throughput": "tokens a second, as many requests as fit",
    "experts": "a mixture of experts, all of these",
    "all_reduce": "one all_reduce by direct reads",
}
CHOSEN_ON = "dgx-a100"


@dataclass(frozen=True)
class Row:
    """One published value and the foretold one, both as times (a throughput's is the inverse)."""

    kind: str
    engine: str
    model: str
    machine: str
    kept_back: bool
    measured: float
    foretold: float

    @property
    def ratio(self) -> float:
        return self.foretold / self.measured

    @property
    def group(self) -> str:
        return f"{self.engine}, {self.machine}"


def rows(path: Path = MEASURED) -> list[Row]:
    """All rows with their prices."""
    return [_row(row) for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines())]


def _row(row: dict[str, str]) -> Row:
    value, machine, tp = float(row["value"]), row["machine"], int(row["tp"])
    link = preset(machine).inside.bytes_per_s
    kept_back = machine != CHOSEN_ON
    match row["kind"]:
        case "one_shot_us" | "two_shot_us" as kind:
            foretold = direct_all_reduce_s(float(row["batch"]), tp, link, 1 if kind == "one_shot_us" else 2)
            # the smallest and the largest size gave the constants
            chosen = float(row["batch"]) in (2**19, 2**22)
            return Row("all_reduce", row["engine"], kind, machine, not chosen, value / 1e6, foretold)
        case "all_reduce_us":
            foretold = min(direct_all_reduce_s(float(row["batch"]), tp, link, shots) for shots in (1, 2))
            return Row("all_reduce", row["engine"], f"tp {tp}", machine, True, value / 1e6, foretold)
    found = _priced(row)
    kind, measured, foretold = {
        "first_token_ms": ("first_token", value / 1e3, found.first_token_s),
        "decode_tokens_per_s": ("token", found.batch / value, found.token_s),
        "latency_s": ("token", value, found.batch * found.first_token_s + found.output * found.token_s),
        "throughput_tokens_per_s": ("throughput", 1 / value, 1 / found.tokens_per_s),
    }[row["kind"]]
    kind = kind if found.model.experts == 1 else "experts"
    return Row(kind, row["engine"], row["model"], machine, kept_back, measured, foretold)


def _priced(row: dict[str, str]) -> Serving:
    shape = {name: int(row[name]) for name in ("tp", "ep", "prompt", "output", "weight_bits", "kv_bits")}
    return serve(row["model"], row["machine"], batch=int(row["batch"]) if row["batch"] else None, **shape)


def typical(found: list[Row]) -> float:
    """The median factor by which a foretold value misses."""
    return math.exp(median(abs(math.log(row.ratio)) for row in found))


def by_kind(found: list[Row]) -> dict[str, list[Row]]:
    """The rows of each kind, in the order of KINDS."""
    kinds: dict[str, list[Row]] = defaultdict(list)
    for row in found:
        kinds[row.kind].append(row)
    return {kind: kinds[kind] for kind in KINDS}


def section(found: list[Row]) -> list[str]:
    """The lines of docs/validation.md on serving."""
    lines = [
        "## Serving",
        "",
        "`serve` (and `allranks price serve`) against [published measurements](measured/serving.csv). Two constants, the seconds of a layer's small",
        "kernels and how reading overlaps with computing, were chosen on the rows for A100, and those of an all_reduce on its smallest and",
        'largest size; the others were kept back. The band that is printed is learned with all engines and machines alike; "held" says how many',
        "values lie in the band that the *other* engines and machines give.",
        "",
        "| what | values | median of foretold / measured | typical factor | of those kept back | band: times the foretold | held |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind, mine in by_kind(found).items():
        kept, held = [row for row in mine if row.kept_back], inside(mine)
        low, high = band_of(mine)
        lines.append(
            f"| {KINDS[kind]} | {len(mine)} | {median(row.ratio for row in mine):.2f} | {typical(mine):.2f} | "
            f"{f'{typical(kept):.2f}' if kept else 'none'} | {low:.2f} to {high:.2f} | {sum(held)} of {len(held)} |"
        )
    return [
        *lines,
        "",
        "A mixture of experts takes about twice as long as foretold: products of few tokens for each expert, and ranks that wait for the one with the",
        "most popular experts, are not in the model. Throughputs are of as many requests as fit, where nobody says how long one waits.",
        "",
    ]


def band_of(found: list[Row]) -> tuple[float, float]:
    """Factors of the foretold time between which 8 of 10 measured ones lie, with all engines and machines alike."""
    middle, half = learned(found)
    return math.exp(middle - half), math.exp(middle + half)


def band(found: list[Row]) -> str:
    """serving_bands.py."""
    head = BAND.read_text(encoding="utf-8").split("BANDS")[0]
    entries = "".join(
        f'    "{kind}": ({low:.3f}, {high:.3f}),\n'
        for kind, mine in by_kind(found).items()
        for low, high in [band_of(mine)]
    )
    return f"{head}BANDS: dict[str, tuple[float, float]] = {{\n{entries}}}\n"
