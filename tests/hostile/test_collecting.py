"""Collecting while a student changes what is collected: what they swap, move away or let grow, at the moment that suits them.

Each change is made by a hook at one place, so that nothing here is a race.
"""

from __future__ import annotations

import logging
import os
import pwd
import shutil
import stat
import struct
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from allranks.course.handin import Refused
from nbgrader.api import Gradebook
from nbgrader.coursedir import CourseDirectory
from traitlets.config import Config
from waiting import until_files_are_newer

from autograder import intake
from autograder.intake import Collect, Copier

pytestmark = pytest.mark.timeout(120)

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can lay down files of several accounts")
ADA, EVE = pwd.getpwuid(1).pw_name, pwd.getpwuid(2).pw_name
LAB, NOTEBOOK = "lab", "lab.ipynb"
CHANGED = "vanished or was changed while it was being collected; it is not collected"

hooks: dict[str, Callable[[], None]] = {}  # what is done just before a file of that name is opened, once


def _audit(event: str, arguments: tuple) -> None:
    if hooks and event == "open" and isinstance(arguments[0], str):
        hooks.pop(os.path.basename(arguments[0]), lambda: None)()


sys.addaudithook(_audit)  # there is no way to take one away


@pytest.fixture(autouse=True)
def _no_hooks() -> Iterator[None]:
    yield
    hooks.clear()


@pytest.fixture(scope="module")
def gradebook(tmp_path_factory) -> str:
    """A new gradebook's address; nbgrader takes a second to make one."""
    url = f"sqlite:///{tmp_path_factory.mktemp('gradebook') / 'gradebook.db'}"
    with pytest.MonkeyPatch.context() as patch:  # it starts alembic from the path
        patch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        with Gradebook(url, "allranks") as book:
            book.update_or_create_assignment(LAB)
    return url


class Exchange:
    """A course, and an exchange into which Eve and the honest have handed in."""

    def __init__(self, root: Path, gradebook: str) -> None:
        self.root, self.inbound = root, root / "exchange" / "allranks" / "inbound"
        self.inbound.mkdir(parents=True)
        self.solution = root / "solutions" / NOTEBOOK
        self.solution.parent.mkdir()
        self.solution.write_text("the solution")
        self.config = Config()
        self.config.CourseDirectory.root = str(root)
        self.config.CourseDirectory.course_id = "allranks"
        self.config.CourseDirectory.assignment_id = LAB
        self.config.CourseDirectory.db_url = gradebook
        self.config.CourseDirectory.max_dir_size = 100  # kB
        self.config.Exchange.root = str(root / "exchange")

    def lay(self, student: str, hour: int = 1) -> Path:
        """A submission, of the account that runs the test."""
        folder = self.inbound / f"{student}+{LAB}+2026-01-01 0{hour}:00:00 UTC+x"
        folder.mkdir()
        (folder / "timestamp.txt").write_text(f"2026-01-01 0{hour}:00:00 UTC")
        (folder / NOTEBOOK).write_text(f"{student}'s at {hour}")
        return folder

    def collector(self, update: bool = False) -> Collect:
        collect = Collect(coursedir=CourseDirectory(config=self.config), authenticator=None, config=self.config)
        collect.log = logging.getLogger("collecting")
        collect.update = update
        return collect

    def of(self, student: str) -> Path:
        return self.root / "submitted" / student / LAB

    def check_only_honest(self) -> None:
        """The others' work is there, and nothing of Eve's, not half of it either."""
        assert sorted(os.listdir(self.root / "submitted")) == ["ann", "zoe"]
        for student in ("ann", "zoe"):
            assert os.listdir(self.of(student).parent) == [LAB]
            assert (self.of(student) / NOTEBOOK).read_text() == f"{student}'s at 1"


@pytest.fixture
def exchange(tmp_path, gradebook, caplog) -> Exchange:
    caplog.set_level(logging.INFO)
    made = Exchange(tmp_path, gradebook)
    for student in ("ann", "zoe"):
        made.lay(student)
    return made


