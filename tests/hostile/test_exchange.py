"""`nbgrader collect` from an exchange into which students have laid what they liked; each folder there is a student's own."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from grading_course import LAB, NOTEBOOK, Course, make_course

pytestmark = [pytest.mark.notebooks, pytest.mark.timeout(600)]

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can lay down files of several accounts")
ADA, EVE = pwd.getpwuid(1).pw_name, pwd.getpwuid(2).pw_name


def lay(inbound: Path, name: str, hour: int, owner: int | None = None) -> Path:
    """A folder as `nbgrader submit` makes it; the path of the notebook that belongs into it."""
    time = f"2026-01-01 {hour:02}:00:00 UTC"
    folder = inbound / f"{name}+{LAB}+{time}+{hour}"
    folder.mkdir()
    (folder / "timestamp.txt").write_text(time, encoding="ascii")
    if owner is not None:
        os.chown(folder, owner, owner)
    return folder / f"{NOTEBOOK}.ipynb"


def dig(folder: Path) -> None:
    """Folders in folders, more than Python can go down into."""
    for _ in range(600):
        folder = folder / "a"
        folder.mkdir()


@pytest.fixture(scope="module")
def collected(tmp_path_factory) -> Iterator[tuple[Course, str]]:
    """The course after collecting, twice, and what was said."""
    course = make_course(tmp_path_factory.mktemp("exchanged"), record=False)
    exchange = tmp_path_factory.mktemp("exchange")
    inbound = exchange / "allranks" / "inbound"
    inbound.mkdir(parents=True)
    solution = course.root / "solutions" / LAB / f"{NOTEBOOK}.ipynb"
    nbformat.write(course.answers(), lay(inbound, "honest", 1))
    lay(inbound, "linked", 1).symlink_to(solution)
    path = lay(inbound, "pipe", 1)
    os.mkfifo(path.parent / "fifo")
    nbformat.write(course.answers(), path)
    for student in ("deep", "twice"):
        nbformat.write(course.answers(), lay(inbound, student, 1))
    dig(lay(inbound, "deep", 2).parent)
    (inbound / f"elsewhere+{LAB}+2026-01-01 01:00:00 UTC+1").symlink_to(solution.parent)
    for junk in (f"x+{LAB}+not a time+1", f"a*+{LAB}+2026-01-01 01:00:00 UTC+1", f"+{LAB}+2026-01-01 01:00:00 UTC+1"):
        (inbound / junk).mkdir()
    if os.geteuid() == 0:
        nbformat.write(course.answers(), lay(inbound, ADA, 1, owner=1))
        nbformat.write(course.notebook("labs"), lay(inbound, ADA, 9, owner=2))  # later, and not hers
    said = course.nbgrader("collect", LAB, f"--Exchange.root={exchange}")
    assert said.returncode == 0, said.stdout
    dig(lay(inbound, "twice", 2).parent)
    again = course.nbgrader("collect", LAB, f"--Exchange.root={exchange}", "--update")
    assert again.returncode == 0, again.stdout
    yield course, said.stdout + again.stdout
    subprocess.run(["rm", "-rf", str(inbound)], check=True)  # pytest can't go down there either


def of(collected: tuple[Course, str], student: str) -> Path:
    return collected[0].root / "autograder" / "submitted" / student / LAB / f"{NOTEBOOK}.ipynb"


def test_honest_work_is_collected_whatever_lies_beside_it(collected):
    assert of(collected, "honest").is_file() and not of(collected, "honest").is_symlink()


def test_a_link_is_collected_as_a_link_and_not_as_what_it_leads_to(collected):
    assert of(collected, "linked").is_symlink()
    assert not of(collected, "elsewhere").exists()
    assert f"elsewhere+{LAB}+2026-01-01 01:00:00 UTC+1 is a symbolic link; it is not collected" in collected[1]


def test_a_pipe_is_left_there_and_named(collected):
    assert of(collected, "pipe").is_file() and not (of(collected, "pipe").parent / "fifo").exists()
    assert "fifo is a pipe, a socket or a device; it is not collected" in collected[1]


def test_a_folder_too_deep_to_be_copied_stops_nobody_and_leaves_what_was_collected_before(collected):
    assert not of(collected, "deep").exists()
    assert of(collected, "twice").is_file()
    for student in ("deep", "twice"):
        record = f"{student}+{LAB}+2026-01-01 02:00:00 UTC+2"
        assert f"{record} has folders nested more than 20 deep; it is not collected" in collected[1]


def test_names_that_say_nothing_are_named_and_stop_nobody(collected):
    for junk in ("x", "a*", ""):
        assert f"'{junk}+{LAB}+" in collected[1]
    assert not list((collected[0].root / "autograder" / "submitted").glob("[xa]*"))


@ROOT
def test_nobody_hands_in_for_somebody_else(collected):
    course, said = collected
    assert f"{ADA}: handed in by {EVE}; it is not collected" in said
    theirs = nbformat.read(of(collected, ADA), as_version=4)
    assert [cell.source for cell in theirs.cells] == [cell.source for cell in course.answers().cells]
