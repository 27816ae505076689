"""Grading: submissions a minute, `allranks grade` against nbgrader as it comes with a 4-engine cluster in each
notebook.

Both courses have the same lab and the same right answers to three exercises. In the plain one the instructor's tests
are cells, as nbgrader's users write them: one starts ipyparallel's cluster, each runs the student's function on it and
compares.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from bench.common import ROOT, Result, alternate, clock, median, processor_s, ratio, with_orphans

LAB, NOTEBOOK = "lab03_all_reduce", "all_reduce"
# submissions in a round of ours and in one of nbgrader's, which would take a class of 60 a quarter of an hour
CLASS, BATCH, ROUNDS = 60, 10, 2
RANKS = 4

PLAIN_CONFIG = """
c = get_config()
c.CourseDirectory.course_id = "plain"
c.Execute.timeout = 300
"""
START = """
import ipyparallel as ipp

cluster = ipp.Cluster(n=4)
client = cluster.start_and_connect_sync(activate=False)
client.wait_for_engines(4)
view = client[:]
view.use_cloudpickle()


def join(rank, store):
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=4)


def on_ranks(function, inputs):
    def call(tensor):
        return function(tensor), tensor

    return [client[rank].apply_async(call, inputs[rank]) for rank in range(4)]


import tempfile
store = tempfile.mkdtemp() + "/store"
for reply in [client[rank].apply_async(join, rank, store) for rank in range(4)]:
    reply.get()
"""
TESTS = {
    "distributed_mean": """
for size in (1, 4, 7):
    inputs = [torch.randn(size) for _ in range(4)]
    for reply in on_ranks(distributed_mean, inputs):
        assert torch.allclose(reply.get()[0], sum(inputs) / 4, atol=1e-5)
""",
    "distributed_argmax": """
inputs = [torch.randn(5) for _ in range(4)]
best = torch.cat(inputs).argmax().item()
for reply in on_ranks(distributed_argmax, inputs):
    value, rank, index = reply.get()[0]
    assert (int(rank), int(index)) == divmod(best, 5)
""",
    "ring_all_reduce": """
for size in (4, 8, 10):
    inputs = [torch.randn(size) for _ in range(4)]
    for reply in on_ranks(ring_all_reduce, inputs):
        assert torch.allclose(reply.get()[1], sum(inputs), atol=1e-5)
