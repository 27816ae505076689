"""environment.yml asks for what pyproject.toml asks for."""

import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
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


def test_pip_part_is_the_projects_requirements_for_gpu_servers(project, conda):
    listed = next(entry["pip"] for entry in conda if isinstance(entry, dict))
    assert listed[-1] == "--editable ."
    extras = project["optional-dependencies"]
    # the gpu extra says which torch it is, within the range of the dependencies
    assert by_name(listed[:-1]) == by_name([*project["dependencies"], *extras["gpu"], *extras["dev"]])


def test_python_is_the_one_the_project_asks_for(project, conda):
    (python,) = (entry for entry in conda if isinstance(entry, str) and entry.startswith("python"))
    assert by_name([python])["python"] == by_name(["python" + project["requires-python"]])["python"]
