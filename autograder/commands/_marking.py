"""`allranks course sections` and `rubric`: who marks whom, and the remarks that all who mark share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from allranks.cli._shared import CommandError

from autograder.commands._course import course_option, json_option, known_lab, opened
from autograder.rows import printable

dry_run_option = click.option("--dry-run", is_flag=True, help="Only show whose points would change.")


# ------------------------------------------------------------------------------------------------------------ sections


@click.command(name="sections")
@click.argument("lab", required=False)
@course_option
@json_option
def sections(lab: str | None, course: Path | None, as_json: bool) -> None:
    """Lists the sections of autograder/class.csv with their graders, and of LAB how many are graded, how many answers
    wait to be read, and who marked how many.

    The file is nbgrader's class list with a column section, and for several graders a column grader.
    """
    root = opened(course, "allranks course sections")
    from autograder import sections as about

    found = about.overview(root, known_lab(root, lab)) if lab else None
    there = about.told(root, found)
    if as_json:
        click.echo(json.dumps({"lab": lab, "sections": there}))
        return
    if not there:
        click.echo(f"There are no sections: give autograder/{about.FILE} a column section.")
    for one in there:
        click.echo(printable(_in_words(one)))
        if one["missing"]:
            click.echo(printable(f"  not in the gradebook: {', '.join(one['missing'])}"))


def _in_words(one: dict[str, Any]) -> str:
    count = one["students"]
    parts = [f"{count} student{'s' * (count != 1)}"]
    parts += [f"graded by {', '.join(one['graders'])}"] if one["graders"] else []
    if "graded" in one:
        parts += [f"{one['graded']} graded", f"{one['waiting']} wait to be read"]
        parts += [f"{number} marked by {who}" for who, number in one["marked_by"].items()]
    return f"{one['section'] or 'in no section'}: {', '.join(parts)}"


# -------------------------------------------------------------------------------------------------------------- rubric


@click.command(name="rubric")
@click.argument("lab")
@click.argument("name", required=False)
@click.option("--points", type=float, metavar="NUMBER", help="What the item adds; below 0: what it takes off.")
@click.option("--comment", metavar="TEXT", help="What a student reads. Default: the name.")
@click.option("--rename", "renamed", metavar="NAME", help="Give the item this name.")
@click.option("--remove", is_flag=True, help="Take the item away, also from the marks that have it.")
@click.option("--question", metavar="CELL", help="The question, if the lab asks for more than one answer in words.")
@click.option("--as", "who", default="", metavar="NAME", help="Who changes it, for the record. Default: your account.")
@dry_run_option
@course_option
@json_option
def rubric(
    lab: str,
    name: str | None,
    points: float | None,
    comment: str | None,
    renamed: str | None,
    remove: bool,
    question: str | None,
    who: str,
    dry_run: bool,
    course: Path | None,
    as_json: bool,
) -> None:
    """Makes or changes the rubric item NAME of an answer in words: a remark with points that costs the same wherever it is
    given. Without NAME it lists the items of LAB.

    A change changes every mark that was made with the item, of all sections; --dry-run shows whose. `allranks answers`
    does the same on its page. Make the feedback pages again afterwards.
    """
    root = opened(course, "allranks course rubric")
    lab = known_lab(root, lab)
    wanted = {"points": points, "comment": comment, "renamed": renamed, "remove": remove}
    given = [value for value in wanted.values() if value is not None and value is not False]
    if name is None and (given or dry_run):
        raise CommandError("Give the item's name too.")
    if remove and len(given) > 1:
        raise CommandError("Remove the item or change it, not both.")
    from autograder import reading

    about = reading.Reading(root, lab, who=who)
    if name is None:
        _list(about, lab, as_json)
        return
    if not given:
        raise CommandError(f"Say what to do with {name!r}: --points, --comment, --rename or --remove.")
    changed = about.change(about.number_of(question), name, dry_run, **wanted)
    if as_json:
        told = {"item": vars(changed.item) if changed.item else None, "left": list(changed.left)}
        click.echo(
            json.dumps({"lab": lab, "dry_run": dry_run, **told, "changes": [vars(one) for one in changed.changes]})
        )
        return
    click.echo("\n".join(map(printable, _told(lab, name, changed, dry_run))))


def _list(about: Any, lab: str, as_json: bool) -> None:
    there = about.rubric()
    if as_json:
        click.echo(json.dumps({"lab": lab, "questions": there}))
        return
    for one in there:
        click.echo(f"{one['question']}, {one['points']:g} points{':' if one['items'] else ': no items yet.'}")
        for item in one["items"]:
            count = item["used"]
            words = f"  {item['name']} {item['points']:+g}, in {count} mark{'s' * (count != 1)}"
            click.echo(printable(words + (f": {' '.join(item['comment'].split())}" if item["comment"] else "")))


def _told(lab: str, name: str, changed: Any, dry_run: bool) -> list[str]:
    def points(score: float | None) -> str:
        return "no mark" if score is None else f"{score:g}"

    moved = [one for one in changed.changes if one.before != one.after]
    lines = [f"{one.student}: {points(one.before)} -> {points(one.after)}" for one in moved]
    lines += [f"{student} was marked elsewhere since, and stays as it is." for student in changed.left]
    what = f"{name} is removed" if changed.item is None else f"{changed.item.name} {changed.item.points:+g}"
    count = len(changed.changes)
    lines.append(f"{what}: in {count} mark{'s' * (count != 1)}, {len(moved)} with other points.")
    if dry_run:
        return [*lines, "Nothing was written."]
    return [
        *lines,
        *([f"Then `allranks course run {lab}`: it takes off what is late anew, and makes the pages."] if count else []),
    ]
