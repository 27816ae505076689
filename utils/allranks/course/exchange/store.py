"""What the hub's service keeps of a class, in one folder that only its account can read.

    released/LAB/...                 what the teacher released
    handed_in/LAB/STUDENT/TIME/...   what a student handed in, and when it was complete
    pages/STUDENT/NAME.html          feedback pages
    drafts/ID/...                    what is being sent: it is renamed into place when it is complete

Who a person is, and who teaches, the hub says (`server`). Nothing here opens a notebook: the grader does that, in its sandbox.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from allranks.base.errors import CourseError
from allranks.course.handin import MAX_FILES, MAX_TOTAL_BYTES

MAX_WORKS = 50  # of one student, of one lab
MAX_STUDENT_BYTES = 256 << 20  # of one student's work in all labs
MIN_FREE_BYTES = 256 << 20  # of the volume, which students' work leaves free
MIN_FREE_FILES = 10_000  # the same of files and folders, where the file system counts them
MAX_DEPTH = 12  # of what is sent; with names so long, a path that every file system takes below other folders
MAX_NAME_BYTES = 200
MAX_PERSON_BYTES = 100  # with a lab and a time it is one name of a file, for nbgrader
BLOCK = 4096  # what the smallest file or folder takes
DRAFT_S = 600.0  # after that, what was not completed is removed
STAMP = "%Y-%m-%d %H:%M:%S.%f UTC"  # as nbgrader writes a time
AGAIN = "This was sent twice at once, or took too long. Nothing was taken: do it again."
_LAB = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_PERSON = re.compile(r"[\w@][\w@.-]{0,99}")  # nbgrader takes + for a separator and * ? [ for patterns
_PAGE = re.compile(r"[0-9a-f]{32}\.html")


class Denied(CourseError):
    """What was asked is not done. `status` is HTTP's, and the message is one sentence for who asked."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass
class Draft:
    """What one person is sending."""

    folder: Path
    began: float
    nbytes: int = 0
    count: int = 0  # of files and folders
    open: set[DraftFile] = field(default_factory=set)  # what is not here whole, and may never be


def person(name: str) -> str:
    """The name, if it can be that of a student. Raises Denied."""
    if not _PERSON.fullmatch(name) or len(name.encode()) > MAX_PERSON_BYTES:
        most = f"in at most {MAX_PERSON_BYTES} bytes"
        raise Denied(403, f"{name!r} can't hand in: a name has letters, digits and . _ - @ only, {most}.")
    return name


def _lab(name: str) -> str:
    if not _LAB.fullmatch(name):
        raise Denied(400, f"{name!r} is no lab's name.")
    return name


def inside(folder: Path, path: str) -> Path:
    """The file `path` below the folder, with plain names only. Raises Denied."""
    parts = path.split("/")
    plain = all(p.isprintable() and p not in ("", ".", "..") and len(p.encode()) <= 255 for p in parts)
    if not plain or len(path.encode()) > 3000:
        raise Denied(400, f"{path!r} is no path of a file below a folder.")
    return folder.joinpath(*parts)


def _files(folder: Path) -> dict[str, str]:
    """The files below a folder, and of each a text that changes with the file; none if there is no folder."""
    found = {}
    for where, _, names in os.walk(folder):
        for name in names:
            about = (path := Path(where, name)).stat()
            found[path.relative_to(folder).as_posix()] = f"{about.st_mtime_ns}-{about.st_size}"
    return dict(sorted(found.items()))


def _check_room(folder: Path) -> None:
    """Raises Denied where the disk is full, but for what stays free."""
    try:
        there = os.statvfs(folder)
        files = there.f_favail if there.f_files else MIN_FREE_FILES
        if there.f_bavail * there.f_frsize >= MIN_FREE_BYTES and files >= MIN_FREE_FILES:
            return
    except OSError:
        pass
    raise Denied(507, "The hub's disk takes no more. Your work is safe in your own folder: tell your teacher.")


