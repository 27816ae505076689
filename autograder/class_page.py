"""The overview of a class as text for a terminal, and as one HTML file that loads nothing."""

from __future__ import annotations

import html
import io
from collections.abc import Iterable

from allranks.base.theme import style
from allranks.cli.grade import KINDS, printable

from autograder.classroom import SHOWN_CASES, Cause, Mark, Overview, Part, Row, counts, variants_of, waits

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
    told = [line for kind, words in KINDS.items() for line in _incidents(found.rows, kind, words)]
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
        total = f"{row.score - row.late_penalty:g}" if row.score is not None else "-"
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


def _incidents(rows: Iterable[Row], kind: str, words: str) -> list[str]:
    theirs = [(row.student, i) for row in rows for i in row.incidents if i["kind"] == kind]
    lines = [f"{len({student for student, _ in theirs})} {words}:"] if theirs else []
    return lines + [printable(f"  {who}: {i['where']}: {i['what']}") for who, i in theirs]


# ----------------------------------------------------------------------------------------------------------------- HTML


def as_html(found: Overview) -> str:
    """The page: a square for each student and exercise, as strong as the points that are lost, and the causes beside it.

    >>> "<h1>lab00" in as_html(Overview("lab00", None, (), ()))
    True
    """
    heads = "".join(f"<th><code>{_say(part.name)}</code><small>{part.points:g}</small></th>" for part in found.parts)
    rows = "".join(_row(row, found.parts) for row in by_need(found))
    due = f" Due {_say(found.due.replace('T', ' ')[:16])} UTC." if found.due else ""
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{_say(found.lab)}</title>'
        f'<meta name="viewport" content="width=device-width">{style()}{_STYLE}</head>'
        f'<body class="ar-theme"><main class="ar-class"><h1>{_say(found.lab)}</h1>'
        f"<p>{_say(counts(found))}{due} Stronger: more points lost.</p>"
        f'<div class="sides"><table><thead><tr><th></th>{heads}<th>sum</th><th class="when">handed in</th></tr></thead>'
        f"<tbody>{rows}</tbody></table><section>{_causes(found)}{_rest(found)}</section></div></main></body></html>\n"
    )


def _say(text: str) -> str:
    return html.escape(printable(str(text)))


def _row(row: Row, parts: Iterable[Part]) -> str:
    squares = "".join(_square(row.marks.get(part.cell), part) for part in parts)
    total = "" if row.score is None else f"{row.score - row.late_penalty:g}"
    when = _say(_when(row))
    return f"<tr><th>{_say(_whom(row))}</th>{squares}<td class='sum'>{total}</td><td class='when'>{when}</td></tr>"


def _square(mark: Mark | None, part: Part) -> str:
    """One mark: blank for all points, dashed for none given, else the points lost in per cent."""
    if mark is None:
        return '<td class="none" aria-label="no mark"></td>'
    if mark.score is None:
        return '<td class="waits" title="waits to be read">waits</td>'
    lost = 1 - mark.score / part.points if part.points else 0.0
    if lost <= 0:
        return '<td class="full" aria-label="all points">·</td>'
    title = _say(f"{mark.score:g} of {part.points:g}. {mark.mistake}" + (f". {mark.variant}" if mark.variant else ""))
    return f'<td class="lost" style="--lost:{12 + 88 * lost:.0f}%" title="{title}">{100 * lost:.0f}</td>'


def _causes(found: Overview) -> str:
    graded, shown = len(found.graded), []
    for part in found.parts:
        causes = [cause for cause in found.causes if cause.exercise == part.name]
        if not causes:
            continue
        lost = sum(len(cause.students) for cause in causes)
        shown.append(
            f"<h2><code>{_say(part.name)}</code></h2><p>{lost} of {graded} students lost points here. Why?</p>"
        )
        for cause in causes:
            share = 100 * len(cause.students) / max(graded, 1)
            shown.append(
                f"<details><summary><b>{_say(cause.mistake)}</b><b>{len(cause.students)}</b>"
                f'<i><i style="width:{share:.1f}%"></i></i></summary><p>{_say(", ".join(cause.students))}</p>'
                f"{_for_class(found, cause, f'run{len(shown)}')}</details>"
            )
    return "".join(shown)


