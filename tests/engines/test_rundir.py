import os
import subprocess
import sys

import pytest
from allranks.engines.rundir import RunDirError, run_dir, sweep


def test_it_is_made_private(tmp_path, monkeypatch):
    monkeypatch.setenv("ALLRANKS_RUN_DIR", str(tmp_path / "r"))
    made = run_dir()
    assert made == tmp_path / "r"
    assert made.stat().st_mode & 0o777 == 0o700
    assert run_dir() == made


def test_one_that_others_can_enter_is_refused_with_the_mend(tmp_path, monkeypatch):
    monkeypatch.setenv("ALLRANKS_RUN_DIR", str(tmp_path / "r"))
    (tmp_path / "r").mkdir(mode=0o755)
    with pytest.raises(RunDirError, match="chmod 700"):
        run_dir()


def test_a_file_in_its_place_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("ALLRANKS_RUN_DIR", str(tmp_path / "r"))
    (tmp_path / "r").write_text("")
    with pytest.raises(RunDirError, match="ALLRANKS_RUN_DIR"):
        run_dir()


def test_a_link_is_refused(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "r").symlink_to(tmp_path / "elsewhere")
    monkeypatch.setenv("ALLRANKS_RUN_DIR", str(tmp_path / "r"))
    with pytest.raises(RunDirError, match="not a directory"):
        run_dir()


def test_a_path_too_long_for_sockets_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("ALLRANKS_RUN_DIR", str(tmp_path / ("x" * 100)))
    with pytest.raises(RunDirError, match="too long for sockets"):
        run_dir()
    assert list(tmp_path.iterdir()) == []


def test_sweep_removes_what_dead_processes_left_and_nothing_else(tmp_path):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    (tmp_path / f"world-0-{gone.pid}").mkdir()
    (tmp_path / f"world-0-{gone.pid}" / "store").write_text("x")
    (tmp_path / f"parent-{gone.pid}.sock").write_text("")
    (tmp_path / f"world-0-{os.getpid()}").mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    sweep(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["notes.txt", f"world-0-{os.getpid()}"]
