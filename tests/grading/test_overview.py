"""`allranks class`: who is stuck where, from a small class that was really graded."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace

import nbformat
import pytest
from classes import OFF, ROSTER, SENDS, SMALL, WHOLE, allranks, hand_in
from grading_course import LAB, Course, make_course

from autograder.class_page import as_html, as_text
from autograder.classroom import OLD, Overview, Row, first_lines, overview

pytestmark = pytest.mark.notebooks


@pytest.fixture(scope="module")
def found(small_class) -> Overview:
    return overview(small_class.course.root, LAB)


def test_the_commonest_causes_are_named_with_their_students(found):
    told = {(c.exercise, c.mistake): c.students for c in found.causes}
    assert told == {
        ("ring_all_reduce", SENDS): ("bo", "cy", "di"),
        ("ring_all_reduce", OFF): ("ed", "flo"),
        ("ring_all_reduce", WHOLE): ("gus",),
        ("distributed_mean", "the sum instead of the mean"): ("di", "flo"),
    }
    assert found.causes[0].mistake == SENDS


def test_grade_ends_with_the_first_lines(small_class, found):
    assert small_class.said.rstrip().endswith("\n".join(first_lines(found)))
    assert f"3 of 7: {SENDS} (ring_all_reduce)" in small_class.said
    assert "7 answers wait to be read: when_not_a_ring" in small_class.said


def test_who_handed_in_nothing_is_there(found):
    assert {row.student for row in found.rows} == {*SMALL, *ROSTER}
    (hal,) = (row for row in found.rows if row.student == "hal")
    assert (hal.state, hal.score, hal.marks) == ("not handed in", None, {})


def test_points_are_the_gradebooks(small_class, found):
    for row in found.graded:
        scores = small_class.course.scores(row.student)
        assert {cell: mark.score for cell, mark in row.marks.items() if not mark.waits} == {
            cell: score for cell, score in scores.items() if score is not None
        }
    assert all(row.marks["when_not_a_ring"].waits for row in found.graded)


def test_the_hardest_cases_are_those_that_good_answers_fail(found):
    assert found.hardest[0].case == "sends that wait for their receiver"
    assert (found.hardest[0].failed, found.hardest[0].tried) == (3, 5)


def test_the_text_has_names_apart_and_the_worst_first(found):
    lines = as_text(found).splitlines()
    assert any(line.startswith("bo (Bo Li) ") for line in lines) and any(
        line.startswith("cy (Bo Li) ") for line in lines
    )
    order = [
        next(i for i, line in enumerate(lines) if line.startswith(who)) for who in ("flo", "ed", "bo", "ada", "hal")
    ]
    assert order == sorted(order)


def test_the_page_loads_nothing_and_escapes_names(found):
    rows = (*found.rows, Row("<script>x", "", "", "", "graded", 1.0, marks={}))
    page = as_html(Overview(found.lab, found.due, found.parts, rows))
    assert "<script>x" not in page and "&lt;script&gt;x" in page
    # a drawing is in the page itself, and the name of SVG loads nothing
    links = (
        page.replace("http://www.w3.org/", "").replace("http-equiv", "").replace('src="data:image/svg+xml;base64,', "")
    )
    assert not re.findall("http|src=", links)
    assert f"<b>{SENDS}</b><b>3</b>" in page


def test_show_in_class_has_one_run_of_each_mistake_and_no_name(found):
    page = as_html(found)
    shown = re.findall(
        r'<div popover id="(\w+)" class="show">(.*?)popovertargetaction="hide">Back</button></div>', page, flags=re.S
    )
    assert len({name for name, _ in shown}) == len(shown) == len(found.causes)
    assert all(page.count(f'popovertarget="{name}"') == 2 for name, _ in shown), "its button, and Back"
    theirs = {cause.mistake: body for cause in found.causes for _, body in shown if f"<h1>{cause.mistake}</h1>" in body}
    assert set(theirs) == {cause.mistake for cause in found.causes}
    assert "3 of 7" in theirs[SENDS] and "sends that wait for their receiver" in theirs[SENDS]
    assert all("<style>.ar-theme" in body for body in theirs.values()), "the grader's card"
    for body in theirs.values():
        words = set(re.findall(r"\w+", re.sub(r"<[^>]*>", " ", body)))
        assert not words & {*SMALL, *ROSTER, *(part for row in found.rows for part in row.name.split())}
    assert "card" not in json.dumps(found.to_dict())


def test_the_command_prints_json_or_writes_a_page(small_class, tmp_path):
    told = json.loads(allranks(small_class.course, "class", "--json").stdout)
    first = {"exercise": "ring_all_reduce", "mistake": SENDS, "students": ["bo", "cy", "di"]}
    assert told["causes"][0] == first | {"counted_by": ["FAILURE", "DEADLOCK", "SENDS_FIRST", "send"]}
    assert [part["name"] for part in told["exercises"]][-1] == "when_not_a_ring"
    page = tmp_path / "class.html"
    done = allranks(small_class.course, "class", "--html", str(page))
    assert done.returncode == 0 and page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert page.stat().st_mode & 0o077 == 0, "marks are the teacher's to read"
    done = allranks(small_class.course, "class", "--html", str(tmp_path / "no" / "page"))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1) and "can't be written" in done.stderr


def test_a_lab_that_nobody_graded_is_one_sentence(tmp_path):
    course = make_course(tmp_path, record=False)
    done = allranks(course, "class")
    assert done.returncode == 2
    assert done.stderr == f"{LAB} is not in the gradebook yet: type `allranks grade {LAB}` first.\n"
    assert not (course.root / "autograder" / "gradebook.db").exists(), "looking changes nothing"


def test_work_that_was_graded_before_says_so(small_class, tmp_path):
    shutil.copytree(small_class.course.root, tmp_path / "course")
    course = Course(tmp_path / "course")
    path = course.root / "autograder" / "autograded" / "ed" / LAB / "all_reduce.ipynb"
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            output.pop("metadata", None)
            if output.output_type != "stream":
                output["metadata"] = {}
    nbformat.write(notebook, path)
    hand_in(course, {"new": {}})
    found = overview(course.root, LAB)
    assert [c.students for c in found.causes if c.mistake == OLD] == [("ed",)]
    assert next(row.state for row in found.rows if row.student == "new") == "not graded"


@pytest.mark.browser
def test_a_class_of_300_is_filtered_and_sorted_mistakes_first(found, new_page, tmp_path):
    """The rows are those of the small class, each under many names; the script is the page's own."""
    rows = [replace(row, student=f"{row.student}{n:03}") for n in range(38) for row in found.rows][:300]
    evil = "<img src=x onerror=document.title=1>"
    rows[7] = replace(rows[7], student=evil, first_name="</script><script>document.title=1</script>")
    times = "2026-11-02T12:00:00+00:00", "2026-11-01T12:00:00+00:00"
    rows[8:10] = [replace(row, late_s=3600.0, handed_in=time) for row, time in zip(rows[8:10], times, strict=True)]
    big = Overview(found.lab, found.due, found.parts, tuple(rows))
    file = tmp_path / "class.html"
    file.write_text(as_html(big), encoding="utf-8")
    page = new_page(offline=True)
    page.goto(file.as_uri())
    first = page.locator("#rows tr:not([hidden])")
    assert page.locator("#shown").inner_text() == "300 of 300 students" and page.title() == found.lab
    mistakes, table = page.locator("section"), page.locator("table").last
    assert mistakes.bounding_box()["y"] < table.bounding_box()["y"], "mistakes come first"
    page.locator("#words").fill("bo003")
    assert first.count() == 1 and page.locator("#shown").inner_text() == "1 of 300 students"
    page.locator("#words").fill("")
    for state, count in {
        "ungraded": sum(row.state != "graded" for row in rows),
        "late": 2,
        "waits": sum(any(mark.waits for mark in row.marks.values()) for row in rows),
        "lost": sum(row.score is not None and not row.student.startswith("ada") for row in rows),
        "": 300,
    }.items():
        page.locator("#state").select_option(state)
        assert first.count() == count > 0, state
    page.locator("section summary").first.click()
    page.locator("button.only").first.click()
    assert first.count() == int(page.locator("section summary b").nth(1).inner_text()) > 1
    page.locator("#all").click()
    page.get_by_role("button", name="sum").click()
    sums = [float(text) for text in page.locator("td.sum").all_inner_texts() if text]
    assert sums == sorted(sums, reverse=True) and len(sums) == len(big.graded)
    page.get_by_role("button", name="sum").click()
    assert [float(text) for text in page.locator("td.sum").all_inner_texts() if text] == sorted(sums)
    for place in range(page.locator("button.sort").count()):  # each column: down, then up
        head = page.locator("button.sort").nth(place)
        for order in ("descending", "ascending"):
            head.click()
            column = page.locator("thead th").nth(place)
            assert column.get_attribute("aria-sort") == order
            cells = page.locator(f"#rows tr > :nth-child({place + 1})")
            values = cells.evaluate_all("cells => cells.map(cell => cell.dataset.value)")
            there = [value for value in values if value]
            assert values == there + [""] * (len(values) - len(there)), "who has nothing comes last"
            if 0 < place < page.locator("button.sort").count() - 1:  # between the names and the times
                there = [float(value) for value in there]
            assert there == sorted(there, reverse=(order == "descending") == (place > 0)), (place, order)
