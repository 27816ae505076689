"""Cuts a notebook to what a page shows of it, so that one submission can't stop nbconvert, formgrader or the feedback.

nbconvert reads far more of a notebook than this course needs (languages, widgets, formats), and some of its patterns
take time that grows with the square or the cube of a text. So three things hold for what reaches it: `strip` removes
all that only a notebook editor needs; `cut` shortens the texts, with a sentence that says so; and `in_time` bounds each
conversion. The submission itself, in submitted/, stays as it was handed in.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import nbformat
from allranks.base.errors import CourseError
from nbformat import NotebookNode
from nbgrader.preprocessors import NbGraderPreprocessor

MAX_CELL_CHARACTERS = 50_000
MAX_NOTEBOOK_CHARACTERS = 200_000
MAX_CELLS = 300
MAX_LINES = 2000
MAX_LINE_CHARACTERS = 2000  # in code; in prose a paragraph may be one line
MAX_BLANK_LINES = 10
CONVERSION_S = 5.0  # for the text of one cell
# the rest of a notebook's metadata is of use to editors only, or is dangerous (widgets, languages)
KEPT = frozenset({"allranks"})
KEPT_OF_CELL = frozenset({"nbgrader", "allranks", "deletable", "editable"})
LANGUAGE = {"name": "python", "pygments_lexer": "python", "file_extension": ".py", "mimetype": "text/x-python"}


class TooSlow(CourseError):
    """A conversion took longer than it may."""


def strip(notebook: NotebookNode) -> None:
    """Removes what this course does not need from a notebook that was restored. The texts stay."""
    notebook.metadata = NotebookNode({name: value for name, value in notebook.metadata.items() if name in KEPT})
    notebook.metadata["language_info"] = NotebookNode(LANGUAGE)
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    for name in set(notebook) - {"cells", "metadata", "nbformat", "nbformat_minor"}:
        del notebook[name]
    for number, cell in enumerate(notebook.cells):
        plain = {"cell_type": cell.cell_type, "id": f"cell-{number}", "source": cell.source}
        if cell.cell_type == "code":
            plain |= {"outputs": [], "execution_count": None}
        elif cell.get("attachments"):
            plain["attachments"] = NotebookNode()  # `cut` says that they are left out
        plain["metadata"] = NotebookNode({k: v for k, v in cell.metadata.items() if k in KEPT_OF_CELL})
        cell.clear()
        cell.update(plain)


def cut(notebook: NotebookNode) -> None:
    """Shortens the texts and the number of cells. Each shortened cell begins with a sentence that says so.

    Does nothing to a notebook that was cut before.
    """
    about = notebook.metadata.setdefault("allranks", NotebookNode())
    if about.get("cut"):
        return
    about["cut"] = True
    left = MAX_NOTEBOOK_CHARACTERS
    for cell in notebook.cells:
        most = min(MAX_CELL_CHARACTERS, left)
        left -= min(len(cell.source), most)
        text, said = _short(cell.source, most, MAX_LINE_CHARACTERS if cell.cell_type == "code" else None)
        if cell.get("attachments") is not None and cell.cell_type != "code":
            said.append("An image that was pasted into this cell is left out of the page.")
        cell.pop("attachments", None)
        if said:
            cell.source = _notice(" ".join(said), cell.cell_type) + text
    _drop_cells(notebook)


def _short(text: str, most: int, most_of_line: int | None) -> tuple[str, list[str]]:
    """The text without long runs of blank lines, long lines and a long rest; and a sentence on each cut."""
    said = []
    lines, blank = _without_blank(text)
    if blank:
        said.append(f"{blank} blank lines are left out of the page.")
    if most_of_line is not None and any(len(line) > most_of_line for line in lines):
        said.append(f"The page shows the first {most_of_line} characters of each line.")
        lines = [line[:most_of_line] for line in lines]
    if len(lines) > MAX_LINES:
        said.append(f"This cell has {len(lines)} lines. The page shows the first {MAX_LINES}.")
        lines = lines[:MAX_LINES]
    short = "\n".join(lines)
    if len(short) > most:
        said.append(f"This cell has {len(text)} characters. The page shows the first {most}.")
        short = short[:most]
    if not said:
        return text, []
    return short, [*said[:-1], f"{said[-1][:-1]}; the notebook has all of them."]


def _without_blank(text: str) -> tuple[list[str], int]:
    """The lines with at most `MAX_BLANK_LINES` blank ones in a row, and how many are missing."""
    kept: list[str] = []
    run = missing = 0
    for line in text.split("\n"):
        run = run + 1 if not line.strip() else 0
        if run > MAX_BLANK_LINES:
            missing += 1
        else:
            kept.append(line)
    return kept, missing


def _notice(said: str, cell_type: str) -> str:
    """The sentence, as the first thing in the cell: an unclosed comment in the text can't hide it there."""
    return f"# {said}\n" if cell_type == "code" else f"**{said}**\n\n"


def _drop_cells(notebook: NotebookNode) -> None:
    """Leaves out the last of too many cells; those of the released notebook stay."""
    room = MAX_CELLS - sum(1 for cell in notebook.cells if "nbgrader" in cell.metadata)
    kept = []
    for cell in notebook.cells:
        room -= "nbgrader" not in cell.metadata
        if room >= 0 or "nbgrader" in cell.metadata:
            kept.append(cell)
    if missing := len(notebook.cells) - len(kept):
        said = f"{missing} cells are left out of the page; the notebook has all of them."
        kept.insert(0, nbformat.v4.new_markdown_cell(f"**{said}**", id="left-out"))
    notebook.cells = kept


class CutForPage(NbGraderPreprocessor):
    """The last step of autograde: what formgrader and the feedback pages read is cut to size."""

    def preprocess(self, nb: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        """The notebook, cut."""
        cut(nb)
        return nb, resources


def highlight_code(source: str, language: str | None = None, metadata: dict | None = None) -> str:
    """The HTML of a code cell. The language is always Python: a cell can't choose another one."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer, TextLexer

    style = HtmlFormatter(cssclass=" highlight hl-ipython3")
    text = "\n".join(_without_blank(source)[0])[:MAX_CELL_CHARACTERS] or " "
    return in_time(lambda: highlight(text, PythonLexer(), style), lambda: highlight(text, TextLexer(), style))


def in_time(convert: Callable[[], str], otherwise: Callable[[], str]) -> str:
    """What `convert` returns, or `otherwise` if it takes too long."""
    try:
        with limited(CONVERSION_S):
            return convert()
    except TooSlow:
        return otherwise()


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raises TooSlow in its block after so many seconds. Without effect outside of the main thread.

    In the block of another limit, this one's time is not taken from the other's.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise TooSlow(f"it took longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    left, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left)
        signal.signal(signal.SIGALRM, before)
