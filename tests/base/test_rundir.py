import os
import subprocess
import sys
import tempfile

import pytest
from allranks.base.rundir import RunDirError, run_dir, sweep


def test_it_is_made_private(short_path, monkeypatch):
    monkeypatch.setenv("ALLRANKS_RUN_DIR", str(short_path / "r"))
    made = run_dir()
    assert made == short_path / "r"
    assert made.stat().st_mode & 0o777 == 0o700
    assert run_dir() == made


def test_one_that_others_can_enter_is_refused_with_the_mend(short_path, monkeypatch):
    monkeypatch.setenv("ALLRANKS_RUN_DIR", str(short_path / "r"))
    (short_path / "r").mkdir(mode=0o755)
    with pytest.raises(RunDirError, match="chmod 700"):
        run_dir()


def test_a_file_in_its_place_is_refused(short_path, monkeypatch):
    monkeypatch.setenv("ALLRANKS_RUN_DIR", str(short_path / "r"))
    (short_path / "r").write_text("")
    with pytest.raises(RunDirError, match="ALLRANKS_RUN_DIR"):
        run_dir()


def test_a_link_is_refused(short_path, monkeypatch):
    (short_path / "elsewhere").mkdir(mode=0o700)
    (short_path / "r").symlink_to(short_path / "elsewhere")
    monkeypatch.setenv("ALLRANKS_RUN_DIR", str(short_path / "r"))
    with pytest.raises(RunDirError, match="not a directory"):
        run_dir()


def test_a_name_that_another_user_has_taken_stops_nobody(short_path, monkeypatch):
    monkeypatch.delenv("ALLRANKS_RUN_DIR", raising=False)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(short_path))
    monkeypatch.setenv("HOME", str(short_path / "home"))
    (short_path / "home").mkdir()
    usual = short_path / f"allranks-{os.getuid()}"
    assert run_dir() == usual
    usual.rmdir()
    uid = os.getuid()
    usual.mkdir()
    monkeypatch.setattr(os, "getuid", lambda: uid + 1)  # to this process the directory is another user's now
    other = short_path / f"allranks-{uid + 1}"
    other.mkdir(mode=0o700)
    with pytest.raises(RunDirError, match="belongs to another user"):
        run_dir()  # so is the home, here
    monkeypatch.setattr(os, "getuid", lambda: uid)
    usual.rmdir()
    usual.symlink_to(short_path / "home")
    if uid == 0:
        os.chown(usual, 65534, 65534, follow_symlinks=False)
        found = run_dir()
        assert found.parent == short_path / "home" and found.name.startswith(".allranks-")
        assert found.stat().st_mode & 0o777 == 0o700


def test_a_path_too_long_for_sockets_is_refused(short_path, monkeypatch):
    monkeypatch.setenv("ALLRANKS_RUN_DIR", str(short_path / ("x" * 100)))
    with pytest.raises(RunDirError, match="too long for sockets"):
        run_dir()
    assert list(short_path.iterdir()) == []


def test_sweep_removes_what_dead_processes_left_and_nothing_else(short_path):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    (short_path / f"world-0-{gone.pid}").mkdir()
    (short_path / f"world-0-{gone.pid}" / "store").write_text("x")
    (short_path / f"forkserver1-{gone.pid}.sock").write_text("")
    (short_path / f"world-0-{os.getpid()}").mkdir()
    (short_path / "notes.txt").write_text("mine")
    sweep(short_path)
    assert sorted(p.name for p in short_path.iterdir()) == ["notes.txt", f"world-0-{os.getpid()}"]


def test_a_uuid_of_digits_alone_is_no_process(short_path):
    file = short_path / "kernel-0b8c2f5e-1111-4222-8333-912345678901.json"
    file.write_text("{}")
    assert sweep(short_path) == [] and file.exists()