def swap(path: Path, make: Callable[[Path], None]) -> Callable[[], None]:
    """Puts something else in the place of a file or folder, in one step."""

    def do() -> None:
        make(path.parent / "other")
        if path.is_dir():
            path.rename(path.parent / "before")
        (path.parent / "other").rename(path)

    return do


def test_a_file_swapped_for_a_link_when_it_is_opened_brings_nothing(exchange, caplog):
    path = exchange.lay("eve") / NOTEBOOK
    hooks[NOTEBOOK] = swap(path, lambda other: other.symlink_to(exchange.solution))
    collect = exchange.collector()
    collect.init_src()
    collect.src_records.sort(key=lambda record: record["username"] != "eve")  # hers is opened first
    collect.copy_files()
    assert not hooks
    exchange.check_only_honest()
    assert f"{path.parent} {CHANGED}" in caplog.text


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_file_swapped_for_what_is_no_file_brings_nothing(exchange, caplog, make):
    path = exchange.lay("eve") / "table.csv"
    path.write_text("1, 2")
    hooks["table.csv"] = lambda: (path.unlink(), make(path))
    exchange.collector().start()
    assert not hooks
    exchange.check_only_honest()
    assert f"{path.parent} {CHANGED}" in caplog.text


def test_a_folder_within_swapped_for_a_link_brings_nothing(exchange, caplog):
    folder = exchange.lay("eve")
    (folder / "data").mkdir()
    hooks["data"] = swap(folder / "data", lambda other: other.symlink_to(exchange.solution.parent))
    exchange.collector().start()
    assert not hooks
    exchange.check_only_honest()
    assert f"{folder} {CHANGED}" in caplog.text


def test_a_submission_swapped_for_a_link_after_it_was_chosen_brings_nothing(exchange, caplog):
    folder = exchange.lay("eve")
    collect = exchange.collector()
    collect.init_src()
    swap(folder, lambda other: other.symlink_to(exchange.solution.parent))()
    collect.copy_files()
    exchange.check_only_honest()
    assert f"{folder} is a symbolic link; it is not collected" in caplog.text


def test_a_submission_swapped_for_a_link_when_it_is_opened_brings_nothing(exchange, caplog):
    folder = exchange.lay("eve")
    hooks[folder.name] = swap(folder, lambda other: other.symlink_to(exchange.solution.parent))
    exchange.collector().start()
    assert not hooks
    exchange.check_only_honest()
    assert f"{folder} {CHANGED}" in caplog.text


@ROOT
def test_a_submission_is_its_students_own_when_it_is_opened(exchange, caplog, monkeypatch):
    theirs, mine = exchange.lay(ADA), exchange.lay(EVE)
    os.chown(theirs, 1, 1)
    os.chown(mine, 2, 2)
    collect = exchange.collector()
    collect.init_src()
    shutil.rmtree(theirs)
    mine.rename(theirs)
    collect.copy_files()
    exchange.check_only_honest()
    assert f"{theirs} was handed in by {EVE}; it is not collected" in caplog.text


@ROOT
def test_a_hard_link_to_somebody_elses_file_brings_nothing(exchange, caplog, monkeypatch):
    folder = exchange.lay(ADA)
    for path in (folder, *folder.iterdir()):
        os.chown(path, 1, 1)
    os.link(exchange.solution, folder / "solution.ipynb")
    os.chown(exchange.solution, 3, 3)
    exchange.collector().start()
    exchange.check_only_honest()
    assert f"{folder} holds a hard link to somebody else's file; it is not collected" in caplog.text


def test_links_are_copied_as_links_and_dates_are_kept(exchange):
    folder = exchange.lay("eve")
    (folder / "data" / "more").mkdir(parents=True)
    (folder / "data" / "more" / "link").symlink_to(exchange.solution)
    (folder / "data" / "folder").symlink_to(exchange.solution.parent)
    os.utime(folder / NOTEBOOK, (1_000_000, 2_000_000))
    exchange.collector().start()
    assert os.readlink(exchange.of("eve") / "data" / "more" / "link") == str(exchange.solution)
    assert os.readlink(exchange.of("eve") / "data" / "folder") == str(exchange.solution.parent)
    assert (exchange.of("eve") / NOTEBOOK).stat().st_mtime == 2_000_000


