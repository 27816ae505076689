"""A lab's points to Canvas or Moodle, student by student, and the people of the platform's course in the gradebook.

What the platform shows is asked first, so that a second run sends only what differs, also after a run that was stopped. Nothing is sent
for work that has an answer nobody has read: a platform would show a 0, or take an earlier mark away. A mark that somebody changed on the
platform stays. `autograder/lti/sent.jsonl` has what was sent: to whom, how many points, and the comment's digest.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from nbgrader.api import Gradebook

from autograder import sent
from autograder.classroom import OLD, NoClass, Overview, Row
from autograder.folder import directory_of
from autograder.intake import name_refusal, printable_name
from autograder.lti import LtiError, Platform, Refusal, Services, connected

MOST_CHARACTERS = 2000  # of a comment
NEARLY = 0.005  # points: a platform rounds
LEARNER = "learner"


# --------------------------------------------------------------------------------------------------------------- people


@dataclass(frozen=True)
class Person:
    """A member of the platform's course. `number` is the platform's (LTI's `sub`); `names` are what may be the student's name here.

    They are by kind: "hub", "username", "sourcedid", "email". What the platform's administrators set comes first: a person may choose an address.
    """

    number: str
    names: dict[str, str]
    first_name: str
    last_name: str
    email: str
    learns: bool


@dataclass
class Roster:
    """What would be written into the gradebook: `new` and `changed` students by name, and sentences about who was left out."""

    new: dict[str, Person] = field(default_factory=dict)
    changed: dict[str, Person] = field(default_factory=dict)
    same: int = 0
    told: list[str] = field(default_factory=list)


def people_of(services: Services) -> list[Person]:
    """The active members of the platform's course."""
    hub = _hubs_names(services.platform)
    found = []
    for one in services.people():
        if str(one.get("status") or "Active") != "Active":
            continue
        number = str(one["user_id"])
        told = {"hub": hub.get(number), "username": one.get("ext_user_username")}
        told |= {"sourcedid": one.get("lis_person_sourcedid"), "email": one.get("email")}
        roles = [str(role).replace("#", "/").rpartition("/")[2].lower() for role in one.get("roles") or ()]
        first, last, mail = (str(one.get(key) or "") for key in ("given_name", "family_name", "email"))
        found.append(
            Person(
                number, {kind: str(name) for kind, name in told.items() if name}, first, last, mail, LEARNER in roles
            )
        )
    return found


def _hubs_names(platform: Platform) -> dict[str, str]:
    """The names of accounts of a hub by the platform's number, of who has come from the platform to the hub."""
    if not platform.people:
        return {}
    try:
        people = json.loads(Path(platform.people).read_text(encoding="utf-8"))["people"]
        return {str(about["sub"]): name for name, about in people.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def match(
    people: Iterable[Person], students: Iterable[str], emails: dict[str, str]
) -> tuple[dict[str, Person], list[str]]:
    """Which student is which person, and sentences about those who could be two.

    A name counts only if it is equal, letter by letter; an address also if it is the student's in the gradebook (`emails`), in any case.
    """
    known = set(students)
    by_email: dict[str, list[str]] = {}
    for student, address in emails.items():
        if address:
            by_email.setdefault(address.lower(), []).append(student)
    found: dict[str, list[Person]] = {}
    told = []
    for person in people:
        student = next((name for name in person.names.values() if name in known), None)
        if student is None and person.email:
            candidates = by_email.get(person.email.lower(), [])
            if len(candidates) > 1:
                told.append(
                    f"{person.email} is the address of {' and '.join(sorted(candidates))}: give each their own."
                )
            elif candidates:
                student = candidates[0]
        if student is not None:
            found.setdefault(student, []).append(person)
    for student, several in found.items():
        if len(several) > 1:
            told.append(
                f"{student} could be {len(several)} people of the platform: nothing is sent until only one has this name."
            )
    return {student: several[0] for student, several in found.items() if len(several) == 1}, told


def roster(course: Path, services: Services, by: str | None, dry_run: bool) -> Roster:
    """Brings the platform's learners into the gradebook, with name, address and the platform's number; nobody is removed.

    `by` says what a new student's name here is: "username", "sourcedid" or "email"; None is the first that the platform tells.
    """
    people = [person for person in people_of(services) if person.learns]
    about = directory_of(course)
    found = Roster()
    with Gradebook(about.db_url, about.course_id) as gradebook:
        here = {student.id: student for student in gradebook.students}
        matched, found.told = match(people, here, {name: student.email or "" for name, student in here.items()})
        taken = {person.number for person in matched.values()}
        for person in people:
            if person.number not in taken:
                _newcomer(found, here, person, by)
        for name, person in matched.items():
            student = here[name]
            now = (student.first_name or "", student.last_name or "", student.email or "", student.lms_user_id or "")
            if now == _wanted(person, now):
                found.same += 1
            else:
                found.changed[name] = person
        if not dry_run:
            for name, person in {**found.new, **found.changed}.items():
                student = here.get(name)
                now = (
                    (student.first_name or "", student.last_name or "", student.email or "", "")
                    if student
                    else ("",) * 4
                )
                first, last, mail, number = _wanted(person, now)
                gradebook.update_or_create_student(
                    name, first_name=first, last_name=last, email=mail, lms_user_id=number
                )
    return found


def _wanted(person: Person, now: tuple[str, ...]) -> tuple[str, ...]:
    """First name, last name, address and number as they should be: what the platform does not tell stays."""
    return (person.first_name or now[0], person.last_name or now[1], person.email or now[2], person.number)


def _newcomer(found: Roster, here: dict[str, Any], person: Person, by: str | None) -> None:
    """Adds a learner who is not in the gradebook, or says why not."""
    name = person.names.get(by, "") if by else next(iter(person.names.values()), "")
    if not name:
        who = printable_name(person.number)
        found.told.append(
            f"The platform does not tell the {by or 'name'} of its number {who}: try another --by, or let it share names."
        )
    elif reason := name_refusal(name):
        found.told.append(f"{printable_name(name)!r} can be no student's name here: {reason}.")
    elif name in here or name in found.new:
        found.told.append(f"{printable_name(name)} is the name of two people: nobody was added by it.")
    else:
        found.new[name] = person


def numbers(course: Path, services: Services, students: Iterable[str]) -> tuple[dict[str, str], list[str]]:
    """The platform's number of each student: from the gradebook, and of who has none there from the platform's members."""
    about = directory_of(course)
    with Gradebook(about.db_url, about.course_id) as gradebook:
        here = {student.id: (student.lms_user_id or "", student.email or "") for student in gradebook.students}
    known = {student: here.get(student, ("", ""))[0] for student in students}
    if all(known.values()):
        return known, []
    taken = {number for number in known.values() if number}
    people = [person for person in people_of(services) if person.number not in taken]
    lacking = [student for student, number in known.items() if not number]
    matched, told = match(people, lacking, {student: here.get(student, ("", ""))[1] for student in lacking})
    return {
        **{s: n for s, n in known.items() if n},
        **{student: person.number for student, person in matched.items()},
    }, told


# ---------------------------------------------------------------------------------------------------------------- marks


@dataclass(frozen=True)
class Mark:
    """One student's mark and what the platform shows, both in this lab's points; `state` says what is done about it.

    "send", "same", "waits" (an answer is not read yet), "changed there", "unknown" (no person of the platform) or "no mark".
    """

    student: str
    state: str
    points: float | None = None
    before: float | None = None
    comment: str = ""
    number: str = ""
    handed_in: bool = True
    sent: float | None = None

    @property
    def down(self) -> bool:
        """Whether the platform would show less than before."""
        return self.state == "send" and self.before is not None and self.points < self.before - NEARLY


@dataclass
class Plan:
    """What a run does: the column's address ("" if it is to be made), its name, its points, and the marks by the students' names."""

    lab: str
    item: str
    label: str
    most: float
    marks: list[Mark]
    told: list[str]

    def of(self, *states: str) -> list[Mark]:
        """The marks in these states."""
        return [mark for mark in self.marks if mark.state in states]


def comment_of(found: Overview, row: Row) -> str:
    """The feedback in short: the points of each exercise, and the cause where some are missing; in plain text."""
    lines = []
    for part in found.parts:
        mark = row.marks.get(part.cell)
        if mark is not None and mark.score is not None:
            why = f", {mark.mistake}" if mark.mistake and mark.mistake != OLD else ""
            lines.append(f"{part.name}: {mark.score:g} of {part.points:g}{why}")
    if row.late_penalty:
        lines.append(f"handed in late: -{row.late_penalty:g}")
    text = "\n".join(map(printable_name, lines))
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 1]}…"