def _for_class(found: Overview, cause: Cause, name: str) -> str:
    """A button, and the page that it lays over all names: the mistake, how many make it, and one run without its student."""
    card = found.one_run(cause)
    if not card:
        return ""
    count = f"{len(cause.students)} of {len(found.graded)}"
    return (
        f'<button popovertarget="{name}">Show in class</button> <small>one run, without the name</small>'
        f'<div popover id="{name}" class="show"><h1>{_say(cause.mistake)}</h1><p><code>{_say(cause.exercise)}</code>, {count}</p>'
        f'{card}<button popovertarget="{name}" popovertargetaction="hide">Back</button></div>'
    )


def _rest(found: Overview) -> str:
    shown = []
    if found.hardest:
        items = "".join(
            f"<li>{h.failed} of {h.tried}: <code>{_say(h.exercise)}</code>, {_say(h.case)}</li>"
            for h in found.hardest[:SHOWN_CASES]
        )
        shown.append(f"<h2>Hardest cases</h2><p>Of the answers that pass most cases.</p><ul>{items}</ul>")
    for name, who in found.waiting:
        shown.append(f"<h2>{waits(who)}</h2><p>{_say(name)}: {_say(', '.join(who))}</p>")
    if drawn := _variants(found):
        shown.append(f"<h2>Variants</h2><pre>{html.escape(chr(10).join(drawn))}</pre>")
    told = [line for kind, words in KINDS.items() for line in _incidents(found.rows, kind, words)]
    if told:
        shown.append(f"<h2>To look at</h2><pre>{html.escape(chr(10).join(told))}</pre>")
    return "".join(shown)


_STYLE = """<style>
body{margin:0;padding:24px 40px}
.ar-class h1{font-size:28px;margin:0 0 4px}
.ar-class p{color:var(--ar-soft);margin:0 0 12px}
.ar-class .sides{display:flex;flex-wrap:wrap;gap:32px 56px;align-items:flex-start}
.ar-class section{flex:1 1 320px;max-width:520px}
.ar-class table{border-collapse:separate;border-spacing:3px}
.ar-class th{font-weight:600;font-size:14px;text-align:right;padding:0 8px;white-space:nowrap}
.ar-class thead th{text-align:center;vertical-align:bottom;font-size:13px}
.ar-class thead small{display:block;color:var(--ar-soft);font-weight:400}
.ar-class code{font:13px var(--ar-mono)}
.ar-class td{min-width:44px;height:30px;text-align:center;border-radius:4px;font-size:13px}
.ar-class td.full{background:var(--ar-panel);color:var(--ar-soft)}
.ar-class td.none{outline:1px dashed var(--ar-line);outline-offset:-2px}
.ar-class td.waits{background:var(--ar-panel);color:var(--ar-soft)}
.ar-class td.lost{background:color-mix(in srgb,var(--ar-lost) var(--lost),var(--ar-paper));color:var(--ar-ink)}
.ar-class td.sum{font-weight:600}
.ar-class .when{color:var(--ar-soft);white-space:nowrap;text-align:left;padding-left:8px}
.ar-class h2{font-size:16px;margin:16px 0 0}
.ar-class summary{display:flex;flex-wrap:wrap;justify-content:space-between;gap:2px 12px;cursor:pointer;min-height:30px;padding:4px 0}
.ar-class summary::marker{content:""}
.ar-class summary>i{flex:1 0 100%;height:8px;border-radius:4px;background:var(--ar-hair);overflow:hidden}
.ar-class summary>i>i{display:block;height:8px;background:var(--ar-lost)}
.ar-class button{min-height:30px;padding:0 14px;border:0;border-radius:6px;background:var(--ar-ink);color:var(--ar-paper);font:inherit;cursor:pointer}
.ar-class small{color:var(--ar-soft)}
.ar-class .show{box-sizing:border-box;width:100vw;height:100vh;max-width:none;max-height:none;margin:0;border:0;padding:40px;overflow:auto;
background:var(--ar-paper);color:var(--ar-ink)}
.ar-class .show>*{max-width:1000px;margin-bottom:16px}
.ar-class pre{white-space:pre-wrap;font:13px var(--ar-mono)}
</style>"""
