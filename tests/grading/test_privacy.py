"""What a course holds about a student is given out whole, and removed without a trace; names of students are in no command line."""

from __future__ import annotations

import json
import os
import shutil
import threading
import zipfile
from pathlib import Path

import pytest
from classes import ANSWER, IN_WORDS, digest, enter, hand_in, lay, typed
from grading_course import LAB, NOTEBOOK, Course, make_course
from nbgrader.api import Gradebook

from autograder import privacy, rubric
from autograder.reading import Reading

pytestmark = [pytest.mark.notebooks, pytest.mark.timeout(900)]
WHO, PARTNER = "zebulon", "ada"
SAID = "Your steps are one too few, says the reader."


def command_lines(until: threading.Event, seen: set[str]) -> None:
    """Collects the command lines of all processes of this machine, as `ps` shows them to every account."""
    while not until.is_set():
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                seen.add(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
            except OSError:
                continue
        until.wait(0.02)


@pytest.fixture(scope="module")
def graded(tmp_path_factory) -> tuple[Course, Path, set[str]]:
    """A course in which zebulon left what one can leave: the course, its exchange, and the command lines while it was made."""
    course = make_course(tmp_path_factory.mktemp("privacy") / "course")
    exchange = tmp_path_factory.mktemp("exchange")
    exchange.chmod(0o777)
    for folder in ("inbound", "feedback"):
        (exchange / "allranks" / folder).mkdir(parents=True)
    folder = course.root / "autograder"
    with open(folder / "nbgrader_config.py", "a", encoding="utf-8") as config:
        config.write(f"\nc.Exchange.root = {str(exchange)!r}\n")
    people = {WHO: ("Zeb", "Quackenbush", "zq@example.org"), PARTNER: ("Ada", "L", ""), "bo": ("Bo", "Li", "")}
    enter(course, people)
    hand_in(course, {"bo": {}}, words=ANSWER)
    lay(exchange / "allranks" / "inbound", WHO, course.answers(lambda g, s: ANSWER if g == "when_not_a_ring" else s))
    (folder / "pairs.csv").write_text(
        f"lab,student,partner,counts\n{LAB},{WHO},{PARTNER},\n{LAB},bo,cy,\n", encoding="utf-8"
    )
    (folder / "class.csv").write_text(f"id,section,grader\n{WHO},A,ida\nbo,A,\n", encoding="utf-8")
    seen: set[str] = set()
    until = threading.Event()
    looking = threading.Thread(target=command_lines, args=(until, seen))
    looking.start()
    try:
        done = typed("course", "run", LAB, "--release", "--json", "--course", course.root)
    finally:
        until.set()
        looking.join()
    assert done.returncode == 0, done.stderr
    reading = Reading(course.root, LAB, who="ida")
    for student in (WHO, "bo"):
        reading.mark(0, student, 1, "")
    with Gradebook(f"sqlite:///{folder / 'gradebook.db'}") as book:  # for one of the pair alone, as in formgrader
        book.find_comment(IN_WORDS, NOTEBOOK, LAB, WHO).manual_comment = SAID
        book.db.commit()
    entry = {"lab": LAB, "student": WHO, "when": "2026-11-24T09:12:00+00:00", "who": "t", "before": 1.0, "after": 2.0}
    lines = [entry, {**entry, "student": "bo"}]
    (folder / "regrades.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return course, exchange, seen


def copy_of(graded, tmp_path: Path) -> tuple[Course, Path]:
    """A copy that a test may change, with its exchange."""
    course, exchange, _ = graded
    shutil.copytree(course.root, tmp_path / "course")
    shutil.copytree(exchange, tmp_path / "exchange")
    config = tmp_path / "course" / "autograder" / "nbgrader_config.py"
    config.write_text(config.read_text().replace(str(exchange), str(tmp_path / "exchange")))
    return Course(tmp_path / "course"), tmp_path / "exchange"


def traces(folder: Path, word: str) -> list[str]:
    """The names and contents of files in which a word stands."""
    found = [str(path) for path in folder.rglob("*") if word in path.name]
    return found + [str(p) for p in folder.rglob("*") if p.is_file() and word.encode() in p.read_bytes()]


def test_no_command_line_has_a_students_name_while_a_lab_is_run(graded):
    lines = graded[2]
    assert any("autograder.grading" in line for line in lines), "the grader was seen"
    assert any("nbgrader collect" in line for line in lines) and any("release_feedback" in line for line in lines)
    assert not [line for line in lines if WHO in line or "Quackenbush" in line]


def test_a_student_gets_all_of_it(graded, tmp_path):
    file = tmp_path / "zebulon.zip"
    done = typed("course", "export", "-", "-o", file, "--course", graded[0].root, stdin=f"{WHO}\n")
    assert done.returncode == 0 and done.stdout.startswith(f"Written to {file}: "), done.stderr
    assert file.stat().st_mode & 0o777 == 0o600
    with zipfile.ZipFile(file) as archive:
        names = archive.namelist()
        about = json.loads(archive.read("student.json"))
    kinds = (
        "autograder/submitted/",
        "autograder/autograded/",
        "autograder/feedback/",
        "exchange/inbound/",
        "exchange/feedback/",
    )
    for kind in kinds:
        assert any(name.startswith(kind) for name in names), (kind, names)
    book = about["gradebook"]
    assert (book["last_name"], book["email"]) == ("Quackenbush", "zq@example.org")
    assert (
        book["labs"][LAB]["marks"]["ring_all_reduce-graded"][0] == 6 and SAID in book["labs"][LAB]["comments"].values()
    )
    assert len(about["pairs"]) == len(about["regrades"]) == 1 and about["class"] == [[WHO, "A", "ida"]]
    assert [(one["student"], one["who"], one["score"]) for one in book["marked"]] == [(WHO, "ida", 1)]
    assert "bo" not in json.dumps(about["regrades"])


def test_a_link_in_the_exchange_leads_to_nobody_elses_secret_or_page(graded, tmp_path):
    """bo's folder there is a link to what was collected from zebulon, whose secret leads to zebulon's page."""
    course, exchange = copy_of(graded, tmp_path)
    theirs = course.root / "autograder" / "submitted" / WHO / LAB
    (exchange / "allranks" / "inbound" / f"bo+{LAB}+2026-11-27 17:10:31.077873 UTC+x").symlink_to(theirs)
    pages = {path.name for path in (exchange / "allranks" / "feedback").iterdir()}
    done = typed("course", "export", "bo", "-o", tmp_path / "bo.zip", "--course", course.root)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(tmp_path / "bo.zip") as archive:
        packed = {Path(name).name for name in archive.namelist()}
    assert not packed & pages
    assert typed("course", "forget", "bo", "--yes", "--course", course.root).returncode == 0
    assert {path.name for path in (exchange / "allranks" / "feedback").iterdir()} == pages and theirs.is_dir()


def test_what_is_changed_while_it_is_packed_shows_nothing_of_the_graders(graded, tmp_path, monkeypatch):
    """A file that becomes a link to the gradebook, and a folder that becomes one to all work, once they have been looked at."""
    course, exchange = copy_of(graded, tmp_path)
    folder = exchange / "allranks" / "inbound" / f"bo+{LAB}+2026-11-27 17:10:31.077873 UTC+x"
    (folder / "more").mkdir(parents=True)
    (folder / "notes.txt").write_text("mine")
    (folder / "more" / "notes.txt").write_text("mine")
    work = course.root / "autograder"
    swapped = {"more": work / "submitted", "notes.txt": work / "gradebook.db"}
    looked, path_looked = os.stat, Path.lstat

    def swap(path: object) -> None:
        name = os.path.basename(str(path))
        if name in swapped and not os.path.islink(folder / name):
            (folder / name).rename(exchange / f"old-{name}")
            (folder / name).symlink_to(swapped[name])

    def looked_at(path, **options):
        about = looked(path, **options)
        if options.get("dir_fd") is not None:
            swap(path)
        return about

    def path_looked_at(path):
        about = path_looked(path)
        if folder == path.parent:
            swap(path)
        return about

    monkeypatch.setattr(os, "stat", looked_at)
    monkeypatch.setattr(Path, "lstat", path_looked_at)
    privacy.export(course.root, "bo", tmp_path / "bo.zip")
    monkeypatch.undo()
    assert any(os.path.islink(folder / name) for name in swapped), "the attack is none"
    with zipfile.ZipFile(tmp_path / "bo.zip") as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    assert not [name for name, found in contents.items() if b"SQLite format" in found or f"/{WHO}/" in name]
    assert any(b"not packed" in found for name, found in contents.items() if name.startswith("exchange/inbound/"))


def test_a_dry_run_removes_nothing_and_forgetting_leaves_no_trace(graded, tmp_path):
    course, exchange = copy_of(graded, tmp_path)
    before = digest(course.root) | digest(exchange)
    dry = typed("course", "forget", WHO, "--dry-run", "--course", course.root)
    assert dry.returncode == 0 and dry.stdout.endswith("Nothing was removed.\n"), dry.stderr
    assert digest(course.root) | digest(exchange) == before
    asked = typed("course", "forget", WHO, "--course", course.root, stdin="n\n")
    assert asked.returncode == 1 and f"Remove all of it? {WHO} can't be brought back" in asked.stdout, asked.stderr
    assert digest(course.root) | digest(exchange) == before
    pages = len(list((exchange / "allranks" / "feedback").iterdir()))
    assert traces(course.root, "Quackenbush") and traces(exchange, WHO)
    done = typed("course", "forget", "-", "--yes", "--json", "--course", course.root, stdin=f"{WHO}\n")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["held"] == dry.stdout.splitlines()[:-1]
    for word in (WHO, "Quackenbush", "zq@example.org", SAID):
        assert traces(course.root, word) == [] and traces(exchange, word) == [], word
    assert len(list((exchange / "allranks" / "feedback").iterdir())) == pages - 1
    with Gradebook(f"sqlite:///{course.root / 'autograder' / 'gradebook.db'}") as book:
        assert [one["who"] for one in rubric.history(book, "bo")] == ["ida"]
    assert (course.root / "autograder" / "class.csv").read_text(encoding="utf-8") == "id,section,grader\nbo,A,\n"
    assert course.scores("bo")["ring_all_reduce-graded"] == 6 and course.scores(PARTNER)["ring_all_reduce-graded"] == 6
    again = typed("course", "forget", WHO, "--yes", "--course", course.root)
    assert again.returncode == 2 and again.stderr.startswith(f"There is nothing about {WHO} in ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("forget", "../bo", "--yes"), "is no student's name"),
        (("forget", "*", "--yes"), "is no student's name"),
        (("forget", "bo", "--json"), "--json asks nothing"),
        (("export", "nobody"), "There is nothing about nobody"),
        (("export", "bo", "-o", "/no/such/folder/bo.zip"), "can't be written"),
    ],
)
def test_bad_input_is_one_sentence_and_removes_nothing(graded, words, said):
    before = digest(graded[0].root)
    done = typed("course", *words, "--course", graded[0].root)
    assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert digest(graded[0].root) == before


def test_whose_first_name_is_the_students_stays_in_the_class_list(graded, tmp_path):
    course, _ = copy_of(graded, tmp_path)
    text = f"id,first_name,section\nbo,{WHO},A\n{WHO},Zeb,A\n"
    (course.root / "autograder" / "class.csv").write_text(text, encoding="utf-8")
    done = typed("course", "forget", WHO, "--yes", "--course", course.root)
    assert done.returncode == 0 and "class.csv: 1 line\n" in done.stdout, done.stderr
    kept = (course.root / "autograder" / "class.csv").read_text(encoding="utf-8")
    assert kept == f"id,first_name,section\nbo,{WHO},A\n"


def test_a_class_list_that_can_not_be_read_is_one_sentence_and_removes_nothing(graded, tmp_path):
    course, _ = copy_of(graded, tmp_path)
    (course.root / "autograder" / "class.csv").write_bytes(f"id,first_name\n{WHO},Zo\xeb\n".encode("latin-1"))
    before = digest(course.root)
    done = typed("course", "forget", WHO, "--yes", "--course", course.root)
    assert done.returncode == 2 and done.stderr.endswith("class.csv can't be read (it is no UTF-8).\n"), done.stderr
    assert done.stderr.count("\n") == 1 and digest(course.root) == before


def test_who_left_the_gradebook_gets_the_marks_that_are_kept(graded, tmp_path):
    course, _ = copy_of(graded, tmp_path)
    with Gradebook(f"sqlite:///{course.root / 'autograder' / 'gradebook.db'}") as book:
        book.remove_student(WHO)
    done = typed("course", "export", WHO, "-o", tmp_path / "z.zip", "--course", course.root)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(tmp_path / "z.zip") as archive:
        marked = json.loads(archive.read("student.json"))["gradebook"]["marked"]
    assert [(one["student"], one["who"], one["score"]) for one in marked] == [(WHO, "ida", 1)]


def test_only_this_account_reads_what_the_commands_write(graded):
    folder = graded[0].root / "autograder"
    written = [*folder.glob("feedback/*/*/*.html"), *folder.glob("autograded/*/*/*.ipynb")]
    assert written and not [
        path for path in written if path.stat().st_mode & 0o077 and os.stat(path.parent).st_mode & 0o077
    ]
