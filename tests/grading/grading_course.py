"""A course in a folder of its own, with a real gradebook: what the tests hand in to and have graded."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parents[2]
LAB, NOTEBOOK = "lab03_all_reduce", "all_reduce"


@dataclass(frozen=True)
class Course:
    """A course's folder. `nbgrader` runs the command line there, as an instructor would."""

    root: Path

    def nbgrader(self, *arguments: str, path: str | None = None) -> subprocess.CompletedProcess:
        """What `cd autograder; nbgrader ...` said; stdout and stderr together. `path` replaces the environment's PATH."""
        path = path or f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return subprocess.run(
            [sys.executable, "-m", "nbgrader", *arguments],
            cwd=self.root / "autograder",
            env=os.environ | {"PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    def notebook(self, folder: str) -> NotebookNode:
        """The lab's notebook in solutions/ or labs/."""
        return nbformat.read(self.root / folder / LAB / f"{NOTEBOOK}.ipynb", as_version=4)

    def submission(self, student: str) -> Path:
        """Where a student's notebook lies; its folder is made."""
        path = self.root / "autograder" / "submitted" / student / LAB / f"{NOTEBOOK}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def submit(self, student: str, notebook: NotebookNode) -> None:
        """Hands a notebook in."""
        nbformat.write(notebook, self.submission(student))

    def answers(self, change: Callable[[str, str], str] = lambda grade_id, source: source) -> NotebookNode:
        """The released notebook with the instructor's answers in it, each put through `change(grade_id, answer)`."""
        right = {c.metadata.nbgrader.grade_id: c.source for c in self.notebook("solutions").cells if is_answer(c)}
        released = self.notebook("labs")
        for cell in released.cells:
            if is_answer(cell):
                cell.source = change(cell.metadata.nbgrader.grade_id, right[cell.metadata.nbgrader.grade_id])
        return released

    def graded(self, student: str) -> NotebookNode:
        """A student's notebook as it was after grading."""
        path = self.root / "autograder" / "autograded" / student / LAB / f"{NOTEBOOK}.ipynb"
        return nbformat.read(path, as_version=4)

    def scores(self, student: str) -> dict[str, float | None]:
        """The points that the machine gave, by cell; None where it gave none. Empty where nothing was recorded."""
        from nbgrader.api import Gradebook, MissingEntry

        with Gradebook(f"sqlite:///{self.root / 'autograder' / 'gradebook.db'}") as gradebook:
            try:
                found = gradebook.find_submission_notebook(NOTEBOOK, LAB, student)
            except MissingEntry:
                return {}
            return {grade.name: grade.auto_score for grade in found.grades}


def is_answer(cell: NotebookNode) -> bool:
    """Whether this is a cell that the student fills in."""
    return bool(cell.metadata.get("nbgrader", {}).get("solution"))


def cell_of(notebook: NotebookNode, grade_id: str) -> NotebookNode:
    """The cell of that grade_id."""
    (cell,) = (c for c in notebook.cells if c.metadata.get("nbgrader", {}).get("grade_id") == grade_id)
    return cell


def make_course(root: Path, record: bool = True) -> Course:
    """A copy of what an instructor has; with `record`, the lab is in its new gradebook."""
    if record:
        shutil.copytree(_recorded(), root, dirs_exist_ok=True)
        return Course(root)
    shutil.copytree(ROOT / "solutions" / LAB, root / "solutions" / LAB)
    shutil.copytree(ROOT / "labs" / LAB, root / "labs" / LAB)
    (root / "autograder").mkdir()
    for path in (ROOT / "autograder").glob("*.py"):
        shutil.copy(path, root / "autograder")
    shutil.copytree(ROOT / "autograder" / "templates", root / "autograder" / "templates")
    return Course(root)


def _recorded() -> Path:
    """A course whose gradebook is new: nbgrader takes seconds to make it."""

    def make(course: Course) -> None:
        said = course.nbgrader("generate_assignment", LAB, "--force")
        assert said.returncode == 0, said.stdout

    return made_once("course", lambda root: make(make_course(root, record=False)))


def made_once(name: str, make: Callable[[Path], None]) -> Path:
    """A folder that `make` fills once in a run of the tests, for all workers: a copy of it is as good, and is quick."""
    root = Path(os.environ["ALLRANKS_TEST_SHARED"]) / name
    with open(f"{root}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.exists():
            unfinished = Path(f"{root}-unfinished")
            make(unfinished)
            unfinished.rename(root)
    return root


@contextlib.contextmanager
def serving(course: Course, runtime: Path) -> Iterator[str]:
    """formgrader's address, on a Jupyter server started as docs/instructor.md says; its token is "secret"."""
    options = ["--no-browser", "--allow-root", "--ServerApp.port=0", f"--ServerApp.root_dir={course.root}"]
    extension = "--ServerApp.jpserver_extensions=nbgrader.server_extensions.formgrader=True"
    server = subprocess.Popen(
        [sys.executable, "-m", "jupyter", "server", *options, extension, "--IdentityProvider.token=secret"],
        cwd=course.root / "autograder",
        env=os.environ | {"JUPYTER_RUNTIME_DIR": str(runtime)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    port = None
    try:
        while port is None:  # pytest's own time limit bounds this
            assert server.poll() is None
            time.sleep(0.1)
            with contextlib.suppress(StopIteration, ValueError, OSError):  # the file is there before the server listens
                told = json.loads(next(runtime.glob("jpserver-*.json")).read_text())
                socket.create_connection(("127.0.0.1", told["port"]), timeout=10).close()
                port = told["port"]
        yield f"http://127.0.0.1:{port}/formgrader/"
    finally:
        server.terminate()
        server.wait()