def points_of(row: Row, found: Overview, zero_missing: bool) -> tuple[str, float | None]:
    """What a student's work is worth, less the penalty, to two decimals, or why there is no mark: "waits" or "no mark"."""
    if row.state == "not handed in" and zero_missing:
        return "send", 0.0
    if row.state != "graded" or row.total is None:
        return "no mark", None
    marks = [row.marks.get(part.cell) for part in found.parts]
    if any(mark is None or mark.score is None or mark.waits for mark in marks):
        return "waits", None
    return "send", round(row.total, 2)


def plan(
    course: Path,
    found: Overview,
    services: Services,
    column: str | None = None,
    zero_missing: bool = False,
    overwrite: bool = False,
    comments: bool = True,
) -> Plan:
    """Compares the gradebook with what the platform shows; nothing is written. Raises LtiError, NoClass.

    `column` is the name of a column that is there already; without it the lab has one of its own.
    """
    if not found.graded and not zero_missing:
        raise NoClass(f"Nobody's work in {found.lab} has grades yet: type `allranks grade {found.lab}` first.")
    most = sum(part.points for part in found.parts)
    item, label = _column(services, found.lab, column)
    worth = {row.student: (row, *points_of(row, found, zero_missing)) for row in found.rows}
    wanted = [student for student, (_, state, _) in worth.items() if state == "send"]
    known, told = numbers(course, services, wanted)
    results = services.results(item) if item else {}
    last = sent.to(course, item)
    marks = []
    for student, (row, state, points) in worth.items():
        if state != "send":
            marks.append(Mark(student, state))
            continue
        comment = comment_of(found, row) if comments and row.state == "graded" else ""
        number = known.get(student, "")
        before = _shown(results.get(number), most)
        state = _state(number, points, before, comment, last.get(student), overwrite)
        points_sent = last.get(student, {}).get("points")
        marks.append(Mark(student, state, points, before, comment, number, row.state == "graded", points_sent))
    return Plan(found.lab, item, label, most, marks, told)


