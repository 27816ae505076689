"""The examples of CONTRIBUTING.md, followed in a copy of the repository exactly as they are written."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.S | re.M)


def section(title):
    """(kind, text) of each block under a heading."""
    return BLOCK.findall(re.split(r"^## ", PAGE.split(f"## {title}\n", 1)[1], flags=re.M)[0])


def test_every_file_that_the_table_names_is_there():
    rows = [row.split("|")[1:4] for row in PAGE.split("## Which file?")[1].split("\n## ")[0].splitlines()[4:] if row]
    assert len(rows) >= 10
    for what, edit, its_test in rows:
        places = [name for name in re.findall(r"`([^` ]+)`", edit) if "/" in name]
        assert places, what
        assert [name for name in (*places, *re.findall(r"`([^`]+)`", its_test)) if not (ROOT / name).exists()] == []
        texts = [(ROOT / name).read_text(encoding="utf-8") for name in places if (ROOT / name).is_file()]
        for table in re.findall(r"`([A-Z][A-Z_]+)`", edit):  # such as `PRESETS`: it begins a line of one of the files
            assert any(re.search(rf"^{table}\b", text, flags=re.M) for text in texts), (
                f"{table} is in no file of: {what}"
            )


@pytest.fixture
def copy(tmp_path):
    """What git would commit now, without the notebooks."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in files:
        source, there = ROOT / name, tmp_path / name
        if name and source.is_file() and source.suffix not in (".ipynb", ".png"):
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, there)
            for compiled in source.parent.glob(
                f"__pycache__/{source.stem}.*.pyc"
            ):  # which hold for a copy of the same time
                (there.parent / "__pycache__").mkdir(exist_ok=True)
                shutil.copy2(compiled, there.parent / "__pycache__")
    return tmp_path


def run(command, copy):
    """Runs a line in the copy, with the copy's package in front of the installed one."""
    words = shlex.split(command)
    if words[0] == "python":
        words[0] = sys.executable
    else:
        words[0] = str(Path(sys.executable).parent / words[0])
    env = {**os.environ, "PYTHONPATH": str(copy / "utils"), "PYTEST_ADDOPTS": "-p no:cacheprovider"}
    env.pop("PYTEST_XDIST_WORKER", None)
    done = subprocess.run(words, cwd=copy, env=env, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


@pytest.mark.live
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("title", "said"),
    [
        ("Add an algorithm", [r"\d+ passed", "spread"]),
        ("Add an exercise", [r"2 passed", r"passed \(\d+ of \d+ cases\)"]),
        ("Add a chapter", ["99_scan", "Executing|Writing|Saving"]),
    ],
)
def test_an_example_works_as_written(copy, title, said):
    commands = []
    for kind, text in section(title):
        match kind:
            case "diff":
                done = subprocess.run(["git", "apply", "-"], input=text, text=True, cwd=copy, capture_output=True)
                assert done.returncode == 0, done.stderr
            case "python":
                name, _, body = text.partition("\n")
                path = copy / name.removeprefix("# ")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(body)
            case "sh":
                commands += text.splitlines()
    assert len(commands) == len(said)
    for command, pattern in zip(commands, said, strict=True):
        assert re.search(pattern, run(command, copy))
