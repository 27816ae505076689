"""Writes the gradebook for `allranks grade`: reads submissions, and records verdicts by nbgrader's autograde.

    cd autograder; python -m autograder.grading LAB [--force]

Each line on stdin is a JSON object, and each is answered by one line on stdout:

    {"prepare": true}                        adds the lab to the gradebook, if it is missing: {"sandbox"} or {"error"}
    {"read": "ada"}                          {"row"} if there is nothing to mark, else {"requests"}, for the judges
    {"record": "ada", "requests": [...], "verdicts": [...], "seconds": 1.2}
                                             {"row"}: the verdicts are now in the gradebook
    {"overview": true}                       {"lines"}: the first lines of the class overview

This process never runs the code of a submission; the judges are other processes. A student whose grades are complete is
not graded again, unless the submission is newer or --force is given. So a run that was killed can simply be started
again.
"""

from __future__ import annotations

import fcntl
import functools
import json
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import nbformat
import nbgrader.api
import nbgrader.nbgraderformat.common
from allranks.course.handin import Refused, read_notebook
from allranks.ranks.engines.forkserver.process import die_with_parent
from nbgrader.api import Gradebook, MissingEntry
from nbgrader.apps import NbGraderAPI
from nbgrader.utils import determine_grade
from sqlalchemy.orm import scoped_session, sessionmaker
from traitlets.config import PyFileConfigLoader

from autograder.classroom import first_lines, overview_of
from autograder.intake import check_files, name_refusal, unread
from autograder.judge import JudgeError
from autograder.rows import not_graded
from autograder.sections import only
from autograder.trusted import TrustedStep, incidents_of, is_graded, key_of, prose_of, released_cells, restore

HERE = Path.cwd()
LOCK = "gradebook.db.lock"
LOCK_S = 10


