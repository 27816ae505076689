"""A lab's points to Canvas or Moodle, student by student, and the people of the platform's course in the gradebook.

What the platform shows is asked first, so that a second run sends only what differs, also after a run that was stopped. Nothing is sent
for work that has an answer nobody has read: a platform would show a 0, or take an earlier mark away. A mark that somebody changed on the
platform stays. `autograder/lti/sent.jsonl` has what was sent: to whom, how many points, and the comment's digest.

Who a student is there: the platform's number, once it is known. A name or an address, which people may change, finds a person only the
first time; then the number is written into the gradebook. Numbers are one platform's: `autograder/lti/numbers.json` says whose they are.
Where two answers are possible, neither is taken, and a sentence says so.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from nbgrader.api import Gradebook

from autograder import sent
from autograder.classroom import OLD, NoClass, Overview, Row
from autograder.folder import directory_of
from autograder.intake import name_refusal, printable_name
from autograder.lti import LtiError, Platform, Refusal, Services, connected, origin, write_private
from autograder.sections import overview

MOST_CHARACTERS = 2000  # of a comment
NEARLY = 0.005  # points: a platform rounds
LEARNER = "learner"
NUMBERS = "numbers.json"
LONGEST_NAME = 100
SHOWN_NAMES = 5


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


@dataclass
class Matched:
    """Which student is which person; `told` are sentences about the others, who are `unclear` students and `held` numbers."""

    found: dict[str, Person] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    unclear: set[str] = field(default_factory=set)
    held: set[str] = field(default_factory=set)

    def hold(self, why: str, students: Iterable[str], people: Iterable[Person] = ()) -> None:
        """Takes none of them, and says why."""
        self.told.append(why)
        self.unclear |= set(students)
        self.held |= {person.number for person in people}


def match(people: Iterable[Person], numbers: dict[str, str], emails: dict[str, str]) -> Matched:
    """Finds students among people: `numbers` and `emails` are the students' in the gradebook, "" where there is none.

    Who has a number is found by it alone. The others are found by a name that is equal, letter by letter, or by an address, in any case.
    """
    done = _shared(numbers)
    owner = {number: student for student, number in numbers.items() if number}
    by_email: dict[str, list[str]] = {}
    for student, address in emails.items():
        if address:
            by_email.setdefault(address.lower(), []).append(student)
    by_name: dict[str, list[Person]] = {}
    for person in people:
        if person.number in owner:
            if owner[person.number] not in done.unclear:
                done.found[owner[person.number]] = person
            continue
        named = [name for name in person.names.values() if name in numbers][:1]
        fitting = named or by_email.get(person.email.lower(), [])
        if len(fitting) > 1:
            why = f"{person.email} is the address of {' and '.join(sorted(fitting))}: give each their own."
            done.hold(why, [student for student in fitting if not numbers[student]], [person])
        elif fitting and numbers[fitting[0]]:
            (student,) = fitting
            why = f"{student} is number {numbers[student]} of the platform, and number {person.number} has the name or address of {student}: "
            why += f"it is not taken. If this is the same student, type `allranks course roster --renumber {student}`."
            done.hold(why, (), [person])
        elif fitting:
            by_name.setdefault(fitting[0], []).append(person)
    for student, several in by_name.items():
        if len(several) > 1:
            why = f"{student} could be {len(several)} people of the platform: nothing is sent until only one has this name."
            done.hold(why, [student], several)
        elif student not in done.unclear:
            done.found[student] = several[0]
    return done


def _shared(numbers: dict[str, str]) -> Matched:
    """Those students whose number another one has too: a mark of one would replace the other's."""
    done = Matched()
    by_number: dict[str, list[str]] = {}
    for student, number in numbers.items():
        if number:
            by_number.setdefault(number, []).append(student)
    for number, several in by_number.items():
        if len(several) > 1:
            why = (
                f"{' and '.join(sorted(several))} have one number of the platform, {number}, so nothing is sent to it: "
            )
            done.hold(f"{why}type `allranks course roster --renumber NAME` with who should not have it.", several)
    return done


