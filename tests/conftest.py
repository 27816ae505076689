"""What all tests share: a run directory of their own, and the count of processes that must not grow."""

import gc
import os
import shutil
import tempfile
import time
from collections.abc import Generator
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parent
# the files that take longest, begun first, then the folders in this order: what takes seconds comes last, so that no worker is left
# alone at the end
LONGEST = (
    "exercises/test_answers.py",
    "notebooks/test_labs_run.py",
    "exercises/test_check.py",
    "grading/test_round_trip.py",
    "grading/test_grade.py",
    "browser/test_site.py",
    "verify/test_steps.py",
    "hub/test_hub.py",
    "hub/test_image.py",
    "kit/test_kit.py",
    "grading/test_student_variants.py",
    "world/test_shared.py",
    "browser/test_live_pages.py",
    "grading/test_labs.py",
    "hostile/test_corpus.py",
    "course/test_wheel.py",
    "cli/test_check_command.py",
    "world/test_world.py",
    "grading/test_autograde.py",
    "notebooks/test_under_nccl_rules.py",
    "notebooks/test_chapter_25.py",
    "house/test_contributing.py",
    "world/test_nccl_rules.py",
    "world/test_profiles.py",
)
FOLDERS = ("grading", "browser", "notebooks", "world", "hostile", "engines", "verify", "cli", "house")


def pytest_collection_modifyitems(config: pytest.Config, items: list) -> None:
    """A run of everything takes each chapter as it is released, leaves the servers out, and begins with the files that take longest.

    Chapters with their answers filled in, what is marked nightly, and servers run in `make test-nightly` and whenever their file
    is named; servers also in `make test-servers`.
    """
    turn = {ROOT / name: number for number, name in enumerate((*LONGEST, *FOLDERS))}
    assert all(path.exists() for path in turn), "LONGEST or FOLDERS names what is not there"
    items.sort(key=lambda item: min(turn.get(path, len(turn)) for path in (item.path, item.path.parent)))
    everything = [Path(argument).resolve() for argument in config.args] == [ROOT]
    if everything and not os.environ.get("ALLRANKS_NIGHTLY"):
        solved = {item for item in items if item.path.parent.name == "notebooks" and "[solved" in item.name}
        servers = set() if config.option.markexpr else {item for item in items if item.get_closest_marker("servers")}
        nightly = {item for item in items if item.get_closest_marker("nightly")}
        left_out = [item for item in items if item in solved | servers | nightly]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def pytest_configure(config: pytest.Config) -> None:
    """Makes the folder that all workers of a run share, for what takes seconds to make."""
    if not hasattr(config, "workerinput"):
        os.environ["ALLRANKS_TEST_SHARED"] = tempfile.mkdtemp(prefix="art-shared-")


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ.pop("ALLRANKS_TEST_SHARED"), ignore_errors=True)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Spares the collector, and each fork of this process, the half million objects that are imported and found."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session", autouse=True)
def private_run_dir():
    """Tests must not meet the worlds of the person who runs them. Short, for sockets have short paths."""
    path = tempfile.mkdtemp(prefix="art-")
    before = {name: os.environ.get(name) for name in ("ALLRANKS_RUN_DIR", "ALLRANKS_FORKSERVER", "ALLRANKS_IDLE_S")}
    os.environ["ALLRANKS_RUN_DIR"] = path
    os.environ.pop("ALLRANKS_FORKSERVER", None)
    os.environ["ALLRANKS_IDLE_S"] = "0"  # `allranks check` leaves no process behind
    yield path
    for name, value in before.items():
        os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def short_path():
    """A directory of this test's own whose path is short enough for sockets, which pytest's tmp_path is not."""
    path = tempfile.mkdtemp(prefix="art-")
    yield Path(path)
    shutil.rmtree(path, ignore_errors=True)


def processes_of(run_dir: str) -> list[psutil.Process]:
    """Every process that belongs to this test run's worlds, by the run directory in its environment; not ourselves."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get("ALLRANKS_RUN_DIR") == run_dir:
                found.append(process)
        except psutil.Error:
            continue
    return [process for process in found if lives(process)]


def lives(process: psutil.Process) -> bool:
    """Whether it has not ended, buried or not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def no_ghosts(tmp_path_factory, monkeypatch):
    """Gives the test a run directory of its own, and fails it if a process or a file of it is left afterwards."""
    path = tempfile.mkdtemp(prefix="art-")
    monkeypatch.setenv("ALLRANKS_RUN_DIR", path)
    yield path
    deadline = time.monotonic() + 10
    while (left := processes_of(path)) and time.monotonic() < deadline:
        time.sleep(0.05)
    names = [f"{p.pid} {' '.join(p.cmdline())[:120]}" for p in left]
    for process in left:
        process.kill()
    files = sorted(os.listdir(path))
    shutil.rmtree(path, ignore_errors=True)
    assert not names, f"processes left behind: {names}"
    assert not files, f"files left behind: {files}"
