"""`allranks course init`: a course folder that nbgrader releases from and `allranks grade` grades, with and without a checkout."""

import json
import subprocess
from pathlib import Path

import nbformat
import pytest
from allranks.base import course_files as files
from allranks.cli import main
from allranks.course import teaching
from click.testing import CliRunner
from loading import loaded

ROOT = Path(__file__).resolve().parents[2]
LAB = "lab03_all_reduce"


def run(*arguments: object):
    return CliRunner().invoke(main, ["course", "init", *map(str, arguments)])


@pytest.fixture
def installed(monkeypatch):
    """As from a wheel: there is no checkout to take answers from."""
    monkeypatch.setattr(files, "given", lambda: ROOT)
    monkeypatch.setattr(files, "teacher", lambda: ROOT)
    monkeypatch.setattr(files, "checkout", lambda: None)


def test_it_has_nbgraders_layout_and_a_secret_that_only_the_teacher_reads(tmp_path):
    done = run(tmp_path / "my course", "--lab", LAB, "--name", "ml101")
    assert done.exit_code == 0 and f"allranks grade {LAB} --course '" in done.output, (
        done.output
    )  # its path has a blank
    course = tmp_path / "my course"
    assert sorted(path.name for path in course.iterdir()) == ["autograder", "labs", "solutions"]
    assert (course / "autograder/secret.txt").stat().st_mode & 0o777 == 0o600
    closed = [course, course / "autograder", course / "solutions"]  # answers, work that was handed in, marks
    assert [path.stat().st_mode & 0o777 for path in closed] == [0o700] * 3
    assert int((course / "autograder/secret.txt").read_text()) > 0
    assert "ml101" in (course / "autograder/nbgrader_config.py").read_text()
    name = f"{LAB}/all_reduce.ipynb"
    assert (course / "solutions" / name).read_bytes() == (ROOT / "solutions" / name).read_bytes()
    assert not list(course.rglob("source"))
    run(tmp_path / "another")
    assert (tmp_path / "another/autograder/secret.txt").read_text() != (course / "autograder/secret.txt").read_text()


def test_git_takes_no_key_no_secret_and_no_students_data(tmp_path):
    """In a new course, whose teacher may keep it in a repository, and in this one."""
    course = tmp_path / "course"
    run(course, "--lab", LAB)
    subprocess.run(["git", "init", "-q", course], check=True)
    names = "secret.txt gradebook.db gradebook.db.2026-01-01 pairs.csv class.csv regrades.jsonl submitted/ada/x feedback/ada/x"
    names += " autograded/ada/x lti/key.pem lti/platform.json lti/sent.jsonl"
    wanted = [f"autograder/{name}" for name in names.split()]
    for folder in (course, ROOT):
        ask = ["git", "-C", folder, "check-ignore", "--no-index", "--stdin"]
        done = subprocess.run(ask, input="\n".join(wanted), capture_output=True, text=True, check=False)
        assert done.stdout.split() == wanted, done.stderr
    kept = ["git", "-C", course, "check-ignore", "autograder/nbgrader_config.py", f"solutions/{LAB}/all_reduce.ipynb"]
    assert subprocess.run(kept, capture_output=True, check=False).returncode == 1


def test_without_answers_nbgrader_releases_the_same_labs(installed, tmp_path):
    tool = loaded(ROOT / "tools" / "notebooks.py")
    made = json.loads(run(tmp_path / "course", "--json").output)
    assert made["answers"] is False and len(made["labs"]) == len(list((ROOT / "labs").iterdir()))
    for path in sorted((tmp_path / "course/solutions").glob("*/*.ipynb")):
        released = tool.release(nbformat.read(path, as_version=4), ROOT / "autograder/nbgrader_config.py")
        wanted = nbformat.read(ROOT / "labs" / path.parent.name / path.name, as_version=4)
        assert [cell.source for cell in released.cells] == [cell.source for cell in wanted.cells], path
        assert [cell.metadata for cell in released.cells] == [cell.metadata for cell in wanted.cells], path


def test_bad_requests_are_refused_in_one_sentence_and_make_nothing(tmp_path, installed):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    for arguments, words in (
        (("full",), "not empty"),
        (("full/file",), "not empty"),
        (("full/file/below",), "can't be made"),
        (("new", "--lab", "lab99"), "There is no lab 'lab99'"),
        (("new", "--name", "a b"), "may have letters"),
        (("new", "--answers", tmp_path / "full"), "has no notebook of lab01"),
    ):
        done = run(tmp_path / arguments[0], *arguments[1:])
        assert done.exit_code == 2 and words in done.output and len(done.output.splitlines()) == 1, done.output
    assert [path.name for path in tmp_path.iterdir()] == ["full"]


def test_the_grader_is_the_courses_own_or_the_installed_one(tmp_path, monkeypatch):
    assert teaching.grader_of(ROOT) == ROOT
    assert teaching.grader_of(tmp_path) == ROOT
    monkeypatch.setattr(files, "teacher", lambda: None)
    with pytest.raises(teaching.TeachingError, match="has no grader"):
        teaching.grader_of(tmp_path)
