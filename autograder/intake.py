"""What comes in: the files of a submission and the notebook in it, before anything of them is believed.

A submission is a folder that a student filled as they liked. Here it is refused where it holds links, devices, too much,
or no notebook; and nbgrader, which would follow a link and copy what it finds, is kept from doing so.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pwd
import re
import shutil
import stat
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import nbformat
from allranks.errors import CourseError
from nbformat import NotebookNode
from nbgrader.converters import Autograde
from nbgrader.exchange.default import ExchangeCollect
from nbgrader.utils import parse_utc

MAX_NOTEBOOK_BYTES = 16 << 20
MAX_TOTAL_BYTES = 64 << 20
MAX_FILES = 200
MAX_CELLS = 5000
MAX_OUTPUTS = 5000
MAX_TAGS = 50  # of a cell
MAX_DEPTH = 20  # of folders in a submission
CHANGED = "vanished or was changed while it was being collected"
MEANS_CHANGED = frozenset(
    {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EINVAL, errno.EEXIST, errno.ENXIO}
)
SHOWABLE = frozenset({".ipynb", ".txt", ".png", ".jpg", ".jpeg", ".gif", ".csv", ".json"})


class Refused(CourseError, ValueError):
    """A submission that is not marked; the message is one sentence that says why."""


def name_refusal(student: str) -> str | None:
    """Why a folder's name can be nobody's, or None. nbgrader takes * ? [ for patterns and + for its own use."""
    if not student.isprintable() or set(student) & set("*?[]+/"):
        return "its folder's name holds one of * ? [ ] + or a character that can't be seen; rename it"
    if student.strip() != student or student.startswith("."):
        return "its folder's name begins or ends with a space, or begins with a dot; rename it"
    return None


def check_files(folder: Path) -> None:
    """Raises Refused where a submission's folder is or holds anything but folders and files, or too much of them."""
    if folder.is_symlink():
        raise Refused(f"{folder.name} is a symbolic link; a submission must be a folder of its own. It was not graded.")
    _check_time(folder / "timestamp.txt")
    count = nbytes = 0
    for where, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(where, name)
            about = path.lstat()
            shown = path.relative_to(folder)
            if stat.S_ISLNK(about.st_mode):
                raise Refused(f"{shown} is a symbolic link; a submission must be files of its own. It was not graded.")
            if not stat.S_ISREG(about.st_mode) and not stat.S_ISDIR(about.st_mode):
                raise Refused(f"{shown} is a pipe, a socket or a device, and no file. It was not graded.")
            count, nbytes = count + 1, nbytes + about.st_size
            if path.suffix == ".ipynb" and about.st_size > MAX_NOTEBOOK_BYTES:
                raise Refused(
                    f"{shown} has {about.st_size >> 20} MiB; the limit is {MAX_NOTEBOOK_BYTES >> 20}. It was not graded: "
                    "clear the outputs and hand it in again."
                )
            if count > MAX_FILES or nbytes > MAX_TOTAL_BYTES:
                raise Refused(
                    f"There are more than {MAX_FILES} files or {MAX_TOTAL_BYTES >> 20} MiB in {folder.name}. It was not graded."
                )


def _check_time(path: Path) -> None:
    """Raises Refused where it holds no time: nbgrader would only say that it has no attribute 'fail'."""
    if not stat.S_ISREG(_mode(path)):
        return
    try:
        with open(path, "rb") as file:
            _parse_time(file.read(101))
    except ValueError:
        raise Refused(f"{path.name} holds no time; delete it, or hand in again. It was not graded.") from None


def _parse_time(raw: bytes) -> datetime | None:
    """The time in a timestamp.txt, None where it is empty. Raises ValueError where it holds anything else.

    dateutil takes the name of a time zone for a path, and reads what lies there.
    """
    words = raw.decode("ascii").strip()
    if len(raw) > 100 or ".." in words or re.search(r"(^|[\s:])/", words):
        raise ValueError("no time")
    try:
        return parse_utc(words) if words else None
    except Exception:  # dateutil takes no care of what it reads
        raise ValueError("no time") from None


def _mode(path: Path) -> int:
    try:
        return path.lstat().st_mode
    except OSError:
        return 0


def read_notebook(path: Path) -> NotebookNode:
    """The notebook in a file that anybody may have written. Raises Refused where it is none, and nothing else."""
    return parse_notebook(_bytes_of(path), path.name)


def _bytes_of(path: Path) -> bytes:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(handle, "rb") as file:
            raw = file.read(MAX_NOTEBOOK_BYTES + 1)
    except OSError as error:
        raise Refused(f"{path.name} can't be read ({error.strerror}). It was not graded.") from None
    if len(raw) > MAX_NOTEBOOK_BYTES:
        raise Refused(f"{path.name} has more than {MAX_NOTEBOOK_BYTES >> 20} MiB. It was not graded.")
    return raw


def parse_notebook(raw: bytes, name: str) -> NotebookNode:
    """The same from bytes."""
    found = _json_of(raw, name)
    try:
        notebook = nbformat.reads(raw.decode("utf-8-sig"), as_version=4)
        # what can't be written can't be graded: a lone surrogate, a number that is none
        nbformat.writes(notebook).encode()
        json.dumps(found, allow_nan=False)
    except Exception as error:  # nbformat takes no care of what it reads
        raise Refused(f"{name} is a damaged notebook ({type(error).__name__}). It was not graded.") from None
    check_shape(notebook, name)
    return notebook


def _json_of(raw: bytes, name: str) -> dict:
    """What is in a file, where nbformat can read it in a few seconds. Raises Refused where it can't."""
    try:
        found = json.loads(raw.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        raise Refused(f"{name} is no notebook: it holds no JSON in UTF-8. It was not graded.") from None
    if not isinstance(found, dict) or not isinstance(found.get("cells"), list) or found.get("nbformat") != 4:
        raise Refused(f"{name} is no notebook of format 4: open it in JupyterLab and save it again. It was not graded.")
    cells = [cell for cell in found["cells"] if isinstance(cell, dict)]
    if len(found["cells"]) > MAX_CELLS:
        raise Refused(f"{name} has {len(found['cells'])} cells; the limit is {MAX_CELLS}. It was not graded.")
    outputs = sum(len(cell["outputs"]) for cell in cells if isinstance(cell.get("outputs"), list))
    if outputs > MAX_OUTPUTS:
        raise Refused(
            f"{name} has {outputs} outputs; the limit is {MAX_OUTPUTS}. It was not graded: clear the outputs and hand it in again."
        )
    for number, cell in enumerate(cells, 1):  # each tag is compared with each
        about = cell.get("metadata")
        tags = about.get("tags") if isinstance(about, dict) else None
        if isinstance(tags, list) and len(tags) > MAX_TAGS:
            raise Refused(f"{name} has {len(tags)} tags at cell {number}; the limit is {MAX_TAGS}. It was not graded.")
    return found


def check_shape(notebook: NotebookNode, name: str) -> None:
    """Raises Refused where a cell is none that a notebook editor writes."""
    for number, cell in enumerate(notebook.cells, 1):
        if (
            not isinstance(cell, dict)
            or cell.get("cell_type") not in ("code", "markdown", "raw")
            or not isinstance(cell.get("source"), str)
            or not isinstance(cell.get("metadata"), dict)
            or not (cell["cell_type"] != "code" or isinstance(cell.get("outputs", []), list))
        ):
            raise Refused(f"{name} is a damaged notebook (cell {number}). It was not graded.")


# ----------------------------------------------------------------------------------------------- what nbgrader is told


class Collect(ExchangeCollect):
    """nbgrader's collect, which follows no link and takes nobody's work from somebody else.

    As it comes, a link to the instructor's solution, laid into the exchange, is collected as the solution itself; and a
    folder in another student's name takes the place of what they handed in.
    """

    src_records: list[dict]

    def _path_to_record(self, path: str) -> dict:
        """What the name of a folder says; anybody can make one there, so one that says nothing stops nobody."""
        try:
            return super()._path_to_record(path)
        except Exception:
            return {"username": "", "filename": os.path.basename(path), "timestamp": datetime.min}

    def init_src(self) -> None:
        """Chooses what to collect, as nbgrader does, among what its student owns."""
        super().init_src()
        self.src_records = [record for record in self.src_records if self._is_theirs(record)]

    def _sort_by_timestamp(self, records: list) -> list:
        honest = [record for record in records if self._is_theirs(record)]
        return super()._sort_by_timestamp(honest or records)

    def _is_theirs(self, record: dict) -> bool:
        """Whether it is its student's by now; what is copied is asked again, once it is open."""
        if not record["username"] or name_refusal(record["username"]):
            self.log.error("%r says not whose it is; it is not collected", record["filename"])
            return False
        try:
            stranger = self._stranger(record, Path(self.inbound_path, record["filename"]).lstat().st_uid)
        except OSError as error:
            self.log.error("%s %s; it is not collected", self._shown(record), _reason(error))
            return False
        if stranger is not None:
            self.log.error("%s: handed in by %s; it is not collected", record["username"], stranger)
        return stranger is None

    def _stranger(self, record: dict, owner: int) -> str | None:
        """Who handed it in, where that is neither the student nor we ourselves."""
        if not self.check_owner or owner == os.getuid():
            return None
        try:
            name = pwd.getpwuid(owner).pw_name
        except KeyError:
            name = f"user {owner}"
        return None if name == record["username"] else name

    def _shown(self, record: dict) -> str:
        return _printable(os.path.join(self.inbound_path, record["filename"]))

    def copy_files(self) -> None:
        """Collects what was chosen, each for itself: whatever one student does to theirs meanwhile, the others' is collected."""
        if not self.src_records:
            course = self.coursedir.course_id
            self.log.warning("No submissions of %r for course %r to collect", self.coursedir.assignment_id, course)
        for record in self.src_records:
            try:
                self._collect(record)
            except (OSError, ValueError) as error:
                self.log.error("%s %s; it is not collected", self._shown(record), _reason(error))

    def _collect(self, record: dict) -> None:
        student, lab = record["username"], self.coursedir.assignment_id
        dest = Path(self.coursedir.format_path(self.coursedir.submitted_directory, student, lab))
        earlier = dest.is_dir()
        if earlier and not self._is_wanted(record, _time_of(dest)):
            said = (
                "No newer submission to collect" if self.update else "Submission already exists, use --update to update"
            )
            self.log.info("%s: %s %s", said, student, lab)
            return
        self.log.info("%s submission: %s %s", "Updating" if earlier else "Collecting", student, lab)
        unfinished = dest.with_name(f".{dest.name}.unfinished")
        dest.parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.rmtree(unfinished, ignore_errors=True)  # of a collecting that was killed
            self._copy(record, unfinished)
            if earlier:
                shutil.rmtree(dest)
            unfinished.rename(dest)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
            with contextlib.suppress(OSError):  # it holds something, but for who handed in nothing else
                dest.parent.rmdir()

    def _is_wanted(self, record: dict, earlier: datetime | None) -> bool:
        """nbgrader's rule for what is to take the place of a submission of that time."""
        newer = earlier is None or record["timestamp"] > earlier
        return (self.update and newer) or (self.before_duedate and record["timestamp"] != earlier)

    def _copy(self, record: dict, dest: Path) -> None:
        with _opened(self.inbound_path, os.O_DIRECTORY) as inbound:
            if stat.S_ISLNK(os.stat(record["filename"], dir_fd=inbound, follow_symlinks=False).st_mode):
                raise Refused("is a symbolic link")
            with _opened(record["filename"], os.O_DIRECTORY | os.O_NOFOLLOW, inbound) as folder:
                stranger = self._stranger(record, os.fstat(folder).st_uid)
                if stranger is not None:
                    raise Refused(f"was handed in by {stranger}")
                copier = Copier(1000 * self.coursedir.max_dir_size, os.fstat(folder).st_uid, self.coursedir.groupshared)
                copier.copy_folder(folder, dest)
        for name in copier.left_out:
            self.log.error(
                "%s: %s is a pipe, a socket or a device; it is not collected", self._shown(record), _printable(name)
            )


class Copier:
    """Copies one submission, which its student may be changing meanwhile: what a name leads to is asked of what was opened.

    Links are copied as links, which grading refuses; what is neither file, folder nor link stands in `left_out`. Nobody's
    permissions are copied: a program that runs as its owner would run as ours. Raises Refused, or OSError, and leaves then
    what it had copied.
    """

    def __init__(self, max_nbytes: int, owner: int, groupshared: bool = False) -> None:
        self.max_nbytes, self.owner, self.groupshared = max_nbytes, owner, groupshared
        self.count = self.nbytes = 0
        self.left_out: list[str] = []

    def copy_folder(self, source: int, dest: Path, depth: int = 0) -> None:
        """Copies an open folder to `dest`, which must not be there yet."""
        if depth > MAX_DEPTH:
            raise Refused(f"has folders in folders, more than {MAX_DEPTH} deep")
        dest.mkdir()
        if self.groupshared:
            dest.chmod(0o2770 | dest.stat().st_mode & 0o777)
        with os.scandir(source) as entries:  # it may be filled while we read: no list is made of it
            for entry in entries:
                self.count += 1
                if self.count > MAX_FILES:
                    raise Refused(f"has more than {MAX_FILES} files")
                self._copy_entry(entry.name, source, dest, depth)

    def _copy_entry(self, name: str, folder: int, dest: Path, depth: int) -> None:
        kind = stat.S_IFMT(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
        if kind == stat.S_IFLNK:
            os.symlink(os.readlink(name, dir_fd=folder), dest / name)
        elif kind not in (stat.S_IFREG, stat.S_IFDIR):
            self.left_out.append(name)
        else:
            with _opened(name, os.O_NOFOLLOW | os.O_NONBLOCK, folder) as source:
                about = os.fstat(source)
                if stat.S_IFMT(about.st_mode) != kind:
                    raise Refused(CHANGED)
                if kind == stat.S_IFDIR:
                    self.copy_folder(source, dest / name, depth + 1)
                elif about.st_nlink > 1 and self.owner not in (about.st_uid, os.getuid()):
                    raise Refused("holds a hard link to somebody else's file")
                else:
                    self._copy_file(source, dest / name)

    def _copy_file(self, source: int, dest: Path) -> None:
        about = os.fstat(source)
        self._check_room(about.st_size)  # a sparse file may be of any size
        with open(dest, "xb") as copy:
            while chunk := os.read(source, 1 << 20):
                self._check_room(len(chunk))  # it may have grown
                self.nbytes += len(chunk)
                copy.write(chunk)
            copy.flush()
            os.utime(copy.fileno(), ns=(about.st_atime_ns, about.st_mtime_ns))
            if self.groupshared:
                os.fchmod(copy.fileno(), 0o660 | os.fstat(copy.fileno()).st_mode & 0o777)

    def _check_room(self, nbytes: int) -> None:
        if self.nbytes + nbytes > self.max_nbytes:
            raise Refused(f"has {self.nbytes + nbytes} bytes or more; the limit is {self.max_nbytes}")


@contextlib.contextmanager
def _opened(path: str, flags: int, folder: int | None = None) -> Iterator[int]:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags, dir_fd=folder)
    try:
        yield handle
    finally:
        os.close(handle)


def _reason(error: OSError | ValueError) -> str:
    """What an error says of a submission, as the rest of a sentence."""
    if isinstance(error, Refused):
        return str(error)
    if isinstance(error, OSError) and error.errno in MEANS_CHANGED:
        return CHANGED
    return f"can't be copied ({getattr(error, 'strerror', None) or type(error).__name__})"


def _printable(name: str) -> str:
    """A name that a student chose, for a line of the log."""
    return name if name.isprintable() else ascii(name)


def _time_of(collected: Path) -> datetime | None:
    """When what was collected before was handed in; None where it doesn't say. nbgrader would follow a link, or stop."""
    try:
        with _opened(str(collected / "timestamp.txt"), os.O_NOFOLLOW | os.O_NONBLOCK) as handle:
            return _parse_time(os.read(handle, 101))
    except (OSError, ValueError):
        return None


def _ours(autograde: Autograde, lab: str) -> Path:
    course = autograde.coursedir
    return Path(course.format_path(course.source_directory, ".", lab))


def guard_nbgrader() -> None:
    """Has nbgrader's Autograde look at a submission's files, and into its notebooks, before it reads or copies one of them.

    It has no place of its own for that: its preprocessors come after the copying, and its hooks can't refuse.
    """
    if getattr(Autograde, "allranks", False):
        return
    init_destination, init_assignment = Autograde.init_destination, Autograde.init_assignment

    def checked(self: Autograde, assignment_id: str, student_id: str) -> bool:
        theirs = Path(self._format_source(assignment_id, student_id))
        check_files(theirs)
        for path in sorted(_ours(self, assignment_id).glob("*.ipynb")):
            if (theirs / path.name).exists():
                _json_of(_bytes_of(theirs / path.name), path.name)
        return init_destination(self, assignment_id, student_id)

    def cleared(self: Autograde, assignment_id: str, student_id: str) -> None:
        init_assignment(self, assignment_id, student_id)
        # formgrader serves what lies beside a notebook to the instructor's browser
        ours, theirs = _ours(self, assignment_id), Path(self._format_dest(assignment_id, student_id))
        for path in [path for path in theirs.rglob("*") if path.is_file()]:
            if path.suffix.lower() not in SHOWABLE and not (ours / path.relative_to(theirs)).is_file():
                path.unlink()

    Autograde.init_destination, Autograde.init_assignment, Autograde.allranks = checked, cleared, True
