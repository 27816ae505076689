"""What deploy/singleuser.py does before the server: in a pod and a container as on one machine."""

import json
import os
import re
import resource
import socket
import subprocess
import traceback
from pathlib import Path

import pytest
from loading import loaded

ROOT = Path(__file__).resolve().parents[2]
LAB = "lab03_all_reduce"


@pytest.fixture
def singleuser(tmp_path, monkeypatch):
    """The script, with an empty home."""
    for name in ("ALLRANKS_EXCHANGE", "ALLRANKS_HANDIN_URL", "ALLRANKS_HUB_ROLE"):
        monkeypatch.delenv(name, raising=False)
    script = loaded(ROOT / "deploy" / "singleuser.py")
    script.HOME, script.COURSE = tmp_path, tmp_path / "allranks"
    script.COURSE.mkdir()
    return script


def test_labs_are_laid_out_where_nothing_hands_them_out(singleuser):
    singleuser.lay_out_course()
    assert sorted(p.name for p in (singleuser.COURSE / "labs").iterdir()) == sorted(
        p.name for p in (ROOT / "labs").iterdir() if p.is_dir() and not p.name.startswith((".", "__"))
    )
    mine = singleuser.COURSE / "labs" / LAB / "all_reduce.ipynb"
    assert mine.read_bytes() == (ROOT / "labs" / LAB / "all_reduce.ipynb").read_bytes()
    mine.write_text("my work")
    singleuser.lay_out_course()
    assert mine.read_text() == "my work"
    scripts = ROOT / "chapters" / "scripts"
    assert {path.relative_to(singleuser.COURSE) for path in singleuser.COURSE.rglob("*.py")} == {
        path.relative_to(ROOT) for path in scripts.glob("*.py")
    }


@pytest.mark.parametrize("exchange", ["ALLRANKS_EXCHANGE", "ALLRANKS_HANDIN_URL"])
def test_with_an_exchange_the_folder_of_labs_is_empty(singleuser, monkeypatch, exchange):
    """nbgrader fetches them into it, and refuses a lab that is there already."""
    monkeypatch.setenv(exchange, "a folder, or an address")
    singleuser.lay_out_course()
    assert list((singleuser.COURSE / "labs").iterdir()) == []
    assert (singleuser.COURSE / "docs" / "labs.md").is_file(), "each fetched lab links to it"
    assert not (singleuser.COURSE / "chapters" / "moved.md").exists()
    assert not (singleuser.COURSE / "chapters" / "source").exists()
    assert (singleuser.COURSE / "chapters/1_first_hours/00_start_here.ipynb").is_file()


def test_a_learners_server_opens_at_the_map(singleuser, monkeypatch):
    """Each way of deploying opens /lab, and the settings that the script gives the server load the extension that shows the map there."""
    for name in ("JUPYTER_CONFIG_PATH", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, "")
    singleuser.settings("learner")
    layers = [Path(layer) for layer in os.environ["JUPYTER_CONFIG_PATH"].split(os.pathsep)]
    loaded = {}
    for layer in reversed(layers):
        about = json.loads((layer / "jupyter_server_config.json").read_text(encoding="utf-8"))
        loaded |= about["ServerApp"].get("jpserver_extensions", {})
    assert loaded["allranks.course.map.server"] is True
    config = (ROOT / "deploy" / "jupyterhub_config.py").read_text(encoding="utf-8")
    [opened] = re.findall(r'^c\.Spawner\.default_url = "([^"]*)"', config, flags=re.M)
    [chart] = re.findall(
        r"^  defaultUrl: (\S+)", (ROOT / "deploy" / "values.yaml").read_text(encoding="utf-8"), flags=re.M
    )
    assert opened == chart == "/lab"


def test_a_learner_has_the_menu_with_which_labs_are_fetched_and_handed_in(singleuser, monkeypatch):
    """`allranks lab` switches nbgrader's parts of Lab off, in a layer that a hub's servers have too."""
    from jupyter_core.paths import jupyter_path
    from jupyterlab_server.config import get_page_config

    for name in ("JUPYTER_CONFIG_PATH", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, "")
    singleuser.settings("learner")
    off = set(get_page_config(jupyter_path("labextensions"))["disabledExtensions"])
    parts = {"menu", "assignment-list", "validate-assignment", "create-assignment", "formgrader", "course-list"}
    assert {part for part in parts if f"@jupyter/nbgrader:{part}" in off} == {
        "create-assignment",
        "formgrader",
        "course-list",
    }


