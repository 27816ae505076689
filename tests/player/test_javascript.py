"""The player's JavaScript: the committed bundle is what its sources build, and they pass their own checks.

The first tests need no Node.js. The others run where `make js-tools` has installed the tools.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

PLAYER = Path(__file__).resolve().parents[2] / "utils" / "allranks" / "player"
JS = PLAYER / "js"
BUNDLE = PLAYER / "static" / "player.js"
OLDEST_NODE = 20


def hash_of_sources(folder: Path) -> str:
    """SHA-256 over name, NUL, content, NUL of build.js and of all in src/; the same in build.js."""
    digest = hashlib.sha256()
    for path in [folder / "build.js", *sorted((folder / "src").iterdir())]:
        digest.update(f"{path.relative_to(folder).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


def test_the_bundle_is_of_these_sources():
    built_from = re.search(r"^// Hash of the sources: (\w+)$", BUNDLE.read_text(encoding="utf-8"), re.M)[1]
    assert built_from == hash_of_sources(JS), f"{BUNDLE.name} is not of these sources: run `make js`, and commit both"


def test_the_bundle_is_of_the_esbuild_that_is_asked_for():
    asked = json.loads((JS / "package.json").read_text(encoding="utf-8"))["devDependencies"]
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in asked.values()), f"not exact: {asked}"
    assert f"with esbuild {asked['esbuild']}." in BUNDLE.read_text(encoding="utf-8").split("\n")[0], "run `make js`"


def test_the_lock_names_no_registry_and_every_platform():
    lock = json.loads((JS / "package-lock.json").read_text(encoding="utf-8"))
    packages = {name: entry for name, entry in lock["packages"].items() if name}
    assert [name for name, entry in packages.items() if "resolved" in entry] == []
    assert all("integrity" in entry for entry in packages.values())
    asked = {name for entry in packages.values() for name in entry.get("optionalDependencies", {})}
    assert {name for name in asked if f"node_modules/{name}" not in packages} == set()


def test_no_line_is_longer_than_120_characters():
    sources = [path for folder in ("src", "test") for path in sorted((JS / folder).iterdir())]
    lines = {
        f"{path.name}:{i}": line for path in sources for i, line in enumerate(path.read_text("utf-8").split("\n"), 1)
    }
    assert [place for place, line in lines.items() if len(line) > 120] == []


@pytest.fixture(scope="module")
def npm_run():
    """A function that runs a script of package.json and returns what it wrote; fails the test if the script fails."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("Node.js or npm is not installed, so the player's JavaScript is not checked")
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if int(version.removeprefix("v").split(".")[0]) < OLDEST_NODE:
        pytest.skip(f"Node.js is {version}; the player's JavaScript is checked with {OLDEST_NODE} or later")
    if not (JS / "node_modules" / ".bin" / "esbuild").exists():
        pytest.skip("the tools of the player's JavaScript are not installed: `make js-tools`")

    def run(script: str, *arguments: str) -> str:
        command = ["npm", "run", "--silent", script, "--", *arguments]
        done = subprocess.run(command, cwd=JS, capture_output=True, text=True, timeout=150, check=False)
        assert done.returncode == 0, f"npm run {script}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run


def test_the_bundle_is_what_its_sources_build(npm_run, tmp_path):
    npm_run("build", str(tmp_path / "player.js"))
    assert (tmp_path / "player.js").read_bytes() == BUNDLE.read_bytes(), "run `make js`, and commit the bundle"


@pytest.mark.parametrize("script", ["lint", "types"])
def test_the_sources_pass(npm_run, script):
    npm_run(script)


def test_the_unit_tests_pass(npm_run):
    said = npm_run("test")
    assert re.search(r"\bpass [1-9]", said) and re.search(r"\bfail 0\b", said), said
