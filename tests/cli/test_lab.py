"""`allranks lab` as a newcomer runs it: a real JupyterLab whose kernels share one fork server, and which leaves
nothing.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from allranks.cli.lab import command, course_directory, elsewhere, private_kernels, taught_course
from allranks.ranks.engines import ports
from jupyter_client import BlockingKernelClient

pytestmark = pytest.mark.live

ROOT = Path(__file__).resolve().parents[2]
CELL = """
import os
from allranks import World
from allranks.ranks.engines.forkserver.client import ForkServer
with World(ranks=2) as world:
    print(world.run(lambda: 7), ForkServer.ensure().pid, ForkServer.ensure().process, os.getppid())
"""


@pytest.fixture
def lab(no_ghosts, tmp_path, short_path):
    """A running `allranks lab`: a function that calls its REST interface, and the directory of its kernels' files."""
    env = {**os.environ, "HOME": str(tmp_path), "JUPYTER_RUNTIME_DIR": str(short_path)}
    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTERLAB_SETTINGS_DIR", "JUPYTERLAB_WORKSPACES_DIR"):
        env[name] = str(tmp_path / name.lower())
    [held] = ports.hold(1, "127.0.0.1")
    port = held.getsockname()[1]
    command = [sys.executable, "-m", "allranks.cli", "lab", "--no-browser", f"--port={port}", "--port-retries=0"]
    log = open(tmp_path / "lab.log", "w+")
    process = subprocess.Popen(command, env=env, cwd=ROOT / "chapters", stdout=log, stderr=log)
    try:
        deadline, found = time.monotonic() + 90, None
        while found is None and time.monotonic() < deadline:
            assert process.poll() is None, (tmp_path / "lab.log").read_text()
            found = re.search(r"http://127\.0\.0\.1:\d+(/\S*)\?token=(\w+)", (tmp_path / "lab.log").read_text())
            time.sleep(0.1)
        assert found, (tmp_path / "lab.log").read_text()
        path, token = found.groups()
        assert path == "/lab"  # there the map opens
        assert "WARNING" not in (tmp_path / "lab.log").read_text()  # nothing that a reader must wonder about

        def call(path: str, method: str = "GET", read=json.loads):
            headers = {"Authorization": f"token {token}"}
            request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method, headers=headers)
            with urllib.request.urlopen(request, timeout=120) as reply:
                return read(reply.read() or b"null")

        yield call, short_path, tmp_path / "lab.log"
        process.send_signal(signal.SIGTERM)
        assert process.wait(90) is not None
    finally:
        process.kill()
        process.wait()
        held.close()
        log.close()


def run(runtime: Path, kernel: str, code: str) -> str:
    """What a kernel of that server prints."""
    client = BlockingKernelClient(connection_file=str(runtime / f"kernel-{kernel}.json"))
    client.load_connection_file()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=120)
        printed = []

        def keep(message):
            if message["msg_type"] in ("stream", "error"):
                printed.append(message["content"].get("text") or "\n".join(message["content"]["traceback"]))

        client.execute_interactive(code, timeout=150, output_hook=keep)
        return "".join(printed)
    finally:
        client.stop_channels()


def test_two_notebooks_share_one_fork_server_and_nothing_is_left(lab):
    call, runtime, log = lab
    assert call("/api/contents/chapters/1_first_hours/00_start_here.ipynb?content=0")["type"] == "notebook"
    settings = call("/lab/api/settings/@jupyter-widgets/jupyterlab-manager:plugin")
    assert settings["schema"]["properties"]["saveState"]["default"] is True
    answers = [run(runtime, call("/api/kernels", "POST")["id"], CELL) for _ in range(2)]
    assert [a.split("]")[0] for a in answers] == ["[7, 7"] * 2, answers
    servers = {a.split()[2] for a in answers}
    assert len(servers) == 1 and servers != {"None"}
    assert all(a.split()[3] == "None" for a in answers), "a kernel started a fork server of its own"
    assert {a.split()[4] for a in answers} == servers, "a kernel was launched and not forked"
    assert "WARNING" not in log.read_text()  # nor of the kernels
    about = [json.loads(path.read_text()) for path in runtime.glob("kernel-*.json")]
    assert len(about) == 2 and {a["transport"] for a in about} == {"ipc"}  # on TCP other accounts could read along


