"""What the live pages ask of the course, asked in this Python: the same file runs in the browser."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from loading import loaded

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def answers():
    return loaded(ROOT / "tools" / "live" / "answers.py")


@pytest.fixture(scope="module")
def tool():
    return loaded(ROOT / "tools" / "live_site.py")


@pytest.fixture
def ask(answers, tmp_path, monkeypatch):
    """A function that asks as a page does, in JSON, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return lambda question, /, **request: json.loads(answers.answer(question, json.dumps(request)))


FORM = {"collective": "all_reduce", "ranks": 4, "nbytes": "1MiB", "machine": "dgx-h100"}


def programs(tool):
    return {name: one["source"] for name, one in tool.examples().items()}


def test_every_example_does_what_its_title_says(tool, ask):
    assert len(tool.examples()) >= 5
    for name, one in tool.examples().items():
        for ranks in (1, 2, 3, 4, 5, 8):
            form = FORM | {"ranks": ranks, "collective": one["collective"], "root": ranks // 2}
            said = ask("schedule", source=one["source"], **form)
            assert ("fault" in said) == ("mistake" in one["title"] and ranks > 1), (name, ranks, said.get("fault"))
    assert "mistake" in tool.examples()["b_broken_ring"]["title"]


def test_the_figures_are_those_of_the_simulator(tool, ask):
    from allranks import schedules, topology
    from allranks.theory.simulator.simulation import run_schedule

    said = ask("schedule", source=programs(tool)["a_ring"], **FORM)
    wanted = run_schedule(schedules.ring_all_reduce(4), 1 << 20, topology.preset("dgx-h100"))
    assert said["seconds"] == wanted.seconds
    assert f"{wanted.bytes_per_rank:,}" in said["html"] and said["player"]["animation"]


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("r - step", "r", None, "the contribution of rank 0 was added twice"),
        ("p - 1)", "p - 1", 8, "line 8: invalid syntax"),
        ("task.ranks", "task.rank", 6, "AttributeError in line 6"),
        ("(r + 1) % p", "r + 1", None, "there is no rank 4"),
        ("def schedule", "def plan", None, "it defines no function schedule(task)"),
        ('"all_reduce"', '"broadcast"', None, "Of your schedule the collective is broadcast; you chose all_reduce"),
        ("ranks\n", "ranks + 1\n", None, "Of your schedule the number of ranks is 5; you chose 4"),
        ("moves = []", "schedule(task)", 7, "RecursionError in line 7"),
        ("return Schedule", "return str", 14, "TypeError in line 14"),
        ("    return Schedule", "    Schedule", None, "returned NoneType; it must return a Schedule"),
    ],
)
def test_what_is_wrong_is_one_sentence_with_its_line(tool, ask, old, new, line, words):
    source = programs(tool)["a_ring"].replace(old, new)
    fault = ask("schedule", source=source, **FORM)["fault"]
    assert words in fault["text"] and "\n" not in fault["text"]
    assert fault["line"] == line


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ({"nbytes": "many"}, "not a number of bytes"),
        ({"ranks": 0}, "from 1 to 1024"),
        ({"ranks": None}, "from 1 to 1024"),
        ({"machine": "abacus"}, "abacus"),
        ({"collective": "gossip"}, "There is no collective"),
        ({"collective": "broadcast", "root": 9}, "The root is 9"),
    ],
)
def test_a_form_that_makes_no_sense_is_one_sentence(tool, ask, form, words):
    assert words in ask("schedule", source=programs(tool)["a_ring"], **FORM | form)["fault"]["text"]


def test_what_the_reader_writes_is_escaped(tool, ask):
    source = programs(tool)["a_ring"].replace("p = task.ranks", "raise ValueError('<img src=x onerror=alert(1)>')")
    assert "<img" not in ask("schedule", source=source, **FORM)["html"]
    assert "<img" not in ask("explain", files=["<img src=x>"])["html"]


def test_a_large_schedule_is_priced_and_not_played(tool, ask):
    said = ask("schedule", source=programs(tool)["a_ring"], **FORM | {"ranks": 100})
    assert "player" not in said and "19800 messages of 100 ranks are not played here" in said["unplayed"]
    assert "Proved" in said["html"]


