"""Sections of a class: one class list for nbgrader and for us, and every command can keep to a section."""

from __future__ import annotations

import csv
import getpass
import json
import shutil
from pathlib import Path

import pytest
from classes import IN_WORDS, enter, lay
from classes import typed_here as typed
from grading_course import LAB, Course
from nbgrader.api import Gradebook

from autograder.reading import Reading
from autograder.sections import SectionsError, chosen


def allranks(course: Course, command: str, *words: object):
    """What `allranks COMMAND LAB ...` said."""
    return typed(command, LAB, "--course", course.root, *words)


pytestmark = [pytest.mark.notebooks, pytest.mark.timeout(900)]
ME = getpass.getuser()
LIST = f"""id,first_name,last_name,email,section,grader
ada,Ada,"Lovelace, Countess",ada@example.org,A,{ME}
bo,Bo,Li,bo@example.org,A,
cy,Bo,Li,cy@example.org,A,joe
di,Di,Ito,,B,joe
ed,Ed,Ito,,B,joe
hal,Hal,Absent,,B,
flo,Flo,Ito,,,
zoe,Zoe,New,,B,
"""


@pytest.fixture
def course(small_class, tmp_path) -> Course:
    """The small class with a class list; nbgrader has not taken it, so zoe is not in the gradebook."""
    made = Course(tmp_path / "course")
    shutil.copytree(small_class.course.root, made.root)
    (made.root / "autograder" / "class.csv").write_text(LIST, encoding="utf-8")
    return made


def test_one_class_list_is_nbgraders_and_names_sections_and_graders(course):
    said = typed("course", "sections", "--course", course.root).stdout
    assert said == (
        f"A: 3 students, graded by {ME}, joe\nB: 4 students, graded by joe\n  not in the gradebook: zoe\n"
        "in no section: 2 students\n"
    )
    done = course.nbgrader("db", "student", "import", "class.csv")
    assert done.returncode == 0, done.stdout
    with Gradebook(f"sqlite:///{course.root / 'autograder' / 'gradebook.db'}") as book:
        assert (book.find_student("zoe").first_name, book.find_student("ed").last_name) == ("Zoe", "Ito")
    assert "zoe" not in typed("course", "sections", "--course", course.root).stdout


def test_of_a_lab_it_says_how_far_each_section_is_and_who_marked(course):
    Reading(course.root, LAB, who="joe").mark(0, "di", 2, "")
    Reading(course.root, LAB, who="joe").mark(0, "bo", 1, "")
    Reading(course.root, LAB, who="ida").mark(0, "ada", 1, "")
    told = json.loads(typed("course", "sections", LAB, "--course", course.root, "--json").stdout)["sections"]
    found = {one["section"]: (one["graded"], one["waiting"], one["marked_by"]) for one in told}
    assert found == {"A": (3, 1, {"ida": 1, "joe": 1}), "B": (2, 1, {"joe": 1}), "": (2, 2, {})}


def test_each_list_keeps_to_the_section(course, tmp_path):
    a = json.loads(allranks(course, "class", "--section", "A", "--json").stdout)
    assert [one["student"] for one in a["students"]] == ["ada", "bo", "cy"]
    assert {student for cause in a["causes"] for student in cause["students"]} == {"bo", "cy"}
    assert a["waiting"] == [{"answer": IN_WORDS, "students": ["ada", "bo", "cy"]}]
    mine = json.loads(allranks(course, "class", "--section", "mine", "--json").stdout)
    assert mine["students"] == a["students"]
    both = json.loads(allranks(course, "class", "--section", "A", "--section", "B", "--json").stdout)
    assert [one["student"] for one in both["students"]] == ["ada", "bo", "cy", "di", "ed", "hal"]
    on_the_map = json.loads(typed("class", "--section", "B", "--course", course.root, "--json").stdout)
    assert on_the_map["students"] == 3
    assert {gap["student"] for idea in on_the_map["ideas"] for gap in idea["gaps"]} <= {"di", "ed"}
    assert [answer.student for answer in Reading(course.root, LAB, chosen(course.root, ["B"])).question(0).answers] == [
        "di",
        "ed",
    ]
    for name in ("bo", "di"):
        (course.submission(name).parent / "regrade.md").write_text("Please.", encoding="utf-8")
    asks = json.loads(allranks(course, "regrade", "--section", "A", "--json").stdout)
    assert [one["student"] for one in asks["requests"]] == ["bo"]
    alike = json.loads(allranks(course, "similar", "--section", "A", "--least", "0.1", "--json").stdout)["pairs"]
    assert all({"ada", "bo", "cy"} & set(pair["students"]) for pair in alike)


