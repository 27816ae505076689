"""Real forked ranks, shared by the tests: a pool survives most failures and re-forks after the others."""

import contextlib
import gc
import os
import textwrap

import pytest
from allranks.ranks.wire import Program, Ranks


@pytest.fixture(scope="session", autouse=True)
def forked():
    """pytest's plugins may have threads, which are idle: fork all the same. The fork server has a test of its own."""
    before = os.environ.get("ALLRANKS_WIRE_LAUNCH")
    os.environ["ALLRANKS_WIRE_LAUNCH"] = "fork"
    yield
    os.environ.pop("ALLRANKS_WIRE_LAUNCH")
    if before is not None:
        os.environ["ALLRANKS_WIRE_LAUNCH"] = before


@pytest.fixture(scope="session")
def pool(forked):
    with Ranks(8) as ranks:
        yield ranks


@pytest.fixture
def opened():
    """A function that gives the descriptors of this process, each with what it is open on."""

    def look() -> set[tuple[str, str]]:
        gc.collect()  # what other tests have left may go
        found = set()
        for number in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):  # the folder's own is closed again
                found.add((number, os.readlink(f"/proc/self/fd/{number}")))
        return found

    return look


@pytest.fixture
def program():
    """A Program from the body of `f`; its body begins at line 4, and r, p, torch and dist are there."""

    def make(body: str) -> Program:
        head = "import torch, torch.distributed as dist\ndef f(*args):\n"
        setup = "    r, p = dist.get_rank(), dist.get_world_size()\n"
        return Program(
            head + setup + textwrap.indent(textwrap.dedent(body).strip("\n"), "    ") + "\n", "f", "answer.py"
        )

    return make
