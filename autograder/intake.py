"""Checks the files of a submission, and the notebook in it, before anything else reads them.

A submission is a folder that a student can fill with anything. It is refused if it holds links or devices, if it
is too large, or if it holds no notebook. nbgrader would follow links and copy their targets; this module prevents
that. `allranks.course.handin` has the limits and the reader of notebooks, by which students check their work too.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import re
import shutil
import stat
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from allranks.course.handin import MAX_FILES, Refused, bytes_of, check_folder, json_of, parse_notebook
from nbconvert.exporters import NotebookExporter
from nbgrader.api import Gradebook
from nbgrader.converters import Autograde, BaseConverter, GenerateFeedback
from nbgrader.converters.base import NbGraderException
from nbgrader.exchange.default import ExchangeCollect
from nbgrader.utils import parse_utc
from traitlets import Bool

MAX_DEPTH = 20  # how deep folders may be nested
REQUEST = "regrade.md"  # beside a notebook that is handed in again: a request to mark the earlier work again
MAX_REQUEST_BYTES = 20_000
MAX_SMALL_BYTES = 1000  # of timestamp.txt and submission_secret.txt
CLOCKS_AGREE = timedelta(seconds=60)  # a submission takes seconds to copy, and two machines' clocks differ
CHANGED = "vanished or was changed while it was being collected"
MEANS_CHANGED = frozenset(
    {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EINVAL, errno.EEXIST, errno.ENXIO}
)
HOLDS_WORK = frozenset({".ipynb", ".py", ".zip", ".gz", ".tar", ".tgz", ".7z", ".rar", ".pdf", ".docx", ".html"})
SHOWABLE = frozenset({".ipynb", ".txt", ".png", ".jpg", ".jpeg", ".gif", ".csv", ".json"})


def name_refusal(student: str) -> str | None:
    """Why a folder's name can't be a student's name, or None. nbgrader reads * ? [ as patterns and uses + itself."""
    if not student.isprintable() or set(student) & set("*?[]+/"):
        return "its folder's name holds one of * ? [ ] + or a character that can't be seen; rename it"
    if student.strip() != student or student.startswith("."):
        return "its folder's name begins or ends with a space, or begins with a dot; rename it"
    return None


def check_files(folder: Path) -> None:
    """Raises Refused if a submission holds anything but files and folders, too many or too large ones, or no time for a time."""
    check_folder(folder)
    _check_time(folder / "timestamp.txt")


def unread(folder: Path, given: Path) -> list[str]:
    """The files of a submission that may hold work and that nobody reads: they are not of the lab, whose folder is `given`.

    Students leave their work in a copy beside the empty notebook, in a script or in an archive.
    """
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.suffix.lower() in HOLDS_WORK)
    own = [path for path in found if not (given / path).exists() and not any(part[:1] in "._" for part in path.parts)]
    return sorted(printable_name(str(path)) for path in own)


def _check_time(path: Path) -> None:
    """Raises Refused if a timestamp.txt holds no time. nbgrader would only report: no attribute 'fail'."""
    if not stat.S_ISREG(_mode(path)):
        return
    try:
        with open(path, "rb") as file:
            _parse_time(file.read(101))
    except ValueError:
        raise Refused(f"{path.name} holds no time; delete it, or hand in again. It was not graded.") from None


def _parse_time(raw: bytes) -> datetime | None:
    """The time in a timestamp.txt; None if it is empty. Raises ValueError if it holds anything else.

    dateutil reads the file that a time zone names, so texts with a path are refused.
    """
    words = raw.decode("ascii").strip()
    if len(raw) > 100 or ".." in words or re.search(r"(^|[\s:])/", words):
        raise ValueError("no time")
    try:
        return parse_utc(words) if words else None
    except Exception:  # dateutil may raise any error on such a text
        raise ValueError("no time") from None


def _mode(path: Path) -> int:
    try:
        return path.lstat().st_mode
    except OSError:
        return 0