class Writer:
    """nbgrader in this process, configured by the nbgrader_config.py of the current folder."""

    def __init__(self, lab: str, force: bool) -> None:
        config = PyFileConfigLoader("nbgrader_config.py", path=str(HERE)).load_config()
        self.lab, self.force = lab, force
        self.api = NbGraderAPI(config=config)
        self.course = self.api.coursedir
        self.step = TrustedStep(parent=self.api)
        self.released: dict[str, dict] = {}
        self.members: set[str] = set()  # before this run; none in a course without a class list

    def prepare(self) -> dict:
        """Adds the lab to the gradebook, if it is missing.

        Returns {"sandbox": ...}, which the judges need, or {"error": ...}.
        """
        # for a name that is a path, nbgrader would remove the students' version of that lab
        if self.lab not in os.listdir(Path(self.course.root) / self.course.source_directory):
            return {"error": f"there is no lab {self.lab!r}."}
        if not _lock(HERE / LOCK):
            return {"error": "another `allranks grade` is running in this course; wait for it, or stop it."}
        with self._gradebook() as gradebook:
            try:
                known = bool(gradebook.find_assignment(self.lab).notebooks)
            except MissingEntry:
                known = False
        if not known:
            done = self.api.generate_assignment(self.lab, force=True)
            if not done["success"]:
                return {"error": _last_error(done)}
        with self._gradebook() as gradebook:
            names = [notebook.name for notebook in gradebook.find_assignment(self.lab).notebooks]
            self.members = {student.id for student in gradebook.students}
        self.released = {name: released_cells(self.course.db_url, self.lab, name) for name in names}
        return {"sandbox": self.step.sandbox}

    def read(self, student: str) -> dict:
        """{"requests": ...}, what to ask the judge about a submission; or {"row": ...}, if there is nothing to ask."""
        began = time.monotonic()
        folder = Path(self.course.format_path(self.course.submitted_directory, student, self.lab))
        try:
            if reason := name_refusal(student):
                raise Refused(f"{reason}. It was not graded.")
            check_files(folder)
            if not self.force and self._complete(student, folder):
                return {"row": self._row(student, began)}
            requests = []
            for name in self.released:
                path = folder / f"{name}.ipynb"
                if not path.exists():
                    continue  # nbgrader gives no points for it
                notebook = read_notebook(path)
                restore(notebook, self.released[name], prose_of(self.course, self.lab, name))
                requests += [q.request for q in self.step.questions(self.course, notebook, self.lab, name, student)]
            if not any((folder / f"{name}.ipynb").exists() for name in self.released):
                wanted = " or ".join(f"{name}.ipynb" for name in self.released)
                there = unread(folder, Path(self.course.format_path(self.course.source_directory, ".", self.lab)))[:3]
                hint = f" There is {', '.join(there)}: a notebook must keep its name." if there else ""
                raise Refused(f"There is no {wanted} in {folder.name}. It was not graded.{hint}")
        except Refused as reason:
            return {"row": not_graded(student, str(reason), _seconds_since(began))}
        return {"requests": requests}

    def record(self, student: str, requests: list[dict], verdicts: list[dict], seconds: float) -> dict:
        """Runs nbgrader's autograde on the submission, with a verdict for each request. Returns {"row": ...}."""
        began = time.monotonic() - seconds
        read = self._read_answers(student)
        self.api.config.TrustedStep.given = dict(zip(map(key_of, requests), verdicts, strict=True))
        try:
            done = self.api.autograde(self.lab, student, force=True)
        finally:
            self.api.config.TrustedStep.given = {}
        if not done["success"]:
            return {"row": not_graded(student, _last_error(done), _seconds_since(began))}
        self._keep_read(student, read)
        row = self._row(student, began)
        if self.members and student not in self.members:
            same = [name for name in self.members if name.casefold() == student.casefold()]
            what = f"{same[0]} is another student" if same else "nobody has this name"
            row["incidents"].append({"kind": "new", "where": "", "what": what})
        return {"row": row}

    def _read_answers(self, student: str) -> dict[tuple[str, str], tuple[float, str]]:
        """The points that a person gave to answers in words, and the text that was read, by notebook and cell."""
        texts = self._texts(student)
        with self._gradebook() as gradebook:
            try:
                notebooks = gradebook.find_submission(self.lab, student).notebooks
            except MissingEntry:
                return {}
            marks = {(n.name, g.name): g for n in notebooks for g in n.grades if not g.needs_manual_grade}
            return {
                place: (marks[place].manual_score, text)
                for place, text in texts.items()
                if place in marks and marks[place].manual_score is not None
            }

    def _keep_read(self, student: str, read: dict[tuple[str, str], tuple[float, str]]) -> None:
        """Nobody must read an answer again that is as it was: nbgrader lets every mark by hand wait after it has graded."""
        texts = self._texts(student)
        with self._gradebook() as gradebook:
            for (notebook, cell), (points, text) in read.items():
                grade = gradebook.find_grade(cell, notebook, self.lab, student)
                if texts.get((notebook, cell)) == text and grade.manual_score == points:
                    grade.needs_manual_grade = False
            gradebook.db.commit()

    def _texts(self, student: str) -> dict[tuple[str, str], str]:
        """The graded answers that a person marks, by notebook and cell."""
        folder = Path(self.course.format_path(self.course.autograded_directory, student, self.lab))
        found = {}
        for name in self.released:
            try:
                cells = nbformat.read(folder / f"{name}.ipynb", as_version=4).cells
            except (OSError, ValueError, nbformat.ValidationError):
                continue
            for about, cell in ((cell.metadata.get("nbgrader", {}), cell) for cell in cells):
                if about.get("grade") and about.get("solution"):
                    found[name, about["grade_id"]] = cell.source
        return found

    def _gradebook(self) -> Gradebook:
        return Gradebook(self.course.db_url, self.course.course_id)

    def _complete(self, student: str, submitted: Path) -> bool:
        """Whether the submission was graded to the end: the gradebook and the graded notebook hold the same points.

        nbgrader writes the notebook, then the grades, then the notebook with its outputs. Where a run was killed in
        between, the two differ.
        """
        folder = Path(self.course.format_path(self.course.autograded_directory, student, self.lab))
        with self._gradebook() as gradebook:
            try:
                submission = gradebook.find_submission(self.lab, student)
            except MissingEntry:
                return False
            recorded = {n.name: {g.name: g.auto_score for g in n.grades} for n in submission.notebooks}
        old, new = (self.course.get_existing_timestamp(str(path)) for path in (folder, submitted))
        if old is not None and new is not None and new > old:
            return False
        for name in self.released:
            theirs, graded = submitted / f"{name}.ipynb", folder / f"{name}.ipynb"
            if not theirs.exists():
                continue
            try:
                # ctime is when the file came here; a copy, a move or an archive may have kept an older mtime
                if graded.stat().st_mtime < theirs.stat().st_ctime:
                    return False
                cells = [cell for cell in nbformat.read(graded, as_version=4).cells if is_graded(cell)]
            except (OSError, ValueError, nbformat.ValidationError):
                return False
            for cell in (cell for cell in cells if cell.cell_type == "code"):
                found = recorded.get(name, {}).get(cell.metadata.nbgrader["grade_id"])
                if found is None or not cell.outputs or determine_grade(cell)[0] != found:
                    return False
        return any(recorded.values())

    def _row(self, student: str, began: float) -> dict:
        folder = Path(self.course.format_path(self.course.autograded_directory, student, self.lab))
        graded = [nbformat.read(path, as_version=4) for path in sorted(folder.glob("*.ipynb"))]
        incidents = [incident for notebook in graded for incident in incidents_of(notebook)]
        with self._gradebook() as gradebook:
            submission = gradebook.find_submission(self.lab, student)
            row = {"student": student, "score": float(submission.score), "max_score": float(submission.max_score)}
            row["late_penalty"] = float(submission.late_submission_penalty or 0.0)
        return row | {"seconds": _seconds_since(began), "reason": "", "incidents": incidents}


