"""How far a long cell has come: nothing for what is quick, a bar that a real kernel shows and takes away."""

from __future__ import annotations

import threading

import nbclient
import nbformat
import pytest
from allranks.base import progress
from allranks.base.progress import Progress, with_progress


class Terminal:
    """Standard error of a terminal."""

    def __init__(self) -> None:
        self.said = ""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> None:
        self.said += text

    def flush(self) -> None:
        pass


def test_what_is_quick_shows_nothing(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(progress, "AFTER_S", 60)
    assert list(with_progress("abc", 3, "letters")) == ["a", "b", "c"]
    assert terminal.said == ""


def test_a_terminal_gets_a_line_that_goes_when_it_is_over(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(progress, "AFTER_S", -1.0)
    monkeypatch.setattr(progress, "EVERY_S", 60)
    with pytest.raises(KeyError):
        for letter in with_progress("abc", 3, "letters"):
            if letter == "c":
                raise KeyError
    assert "\r1 of 3 letters " in terminal.said and "2 of 3 letters" not in terminal.said, "not more often than wanted"
    assert terminal.said.endswith("\r") and terminal.said.count("\r") == 3


def test_in_a_notebook_the_bar_is_there_before_a_long_first_step(monkeypatch):
    shown = threading.Event()
    monkeypatch.setattr(progress, "in_notebook", lambda: True)
    monkeypatch.setattr(Progress, "_draw", lambda bar: shown.set())
    monkeypatch.setattr(progress, "AFTER_S", 0.0)
    for _ in with_progress("a", 1, "letters"):
        assert shown.wait(60), "nobody has made a step, and nothing is shown"


def test_a_bar_that_is_over_is_not_shown_any_more(monkeypatch):
    monkeypatch.setattr(progress, "in_notebook", lambda: True)
    monkeypatch.setattr(Progress, "_draw", lambda bar: pytest.fail("it was over"))
    monkeypatch.setattr(progress, "AFTER_S", 60)
    assert list(with_progress("abc", 3, "letters")) == ["a", "b", "c"]
    bar = Progress(1, "letters")
    bar.close()
    bar._show()


def test_the_bar_says_how_far_it_has_come():
    bar = Progress(4, "<sizes>")
    bar.done = 1
    shown = bar.html()
    assert "width:25%" in shown and 'aria-valuenow="1"' in shown and "<sizes>" not in shown


CELL = """
from allranks.base import progress
progress.EVERY_S = 0
progress.AFTER_S = -1
from allranks import check
def ring_shift(tensor, k):
    return tensor
check(ring_shift)
"""


@pytest.mark.notebooks
def test_a_check_shows_its_cases_and_takes_the_bar_away():
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    seen = []
    client = nbclient.NotebookClient(book, kernel_name="python3", timeout=120)
    handle = client.process_message

    def watch(message, cell, index):
        if message["msg_type"] in ("display_data", "update_display_data"):
            seen.append(message["content"]["data"])
        return handle(message, cell, index)

    client.process_message = watch
    client.execute()
    bars = [data["text/plain"] for data in seen if 'role="progressbar"' in data.get("text/html", "")]
    total = int(bars[-1].split()[2])
    stepped = [bar for bar in bars if not bar.startswith("0 ")]  # the first one may be shown before a case is done
    assert stepped == [f"{done} of {total} cases" for done in range(1, total + 1)] and total > 30
    assert seen[-1] == {"text/plain": ""}
