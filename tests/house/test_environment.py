"""environment.yml asks for what pyproject.toml asks for; constraints.txt pins it, for every Python that it names."""

import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]


def by_name(requirements: list[str]) -> dict[str, set[str]]:
    """Each project's version clauses; a later requirement of the same project replaces an earlier one."""
    parsed = map(Requirement, requirements)
    return {canonicalize_name(r.name): {str(clause) for clause in r.specifier} for r in parsed}


@pytest.fixture(scope="module")
def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def conda() -> list:
    return yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))["dependencies"]


@pytest.fixture(scope="module")
def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").split()
    return {canonicalize_name(name): version for name, version in (line.split("==") for line in lines)}


def test_every_requirement_is_pinned_within_its_range(project, pins):
    extras = project["optional-dependencies"].values()
    asked = map(Requirement, [*project["dependencies"], *(line for extra in extras for line in extra)])
    # torch's version is the choice of the extras cpu and gpu
    wrong = [
        str(r) for r in asked if r.name != "torch" and not r.specifier.contains(pins.get(canonicalize_name(r.name), ""))
    ]
    assert not wrong, f"constraints.txt does not pin these, or not within their range: {wrong}"


def test_pins_can_be_installed_on_the_oldest_python_that_is_promised(project, pins):
    (clause,) = SpecifierSet(project["requires-python"])
    looked_at, refused = 0, []
    for name, version in pins.items():
        try:
            installed = distribution(name)
        except PackageNotFoundError:  # of an extra that is not installed here
            continue
        if installed.version == version:
            looked_at += 1
            needed = SpecifierSet(installed.metadata.get("Requires-Python", ""))
            if not needed.contains(clause.version):
                refused.append(f"{name}=={version} needs Python {needed}")
    assert looked_at and not refused, refused


def test_pip_part_is_the_projects_requirements_for_gpu_servers(project, conda):
    listed = next(entry["pip"] for entry in conda if isinstance(entry, dict))
    assert listed[-1] == "--editable ."
    extras = project["optional-dependencies"]
    # the gpu extra says which torch it is, within the range of the dependencies
    assert by_name(listed[:-1]) == by_name(
        [*project["dependencies"], *extras["gpu"], *extras["lab"], *extras["grading"], *extras["dev"]]
    )


def test_python_is_the_one_the_project_asks_for(project, conda):
    (python,) = (entry for entry in conda if isinstance(entry, str) and entry.startswith("python"))
    assert by_name([python])["python"] == by_name(["python" + project["requires-python"]])["python"]


# ------------------------------------------------------------------------------------------------------------------
# uv.lock


@pytest.fixture(scope="module")
def lock() -> dict[str, list[dict]]:
    """uv.lock: each package's entries; torch has one for each way to get it."""
    entries: dict[str, list[dict]] = {}
    for package in tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))["package"]:
        entries.setdefault(package["name"], []).append(package)
    return entries


def brought_by(name: str, lock: dict[str, list[dict]]) -> set[str]:
    """The package and all that it requires, directly or not."""
    found, new = set(), {name}
    while new:
        found |= new
        lists = [
            some
            for one in new
            for entry in lock[one]
            for some in (entry.get("dependencies", []), *entry.get("optional-dependencies", {}).values())
        ]
        new = {needed["name"] for some in lists for needed in some} - found
    return found


def test_uv_locks_the_versions_of_the_constraints(lock, pins):
    """Only torch and what it brings have no pin: pip takes the build that fits the machine."""
    unlike = {name: [e["version"] for e in lock.get(name, [])] for name in pins}
    assert {name: found for name, found in unlike.items() if found != [pins[name]]} == {}, "run `make lock`"
    assert set(lock) - set(pins) - brought_by("torch", lock) == {"allranks"}, "constraints.txt lacks these"


def test_uv_locks_what_the_project_asks_for(project, lock):
    """uv writes an extra as a marker: `click>=8; extra == 'lab'`."""
    asked = {("", line) for line in project["dependencies"]}
    asked |= {(extra, line) for extra, lines in project["optional-dependencies"].items() for line in lines}
    wanted = sorted(
        (extra, canonicalize_name(r.name), str(r.specifier)) for extra, r in ((e, Requirement(n)) for e, n in asked)
    )
    [ours] = lock["allranks"]
    written = []
    for entry in ours["metadata"]["requires-dist"]:
        marker = entry.get("marker", "")
        extra = marker.rpartition("extra == ")[2].strip("'\"") if "extra ==" in marker else ""
        written.append((extra, entry["name"], str(Requirement(entry["name"] + entry.get("specifier", "")).specifier)))
    assert sorted(set(written)) == wanted, "run `make lock`"


def test_uv_locks_torch_as_setup_installs_it(project, lock):
    """The extra cpu without CUDA, the extra gpu from PyPI; and no package comes from a place of one machine."""
    sources = {entry["version"]: entry["source"] for entry in lock["torch"]}
    [cpu], [gpu] = (Requirement(project["optional-dependencies"][kind][0]).specifier for kind in ("cpu", "gpu"))
    assert sources[f"{cpu.version}+cpu"] == {"registry": "https://download.pytorch.org/whl/cpu"}
    assert sources[gpu.version] == {"registry": "https://pypi.org/simple"}
    [small] = [entry for entry in lock["torch"] if entry["version"].endswith("+cpu")]
    assert not [name["name"] for name in small["dependencies"] if name["name"].startswith(("nvidia", "cuda"))]
    places, files = set(), set()
    for name, entries in lock.items():
        for entry in entries if name != "allranks" else ():
            places.add(entry["source"].get("registry"))
            found = [*entry.get("wheels", []), *([entry["sdist"]] if "sdist" in entry else [])]
            assert found and all(file["hash"].startswith("sha256:") for file in found), name
            files |= {"/".join(file["url"].split("/")[:3]) for file in found}
    assert places == {"https://pypi.org/simple", "https://download.pytorch.org/whl/cpu"}
    assert files == {"https://files.pythonhosted.org", "https://download.pytorch.org"}
    assert lock["allranks"][0]["source"] == {"editable": "."}