def test_a_learner_sees_no_menu_of_nbgrader(lab):
    call, *_ = lab
    page = call("/lab", read=bytes.decode)
    config = json.loads(
        re.search(r'<script id="jupyter-config-data" type="application/json">(.*?)</script>', page, re.S)[1]
    )
    assert "@jupyter/nbgrader:menu" in config["disabledExtensions"]


def test_a_learner_meets_no_source_of_the_notebooks(lab):
    call, *_ = lab
    names = [item["name"] for item in call("/api/contents/chapters")["content"]]
    assert "1_first_hours" in names and "source" not in names


def test_where_sockets_would_have_too_long_names_kernels_use_tcp(monkeypatch):
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", "/home/ada/.local/share/jupyter/runtime")
    assert private_kernels() == ["--KernelManager.transport=ipc"]
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", "/home/" + "a" * 60)
    assert private_kernels() == []


def test_in_another_folder_it_says_which_notebooks_it_opens(tmp_path, monkeypatch):
    """The package of these tests lies in a checkout, which it opens from anywhere."""
    monkeypatch.chdir(tmp_path)
    root = course_directory()
    assert root == ROOT and [
        str(ROOT) in sentence and "--folder" in sentence for sentence in elsewhere(root, None)
    ] == [True]
    assert elsewhere(tmp_path / "mine", tmp_path / "mine") == [], "who names a folder knows it"
    monkeypatch.chdir(ROOT / "chapters")
    assert elsewhere(course_directory(), None) == []
    [shown] = [option.help for option in command.params if option.name == "named"]
    assert "the checkout that this program is run from" in shown


def test_outside_of_the_course_it_says_where_to_go(tmp_path):
    # the package's own checkout is found from anywhere, so a package that lies elsewhere is imitated
    code = (
        "import allranks.cli.lab as lab; from pathlib import Path; import click\n"
        f"lab.__file__ = {str(tmp_path / 'lib' / 'a' / 'b' / 'c' / 'lab.py')!r}; lab.files.given = lambda: None\n"
        "try: lab.course_directory()\nexcept click.ClickException as error: print(error.message)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert "There is no chapters/1_first_hours/00_start_here.ipynb in" in done.stdout, done.stderr


def test_a_teachers_course_folder_opens_formgrader(tmp_path, short_path):
    """The folder that `allranks course init` made; in a checkout only if asked."""
    folder = tmp_path / "ml101"
    program = [sys.executable, "-m", "allranks.cli"]
    subprocess.run(
        [*program, "course", "init", str(folder), "--lab", "lab03_all_reduce"], check=True, capture_output=True
    )
    env = {**os.environ, "HOME": str(tmp_path), "JUPYTER_RUNTIME_DIR": str(short_path)}
    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTERLAB_SETTINGS_DIR", "JUPYTERLAB_WORKSPACES_DIR"):
        env[name] = str(tmp_path / name.lower())
    with open(tmp_path / "lab.log", "w+") as log:
        process = subprocess.Popen([*program, "lab", "--no-browser"], env=env, cwd=folder, stdout=log, stderr=log)
        try:
            deadline, found = time.monotonic() + 120, None
            while found is None and time.monotonic() < deadline:
                said = (tmp_path / "lab.log").read_text()
                assert process.poll() is None, said
                found = re.search(r"(http://127\.0\.0\.1:\d+)(/\S*)\?token=(\w+)", said)
                time.sleep(0.1)
            assert found and found[2] == "/formgrader", said
            headers = {"Authorization": f"token {found[3]}"}
            request = urllib.request.Request(f"{found[1]}/formgrader/api/assignments", headers=headers)
            with urllib.request.urlopen(request, timeout=120) as reply:
                assert [one["name"] for one in json.loads(reply.read())] == ["lab03_all_reduce"]
        finally:
            process.terminate()
            process.wait(90)
    nowhere = subprocess.run(
        [*program, "lab", "--formgrader"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert nowhere.returncode != 0 and "is in no course" in nowhere.stderr


def test_a_checkout_opens_the_chapters_unless_formgrader_is_asked_for():
    assert taught_course(ROOT / "chapters", asked=False) is None
    assert taught_course(ROOT / "chapters", asked=True) == ROOT
