"""What a course holds about one student: all of it as a file for the student (`export`), or none of it any more (`forget`).

Both look in the course's folder, the gradebook and nbgrader's exchange. Files that a teacher exported, backups, and the homes of a hub are
other places: docs/privacy.md names them.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import shutil
import sqlite3
import stat
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from allranks.base.errors import CourseError
from allranks.base.whole import write_whole
from allranks.course.exchange.remote import Remote
from allranks.course.handin import Refused
from nbgrader.api import Gradebook, MissingEntry
from nbgrader.coursedir import CourseDirectory
from nbgrader.utils import notebook_hash

from autograder import by_service, pairs, regrades, rubric, sections, sent
from autograder.folder import SQLITE, directory_of, has_gradebook, text_of
from autograder.giving import SECRET
from autograder.intake import copy_of, name_refusal, printable_name, read_small

MAX_FILE_BYTES = 1 << 30
MARKED = "gradebook.db, who marked answers in words"


class PrivacyError(CourseError):
    """Nothing was done; the message is one sentence that says why."""


@dataclass(frozen=True)
class Held:
    """What is there about a student: files and folders, submissions in the gradebook, and lines of the course's lists, by file.

    `partners` are pages of partners that name the student. `at_hub` is what the hub's service for hand-ins keeps, of each file a name and
    where it is there; `at_hub_partners` are pages of partners there, by name and page.
    """

    student: str
    paths: tuple[Path, ...]
    submissions: tuple[str, ...]
    in_gradebook: bool
    lines: dict[str, int]
    partners: tuple[Path, ...]
    at_hub: tuple[tuple[str, tuple[str, ...]], ...] = ()
    at_hub_partners: tuple[tuple[str, str], ...] = ()

    def told(self) -> list[str]:
        """Each place, one a line."""
        found = [printable_name(str(path)) for path in self.paths]
        if self.in_gradebook:
            labs = f", marks of {', '.join(self.submissions)}" if self.submissions else ""
            found.append(f"the gradebook: name, address{labs}")
        found += [f"the hub's service: {printable_name(name)}" for name, _ in self.at_hub]
        found += [
            f"the hub's service: a page of {printable_name(name)}, a partner, which release_feedback gives again"
            for name, _ in self.at_hub_partners
        ]
        found += [
            f"{printable_name(str(path))}, a partner's page, which generate_feedback makes again"
            for path in self.partners
        ]
        return found + [f"{name}: {count} line{'s' * (count != 1)}" for name, count in self.lines.items() if count]


def exchange_of(course: Path) -> Path | None:
    """The course's folder in nbgrader's exchange, as the machine's and the course's configuration name it; None if there is none."""
    from nbgrader.apps import CollectApp
    from nbgrader.exchange.default import Exchange

    with contextlib.chdir(course / "autograder"):
        app = CollectApp()
        app.load_config_file(suppress_errors=False)
        root = Exchange(coursedir=CourseDirectory(config=app.config), config=app.config).root
    folder = Path(root) / directory_of(course).course_id
    return folder if folder.is_dir() else None


def held(course: Path, student: str) -> Held:
    """What is there. Raises PrivacyError for a name that can't be one, or if nothing is there."""
    if reason := name_refusal(student):
        raise PrivacyError(f"{printable_name(student)!r} is no student's name: {reason}.")
    about = directory_of(course)
    remote = by_service.remote_of(course)
    exchange = None if remote else exchange_of(course)
    at_hub = tuple(remote.of_student(student)) if remote else ()
    paths = list(_paths(course, about, exchange, student))
    labs: tuple[str, ...] = ()
    known, marked = False, 0
    if has_gradebook(about):
        with Gradebook(about.db_url, about.course_id) as gradebook:
            marked = len(rubric.history(gradebook, student))
            try:
                labs = tuple(sorted(one.assignment.name for one in gradebook.find_student(student).submissions))
                known = True
            except MissingEntry:
                pass
    lines = {
        pairs.FILE: len(_csv_lines(course, pairs.FILE, student)[0]),
        sections.FILE: len(_csv_lines(course, sections.FILE, student)[0]),
        MARKED: marked,
        regrades.LOG: sum(_is_about(line, student) for line in _log_lines(course)),
        f"{sent.FOLDER}/{sent.SENT}": sum(entry["student"] == student for _, entry in sent.lines(course)),
        f"{pairs.FOLDER}/*/{pairs.STATE}": len(_shared(course, student)),
    }
    if not paths and not known and not at_hub and not any(lines.values()):
        raise PrivacyError(f"There is nothing about {printable_name(student)} in {course} or its exchange.")
    partners = tuple(_partners_pages(course, about, exchange, student))
    theirs = tuple(_partners_at_hub(course, remote, student)) if remote else ()
    return Held(student, tuple(paths), labs, known, lines, partners, at_hub, theirs)


def _partners_at_hub(course: Path, remote: Remote, student: str) -> Iterator[tuple[str, str]]:
    """The same at the hub's service: whose page, and its name."""
    for other in _partners(course, student):
        for page in remote.about(other)["pages"]:
            if student.encode() in remote.file("people", other, "pages", page):
                yield other, page


