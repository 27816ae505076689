"""A part of the course whose packages are not installed says in one sentence how to install them; the rest works
without.
"""

import json
import subprocess
import sys

import pytest
from allranks import doctor
from allranks.base import extras
from allranks.base.errors import CourseError

OPTIONAL = (
    "anywidget ipywidgets jsonschema jupyter_server jupyterlab jupytext matplotlib nbclient nbconvert nbformat nbgrader"
)
HIDE = f"import sys\nfor name in {OPTIONAL!r}.split(): sys.modules[name] = None\n"
COMMAND = HIDE + "from allranks.cli import main\nmain(prog_name='allranks')"


def python(code: str, *arguments: object) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("arguments", "code", "package", "extra"),
    [
        (("lab",), 2, "jupyterlab", "lab"),
        (("grade", "lab03_all_reduce"), 2, "nbgrader", "grading"),
    ],
)
def test_a_command_that_lacks_its_extra_says_how_to_install_it(arguments, code, package, extra):
    ran = python(COMMAND, *arguments)
    assert ran.returncode == code
    assert f"allranks {arguments[0]}" in ran.stderr and f"needs {package}, which is not installed." in ran.stderr
    assert f"pip install -c constraints.txt -e '.[{extra}]'" in ran.stderr
    assert len(ran.stderr.splitlines()) == 1


def test_grade_says_so_as_json_too():
    ran = python(COMMAND, "grade", "lab03_all_reduce", "--json")
    assert "needs nbgrader" in json.loads(ran.stdout)["reason"]


def test_a_public_name_that_lacks_its_extra_says_how_to_install_it():
    ran = python(HIDE + "from allranks import Player")
    assert ran.stderr.splitlines()[-1].endswith(f"Player needs anywidget, which is not installed. {INSTALL_LAB}")


INSTALL_LAB = extras.how_to_install("lab")


@pytest.mark.live
def test_worlds_checks_and_commands_need_no_extra(tmp_path, no_ghosts):
    answer = tmp_path / "answer.py"
    answer.write_text("def ring_shift(tensor):\n    return tensor\n", encoding="utf-8")
    program = tmp_path / "program.py"
    program.write_text(
        HIDE
        + "from allranks import World, check\nfrom answer import ring_shift\n"
        + "with World(ranks=2, backend='gloo') as world:\n    print(world.run(lambda: 1))\n"
        + "print(check(ring_shift).passed)\n",
        encoding="utf-8",
    )
    ran = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
    assert ran.stdout.splitlines()[-2:] == ["[1, 1]", "False"], ran.stderr
    assert python(COMMAND, "check", "ring_shift", answer).returncode == 1
    for arguments in (["simulate"], ["price", "ddp"], ["gpus"]):
        assert python(COMMAND, *arguments).returncode == 0


def test_the_error_is_both_the_courses_and_pythons():
    with pytest.raises(extras.MissingExtraError) as caught:
        extras.require("no_such_package", "nothing")
    assert isinstance(caught.value, CourseError) and isinstance(caught.value, ImportError)
    assert extras.require("json", "everything") is None


def test_each_requirement_is_found_by_its_extra():
    found = extras.requirements(["click>=8.1", 'nbgrader<0.10,>=0.9.6; extra == "grading"'])
    assert {extra: [r.name for r in wanted] for extra, wanted in found.items()} == {
        "": ["click"],
        "grading": ["nbgrader"],
    }
    assert (extras.extra_of("matplotlib.figure"), extras.extra_of("nbgrader")) == ("lab", "grading")
    assert extras.extra_of("jwt") == "lti" and "needs pyjwt, which is not" in str(extras.missing("jwt", "this"))
    assert extras.extra_of("click") is extras.extra_of("nothing") is None


@pytest.mark.parametrize(
    ("line", "status", "words"),
    [
        ('no-such-package>=1; extra == "lab"', "pass", "the extra lab lacks no-such-package"),
        ('no-such-package>=1; extra == "hub"', "pass", "torch"),
        ('click>=99; extra == "grading"', "fail", "click is"),
    ],
)
def test_the_doctor_names_what_an_extra_lacks_and_refuses_a_wrong_version(line, status, words):
    found = doctor.packages(["torch>=2", line])
    assert (found.status, words in found.found) == (status, True), found


def test_the_doctor_asks_for_widgets_only_where_jupyterlab_is_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "jupyterlab", None)
    found = doctor.widgets()
    assert (found.status, found.found) == ("warn", "JupyterLab is not installed")
