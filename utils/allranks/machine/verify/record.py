"""What a run of `verify` found, as JSON and as Markdown: facts of the machine, without names of people, hosts and folders."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import sys
import tempfile
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from allranks.base.errors import counted
from allranks.base.whole import write_whole
from allranks.machine.verify.steps import Outcome, Plan

MARKS = {"pass": "pass", "fail": "**FAIL**", "skip": "skip"}
LONG = 300


@dataclass
class Record:
    """One run. `ended` is "running", "complete" or "stopped"; `date` is by UTC."""

    plan: Plan
    date: str
    machine: str  # a few words for the file's name: "h200-x8", "cpu"
    outcomes: list[Outcome] = field(default_factory=list)
    ended: str = "running"
    now: str = ""  # the step that runs
    seconds: float = 0.0

    def add(self, outcome: Outcome) -> Outcome:
        """Takes an outcome, without the names of this machine's folders."""
        clean = replace(
            outcome,
            reason=self._impersonal(outcome.reason),
            figures=self._impersonal(outcome.figures),
            output=self._impersonal(outcome.output),
        )
        self.outcomes.append(clean)
        return clean

    @property
    def counts(self) -> dict[str, int]:
        """How many steps passed, failed and were skipped."""
        found = Counter(outcome.result for outcome in self.outcomes)
        return {result: found[result] for result in MARKS}

    @property
    def name(self) -> str:
        """The name of the files, without their ending."""
        ranks = counted(self.plan.ranks, "rank").replace(" ", "-")
        return f"verify-{self.machine}-{ranks}-{re.sub('[^0-9]', '', self.date)[:12]}"

    def to_dict(self) -> dict[str, Any]:
        """The record as plain data."""
        plan = {key: value for key, value in asdict(self.plan).items() if key != "course"}
        return {
            "date": self.date,
            "machine": self.machine,
            "plan": plan,
            "ended": self.ended,
            "now": self.now,
            "seconds": round(self.seconds, 1),
            "counts": self.counts,
            "steps": [asdict(outcome) for outcome in self.outcomes],
        }

    def to_markdown(self) -> str:
        """The record as a page: what was proved, then each phase with a row for each step."""
        plan, counts = self.plan, self.counts
        ranks = counted(plan.ranks, "rank")
        where = f" on {counted(plan.gpus, 'GPU')}" if plan.gpus else ""
        state = {
            "running": f"It still runs{f', in {self.now}' if self.now else ''}.",
            "stopped": f"It was stopped{f' in {self.now}' if self.now else ''}.",
            "complete": "It ran to its end.",
        }[self.ended]
        lines = [
            f"# {ranks} with {plan.backend}{where}, proved by `allranks verify`",
            "",
            f"{self.date}, {self.seconds:.0f} s. {counts['pass']} steps passed, {counts['fail']} failed, "
            f"{counts['skip']} were skipped. {state}",
        ]
        for key in dict.fromkeys((o.phase, o.legacy) for o in self.outcomes):
            mine = [o for o in self.outcomes if (o.phase, o.legacy) == key]
            lines += ["", f"## {key[0]}{' (legacy NCCL backend)' if key[1] else ''}", ""]
            if key[0] == "machine":
                lines += self._facts(mine)
            lines += ["| step | result | s | found |", "|---|---|---|---|"]
            for o in mine:
                found = _cell(_short(o)) if key[0] != "machine" or o.reason else ""
                lines.append(f"| {o.name} | {MARKS[o.result]} | {o.seconds:.1f} | {found} |")
            if key[0] == "sweeps":
                lines += _table(mine)
            for o in mine:
                if o.result == "fail":
                    text = f"{o.reason}\n{o.output}".strip().replace("```", "'''")
                    lines += ["", f"What `{o.name}` said:", "", "```text", text, "```"]
        return "\n".join(lines) + "\n"

    def _facts(self, outcomes: list[Outcome]) -> list[str]:
        """The facts of the machine: a line for each step, and one for each GPU."""
        lines = []
        for outcome in outcomes:
            figures = {name: value for name, value in outcome.figures.items() if value not in (None, "", [], {})}
            tables = [name for name, value in figures.items() if isinstance(value, list) and isinstance(value[0], dict)]
            plain = "; ".join(
                f"{name.replace('_', ' ')} {_words(v)}" for name, v in figures.items() if name not in tables
            )
            lines += [f"- {outcome.name}: {plain}"] if plain else []
            lines += [f"    - {_words(row)}" for name in tables for row in figures[name]]
        return [*lines, ""] if lines else []

    def write(self, folder: Path) -> list[Path]:
        """Writes NAME.json and NAME.md, each at once: who reads them meanwhile finds the old file or the new one, whole."""
        folder.mkdir(parents=True, exist_ok=True)
        written = []
        for ending, text in ((".json", json.dumps(self.to_dict(), indent=1) + "\n"), (".md", self.to_markdown())):
            path = folder / f"{self.name}{ending}"
            write_whole(path, text, 0o644)
            written.append(path)
        return written

    def _impersonal(self, value: Any) -> Any:
        """The value without this machine's folders and name."""
        if isinstance(value, dict):
            return {self._impersonal(key): self._impersonal(inner) for key, inner in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._impersonal(inner) for inner in value]
        if not isinstance(value, str):
            return value
        for name, words in _names(self.plan.course):
            value = value.replace(name, words)
        return re.sub(r"(?<![\w.])/[\w./+@-]*/(site-packages|dist-packages)/", r"\1/", value)