def test_a_home_with_chapters_of_the_old_order_keeps_them_and_is_told(singleuser):
    old = singleuser.COURSE / "chapters" / "07_all_reduce.ipynb"
    old.parent.mkdir()
    old.write_text("my work")
    singleuser.lay_out_course()
    assert old.read_text() == "my work"
    assert (singleuser.COURSE / "chapters/1_first_hours/04_all_reduce.ipynb").is_file()
    page = singleuser.COURSE / "chapters" / "moved.md"
    assert "`07_all_reduce` | [04 All-reduce](../chapters/1_first_hours/04_all_reduce.ipynb)" in page.read_text()


@pytest.mark.skipif(not hasattr(os, "fork") or os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize(("shared", "begins"), [(False, True), (True, False)])
def test_a_home_that_is_roots_is_a_pods_or_a_mistake(singleuser, short_path, shared, begins):
    """A volume of Kubernetes: its group and mode are for the pod's user, its owner is root."""
    singleuser.HOME, singleuser.ON_SHARED_MACHINE = short_path, shared
    os.chown(short_path, 0, 100)
    short_path.chmod(0o2775)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setgroups([100])
            os.setgid(1000)
            os.setuid(1000)
            (short_path / "notebook").touch()
            singleuser.close_home()
            code = 0 if os.umask(0o077) == 0o077 else 2
        except PermissionError:
            code = 3
        except BaseException:
            traceback.print_exc()
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == (0 if begins else 3)


def test_ones_own_home_is_closed(singleuser):
    singleuser.HOME.chmod(0o755)
    before = os.umask(0o022)
    singleuser.close_home()
    assert os.umask(before) == 0o077
    assert singleuser.HOME.stat().st_mode & 0o7777 == 0o700


def test_what_killed_servers_left_is_swept_and_nothing_else(singleuser, short_path):
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(short_path / "kernel-live-ipc-1"))
        listening.listen()
        for name in ("live", "dead", "new"):
            about = {"transport": "ipc", "ip": str(short_path / f"kernel-{name}-ipc"), "shell_port": 1}
            (short_path / f"kernel-{name}.json").write_text(json.dumps(about))
            os.utime(short_path / f"kernel-{name}.json", *([] if name == "new" else [(1, 1)]))
        with socket.socket(socket.AF_UNIX) as gone:
            gone.bind(str(short_path / "kernel-dead-ipc-1"))
        (short_path / "kernel-broken.json").write_text("{")
        (short_path / "notes.txt").write_text("mine")
        dead = subprocess.Popen(["true"])
        dead.wait()
        for pid in (os.getpid(), dead.pid):
            (short_path / f"jpserver-{pid}.json").write_text("{}")
            (short_path / f"jpserver-{pid}-open.html").write_text("")
        singleuser.sweep(short_path)
    kept = {"kernel-live-ipc-1", "kernel-live.json", "kernel-new.json", "kernel-broken.json", "notes.txt"}
    assert {p.name for p in short_path.iterdir()} == kept | {
        f"jpserver-{os.getpid()}.json",
        f"jpserver-{os.getpid()}-open.html",
    }


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the limits of this process must stay")
def test_the_process_that_waits_for_a_fork_has_the_limits_too(singleuser, monkeypatch):
    """Else a person could take it over, where the kernel lets a process trace others of its account."""
    monkeypatch.setenv("ALLRANKS_HUB_RLIMITS", "1")
    monkeypatch.setenv("CPU_LIMIT", "1")
    read, write = os.pipe()

    def fork_made() -> bool:
        limits = [resource.getrlimit(kind)[1] for kind in (resource.RLIMIT_NPROC, resource.RLIMIT_CORE)]
        os.write(write, json.dumps([*limits, len(os.sched_getaffinity(0))]).encode())
        return True

    monkeypatch.setattr(singleuser, "run_in_a_shared_process", fork_made)
    pid = os.fork()
    if pid == 0:
        try:
            singleuser.main()
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(pid, 0)
    with open(read, encoding="utf-8") as said:
        processes, core, cores = json.loads(said.read())
    assert processes <= singleuser.MAX_PROCESSES and core == 0 and cores == 1
