"""One worker of `allranks grade`: nbgrader's own autograde in this process, one student after the other.

    cd autograder; python -m autograder.grading LAB [--force]

Reads a JSON object a line from stdin and answers each with one on stdout: {"prepare": true} records the lab in the
gradebook where it is not yet; {"student": "ada"} grades a submission. A student whose grades are complete is not graded
again, unless the submission is newer or --force is given, so that a run that was killed can simply be started again.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from nbgrader.api import Gradebook, MissingEntry
from nbgrader.apps import NbGraderAPI
from traitlets.config import PyFileConfigLoader

from autograder.judge import die_with_parent

HERE = Path.cwd()


def course_api() -> NbGraderAPI:
    """nbgrader's interface, with the configuration of the folder that we were started in."""
    config = PyFileConfigLoader("nbgrader_config.py", path=str(HERE)).load_config()
    return NbGraderAPI(config=config)


def prepare(api: NbGraderAPI, lab: str) -> dict:
    """Records the lab in the gradebook where it is not yet; {} or {"error": ...}."""
    with Gradebook(api.coursedir.db_url, api.coursedir.course_id) as gradebook:
        try:
            if gradebook.find_assignment(lab).notebooks:
                return {}
        except MissingEntry:
            pass
    done = api.generate_assignment(lab, force=True)
    return {} if done["success"] else {"error": _last_error(done)}


def grade(api: NbGraderAPI, lab: str, student: str, force: bool) -> dict:
    """Grades a submission: {"student", "score", "max_score", "seconds", "reason"}; a score of None means not graded."""
    began = time.monotonic()
    done = api.autograde(lab, student, force=force or not _complete(api, lab, student))
    score, max_score = _points(api, lab, student)
    reason = ""
    if not done["success"]:
        score, reason = None, _last_error(done)
    warnings = [line.split("] ", 1)[-1] for line in done.get("log", "").splitlines() if f"{student}: " in line]
    return {
        "student": student,
        "score": score,
        "max_score": max_score,
        "seconds": round(time.monotonic() - began, 2),
        "reason": reason or "; ".join(warnings),
    }


def _complete(api: NbGraderAPI, lab: str, student: str) -> bool:
    """Whether the machine has given all the points it has to give, and the graded notebook lies there."""
    folder = Path(api.coursedir.format_path(api.coursedir.autograded_directory, student, lab))
    with Gradebook(api.coursedir.db_url, api.coursedir.course_id) as gradebook:
        try:
            submission = gradebook.find_submission(lab, student)
        except MissingEntry:
            return False
        grades = [grade for notebook in submission.notebooks for grade in notebook.grades]
        names = [notebook.name for notebook in submission.notebooks]
        given = all(grade.auto_score is not None or grade.needs_manual_grade for grade in grades)
    return bool(names) and given and all((folder / f"{name}.ipynb").exists() for name in names)


def _points(api: NbGraderAPI, lab: str, student: str) -> tuple[float | None, float | None]:
    with Gradebook(api.coursedir.db_url, api.coursedir.course_id) as gradebook:
        try:
            submission = gradebook.find_submission(lab, student)
        except MissingEntry:
            return None, None
        return float(submission.score), float(submission.max_score)


def _last_error(done: dict) -> str:
    """The one line of nbgrader's long report that says what was wrong."""
    lines = [line for line in (done.get("log", "") + "\n" + done.get("error", "")).splitlines() if line.strip()]
    raised = [line for line in lines if line[0].isalpha() and ("Error: " in line or "Exception: " in line)]
    first = next((line for line in raised if "NbGraderException" not in line), None)
    return first.split(": ", 1)[-1] if first else (lines[-1] if lines else "nbgrader failed without a word")


def main(arguments: list[str]) -> None:
    """Answers requests until stdin closes."""
    lab, force = arguments[0], "--force" in arguments
    die_with_parent()
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    # nbgrader starts alembic, which lies beside this Python
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    api = course_api()
    for line in sys.stdin:
        request = json.loads(line)
        reply = prepare(api, lab) if "prepare" in request else grade(api, lab, request["student"], force)
        out.write(json.dumps(reply) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
