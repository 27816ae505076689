"""The judge is a process that can be held up or brought down; the grader is not."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from waiting import until

from autograder.judge import Died, Judge, JudgeError, NoJudge, OutOfTime, _secret
from autograder.marking import Marker, usable

ROOT = Path(__file__).resolve().parents[2]
IMPORTS = "import torch\nimport torch.distributed as dist"
RIGHT = """
def distributed_mean(tensor):
    total = tensor.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total)
    return total / dist.get_world_size()
"""
ENDLESS = "def distributed_mean(tensor):\n    while True:\n        pass"


@pytest.fixture(scope="module")
def judge():
    made = Judge("bubblewrap")
    yield made
    made.close()


def is_waited_for(judge: Judge) -> bool:
    """Whether another thread waits for this judge's answer."""
    if judge._reading.acquire(blocking=False):
        judge._reading.release()
        return False
    return True


def unread_nbytes(pipe) -> int:
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def kill_once(condition: Callable[[], object], pid: int, number: int) -> None:
    def send() -> None:
        until(condition)
        os.kill(pid, number)

    threading.Thread(target=send, daemon=True).start()


def request(code: str, **more) -> dict:
    return {
        "exercise": "distributed_mean",
        "cells": [IMPORTS, code],
        "filename": "lab.ipynb",
        "secret": 7,
        "wall_s": 60,
    } | more


def test_a_right_answer_passes(judge):
    assert judge.mark(request(RIGHT), 120)["passed"]


@pytest.mark.parametrize(
    "answer",
    [
        "distributed_mean/functional",
        "tensor_parallel_mlp/f_and_g",
        "run_pipeline/with_autograd",
    ],
)
def test_what_torch_imports_late_is_there_in_the_sandbox_too(judge, answer):
    """torch's compiler, which makes a folder when it is imported, and what backward needs."""
    code = (ROOT / "tests" / "exercises" / "right" / f"{answer}.py").read_text()
    assert judge.mark(request(code, exercise=answer.partition("/")[0]), 120)["passed"]


def test_no_function_is_no_points(judge):
    found = judge.mark(request("x = 1"), 60)
    assert (found["passed"], found["score"]) == (False, 0.0)
    assert "has no function distributed_mean" in found["reason"]


ASKS = """
def diagnosis(program):
    from allranks.exercises.diagnosis import truth
    return truth(program, dist.get_world_size())
"""


def test_an_answer_that_asks_the_oracle_finds_none(judge):
    """What the marker knows is not where a submission runs."""
    found = judge.mark(request(ASKS, exercise="diagnosis"), 60)
    assert (found["passed"], found["score"]) == (False, 0.0)
    assert "ModuleNotFoundError" in found["reason"] and "write this part yourself" in found["reason"]


def test_an_exercise_that_is_not_there_is_the_teachers_fault(judge):
    with pytest.raises(JudgeError, match="There is no exercise 'distributed_men'"):
        judge.mark(request(RIGHT, exercise="distributed_men"), 60)
    assert judge._process is None  # what failed once is asked nothing more


def test_past_the_limit_it_is_killed_with_all_its_ranks_and_the_next_one_is_marked(judge):
    judge.mark(request("x = 1"), 60)
    pid = judge._process.pid
    family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    with pytest.raises(OutOfTime, match=r"it took longer than 0\.5 s"):
        judge.mark(request(ENDLESS), 0.5)
    _, alive = psutil.wait_procs(family, timeout=30)
    assert alive == []
    assert judge.mark(request(RIGHT), 120)["passed"]


