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