def _names(course: str | None) -> list[tuple[str, str]]:
    """What a record must not name, the longest first, and what stands for it."""
    found = {
        os.environ.get("ALLRANKS_RUN_DIR", ""): "RUN_DIR",
        course or "": "COURSE",
        sys.prefix: "ENVIRONMENT",
        os.getcwd(): ".",
    }
    found |= {str(Path(__file__).resolve().parents[2]): "allranks", str(Path.home()): "~"}
    found[tempfile.gettempdir()] = "TMP"
    with contextlib.suppress(OSError):
        found[socket.gethostname()] = "HOST"
    return sorted(((k, v) for k, v in found.items() if len(k) > 3), key=lambda pair: -len(pair[0]))


def _cell(text: str) -> str:
    """The text as a cell of a table."""
    return text.replace("|", "\\|").replace("\n", " ")


def _words(value: Any) -> str:
    """A figure in words."""
    if isinstance(value, dict):
        return ", ".join(
            f"{key.replace('_', ' ')} {_words(inner)}" for key, inner in value.items() if inner is not None
        )
    if isinstance(value, list):
        return ", ".join(map(_words, value))
    return str(value)


def _short(outcome: Outcome) -> str:
    """What a step found, in one line."""
    left_out = ("rows", "report", "cell", "ranks")
    figures = {k: v for k, v in outcome.figures.items() if k not in left_out and v not in (None, "", [], {})}
    if "meant_errors" in figures:  # their texts are in the JSON
        figures["meant_errors"] = list(figures["meant_errors"])
    words = "; ".join(f"{key.replace('_', ' ')}: {_words(value)}" for key, value in figures.items())
    text = f"{outcome.reason} {words}".strip()
    return text if len(text) <= LONG else f"{text[:LONG]} [...]"


def _table(outcomes: list[Outcome]) -> list[str]:
    """The bus bandwidths of all sweeps, a row for each size in bytes."""
    columns = {o.name: {row["size"]: row for row in o.figures.get("rows", [])} for o in outcomes}
    columns = {name: rows for name, rows in columns.items() if rows}
    if not columns:
        return []
    lines = ["", "busbw in GB/s, and the mean time of a call in µs:", "", f"| bytes | {' | '.join(columns)} |"]
    lines.append("|---" * (1 + len(columns)) + "|")
    for size in sorted({size for rows in columns.values() for size in rows}):
        cells = [
            f"{rows[size]['busbw_gb_per_s']:.3g}, {rows[size]['time_us']:.4g}" if size in rows else ""
            for rows in columns.values()
        ]
        lines.append(f"| {size} | {' | '.join(cells)} |")
    return lines
