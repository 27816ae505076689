"""What comes in: the files of a submission and the notebook in it, before anything of them is believed.

A submission is a folder that a student filled as they liked. Here it is refused where it holds links, devices, too much,
or no notebook; and nbgrader, which would follow a link and copy what it finds, is kept from doing so.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import stat
from datetime import datetime
from pathlib import Path

import nbformat
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
SHOWABLE = frozenset({".ipynb", ".txt", ".png", ".jpg", ".jpeg", ".gif", ".csv", ".json"})


class Refused(ValueError):
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
            words = file.read(101).decode("ascii")
        if len(words) > 100:
            raise ValueError
        if words.strip():
            parse_utc(words.strip())
    except (ValueError, OverflowError):
        raise Refused(f"{path.name} holds no time; delete it, or hand in again. It was not graded.") from None


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
        """Chooses what to collect, as nbgrader does, among what its student owns and what can be copied.

        It must be known by now: before nbgrader copies a newer submission, it removes the earlier one.
        """
        super().init_src()
        self.src_records = [r for r in self.src_records if self._is_theirs(r) and self._can_be_copied(r)]

    def _sort_by_timestamp(self, records: list) -> list:
        honest = [record for record in records if self._is_theirs(record)]
        return super()._sort_by_timestamp(honest or records)

    def _is_theirs(self, record: dict) -> bool:
        path = Path(self.inbound_path, record["filename"])
        if not record["username"] or name_refusal(record["username"]):
            self.log.error("%r says not whose it is; it is not collected", record["filename"])
            return False
        owner = path.lstat().st_uid
        if not self.check_owner or owner == os.getuid():  # what we laid there ourselves
            return True
        try:
            name = pwd.getpwuid(owner).pw_name
        except KeyError:
            name = f"user {owner}"
        if name != record["username"]:
            self.log.error("%s: handed in by %s; it is not collected", record["username"], name)
        return name == record["username"]

    def _can_be_copied(self, record: dict) -> bool:
        path = os.path.join(self.inbound_path, record["filename"])
        try:
            why_not = self._why_not(path)
        except OSError as error:
            why_not = f"can't be read ({error.strerror})"
        if why_not is not None:
            self.log.error("%s %s; it is not collected", path, why_not)
        return why_not is None

    def _why_not(self, path: str) -> str | None:
        if os.path.islink(path):
            return "is a symbolic link"
        waiting = [(path, 0)]
        while waiting:  # os.walk and copytree call themselves for each level
            where, depth = waiting.pop()
            if depth > MAX_DEPTH:
                return f"has folders in folders, more than {MAX_DEPTH} deep"
            with os.scandir(where) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append((entry.path, depth + 1))
                    elif entry.is_file(follow_symlinks=False) and not os.access(entry.path, os.R_OK):
                        return "holds a file that can't be read"
        size, limit = self.get_size(path), 1000 * self.coursedir.max_dir_size
        return f"has {size} bytes; the limit is {limit}" if size > limit else None

    def do_copy(self, src: str, dest: str, log=None) -> None:
        """Copies links as links, which grading refuses, and leaves out what is neither a file nor a folder."""

        def special(where: str, names: list[str]) -> list[str]:
            kept = stat.S_ISREG, stat.S_ISDIR, stat.S_ISLNK
            modes = {name: os.lstat(os.path.join(where, name)).st_mode for name in names}
            left_out = [name for name, mode in modes.items() if not any(kind(mode) for kind in kept)]
            for name in left_out:
                self.log.error("%s: %s is a pipe, a socket or a device; it is not collected", src, name)
            return left_out

        try:
            shutil.copytree(src, dest, symlinks=True, ignore=special)
        except (OSError, RecursionError) as error:  # it was changed since it was chosen, or there is no room
            self.log.error("%s can't be copied (%s); it is not collected", src, type(error).__name__)
            with contextlib.suppress(RecursionError):
                shutil.rmtree(dest, ignore_errors=True)


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