class AsRead(NotebookExporter):
    """nbconvert's exporter to notebooks, which reads a submission as the checks have read it."""

    def from_file(self, file_stream, resources=None, **more):
        """The converted notebook of a file. Raises Refused."""
        name = Path(getattr(file_stream, "name", "notebook.ipynb")).name
        return self.from_notebook_node(parse_notebook(file_stream.read().encode(), name), resources=resources, **more)


# ----------------------------------------------------------------------------------------------- what nbgrader is told


class Collect(ExchangeCollect):
    """nbgrader's collect, but it follows no links, and collects from each student only what this student owns.

    nbgrader's own collect would copy the instructor's solution if a student puts a link to it into the exchange. And
    a student could make a folder in another student's name, which would replace the work of that student.
    """

    src_records: list[dict]
    requests: list[dict]

    members_only = Bool(
        True,
        help="Whether to collect only from students who are in the gradebook. If nobody is in it, all work is collected.",
    ).tag(config=True)
    by_arrival = Bool(
        True,
        help="Whether the time of a submission is when its files came into the exchange (their ctime), which a student "
        "can't set. If not, it is the time that the student's own command wrote. Switch it off for an exchange that "
        "was copied from another machine.",
    ).tag(config=True)

    def _path_to_record(self, path: str) -> dict:
        """Student, file name and time, from the name of a folder. Folder names that can't be parsed are skipped later.

        They must not stop the collecting: anybody can make a folder there.
        """
        try:
            record = super()._path_to_record(path)
            claimed = record["timestamp"]
            return record | {"claimed": claimed, "timestamp": self._counted(claimed, _newest_change(Path(path)))}
        except Exception:
            return {"username": "", "filename": os.path.basename(path), "timestamp": datetime.min}

    def _counted(self, claimed: datetime, changed: datetime | None) -> datetime:
        """The time of a submission: when it came here, or its own word where the two agree."""
        if not self.by_arrival or changed is None or abs(changed - claimed) <= CLOCKS_AGREE:
            return claimed
        return changed

    def init_src(self) -> None:
        """Chooses what to collect, as nbgrader does, but only folders that their student, a member, owns."""
        self.requests = []
        super().init_src()
        self.requests = self._of_members(self.requests) if self.requests else []
        self.src_records = self._of_members([record for record in self.src_records if self._is_theirs(record)])

    def _of_members(self, records: list[dict]) -> list[dict]:
        with Gradebook(self.coursedir.db_url, self.coursedir.course_id) as gradebook:
            members = {student.id for student in gradebook.students}
        if not self.members_only:
            return records
        if not members:
            self.log.warning(
                "The gradebook has no students, so everybody's work is collected. To collect only from members, add "
                "them first: nbgrader db student import FILE.csv, or nbgrader db student add NAME."
            )
            return records
        others = sorted({record["username"] for record in records} - members)
        if others:
            self.log.error(
                "Not collected, because the gradebook does not know them: %s. To collect their work too, add each one "
                "(nbgrader db student add NAME) and collect again.",
                ", ".join(others),
            )
        return [record for record in records if record["username"] in members]

    def _sort_by_timestamp(self, records: list) -> list:
        honest = [record for record in records if self._is_theirs(record)]
        work = [record for record in honest if not self._asks(record)]
        if work and len(work) < len(honest):
            asking = [record for record in honest if record not in work]
            self.requests.append(max(asking, key=lambda record: record["timestamp"]))
        return super()._sort_by_timestamp(work or honest or records)

    def _asks(self, record: dict) -> bool:
        """Whether this folder is a request to mark graded work again: then the notebook in it is no new work."""
        lab = self.coursedir.assignment_id
        graded = self.coursedir.format_path(self.coursedir.autograded_directory, record["username"], lab)
        return Path(graded).is_dir() and os.path.lexists(Path(self.inbound_path, record["filename"], REQUEST))

    def _is_theirs(self, record: dict) -> bool:
        """Whether the folder belongs to the student in its name.

        `_copy` checks the owner again, when the folder is open.
        """
        if not record["username"] or name_refusal(record["username"]):
            self.log.error("%r names no student; it is not collected", record["filename"])
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
        """The owner's name, if the owner is neither the student nor the user who collects; else None."""
        if not self.check_owner or owner == os.getuid():
            return None
        try:
            name = pwd.getpwuid(owner).pw_name
        except KeyError:
            name = f"user {owner}"
        return None if name == record["username"] else name

    def _shown(self, record: dict) -> str:
        return printable_name(os.path.join(self.inbound_path, record["filename"]))

    def copy_files(self) -> None:
        """Collects each chosen folder by itself, so that a student who changes one folder can't stop the others."""
        if not self.src_records:
            course = self.coursedir.course_id
            self.log.warning("No submissions of %r for course %r to collect", self.coursedir.assignment_id, course)
        for record in self.src_records:
            try:
                self._collect(record)
            except (OSError, ValueError) as error:
                self.log.error("%s %s; it is not collected", self._shown(record), _reason(error))
        for record in self.requests:
            try:
                self._collect_request(record)
            except (OSError, ValueError) as error:
                self.log.error("%s: %s %s; it is not collected", self._shown(record), REQUEST, _reason(error))

    def _collect_request(self, record: dict) -> None:
        """Puts the request beside the work that was collected before; nothing else of this hand-in is taken."""
        student, lab = record["username"], self.coursedir.assignment_id
        dest = Path(self.coursedir.format_path(self.coursedir.submitted_directory, student, lab))
        if not dest.is_dir():
            return
        with (
            _opened(self.inbound_path, os.O_DIRECTORY) as inbound,
            _opened(record["filename"], os.O_DIRECTORY | os.O_NOFOLLOW, inbound) as folder,
        ):
            stranger = self._stranger(record, os.fstat(folder).st_uid)
            if stranger is not None:
                raise Refused(f"was handed in by {stranger}")
            with _opened(REQUEST, os.O_NOFOLLOW | os.O_NONBLOCK, folder) as source:
                about = os.fstat(source)
                if not stat.S_ISREG(about.st_mode) or about.st_nlink > 1:
                    raise Refused("is no file of its own")
                raw = os.read(source, MAX_REQUEST_BYTES + 1)
        if len(raw) > MAX_REQUEST_BYTES:
            raise Refused(f"has more than {MAX_REQUEST_BYTES} bytes")
        unfinished = dest / f".{REQUEST}.unfinished"
        unfinished.unlink(missing_ok=True)
        unfinished.write_bytes(raw)
        asked = record["timestamp"].replace(tzinfo=UTC).timestamp()
        os.utime(unfinished, (asked, asked))
        unfinished.replace(dest / REQUEST)
        self.log.warning("%s asks for a regrade of %s; the notebook beside the request is not collected", student, lab)

    def _collect(self, record: dict) -> None:
        student, lab = record["username"], self.coursedir.assignment_id
        dest = Path(self.coursedir.format_path(self.coursedir.submitted_directory, student, lab))
        earlier = dest.is_dir()
        if earlier and not self._is_wanted(record, time_of(dest)):
            said = (
                "No newer submission to collect" if self.update else "Submission already exists, use --update to update"
            )
            self.log.info("%s: %s %s", said, student, lab)
            return
        self.log.info("%s submission: %s %s", "Updating" if earlier else "Collecting", student, lab)
        unfinished = dest.with_name(f".{dest.name}.unfinished")
        dest.parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.rmtree(unfinished, ignore_errors=True)  # left by a collecting that was killed
            self._copy(record, unfinished)
            if earlier:
                shutil.rmtree(dest)
            unfinished.rename(dest)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
            with contextlib.suppress(OSError):  # removed only if it is empty
                dest.parent.rmdir()

    def _is_wanted(self, record: dict, earlier: datetime | None) -> bool:
        """nbgrader's rule: whether this folder replaces a collected submission of the time `earlier`."""
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
        self._write_time(record, dest, copier.newest)
        for name in copier.left_out:
            self.log.error(
                "%s: %s is a pipe, a socket or a device; it is not collected", self._shown(record), printable_name(name)
            )

    def _write_time(self, record: dict, dest: Path, newest_ns: int) -> None:
        """Records in timestamp.txt, which nbgrader reads, when the work was handed in. A link there stays: it is refused."""
        path = dest / "timestamp.txt"
        if not self.by_arrival or (_mode(path) and not stat.S_ISREG(_mode(path))):
            return
        counted = self._counted(record["claimed"], _as_utc(newest_ns))
        path.unlink(missing_ok=True)
        path.write_text(f"{counted:%Y-%m-%d %H:%M:%S.%f} UTC", encoding="ascii")
        if counted - record["claimed"] > CLOCKS_AGREE:
            self.log.warning(
                "%s: the work says that it was handed in at %s UTC, but its files came into the exchange at %s UTC, "
                "and this time counts",
                record["username"],
                f"{record['claimed']:%Y-%m-%d %H:%M:%S}",
                f"{counted:%Y-%m-%d %H:%M:%S}",
            )


