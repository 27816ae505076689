"""`allranks course run`, `due` and `late`: a lab from collecting to the file for the points, and its due date."""

from __future__ import annotations

import json
import sys
from datetime import UTC
from pathlib import Path
from types import ModuleType
from typing import Any

import click
from allranks.cli._nbgrader import nbgrader
from allranks.cli._shared import CommandError, GradeError

from autograder.commands._course import course_option, json_option, known_lab, opened, section_option, students_of
from autograder.commands.export import write_points
from autograder.commands.grade import (
    MAX_JOBS,
    default_jobs,
    find_students,
    grade,
    in_threads,
    progress,
    rehearsed,
    settle_pairs,
)
from autograder.rows import in_words, printable, report

dry_run_option = click.option("--dry-run", is_flag=True, help="Only show whose points would change, and why.")


@click.command(name="run")
@click.argument("lab")
@course_option
@dry_run_option
@click.option("--force", is_flag=True, help="Grade again what has been graded.")
@click.option("--no-collect", is_flag=True, help="Take what lies in autograder/submitted; ask no exchange.")
@click.option("--no-feedback", is_flag=True, help="Make no feedback pages.")
@click.option("--release", is_flag=True, help="Give the feedback pages to the students, by the exchange.")
@click.option("--export", "system", type=click.Choice(["canvas", "moodle"]), help="Write the points for this system.")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Default: LAB-SYSTEM.csv here.")
@click.option("--roster", type=click.Path(path_type=Path), metavar="FILE", help="What Canvas exported.")
@click.option("--sum", "as_sum", is_flag=True, help="One column with the sum, less the penalty for being late.")
@click.option("--column", metavar="NAME", help="With --sum: the column's name.")
@click.option("--zero-missing", is_flag=True, help="Who handed in nothing gets 0 in the file. Default: no mark.")
@section_option
@click.option("--jobs", type=click.IntRange(1, MAX_JOBS), help="Submissions at a time. Default: one for each core.")
@json_option
def run(
    lab: str,
    course: Path | None,
    dry_run: bool,
    force: bool,
    no_collect: bool,
    no_feedback: bool,
    release: bool,
    system: str | None,
    output: Path | None,
    roster: Path | None,
    as_sum: bool,
    column: str | None,
    zero_missing: bool,
    sections: tuple[str, ...],
    jobs: int | None,
    as_json: bool,
) -> None:
    """Takes LAB from collecting to the points: collects, settles pairs, grades what is new, takes off what is late,
    makes the feedback pages, and with --export writes the file.

    It says whose points change and why. --dry-run does the same in a copy of the course and writes nothing.
    Students see nothing unless you give --release. The exit status is 1 if some work could not be graded, and 2 if
    nothing could be done.
    """
    root = opened(course, "allranks course run")
    lab = known_lab(root, lab)
    if system is None and (output or roster or as_sum or column or zero_missing):
        raise CommandError(
            "--output, --roster, --sum, --column and --zero-missing are about a file: give --export too."
        )
    section = students_of(root, sections)
    before = _overview(root, lab, section)
    with rehearsed(root, lab, dry_run) as folder:
        after, done = _steps(folder, lab, section, before, force, not no_collect, jobs or default_jobs(), as_json)
        if not dry_run and not no_feedback:
            done["feedback"] = _feedback(folder, lab, release, section)
        if not dry_run and system is not None:
            path, count, told = write_points(after, system, output, roster, as_sum, column, zero_missing)
            done["export"] = {"file": str(path), "students": count, "told": told}
    done = {"lab": lab, "dry_run": dry_run, **done}
    if as_json:
        click.echo(json.dumps(done))
    else:
        click.echo("\n".join(map(printable, _summary(done, lab, report(done["rows"])))))
    sys.exit(1 if done["not_graded"] else 0)


def _overview(root: Path, lab: str, section: frozenset[str] | None) -> Any:
    """The class, or the section, as it is; None if the lab is not in the gradebook yet."""
    from autograder import classroom
    from autograder.sections import overview

    try:
        return overview(root, lab, section)
    except classroom.NoClass:
        return None


def _steps(
    folder: Path,
    lab: str,
    section: frozenset[str] | None,
    before: Any,
    force: bool,
    collects: bool,
    jobs: int,
    quiet: bool,
) -> tuple[Any, dict[str, Any]]:
    """Collects, settles pairs, grades and takes off what is late, in this folder; the class then, and what was done."""
    collected = _collect(folder, lab) if collects else []
    pairs = settle_pairs(folder, lab)
    students = find_students(folder, lab, (), section)
    rows: list[dict[str, Any]] = []
    watched = sys.stderr.isatty() and not quiet
    with progress(len(students), not watched) as tell, in_threads(min(len(students), jobs)) as judges:
        for row in grade(folder, lab, students, judges, force):
            rows.append(row)
            tell(in_words(row))
    from autograder import lateness

    lateness.settle(folder, lab)
    after = _overview(folder, lab, section)
    from autograder import differences

    changes = differences.differences(before, after)
    return after, {
        "collected": collected,
        "pairs": pairs,
        "rows": sorted(rows, key=lambda row: row["student"]),
        "changes": [change.to_dict() for change in changes],
        "lines": [line for change in changes for line in change.lines()],
        "not_graded": [row["student"] for row in rows if row["score"] is None],
        "missing": [row.student for row in after.rows if row.state == "not handed in"],
        "waiting": [{"answer": name, "students": who} for name, who in after.waiting],
    }


