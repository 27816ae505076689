"""What all tests share: a run directory of their own, and the count of processes that must not grow."""

import contextlib
import gc
import os
import shutil
import tempfile
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import jupyter_lab
import psutil
import pytest
import selection

pytest_plugins = ("recorder", "selection")


@pytest.hookimpl(tryfirst=True)
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


_kept = contextlib.ExitStack()
_pools: list = []
JUDGED = ("exercises", "judge")  # folders of tests that judge answers


@pytest.fixture(scope="module")
def pool(private_run_dir) -> object:
    """Ranks on the wire: one set for all files of a worker that judge answers and follow each other. It forks those
    anew that a test broke.
    """
    from allranks.judge.judging import MAX_RANKS
    from allranks.ranks.wire import Ranks

    if not _pools:
        _pools.append(_kept.enter_context(Ranks(MAX_RANKS)))
    return _pools[0]


@pytest.fixture(scope="module")
def chromium() -> Iterator:
    """Debian's Chromium (or Chrome), driven by Playwright: one for all files of a worker that follow each other and
    need it.
    """
    if jupyter_lab.chromium_program() is None:
        pytest.skip("no Chromium or Chrome is installed, so nothing can be tried in a browser")
    return jupyter_lab.kept_chromium()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Ends what files share before one that does not: asyncio takes no loop beside Playwright's, and some tests
    count processes.
    """
    try:
        return (yield)
    finally:
        if nextitem is None or nextitem.path.parent.name not in JUDGED:
            _pools.clear()
            _kept.close()
        if nextitem is None or not (nextitem.path == item.path or selection.needs_chromium(nextitem.path)):
            jupyter_lab.close_chromium()


@pytest.fixture
def new_page(chromium) -> Iterator:
    """A function that opens a page in a context of its own; an error that a script throws fails the test."""
    contexts, errors = [], []

    def start(**options):
        options = {"viewport": {"width": 1280, "height": 1000}, **options}
        context = chromium.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("pageerror", lambda error: errors.append(str(error)))
        return page

    yield start
    for context in contexts:
        context.close()
    assert not errors, f"scripts threw: {errors}"


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
    deadline = time.monotonic() + 60
    while (left := processes_of(path)) and time.monotonic() < deadline:
        time.sleep(0.05)
    names = [f"{p.pid} {' '.join(p.cmdline())[:120]}" for p in left]
    for process in left:
        process.kill()
    files = sorted(os.listdir(path))
    shutil.rmtree(path, ignore_errors=True)
    assert not names, f"processes left behind: {names}"
    assert not files, f"files left behind: {files}"
