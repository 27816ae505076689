"""`allranks check` from any shell: the warm server, what files define, where a cause is, --watch, and the pre-commit
hook.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest
from allranks.ranks.engines.forkserver import idle
from waiting import until

pytestmark = pytest.mark.live

ROOT = Path(__file__).resolve().parents[2]
RIGHT = """import torch.distributed as dist


def distributed_mean(tensor):
    x = tensor.contiguous().clone()
    dist.all_reduce(x)
    return x / dist.get_world_size()
"""
WRONG = RIGHT.replace(" / dist.get_world_size()", "")
STUB = "\n\ndef ring_shift(tensor, k):\n    raise NotImplementedError()\n"


@pytest.fixture(scope="module")
def shared():
    """A run directory whose warm server the tests of this file share: it takes seconds to start."""
    path = tempfile.mkdtemp(prefix="art-")
    yield Path(path)
    found = servers(path)
    end_servers(path)
    left = sorted(os.listdir(path))
    shutil.rmtree(path)
    assert len(found) == 1, "a file that is saved beside an answer starts no other server"
    assert not left, f"files left behind: {left}"


@pytest.fixture
def warm(shared, monkeypatch):
    monkeypatch.setenv("ALLRANKS_RUN_DIR", str(shared))
    monkeypatch.setenv(idle.IDLE_ENV, "600")  # longer than any pause between two tests
    return shared


@pytest.fixture
def warm_alone(no_ghosts, monkeypatch):
    """A run directory of the test's own; its server's end is waited for, so that nothing is left."""
    monkeypatch.setenv(idle.IDLE_ENV, "60")
    yield Path(no_ghosts)
    end_servers(no_ghosts)


def end_servers(run_dir: str) -> None:
    for process in servers(run_dir):
        with contextlib.suppress(psutil.NoSuchProcess):  # it may have ended by itself since it was found
            process.terminate()
            process.wait(90)


def servers(run_dir: object) -> list[psutil.Process]:
    """The warm servers of a run directory: not their forks, which have the same command line and may be ending."""
    deadline = time.monotonic() + 60
    while True:
        found = {}
        for process in psutil.process_iter(["cmdline", "ppid"]):
            line = process.info["cmdline"] or []
            if "allranks.ranks.engines.forkserver.idle_server" in line and any(str(run_dir) in part for part in line):
                found[process.pid] = process
        top = [process for process in found.values() if process.info["ppid"] not in found]
        if len(top) <= 1 or time.monotonic() > deadline:
            return top
        time.sleep(0.1)


def check(*arguments: object, **more) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "allranks.cli", "check", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **more)


def test_the_second_call_asks_the_same_server_and_gets_the_same_words(warm, tmp_path):
    (tmp_path / "answer.py").write_text(WRONG)
    alone = check("distributed_mean", "answer.py", cwd=tmp_path, env=os.environ | {idle.IDLE_ENV: "0"})
    calls = [check("distributed_mean", "answer.py", cwd=tmp_path) for _ in range(2)]
    assert [(c.returncode, c.stdout, c.stderr) for c in calls] == [(1, alone.stdout, alone.stderr)] * 2
    assert len(servers(warm)) == 1
    assert warm.stat().st_mode & 0o777 == 0o700
    # in the fork nothing is imported anew: the command itself never imports torch
    line = "import sys; sys.argv[1:] = ['check', 'distributed_mean', 'answer.py']\nfrom allranks.cli import main\n"
    line += "try: main()\nexcept SystemExit as end: print(end.code, 'torch' in sys.modules, 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.stdout.endswith("1 False False\n"), done.stdout + done.stderr


def test_a_failure_begins_with_its_place(warm, tmp_path):
    (tmp_path / "answer.py").write_text(WRONG)
    first = check("distributed_mean", "answer.py", cwd=tmp_path).stdout.splitlines()[0]
    assert first.startswith("answer.py:4: ")
    (tmp_path / "hangs.py").write_text(
        "import torch.distributed as dist\n\n\ndef ring_shift(tensor, k):\n    x = tensor.clone()\n    if "
        "dist.get_world_size() > 1:\n        dist.send(x, (dist.get_rank() + 1) % dist.get_world_size())\n    "
        "return x\n"
    )
    told = check("hangs.py", cwd=tmp_path).stdout
    assert told.startswith("hangs.py:7: "), told
    (tmp_path / "broken.py").write_text("x = 1\ndef ring_shift(tensor, k):\n    return (\n")
    told = check("broken.py", cwd=tmp_path)
    assert told.returncode == 2 and told.stderr.startswith("broken.py:3: "), told.stderr
    cells = [
        {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": s} for s in ("1", WRONG)
    ]
    (tmp_path / "a.ipynb").write_text(json.dumps({"nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": cells}))
    assert check("a.ipynb", cwd=tmp_path).stdout.startswith("a.ipynb: cell 2, line 4: ")


def test_files_alone_are_checked_for_every_exercise_that_is_begun(warm, tmp_path):
    (tmp_path / "answer.py").write_text(RIGHT + STUB)
    done = check("answer.py", "--json", cwd=tmp_path)
    told = json.loads(done.stdout)
    assert done.returncode == 0 and told["passed"] is True
    assert [verdict["exercise"] for verdict in told["verdicts"]] == ["distributed_mean"]
    (tmp_path / "nothing.py").write_text("x = 1\n")
    assert check("nothing.py", cwd=tmp_path).returncode == 0  # a hook sees other files too
    released = ROOT / "labs/lab03_all_reduce/all_reduce.ipynb"
    assert "No" in check(released).stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("ring_shfit", "x.py"), "Did you mean ring_shift?"),
        (("ring_shift",), "Give one file"),
        (("ring_shift", "a.py", "b.py"), "Give one file"),
        (("missing.py",), "There is no file missing.py."),
        (("missing.py", "--watch"), "There is no file missing.py."),
        (("x.py", "--function", "f"), "--function needs the exercise"),
    ],
)
def test_what_can_not_be_checked_is_said_in_one_sentence(no_ghosts, tmp_path, arguments, words):
    done = check(*arguments, cwd=tmp_path)
    assert done.returncode == 2 and words in done.stderr and len(done.stderr.splitlines()) == 1
    told = check(*arguments, "--json", cwd=tmp_path)
    assert words in json.loads(told.stdout)["reason"]


def test_the_server_ends_after_its_idle_time(no_ghosts, tmp_path, monkeypatch):
    monkeypatch.setenv(idle.IDLE_ENV, "0.5")
    (tmp_path / "answer.py").write_text(RIGHT)
    assert check("answer.py", cwd=tmp_path).returncode == 0
    until(lambda: servers(no_ghosts) == [])
    # no_ghosts: nothing of it is left in the run directory


def test_several_first_calls_start_one_server_and_a_killed_one_is_replaced(warm_alone, tmp_path):
    (tmp_path / "answer.py").write_text(RIGHT)
    command = [sys.executable, "-m", "allranks.cli", "check", "answer.py"]
    calls = [subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL) for _ in range(3)]
    assert [call.wait(120) for call in calls] == [0, 0, 0]
    [server] = servers(warm_alone)
    server.kill()
    server.wait(90)
    assert check("answer.py", cwd=tmp_path).returncode == 0
    assert [process.pid for process in servers(warm_alone)] != [server.pid]


def test_a_changed_package_gets_another_server(monkeypatch, tmp_path):
    (tmp_path / "new.py").write_text("")
    before = idle._key(("torch",))
    assert idle._key(("torch",)) == before != idle._key(("numpy",))
    monkeypatch.setattr(idle, "PACKAGE", tmp_path)
    changed = idle._key(("torch",))
    os.utime(tmp_path / "new.py", ns=(1, 1))
    assert len({before, changed, idle._key(("torch",))}) == 3


def test_the_script_and_the_module_ask_one_server(monkeypatch, tmp_path):
    """Python puts the folder of the script `allranks` first, which may be newer than any folder of packages."""
    keys = set()
    for name, time_s in (("bin", time.time() + 60), ("here", time.time() + 120)):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (time_s, time_s))
        monkeypatch.setattr(sys, "path", [str(tmp_path / name), *sys.path[1:]])
        keys.add(idle._key(("torch",)))
    assert len(keys) == 1


def test_where_there_can_be_no_server_the_command_does_the_work(no_ghosts, tmp_path, monkeypatch):
    (tmp_path / "answer.py").write_text(RIGHT)
    monkeypatch.setenv(idle.IDLE_ENV, "60")
    monkeypatch.setenv("ALLRANKS_RUN_DIR", str(tmp_path / ("x" * 90)))  # too long for a socket
    done = check("distributed_mean", "answer.py", cwd=tmp_path)
    assert done.returncode == 0 and "passed" in done.stdout, done.stderr


def test_watch_judges_at_every_save(warm, tmp_path):
    answer = tmp_path / "answer.py"
    answer.write_text(WRONG)
    command = [sys.executable, "-u", "-m", "allranks.cli", "check", "answer.py", "--watch"]
    with open(tmp_path / "out", "w") as out:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=out, stderr=out)

    def wait_for(words: str) -> None:
        deadline = time.monotonic() + 60
        while words not in (tmp_path / "out").read_text():
            assert process.poll() is None and time.monotonic() < deadline, (tmp_path / "out").read_text()
            time.sleep(0.05)

    try:
        wait_for("not yet")
        (tmp_path / "new").write_text(RIGHT)
        os.replace(tmp_path / "new", answer)  # as editors save
        wait_for("distributed_mean: passed")
        answer.write_text("def distributed_mean(\n")
        wait_for("does not parse")
        process.send_signal(signal.SIGINT)
        assert process.wait(90) == 0
    finally:
        process.kill()
        process.wait()


def test_the_hook_is_one_that_pre_commit_takes(warm, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "pre_commit", "validate-manifest", ROOT / ".pre-commit-hooks.yaml"], check=False
    )
    assert done.returncode == 0
    git = {"cwd": tmp_path, "check": True, "capture_output": True, "text": True}
    env = os.environ | {
        "PRE_COMMIT_HOME": str(tmp_path / "cache"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    (tmp_path / "answers.py").write_text(WRONG)
    (tmp_path / ".pre-commit-config.yaml").write_text(
        "repos:\n- repo: local\n  hooks:\n  - {id: allranks-check, name: allranks check, entry: allranks check, "
        "language: system, types_or: [python, jupyter], require_serial: true}\n"
    )
    subprocess.run(["git", "init", "-q", "."], **git)
    subprocess.run(["git", "add", "."], **git)
    command = [sys.executable, "-m", "pre_commit", "run", "allranks-check"]
    refused = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert refused.returncode == 1 and "answers.py:4: " in refused.stdout, refused.stdout + refused.stderr
    (tmp_path / "answers.py").write_text(RIGHT)
    subprocess.run(["git", "add", "."], **git)
    assert subprocess.run(command, cwd=tmp_path, env=env, check=False).returncode == 0
