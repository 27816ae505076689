"""Every lab: the instructor's answers get all the machine's points, the released notebook none, and what it says fits.

A run of everything marks every third released notebook; all are marked whenever this file or its folder is named, and nightly.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from allranks.exercises import names
from allranks.judge.source import read_source
from grading_course import cell_of, is_answer
from nbformat import NotebookNode

from autograder.feedback import points_for
from autograder.judge import Judge
from autograder.suspect import oddities
from autograder.trusted import is_graded

ROOT = Path(__file__).resolve().parents[2]
LABS = sorted(path.relative_to(ROOT / "solutions") for path in (ROOT / "solutions").glob("*/*.ipynb"))


def read(folder: str, lab: Path) -> NotebookNode:
    return nbformat.read(ROOT / folder / lab, as_version=4)


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def marked(judge: Judge, lab: Path, folder: str) -> dict[str, tuple[float, float]]:
    """(points, of how many) of each machine-graded cell, asked of the judge just as the trusted step asks."""
    cells = code_cells(read(folder, lab))
    sources = ["" if is_graded(cell) else cell.source for cell in cells]
    found = {}
    for cell in filter(is_graded, cells):
        exercise, points = cell.metadata.allranks["exercise"], float(cell.metadata.nbgrader["points"])
        request = {"exercise": exercise, "cells": sources, "filename": lab.name, "secret": 20261, "wall_s": 60}
        verdict = judge.mark(request, 90)
        found[cell.metadata.nbgrader["grade_id"]] = (points_for(verdict, points), points)
    return found


@pytest.fixture(scope="module")
def judge():
    made = Judge("bubblewrap")
    yield made
    made.close()


@pytest.mark.parametrize("lab", LABS, ids=lambda lab: lab.parts[0])
def test_the_solution_gets_all_points(judge, lab):
    right = marked(judge, lab, "solutions")
    assert right, "no cell of this lab is marked by the machine"
    assert {name: got for name, (got, _) in right.items()} == {name: points for name, (_, points) in right.items()}


@pytest.mark.parametrize(
    "lab",
    [pytest.param(lab, marks=pytest.mark.nightly if turn % 3 else ()) for turn, lab in enumerate(LABS)],
    ids=lambda lab: lab.parts[0],
)
def test_the_release_gets_no_points(judge, lab):
    released = marked(judge, lab, "labs")
    assert released and {got for got, _ in released.values()} == {0.0}


@pytest.mark.parametrize("lab", LABS, ids=lambda lab: lab.parts[0])
def test_nothing_in_the_solution_would_be_reported_as_odd(lab):
    cells = code_cells(read("solutions", lab))
    sources = [{"cell_type": "code", "source": "" if is_graded(cell) else cell.source} for cell in cells]
    for cell in filter(is_graded, cells):
        assert oddities(read_source({"cells": sources}, cell.metadata.allranks["exercise"], lab.name)) == []


@pytest.mark.parametrize("lab", LABS, ids=lambda lab: lab.parts[0])
def test_it_says_what_there_is_to_do_and_for_how_many_points(lab):
    """The table on top: every graded exercise with difficulty, minutes and the points that its cell gives."""
    notebook = read("solutions", lab)
    rows = [row.strip().strip("|").split("|") for row in notebook.cells[0].source.splitlines() if row.startswith("|")]
    told = {}
    for row in rows[2:]:
        what, difficulty, minutes, points = (part.strip() for part in row)
        assert re.fullmatch(r"(easy|medium|hard)( to (medium|hard))?", difficulty)
        assert minutes.isdigit()
        told[what.strip("`")] = points
    graded = [c for c in notebook.cells if c.metadata.get("nbgrader", {}).get("grade")]
    for cell in filter(is_graded, graded):
        exercise = cell.metadata.allranks["exercise"]
        assert exercise in names()
        assert told[exercise] == f"{cell.metadata.nbgrader['points']:g}"
        assert f"{cell.metadata.nbgrader['points']:g} * check({exercise}).score" in cell.source
    total = sum(int(found[0]) for points in told.values() if (found := re.match(r"\d+", points)))
    assert total == sum(cell.metadata.nbgrader["points"] for cell in graded)
    assert any(cell.cell_type == "markdown" for cell in graded), "no question is read by a person"


def test_the_instructors_table_is_what_the_labs_are():
    """docs/instructor.md: each lab with its exercises, and the points that machine and person give."""
    text = (ROOT / "docs" / "instructor.md").read_text(encoding="utf-8")
    told = re.findall(r"^\| (lab\w+) \| (.*?) \| .*? \| (\d+) \+ (\d+) \|$", text, re.MULTILINE)
    found = []
    for lab in LABS:
        graded = [c for c in read("solutions", lab).cells if c.metadata.get("nbgrader", {}).get("grade")]
        machine = [c for c in graded if is_graded(c)]
        points = [sum(c.metadata.nbgrader["points"] for c in cells) for cells in (machine, graded)]
        found.append(
            (lab.parts[0], {c.metadata.allranks["exercise"] for c in machine}, points[0], points[1] - points[0])
        )
    assert [(lab, set(re.findall(r"`(\w+)`", what)), int(a), int(b)) for lab, what, a, b in told] == found


@pytest.mark.parametrize("lab", LABS, ids=lambda lab: lab.parts[0])
def test_the_release_gives_no_answer_away(lab):
    solution, released = read("solutions", lab), read("labs", lab)
    for cell in filter(is_answer, solution.cells):
        theirs = cell_of(released, cell.metadata.nbgrader["grade_id"])
        if cell.cell_type == "code":
            assert "NotImplementedError" in theirs.source and "SOLUTION" not in theirs.source
        else:
            assert theirs.source.split() == "YOUR ANSWER HERE".split()


@pytest.mark.notebooks
@pytest.mark.timeout(300)
def test_a_whole_lab_by_nbgrader_itself(tmp_path):
    """All points, none, and a share of them for an answer that is right in part."""
    lab = Path("lab01_point_to_point", "point_to_point.ipynb")
    for folder in ("solutions", "labs"):
        shutil.copytree(ROOT / folder / lab.parent, tmp_path / folder / lab.parent)
    (tmp_path / "autograder").mkdir()
    for path in (ROOT / "autograder").glob("*.py"):
        shutil.copy(path, tmp_path / "autograder")
    shutil.copytree(ROOT / "autograder" / "templates", tmp_path / "autograder" / "templates")
    right, partly = read("solutions", lab), read("labs", lab)
    cell_of(partly, "ring_shift").source = (
        cell_of(right, "ring_shift").source.replace("(rank + k)", "(rank + 1)").replace("(rank - k)", "(rank - 1)")
    )
    for student, notebook in {"ada": right, "bob": partly, "cy": read("labs", lab)}.items():
        hand_in(tmp_path, student, lab, notebook)
    scores = graded(tmp_path, lab.parts[0])
    assert scores["ada"] == (10.0, 15.0)  # 5 points are given by a person
    assert scores["cy"] == (0.0, 15.0)
    assert 0.5 < scores["bob"][0] < 4.0


def hand_in(course: Path, student: str, lab: Path, notebook: NotebookNode) -> None:
    path = course / "autograder" / "submitted" / student / lab
    path.parent.mkdir(parents=True)
    nbformat.write(notebook, path)


def graded(course: Path, lab: str) -> dict[str, tuple[float, float]]:
    """(score, max_score) of each student, from `allranks grade`."""
    program = Path(sys.executable).parent / "allranks"
    said = subprocess.run(
        [program, "grade", lab, "--course", course, "--jobs", "1", "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 0, said.stdout + said.stderr
    return {row["student"]: (row["score"], row["max_score"]) for row in json.loads(said.stdout)["students"]}
