"""The widgets' JavaScript: the committed bundles are what their sources build, and these pass their own checks.

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

UTILS = Path(__file__).resolve().parents[2] / "utils"
JS = UTILS / "js"
BUNDLES = sorted((UTILS / "allranks").glob("**/static/*.js"), key=lambda path: path.stem)
OLDEST_NODE = 20


def hash_of_sources(name: str) -> str:
    """SHA-256 over name, NUL, content, NUL of build.js, the theme and all in src/common and src/NAME; the same in
    build.js.
    """
    digest = hashlib.sha256()
    sources = [path for part in ("common", name) for path in (JS / "src" / part).iterdir()]
    for name in [
        "build.js",
        "../allranks/base/theme.css",
        *sorted(path.relative_to(JS).as_posix() for path in sources),
    ]:
        digest.update(f"{name}\0".encode() + (JS / name).read_bytes() + b"\0")
    return digest.hexdigest()


def test_each_widget_has_its_bundle():
    assert sorted(path.stem for path in BUNDLES) == sorted(
        path.parent.name for entry in ("widget", "extension") for path in (JS / "src").glob(f"*/{entry}.js")
    )


@pytest.mark.parametrize("bundle", BUNDLES, ids=lambda path: path.stem)
def test_a_bundle_is_of_these_sources(bundle):
    built_from = re.search(r"^// Hash of the sources: (\w+)$", bundle.read_text(encoding="utf-8"), re.M)[1]
    assert built_from == hash_of_sources(bundle.stem), (
        f"{bundle.name} is not of these sources: `make js`, and commit both"
    )


@pytest.mark.parametrize("bundle", BUNDLES, ids=lambda path: path.stem)
def test_a_bundle_is_of_the_esbuild_that_is_asked_for(bundle):
    asked = json.loads((JS / "package.json").read_text(encoding="utf-8"))["devDependencies"]
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in asked.values()), f"not exact: {asked}"
    assert f"with esbuild {asked['esbuild']}." in bundle.read_text(encoding="utf-8").split("\n")[0], "run `make js`"


def test_the_lock_names_no_registry_and_every_platform():
    lock = json.loads((JS / "package-lock.json").read_text(encoding="utf-8"))
    packages = {name: entry for name, entry in lock["packages"].items() if name}
    assert [name for name, entry in packages.items() if "resolved" in entry] == []
    assert all("integrity" in entry for entry in packages.values())
    asked = {name for entry in packages.values() for name in entry.get("optionalDependencies", {})}
    assert {name for name in asked if f"node_modules/{name}" not in packages} == set()


def test_no_line_is_longer_than_120_characters():
    sources = [path for folder in ("src", "test") for path in sorted((JS / folder).glob("*/*"))]
    lines = {
        f"{path.name}:{i}": line for path in sources for i, line in enumerate(path.read_text("utf-8").split("\n"), 1)
    }
    assert [place for place, line in lines.items() if len(line) > 120] == []


@pytest.fixture(scope="module")
def npm_run():
    """A function that runs a script of package.json and returns what it wrote; fails the test if the script fails."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("Node.js or npm is not installed, so the JavaScript is not checked")
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if int(version.removeprefix("v").split(".")[0]) < OLDEST_NODE:
        pytest.skip(f"Node.js is {version}; the JavaScript is checked with {OLDEST_NODE} or later")
    if not (JS / "node_modules" / ".bin" / "esbuild").exists():
        pytest.skip("the tools of the JavaScript are not installed: `make js-tools`")

    def run(script: str, *arguments: str) -> str:
        command = ["npm", "run", "--silent", script, "--", *arguments]
        done = subprocess.run(command, cwd=JS, capture_output=True, text=True, timeout=150, check=False)
        assert done.returncode == 0, f"npm run {script}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run


def test_the_bundles_are_what_their_sources_build(npm_run, tmp_path):
    npm_run("build", str(tmp_path))
    stale = [path.name for path in BUNDLES if (tmp_path / path.name).read_bytes() != path.read_bytes()]
    assert stale == [], "run `make js`, and commit the bundles"


@pytest.mark.parametrize("script", ["lint", "types"])
def test_the_sources_pass(npm_run, script):
    npm_run(script)


def test_the_unit_tests_pass(npm_run):
    said = npm_run("test")
    assert re.search(r"\bpass [1-9]", said) and re.search(r"\bfail 0\b", said), said
