"""`explain`: a job's figures, causes and words, as text, as plain data, and in a notebook with its lanes in time."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from html import escape
from pathlib import PurePath
from typing import Any

from allranks.base.errors import counted, wrapped
from allranks.jobs.analysis import Collective, RankTimes, collectives, rank_times
from allranks.jobs.desync import by_logs, desync
from allranks.jobs.formats import CALLS, STANDS, WORK
from allranks.jobs.job import Cause, Job, RankRecord
from allranks.jobs.leading import leading
from allranks.jobs.matching import Matching, match
from allranks.jobs.phrases import ms, percent, size
from allranks.jobs.reading import read, sources
from allranks.jobs.slowness import Seen, causes

__all__ = ["Explanation", "explain"]

_FOLDERS = re.compile(r"(?<![\w.<])~?(?:/[^\s/:;,\"'()]+)+/([^\s/:;,\"'()]+)")
_ADDRESS = re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}\b(?:<\d+>)?")
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem;
  color: #1b1f24; background: #fff }}
h1 {{ font-size: 1.4rem }} h2 {{ font-size: 1.1rem; margin: 1.6rem 0 .3rem }}
pre {{ white-space: pre-wrap; overflow-wrap: anywhere; font: 14px/1.45 ui-monospace, monospace; margin: 0 }}
@media (prefers-color-scheme: dark) {{ body {{ color: #e6e8eb; background: #14171b }} }}
</style></head>
<body><h1>{title}</h1>
{body}
<p>Made by <code>allranks explain</code>.</p></body></html>
"""
ROWS = 10  # of the collectives, in the text