def _collect(folder: Path, lab: str) -> list[str]:
    """Takes what was handed in from the exchange, if there is one; sentences on what was not taken.

    Raises GradeError if the hub's service can't be asked, or stops in the middle: points of yesterday's work would look like today's.
    """
    from autograder import by_service

    code, said = nbgrader(folder, "collect", lab, "--update")
    if any(line.startswith(("Course not found", "Unwritable directory")) for line in said):
        return ["No exchange has this course: what lies in autograder/submitted is taken."]
    if code != 0 and by_service.address_in(folder / "autograder"):
        raise GradeError(f"Collecting failed, so nothing is graded. {said[0] if said else ''}".rstrip())
    if code != 0 and not said:
        return ["nbgrader collect failed and said nothing: type it alone to see why."]
    return said


def _feedback(folder: Path, lab: str, release: bool, section: frozenset[str] | None) -> list[str]:
    """Makes every page anew, or the section's, since marks by hand may have changed; `release` gives them out. What was said."""
    _, said = nbgrader(folder, "generate_feedback", lab, "--force", only=section)
    if release:
        said += nbgrader(folder, "release_feedback", lab, only=section)[1]
    return [
        line for line in said if not line.startswith(("Removing existing assignment: ", "Late submission penalty: "))
    ]


def _summary(done: dict[str, Any], lab: str, told: str) -> list[str]:
    count = len(done["changes"])
    get = "would get" if done["dry_run"] else "gets" if count == 1 else "get"
    lines = [*done["collected"], *done["pairs"], *done["lines"]]
    lines.append(f"{count} student{'s' * (count != 1)} {get} other points than before.")
    if down := [one["student"] for one in done["changes"] if one["down"]]:
        have = "would have" if done["dry_run"] else "has" if len(down) == 1 else "have"
        lines.append(f"{len(down)} of them {have} LESS than before: {', '.join(down)}.")
    if done["missing"]:
        lines.append(f"{len(done['missing'])} handed in nothing: {', '.join(done['missing'])}.")
    lines += [f"{len(one['students'])} wait to be read: {one['answer']}" for one in done["waiting"]]
    lines += told.splitlines()
    if done["dry_run"]:
        return [*lines, "Nothing was written."]
    lines += done.get("feedback", [])
    if "export" in done:
        lines += [
            *done["export"]["told"],
            f"Written to {done['export']['file']}: {done['export']['students']} students.",
        ]
    if done["waiting"]:
        lines.append(f"Read them by `allranks answers {lab}`, then run this again.")
    return lines


# --------------------------------------------------------------------------------------------- due dates and late work


@click.command(name="due")
@click.argument("lab")
@click.argument("when", required=False)
@click.option("--never", is_flag=True, help="Take the due date away.")
@dry_run_option
@course_option
@json_option
def due(lab: str, when: str | None, never: bool, dry_run: bool, course: Path | None, as_json: bool) -> None:
    """Sets the due date of LAB to WHEN: '2026-12-01 23:59' is in UTC, '2026-12-01 23:59+01:00' has a zone.

    Without WHEN it says what the date is. What is taken off for being late follows at once, also for graded work.
    """
    root, lab, lateness = _lateness(course, lab, "due")
    if when and never:
        raise CommandError("Give a time or --never, not both.")
    changed = []
    if when or never:
        date = None if never else lateness.time_of(when)
        changed = lateness.set_due(root, lab, date, dry_run)
    else:
        date = lateness.due_of(root, lab)
    said = f"{lab} has no due date." if date is None else f"{lab} is due {_utc(date)}."
    _tell(lab, said, {"due": None if date is None else _utc(date)}, changed, dry_run, as_json)


def _utc(date: Any) -> str:
    return f"{(date.astimezone(UTC) if date.tzinfo else date):%Y-%m-%d %H:%M} UTC"


@click.command(name="late")
@click.argument("lab")
@click.argument("per_day", type=click.FloatRange(0, 100), required=False)
@click.option("--grace", type=click.FloatRange(0), default=0.0, metavar="MINUTES", help="So late is not late yet.")
@click.option("--most", type=click.FloatRange(0, 100), default=100.0, help="Never more than so many per cent.")
@click.option("--off", is_flag=True, help="Take the rule away: the configuration decides again.")
@dry_run_option
@course_option
@json_option
def late(
    lab: str,
    per_day: float | None,
    grace: float,
    most: float,
    off: bool,
    dry_run: bool,
    course: Path | None,
    as_json: bool,
) -> None:
    """Takes PER_DAY per cent of the points off LAB for each day begun after the due date; 100: all of them.

    Without PER_DAY it says what the rule is. It counts at once, also for work that is graded.
    """
    root, lab, lateness = _lateness(course, lab, "late")
    if off and per_day is not None:
        raise CommandError("Give a number of per cent or --off, not both.")
    changed = []
    rule = lateness.rules_of(root).get(lab)
    if off or per_day is not None:
        rule = None if off else lateness.Rule(per_day, grace, most)
        changed = lateness.set_rule(root, lab, rule, dry_run)
    said = f"{lab}: {rule}." if rule else f"{lab} has no rule of its own: nbgrader_config.py decides."
    _tell(lab, said, {"rule": vars(rule) if rule else None}, changed, dry_run, as_json)


def _lateness(course: Path | None, lab: str, name: str) -> tuple[Path, str, ModuleType]:
    root = opened(course, f"allranks course {name}")
    from autograder import lateness

    return root, known_lab(root, lab), lateness


def _tell(lab: str, said: str, about: dict[str, Any], changed: list[Any], dry_run: bool, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"lab": lab, "dry_run": dry_run, **about, "changes": [vars(one) for one in changed]}))
        return
    click.echo(said)
    for one in changed:
        click.echo(printable(f"{one.student}: {one.before:g} -> {one.after:g} points off"))
    if dry_run:
        click.echo("Nothing was written.")