def _column(services: Services, lab: str, name: str | None) -> tuple[str, str]:
    """The address and the name of the column; no address if it is to be made."""
    if name is None:
        made = services.columns(lab)
        return (str(made[0]["id"]), str(made[0].get("label") or lab)) if made else ("", lab)
    there = services.columns()
    fitting = [one for one in there if one.get("label") == name]
    if len(fitting) != 1:
        names = ", ".join(sorted({str(one.get("label")) for one in there})) or "none"
        many = f"{len(fitting)} columns" if fitting else "no column"
        raise LtiError(
            f"{services.platform.name} has {many} named {name!r} that this tool may use. There are: {names}."
        )
    return str(fitting[0]["id"]), name


def _shown(result: dict[str, Any] | None, most: float) -> float | None:
    """The mark that the platform shows, in this lab's points; None if there is none."""
    try:
        score, of = float(result["resultScore"]), float(result.get("resultMaximum") or most)
        return score / of * most if of else None
    except (KeyError, TypeError, ValueError):
        return None


def _state(
    number: str, points: float, before: float | None, comment: str, last: dict[str, Any] | None, overwrite: bool
) -> str:
    if not number:
        return "unknown"
    equal = before is not None and abs(before - points) < NEARLY
    if equal:
        return "same" if last is None or last.get("comment") == sent.digest(comment) else "send"
    ours = before is None if last is None else before is not None and abs(before - last["points"]) < NEARLY
    return "send" if ours or overwrite else "changed there"


# -------------------------------------------------------------------------------------------------------------- sending


def send(
    course: Path, services: Services, wanted: Plan, tell: Callable[[Mark], None] = lambda mark: None
) -> tuple[list[Mark], list[tuple[Mark, str]], str]:
    """Sends the marks of a plan, and makes the column if need be; who was sent, who was not and why, and what ended it early ("" if nothing).

    A student whom the platform refuses stops nobody. What stops all, such as a platform that does not answer, ends the run: what was sent is
    recorded, and a further run goes on. `tell` is called with each mark that was sent.
    """
    done: list[Mark] = []
    failed: list[tuple[Mark, str]] = []
    marks = wanted.of("send")
    if not marks:
        return done, failed, ""
    with _alone(course):
        if not wanted.item:
            wanted.item = str(services.make_column(wanted.label, wanted.lab, wanted.most)["id"])
        for mark in marks:
            try:
                services.send(wanted.item, partial(score_of, mark, wanted.most))
            except Refusal as error:
                if error.status not in (400, 404, 409, 410, 422):
                    return done, failed, str(error)
                try:
                    why = _why_not(services, wanted, mark, error)
                except LtiError as everybody:
                    return done, failed, str(everybody)
                failed.append((mark, why))
                continue
            except LtiError as error:
                return done, failed, str(error)
            sent.record(course, wanted.lab, wanted.item, mark.student, mark.points, wanted.most, mark.comment)
            done.append(mark)
            tell(mark)
    return done, failed, ""


def score_of(mark: Mark, most: float) -> dict[str, Any]:
    """A score as AGS 2.0 has it (3.4.5); its time is now, because a platform refuses one that is not newer than the last."""
    about = {
        "userId": mark.number,
        "scoreGiven": mark.points,
        "scoreMaximum": most,
        "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "activityProgress": "Completed" if mark.handed_in else "Initialized",
        "gradingProgress": "FullyGraded",
    }
    return about | ({"comment": mark.comment} if mark.comment else {})


def _why_not(services: Services, wanted: Plan, mark: Mark, error: Refusal) -> str:
    """Why one student's score was refused. Raises LtiError if the reason is the column's, and so everybody's."""
    name = services.platform.name
    if error.status == 409:
        return f"{name} has a newer mark of {mark.student} (409): see whether this machine's clock is right."
    if services.column(wanted.item) is None:
        raise LtiError(f"The column {wanted.label} was deleted in {name}: type the command again, and it is made anew.")
    return f"{name} has no student {mark.student} in this course any more, or takes no mark for one ({error.status})."


def _alone(course: Path) -> Any:
    """Holds a lock while marks are sent. Raises LtiError if another command holds it."""
    file = open(sent.folder_of(course) / "lock", "w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise LtiError("Marks of this course are being sent by another command: wait for its end.") from None
    return file


def services_of(course: Path) -> Services:
    """The services of the platform to which the course is connected. Raises LtiError."""
    return Services(course, connected(course))