def _of(platform: Platform) -> str:
    """What a person's number is good for: this platform and registration."""
    scheme, host, port = origin(platform.line_items)
    return json.dumps([platform.token_url, platform.client_id, f"{scheme}://{host}:{port}"])


def _numbers_in(course: Path, platform: Platform, gradebook: Gradebook) -> dict[str, str]:
    """The platform's number of each student of the gradebook; "" where it is not known, or another platform's."""
    try:
        of = json.loads((sent.folder_of(course) / NUMBERS).read_text(encoding="utf-8"))["of"]
    except (OSError, ValueError, KeyError, TypeError):
        of = None
    ours = of == _of(platform)
    return {student.id: (student.lms_user_id or "") if ours else "" for student in gradebook.students}


def _keep(course: Path, platform: Platform, gradebook: Gradebook, numbers: dict[str, str]) -> None:
    """Writes students' numbers into the gradebook, where those of another platform end first; the caller is alone."""
    before = _numbers_in(course, platform, gradebook)
    for student in gradebook.students:
        student.lms_user_id = numbers.get(student.id, before[student.id]) or None
    text = json.dumps({"of": _of(platform)})
    path = sent.folder_of(course) / NUMBERS
    if not any(before.values()):  # whoever reads between the two finds no number rather than a foreign one
        path.unlink(missing_ok=True)
    gradebook.db.commit()
    write_private(path, f"{text}\n")


def roster(course: Path, services: Services, by: str | None, dry_run: bool, renumber: Iterable[str] = ()) -> Roster:
    """Brings the platform's learners into the gradebook, with name, address and the platform's number; nobody is removed.

    `by` says what a new student's name here is: "username", "sourcedid" or "email"; None is the first that the platform tells.
    The numbers of the students in `renumber` count no more: they are found by name or address again.
    """
    people = [person for person in people_of(services) if person.learns]
    about = directory_of(course)
    with (
        contextlib.nullcontext() if dry_run else sent.alone(course),
        Gradebook(about.db_url, about.course_id) as gradebook,
    ):
        here = {student.id: student for student in gradebook.students}
        numbers = _numbers_in(course, services.platform, gradebook)
        told = []
        if any(student.lms_user_id and not numbers[name] for name, student in here.items()):
            told.append(
                "The gradebook's numbers are of another platform or registration: students are found by name and address again."
            )
        for name in renumber:
            if name not in here:
                raise LtiError(f"There is no student {name!r} in the gradebook.")
            numbers[name] = ""
        found = _compared(people, here, numbers, by)
        found.told[:0] = told
        if not dry_run:
            for name, person in {**found.new, **found.changed}.items():
                first, last, mail, _ = _wanted(person, _now(here.get(name), ""))
                gradebook.update_or_create_student(name, first_name=first, last_name=last, email=mail)
                numbers[name] = person.number
            _keep(course, services.platform, gradebook, numbers)
    return found


def _compared(people: list[Person], here: dict[str, Any], numbers: dict[str, str], by: str | None) -> Roster:
    """Who would be entered and changed."""
    matched = match(people, numbers, {name: student.email or "" for name, student in here.items()})
    found = Roster(told=matched.told)
    taken = {person.number for person in matched.found.values()} | matched.held | {n for n in numbers.values() if n}
    for person in people:
        if person.number not in taken:
            _newcomer(found, here, person, by)
    mails = {student.email.lower(): name for name, student in here.items() if student.email}
    for name, person in matched.found.items():
        if person.email and mails.get(person.email.lower(), name) != name:
            found.told.append(f"{name} has the address of {mails[person.email.lower()]} there: it is not written here.")
            person = replace(person, email="")
        now = _now(here[name], numbers[name])
        if now == _wanted(person, now):
            found.same += 1
        else:
            found.changed[name] = person
    if found.new and (alone := sorted(set(here) - set(matched.found) - matched.unclear)):
        shown = ", ".join(alone[:SHOWN_NAMES]) + ", …" * (len(alone) > SHOWN_NAMES)
        found.told.append(
            f"{len(found.new)} of {len(people)} learners are new, while {len(alone)} of the gradebook's students fit nobody there "
            f"({shown}): if some are the same, first write their addresses into the gradebook (formgrader, Manage Students)."
        )
    return found


