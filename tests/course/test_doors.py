"""The files of other places agree with the project: containers, Binder, the GitHub action, and what README promises."""

import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_container_sets_up_as_a_checkout_does(project):
    config = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text())
    command, target = config["postCreateCommand"].rpartition("&& ")[2].split()
    assert command == "make" and re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M)
    python = re.search(r"python:3-(\d+\.\d+)-", config["image"])[1]  # 2 and older have a source that apt refuses
    assert SpecifierSet(project["requires-python"]).contains(python)
    assert config["containerEnv"]["TORCH"] in project["optional-dependencies"]


def test_binder_installs_the_course_with_the_projects_torch_and_pins(project):
    lines = (ROOT / ".binder/requirements.txt").read_text().splitlines()
    [torch] = [Requirement(line) for line in lines if line.startswith("torch")]
    [pinned] = map(Requirement, project["optional-dependencies"]["cpu"])
    assert str(torch.specifier) == f"{pinned.specifier}+cpu"
    [constraints] = [line.removeprefix("-c ") for line in lines if line.startswith("-c ")]
    assert (ROOT / ".binder" / constraints).samefile(ROOT / "constraints.txt")
    assert "-e .[lab]" in lines
    python = (ROOT / ".binder/runtime.txt").read_text().strip().removeprefix("python-")
    assert SpecifierSet(project["requires-python"]).contains(python)


def test_the_action_has_the_inputs_that_its_page_names_and_a_matcher_that_finds_our_lines():
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    used = {name for step in action["runs"]["steps"] for name in re.findall(r"inputs\.(\w+)", json.dumps(step))}
    assert used == set(action["inputs"])
    page = (ROOT / "docs/checking.md").read_text()
    [example] = re.findall(r"```yaml\n( +steps:.*?)```", page, re.S)
    assert len(example.strip().splitlines()) <= 5
    given = yaml.safe_load(example)["steps"][-1]["with"]
    assert set(given) <= set(action["inputs"])
    matcher = json.loads((ROOT / ".github/matchers/allranks-check.json").read_text())["problemMatcher"][0]["pattern"][0]
    found = re.match(matcher["regexp"], "answers/my_ring.py:5: Results are only right for two ranks.")
    assert found.groups() == ("answers/my_ring.py", "5", "Results are only right for two ranks.")
    assert str(ROOT.joinpath(".github/matchers/allranks-check.json").relative_to(ROOT)) in json.dumps(action)


def test_the_readmes_first_screen_has_a_line_for_learners_and_one_for_a_clone(project):
    text = (ROOT / "README.md").read_text()
    [first, *_] = re.findall(r"```sh\n(.*?)```", text, re.S)
    commands = [line.partition("#")[0].strip() for line in first.strip().splitlines()]
    assert commands == [
        "uvx --from 'allranks[lab] @ git+<address of this repository>' allranks lab",
        "make lab",
    ]
    assert text.index(first) < 1500 and text.count("\n") <= 130, "one screen and a half"
    oldest = project["requires-python"].removeprefix(">=")
    assert f"badge/python-{oldest}%2B" in text and f"licence-{project['license'].replace('-', '--')}-" in text
