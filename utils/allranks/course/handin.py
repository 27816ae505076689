"""What may be handed in: the grader's limits and its reader of notebooks, and the check of them in a lab's last cell.

The grader (`autograder.intake`) and `ready` read a notebook by the same functions, so that a student is told before handing in what
would be refused afterwards.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from allranks.base import course_files as files
from allranks.base.errors import CourseError
from allranks.base.notebook import notebook_file

# nbformat says nothing of its types
_reads: Callable[..., NotebookNode] = nbformat.reads
_writes: Callable[..., str] = nbformat.writes
MAX_NOTEBOOK_BYTES = 16 << 20  # without outputs, which grading throws away
MAX_TOTAL_BYTES = 64 << 20
MAX_PIECES = 2_000_000  # of JSON in a larger file, whose outputs must be read: each takes some 100 bytes of memory
MAX_FILES = 200
MAX_CELLS = 5000
MAX_TAGS = 50  # in one cell
MAX_READ_BYTES = 1 << 30  # of a file whose outputs are counted for its owner
CLEAR = "Clear the outputs (in JupyterLab: Edit, Clear Outputs of All Cells), save"


class Refused(CourseError, ValueError):
    """The submission is not marked; the message says why in one sentence."""


# ------------------------------------------------------------------------------------------------------- the reader


def check_folder(folder: Path) -> None:
    """Raises Refused if a submission holds anything but files and folders, or holds too many or too large ones."""
    if folder.is_symlink():
        raise Refused(f"{folder.name} is a symbolic link; hand in the folder itself. It was not graded.")
    count = nbytes = 0
    for where, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = Path(where, name)
            about = path.lstat()
            shown = path.relative_to(folder)
            if stat.S_ISLNK(about.st_mode):
                raise Refused(f"{shown} is a symbolic link; hand in the file itself. It was not graded.")
            if not stat.S_ISREG(about.st_mode) and not stat.S_ISDIR(about.st_mode):
                raise Refused(f"{shown} is a pipe, a socket or a device, not a file. It was not graded.")
            count, nbytes = count + 1, nbytes + about.st_size
            if count > MAX_FILES or nbytes > MAX_TOTAL_BYTES:
                limits = f"{MAX_FILES} files or {MAX_TOTAL_BYTES >> 20} MiB"
                raise Refused(
                    f"There are more than {limits} in {folder.name}; outputs of notebooks count, so clear them. It was not graded."
                )


def read_notebook(path: Path) -> NotebookNode:
    """The notebook in a file with any content. Raises only Refused, if the file holds no notebook."""
    return parse_notebook(bytes_of(path), path.name)


def bytes_of(path: Path) -> bytes:
    """What is in a file. Raises Refused if it is a link, can't be read, or is too large."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(handle, "rb") as file:
            raw = file.read(MAX_TOTAL_BYTES + 1)
    except OSError as error:
        raise Refused(f"{path.name} can't be read ({error.strerror}). It was not graded.") from None
    pieces = sum(map(raw.count, (b"[", b"{", b",")))
    if len(raw) > MAX_TOTAL_BYTES or (len(raw) > MAX_NOTEBOOK_BYTES and pieces > MAX_PIECES):
        raise Refused(
            f"{path.name} has {len(raw) >> 20} MiB. It was not graded: clear the outputs and hand it in again."
        )
    return raw


def parse_notebook(raw: bytes, name: str) -> NotebookNode:
    """The notebook in these bytes of the file `name`. Raises only Refused."""
    found = json_of(raw, name)
    try:
        notebook = _reads(json.dumps(found), as_version=4)
        # what can't be written can't be graded: a lone surrogate, a NaN
        _writes(notebook).encode()
        json.dumps(found, allow_nan=False)
    except Exception as error:  # nbformat may raise any error on such a file
        raise Refused(f"{name} is a damaged notebook ({type(error).__name__}). It was not graded.") from None
    check_shape(notebook, name)
    return notebook