def test_no_program_that_runs_as_its_owner_becomes_ours(exchange):
    path = exchange.lay("eve") / "program"
    path.write_text("")
    path.chmod(0o6777)
    exchange.collector().start()
    assert not (exchange.of("eve") / "program").stat().st_mode & (stat.S_ISUID | stat.S_ISGID | 0o111)


def test_a_file_that_grows_when_it_is_opened_is_not_collected(exchange, caplog):
    path = exchange.lay("eve") / "big.csv"
    path.write_text("1")
    hooks["big.csv"] = lambda: os.truncate(path, 1 << 20)
    exchange.collector().start()
    assert not hooks
    exchange.check_only_honest()
    assert f"{path.parent} has " in caplog.text
    assert "bytes or more; the limit is 100000; it is not collected" in caplog.text


def test_a_file_that_grows_while_it_is_read_is_cut_off(tmp_path, monkeypatch):
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "big.csv").write_bytes(bytes(10))
    read = os.read

    def grows(handle: int, nbytes: int) -> bytes:
        with open(folder / "big.csv", "ab") as file:
            file.write(bytes(30))
        return read(handle, nbytes)

    monkeypatch.setattr(os, "read", grows)
    with intake._opened(str(folder), os.O_DIRECTORY) as handle, pytest.raises(Refused, match="the limit is 100"):
        Copier(100, os.getuid()).copy_folder(handle, tmp_path / "ours")
    assert (tmp_path / "ours" / "big.csv").stat().st_size <= 100


def test_all_files_together_have_a_limit(exchange, caplog):
    folder = exchange.lay("eve")
    for name in "abc":
        (folder / name).write_bytes(bytes(40_000))
    exchange.collector().start()
    exchange.check_only_honest()
    assert "the limit is 100000; it is not collected" in caplog.text


def test_more_files_than_can_be_graded_are_not_collected(exchange, caplog):
    folder = exchange.lay("eve")
    for number in range(intake.MAX_FILES):
        (folder / str(number)).touch()
    exchange.collector().start()
    exchange.check_only_honest()
    assert f"{folder} has more than {intake.MAX_FILES} files; it is not collected" in caplog.text


def test_a_submission_that_vanishes_before_it_is_looked_at_stops_nobody(exchange, caplog, monkeypatch):
    folder = exchange.lay("eve")
    asked = Collect._is_theirs

    def gone(self: Collect, record: dict) -> bool:
        if record["username"] == "eve" and folder.exists():
            folder.rename(exchange.root / "away")
        return asked(self, record)

    monkeypatch.setattr(Collect, "_is_theirs", gone)
    exchange.collector().start()
    exchange.check_only_honest()
    assert f"{folder} {CHANGED}" in caplog.text


def test_a_submission_that_vanishes_after_it_was_chosen_stops_nobody(exchange, caplog):
    folder = exchange.lay("eve")
    collect = exchange.collector()
    collect.init_src()
    folder.rename(exchange.root / "away")
    collect.copy_files()
    exchange.check_only_honest()
    assert f"{folder} {CHANGED}" in caplog.text


def test_what_was_collected_before_stays_where_the_newer_one_vanishes_half_copied(exchange, caplog):
    exchange.lay("eve")
    exchange.collector().start()
    newer = exchange.lay("eve", hour=2)
    (newer / "table.csv").write_text("1, 2")
    hooks["table.csv"] = lambda: shutil.rmtree(newer)
    exchange.collector(update=True).start()
    assert not hooks
    assert os.listdir(exchange.of("eve").parent) == [LAB]
    assert (exchange.of("eve") / NOTEBOOK).read_text() == "eve's at 1"
    assert f"{newer} {CHANGED}" in caplog.text


