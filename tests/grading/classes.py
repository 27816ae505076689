"""Made-up classes of lab 3 from the known wrong answers, for the tests of what a teacher sees."""

from __future__ import annotations

import contextlib
import hashlib
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import nbformat
from allranks.cli import main
from click.testing import CliRunner
from grading_course import LAB, NOTEBOOK, ROOT, Course, cell_of
from nbgrader.api import Gradebook

WRONG = ROOT / "tests" / "exercises" / "wrong"
ANSWER = "A ring needs 1022 steps, at least 5.1 ms; recursive doubling needs 9 rounds."
IN_WORDS = "when_not_a_ring"  # the cell of the one question in words
Answers = Mapping[str, str]  # exercise -> the name of a wrong answer

SENDS, OFF, WHOLE = "sends before it receives", "off by one chunk", "whole vectors instead of chunks"
# eight students: two names are equal, and one has a comma
SMALL: dict[str, Answers] = {
    "ada": {},
    "bo": {"ring_all_reduce": "sends_before_receives"},
    "cy": {"ring_all_reduce": "sends_before_receives"},
    "di": {"ring_all_reduce": "sends_before_receives", "distributed_mean": "sum"},
    "ed": {"ring_all_reduce": "sends_the_wrong_chunk"},
    "flo": {"ring_all_reduce": "gathers_from_the_wrong_chunk", "distributed_mean": "sum"},
    "gus": {"ring_all_reduce": "whole_vectors"},
}
ROSTER = {
    "ada": ("Ada", "Lovelace, Countess", "ada@example.org"),
    "bo": ("Bo", "Li", "bo@example.org"),
    "cy": ("Bo", "Li", "cy@example.org"),
    "di": ("Di", '"D" =1+1', "di@example.org"),
    "hal": ("Hal", "Absent", "hal@example.org"),
}


def wrong(exercise: str, name: str) -> str:
    """A known wrong answer, as text."""
    return (WRONG / exercise / f"{name}.py").read_text(encoding="utf-8")


def hand_in(course: Course, students: Mapping[str, Answers], words: str = ANSWER) -> None:
    """Hands in the right answers but for these, each with an answer in words."""
    for student, answers in students.items():

        def change(grade_id: str, right: str, answers: Answers = answers, student: str = student) -> str:
            if grade_id == IN_WORDS:
                return f"{words} ({student})"
            return wrong(grade_id, answers[grade_id]) if grade_id in answers else right

        course.submit(student, course.answers(change))


def enter(course: Course, roster: Mapping[str, tuple[str, str, str]]) -> None:
    """Puts students into the gradebook."""
    with Gradebook(f"sqlite:///{course.root / 'autograder' / 'gradebook.db'}") as book:
        for student, (first, last, mail) in roster.items():
            book.update_or_create_student(student, first_name=first, last_name=last, email=mail)


def add_copies(course: Course, of: str, answers: Mapping[str, str]) -> None:
    """Enters students whose graded work is that of another student, but for the answer in words: quicker than grading each."""
    folder = course.root / "autograder" / "autograded"
    with Gradebook(f"sqlite:///{course.root / 'autograder' / 'gradebook.db'}") as book:
        scores = {grade.name: grade.auto_score for grade in book.find_submission_notebook(NOTEBOOK, LAB, of).grades}
        for student, words in answers.items():
            notebook = course.graded(of)
            cell_of(notebook, IN_WORDS).source = words
            (folder / student / LAB).mkdir(parents=True)
            nbformat.write(notebook, folder / student / LAB / f"{NOTEBOOK}.ipynb")
            book.add_student(student)
            book.add_submission(LAB, student)
            for name, score in scores.items():
                grade = book.find_grade(name, NOTEBOOK, LAB, student)
                grade.auto_score, grade.needs_manual_grade = score, score is None
        book.db.commit()


def digest(root: Path) -> dict[str, str]:
    """The SHA-256 of every file, and every folder."""
    files = {
        str(p.relative_to(root)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in root.rglob("*")
        if p.is_file() and p.suffix != ".pyc"
    }
    return files | {
        str(p.relative_to(root)): "folder" for p in root.rglob("*") if p.is_dir() and p.name != "__pycache__"
    }


def lay(inbound: Path, student: str, notebook: nbformat.NotebookNode) -> None:
    """A folder as `nbgrader submit` makes it."""
    words = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S.%f} UTC"
    folder = inbound / f"{student}+{LAB}+{words}+random"
    folder.mkdir()
    (folder / "timestamp.txt").write_text(words, encoding="ascii")
    (folder / "submission_secret.txt").write_text((student * 64)[:128], encoding="utf-8")
    nbformat.write(notebook, folder / f"{NOTEBOOK}.ipynb")


def typed(*words: object, stdin: str = "") -> subprocess.CompletedProcess:
    """What `allranks WORDS` said."""
    program = [str(Path(sys.executable).parent / "allranks"), *map(str, words)]
    return subprocess.run(program, input=stdin, capture_output=True, text=True, check=False)


def typed_here(*words: object) -> SimpleNamespace:
    """The same in this process, for tests that type several commands: quicker by a start each."""
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return SimpleNamespace(returncode=done.exit_code, stdout=done.stdout, stderr=done.stderr)


def allranks(course: Course, command: str, *arguments: str) -> subprocess.CompletedProcess:
    """What `allranks COMMAND LAB ... --course COURSE` said."""
    return typed(command, LAB, "--course", course.root, *arguments)


def marks(course: Course) -> dict[str, tuple[float | None, bool, str | None]]:
    """Of each student in the gradebook: the points given by hand, whether it waits, the comment."""
    found = {}
    with Gradebook(f"sqlite:///{course.root / 'autograder' / 'gradebook.db'}") as book:
        for submission in book.assignment_submissions(LAB):
            grade = book.find_grade(IN_WORDS, NOTEBOOK, LAB, submission.student_id)
            comment = book.find_comment(IN_WORDS, NOTEBOOK, LAB, submission.student_id)
            found[submission.student_id] = grade.manual_score, grade.needs_manual_grade, comment.manual_comment
    return found


@contextlib.contextmanager
def answers(course: Course, *arguments: str) -> Iterator[tuple[str, subprocess.Popen]]:
    """The address that `allranks answers` prints, while it serves."""
    program = [
        str(Path(sys.executable).parent / "allranks"),
        "answers",
        LAB,
        "--course",
        str(course.root),
        "--no-browser",
    ]
    server = subprocess.Popen([*program, *arguments], stdout=subprocess.PIPE, text=True)
    try:
        yield server.stdout.readline().strip(), server
    finally:
        server.send_signal(signal.SIGINT)
        assert server.wait(60) == 0
        server.stdout.close()
