"""The overview of a class as text for a terminal, and as one HTML file that loads nothing."""

from __future__ import annotations

import base64
import hashlib
import io

from markupsafe import Markup

from autograder.classroom import SHOWN_CASES, Mark, Overview, Row, counts, variants_of, waits
from autograder.pages import TEMPLATES, page
from autograder.rows import by_kind, printable

SHOWN_IN_TEXT = 10  # causes
WIDTH = 200


def as_text(found: Overview) -> str:
    """The page for a terminal: students by exercise, the mistakes, the hardest cases, what waits, the incidents."""
    lines = [f"{found.lab}: {counts(found)}", "", *_table(found)]
    graded = len(found.graded)
    if found.causes:
        lines += ["", "Mistakes"]
        for cause in found.causes[:SHOWN_IN_TEXT]:
            lines.append(f"  {len(cause.students):>3} of {graded}  {cause.mistake} ({cause.exercise})")
            lines.append(f"             {printable(', '.join(cause.students))}")
        if (more := len(found.causes) - SHOWN_IN_TEXT) > 0:
            lines.append(f"  and {more} more; --json and --html list all")
    if found.hardest:
        lines += ["", "Hardest cases, of the answers that pass most cases"]
        lines += [f"  {h.failed:>3} of {h.tried}  {h.exercise}: {h.case}" for h in found.hardest[:SHOWN_CASES]]
    for name, who in found.waiting:
        lines += ["", f"{waits(who)}: {name}", f"  {printable(', '.join(who))}"]
    if drawn := _variants(found):
        lines += ["", "Variants", *(f"  {line}" for line in drawn)]
    told = _incidents(found)
    return "\n".join([*lines, *([""] if told else []), *told])


def _variants(found: Overview) -> list[str]:
    """A line for each student for whom the course drew something."""
    drawn = [(row.student, variants_of(row, found.parts)) for row in found.rows]
    return [printable(f"{student}: {'; '.join(theirs)}") for student, theirs in drawn if theirs]


def _table(found: Overview) -> list[str]:
    """The students by exercise, those first who lost most."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="")
    table.add_column("student", no_wrap=True)
    for part in found.parts:
        table.add_column(f"{part.name} /{part.points:g}", justify="right", no_wrap=True)
    for head in ("sum", "handed in"):
        table.add_column(head, justify="right", no_wrap=True)
    for row in by_need(found):
        cells = [_mark_in_text(row.marks.get(part.cell)) for part in found.parts]
        total = "-" if row.total is None else f"{row.total:g}"
        table.add_row(Text(printable(_whom(row))), *cells, total, _when(row))
    file = io.StringIO()
    Console(file=file, width=WIDTH, color_system=None).print(table)
    return [line.rstrip() for line in file.getvalue().splitlines()]


def by_need(found: Overview) -> list[Row]:
    """The rows: those who lost most points first, then those without grades."""
    return sorted(found.rows, key=lambda row: (row.score is None, row.score or 0.0))


def _whom(row: Row) -> str:
    """The name that nbgrader knows a student by, and the student's own beside it: two may be equal."""
    who = f"{row.student} ({row.name})" if row.name and row.name != row.student else row.student
    return f"{who}, with {row.partner}" if row.partner else who


def _mark_in_text(mark: Mark | None) -> str:
    if mark is None:
        return "-"
    return "waits" if mark.score is None else f"{mark.score:g}" + ("*" if mark.waits else "")


def _when(row: Row) -> str:
    if row.handed_in is None:
        return "" if row.state == "graded" else row.state
    time = row.handed_in.replace("T", " ")[:16] + " UTC"
    return f"{time}, {row.late_s / 3600:.1f} h late" if row.late_s > 0 else time


def _incidents(found: Overview) -> list[str]:
    """The incidents of the class, in lines."""
    groups = by_kind((row.student, incident) for row in found.rows for incident in row.incidents)
    return [line for lines in groups for line in lines]


# ----------------------------------------------------------------------------------------------------------------- HTML


def states_of(row: Row, found: Overview) -> str:
    """The states by which the page shows a row: words out of "ungraded", "lost", "waits" and "late"."""
    marks = [(part, row.marks[part.cell]) for part in found.parts if part.cell in row.marks]
    holds = {
        "ungraded": row.state != "graded",
        "lost": any(mark.score is not None and mark.score < part.points for part, mark in marks),
        "waits": any(mark.waits for _, mark in marks),
        "late": row.late_s > 0,
    }
    return " ".join(name for name, true in holds.items() if true)


def as_html(found: Overview) -> str:
    """The page: the mistakes first, then a square for each student and exercise, as strong as the points that are lost.

    A script of its own filters and sorts the rows; the browser is told to run no other.

    >>> "<h1>lab00" in as_html(Overview("lab00", None, (), ()))
    True
    """
    script = (TEMPLATES / "class_page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return page(
        "class_page.html.j2",
        filters={"whom": _whom, "when": _when, "waits": waits, "states": lambda row: states_of(row, found)},
        script=Markup(script),
        script_hash=f"sha256-{digest}",
        found=found,
        counts=counts(found),
        rows=by_need(found),
        hardest=found.hardest[:SHOWN_CASES],
        variants=_variants(found),
        incidents=_incidents(found),
    )
