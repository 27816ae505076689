"""`allranks course connect`, `roster` and `passback`: points to Canvas or Moodle by LTI 1.3, and their people."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click
from allranks.base.extras import require
from allranks.cli._shared import CommandError

from autograder.commands._course import course_option, json_option, known_lab, opened, section_option, students_of
from autograder.rows import printable


def _opened(course: Path | None, name: str) -> Path:
    """The course's folder. Raises MissingExtraError or GradeError."""
    for needed in ("jwt", "cryptography"):
        require(needed, f"allranks course {name}")
    return opened(course, f"allranks course {name}")


# ------------------------------------------------------------------------------------------------------------- connect


@click.command(name="connect")
@click.argument("system", type=click.Choice(["moodle", "canvas", "hub"]), required=False)
@click.argument("address", required=False)
@click.option("--client-id", default="", metavar="ID", help="What the platform shows once the tool is registered.")
@click.option(
    "--course-id", type=click.IntRange(1), metavar="N", help="The number in the address of the platform's course."
)
@click.option("--tool-id", type=click.IntRange(1), metavar="N", help="Moodle: the deployment ID of the tool.")
@click.option("--launches", type=click.Path(path_type=Path), metavar="FILE", help="Of a hub.")
@click.option(
    "--show", type=click.Choice(["pem", "jwk", "jwks"]), help="Only print the public key: Moodle's, Canvas's."
)
@course_option
@json_option
def connect(
    system: str | None,
    address: str | None,
    client_id: str,
    course_id: int | None,
    tool_id: int | None,
    launches: Path | None,
    show: str | None,
    course: Path | None,
    as_json: bool,
) -> None:
    """Connects the course to a platform: makes a key, tries the platform's addresses, and keeps them if they work.

    First register the tool there with the key that --show prints. ADDRESS is the platform's, as in
    https://moodle.example.org. `hub` takes all from the launches that a hub saw; it needs ADDRESS only if the platform
    has its services at another host than its tokens. Without SYSTEM it tries what it has.
    """
    root = _opened(course, "connect")
    from autograder import lti, passback

    if show == "pem":
        click.echo(lti.public_pem(root).rstrip())
        return
    if show:
        jwk = lti.public_jwk(root)
        click.echo(json.dumps(jwk if show == "jwk" else {"keys": [jwk]}))
        return
    if system is None:
        services = passback.services_of(root)
    else:
        platform = _platform(system, address, client_id, course_id, tool_id, launches)
        lti.check(platform)
        services = lti.Services(root, platform)
    columns = services.columns()
    people: list[Any] | None = None
    why = ""
    try:
        people = passback.people_of(services)
    except lti.LtiError as error:
        why = str(error)
    if system is not None:  # one that works is not replaced by one that was mistyped
        lti.connect(root, services.platform)
    told = {
        "platform": services.platform.name,
        "host": services.platform.host,
        "columns": [str(one.get("label")) for one in columns],
        "learners": None if people is None else sum(person.learns for person in people),
        "why": why,
    }
    if as_json:
        click.echo(json.dumps(told))
        return
    found = f"{len(columns)} column{'s' * (len(columns) != 1)}"
    click.echo(f"Connected to {told['platform']} at {told['host']}: {found} that this tool may use.")
    click.echo(printable(why) if why else f"{told['learners']} learners. Type `allranks course roster` to enter them.")


def _platform(
    system: str,
    address: str | None,
    client_id: str,
    course_id: int | None,
    tool_id: int | None,
    launches: Path | None,
) -> Any:
    """The platform that the options name. Raises CommandError if one lacks."""
    from autograder import lti

    if system == "hub":
        from allranks.machine.doctor.hub import Site

        return lti.from_hub(launches or Site.of_this_machine().launches, address)
    needed = {"ADDRESS": address, "--client-id": client_id, "--course-id": course_id}
    if system == "moodle":
        needed["--tool-id"] = tool_id
    if lacking := [name for name, value in needed.items() if value in (None, "")]:
        raise CommandError(f"{system.capitalize()} needs {' and '.join(lacking)} too.")
    if system == "moodle":
        return lti.moodle(address, client_id, course_id, tool_id)
    return lti.canvas(address, client_id, course_id)


# -------------------------------------------------------------------------------------------------------------- roster


@click.command(name="roster")
@click.option(
    "--by",
    type=click.Choice(["username", "sourcedid", "email"]),
    help="What a new student's name here is. Default: the first of these that the platform tells.",
)
@click.option("--dry-run", is_flag=True, help="Only show who would be entered.")
@click.option(
    "--renumber",
    multiple=True,
    metavar="STUDENT",
    help="Forget the number of this student, who has another account there now, and look anew; may be repeated.",
)
@course_option
@json_option
def roster(by: str | None, dry_run: bool, renumber: tuple[str, ...], course: Path | None, as_json: bool) -> None:
    """Enters the platform's learners into the gradebook: name, address, and the number by which it knows them.

    Students who are there already are found by the number; who has none yet, by name or address. Nobody is removed.
    """
    root = _opened(course, "roster")
    from autograder import passback

    found = passback.roster(root, passback.services_of(root), by, dry_run, renumber)
    if as_json:
        told = {"dry_run": dry_run, "new": sorted(found.new), "changed": sorted(found.changed), "same": found.same}
        click.echo(json.dumps({**told, "told": found.told}))
        return
    for sign, people in (("+", found.new), ("~", found.changed)):
        for name, person in sorted(people.items()):
            click.echo(printable(f"{sign} {name}: {person.first_name} {person.last_name} {person.email}".rstrip(": ")))
    click.echo("\n".join(map(printable, found.told)), nl=bool(found.told))
    click.echo(f"{len(found.new)} new, {len(found.changed)} changed, {found.same} as before.")
    if dry_run:
        click.echo("Nothing was written.")


