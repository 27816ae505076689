"""A course whose students have variants: `check` shows the one that is graded, a neighbour's answer fails, and teachers see whose is what."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from allranks.base import variants
from allranks.exercises import get
from allranks.judge.variants import of_student
from classes import allranks
from grading_course import LAB, NOTEBOOK, ROOT, Course, make_course

from autograder.github import write as write_workflow
from autograder.gradescope import PackError, pack
from autograder.variants import NoVariants, switch_on

pytestmark = [pytest.mark.notebooks, pytest.mark.timeout(400)]
NAME = "distributed_argmax"
ANSWER = (ROOT / "tests" / "exercises" / "variants" / f"{NAME}.py").read_text(encoding="utf-8")


def program(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    command = [str(Path(sys.executable).parent / "allranks"), *arguments]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)


def variant_of(course: Course, student: str) -> str:
    return of_student(get(NAME), variants.key_of(course.root / "labs" / LAB), student).variant.brief


@pytest.fixture(scope="module")
def course(tmp_path_factory) -> Course:
    """ada answers her own variant; bo hands in what ada wrote, with her number in it."""
    made = make_course(tmp_path_factory.mktemp("drawn"))
    # with this secret the two draw different ranks
    (made.root / "autograder" / "secret.txt").write_text("3\n", encoding="ascii")
    done = program("course", "variants", LAB, "--course", str(made.root))
    assert done.returncode == 0 and f"a variant of {NAME}." in done.stdout, done.stderr
    number = variant_of(made, "ada").rpartition(" ")[2]
    assert variant_of(made, "bo") != variant_of(made, "ada")
    code = ANSWER.replace("MINE = 5", f"MINE = {number}")
    for student in ("ada", "bo"):
        made.submit(student, made.answers(lambda grade_id, right: code if grade_id == NAME else right))
    done = allranks(made, "grade", "--jobs", "1")  # for two a second judge takes longer to start than to mark
    assert done.returncode == 0, done.stdout + done.stderr
    return made


def test_the_judge_marks_each_students_own_variant(course):
    ada, bo = (course.scores(student)[f"{NAME}-graded"] for student in ("ada", "bo"))
    assert ada == 4.0 and bo < 4.0
    assert course.scores("bo")["ring_all_reduce-graded"] == 6.0, "exercises without variants are as they were"


def test_the_overview_names_the_variants(course):
    told = {row["student"]: row for row in json.loads(allranks(course, "class", "--json").stdout)["students"]}
    said = allranks(course, "class").stdout
    for student in ("ada", "bo"):
        assert told[student]["exercises"][NAME]["variant"] == variant_of(course, student)
        assert "variant" not in told[student]["exercises"]["ring_all_reduce"]
        assert f"{student}: {NAME}: {variant_of(course, student)}" in said
    assert "comes first" in told["bo"]["exercises"][NAME]["cause"]


def test_the_feedback_page_names_the_variant(course):
    said = course.nbgrader("generate_feedback", LAB)
    for student in ("ada", "bo"):
        page = (course.root / "autograder" / "feedback" / student / LAB / f"{NOTEBOOK}.html").read_text(
            encoding="utf-8"
        )
        words = variant_of(course, student).rpartition(" ")[2]
        assert f"The variant of {student}: of equal maxima the one of rank {words} comes first" in page, said.stdout


def test_check_shows_the_variant_that_is_graded(course, tmp_path):
    """With the name, and on a hub with the account."""
    lab = tmp_path / LAB
    shutil.copytree(course.root / "labs" / LAB, lab)
    handed_in = course.root / "autograder" / "submitted" / "ada" / LAB / f"{NOTEBOOK}.ipynb"
    shutil.copy(handed_in, lab)
    command = ("check", NAME, str(lab / f"{NOTEBOOK}.ipynb"), "--json")
    named = json.loads(program(*command, "--student", "ada", ALLRANKS_IDLE_S="0").stdout)
    hub = json.loads(program(*command, JUPYTERHUB_USER="bo", ALLRANKS_IDLE_S="0").stdout)
    assert (named["variant"]["brief"], named["passed"]) == (variant_of(course, "ada"), True)
    assert (hub["variant"]["brief"], hub["passed"]) == (variant_of(course, "bo"), False)


def test_similar_says_whose_answer_does_not_do_the_own_variant(course):
    (pair,) = json.loads(allranks(course, "similar", "--json").stdout)["pairs"]
    assert pair["students"] == ["ada", "bo"]
    assert pair["variants"] == [
        f"{NAME}: {variant_of(course, 'ada')}",
        f"{NAME}: {variant_of(course, 'bo')}, and the answer does not do that",
    ]
    assert "and the answer does not do that" in allranks(course, "similar").stdout


def test_a_students_own_file_changes_nothing(course):
    """Who hands in another variants.json is marked by the course's."""
    folder = course.submission("ada").parent
    (folder / variants.FILE).write_text(json.dumps({"lab": LAB, "key": "0" * 32}))
    done = allranks(course, "grade", "--force", "--student", "ada", "--json")
    assert json.loads(done.stdout)["students"][0]["score"] == 13.0, done.stderr


def test_systems_that_know_no_names_refuse(course, tmp_path):
    for make in (
        lambda: pack(course.root, LAB, tmp_path / "x.zip"),
        lambda: write_workflow(course.root, LAB, tmp_path),
    ):
        with pytest.raises(PackError, match="variants"):
            make()


def test_off_is_as_before_and_a_lab_without_any_is_refused(course, tmp_path):
    other = make_course(tmp_path / "other", record=False)
    command = ("course", "variants", LAB, "--course", str(other.root))
    assert program(*command).returncode == 0
    same = program(*command, "--student", "ada")
    assert same.stdout.startswith(f"ada: {NAME}: ties begin at rank")
    assert (other.root / "solutions" / LAB / variants.FILE).exists()
    assert "the same for everybody." in program(*command, "--off").stdout
    assert not list(other.root.rglob(variants.FILE))
    notebook = nbformat.read(other.root / "solutions" / LAB / f"{NOTEBOOK}.ipynb", as_version=4)
    notebook.cells = [c for c in notebook.cells if c.metadata.get("allranks", {}).get("exercise") != NAME]
    nbformat.write(notebook, other.root / "solutions" / LAB / f"{NOTEBOOK}.ipynb")
    with pytest.raises(
        NoVariants, match="No exercise of lab03_all_reduce has variants; these have: distributed_argmax"
    ):
        switch_on(other.root, LAB)


@pytest.mark.nightly
def test_nbgrader_hands_the_file_out(course):
    (course.root / "labs" / LAB / variants.FILE).unlink()
    said = course.nbgrader("generate_assignment", LAB, "--force")
    assert said.returncode == 0, said.stdout
    assert variants.key_of(course.root / "labs" / LAB) == variants.key_of(course.root / "solutions" / LAB)