def _now(student: Any, number: str) -> tuple[str, ...]:
    """What the gradebook has: first name, last name, address; and the number."""
    if student is None:
        return ("", "", "", number)
    return (student.first_name or "", student.last_name or "", student.email or "", number)


def _wanted(person: Person, now: tuple[str, ...]) -> tuple[str, ...]:
    """First name, last name, address and number as they should be: what the platform does not tell stays."""
    return (person.first_name or now[0], person.last_name or now[1], person.email or now[2], person.number)


def _newcomer(found: Roster, here: dict[str, Any], person: Person, by: str | None) -> None:
    """Adds a learner who is not in the gradebook, or says why not."""
    name = person.names.get(by, "") if by else next(iter(person.names.values()), "")
    if not name:
        found.told.append(
            f"The platform does not tell the {by or 'name'} of its number {person.number}: try another --by, or let it share names."
        )
    elif reason := name_refusal(name):
        found.told.append(f"{printable_name(name)!r} can be no student's name here: {reason}.")
    elif name.startswith("-") or len(name) > LONGEST_NAME:
        found.told.append(
            f"{name[:LONGEST_NAME]!r} can be no student's name here: it begins with a hyphen, or has more than {LONGEST_NAME} letters."
        )
    elif name in here or name in found.new:
        found.told.append(f"{printable_name(name)} is the name of two people: nobody was added by it.")
    else:
        found.new[name] = person
        if not name.isascii():
            found.told.append(
                f"{name!a} is new, and has letters beyond a to z: see that it does not only look like another."
            )


def numbers(
    course: Path, services: Services, students: Iterable[str]
) -> tuple[dict[str, str], dict[str, str], Matched]:
    """The platform's number of each student: those that the gradebook has, and those that were found now by name or address."""
    about = directory_of(course)
    with Gradebook(about.db_url, about.course_id) as gradebook:
        known = _numbers_in(course, services.platform, gradebook)
        emails = {student.id: student.email or "" for student in gradebook.students}
    wanted = list(students)
    if all(known.get(student) for student in wanted):
        matched = _shared(known)
    else:
        matched = match(people_of(services), dict.fromkeys(wanted, "") | known, emails)
    sure = {student: known[student] for student in wanted if known.get(student) and student not in matched.unclear}
    lacking = [student for student in wanted if not known.get(student) and student in matched.found]
    return sure, {student: matched.found[student].number for student in lacking}, matched


# ---------------------------------------------------------------------------------------------------------------- marks