def _partners(course: Path, student: str) -> list[str]:
    """Those with whom the student shares a work."""
    shared = _shared(course, student).values()
    return sorted(
        {name for state in shared for mine, (owner, _) in state.items() for name in (mine, owner)} - {student}
    )


def _partners_pages(course: Path, about: CourseDirectory, exchange: Path | None, student: str) -> Iterator[Path]:
    """The pages of those with whom the student shares a work, where they say so."""
    for other in _partners(course, student):
        pages = sorted((course / about.feedback_directory / other).glob("*/*.html"))
        if exchange is not None:
            pages += _pages(course, about, exchange, other, sorted(exchange.glob(f"inbound/{other}+*")))
        yield from (page for page in pages if student.encode() in page.read_bytes())


def _paths(course: Path, about: CourseDirectory, exchange: Path | None, student: str) -> Iterator[Path]:
    for folder in (about.submitted_directory, about.autograded_directory, about.feedback_directory):
        if os.path.lexists(course / folder / student):
            yield course / folder / student
    yield from sorted((course / "autograder" / pairs.FOLDER).glob(f"*/{student}"))
    if exchange is not None:
        handed_in = sorted(path for path in exchange.glob("inbound/*") if path.name.partition("+")[0] == student)
        yield from handed_in
        yield from _pages(course, about, exchange, student, handed_in)


def _pages(course: Path, about: CourseDirectory, exchange: Path, student: str, handed_in: list[Path]) -> Iterator[Path]:
    """The feedback pages in the exchange, whose names follow from the student's secrets."""
    folders = [*handed_in]
    for kind in (about.submitted_directory, about.autograded_directory, about.feedback_directory):
        folders += sorted((course / kind / student).glob("*"))
    folders += sorted((course / "autograder" / pairs.FOLDER).glob(f"*/{student}"))
    names = sorted({path.stem for path in (course / about.source_directory).glob("*/*.ipynb")})
    found = set()
    for folder in folders:
        with contextlib.suppress(OSError, Refused, UnicodeDecodeError):
            secret = read_small(folder / SECRET).decode("utf-8")
            found |= {
                exchange / "feedback" / f"{notebook_hash(secret=secret, notebook_id=name)}.html" for name in names
            }
    yield from sorted(path for path in found if path.is_file())


# ------------------------------------------------------------------------------------------------------ the lists


def _csv_lines(course: Path, file: str, student: str) -> tuple[list[list[str]], list[list[str]]]:
    """The lines of pairs.csv or class.csv that name a student, and all others; none if there is no such file. Raises PrivacyError."""
    text = text_of(course / "autograder" / file, PrivacyError)
    lines = list(csv.reader(io.StringIO(text or "")))
    heads = [head.strip() for head in lines[0]] if lines else []
    # of the class list the column of students alone: another one's first name may be the same
    places = [heads.index(sections.STUDENT)] if sections.STUDENT in heads else range(len(heads))
    theirs = [line for line in lines if student in (line[place].strip() for place in places if place < len(line))]
    return theirs, [line for line in lines if line not in theirs]


def _log_lines(course: Path) -> list[str]:
    try:
        return (course / "autograder" / regrades.LOG).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _is_about(line: str, student: str) -> bool:
    try:
        return bool(json.loads(line)["student"] == student)
    except (ValueError, KeyError, TypeError):
        return False


def _shared(course: Path, student: str) -> dict[str, dict[str, tuple[str, str]]]:
    """Who shares whose work, of the labs where the student is one of them."""
    labs = sorted(path.parent.name for path in (course / "autograder" / pairs.FOLDER).glob(f"*/{pairs.STATE}"))
    states = {lab: pairs.read_state(course, lab) for lab in labs}
    return {lab: state for lab, state in states.items() if any(student in (n, o) for n, (o, _) in state.items())}


# --------------------------------------------------------------------------------------------------------- forget


def forget(course: Path, found: Held) -> None:
    """Removes all that `held` found, also from the gradebook's free pages. Raises Busy while marks are being sent.

    A partner's copy of a work of both stays: it is the partner's too. Run again after an error: what is left is removed then.
    """
    with sent.alone(course) if sent.folder_of(course).is_dir() else contextlib.nullcontext():
        _forget(course, found)