def test_the_race_scores_as_the_command_does(tool, ask, tmp_path):
    from allranks.cli.race import command
    from click.testing import CliRunner

    (tmp_path / "my_entry.py").write_text(programs(tool)["e_from_the_course"])
    printed = CliRunner().invoke(command, ["two-nodes", str(tmp_path / "my_entry.py")], catch_exceptions=False)
    said = ask("race", source=programs(tool)["e_from_the_course"], name="two-nodes")
    assert said["text"] == printed.output.rstrip("\n")
    assert said["board"].count('class="yours"') == 1
    wrong = ask("race", source=programs(tool)["d_ring_all_gather"], name="two-nodes")
    assert "two-nodes is all_reduce" in wrong["fault"]["text"] and "yours" not in wrong["board"]


def test_samples_and_files_are_explained_as_by_the_command(answers, ask):
    from allranks import planted, profiles
    from allranks.exercises.planted.job import as_job

    for name in answers.OFFERED["samples"]:
        said = ask("explain", sample=name)
        assert said["text"] == profiles.explain(as_job(planted.recorded(name))).text()
    assert ask("explain", files=["gone.json"])["fault"]["text"] == "There is no file gone.json."
    Path("odd.txt").write_text("no profile")
    assert "its format is not known" in ask("explain", files=["odd.txt"])["fault"]["text"]


def test_every_form_of_the_calculator_computes(tool, ask):
    """What the page shows first in each form: the fields' values are enough."""
    for name in tool.COMMANDS:
        words = name.split()
        for field in tool._fields(name):
            if field["value"] != field["default"] and not field["is_flag"] and not field["choices"]:
                words += [field["flag"], field["value"]]
        said = ask("command", arguments=words)
        assert "fault" not in said and said["text"], (name, said)
    assert ask("command", arguments=["lab"])["fault"]["text"] == "Here run price, plan and simulate."
    assert "ZeRO stage 7" in ask("command", arguments=["price", "zero", "--stage", "7"])["fault"]["text"]


def test_the_zip_is_enough_alone(tool, tmp_path):
    """Python with nothing but the zip, without site-packages, answers every question; two builds are equal."""
    made = tool.course()
    assert made == tool.course()
    with zipfile.ZipFile(io.BytesIO(made)) as archive:
        archive.extractall(tmp_path)
        names = archive.namelist()
    assert len(made) < 1_000_000 and not any("torch" in name for name in names)
    # of the exercises only the jobs that one of them plants: no inputs, no right results
    ours = [name for name in names if name.startswith("allranks/exercises/")]
    assert all(name.startswith(("allranks/exercises/planted/", "allranks/exercises/__init__")) for name in ours)
    code = """
import json, sys
sys.path.insert(0, sys.argv[1])
sys.modules["resource"] = None  # no browser has it
import answers
ring = open(sys.argv[2]).read()
for name, request in (
    ("schedule", {"source": ring, "collective": "all_reduce", "ranks": 3, "nbytes": "1MB", "machine": "p5"}),
    ("race", {"source": ring, "name": "two-nodes"}), ("explain", {"sample": "straggler"}),
    *(("command", {"arguments": words.split()}) for words in ("plan", "price zero", "simulate")),
):
    said = json.loads(answers.answer(name, json.dumps(request)))
    assert "fault" not in said and said["html"], (name, said)
print(sorted({m.split(".")[0] for m in sys.modules} & {"torch", "numpy", "matplotlib", "anywidget", "IPython"}))
"""
    ring = ROOT / "tools" / "live" / "examples" / "a_ring.py"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, str(tmp_path), str(ring)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_without_the_tools_the_build_says_what_to_do(tool, tmp_path, monkeypatch):
    monkeypatch.setattr(tool, "JS", tmp_path)
    with pytest.raises(tool.LiveError, match=r"make js-tools|Node.js is not installed"):
        tool.build(tmp_path / "live")
    assert not (tmp_path / "live").exists()