@dataclass(frozen=True)
class Mark:
    """One student's mark and what the platform shows, both in this lab's points; `state` says what is done about it.

    "send", "same", "waits" (an answer is not read yet), "changed there", "unknown" (no person of the platform), "unclear" (could be
    several), "has time" (no 0 before the due date) or "no mark".
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
    def as_before(self) -> bool:
        """Whether the platform shows these points already."""
        return _equal(self.before, self.points)

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
    fresh: dict[str, str] = field(default_factory=dict)  # students' numbers that are not in the gradebook yet

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
    still = _has_time(course, found.lab) if zero_missing else {}
    early = sorted(still.keys() & {row.student for row in found.rows if row.state == "not handed in"})
    for student in early:
        worth[student] = (worth[student][0], "has time", None)
    wanted = [student for student, (_, state, _) in worth.items() if state == "send"]
    sure, fresh, matched = numbers(course, services, wanted)
    known, told = sure | fresh, matched.told
    if early:
        until = max(still[student] for student in early)
        told.append(f"{', '.join(early)} may hand in until {until:%Y-%m-%d %H:%M} UTC: no 0 is sent before.")
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
        state = "unclear" if state == "unknown" and student in matched.unclear else state
        points_sent = last.get(student, {}).get("points")
        marks.append(Mark(student, state, points, before, comment, number, row.state == "graded", points_sent))
    return Plan(found.lab, item, label, most, marks, told, fresh)


def _has_time(course: Path, lab: str) -> dict[str, datetime]:
    """Until when those students may hand in whose due date, with its extension, has not come yet (UTC)."""
    about = directory_of(course)
    now = datetime.now(UTC).replace(tzinfo=None)  # as the gradebook keeps times
    with Gradebook(about.db_url, about.course_id) as gradebook:
        due = gradebook.find_assignment(lab).duedate
        until = {student.id: due for student in gradebook.students}
        until |= {one.student_id: one.duedate for one in gradebook.assignment_submissions(lab)}
    return {student: when for student, when in until.items() if when is not None and when > now}


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


def _equal(shown: float | None, points: float) -> bool:
    return shown is not None and abs(shown - points) < NEARLY


def _state(
    number: str, points: float, before: float | None, comment: str, last: dict[str, Any] | None, overwrite: bool
) -> str:
    if not number:
        return "unknown"
    if _equal(before, points):
        return "same" if last is None or last.get("comment") == sent.digest(comment) else "send"
    ours = before is None if last is None else _equal(before, last["points"])
    return "send" if ours or overwrite else "changed there"


# -------------------------------------------------------------------------------------------------------------- sending


@dataclass
class Done:
    """What a run did: who was sent, who was not and why, and what ended it early ("" if nothing)."""

    sent: list[Mark] = field(default_factory=list)
    failed: list[tuple[Mark, str]] = field(default_factory=list)
    ended: str = ""


def passback(
    course: Path,
    lab: str,
    services: Services,
    dry_run: bool = False,
    tell: Callable[[Mark, Plan], None] = lambda mark, wanted: None,
    students: frozenset[str] | None = None,
    **options: Any,
) -> tuple[Plan, Done]:
    """Plans, with the `options` of `plan`, for these `students` or for all, and sends the marks of the plan, alone from its beginning to the end. Raises as `plan` does, and Busy.

    A student whom the platform refuses stops nobody. What stops all, such as a platform that does not answer, ends the run: what was sent is
    recorded, and a further run goes on. `tell` is called with each mark that was sent.
    """
    done = Done()
    with contextlib.nullcontext() if dry_run else sent.alone(course):
        wanted = plan(course, overview(course, lab, students), services, **options)
        if not dry_run and wanted.of("send"):
            try:
                _send(course, services, wanted, done, tell)
            except LtiError as error:
                if not wanted.item:  # nothing could be tried
                    raise
                done.ended = str(error)
    return wanted, done


def _send(course: Path, services: Services, wanted: Plan, done: Done, tell: Callable[[Mark, Plan], None]) -> None:
    """Sends, and makes the column if need be. Raises LtiError for what ends the run."""
    if not wanted.item:
        wanted.item = str(services.make_column(wanted.label, wanted.lab, wanted.most)["id"])
    if wanted.fresh:
        about = directory_of(course)
        with Gradebook(about.db_url, about.course_id) as gradebook:
            _keep(course, services.platform, gradebook, wanted.fresh)
    for mark in wanted.of("send"):
        try:
            services.send(wanted.item, partial(score_of, mark, wanted.most))
        except Refusal as error:
            if error.status not in (400, 404, 409, 410, 422):
                raise
            done.failed.append((mark, _why_not(services, wanted, mark, error)))
            continue
        sent.record(course, wanted.lab, wanted.item, mark.student, mark.points, wanted.most, mark.comment)
        done.sent.append(mark)
        tell(mark, wanted)


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


def services_of(course: Path) -> Services:
    """The services of the platform to which the course is connected. Raises LtiError."""
    return Services(course, connected(course))
