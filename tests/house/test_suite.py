"""Each test has a command that runs it, `make test` proves the main job end to end, and it finds the tests that a
change reaches.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import reach
import selection

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = ("make test", "make test-all", "make test-servers", "make test-nightly")
# what a run of the core proves, and the folder of the tests that prove it
MAIN_JOB = ("ranks/world", "exercises", "grading", "notebooks", "browser", "course")


@pytest.fixture(scope="module")
def graph() -> reach.Graph:
    return reach.Graph()


def files_near(graph: reach.Graph, *changed: str, within: int = 2) -> set[str]:
    """The test files that are at most so many arrows from what changed."""
    near = graph.distances(changed)
    found = {name for name, far in near.items() if far <= within}
    for file, function in graph.functions:
        if any(near.get(name, reach.FAR) < within for name in graph.of_test(file, function, ())):
            found.add(file)
    return {name for name in found if re.search(r"/test_\w+\.py$", name)}


def test_the_makefile_and_ci_run_every_kind_of_test():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for command in COMMANDS:
        assert re.search(rf"^{command.removeprefix('make ')}:", makefile, flags=re.M), command
        assert re.search(rf'echo "{command} ', makefile), f"make help says nothing of {command}"
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert re.search(r"^make test$", ci, flags=re.M) and re.search(r"^make test-servers$", ci, flags=re.M)
    nightly = (ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8")
    assert "make test-all" in nightly and "make test-nightly" in nightly


def test_each_test_belongs_to_one_command(request):
    """Of the tests of this run; `make test-all` has all but those of servers and nightly ones."""
    kinds = Counter(map(selection.command_of, request.session.items))
    assert set(kinds) <= set(COMMANDS)


def test_the_core_proves_the_main_job(graph):
    marked = [name for name in graph.files if name.startswith("tests/") and name.endswith(".py")]
    core = {
        str(Path(name).parent.relative_to("tests"))
        for name in marked
        if "mark.core" in (ROOT / name).read_text(encoding="utf-8")
    }
    assert set(MAIN_JOB) <= core


@pytest.mark.parametrize(
    ("changed", "reached"),
    [
        ("utils/allranks/exercises/ring_all_reduce.py", "tests/exercises/test_check.py"),
        ("utils/allranks/ranks/wire/router.py", "tests/ranks/wire/test_point_to_point.py"),
        ("utils/allranks/theory/schedules/ring.py", "tests/theory/test_schedules.py"),
        ("utils/allranks/jobs/kineto.py", "tests/jobs/test_kineto.py"),
        ("utils/allranks/jobs/kineto.py", "tests/cli/test_explain_command.py"),
        ("utils/allranks/cli/explain.py", "tests/cli/test_explain_command.py"),
        ("utils/js/src/player/player.js", "tests/browser/test_player_picture.py"),
        ("autograder/sandbox.py", "tests/grading/test_sandbox.py"),
        ("tests/grading/grading_course.py", "tests/grading/test_grade.py"),
        ("docs/glossary.md", "tests/house/test_glossary.py"),
        ("tools/site.py", "tests/browser/test_site.py"),
    ],
)
def test_a_change_reaches_its_tests(graph, changed, reached):
    assert changed in graph.uses, f"{changed} is gone: name another file here"
    assert reached in files_near(graph, changed, within=4)


def test_a_change_at_the_edge_leaves_most_tests_alone(graph):
    everything = {name for name in graph.files if re.search(r"^tests/.*/test_\w+\.py$", name)}
    assert len(files_near(graph, "utils/allranks/exercises/ring_shift.py")) < len(everything) / 4


@pytest.mark.parametrize(
    ("text", "module", "package", "imports"),
    [
        ("from allranks.ranks.wire import run\n", "allranks.ranks.world.x", False, ("allranks.ranks.wire", ("run",))),
        ("def f():\n    from . import a\n", "allranks.ranks.world.x", False, ("allranks.ranks.world", ("a",))),
        ("from .core import b\n", "allranks.theory.schedules", True, ("allranks.theory.schedules.core", ("b",))),
        ("import bench.common\n", "test_x", False, ("bench.common", ())),
    ],
)
def test_imports_are_read_wherever_they_stand(text, module, package, imports):
    assert reach.read_source(text, module, package).imports == (imports,)


def test_lazy_names_lead_to_their_module(tmp_path):
    package = tmp_path / "utils" / "allranks"
    (package / "wire").mkdir(parents=True)
    (package / "__init__.py").write_text('_FROM = {"run": "allranks.wire"}\n')
    (package / "wire" / "__init__.py").write_text('_FROM = {"run": "pool"}\n')
    (package / "wire" / "pool.py").write_text("")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text("from allranks import run\n")
    graph = reach.Graph(tmp_path)
    assert graph.distances(["utils/allranks/wire/pool.py"])["tests/test_a.py"] == 1


SUITE = {
    "conftest.py": "pytest_plugins = ('selection',)\n",
    "test_near.py": "import helper\nimport pytest\n\n\ndef test_near():\n    assert helper.ONE == 1\n",
    "test_other.py": "import pytest\n\n\n@pytest.mark.parametrize('n', range(3))\ndef test_other(n):\n    pass\n\n\n"
    "@pytest.mark.core\ndef test_core():\n    pass\n",
    "helper.py": "ONE = 1\n",
}


@pytest.fixture
def suite(tmp_path):
    """A project of its own with these plug-ins; the result of its `make test`."""
    tests = tmp_path / "tests"
    tests.mkdir()
    for name, text in SUITE.items():
        (tests / name).write_text(text)
    for module in (reach, selection):
        (tests / Path(module.__file__).name).write_text(Path(module.__file__).read_text(encoding="utf-8"))
    (tmp_path / "pyproject.toml").write_text(
        "[tool.pytest.ini_options]\ntestpaths = ['tests']\nmarkers = ['core: c']\n"
    )

    def run(*options: str) -> tuple[int, set[str]]:
        (tmp_path / "shared").mkdir(exist_ok=True)
        (tmp_path / "shared" / "plan.pickle").unlink(missing_ok=True)
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-v", "-p", "no:randomly", *options],
            cwd=tmp_path,
            # two texts of one second and one length would share a compiled file
            env={
                "PYTHONDONTWRITEBYTECODE": "1",
                "PATH": "/usr/bin:/bin",
                "ALLRANKS_TESTS": "change",
                selection.SHARED: str(tmp_path / "shared"),
            },
            capture_output=True,
            text=True,
        )
        return done.returncode, set(re.findall(r"::(\S+) (?:PASSED|FAILED)", done.stdout))

    run.root = tests
    return run


def test_a_fresh_clone_runs_the_core_and_one_of_everything(suite):
    assert suite() == (0, {"test_near", "test_core", "test_other[0]"})


def test_after_a_run_that_passed_only_the_core_and_what_changed(suite):
    suite()
    assert suite() == (0, {"test_core"})
    (suite.root / "helper.py").write_text("ONE = 1  # as before\n")
    assert suite() == (0, {"test_core", "test_near"})


def test_what_failed_is_run_until_it_passes(suite):
    suite()
    (suite.root / "helper.py").write_text("ONE = 2\n")
    assert suite() == (1, {"test_core", "test_near"})
    assert suite() == (1, {"test_core", "test_near"})
    (suite.root / "helper.py").write_text("ONE = 1\n\n")
    assert suite() == (0, {"test_core", "test_near"})
    assert suite() == (0, {"test_core"})


def test_a_part_by_name_does_not_count_as_passed(suite):
    suite("-k", "core")
    assert suite() == (0, {"test_near", "test_core", "test_other[0]"})


def test_pages_whose_policy_forbids_eval_are_not_waited_for_with_it():
    """`wait_for_function` passes there if its words are true at once, and fails if they must be looked at again."""
    live = [file for file in (ROOT / "tests" / "browser").glob("test_*.py") if "live_server" in file.read_text()]
    waiting = [file.name for file in live if "wait_for_function(" in file.read_text(encoding="utf-8")]
    assert live and waiting == []