def _forget(course: Path, found: Held) -> None:
    if (found.at_hub or found.at_hub_partners) and (remote := by_service.remote_of(course)):
        remote.forget(found.student)
        for other, page in found.at_hub_partners:
            remote.forget(other, "pages", page)
    for path in (*found.paths, *found.partners):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    folder = course / "autograder"
    for name in (pairs.FILE, sections.FILE):
        if found.lines[name]:
            file = io.StringIO()
            csv.writer(file, lineterminator="\n").writerows(_csv_lines(course, name, found.student)[1])
            write_whole(folder / name, file.getvalue())
    if found.lines[regrades.LOG]:
        kept = [line for line in _log_lines(course) if not _is_about(line, found.student)]
        write_whole(folder / regrades.LOG, "".join(f"{line}\n" for line in kept))
    if found.lines[f"{sent.FOLDER}/{sent.SENT}"]:
        others_lines = [line for line, entry in sent.lines(course) if entry["student"] != found.student]
        write_whole(sent.folder_of(course) / sent.SENT, "".join(f"{line}\n" for line in others_lines))
    for lab, state in _shared(course, found.student).items():
        others = {name: one for name, one in state.items() if found.student not in (name, one[0])}
        pairs.write_state(course, lab, others)
    about = directory_of(course)
    if found.in_gradebook or found.lines[MARKED]:
        with Gradebook(about.db_url, about.course_id) as gradebook:
            rubric.forget(gradebook, found.student)
            if found.in_gradebook:
                gradebook.remove_student(found.student)
    if about.db_url.startswith(SQLITE) and has_gradebook(about):
        with contextlib.closing(sqlite3.connect(about.db_url.removeprefix(SQLITE))) as database:
            database.execute("VACUUM")  # a deleted row's text stays in free pages until then


# --------------------------------------------------------------------------------------------------------- export


def export(course: Path, student: str, file: Path) -> Held:
    """Writes a zip file that only this account can read: student.json, and every file; returns what is in it. Raises PrivacyError."""
    found = held(course, student)
    about: dict[str, Any] = {"student": student, "held": found.told(), "gradebook": _marks(course, student)}
    about["pairs"] = _csv_lines(course, pairs.FILE, student)[0]
    about["class"] = _csv_lines(course, sections.FILE, student)[0]
    about["regrades"] = [json.loads(line) for line in _log_lines(course) if _is_about(line, student)]
    about["sent"] = [entry for _, entry in sent.lines(course) if entry["student"] == student]
    unfinished = file.with_name(f"{file.name}.unfinished")
    try:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as raw, zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("student.json", json.dumps(about, indent=1, ensure_ascii=False, default=str))
            for path in found.paths:
                _add(archive, course, path)
            remote = by_service.remote_of(course) if found.at_hub else None
            for name, place in found.at_hub if remote else ():
                archive.writestr(f"exchange/{name}", remote.file(*place))
        unfinished.replace(file)
    except OSError as error:
        raise PrivacyError(f"{file} can't be written ({error.strerror}).") from None
    finally:
        unfinished.unlink(missing_ok=True)
    return found


def _add(archive: zipfile.ZipFile, course: Path, path: Path) -> None:
    """Adds one place. What a student owns is copied first, since the student may put links there while it is packed."""
    name = _inside(course, path)
    if path.is_relative_to(course) or not path.is_dir() or path.is_symlink():
        _pack(archive, path, name)
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "copy")
        try:
            left_out = [f"{one}: neither a file nor a folder" for one in copy_of(path, copy, MAX_FILE_BYTES)]
        except (OSError, Refused) as error:
            left_out = [str(error)]
        if copy.is_dir():
            _pack(archive, copy, name)
        if left_out:
            archive.writestr(f"{name}.txt", "".join(f"not packed: {one}\n" for one in left_out))


def _inside(course: Path, path: Path) -> str:
    return str(path.relative_to(course)) if path.is_relative_to(course) else f"exchange/{path.parent.name}/{path.name}"


def _pack(archive: zipfile.ZipFile, path: Path, name: str) -> None:
    """Adds a file or folder; what a student made that is no file, such as a link, is named and not followed."""
    about = path.lstat()
    if stat.S_ISDIR(about.st_mode):
        for below in sorted(path.iterdir()):
            _pack(archive, below, f"{name}/{below.name}")
    elif stat.S_ISREG(about.st_mode) and about.st_size <= MAX_FILE_BYTES:
        archive.write(path, name)
    else:
        archive.writestr(f"{name}.txt", f"not packed: mode {stat.filemode(about.st_mode)}, {about.st_size} bytes\n")


def _marks(course: Path, student: str) -> dict[str, Any]:
    """What the gradebook says: who it is, and for each lab the marks and comments."""
    about = directory_of(course)
    if not has_gradebook(about):
        return {}
    with Gradebook(about.db_url, about.course_id) as gradebook:
        marked = rubric.history(gradebook, student)
        try:
            who = gradebook.find_student(student)
        except MissingEntry:
            return {"marked": marked} if marked else {}  # nbgrader removed the student, and leaves our tables alone
        labs = {}
        for submission in who.submissions:
            labs[submission.assignment.name] = {
                "handed_in": submission.timestamp,
                "extension": submission.extension,
                "late_penalty": submission.late_submission_penalty,
                "score": submission.score,
                "marks": {
                    g.name: [g.auto_score, g.manual_score, g.max_score] for n in submission.notebooks for g in n.grades
                },
                "comments": {c.name: c.comment for n in submission.notebooks for c in n.comments if c.comment},
            }
        names = {
            "first_name": who.first_name,
            "last_name": who.last_name,
            "email": who.email,
            "lms_id": who.lms_user_id,
        }
        return names | {"labs": labs, "marked": marked}