def _settle(draft: Draft, place: Path) -> None:
    """Puts the draft into its place, where it is after a crash too."""
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft.folder.rename(place)
    handle = os.open(place.parent, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class DraftFile:
    """A file that is being sent, within the draft's limits."""

    def __init__(self, draft: Draft, handle: int) -> None:
        self._draft, self._file = draft, os.fdopen(handle, "wb", buffering=0)
        draft.open.add(self)

    def write(self, chunk: bytes) -> None:
        """Adds to the file. Raises Denied above the limit, and where the disk is full."""
        self._draft.nbytes += len(chunk)
        if self._draft.nbytes > MAX_TOTAL_BYTES:
            raise Denied(413, f"There are more than {MAX_TOTAL_BYTES >> 20} MiB.")
        if self._file.closed:
            raise Denied(409, AGAIN)
        _check_room(self._draft.folder)
        try:
            while chunk:
                chunk = chunk[self._file.write(chunk) :]
        except OSError as error:
            raise Denied(507, f"The hub's disk did not take it ({error.strerror}). Tell your teacher.") from None

    def complete(self) -> None:
        """Ends the file: all of it is on the disk. Raises Denied if its draft is gone."""
        try:
            os.fsync(self._file.fileno())
            self._file.close()
        except ValueError:  # closed
            raise Denied(409, AGAIN) from None
        except OSError as error:
            raise Denied(507, f"The hub's disk did not take it ({error.strerror}). Tell your teacher.") from None
        self._draft.open.discard(self)

    def close(self) -> None:
        """Ends what is not complete: its draft never will be. A file without a name has its place on the disk until then."""
        self._file.close()


class Store:
    """The folder. Only one process may use it."""

    def __init__(self, folder: Path) -> None:
        self._root = folder
        self._alone = threading.Lock()  # nothing is renamed or removed while somebody counts or lists it
        self._drafts: dict[str, tuple[str, Draft]] = {}  # of each person the last one
        shutil.rmtree(folder / "drafts", ignore_errors=True)
        for name in ("released", "handed_in", "pages", "drafts"):
            (folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)
            (folder / name).chmod(0o700)

    # ---- sending

    def begin(self, who: str) -> str:
        """A new draft of this person, which takes the place of an earlier one; its id."""
        for other, (_, draft) in list(self._drafts.items()):
            if other == who or time.monotonic() - draft.began > DRAFT_S:
                self._drop(other)
        name = secrets.token_hex(16)
        folder = self._root / "drafts" / name
        folder.mkdir(mode=0o700)
        self._drafts[who] = name, Draft(folder, time.monotonic())
        return name

    def _drop(self, who: str) -> None:
        if who in self._drafts:
            draft = self._drafts.pop(who)[1]
            for file in list(draft.open):
                file.close()
            shutil.rmtree(draft.folder, ignore_errors=True)

    def _draft(self, who: str, name: str) -> Draft:
        mine, draft = self._drafts.get(who, ("", None))
        if (
            draft is None
            or not secrets.compare_digest(mine.encode(), name.encode())
            or time.monotonic() - draft.began > DRAFT_S
        ):
            raise Denied(409, AGAIN)
        return draft

    def complete(self, who: str, name: str) -> Draft:
        """The draft, to which nothing can be added any more: the time of a work is that of its last byte. Raises Denied."""
        draft = self._draft(who, name)
        if draft.open or not draft.count:
            raise Denied(409, "Nothing was taken, because not all of it had been sent: do it again.")
        del self._drafts[who]
        return draft

    def open(self, who: str, name: str, path: str) -> DraftFile:
        """A new file of the draft. Raises Denied for a path that is none, a file that is there, and above the limits."""
        draft = self._draft(who, name)
        file = inside(draft.folder, path)
        parts = path.split("/")
        if len(parts) > MAX_DEPTH or any(len(part.encode()) > MAX_NAME_BYTES for part in parts):
            raise Denied(400, f"{path!r} is too long, or lies in too many folders.")
        draft.count += 1 + sum(not above.exists() for above in file.parents[: len(parts) - 1])
        if draft.count > MAX_FILES:
            raise Denied(413, f"There are more than {MAX_FILES} files.")
        _check_room(draft.folder)
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise Denied(400, f"{path!r} can't be taken ({error.strerror}).") from None
        return DraftFile(draft, handle)

    def hand_in(self, who: str, draft: Draft, lab: str) -> str:
        """Makes the draft a work of this student; the time, which is now and nobody's word. Raises Denied."""
        stamp = datetime.now(UTC).strftime(STAMP)
        try:
            with self._alone:
                self._hand_in(who, draft, lab, stamp)
        finally:
            shutil.rmtree(draft.folder, ignore_errors=True)
        return stamp

    def _hand_in(self, who: str, draft: Draft, lab: str, stamp: str) -> None:
        if not (self._root / "released" / _lab(lab)).is_dir():
            raise Denied(404, f"{lab} is not released, so nobody can hand it in.")
        if not list(draft.folder.glob("*.ipynb")):
            raise Denied(400, "There is no notebook in what was sent.")
        place = self._root / "handed_in" / lab / person(who)
        if place.is_dir() and len(list(place.iterdir())) >= MAX_WORKS:
            raise Denied(413, f"You have handed in {lab} {MAX_WORKS} times, which is the limit. Ask your teacher.")
        if self._nbytes_of(who) + draft.nbytes + draft.count * BLOCK > MAX_STUDENT_BYTES:
            most = f"{MAX_STUDENT_BYTES >> 20} MiB"
            raise Denied(413, f"Your hand-ins together have more than {most}. Clear the outputs, or ask your teacher.")
        if (draft.folder / "timestamp.txt").is_dir():
            raise Denied(400, "timestamp.txt is a folder.")
        (draft.folder / "timestamp.txt").unlink(missing_ok=True)
        (draft.folder / "timestamp.txt").write_text(stamp, encoding="ascii")
        _settle(draft, place / stamp)

    def _nbytes_of(self, who: str) -> int:
        paths = self._root.glob(f"handed_in/*/{who}/**/*")
        return sum(BLOCK + (path.stat().st_size if path.is_file() else 0) for path in paths)

    def release(self, draft: Draft, lab: str) -> None:
        """Makes the draft what students fetch, in place of what was released before. Raises Denied."""
        replaced = self._root / "drafts" / secrets.token_hex(16)
        try:
            place = self._root / "released" / _lab(lab)
            with self._alone:
                if place.is_dir():
                    place.rename(replaced)
                _settle(draft, place)
        finally:
            for folder in (draft.folder, replaced):
                shutil.rmtree(folder, ignore_errors=True)

    def give_back(self, draft: Draft, student: str) -> None:
        """Makes the draft's pages the student's, in place of those of the same names. Raises Denied."""
        try:
            pages = list(draft.folder.iterdir())
            if not all(_PAGE.fullmatch(page.name) for page in pages):
                raise Denied(400, "A page has no name of a page.")
            place = self._root / "pages" / person(student)
            place.mkdir(mode=0o700, exist_ok=True)
            for page in pages:
                page.replace(place / page.name)
        finally:
            shutil.rmtree(draft.folder, ignore_errors=True)

    # ---- reading

    def released(self) -> dict[str, dict[str, str]]:
        """The labs, of each its files."""
        with self._alone:
            return {path.name: _files(path) for path in sorted((self._root / "released").iterdir())}

    def pages(self, student: str) -> dict[str, str]:
        """The student's feedback pages."""
        return _files(self._root / "pages" / person(student))

    def handed_in(self, lab: str = "*", student: str = "*") -> dict[str, dict[str, dict[str, list[str]]]]:
        """The files by lab, student and time. Raises Denied."""
        with self._alone:
            return self._handed_in(lab, student)

    def _handed_in(self, lab: str, student: str) -> dict[str, dict[str, dict[str, list[str]]]]:
        found: dict[str, dict[str, dict[str, list[str]]]] = {}
        labs = (self._root / "handed_in").iterdir() if lab == "*" else [self._root / "handed_in" / _lab(lab)]
        for of_lab in sorted(path for path in labs if path.is_dir()):
            students = of_lab.iterdir() if student == "*" else [of_lab / person(student)]
            for theirs in sorted(path for path in students if path.is_dir()):
                works = {work.name: list(_files(work)) for work in sorted(theirs.iterdir())}
                found.setdefault(of_lab.name, {})[theirs.name] = works
        return found

    def file(self, kind: str, *names: str) -> Path:
        """A file: ("released", LAB, PATH), ("pages", STUDENT, NAME) or ("handed_in", LAB, STUDENT, TIME, PATH). Raises Denied."""
        found = inside(self._root / kind, "/".join(names))
        if not found.is_file():
            raise Denied(404, "There is no such file.")
        return found

    def forget_page(self, student: str, name: str) -> None:
        """Removes one page of a student. Raises Denied."""
        self.file("pages", person(student), name).unlink()

    def forget(self, student: str) -> None:
        """Removes all work and pages of a student. Raises Denied."""
        self._drop(student)
        with self._alone:
            for folder in (*self._root.glob(f"handed_in/*/{person(student)}"), self._root / "pages" / student):
                shutil.rmtree(folder, ignore_errors=True)
