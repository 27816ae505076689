"""Gives feedback back: one page for each submission, and no submission stops the others.

`ReleaseFeedback` replaces nbgrader's, which ends at the first folder without a secret. `guard_feedback` makes
`nbgrader generate_feedback` write a page also for a submission that could not be graded; that page says why.
"""

from __future__ import annotations

import glob
import html
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from allranks.cli._nbgrader import ONLY
from allranks.course.handin import Refused, read_notebook
from nbgrader.converters import GenerateFeedback
from nbgrader.coursedir import CourseDirectory
from nbgrader.exchange.default import ExchangeReleaseFeedback
from nbgrader.utils import notebook_hash

from autograder.intake import check_files, name_refusal, printable_name, read_small
from autograder.showing import limited

PAGE_S = 60.0  # for one notebook
MIN_SECRET_CHARACTERS = 32  # nbgrader's has 128; who can guess it can read the page
SECRET = "submission_secret.txt"
MARK = "<!-- allranks: not graded -->\n"
NO_PAGE = "The page of this notebook could not be made. Your teacher can see why, and your points are recorded."


class ReleaseFeedback(ExchangeReleaseFeedback):
    """nbgrader's release_feedback, but each page by itself; at the end it names those that were not released."""

    def copy_files(self) -> None:
        """Copies each page to where only its student can find it. Ends with an error that names the others."""
        failed = []
        for folder in sorted(glob.glob(self.src_path)):
            student = Path(folder).parent.name
            if not _wanted(self.coursedir, student):
                continue
            for page in sorted(Path(folder).glob("*.html")):
                try:
                    self._release(student, page)
                except (OSError, ValueError) as error:
                    failed.append(f"{printable_name(student)}: {_why(error)} Send {page} by another way.")
        for said in failed:
            self.log.error("Not released: %s", said)
        if failed:
            self.fail(f"{len(failed)} pages were not released; they are named above. All others were.")

    def _release(self, student: str, page: Path) -> None:
        secret = read_small(page.parent / SECRET).decode("utf-8")
        if len(secret.strip()) < MIN_SECRET_CHARACTERS:
            raise Refused(f"{SECRET} is too short to keep the page private.")
        name = notebook_hash(secret=secret, notebook_id=page.stem)
        unfinished = Path(self.dest_path, f"{name}-tmp.html")
        shutil.copy(page, unfinished)
        unfinished.replace(Path(self.dest_path, f"{name}.html"))
        self.log.info("Feedback released for %s: %s", student, page.stem)


def _why(error: OSError | ValueError) -> str:
    if isinstance(error, Refused):
        return str(error)
    if isinstance(error, FileNotFoundError):
        return f"there is no {SECRET}, so the work did not come from the exchange."
    return f"{SECRET} can't be read ({getattr(error, 'strerror', None) or type(error).__name__})."


def _wanted(course: CourseDirectory, student: str) -> bool:
    """Whether the command is about this student: not if nbgrader's configuration leaves the student out, or it is about others."""
    only = os.environ.get(ONLY)
    return student not in (course.student_id_exclude or "").split(",") and (only is None or student in json.loads(only))


def guard_feedback() -> None:
    """Makes nbgrader's GenerateFeedback bound the time of each page, write a page for each submission, and keep to a section.

    This replaces three of its methods, because nbgrader offers no other place.
    """
    if getattr(GenerateFeedback, "allranks", False):
        return
    start, convert = GenerateFeedback.start, GenerateFeedback.convert_single_notebook
    begin = GenerateFeedback.init_destination

    def started(self: GenerateFeedback) -> None:
        _remove_stand_ins(self.coursedir)
        try:
            start(self)
        finally:
            for student, why in stand_in(self.coursedir):
                self.log.warning("%s: the feedback page says only: %s", student, why)

    def bounded(self: GenerateFeedback, notebook_filename: str) -> None:
        with limited(PAGE_S):
            convert(self, notebook_filename)

    def wanted(self: GenerateFeedback, assignment_id: str, student_id: str) -> bool:
        return _wanted(self.coursedir, student_id) and begin(self, assignment_id, student_id)

    GenerateFeedback.start, GenerateFeedback.convert_single_notebook = started, bounded
    GenerateFeedback.init_destination = wanted
    GenerateFeedback.allranks = True


def stand_in(course: CourseDirectory) -> Iterator[tuple[str, str]]:
    """Writes a page for each notebook that should have one and has none; yields the student and what the page says."""
    lab = course.assignment_id
    ours = sorted(Path(course.format_path(course.source_directory, ".", lab)).glob("*.ipynb"))
    for folder in map(Path, sorted(glob.glob(course.format_path(course.submitted_directory, course.student_id, lab)))):
        student = folder.parent.name
        if name_refusal(student) or not _wanted(course, student):
            continue
        pages = Path(course.format_path(course.feedback_directory, student, lab))
        graded = Path(course.format_path(course.autograded_directory, student, lab))
        for name in (path.stem for path in ours):
            why = _why_no_page(folder, graded, name)
            if why is not None and not (pages / f"{name}.html").exists():
                _write(pages, folder, name, why)
                yield student, why


def _why_no_page(submitted: Path, graded: Path, name: str) -> str | None:
    """Why a notebook has no page; None if it only waits to be graded."""
    if (graded / f"{name}.ipynb").exists():
        return NO_PAGE
    try:
        check_files(submitted)
        if not (submitted / f"{name}.ipynb").exists():
            return f"There is no {name}.ipynb in what was handed in. It was not graded."
        read_notebook(submitted / f"{name}.ipynb")
    except Refused as reason:
        return str(reason)
    return None


def _write(pages: Path, submitted: Path, name: str, why: str) -> None:
    pages.mkdir(parents=True, exist_ok=True)
    title = html.escape(name)
    text = (
        f'<!DOCTYPE html>\n<meta charset="utf-8"><title>{title}</title>\n<h1>{title}</h1>\n<p>{html.escape(why)}</p>\n'
    )
    (pages / f"{name}.html").write_text(MARK + text, encoding="utf-8")
    for beside in (SECRET, "timestamp.txt"):  # without the secret the page can't be released
        try:
            (pages / beside).write_bytes(read_small(submitted / beside))
        except (OSError, ValueError):
            continue


def _remove_stand_ins(course: CourseDirectory) -> None:
    """Removes what `stand_in` wrote: nbgrader leaves out a student who has a page already."""
    for folder in glob.glob(course.format_path(course.feedback_directory, course.student_id, course.assignment_id)):
        pages = list(Path(folder).glob("*.html"))
        if _wanted(course, Path(folder).parent.name) and any(_is_stand_in(page) for page in pages):
            shutil.rmtree(folder)


def _is_stand_in(page: Path) -> bool:
    with open(page, encoding="utf-8", errors="replace") as file:
        return file.read(len(MARK)) == MARK
