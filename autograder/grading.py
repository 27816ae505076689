"""The one writer of `allranks grade`: it reads submissions, and records what was decided on them by nbgrader's own autograde.

    cd autograder; python -m autograder.grading LAB [--force]

Reads a JSON object a line from stdin and answers each with one on stdout:

    {"prepare": true}                        records the lab in the gradebook where it is not yet: {} or {"error"}
    {"read": "ada"}                          {"row"} where there is nothing to mark, else {"requests"}
    {"record": "ada", "requests": [...], "verdicts": [...], "seconds": 1.2}
                                             {"row"}: what was decided is in the gradebook

No line of a submission runs here; the judges are elsewhere, and as many as there are. A student whose grades are complete is
not graded again, unless the submission is newer or --force is given, so that a run that was killed can simply be
started again.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from pathlib import Path

import nbformat
from allranks.cli.grade import not_graded
from allranks.engines.forkserver import die_with_parent
from nbgrader.api import Gradebook, MissingEntry
from nbgrader.apps import NbGraderAPI
from nbgrader.utils import determine_grade
from traitlets.config import PyFileConfigLoader

from autograder.intake import Refused, check_files, name_refusal, read_notebook
from autograder.judge import JudgeError
from autograder.trusted import TrustedStep, incidents_of, is_graded, key_of, released_cells, restore

HERE = Path.cwd()
LOCK = "gradebook.db.lock"
LOCK_S = 10


class Writer:
    """nbgrader in this process, with the configuration of the folder that we were started in."""

    def __init__(self, lab: str, force: bool) -> None:
        config = PyFileConfigLoader("nbgrader_config.py", path=str(HERE)).load_config()
        self.lab, self.force = lab, force
        self.api = NbGraderAPI(config=config)
        self.course = self.api.coursedir
        self.step = TrustedStep(parent=self.api)
        self.released: dict[str, dict] = {}

    def prepare(self) -> dict:
        """Records the lab in the gradebook where it is not yet; how to mark it, or {"error": ...}."""
        # nbgrader would take another path to a lab for one without a name, and remove the students' version of it
        if self.lab not in os.listdir(Path(self.course.root) / self.course.source_directory):
            return {"error": f"there is no lab {self.lab!r}."}
        if not _lock(HERE / LOCK):
            return {"error": "another `allranks grade` is at work in this course; wait for it, or stop it."}
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
        self.released = {name: released_cells(self.course.db_url, self.lab, name) for name in names}
        return {"sandbox": self.step.sandbox}

    def read(self, student: str) -> dict:
        """The questions that the submission puts to the judge; or its row, where there is none to put."""
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
                restore(notebook, self.released[name])
                requests += [q.request for q in self.step.questions(self.course, notebook, self.lab, name)]
            if not any((folder / f"{name}.ipynb").exists() for name in self.released):
                wanted = " or ".join(f"{name}.ipynb" for name in self.released)
                raise Refused(f"There is no {wanted} in {folder.name}. It was not graded.")
        except Refused as reason:
            return {"row": not_graded(student, str(reason), _seconds_since(began))}
        return {"requests": requests}

    def record(self, student: str, requests: list[dict], verdicts: list[dict], seconds: float) -> dict:
        """Has nbgrader autograde the submission, with these verdicts on what was asked about it; its row."""
        began = time.monotonic() - seconds
        self.api.config.TrustedStep.given = dict(zip(map(key_of, requests), verdicts, strict=True))
        try:
            done = self.api.autograde(self.lab, student, force=True)
        finally:
            self.api.config.TrustedStep.given = {}
        if not done["success"]:
            return {"row": not_graded(student, _last_error(done), _seconds_since(began))}
        return {"row": self._row(student, began)}

    def _gradebook(self) -> Gradebook:
        return Gradebook(self.course.db_url, self.course.course_id)

    def _complete(self, student: str, submitted: Path) -> bool:
        """Whether everything that the machine has to give stands in the gradebook and, the same, in the graded notebook.

        nbgrader writes the notebook before it marks it, then the grades, then the notebook with its outputs: only where the
        two agree did it come to the end.
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
                # when it was put there: a copy, a move or an archive may have kept the date of its writing
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
    """Holds the file for as long as this process lives; False where another process does and goes on to."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + LOCK_S  # one that was just killed may still be ending
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)


def _last_error(done: dict) -> str:
    """The one line of nbgrader's long report that says what was wrong."""
    lines = [line for line in (done.get("log", "") + "\n" + done.get("error", "")).splitlines() if line.strip()]
    raised = [line for line in lines if line[0].isalpha() and ("Error: " in line or "Exception: " in line)]
    first = next((line for line in raised if "NbGraderException" not in line), None)
    return first.split(": ", 1)[-1] if first else (lines[-1] if lines else "nbgrader failed without a word")


def main(arguments: list[str]) -> None:
    """Answers requests until stdin closes."""
    die_with_parent()
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    # nbgrader starts alembic, which lies beside this Python
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    writer = Writer(arguments[0], "--force" in arguments)
    for line in sys.stdin:
        match json.loads(line):
            case {"prepare": _}:
                reply = writer.prepare()
            case {"read": student}:
                try:
                    reply = writer.read(student)
                except JudgeError as error:  # the instructor's notebook, or the secret: nothing can be graded
                    reply = {"error": str(error)}
            case {"record": student, "requests": requests, "verdicts": verdicts, "seconds": seconds}:
                reply = writer.record(student, requests, verdicts, seconds)
        out.write(json.dumps(reply) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