def json_of(raw: bytes, name: str) -> dict[str, Any]:
    """The JSON in a file, without outputs and ids of cells, which editors write and nothing here needs.

    Raises Refused if it is no notebook, or is so large that nbformat would take too long.
    """
    try:
        found = json.loads(raw.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        raise Refused(f"{name} is not a notebook: it holds no JSON in UTF-8. It was not graded.") from None
    if not isinstance(found, dict) or not isinstance(found.get("cells"), list) or found.get("nbformat") != 4:
        raise Refused(
            f"{name} is not a notebook of format 4: open it in JupyterLab and save it again. It was not graded."
        )
    cells = [cell for cell in found["cells"] if isinstance(cell, dict)]
    if len(found["cells"]) > MAX_CELLS:
        raise Refused(f"{name} has {len(found['cells'])} cells; the limit is {MAX_CELLS}. It was not graded.")
    _without_outputs(found, cells)
    if len(raw) > MAX_NOTEBOOK_BYTES and len(json.dumps(found)) > MAX_NOTEBOOK_BYTES:
        raise Refused(f"{name} has more than {MAX_NOTEBOOK_BYTES >> 20} MiB without its outputs. It was not graded.")
    for number, cell in enumerate(cells, 1):  # nbformat compares every tag with every other one
        about = cell.get("metadata")
        tags = about.get("tags") if isinstance(about, dict) else None
        if isinstance(tags, list) and len(tags) > MAX_TAGS:
            raise Refused(f"{name} has {len(tags)} tags at cell {number}; the limit is {MAX_TAGS}. It was not graded.")
    return found


def _without_outputs(notebook: dict[str, Any], cells: list[dict[str, Any]]) -> None:
    """Gives each cell a number for its id, and code cells empty outputs, whatever they had there."""
    notebook["nbformat_minor"] = 5
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
        cell.pop("outputs", None)
        cell.pop("execution_count", None)
        if cell.get("cell_type") == "code":
            cell |= {"outputs": [], "execution_count": None}


def check_shape(notebook: NotebookNode, name: str) -> None:
    """Raises Refused if a cell, or what nbconvert reads of the metadata, does not have the form that notebook editors write."""
    for part in ("kernelspec", "language_info"):
        if not isinstance(notebook.metadata.get(part, {}), dict):
            raise Refused(f"{name} is a damaged notebook ({part} in its metadata). It was not graded.")
    for number, cell in enumerate(notebook.cells, 1):
        if (
            not isinstance(cell, dict)
            or cell.get("cell_type") not in ("code", "markdown", "raw")
            or not isinstance(cell.get("source"), str)
            or not isinstance(cell.get("metadata"), dict)
            or not (cell["cell_type"] != "code" or isinstance(cell.get("outputs", []), list))
        ):
            raise Refused(f"{name} is a damaged notebook (cell {number}). It was not graded.")


# -------------------------------------------------------------------------------------------------------- the check


@dataclass(frozen=True)
class Ready:
    """What the grader would say of a notebook as it is on the disk. `refused` is one sentence, "" if it would be taken; `empty` are the
    answers that are as they were released.
    """

    name: str
    refused: str = ""
    empty: tuple[str, ...] = ()
    saved: datetime | None = None

    def __bool__(self) -> bool:
        return not self.refused

    def __repr__(self) -> str:
        if self.saved is None:
            return f"Nothing was checked: {self.refused}"
        as_saved = f"as saved at {self.saved:%H:%M} UTC"
        if self.refused:
            return f"{self.name} would be refused, {as_saved}: {self.refused}"
        lines = [f"{self.name} would be taken, {as_saved}: save it again before you hand it in."]
        if self.empty:
            lines.append(f"Not written yet: {', '.join(self.empty)}.")
        return "\n".join(lines)


def ready(path: Path | str | None = None) -> Ready:
    """Checks a notebook, by default this kernel's own, by the grader's limits; changes nothing and hands nothing in.

    Example:
        >>> bool(ready("no_such_notebook.ipynb"))
        False
    """
    found = notebook_file() if path is None else Path(path).absolute()
    if found is None or not found.is_file():
        name = "notebook" if found is None else found.name
        return Ready(
            name, "this program does not know the notebook's file. Save it, and open it in JupyterLab or VS Code."
        )
    saved = datetime.fromtimestamp(found.stat().st_mtime, UTC)
    given = released(found.parent.name)
    try:
        if given and found.name not in given:
            raise Refused(f"a notebook must keep its name. Call it {' or '.join(sorted(given))} again.")
        notebook = read_notebook(found)
        if given:
            check_folder(found.parent)
    except Refused as reason:
        return Ready(found.name, _advice(found, str(reason)), saved=saved)
    return Ready(found.name, "", tuple(_empty(notebook, given.get(found.name))), saved)


def released(lab: str) -> dict[str, Path]:
    """The lab's notebooks as students get them, by their file's name; none if there is no such lab.

    Example:
        >>> released("no_such_lab")
        {}
    """
    given = files.given()
    found = sorted((given / "labs" / lab).glob("*.ipynb")) if given is not None and lab else []
    return {path.name: path for path in found}


def _advice(path: Path, reason: str) -> str:
    """Why a notebook is refused, as a sentence for its owner: with how much of it is outputs, if that is why."""
    reason = reason.replace(" It was not graded.", "").replace(" It was not graded:", "")
    if "MiB" in reason and (outputs := _bytes_of_outputs(path)) > path.stat().st_size // 2:
        return f"{path.stat().st_size >> 20} MiB, of which {outputs >> 20} MiB are outputs. {CLEAR}."
    return reason


def _bytes_of_outputs(path: Path) -> int:
    """How many bytes of a notebook's file are outputs, about; 0 if nobody can say."""
    try:
        if path.stat().st_size > MAX_READ_BYTES:
            return 0
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        return sum(len(json.dumps(cell.get("outputs", []), ensure_ascii=False).encode()) for cell in cells)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return 0


def _empty(notebook: NotebookNode, given: Path | None) -> list[str]:
    """The answers of a notebook that are as they were released."""
    if given is None:
        return []
    texts = dict(answers(_reads(given.read_text(encoding="utf-8"), as_version=4)))
    return [name for name, text in answers(notebook) if texts.get(name) == text]


def answers(notebook: NotebookNode) -> list[tuple[str, str]]:
    """The cells that a student fills in, in their order: the name and the text of each.

    Example:
        >>> cell = nbformat.v4.new_code_cell("a = 1 ", metadata={"nbgrader": {"solution": True, "grade_id": "a"}})
        >>> answers(nbformat.v4.new_notebook(cells=[cell]))
        [('a', 'a = 1')]
    """
    found = []
    for cell in notebook.cells:
        about = cell.metadata.get("nbgrader")
        if isinstance(about, dict) and about.get("solution"):  # a student may have written anything there
            found.append((str(about.get("grade_id")), cell.source.strip()))
    return found