def test_the_file_for_another_system_has_the_section_and_names_nobody_else(course, tmp_path):
    done = allranks(course, "export", "moodle", "--section", "A", "-o", str(tmp_path / "m.csv"))
    assert done.returncode == 0 and "3 answers to when_not_a_ring" in done.stderr, done.stderr
    lines = list(csv.DictReader((tmp_path / "m.csv").read_text(encoding="utf-8").splitlines()))
    assert [line["Username"] for line in lines] == ["ada", "bo", "cy"]
    roster = tmp_path / "canvas.csv"
    people = "".join(f'"{name}, X",10{n},{name},{name},S\n' for n, name in enumerate(("ada", "di", "nobody")))
    roster.write_text(f"Student,ID,SIS User ID,SIS Login ID,Section\n{people}", encoding="utf-8")
    done = allranks(
        course, "export", "canvas", "--section", "A", "--roster", str(roster), "-o", str(tmp_path / "c.csv")
    )
    assert done.returncode == 0, done.stderr
    lines = list(csv.DictReader((tmp_path / "c.csv").read_text(encoding="utf-8").splitlines()))
    assert [line["SIS Login ID"] for line in lines[1:]] == ["ada"]
    assert "nobody, X of canvas.csv is not in the gradebook." in done.stderr and "di" not in done.stderr.split()
    assert "bo is not in canvas.csv." in done.stderr and "ed is not" not in done.stderr


def test_grading_and_giving_back_keep_to_the_section(course, tmp_path):
    exchange = tmp_path / "exchange"
    inbound = exchange / "allranks" / "inbound"
    inbound.mkdir(parents=True)
    exchange.chmod(0o777)
    enter(course, {name: ("", "", "") for name in ("ed", "flo", "gus")})
    with open(course.root / "autograder" / "nbgrader_config.py", "a", encoding="utf-8") as config:
        config.write(f"\nc.Exchange.root = {str(exchange)!r}\n")
    for student in ("bo", "di", "hal"):
        lay(inbound, student, course.answers())
    (exchange / "allranks" / "feedback").mkdir()
    done = typed("course", "run", LAB, "--section", "A", "--release", "--course", course.root, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [one["student"] for one in told["changes"]] == ["bo"] and told["missing"] == []
    assert {row["student"] for row in told["rows"]} == {"ada", "bo", "cy"}
    pages = course.root / "autograder" / "feedback"
    assert sorted(path.name for path in pages.glob("*")) == ["ada", "bo", "cy"]
    assert len(list((exchange / "allranks" / "feedback").iterdir())) == 1, "bo's alone came from the exchange"
    graded = allranks(course, "grade", "--section", "B", "--json")
    assert {one["student"] for one in json.loads(graded.stdout)["students"]} == {"di", "ed", "hal"}
    said = allranks(course, "grade", "--section", "B").stdout
    assert "3 answers wait to be read" in said and "3 students, 3 graded" in said, said
    assert typed("course", "run", LAB, "--section", "B", "--dry-run", "--course", course.root).returncode == 0
    assert sorted(path.name for path in pages.glob("*")) == ["ada", "bo", "cy"]


@pytest.mark.parametrize(
    ("text", "names", "said"),
    [
        (LIST, ("C",), "There is no section 'C'. There are: A, B."),
        (LIST.replace(f",A,{ME}", ",A,"), ("mine",), f"{ME} is the grader of no section in autograder/class.csv"),
        (None, ("A",), "There are: none: autograder/class.csv needs a column section."),
        ("id,first_name\nada,Ada\n", ("A",), "There are: none: autograder/class.csv needs a column section."),
        ("student,section\nada,A\n", ("A",), "needs a first line with id."),
        ("id,section\nada,A\nada,B\n", ("A",), "line 3: ada is in A already."),
        ("id,section\n,A\n", ("A",), "line 2: there is no id."),
        ("\udcff", ("A",), "it is no UTF-8"),
    ],
)
def test_a_list_that_is_none_and_a_section_that_is_none_are_one_sentence(tmp_path, text, names, said):
    (tmp_path / "autograder").mkdir()
    if text is not None:
        (tmp_path / "autograder" / "class.csv").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(SectionsError) as refused:
        chosen(tmp_path, names)
    assert said in str(refused.value) and "\n" not in str(refused.value)


def test_a_section_that_is_called_mine_is_that_section(tmp_path):
    (tmp_path / "autograder").mkdir()
    Path(tmp_path / "autograder" / "class.csv").write_text("id,section\nada, mine\nbo,B\n", encoding="utf-8")
    assert chosen(tmp_path, ["mine"]) == {"ada"} and chosen(tmp_path, []) is None


def test_a_command_says_it_in_one_sentence_and_writes_nothing(course, tmp_path):
    for words in (("export", LAB, "moodle", "-o", tmp_path / "x.csv"), ("course", "run", LAB), ("grade", LAB)):
        done = typed(*words, "--section", "C", "--course", course.root)
        assert (done.returncode, done.stderr) == (2, "There is no section 'C'. There are: A, B.\n")
    assert not (tmp_path / "x.csv").exists()
    done = typed("grade", LAB, "--section", "A", "--student", "di", "--course", course.root)
    said = "None of di is in this section: leave --student or --section out.\n"
    assert (done.returncode, done.stderr) == (2, said)
