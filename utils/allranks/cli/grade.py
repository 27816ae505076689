"""`allranks grade LAB`: nbgrader's autograde with the trusted step over every submission, several at a time."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import click

MAX_JOBS = 64


class GradeError(Exception):
    """Nothing can be graded; the message is one sentence with the mend."""


@click.command(name="grade")
@click.argument("lab")
@click.option(
    "--course", type=click.Path(path_type=Path), help="The course's folder. Default: this one, or one above it."
)
@click.option("--student", "only", multiple=True, metavar="NAME", help="Grade this student only; may be repeated.")
@click.option("--jobs", type=click.IntRange(1, MAX_JOBS), help="Submissions at a time. Default: one for two cores.")
@click.option("--force", is_flag=True, help="Grade again what has been graded.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(lab: str, course: Path | None, only: tuple[str, ...], jobs: int | None, force: bool, as_json: bool) -> None:
    """Grades every submission in autograder/submitted/STUDENT/LAB, and records the points in nbgrader's gradebook.

    Those that are graded already are left as they are, so a run that was stopped can be started again. The exit status
    is 0 where all are graded, 1 where some could not be, and 2 where nothing could be done.
    """
    try:
        root = find_course(course or Path.cwd())
        students = find_students(root, lab, only)
        rows = []
        for row in grade(root, lab, students, jobs or max(1, (os.cpu_count() or 2) // 2), force):
            rows.append(row)
            if not as_json:
                click.echo(in_words(row))
    except GradeError as error:
        if as_json:
            click.echo(json.dumps({"lab": lab, "students": [], "reason": str(error)}))
        else:
            click.echo(str(error), err=True)
        sys.exit(2)
    rows.sort(key=lambda row: row["student"])
    if as_json:
        click.echo(json.dumps({"lab": lab, "students": rows}))
    sys.exit(1 if any(row["score"] is None for row in rows) else 0)


def find_course(start: Path) -> Path:
    """The folder of the course that `start` is in. Raises GradeError where there is none."""
    for folder in (start.resolve(), *start.resolve().parents):
        if (folder / "autograder" / "nbgrader_config.py").is_file():
            return folder
    raise GradeError(f"{start} is in no course: go to the folder that holds autograder/, or give it as --course.")


def find_students(course: Path, lab: str, only: tuple[str, ...]) -> list[str]:
    """Who handed the lab in, by name. Raises GradeError where nobody did, or one that was asked for did not."""
    if not (course / "solutions" / lab).is_dir():
        labs = sorted(path.name for path in course.glob("solutions/*") if path.is_dir())
        raise GradeError(f"There is no lab {lab!r}. There are: {', '.join(labs) or 'none'}.")
    found = sorted(path.parent.name for path in course.glob(f"autograder/submitted/*/{lab}") if path.is_dir())
    for name in only:
        if name not in found:
            raise GradeError(f"{name} has not handed in {lab}: there is no autograder/submitted/{name}/{lab}.")
    if not found:
        raise GradeError(f"Nobody has handed in {lab}: put notebooks into autograder/submitted/STUDENT/{lab}/.")
    return [name for name in found if not only or name in only]


def grade(course: Path, lab: str, students: list[str], jobs: int, force: bool):
    """Grades in `jobs` processes; yields each student's row as it is done. Raises GradeError where none can start."""
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    done: queue.SimpleQueue[dict] = queue.SimpleQueue()
    for student in students:
        waiting.put(student)
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(_Worker(course, lab, force))
        prepared = first.ask({"prepare": True})
        if "error" in prepared:
            raise GradeError(f"{lab} can't be recorded in the gradebook: {prepared['error']}")
        others = [stack.enter_context(_Worker(course, lab, force)) for _ in range(min(jobs, len(students)) - 1)]
        for worker in (first, *others):
            threading.Thread(target=_work, args=(worker, waiting, done), daemon=True).start()
        for _ in students:
            yield done.get()


def in_words(row: dict) -> str:
    """A student's row for a terminal."""
    if row["score"] is None:
        return f"{row['student']}: not graded. {row['reason']}"
    points = f"{row['score']:g} of {row['max_score']:g}, {row['seconds']:.1f} s"
    return f"{row['student']}: {points}" + (f" ({row['reason']})" if row["reason"] else "")


def _work(worker: _Worker, waiting: queue.SimpleQueue, done: queue.SimpleQueue) -> None:
    while True:
        try:
            student = waiting.get_nowait()
        except queue.Empty:
            return
        row = worker.ask({"student": student})
        if "error" in row:
            row = {"student": student, "score": None, "max_score": None, "seconds": 0.0, "reason": row["error"]}
        done.put(row)


class _Worker:
    """A process that grades (`autograder.grading`); started anew where it has ended."""

    def __init__(self, course: Path, lab: str, force: bool) -> None:
        self.course = course
        self.command = [sys.executable, "-m", "autograder.grading", lab, *(["--force"] if force else [])]
        self.process: subprocess.Popen | None = None
        self.log = tempfile.TemporaryFile(mode="w+", errors="replace")

    def ask(self, request: dict) -> dict:
        """The worker's answer, or {"error": ...} where it ended."""
        if self.process is None or self.process.poll() is not None:
            paths = [str(self.course), os.environ.get("PYTHONPATH", "")]
            self.process = subprocess.Popen(
                self.command,
                cwd=self.course / "autograder",
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.log,
                text=True,
            )
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except OSError:
            answer = ""
        if answer:
            return json.loads(answer)
        code = self.process.wait()
        self.log.seek(0)
        last = [line for line in self.log.read().splitlines() if line.strip()][-1:]
        return {"error": f"the grader ended with code {code}" + (f": {last[0]}" if last else ".")}

    def __enter__(self) -> _Worker:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process.stdin.close()
            self.process.stdout.close()
        self.log.close()
