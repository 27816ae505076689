"""The wheel is the course: built as for publication, installed alone, and used from a home with a space.

The environment sees the packages installed here but not this checkout, so all that is tested is in the wheel.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import time
import tomllib
import urllib.request
import venv
import zipfile
from pathlib import Path

import pytest
import yaml
from allranks.base import course_files as files
from jupyter_client import BlockingKernelClient, KernelManager
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> tuple[Path, Path]:
    """The source distribution, and the wheel that was built from it."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "-o", out, ROOT]
    done = subprocess.run(command, capture_output=True, text=True, cwd=out, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    [sdist], [wheel] = out.glob("*.tar.gz"), out.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory) -> Path:
    """The folder of programs of an environment that has the wheel."""
    folder = tmp_path_factory.mktemp("an environment")
    venv.create(folder)
    [site] = folder.glob("lib/python*/site-packages")
    # a plain path: the .pth file of this checkout's own installation is not read there
    (site / "packages-of-the-tests.pth").write_text(sysconfig.get_path("purelib") + "\n")
    command = [sys.executable, "-m", "pip", "--python", folder, "install", "-q", "--no-index", "--no-deps", built[1]]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # where pip could find it there
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stderr
    return folder / "bin"


@pytest.fixture
def home(tmp_path, short_path) -> dict[str, str]:
    """The environment variables of a learner whose home has a space."""
    (tmp_path / "my home").mkdir()
    env = {name: value for name, value in os.environ.items() if not name.startswith(("ALLRANKS", "JUPYTER", "PYTHON"))}
    share = Path(sys.prefix, "share", "jupyter")  # JupyterLab itself is of the tests' environment
    # a directory of the test's own for its worlds too, which goes with it
    env |= {"JUPYTER_RUNTIME_DIR": str(short_path), "ALLRANKS_RUN_DIR": str(short_path)}
    return env | {"HOME": str(tmp_path / "my home"), "JUPYTER_PATH": str(share)}


