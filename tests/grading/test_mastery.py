"""`allranks class`: the class over two labs on the story's map, from a real gradebook."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from classes import WRONG
from grading_course import LAB, ROOT, Course

from autograder.mastery import mastery

pytestmark = [pytest.mark.notebooks, pytest.mark.timeout(600)]
SECOND, NOTEBOOK = "lab05_sharding", "sharding"
WHEN = {"bo": {LAB: "2026-10-02", SECOND: "2026-10-16"}, "ada": {LAB: "2026-10-01", SECOND: "2026-10-15"}}


def allranks(course: Course, *words: str) -> subprocess.CompletedProcess:
    program = [str(Path(sys.executable).parent / "allranks"), *words, "--course", str(course.root)]
    return subprocess.run(program, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def course(small_class, tmp_path_factory) -> Course:
    """The small class with a second lab: bo's ring hangs for the same reason as bo's ring before, ada is right."""
    made = Course(tmp_path_factory.mktemp("mastery") / "course")
    shutil.copytree(small_class.course.root, made.root)
    for kind in ("solutions", "labs"):
        shutil.copytree(ROOT / kind / SECOND, made.root / kind / SECOND)
    solved = nbformat.read(ROOT / "solutions" / SECOND / f"{NOTEBOOK}.ipynb", as_version=4)
    for student in WHEN:
        released = nbformat.read(ROOT / "labs" / SECOND / f"{NOTEBOOK}.ipynb", as_version=4)
        right = {c.metadata.nbgrader.grade_id: c.source for c in solved.cells if "nbgrader" in c.metadata}
        for cell in released.cells:
            about = cell.metadata.get("nbgrader", {})
            if about.get("solution"):
                cell.source = right[about["grade_id"]]
                if student == "bo" and about["grade_id"] == "ring_reduce_scatter":
                    cell.source = (WRONG / "ring_reduce_scatter" / "sends_first.py").read_text(encoding="utf-8")
        folder = made.root / "autograder" / "submitted" / student / SECOND
        folder.mkdir(parents=True)
        nbformat.write(released, folder / f"{NOTEBOOK}.ipynb")
        for lab, day in WHEN[student].items():
            path = made.root / "autograder" / "submitted" / student / lab / "timestamp.txt"
            path.write_text(f"{day} 12:00:00 UTC", encoding="ascii")
    for words in (("grade", SECOND), ("grade", LAB, "--student", "bo", "--student", "ada", "--force")):
        done = allranks(made, *words)
        assert done.returncode == 0, done.stdout + done.stderr
    return made


@pytest.fixture(scope="module")
def ideas(course) -> dict:
    return {idea.number: idea for idea in mastery(course.root).ideas}


def test_each_idea_says_who_proved_it_and_who_not_why_since_when(ideas):
    """Chapter 04 checks the ring, chapter 14 its first half; the map of the course says which exercise proves which."""
    ring = ideas["04"]
    assert "ring_all_reduce" in ring.exercises and ring.part.startswith("First hours") and ring.core
    assert "bo" not in ring.proved and "ada" in ring.proved and len(ring.tried) == 7
    (gap,) = [gap for gap in ring.gaps if gap.student == "bo"]
    assert (gap.lab, gap.cause, gap.since[:10]) == (LAB, "sends before it receives", "2026-10-02")
    assert [gap.since for gap in ring.gaps if gap.student == "gus"] == [""], "nobody knows when"
    scatter = ideas["14"]
    assert scatter.proved == ("ada",) and {gap.since[:10] for gap in scatter.gaps} == {"2026-10-16"}
    numbers = [number for number in ideas if number]
    assert numbers == sorted(numbers), "in the order of the story"


def test_a_mistake_that_comes_again_is_named(course):
    (habit,) = [one for one in mastery(course.root).habits if one.student == "bo"]
    assert habit.cause == "sends before it receives" and habit.since[:10] == "2026-10-02"
    assert habit.exercises == ("ring_all_reduce", "ring_reduce_scatter")


def test_the_command_shows_the_map_in_each_form(course, tmp_path):
    text = allranks(course, "class").stdout
    assert "2 labs, 8 students." in text and "bo (since 2026-10-02)" in text and "The same mistake again" in text
    told = json.loads(allranks(course, "class", "--json").stdout)
    assert told["labs"] == [LAB, SECOND] and {idea["number"] for idea in told["ideas"]} >= {"04", "14"}
    page = tmp_path / "map.html"
    assert allranks(course, "class", "--html", str(page)).returncode == 0
    shown = page.read_text(encoding="utf-8")
    assert shown.index("04 All-reduce") < shown.index("14 Reduce-scatter") and "since 2026-10-16" in shown
    assert "default-src 'none'" in shown and "<script" not in shown


def test_an_empty_course_is_one_sentence_and_gets_no_gradebook(tmp_path):
    (tmp_path / "autograder").mkdir()
    shutil.copy(ROOT / "autograder" / "nbgrader_config.py", tmp_path / "autograder")
    done = allranks(Course(tmp_path), "class")
    assert done.returncode == 2 and done.stderr == "No lab is graded yet: type `allranks grade LAB` first.\n"
    assert not (tmp_path / "autograder" / "gradebook.db").exists()
