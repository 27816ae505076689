"""What formgrader and the feedback pages show of a notebook: cut to size, stripped, and laid out in bounded time."""

from __future__ import annotations

import random
import time

import nbformat
import pytest
from grading_course import ROOT
from nbconvert.exporters import HTMLExporter
from traitlets.config import Config, PyFileConfigLoader

from autograder.showing import MAX_BLANK_LINES, MAX_CELLS, TooSlow, cut, highlight_code, in_time, limited, strip


@pytest.fixture(scope="module")
def configured() -> Config:
    return PyFileConfigLoader("nbgrader_config.py", path=str(ROOT / "autograder")).load_config()


def page(config: Config, notebook: nbformat.NotebookNode) -> str:
    found = HTMLExporter(config=config, template_name="classic").from_notebook_node(notebook)[0]
    return found[found.index("<body") :]


def notebook(*cells: nbformat.NotebookNode, **metadata) -> nbformat.NotebookNode:
    made = nbformat.v4.new_notebook(cells=list(cells))
    made.metadata.update(nbformat.from_dict(metadata))
    return made


code, text = nbformat.v4.new_code_cell, nbformat.v4.new_markdown_cell


@pytest.mark.parametrize("new", [code, text])
@pytest.mark.parametrize("blank", ["\n", " \n", "\t \n", "\f\n"])
def test_blank_lines_without_end_are_left_out_and_that_is_said(configured, new, blank):
    lines = 60_000 // len(blank)
    found = page(configured, notebook(new("first = 1\n" + blank * lines + "last = 2")))
    said = f"{lines - MAX_BLANK_LINES} blank lines are left out of the page; the notebook has all of them."
    assert said in found and "first" in found and "last" in found


@pytest.mark.parametrize("new", [code, text])
def test_an_honest_cell_is_shown_as_it_is(new):
    source = "import torch\n\n\n\ndef f(t):\n\n    return t" + " # a long line" * 60
    made = notebook(new(source))
    cut(made)
    assert made.cells[0].source == source


def test_long_lines_many_lines_and_many_cells_are_cut_and_each_is_said(configured):
    cells = [code("x = '" + "a" * 5000 + "'"), code("x = 1\n" * 3000), *(code(f"y = {i}") for i in range(1000))]
    made = notebook(*cells)
    cut(made)
    assert [cell.source.split("\n")[0] for cell in made.cells[:3]] == [
        "**702 cells are left out of the page; the notebook has all of them.**",
        "# The page shows the first 2000 characters of each line; the notebook has all of them.",
        "# This cell has 3001 lines. The page shows the first 2000; the notebook has all of them.",
    ]
    assert len(made.cells) == MAX_CELLS + 1
    again = nbformat.from_dict(made)
    cut(again)
    assert again == made


def test_cells_of_the_released_notebook_are_never_left_out():
    mine = text("answer", metadata={"nbgrader": {"grade_id": "why"}})
    made = notebook(*(code("x") for _ in range(1000)), mine)
    cut(made)
    assert made.cells[-1].source == "answer"


def test_an_image_that_was_pasted_is_said_to_be_missing():
    made = notebook(text("See ![plot](attachment:a.png)", attachments={"a.png": {"image/png": "AAAA"}}))
    strip(made)
    cut(made)
    assert made.cells[0].source.startswith("**An image that was pasted into this cell is left out of the page")
    assert "attachments" not in made.cells[0]


ODD = {
    "colab": {"widgets": {"application/vnd.jupyter.widget-state+json": {"a": {"model_name": "HTMLModel"}}}},
    "widgets are a list": {"widgets": [1, 2]},
    "language": {"language_info": {"name": "no such language", "pygments_lexer": 7}},
    "language_info is text": {"language_info": "python"},
    "kernelspec": {"kernelspec": {"name": "r", "display_name": "<script>alert(1)</script>", "language": "R"}},
    "title": {"title": "</title><script>alert(1)</script>", "authors": [{"name": "x" * 100_000}]},
}


@pytest.mark.parametrize("name", ODD)
def test_metadata_that_the_course_does_not_need_never_reaches_the_page(configured, name):
    cell = code("x = 1", metadata={"magics_language": "brainfuck", "tags": ["x", "y"]})
    made = notebook(cell, **ODD[name])
    strip(made)
    nbformat.validate(made)
    assert set(made.metadata) <= {"language_info", "allranks"} and set(made.cells[0].metadata) == set()
    found = page(configured, made)
    assert "<script>" not in found and "x" in found


@pytest.mark.parametrize("ids", [["a", "a"], ["x" * 999, "<b>"], ["", " "]])
def test_ids_are_made_anew(ids):
    made = notebook(code("x"), text("y"))
    for cell, chosen in zip(made.cells, ids, strict=True):
        cell["id"] = chosen
    strip(made)
    nbformat.validate(made)


def test_what_takes_too_long_is_shown_as_text(monkeypatch):
    monkeypatch.setattr("autograder.showing.CONVERSION_S", 0.2)

    def slow() -> str:
        time.sleep(60)
        return ""

    assert in_time(slow, lambda: "plain") == "plain"
    with pytest.raises(TooSlow), limited(0.2):
        while True:
            pass


def test_a_language_can_not_be_chosen(configured):
    found = page(configured, notebook(text("```brainfuck\n+[<b>]\n```\n"), code("%%html\n<script>alert(1)</script>")))
    assert "+[&lt;b&gt;]" in found and "<script>" not in found


def test_any_text_is_laid_out(configured):
    """Texts made of what patterns stumble over: each becomes a page."""
    draw = random.Random(23)
    for _ in range(20):
        part = "".join(
            draw.choice("\n \t\\'\"#([{@!%?f0a*_`~<>$|-=:&\r\x0b\x1b\u202e") for _ in range(draw.randrange(1, 6))
        )
        words = part * (3000 // len(part))
        assert page(configured, notebook(code(words), text(words)))
    assert "&lt;" in highlight_code("<b>")