@dataclass(frozen=True)
class Explanation:
    """What a job's files show: `ranks`, `collectives`, `causes` (what gains most first), `skipped` files and `notes`.

    Printed, it is a report; `to_dict` gives what `allranks explain --json` prints. docs/explain.md defines each figure.

    >>> from allranks.profiles import Job, RankRecord
    >>> record = profiles.RankRecord(0, "a.json", "kineto", compute=((0, 9),), span=(0, 10))
    >>> profiles.explain(profiles.Job((record,))).causes[0].kind
    'no_communication'
    """

    job: Job
    matching: Matching
    ranks: tuple[RankTimes, ...]
    collectives: tuple[Collective, ...]
    causes: tuple[Cause, ...]

    @property
    def skipped(self) -> tuple[dict[str, str], ...]:
        """Each file, or part of one, of which nothing is told, with the reason."""
        return tuple({"file": s.file, "why": s.why} for s in self.job.skipped)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on what the files do not say; one that several files share stands once."""
        found: dict[str, list[RankRecord]] = {}
        for record in self.job.records:
            for note in record.notes:
                found.setdefault(note, []).append(record)
        words = [f"{_whose(of)}: {note}" if len(self.job.records) > 1 else note for note, of in found.items()]
        missing, world = self.job.missing, self.job.world_size
        if missing:
            of = "at least" if self.job.at_least else "the"
            words.append(f"{len(missing)} of {of} {world} ranks left no file here: {_ranks(missing)}")
        return (*words, *self.job.notes, *self.matching.notes)

    @property
    def taken_for(self) -> tuple[str, ...]:
        """What the files were taken for, in sentences: how many files of which kind, and of which ranks."""
        kinds: dict[str, list[RankRecord]] = {}
        for record in self.job.records:
            kinds.setdefault(record.source, []).append(record)
        found = []
        for source, records in kinds.items():
            count = len({r.file for r in records})
            numbers = [r.rank for r in records if r.rank_from != "unknown"]
            whose = f" of rank{'s' if len(numbers) > 1 else ''} {_ranks(numbers)}" if numbers else ", of no known rank"
            found.append(f"{counted(count, 'file')} of {source}{whose}")
        if self.skipped:
            found.append(f"{len(self.skipped)} skipped")
        return tuple(found)

    def html(self, paths: bool = False) -> str:
        """The report as one HTML page to send to somebody: it asks no other host for anything.

        Without `paths`, files and lines are named without their folders, and hosts by number.
        """
        text = self.text() if paths else self._without_paths(self.text())
        title, _, rest = text.partition("\n")
        parts = []
        for block in rest.strip().split("\n\n"):
            head, _, body = block.partition("\n")
            parts.append(f"<h2>{escape(head)}</h2>\n<pre>{escape(body)}</pre>")
        return _PAGE.format(title=escape(title), body="\n".join(parts))

    def _without_paths(self, text: str) -> str:
        """The text without folders and names of hosts; the report's lines are joined where one broke a path."""
        names = {r.file for r in self.job.records} | {s.file for s in self.job.skipped}
        for name in sorted(names, key=len, reverse=True):
            text = text.replace(name, PurePath(name).name)
        text = _FOLDERS.sub(r"\1", text)
        hosts = dict.fromkeys(str(r.facts["host"]) for r in self.job.records if r.facts.get("host"))
        for number, host in enumerate(hosts, 1):
            text = re.sub(rf"(?<![\w.-]){re.escape(host)}(?![\w-])", f"host {number}", text)
        return _ADDRESS.sub("an address", text)

    @property
    def said(self) -> tuple[str, ...]:
        """What NCCL's logs and nvidia-smi tell of the machine and of NCCL's choices, in sentences, each once."""
        return tuple(dict.fromkeys(words for record in self.job.records for words in record.facts.get("said", ())))

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain data."""
        return {
            "world_size": self.job.world_size,
            "missing": list(self.job.missing),
            "ranks": [
                t.to_dict() | {"file": r.file, "rank_from": r.rank_from}
                for r, t in zip(self._timed(), self.ranks, strict=True)
            ],
            "collectives": [c.to_dict() for c in self.collectives],
            "causes": [asdict(c) for c in self.causes],
            "skipped": list(self.skipped),
            "notes": list(self.notes),
            "said": list(self.said),
            "taken_for": list(self.taken_for),
        }

    def _timed(self) -> list[Any]:
        return [r for r in self.job.records if rank_times(r) is not None]

    def text(self) -> str:
        """The report."""
        parts = [self._head(), "", "What costs the time"]
        for number, cause in enumerate(self.causes, 1):
            parts += _cause(number, cause)
        if self.ranks:
            rows = [_rank_row(t, r) for t, r in zip(self.ranks, self._timed(), strict=True)]
            parts += ["", "Where the time goes", *_table(_RANKS, rows)]
        if self.collectives:
            parts += ["", "The collectives", *_table(_CALLS, [_call_row(c) for c in self.collectives[:ROWS]])]
            if len(self.collectives) > ROWS:
                parts.append(
                    f"  and {counted(len(self.collectives) - ROWS, 'row')} more, of less time (--json has them)"
                )
        for title, sentences in (
            (
                "What the files were taken for",
                self.taken_for if len({r.file for r in self.job.records}) > 1 or self.skipped else (),
            ),
            ("What the logs say", self.said),
            ("What the files do not say", self.notes),
            ("Skipped", [f"{s['file']}: {s['why']}" for s in self.skipped]),
        ):
            if sentences:
                parts += ["", title, *(line for s in sentences for line in wrapped(f"{s}.", "  - ", "    "))]
        return "\n".join(parts)

    def _head(self) -> str:
        records = self.job.records
        facts = [
            {k: v for k, v in r.facts.items() if v is not None and k in ("backend", "device", "nccl_version")}
            for r in records
        ]
        same = facts[0] if facts and all(f == facts[0] for f in facts) else {}
        words = [f"NCCL {v}" if k == "nccl_version" else str(v) for k, v in same.items()]
        named = self.job.at_least or any(r.world_size for r in self.job.records)
        world = f" of {'at least ' if self.job.at_least else ''}{self.job.world_size}" if named else ""
        which = "rank" if len(records) == 1 else "ranks"
        numbers = _ranks([r.rank for r in records]) if all(r.rank_from != "unknown" for r in records) else "unknown"
        return ", ".join([f"{which} {numbers}{world}", *dict.fromkeys(r.source for r in records), *words])

    def __str__(self) -> str:
        return self.text()

    __repr__ = __str__

    def picture(self) -> Any:
        """The lanes of the ranks in time, as a chart; None if no event has a time."""
        from allranks.jobs.lanes import picture

        return picture(self.job, self.matching)

    def _repr_html_(self) -> str:
        try:
            chart = self.picture()
        except ImportError:  # without the extra for notebooks there is no picture
            chart = None
        drawn = chart._repr_html_() if chart is not None else ""
        style = "white-space:pre-wrap;font-family:var(--jp-code-font-family,ui-monospace,monospace)"
        return f'{drawn}<pre class="ar-explain" style="{style}">{escape(self.text())}</pre>'


def explain(job: Job | str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> Explanation:
    """Explains a job: what `read` gave, or the paths of its files and folders. Raises ProfileError.

    >>> profiles.explain("/nowhere")
    Traceback (most recent call last):
    allranks.jobs.job.ProfileError: there is no file /nowhere
    """
    job = job if isinstance(job, Job) else read(job)
    # a flight recorder's times are those at which a watchdog looked
    timed = replace(job, records=tuple(r for r in job.records if r.source in sources(WORK, CALLS)))
    matching = match(timed)
    times = tuple(t for t in map(rank_times, timed.records) if t is not None)
    rows = tuple(collectives(timed if timed.records else job, matching))
    stopped = desync(job)
    logged = by_logs(job)
    found = causes(Seen(timed, matching, times, rows)) if timed.records or not (stopped or logged) else []
    found = found if stopped else leading(timed, matching, found)
    dumps = [r for r in job.records if r.source in sources(STANDS) and (r.calls or r.source != "watchdog")]
    if dumps and not stopped and all(c.state == "completed" for r in dumps for c in r.calls):
        calls = sum(len(r.calls) for r in dumps)
        words = f"{counted(calls, 'recorded call')} of {counted(len(dumps), 'rank')}, and none is open"
        found = [Cause("Every recorded call ended: these dumps show no hang.", words, None, 0.9, "no_hang"), *found[1:]]
    if stopped:
        found = [c for c in found if c.kind not in ("healthy", "missing_rank")]
    return Explanation(job, matching, times, rows, (*_ordered(stopped, logged), *found))


def _ordered(stopped: Sequence[Cause], logged: Sequence[Cause]) -> list[Cause]:
    """What stopped the job and what the log warns of: NCCL's errors stand after ranks that failed or differ, before a
    hang."""
    ends = ("nccl_error", "failed_rank", "stopped", "desync")
    if not stopped:  # then these stand in their own order
        return sorted(logged, key=lambda c: c.kind != "desync" and c.sure < 0.9)
    errors = [c for c in logged if (c.kind in ends and c.sure >= 0.5) or (c.kind == "missing_rank" and c.sure >= 0.8)]
    # a full /dev/shm or a GPU used twice fails the rank itself; NCCL's lines of calls say which call differs
    first = [c for c in errors if c.sure >= 0.9 or c.kind == "desync"]
    place = next((i for i, c in enumerate(stopped) if c.kind == "hang" or c.sure < 0.5), len(stopped))
    then = [c for c in errors if c not in first]
    return [*first, *stopped[:place], *then, *stopped[place:], *(c for c in logged if c not in errors)]


def _ranks(ranks: Sequence[int]) -> str:
    words = [str(r) for r in ranks[:12]]
    return ", ".join(words) + (f" and {len(ranks) - 12} more" if len(ranks) > 12 else "")


def _cause(number: int, cause: Cause) -> list[str]:
    gain = "" if not cause.saves_s else f", would gain up to {ms(cause.saves_s * 1e6)}"
    lines = wrapped(f"{cause.cause} ({percent(cause.sure)} sure{gain})", f"  {number}. ", "     ")
    return lines + wrapped(cause.evidence, "     ", "     ")


def _whose(records: Sequence[RankRecord]) -> str:
    """The ranks of these records by number, or their files where no number is known."""
    if any(r.rank_from == "unknown" for r in records):
        return ", ".join(PurePath(r.file).name for r in records)
    return f"rank {', '.join(str(r.rank) for r in records)}"


_RANKS = ("rank", "span", "compute", "communication", "exposed", "idle", "overlap")
_CALLS = ("collective", "group", "calls", "bytes", "time", "waiting", "moving", "one call", "algbw", "busbw", "link")


def _rank_row(t: RankTimes, record: RankRecord) -> tuple[str, ...]:
    file = record.file
    known = bool(t.communication_us) or all(
        c.end_us is not None for c in record.calls
    )  # calls without times are not 0 µs
    talk = (t.communication_us, t.exposed_us) if known else (None, None)
    times = (t.span_us, t.compute_us, *talk, t.idle_us)
    overlap = "-" if t.overlap is None else f"{100 * t.overlap:.1f} %"
    return (
        PurePath(file).name[:40] if t.rank is None else str(t.rank),
        *("?" if time is None else ms(time) for time in times),
        overlap,
    )


def _call_row(c: Collective) -> tuple[str, ...]:
    times = (c.time_us, c.wait_us, c.moving_us, c.call_us)
    rates = (c.algbw_gb_per_s, c.busbw_gb_per_s, c.link_gb_per_s)
    group = c.group or (f"{c.ranks} ranks" if c.ranks else "?")
    return (
        c.op, group if len(group) < 26 else f"{group[:24]}…", f"{c.calls:,}",
        "-" if c.op == "barrier" else size(c.nbytes),
        *("?" if t is None else ms(t) for t in times), *("?" if r is None else f"{r:.3g}" for r in rates),
    )  # fmt: skip


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The rows under their heads; the bandwidths are GB/s. The links' are left out where they are unknown, as on the
    CPU."""
    known = [i for i, name in enumerate(head) if name != "link" or any(row[i] != "?" for row in rows)]
    heads = [f"{h} GB/s" if h in ("algbw", "busbw", "link") else h for h in (head[i] for i in known)]
    rows = [[row[i] for i in known] for row in rows]
    widths = [max(len(row[i]) for row in (heads, *rows)) for i in range(len(heads))]
    left = 2 if head is _CALLS else 0
    return [
        "  "
        + "  ".join(c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        for row in (heads, *rows)
    ]