class Copier:
    """Copies one submission. Its student may change it meanwhile, so each file is opened first, and then checked.

    Links are copied as links, which grading refuses. `left_out` names what is neither a file, a folder nor a link.
    Permissions are not copied: a setuid program would then run as us. Raises Refused or OSError; what was copied until
    then stays. `newest` is the latest change of what was copied (ctime, in ns).
    """

    def __init__(self, max_nbytes: int, owner: int, groupshared: bool = False) -> None:
        self.max_nbytes, self.owner, self.groupshared = max_nbytes, owner, groupshared
        self.count = self.nbytes = self.newest = 0
        self.left_out: list[str] = []

    def copy_folder(self, source: int, dest: Path, depth: int = 0) -> None:
        """Copies an open folder to `dest`, which must not exist yet."""
        if depth > MAX_DEPTH:
            raise Refused(f"has folders nested more than {MAX_DEPTH} deep")
        dest.mkdir()
        self.newest = max(self.newest, os.fstat(source).st_ctime_ns)
        if self.groupshared:
            dest.chmod(0o2770 | dest.stat().st_mode & 0o777)
        with os.scandir(source) as entries:  # not a list: the student may add files without end
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
            self.newest = max(self.newest, os.fstat(source).st_ctime_ns)  # after the reading: it may have been changed
            copy.flush()
            os.utime(copy.fileno(), ns=(about.st_atime_ns, about.st_mtime_ns))
            if self.groupshared:
                os.fchmod(copy.fileno(), 0o660 | os.fstat(copy.fileno()).st_mode & 0o777)

    def _check_room(self, nbytes: int) -> None:
        if self.nbytes + nbytes > self.max_nbytes:
            raise Refused(f"has {self.nbytes + nbytes} bytes or more; the limit is {self.max_nbytes}")