""",
}
STOP = "client.close()\ncluster.stop_cluster_sync()"


def run(rounds: int, progress) -> Result:
    """Grades a fresh class by each in turn, twice at most; a grade that is not full makes the bench void."""
    rounds = min(rounds, ROUNDS)
    with tempfile.TemporaryDirectory(prefix="grading-") as scratch:
        ours, plain = Path(scratch, "ours"), Path(scratch, "plain")
        _our_course(ours)
        _plain_course(plain)
        _hand_in(ours, rounds, CLASS)
        _hand_in(plain, rounds, BATCH)
        ended = {course: iter(range(rounds)) for course in (ours, plain)}
        used_s: dict[str, list[float]] = {"allranks grade": [], "nbgrader autograde": []}

        def measured(name: str, command: list[str], course: Path, count: int) -> float:
            clocked: list[float] = []
            call = with_orphans(lambda: clocked.append(clock(lambda: _said(command, course))))
            used_s[name].append(processor_s(call) / count)
            return clocked[0] / count

        def allranks() -> float:
            students = _students(next(ended[ours]), CLASS)
            options = [word for name in students for word in ("--student", name)]
            command = [sys.executable, "-m", "allranks.cli", "grade", LAB, "--course", str(ours), *options]
            return measured("allranks grade", command, ours, CLASS)

        def nbgrader() -> float:
            pattern = f"round{next(ended[plain])}_*"
            command = [sys.executable, "-m", "nbgrader", "autograde", LAB, f"--student={pattern}"]
            return measured("nbgrader autograde", command, plain, BATCH)

        times_s = alternate({"allranks grade": allranks, "nbgrader autograde": nbgrader}, rounds, progress)
        _check(ours / "autograder" / "gradebook.db", rounds * CLASS, 13.0)
        _check(plain / "gradebook.db", rounds * BATCH, 13.0)
    result = Result(
        f"Grading: submissions of {LAB}, three exercises each",
        (
            "variant",
            "submissions a minute, median",
            "slowest to fastest round",
            "processor seconds a submission",
            "allranks grade is this times as fast",
        ),
    )
    fast = times_s["allranks grade"]
    for name, values in times_s.items():
        rates = [60 / value for value in values]
        times = "" if values is fast else f"{1 / ratio(fast, values):.1f}"
        spent = f"{median(used_s[name]):.2f}"
        result.rows.append((name, f"{median(rates):.1f}", f"{min(rates):.1f} to {max(rates):.1f}", spent, times))
    result.notes.append(
        f"{rounds} rounds in alternation, every program's start included: {CLASS} submissions a round for "
        f"allranks grade, {BATCH} for nbgrader. nbgrader as it comes: no sandbox, a cluster of {RANKS} engines "
        "in each notebook, started and stopped by a cell; seven inputs in all. allranks grade: sandboxed "
        "ranks from 1 to 13, every case of the three exercises."
    )
    return result


def _students(number: int, count: int) -> list[str]:
    return [f"round{number}_{i}" for i in range(count)]


def _said(command: list[str], course: Path) -> None:
    folder = course / "autograder" if (course / "autograder").is_dir() else course
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command, cwd=folder, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[2:5])} failed:\n{(done.stdout + done.stderr)[-4000:]}")


def _read(folder: str) -> NotebookNode:
    return nbformat.read(ROOT / folder / LAB / f"{NOTEBOOK}.ipynb", as_version=4)


def _about(cell: NotebookNode) -> dict:
    return cell.metadata.get("nbgrader", {})


def _our_course(root: Path) -> None:
    for folder in ("solutions", "labs"):
        shutil.copytree(ROOT / folder / LAB, root / folder / LAB)
    (root / "autograder").mkdir()
    for path in (ROOT / "autograder").glob("*.py"):
        shutil.copy(path, root / "autograder")
    _said([sys.executable, "-m", "nbgrader", "generate_assignment", LAB, "--force"], root)


def _plain_course(root: Path) -> None:
    """The same answers with tests in cells, in nbgrader's own layout."""
    cells = [nbformat.v4.new_code_cell("import torch\nimport torch.distributed as dist")]
    tests = 0
    for cell in _read("solutions").cells:
        about = _about(cell)
        if cell.cell_type == "code" and about.get("solution"):
            cells.append(cell)
        elif cell.cell_type == "code" and about.get("grade"):
            if not tests:
                cells.append(nbformat.v4.new_code_cell(START))
            cell.source = TESTS[cell.metadata.allranks["exercise"]]
            cells.append(cell)
            tests += 1
    if tests != len(TESTS):
        raise RuntimeError(f"{LAB} has {tests} graded exercises; this bench knows {len(TESTS)}.")
    cells.append(nbformat.v4.new_code_cell(STOP))
    notebook = nbformat.v4.new_notebook(cells=cells, metadata=_read("solutions").metadata)
    path = root / "source" / LAB / f"{NOTEBOOK}.ipynb"
    path.parent.mkdir(parents=True)
    nbformat.write(notebook, path)
    (root / "nbgrader_config.py").write_text(PLAIN_CONFIG, encoding="utf-8")
    _said([sys.executable, "-m", "nbgrader", "generate_assignment", LAB, "--force"], root)


def _hand_in(course: Path, rounds: int, count: int) -> None:
    """The released notebook with every answer right, for each student of each round."""
    plain = not (course / "autograder").is_dir()
    released = nbformat.read(course / ("release" if plain else "labs") / LAB / f"{NOTEBOOK}.ipynb", as_version=4)
    right = {_about(cell)["grade_id"]: cell.source for cell in _read("solutions").cells if _about(cell).get("solution")}
    for cell in released.cells:
        if _about(cell).get("solution") and cell.cell_type == "code":
            cell.source = right[_about(cell)["grade_id"]]
    submitted = course / "submitted" if plain else course / "autograder" / "submitted"
    for student in (name for number in range(rounds) for name in _students(number, count)):
        path = submitted / student / LAB / f"{NOTEBOOK}.ipynb"
        path.parent.mkdir(parents=True)
        nbformat.write(released, path)


def _check(gradebook: Path, count: int, points: float) -> None:
    from nbgrader.api import Gradebook

    with Gradebook(f"sqlite:///{gradebook}") as found:
        scores = [submission.score for submission in found.assignment_submissions(LAB)]
    if scores != [points] * count:
        raise RuntimeError(f"{gradebook} has the scores {scores}; all should be {points}.")