def run(*command: object, env: dict[str, str], **more) -> subprocess.CompletedProcess:
    return subprocess.run(
        [*map(str, command)], capture_output=True, text=True, check=False, env=env, cwd=env["HOME"], **more
    )


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_files_are_as_the_index_wants_them(built):
    for command in (["twine", "check", "--strict", *built], ["check_wheel_contents", built[1]]):
        done = subprocess.run([sys.executable, "-m", *map(str, command)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.core
def test_the_wheel_has_every_notebook_and_all_that_these_lead_to(built):
    """`tests/house/test_given_links.py` checks that no link of these files leads anywhere else."""
    home = "allranks/course/given/"
    there = {name.removeprefix(home): data for name, data in contents(built[1]).items() if name.startswith(home)}
    for path in [*ROOT.glob("chapters/*/*.ipynb"), *ROOT.glob("labs/*/*.ipynb")]:
        assert there[str(path.relative_to(ROOT))] == path.read_bytes(), path
    assert there == {path.as_posix(): (ROOT / path).read_bytes() for path in files.for_learners(ROOT)}
    assert "docs/labs.md" in there and "chapters/scripts/distributed_mean.py" in there


def texts_of(notebook: bytes) -> list[str]:
    return ["".join(cell["source"]) for cell in json.loads(notebook)["cells"]]


def solutions() -> list[str]:
    """The text of each long cell of the solutions that the students' version does not have."""
    found = []
    for path in sorted(ROOT.glob("solutions/*/*.ipynb")):
        students = texts_of((ROOT / "labs" / path.relative_to(ROOT / "solutions")).read_bytes())
        found += [text for text in texts_of(path.read_bytes()) if text not in students and len(text) > 80]
    return found


def test_neither_file_has_a_solution_or_an_answer_to_lab_10(built):
    answers = [re.sub(r"\s+", " ", text) for text in solutions()]
    assert len(answers) > 40
    with tarfile.open(built[0]) as archive:
        source = {m.name: archive.extractfile(m).read() for m in archive.getmembers() if m.isfile()}
    for held in (source, contents(built[1])):
        assert not [name for name in held if "solutions" in name or "/source/" in name or "tests/" in name]
        for name, data in held.items():
            texts = [data.decode(errors="replace")]
            if name.endswith(".ipynb"):
                texts = texts_of(data)
            flat = [re.sub(r"\s+", " ", text) for text in texts]
            assert not [answer for answer in answers if any(answer in text for text in flat)], name
        [diagnosis] = [data.decode() for name, data in held.items() if name.endswith("exercises/diagnosis.py")]
        assert "TRUTH" not in diagnosis and "Kind.ROOT" not in diagnosis and "DIGESTS" in diagnosis


def test_what_a_plain_installation_requires_are_ranges(built):
    [metadata] = [data.decode() for name, data in contents(built[1]).items() if name.endswith(".dist-info/METADATA")]
    lines = [line.removeprefix("Requires-Dist: ") for line in metadata.splitlines() if line.startswith("Requires-Dist")]
    for wanted in map(Requirement, lines):
        extra = str(wanted.marker or "").partition("extra == ")[2].strip('"')
        if extra in ("", "lab", "grading", "hub"):
            assert not [c for c in wanted.specifier if c.operator in ("==", "===")], wanted
        if not extra:
            assert wanted.name not in ("jupyterlab", "notebook", "jupyter-server", "ipywidgets", "nbgrader")
    assert {"lab", "grading", "hub"} <= set(re.findall(r"^Provides-Extra: (\S+)", metadata, re.MULTILINE))


def test_every_place_that_names_the_version_names_this_one(built):
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"-{version}-" in built[1].name and f"-{version}." in built[0].name
    assert f"version: {version}\n" in (ROOT / "CITATION.cff").read_text()
    for name in ("deploy/compose.yaml", "deploy/Dockerfile", "docs/jupyterhub.md"):
        assert set(re.findall(r"\ballranks:(\d+\.\d+\.\d+)", (ROOT / name).read_text())) == {version}, name
    assert f'tag: "{version}"' in (ROOT / "deploy/values.yaml").read_text()


@pytest.mark.core
def test_nothing_of_it_is_of_this_checkout(installed, home):
    done = run(installed / "python", "-c", "import allranks, torch; print(allranks.__file__)", env=home)
    assert done.stdout.startswith(str(installed.parent)), done.stderr
    done = run(installed / "allranks", "update", env=home)
    assert done.returncode == 2 and "allranks lab" in done.stderr
    missing = "import sys; sys.modules['nbgrader'] = None; from allranks.cli import main; main(['grade', 'lab01'])"
    assert "pip install 'allranks[grading]'" in run(installed / "python", "-c", missing, env=home).stderr


@contextlib.contextmanager
def lab(*command: object, env: dict[str, str], log: Path):
    """Runs `COMMAND lab` until it has told its address: the process, the path that it opens, and a function that asks its server."""
    from allranks.ranks.engines import ports

    [held] = ports.hold(1, "127.0.0.1")
    port = held.getsockname()[1]
    line = [*map(str, command), "lab", "--no-browser", f"--port={port}", "--port-retries=0"]
    with open(log, "w+") as file:
        process = subprocess.Popen(line, env=env, cwd=env["HOME"], stdout=file, stderr=file)
    try:
        found, deadline = None, time.monotonic() + 90
        while found is None and time.monotonic() < deadline:
            assert process.poll() is None, log.read_text()
            found = re.search(rf"127\.0\.0\.1:{port}(/\S*)\?token=(\w+)", log.read_text())
            time.sleep(0.1)
        assert found, log.read_text()

        def call(path: str, method: str = "GET"):
            headers = {"Authorization": f"token {found[2]}"}
            request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method, headers=headers)
            with urllib.request.urlopen(request, timeout=120) as reply:
                return json.loads(reply.read())

        yield found[1], call
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(90)
        held.close()


def to_the_first_world(notebook: dict) -> list[str]:
    """The code cells of a chapter up to the one that runs on the ranks that it starts."""
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    start = next(n for n, text in enumerate(cells) if "World(" in text)
    return cells[: start + 2]


def ran_on_ranks(printed: str) -> bool:
    return "Traceback" not in printed and re.search(r"\b[2-9] ranks|rank 3", printed) is not None


@pytest.mark.live
def test_lab_gives_the_learner_a_folder_and_its_first_chapter_runs(no_ghosts, installed, home, tmp_path):
    site = next(installed.parent.glob("lib/python*/site-packages"))
    before = {path for path in site.rglob("*") if "__pycache__" not in path.parts}
    with lab(installed / "allranks", env=home, log=tmp_path / "lab.log") as (opened, call):
        assert opened == "/lab"  # there the map opens
        folder = Path(home["HOME"], "all-ranks")
        assert str(folder) in (tmp_path / "lab.log").read_text()
        cells = to_the_first_world(call("/api/contents/chapters/1_first_hours/00_start_here.ipynb")["content"])
        kernel = call("/api/kernels", "POST")["id"]
        client = BlockingKernelClient(connection_file=f"{home['JUPYTER_RUNTIME_DIR']}/kernel-{kernel}.json")
        client.load_connection_file()
        printed = in_kernel(client, cells)
        assert ran_on_ranks(printed), printed
    assert {path for path in site.rglob("*") if "__pycache__" not in path.parts} == before
    # the learner writes, and calls it again: nothing is written over
    (folder / "chapters/1_first_hours/00_start_here.ipynb").write_text("mine")
    done = run(installed / "allranks", "update", env=home)
    assert done.returncode == 0 and (folder / "chapters/1_first_hours/00_start_here.ipynb").read_text() == "mine", (
        done.stderr
    )


@pytest.mark.live
def test_uvx_installs_and_opens_it(no_ghosts, built, home, tmp_path):
    """uv makes the environment, from the wheel alone and an empty cache; what the wheel requires is the tests' own."""
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if uv is None:
        pytest.skip("uv is not installed; it is in the extra dev")
    overrides = tmp_path / "overrides.txt"
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {Requirement(line).name for line in [*needed["dependencies"], *needed["optional-dependencies"]["lab"]]}
    overrides.write_text("".join(f"{name}; python_version < '3'\n" for name in sorted(names)))
    home |= {"UV_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": sysconfig.get_path("purelib")}
    options = ["--offline", "--no-index", "--no-config", "--python", sys.executable, "--overrides", overrides]
    command = [uv, "tool", "run", *options, "--from", f"{built[1]}[lab]", "allranks"]
    done = run(*command, "--version", env=home)
    assert done.returncode == 0 and done.stdout.startswith("allranks "), done.stderr
    with lab(*command, env=home, log=tmp_path / "lab.log") as (opened, call):
        assert opened == "/lab"  # there the map opens
        assert {entry["name"] for entry in call("/api/contents")["content"]} >= {"chapters", "labs", "TUTOR.md"}


@pytest.mark.live
def test_a_kernel_without_jupyterlab_runs_the_first_chapter(no_ghosts, built, installed, home):
    """As on Colab, on Kaggle and in an editor: nobody calls `allranks lab`, and the first cell installs the course."""
    page = (ROOT / "docs/start.md").read_text().split("## Colab and Kaggle")[1]
    [first] = re.findall(r"```python\n(.*?)\n```", page, re.S)[:1]
    assert first == "%pip install -q allranks anywidget"
    first = f"%pip install -q --no-index --no-deps --force-reinstall {built[1]}"
    given = contents(built[1])["allranks/course/given/chapters/1_first_hours/00_start_here.ipynb"]
    manager = KernelManager(connection_file=str(Path(home["JUPYTER_RUNTIME_DIR"]) / "kernel-of-an-editor.json"))
    manager.kernel_spec.argv = [str(installed / "python"), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    manager.start_kernel(env=home, cwd=home["HOME"])
    try:
        printed = in_kernel(manager.blocking_client(), [first, *to_the_first_world(json.loads(given))])
    finally:
        manager.shutdown_kernel()
        manager.cleanup_resources()
    assert ran_on_ranks(printed), printed
    assert not Path(home["HOME"], "all-ranks").exists()


MEAN = """import torch.distributed as dist


def distributed_mean(tensor):
    x = tensor.contiguous().clone()
    dist.all_reduce(x)
    return x / dist.get_world_size()
"""


@pytest.mark.live
def test_the_hook_and_the_action_judge_with_the_wheel(no_ghosts, installed, home, tmp_path):
    """pre-commit takes the hook from a repository of the published files; the action's last step is run as bash runs it."""
    home |= {"PATH": f"{installed}{os.pathsep}{home['PATH']}", "ALLRANKS_IDLE_S": "0"}
    published, theirs = tmp_path / "published", Path(home["HOME"], "repository")
    for folder in (published, theirs):
        folder.mkdir()
        run("git", "init", "-q", folder, env=home)
    (published / ".github/matchers").mkdir(parents=True)
    for name in (".pre-commit-hooks.yaml", "action.yml", ".github/matchers/allranks-check.json"):
        shutil.copy(ROOT / name, published / name)
    author = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    run("git", "-C", published, "add", ".", env=home)
    run("git", "-C", published, *author, "commit", "-qm", "as published", env=home)
    answer = theirs / "answer.py"
    step = yaml.safe_load((published / "action.yml").read_text())["runs"]["steps"][-1]
    action = {**home, "GITHUB_ACTION_PATH": str(published), "FILES": "answer.py"}
    hook = [sys.executable, "-m", "pre_commit", "try-repo", published, "allranks-check", "--files", "answer.py"]
    for text, passed in ((MEAN.replace(" / dist.get_world_size()", ""), False), (MEAN, True)):
        answer.write_text(text)
        run("git", "-C", theirs, "add", ".", env=home)
        env = {**home, "PRE_COMMIT_HOME": str(tmp_path / "cache")}
        done = subprocess.run(map(str, hook), cwd=theirs, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == (0 if passed else 1), done.stdout + done.stderr
        assert ("answer.py:4: " in done.stdout) is not passed
        line = ["bash", "-e", "-c", step["run"]]
        done = subprocess.run(line, cwd=theirs, env=action, capture_output=True, text=True, check=False)
        assert done.returncode == (0 if passed else 1), done.stdout + done.stderr
        assert done.stdout.startswith(f"::add-matcher::{published}/.github/matchers/allranks-check.json\n")
        assert ("\nanswer.py:4: " in done.stdout) is not passed


@pytest.mark.live
@pytest.mark.notebooks
def test_a_teachers_course_is_made_and_graded_without_a_checkout(no_ghosts, installed, home, tmp_path):
    lab, name = "lab03_all_reduce", "all_reduce.ipynb"
    course = tmp_path / "a course"
    done = run(installed / "allranks", "course", "init", course, "--lab", lab, env=home)
    assert done.returncode == 0 and "without answers" in done.stdout, done.stderr
    with open(course / "autograder/nbgrader_config.py", "a") as config:
        config.write(
            'c.TrustedStep.sandbox = "none"\n'
        )  # the sandbox does not see the packages of the tests' environment
    released = json.loads((course / "labs" / lab / name).read_text())
    right = {c["id"]: c["source"] for c in json.loads((ROOT / "solutions" / lab / name).read_text())["cells"]}
    answered = {
        **released,
        "cells": [{**cell, "source": right.get(cell["id"], cell["source"])} for cell in released["cells"]],
    }
    for student, notebook in (("ada", answered), ("bob", released)):
        folder = course / "autograder/submitted" / student / lab
        folder.mkdir(parents=True)
        (folder / name).write_text(json.dumps(notebook))
    # alembic, which nbgrader starts, is a program of the tests' environment
    home["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{home['PATH']}"
    done = run(installed / "allranks", "grade", lab, "--course", course, "--json", env=home)
    students = {row["student"]: row for row in json.loads(done.stdout)["students"]}
    assert done.returncode == 0, done.stderr
    assert students["bob"]["score"] == 0 and students["ada"]["score"] >= 3, students
    assert (course / "autograder/gradebook.db").exists()


def in_kernel(client: BlockingKernelClient, cells: list[str]) -> str:
    """What the kernel of that client prints for these cells."""
    client.start_channels()
    try:
        client.wait_for_ready(timeout=60)
        printed: list[str] = []

        def keep(message):
            content = message["content"]
            printed.append(
                content.get("text") or str(content.get("data", "")) + "\n".join(content.get("traceback", ""))
            )

        for cell in cells:
            client.execute_interactive(cell, timeout=90, output_hook=keep)
        return "".join(printed)
    finally:
        client.stop_channels()