def copy_of(folder: Path, dest: Path, max_nbytes: int) -> list[str]:
    """Copies a folder that its student may change meanwhile, as `Copier` does; the names of what was left out. Raises Refused or OSError."""
    with _opened(str(folder), os.O_DIRECTORY | os.O_NOFOLLOW) as source:
        copier = Copier(max_nbytes, os.fstat(source).st_uid)
        copier.copy_folder(source, dest)
    return copier.left_out


@contextlib.contextmanager
def _opened(path: str, flags: int, folder: int | None = None) -> Iterator[int]:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags, dir_fd=folder)
    try:
        yield handle
    finally:
        os.close(handle)


def _reason(error: OSError | ValueError) -> str:
    """Why a submission is not collected, as the rest of a sentence that begins with its name."""
    if isinstance(error, Refused):
        return str(error)
    if isinstance(error, OSError) and error.errno in MEANS_CHANGED:
        return CHANGED
    return f"can't be copied ({getattr(error, 'strerror', None) or type(error).__name__})"


def _newest_change(folder: Path) -> datetime | None:
    """The latest ctime of a folder and of what is in it, as far as `Copier` would go; None if it can't be read."""
    newest, count, waiting = 0, 0, [folder]
    try:
        newest = folder.lstat().st_ctime_ns
        while waiting and count <= MAX_FILES:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    count += 1
                    newest = max(newest, entry.stat(follow_symlinks=False).st_ctime_ns)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(Path(entry.path))
                    if count > MAX_FILES:
                        break
    except OSError:
        pass  # what was seen so far counts; `_copy` reports what can't be read
    return _as_utc(newest) if newest else None