def test_only_what_is_newer_takes_an_earlier_ones_place(exchange, caplog):
    exchange.lay("eve")
    exchange.collector().start()
    exchange.lay("eve", hour=2)
    exchange.collector().start()
    assert (exchange.of("eve") / NOTEBOOK).read_text() == "eve's at 1"
    assert f"Submission already exists, use --update to update: eve {LAB}" in caplog.text
    exchange.collector(update=True).start()
    assert (exchange.of("eve") / NOTEBOOK).read_text() == "eve's at 2"
    exchange.collector(update=True).start()
    assert f"No newer submission to collect: eve {LAB}" in caplog.text


@pytest.mark.parametrize("time", ["not a time", "a link", "a pipe", "é"])
def test_a_timestamp_that_holds_no_time_stops_no_later_collecting(exchange, time):
    path = exchange.lay("eve") / "timestamp.txt"
    path.write_text(time, encoding="utf-8")
    if time in ("a link", "a pipe"):
        path.unlink()
        path.symlink_to(exchange.root / "elsewhere")
        os.mkfifo(exchange.root / "elsewhere") if time == "a pipe" else (exchange.root / "elsewhere").write_text("no")
    exchange.collector().start()
    exchange.lay("zoe", hour=2)
    exchange.lay("eve", hour=2)
    exchange.collector(update=True).start()
    for student in ("zoe", "eve"):
        assert (exchange.of(student) / NOTEBOOK).read_text() == f"{student}'s at 2"