def _seconds_since(began: float) -> float:
    return round(time.monotonic() - began, 2)


def _lock(path: Path) -> bool:
    """Locks the file until this process ends.

    False if another process keeps the lock for more than `LOCK_S` seconds.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + LOCK_S  # a process that was just killed may still hold it
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)


def _last_error(done: dict) -> str:
    """The line of nbgrader's long report that says what was wrong."""
    lines = [line for line in (done.get("log", "") + "\n" + done.get("error", "")).splitlines() if line.strip()]
    raised = [line for line in lines if line[0].isalpha() and ("Error: " in line or "Exception: " in line)]
    first = next((line for line in raised if "NbGraderException" not in line), None)
    return first.split(": ", 1)[-1] if first else (lines[-1] if lines else "nbgrader failed and printed nothing")


def keep_engine() -> None:
    """Makes nbgrader use one engine for every gradebook that it opens: a new one compiles all statements anew.

    nbgrader opens one a dozen times for each submission, and looks each time whether all tables and the course are there.
    """
    create = nbgrader.api.create_engine
    kept = functools.cache(
        lambda url: create(url, echo=False, future=True)
    )  # closing a gradebook only empties its pool
    nbgrader.api.create_engine = lambda url, **_: kept(url)
    looked: set[tuple[str, str]] = set()
    begin = Gradebook.__init__

    def again(self: Gradebook, db_url: str, course_id: str = "default_course", authenticator: object = None) -> None:
        if (db_url, course_id) in looked:
            self.engine, self.course_id, self.authenticator = kept(db_url), course_id, authenticator
            self.db = scoped_session(sessionmaker(autoflush=True, bind=self.engine, future=True))
        else:
            begin(self, db_url, course_id, authenticator)
            looked.add((db_url, course_id))

    Gradebook.__init__ = again


def keep_validators() -> None:
    """Makes nbgrader check its schema of a cell's metadata once: for each cell anew it takes an eighth of a submission's record."""
    kept: dict[int, tuple[object, Any]] = {}  # the schema too: so its number stays its own

    def validate(instance: object, schema: dict) -> None:
        if id(schema) not in kept:
            of_schema = jsonschema.validators.validator_for(schema)
            of_schema.check_schema(schema)
            kept[id(schema)] = schema, of_schema(schema)
        error = jsonschema.exceptions.best_match(kept[id(schema)][1].iter_errors(instance))
        if error is not None:
            raise error

    nbgrader.nbgraderformat.common.jsonschema = SimpleNamespace(validate=validate)


def main(arguments: list[str]) -> None:
    """Answers requests until stdin closes."""
    die_with_parent()
    keep_engine()
    keep_validators()
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    # nbgrader starts alembic, which is in the folder of this Python
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    writer = Writer(arguments[0], "--force" in arguments)
    for line in sys.stdin:
        match json.loads(line):
            case {"prepare": _}:
                reply = writer.prepare()
            case {"read": student}:
                try:
                    reply = writer.read(student)
                except JudgeError as error:  # the instructor's notebook or the secret is wrong: nothing can be graded
                    reply = {"error": str(error)}
            case {"overview": students}:
                section = None if students is None else frozenset(students)
                reply = {"lines": first_lines(only(overview_of(writer.course, writer.lab), section))}
            case {"record": student, "requests": requests, "verdicts": verdicts, "seconds": seconds}:
                reply = writer.record(student, requests, verdicts, seconds)
        out.write(json.dumps(reply) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