def _as_utc(time_ns: int) -> datetime:
    """The time as nbgrader keeps it: in UTC, without a time zone."""
    return datetime.fromtimestamp(time_ns // 1000 / 1e6, UTC).replace(tzinfo=None)


def read_small(path: Path) -> bytes:
    """The bytes of a file that nbgrader puts beside a notebook, in a folder that is no link. Raises OSError or Refused."""
    with (
        _opened(str(path.parent), os.O_DIRECTORY | os.O_NOFOLLOW) as folder,
        _opened(path.name, os.O_NOFOLLOW | os.O_NONBLOCK, folder) as handle,
    ):
        raw = os.read(handle, MAX_SMALL_BYTES + 1)
    if len(raw) > MAX_SMALL_BYTES:
        raise Refused(f"{path.name} has more than {MAX_SMALL_BYTES} bytes.")
    return raw


def printable_name(name: str) -> str:
    """A name that a student chose, safe to print in one line of the log."""
    return name if name.isprintable() else ascii(name)


def time_of(collected: Path) -> datetime | None:
    """When a collected submission was handed in; None if that is unknown. nbgrader would follow a link here."""
    try:
        with _opened(str(collected / "timestamp.txt"), os.O_NOFOLLOW | os.O_NONBLOCK) as handle:
            return _parse_time(os.read(handle, 101))
    except (OSError, ValueError):
        return None


def _ours(autograde: Autograde, lab: str) -> Path:
    course = autograde.coursedir
    return Path(course.format_path(course.source_directory, ".", lab))


def _leave_out_impossible_names(converter: type[BaseConverter]) -> None:
    """Makes nbgrader go on where a folder's name is none that it can parse: it would stop, for all students."""
    convert = converter.convert_notebooks

    def converted(self: BaseConverter) -> None:
        lab = self.coursedir.assignment_id
        refused = []
        for path in list(self.assignments):
            student = Path(path).parent.name
            if name_refusal(student):
                refused.append(student)
                del self.assignments[path]
        try:
            convert(self)
        finally:
            for student in refused:
                self.log.error("%s of %s: %s", lab, printable_name(student), name_refusal(student))
        if refused:
            raise NbGraderException(f"{len(refused)} folders were left out")

    converter.convert_notebooks = converted


def guard_nbgrader() -> None:
    """Makes nbgrader's Autograde check a submission's files and notebooks before it reads or copies them.

    This replaces two of its methods, because nbgrader offers no other place: its preprocessors run after the copying,
    and its hooks can't refuse a submission.
    """
    if getattr(Autograde, "allranks", False):
        return
    for converter in (Autograde, GenerateFeedback):
        _leave_out_impossible_names(converter)
    Autograde.exporter_class = AsRead
    init_destination, init_assignment = Autograde.init_destination, Autograde.init_assignment

    def checked(self: Autograde, assignment_id: str, student_id: str) -> bool:
        theirs = Path(self._format_source(assignment_id, student_id))
        check_files(theirs)
        for path in sorted(_ours(self, assignment_id).glob("*.ipynb")):
            if (theirs / path.name).exists():
                json_of(bytes_of(theirs / path.name), path.name)
        return init_destination(self, assignment_id, student_id)

    def cleared(self: Autograde, assignment_id: str, student_id: str) -> None:
        init_assignment(self, assignment_id, student_id)
        # formgrader serves the files beside a notebook to the instructor's browser
        ours, theirs = _ours(self, assignment_id), Path(self._format_dest(assignment_id, student_id))
        for path in [path for path in theirs.rglob("*") if path.is_file()]:
            if path.suffix.lower() not in SHOWABLE and not (ours / path.relative_to(theirs)).is_file():
                path.unlink()

    Autograde.init_destination, Autograde.init_assignment, Autograde.allranks = checked, cleared, True