def test_a_timestamp_names_no_file_to_be_read_as_a_time_zone(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(intake, "parse_utc", lambda words: asked.append(words))
    zone = tmp_path / "zone"
    zone.write_bytes(b"TZif" + bytes(16) + struct.pack(">6llbB", 0, 0, 0, 0, 1, 4, 3600, 0, 0) + b"ABC\0")
    (tmp_path / "submission").mkdir()
    for path in (zone, f":{zone}", f"../../../../..{zone}"):
        (tmp_path / "submission" / "timestamp.txt").write_text(f"2026-01-01 01:00:00 {path}")
        with pytest.raises(Refused, match=r"timestamp\.txt holds no time"):
            intake.check_files(tmp_path / "submission")
    assert not asked
    monkeypatch.undo()
    for words in ("2026-01-01 01:00:00 UTC", "2026-01-01 01:00:00.5 Europe/Berlin", ""):
        (tmp_path / "submission" / "timestamp.txt").write_text(words)
        intake.check_files(tmp_path / "submission")


def test_a_name_of_a_folder_writes_no_line_of_its_own_into_the_log(exchange, caplog):
    (exchange.inbound / f"eve+{LAB}+2026-01-01 01:00:00 UTC+x\nforged").symlink_to(exchange.root)
    exchange.collector().start()
    exchange.check_only_honest()
    assert "x\\nforged' is a symbolic link; it is not collected" in caplog.text


def test_the_time_is_when_the_files_came_and_not_what_they_say(exchange, caplog):
    """Set back by two days in the name and in timestamp.txt: the time of the files' last change counts."""
    began = time.time() - 1
    exchange.collector().start()
    counted = intake.time_of(exchange.of("ann"))
    assert began <= counted.replace(tzinfo=UTC).timestamp() <= time.time()
    assert "ann: the work says that it was handed in at 2026-01-01 01:00:00 UTC, but its files came" in caplog.text
    kept = exchange.collector()
    kept.by_arrival = False
    folder = exchange.lay("eve")
    kept.start()
    assert (exchange.of("eve") / "timestamp.txt").read_text() == (folder / "timestamp.txt").read_text()


def test_an_honest_time_stays_as_the_student_s_own_command_wrote_it(exchange, caplog):
    now = datetime.now(UTC) - timedelta(seconds=20)
    words = f"{now:%Y-%m-%d %H:%M:%S.%f} UTC"
    folder = exchange.inbound / f"eve+{LAB}+{words}+x"
    folder.mkdir()
    (folder / "timestamp.txt").write_text(words)
    exchange.collector().start()
    assert (exchange.of("eve") / "timestamp.txt").read_text() == words
    assert "eve: the work says" not in caplog.text


def test_work_that_was_changed_in_the_exchange_is_as_new_as_the_change(exchange, tmp_path):
    exchange.collector().start()
    before = intake.time_of(exchange.of("zoe"))
    exchange.collector(update=True).start()
    assert intake.time_of(exchange.of("zoe")) == before
    until_files_are_newer(tmp_path)
    (next(exchange.inbound.glob("zoe*")) / NOTEBOOK).write_text("changed later")
    exchange.collector(update=True).start()
    assert (exchange.of("zoe") / NOTEBOOK).read_text() == "changed later"
    assert intake.time_of(exchange.of("zoe")) > before


def test_only_members_are_collected_and_the_others_are_named(exchange, caplog, tmp_path, monkeypatch):
    url = f"sqlite:///{tmp_path / 'roster.db'}"
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    with Gradebook(url, "allranks") as book:
        book.update_or_create_assignment(LAB)
    exchange.config.CourseDirectory.db_url = url
    exchange.lay("eve")
    exchange.collector().start()
    assert "The gradebook has no students, so everybody's work is collected" in caplog.text
    shutil.rmtree(exchange.root / "submitted")
    with Gradebook(url, "allranks") as book:
        for student in ("ann", "zoe"):
            book.update_or_create_student(student)
    exchange.collector().start()
    exchange.check_only_honest()
    assert "Not collected, because the gradebook does not know them: eve. To collect their work too, add" in caplog.text
    everybody = exchange.collector()
    everybody.members_only = False
    everybody.start()
    assert (exchange.of("eve") / NOTEBOOK).exists()


# ------------------------------------------------------------------------------------------------- requests to mark again


def ask(folder: Path, words: str) -> Path:
    (folder / "regrade.md").write_text(words)
    return folder


def graded(exchange: Exchange, student: str) -> None:
    """The work was collected and graded."""
    exchange.collector().start()
    (exchange.root / "autograded" / student / LAB).mkdir(parents=True)


def test_a_request_is_taken_without_the_notebook_beside_it(exchange, caplog):
    graded(exchange, "ann")
    came = (exchange.of("ann") / "timestamp.txt").read_text()
    ask(exchange.lay("ann", hour=2), "Why 3?")
    ask(exchange.lay("ann", hour=3), "Why 4?")
    exchange.collector(update=True).start()
    assert (exchange.of("ann") / "regrade.md").read_text() == "Why 4?", "of two the later one"
    assert (exchange.of("ann") / NOTEBOOK).read_text() == "ann's at 1"
    assert (exchange.of("ann") / "timestamp.txt").read_text() == came, "a request is never late work"
    assert f"ann asks for a regrade of {LAB}; the notebook beside the request is not collected" in caplog.text


def test_before_the_grading_it_is_a_hand_in_as_any_other(exchange):
    exchange.collector().start()
    ask(exchange.lay("ann", hour=2), "Why?")
    exchange.collector(update=True).start()
    assert (exchange.of("ann") / NOTEBOOK).read_text() == "ann's at 2"


@pytest.mark.parametrize(
    "make",
    [
        lambda path, solution: path.symlink_to(solution),
        lambda path, solution: os.link(solution, path),
        lambda path, solution: os.mkfifo(path),
        lambda path, solution: path.write_text("x" * (intake.MAX_REQUEST_BYTES + 1)),
    ],
)
def test_a_request_that_is_no_small_file_is_not_collected(exchange, caplog, make):
    graded(exchange, "ann")
    make(exchange.lay("ann", hour=2) / "regrade.md", exchange.solution)
    exchange.collector(update=True).start()
    assert sorted(os.listdir(exchange.of("ann"))) == [NOTEBOOK, "timestamp.txt"]
    assert "regrade.md" in caplog.text and "it is not collected" in caplog.text


@ROOT
def test_a_request_in_anothers_name_is_not_collected(exchange, caplog):
    graded(exchange, "ann")
    folder = ask(exchange.lay("ann", hour=2), "Give me more.")
    for path in (folder, *folder.iterdir()):
        os.chown(path, pwd.getpwnam(EVE).pw_uid, -1)
    exchange.collector(update=True).start()
    assert not (exchange.of("ann") / "regrade.md").exists()
    assert f"ann: handed in by {EVE}; it is not collected" in caplog.text
