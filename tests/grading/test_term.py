"""`allranks course run`, `due` and `late`, and `allranks regrade --dry-run`: what a dry run shows is what then happens, and it writes nothing."""

from __future__ import annotations

import csv
import json
import re
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from classes import ROSTER, digest, enter, lay, typed, wrong
from grading_course import LAB, NOTEBOOK, ROOT, Course
from nbgrader.api import Gradebook

from autograder.commands import _term
from autograder.commands._term import _summary

pytestmark = [pytest.mark.notebooks, pytest.mark.timeout(900)]

NEW = "ed hal".split()  # ed hands in anew, hal for the first time


def of_course(course: Course, *words: object) -> dict:
    done = typed("course", *words, "--course", course.root, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def course(small_class, tmp_path_factory) -> Course:
    """The small class with an exchange: ed hands in right answers, then a worse one of gus comes, and hal's first."""
    made = Course(tmp_path_factory.mktemp("term") / "course")
    shutil.copytree(small_class.course.root, made.root)
    enter(made, {**ROSTER, **{name: ("", "", "") for name in ("ed", "flo", "gus")}})
    exchange = tmp_path_factory.mktemp("exchange")
    exchange.chmod(0o777)
    inbound = exchange / "allranks" / "inbound"
    inbound.mkdir(parents=True)
    with open(made.root / "autograder" / "nbgrader_config.py", "a", encoding="utf-8") as config:
        config.write(f"\nc.Exchange.root = {str(exchange)!r}\n")
    lay(inbound, "ed", made.answers())
    lay(inbound, "hal", made.answers())
    lay(inbound, "gus", made.answers(lambda name, right: wrong(name, "sum") if name == "distributed_mean" else "pass"))
    return made


@pytest.fixture(scope="module")
def runs(course, tmp_path_factory) -> tuple[dict, dict, Path]:
    """What the dry run said, what the run said, and the file with the points."""
    before = digest(course.root)
    trial = typed("course", "run", LAB, "--course", course.root, "--dry-run", "--json")
    assert trial.returncode == 0, trial.stderr
    assert digest(course.root) == before
    file = tmp_path_factory.mktemp("points") / "moodle.csv"
    export = ["--export", "moodle", "--zero-missing", "-o", file]
    done = typed("course", "run", LAB, "--course", course.root, "--json", *export)
    assert done.returncode == 0, done.stderr
    return json.loads(trial.stdout), json.loads(done.stdout), file


def test_a_dry_run_shows_what_then_happens_and_writes_nothing(runs):
    trial, done, _ = runs
    assert trial["changes"] == done["changes"] and trial["waiting"] == done["waiting"]
    assert trial["dry_run"] and not done["dry_run"] and not (trial.get("feedback") or trial.get("export"))


def test_it_says_whose_points_change_and_why(runs):
    changes = {one["student"]: one for one in runs[1]["changes"]}
    assert set(changes) == {"ed", "gus", "hal"}  # nobody else's work is new
    assert (changes["hal"]["before"], changes["hal"]["after"]) == (None, 13)
    assert changes["hal"]["why"][0] == "graded for the first time"
    assert changes["ed"]["after"] > changes["ed"]["before"] and not changes["ed"]["down"]
    assert changes["gus"]["down"] and changes["gus"]["why"][0].startswith("handed in anew, 20")
    assert "distributed_mean: 3 -> 0 of 3" in " ".join(changes["gus"]["why"])
    assert any("sum instead of the mean" in why for why in changes["gus"]["why"]), changes["gus"]


def test_it_ends_with_pages_and_the_file(course, runs):
    rows = list(csv.DictReader(runs[2].read_text(encoding="utf-8").splitlines()))
    points = {row["Username"]: row[f"{LAB}: distributed_mean"] for row in rows}
    assert points["hal"] == "3" and points["gus"] == "0"
    pages = course.root / "autograder" / "feedback"
    assert sorted(path.parents[1].name for path in pages.glob("*/*/*.html")) == sorted(
        "ada bo cy di ed flo gus hal".split()
    )
    assert runs[1]["export"]["students"] == len(rows)


def test_due_dates_and_late_rules_by_command_also_for_work_that_is_graded(course, runs):
    before = digest(course.root)
    assert of_course(course, "due", LAB)["due"] is None
    trial = of_course(course, "due", LAB, "2026-01-01 12:00", "--dry-run")
    assert trial["due"] == "2026-01-01 12:00 UTC" and trial["changes"] == []  # no rule takes anything off yet
    assert digest(course.root) == before
    assert of_course(course, "due", LAB, "2026-01-01 13:00+01:00")["due"] == "2026-01-01 12:00 UTC"
    before = digest(course.root)
    trial = of_course(course, "late", LAB, 10, "--most", 50, "--dry-run")
    assert of_course(course, "late", LAB, 10, "--grace", 10**7, "--dry-run")["changes"] == []
    assert digest(course.root) == before
    late = {one["student"]: one for one in trial["changes"]}
    assert set(late) == {"ed", "hal"}  # gus has no points to lose, and the others' work has no time
    assert late["hal"] == {"student": "hal", "before": 0, "after": 6.5}
    assert of_course(course, "late", LAB, 10, "--most", 50)["changes"] == trial["changes"]
    assert of_course(course, "late", LAB) == {**trial, "dry_run": False, "changes": []}
    said = typed("course", "late", LAB, "--course", course.root).stdout
    assert said == f"{LAB}: 10 % for each day begun, at most 50 %.\n"
    with Gradebook(f"sqlite:///{course.root / 'autograder' / 'gradebook.db'}") as book:
        assert book.find_submission(LAB, "hal").late_submission_penalty == 6.5
        book.find_grade("when_not_a_ring", NOTEBOOK, LAB, "hal").manual_score = 2.0
        book.db.commit()
    # nbgrader's own step has the same rule, and points given by hand count once the lab is settled again
    done = of_course(course, "run", LAB, "--no-collect", "--no-feedback")
    assert [one["student"] for one in done["changes"]] == ["hal"] and done["changes"][0]["after"] == 7.5
    said = course.nbgrader("autograde", LAB, "--student", "hal", "--force").stdout
    with Gradebook(f"sqlite:///{course.root / 'autograder' / 'gradebook.db'}") as book:
        assert book.find_submission(LAB, "hal").late_submission_penalty == 7.5, said
    assert [one["after"] for one in of_course(course, "late", LAB, "--off")["changes"]] == [0, 0]
    assert of_course(course, "due", LAB, "--never")["due"] is None


def test_a_plugin_of_ones_own_takes_no_rule_neither_tried_nor_given(course, runs, tmp_path):
    shutil.copytree(course.root, tmp_path / "course")
    own = Course(tmp_path / "course")
    (page,) = re.findall(  # the plugin of the page, and the line that names it
        r"```python\n(from nbgrader.plugins import BasePlugin.*?)```.*?```python\n(c\.AssignLate.*?)```",
        (ROOT / "docs" / "instructor.md").read_text(encoding="utf-8"),
        flags=re.S,
    )
    (own.root / "autograder" / "late.py").write_text(page[0], encoding="utf-8")
    with open(own.root / "autograder" / "nbgrader_config.py", "a", encoding="utf-8") as config:
        config.write(f"\n{page[1]}")
    before = digest(own.root)
    for options in (["--dry-run"], []):
        done = typed("course", "late", LAB, 50, *options, "--course", own.root)
        assert done.returncode == 2 and done.stderr.startswith("autograder.late.TenPercentADay decides on late work")
        assert done.stderr.count("\n") == 1 and digest(own.root) == before
    trial = of_course(own, "due", LAB, f"{datetime.now(UTC) - timedelta(hours=1):%Y-%m-%d %H:%M}", "--dry-run")
    with Gradebook(f"sqlite:///{own.root / 'autograder' / 'gradebook.db'}") as book:
        tenth = {name: pytest.approx(0.1 * book.find_submission(LAB, name).score) for name in ("ed", "hal")}
    assert {one["student"]: one["after"] for one in trial["changes"]} == tenth


def test_a_regrade_can_be_tried_and_says_when_marks_would_go_down(course, runs):
    with Gradebook(f"sqlite:///{course.root / 'autograder' / 'gradebook.db'}") as book:
        book.find_grade("distributed_mean-graded", NOTEBOOK, LAB, "bo").auto_score = 2.0
        book.find_grade("ring_all_reduce-graded", NOTEBOOK, LAB, "cy").auto_score = 6.0
        book.db.commit()
    (course.submission("bo").parent / "regrade.md").write_text("My mean is right.", encoding="utf-8")
    before = digest(course.root)
    waits = typed("regrade", LAB, "--course", course.root, "--dry-run").stdout  # alone: of all who ask
    assert "bo: " in waits and "cy: " not in waits and "distributed_mean: 2 -> 3 of 3" in waits, waits
    assert waits.endswith("Nothing was written.\n")
    # the whole lab again, as before a new version of the course is used
    again = typed("course", "run", LAB, "--course", course.root, "--no-collect", "--force", "--dry-run").stdout
    lines = again.splitlines()
    assert digest(course.root) == before
    bo, cy = (next(n for n, line in enumerate(lines) if line.startswith(f"{name}: ")) for name in ("bo", "cy"))
    assert lines[bo + 1] == "  distributed_mean: 2 -> 3 of 3" and "LESS" not in lines[bo], again
    assert lines[cy].endswith(", LESS than before") and lines[cy + 1].startswith("  ring_all_reduce: 6 -> "), again
    assert lines[cy + 2 : cy + 4] == [
        "2 students would get other points than before.",
        "1 of them would have LESS than before: cy.",
    ]
    assert "wait to be read: when_not_a_ring" in again and lines[-1] == "Nothing was written."
    words = "regrade", LAB, "--course", course.root, "--student", "bo", "--student", "cy"
    trial = typed(*words, "--dry-run")
    assert trial.returncode == 0, trial.stderr
    assert digest(course.root) == before
    assert "distributed_mean: 2 -> 3 of 3" in trial.stdout and "1 would go down: cy." in trial.stdout
    assert trial.stdout.endswith("Nothing was written.\n")
    done = json.loads(typed(*words, "--json").stdout)
    assert done["down"] == ["cy"] and [one["student"] for one in done["students"]] == ["bo", "cy"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("due", LAB, "next week"), "'next week' is no time: write for example"),
        (("due", "lab99"), "There is no lab 'lab99'."),
        (("late", LAB, "10", "--off"), "not both"),
        (("run", LAB, "--zero-missing"), "give --export too"),
    ],
)
def test_bad_input_is_one_sentence(course, words, said):
    done = typed("course", *words, "--course", course.root)
    assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize(
    ("names", "dry_run", "said"),
    [
        (["bo"], False, ["1 student gets other points than before.", "1 of them has LESS than before: bo."]),
        (["bo", "cy"], False, ["2 students get other points than before.", "2 of them have LESS than before: bo, cy."]),
        (["bo"], True, ["1 student would get other points than before.", "1 of them would have LESS than before: bo."]),
    ],
)
def test_the_summary_counts_in_words(names, dry_run, said):
    done = {part: [] for part in ("collected", "pairs", "lines", "missing", "waiting")}
    done |= {"dry_run": dry_run, "changes": [{"student": name, "down": True} for name in names]}
    assert _summary(done, LAB, "")[:2] == said


def test_a_rule_needs_the_lab_in_the_gradebook_and_makes_none(tmp_path):
    made = typed("course", "init", tmp_path / "new", "--lab", LAB)
    assert made.returncode == 0, made.stderr
    done = typed("course", "late", LAB, "10", "--course", tmp_path / "new")
    assert done.returncode == 2 and "is not in the gradebook yet" in done.stderr
    assert not (tmp_path / "new" / "autograder" / "gradebook.db").exists()


def test_what_nbgrader_says_of_every_page_is_left_out(monkeypatch, tmp_path):
    said = ["Removing existing assignment: feedback/bo", "Late submission penalty: 0.9", "flo: the page says only: x"]
    monkeypatch.setattr(_term, "nbgrader", lambda *_, **__: (0, list(said)))
    assert _term._feedback(tmp_path, LAB, False, None) == said[2:]