# ------------------------------------------------------------------------------------------------------------ passback


@click.command(name="passback")
@click.argument("lab")
@click.option("--dry-run", is_flag=True, help="Only show whose mark would change on the platform.")
@click.option("--column", metavar="NAME", help="A column that is there already. Default: one of the lab's own.")
@click.option("--zero-missing", is_flag=True, help="Who handed in nothing gets 0. Default: no mark.")
@click.option("--overwrite", is_flag=True, help="Replace marks that somebody else wrote on the platform.")
@click.option("--no-comment", is_flag=True, help="Send the points alone, without the points of each exercise.")
@section_option
@course_option
@json_option
def passback(
    lab: str,
    dry_run: bool,
    column: str | None,
    zero_missing: bool,
    overwrite: bool,
    no_comment: bool,
    sections: tuple[str, ...],
    course: Path | None,
    as_json: bool,
) -> None:
    """Sends the points of LAB to the platform to which the course is connected, with the feedback in short.

    It sends what differs from what the platform shows, so it may be typed again at any time. Work with an answer that
    nobody has read is not sent. The exit status is 1 if somebody's mark could not be sent, and 2 if none could be.
    """
    root = _opened(course, "passback")
    from autograder import passback as about

    def tell(mark: Any, plan: Any) -> None:
        if not as_json:
            click.echo(printable(_in_words(mark, plan.most)))

    lab = known_lab(root, lab)
    services = about.services_of(root)
    options = {"column": column, "zero_missing": zero_missing, "overwrite": overwrite, "comments": not no_comment}
    plan, done = about.passback(root, lab, services, dry_run, tell, students_of(root, sections), **options)
    name = services.platform.name
    if as_json:
        click.echo(json.dumps(_as_dict(plan, name, dry_run, done)))
    else:
        click.echo("\n".join(map(printable, _told(plan, name, dry_run, done))))
    lost = done.ended or done.failed or plan.of("unknown", "unclear")
    sys.exit(2 if done.ended and not done.sent else 1 if lost else 0)


def _in_words(mark: Any, most: float) -> str:
    if mark.as_before:
        return f"{mark.student}: {mark.points:g} of {most:g} as before, another comment"
    return f"{mark.student}: {_before(mark)} -> {mark.points:g} of {most:g}{', LESS than before' if mark.down else ''}"


def _before(mark: Any) -> str:
    return "no mark" if mark.before is None else f"{mark.before:.4g}"


def _told(plan: Any, name: str, dry_run: bool, done: Any) -> list[str]:
    """What a run did, in lines."""
    wanted = plan.of("send")
    lines = [_in_words(mark, plan.most) for mark in wanted] if dry_run else []
    for mark in plan.of("changed there"):
        sent = "" if mark.sent is None else f" ({mark.sent:g} was sent)"
        lines.append(
            f"{mark.student}: {_before(mark)} is there, not from here{sent}: --overwrite sends {mark.points:g}."
        )
    nobody = f"nobody of {name} has this name or address: write the address into the gradebook (formgrader, Manage Students)."
    lines += [f"{mark.student}: {nobody}" for mark in plan.of("unknown")]
    lines += [*plan.told, *(why for _, why in done.failed), *([done.ended] if done.ended else [])]
    counts = [f"{len(plan.of('same'))} as before", f"{len(plan.of('waits'))} wait to be read"]
    counts.append(f"{len(plan.of('no mark'))} have no mark")
    lines.append(
        f"{len(wanted) if dry_run else len(done.sent)} {'would be sent' if dry_run else 'sent'}, {', '.join(counts)}."
    )
    if left := len(wanted) - len(done.sent) - len(done.failed) if done.ended else 0:
        lines.append(f"{left} not sent yet: type the command again to go on.")
    if dry_run:
        made = "" if plan.item else ", which would be made"
        lines.append(f"Nothing was sent to {name}. The column is {plan.label}{made}.")
    return lines


def _as_dict(plan: Any, name: str, dry_run: bool, done: Any) -> dict[str, Any]:
    def shown(mark: Any) -> dict[str, Any]:
        about = {key: getattr(mark, key) for key in ("student", "state", "points", "before", "comment")}
        return about | {"down": mark.down}

    return {
        "lab": plan.lab,
        "platform": name,
        "column": plan.label,
        "most": plan.most,
        "dry_run": dry_run,
        "marks": [shown(mark) for mark in plan.marks],
        "sent": [mark.student for mark in done.sent],
        "not_sent": [{"student": mark.student, "why": why} for mark, why in done.failed],
        "ended": done.ended,
        "told": plan.told,
    }