def test_stopped_by_another_thread_it_says_so_even_where_its_pipe_is_held_open():
    """Nobody hears the end of a pipe that a process of the judge's still holds."""
    judge = Judge("none")
    judge._process = subprocess.Popen(
        ["sh", "-c", "setsid sleep 600 & echo $!; exec sleep 600"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    stray = psutil.Process(int(judge._process.stdout.readline()))
    until(lambda: os.getsid(stray.pid) == stray.pid)  # what kills the judge's group spares it from now on
    found = []

    def wait() -> None:
        with pytest.raises(Died) as raised:
            judge.mark(request(RIGHT), 600)
        found.append(str(raised.value))

    waiting = threading.Thread(target=wait, daemon=True)
    try:
        waiting.start()
        until(lambda: is_waited_for(judge))
        judge.close()
        waiting.join(60)
        assert found == ["the judge was stopped"]
    finally:
        stray.kill()


def test_brought_down_it_says_how_and_the_next_one_is_marked(judge):
    judge.mark(request("x = 1"), 60)
    kill_once(lambda: is_waited_for(judge), judge._process.pid, signal.SIGSEGV)
    with pytest.raises(Died, match="the judge was killed by SIGSEGV"):
        judge.mark(request(ENDLESS), 60)
    assert judge.mark(request(RIGHT), 120)["passed"]


def test_brought_down_while_it_is_asked_it_says_how(judge):
    judge.warm()
    os.kill(judge._process.pid, signal.SIGSTOP)
    kill_once(lambda: unread_nbytes(judge._process.stdin), judge._process.pid, signal.SIGKILL)
    with pytest.raises(Died, match="the judge was killed by SIGKILL"):
        judge.mark(request("x = 1\n" * 200_000), 60)  # more than the pipe holds: it is still being written
    assert judge.mark(request(RIGHT), 120)["passed"]


def test_where_there_is_no_judge_nobody_gets_a_grade(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    marker = Marker()
    for _ in range(3):
        with pytest.raises(NoJudge, match="bubblewrap is missing"):
            marker.mark([request(RIGHT)], "bubblewrap")
    marker.stop()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no sched_setaffinity")
def test_a_judge_keeps_to_its_core_and_a_core_that_is_gone_does_not_stop_it():
    mine = os.sched_getaffinity(0)
    for core, kept in ((min(mine), {min(mine)}), (4096, mine)):
        judge = Judge("none", core)
        try:
            judge.warm()
            assert os.sched_getaffinity(judge._process.pid) == kept
        finally:
            judge.close()
    assert os.sched_getaffinity(0) == mine


def test_judges_are_spread_over_the_cores_that_may_be_used(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5, 8}, raising=False)
    assert sorted(usable()) == [3, 5, 8]
    monkeypatch.delattr(os, "sched_getaffinity")
    assert usable() == []


def test_every_exercise_and_every_text_has_inputs_of_its_own():
    same = _secret(request(RIGHT))
    assert same == _secret(request(RIGHT, filename="other.ipynb", wall_s=7))
    others = [request(RIGHT, exercise="ring_all_reduce"), request(RIGHT + "#"), request(RIGHT, secret=8)]
    assert len({same, *map(_secret, others)}) == 4


def test_text_too_deep_to_be_looked_through_is_told(judge):
    found = judge.mark(request(f"{RIGHT}    torch{'.a' * 600} = 1\n"), 120)
    assert found["passed"]
    assert found["incidents"] == [{"kind": "suspicious", "what": "is nested too deeply to be examined"}]


CHAIN = RIGHT + "X = 1\nif X == 0:\n    Y = 0\n" + "".join(f"elif X == {i}:\n    Y = {i}\n" for i in range(1, 700))


@pytest.mark.parametrize(
    "code", ["(" * 5000 + ")" * 5000, "x = " + "-" * 100_000 + "1", "\0", "def distributed_mean(" * 3000, CHAIN]
)
def test_text_that_upsets_parsers_is_no_points(judge, code):
    try:
        found = judge.mark(request(code + "\n"), 60)
    except Died:
        return  # the grader gives no points for that, and goes on
    assert (found["passed"], found["score"]) == (False, 0.0)


USED = RIGHT.replace("    total =", "    if False:\n        draw(tensor)\n    total =", 1)
HONEST = {
    "matplotlib in a helper": "import matplotlib.pyplot as plt\ndef draw(t):\n    plt.plot(t)\n" + USED,
    "matplotlib in the helper's body": "def draw(t):\n    import matplotlib.pyplot as plt\n    plt.plot(t)\n" + USED,
    "pandas in the helper's body": "def draw(t):\n    import pandas as pd\n    pd.DataFrame(t)\n" + USED,
    "much of the standard library": "import os, sys, inspect, pathlib, pickle, random, time, functools, dataclasses, typing\n"
    "DEBUG = os.environ.get('DEBUG')\n@dataclasses.dataclass\nclass Part:\n    of: typing.Any\n"
    "def draw(t):\n    print(Part(t), DEBUG, sys.path, inspect.stack(), pathlib.Path('.'), pickle.dumps(1), random.random())\n"
    + USED.replace("if False", "if True"),
}


@pytest.mark.parametrize("name", HONEST)
def test_what_honest_programs_import_costs_no_points(judge, name):
    found = judge.mark(request(HONEST[name]), 120)
    assert (found["score"], found["reason"]) == (1.0, "")
    assert {incident["kind"] for incident in found["incidents"]} <= {"suspicious"}


def test_a_process_that_an_answer_starts_is_told_and_named(judge):
    found = judge.mark(request("import os\n" + RIGHT.replace("    total =", "    os.fork()\n    total =")), 60)
    assert "tried to start another process; a rank works alone" in found["reason"]
    assert {"kind": "suspicious", "what": "tried to start other processes"} in found["incidents"]
