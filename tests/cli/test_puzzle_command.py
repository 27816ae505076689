"""`allranks puzzle`: the list, the code to begin with, verdicts, share links, and the same code on real processes."""

import json
from pathlib import Path

import pytest
from allranks import puzzles
from allranks.cli import main
from click.testing import CliRunner
from puzzle_answers import puzzle_answers

ANSWERS = puzzle_answers()
RIGHT = [answer for answer in ANSWERS if answer.name.startswith("right_")]


def run(*words):
    done = CliRunner().invoke(main, ["puzzle", *map(str, words)])
    return done.exit_code, done.output


def test_without_a_number_it_lists_all_ten():
    code, told = run()
    assert code == 0 and all(row["title"] in told for row in puzzles.catalogue())
    assert len(json.loads(run("--json")[1])["puzzles"]) == 10


def test_the_code_to_begin_with_is_a_file_that_is_judged(tmp_path):
    for row in puzzles.catalogue():
        (tmp_path / "mine.py").write_text(run(row["number"])[1], encoding="utf-8")
        code, told = run(row["number"], tmp_path / "mine.py", "--json")
        assert code == 1 and json.loads(told)["code"] == puzzles.judge(row["id"], row["starter"])["code"]


def test_a_verdict_names_the_line_and_where_every_rank_stands():
    file = next(answer.path for answer in ANSWERS if str(answer) == "circle/wrong_as_given")
    code, told = run("circle", file)
    assert code == 1 and told.startswith(f"{file}:6: All four wait in send, in a circle")
    assert "  rank 3 waits for rank 0 in send(x, 0)\n" in told and "  rank 3: rank 3 sends\n" in told


@pytest.mark.parametrize("answer", RIGHT, ids=str)
def test_a_right_answer_is_right_on_real_processes_too(answer, tmp_path):
    (tmp_path / "mine.py").write_text(answer.text, encoding="utf-8")
    code, told = run(answer.puzzle, tmp_path / "mine.py", "--real", "--json")
    found = json.loads(told)
    assert code == 0, found["real"]
    assert (
        "real processes, with torch 2" in found["real"] and f": {found['lead']['messages']} messages" in found["real"]
    )


def test_a_link_is_written_to_a_file_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = next(answer.text for answer in RIGHT if str(answer) == "ring/right_ring")
    link = f"https://example.org/puzzles.html#{puzzles.pack('ring', text)}"
    code, told = run("--from", link)
    assert (code, Path("ring.py").read_text(encoding="utf-8")) == (0, text)
    assert "allranks puzzle 5 ring.py" in told and run("ring", "ring.py")[0] == 0
    assert run("--from", link) == (
        2,
        "ring.py is there already; name another file: allranks puzzle --from LINK FILE.\n",
    )
    assert run("--from", link, "other.py")[0] == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["11"], "There is no puzzle '11'; there are 1 to 10: pass, sum"),
        (["5", "none.py"], "There is no file none.py."),
        (["5", "."], ". can't be read: Is a directory."),
        (["--from", "#p=ring&c=%"], "This link is broken: its code can't be read."),
        (["--from", "#p=ring&c=AA", "a.py", "b.py"], "--from takes a link"),
        (["--from", "#" + puzzles.pack("ring", "x"), "none/ring.py"], "can't be written"),
    ],
)
def test_what_can_not_be_done_is_said_in_a_sentence(words, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, told = run(*words)
    assert code == 2 and sentence in told and told.count("\n") == 1
