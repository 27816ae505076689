"""Text cells as formgrader and the feedback pages show them: by nbconvert's exporter, in the course's configuration."""

from __future__ import annotations

import nbformat
import pytest
from grading_course import ROOT
from nbconvert.exporters import HTMLExporter
from traitlets.config import Config, PyFileConfigLoader


@pytest.fixture(scope="module")
def configured() -> Config:
    return PyFileConfigLoader("nbgrader_config.py", path=str(ROOT / "autograder")).load_config()


def shown(config: Config, text: str, **more) -> str:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text, **more)])
    page = HTMLExporter(config=config, template_name="classic").from_notebook_node(notebook)[0]
    return page[page.index("<body") :]


@pytest.mark.parametrize(
    "address",
    [
        r"javascript\:alert(1)",
        "&#106;avascript:alert(1)",
        "java&#115;cript&colon;alert(1)",
        "&#1;java&#115;cript:alert(1)",
        "&#118;bscript:x",
        "&#100;ata:text/html;base64,AAAA",
    ],
)
@pytest.mark.parametrize("link", ["[x]({})", "![x]({})", "[x][1]\n\n[1]: {}"])
def test_a_link_that_runs_leads_nowhere(configured, link, address):
    assert any(f'{name}="#"' in shown(configured, link.format(address)) for name in ("href", "src"))


@pytest.mark.parametrize("address", ["https://a.org/x?y=z", "mailto:x@y.org", "#here", "plot.png", "a/b:c"])
def test_other_links_stay(configured, address):
    assert f'<a href="{address}">x</a>' in shown(configured, f"[x]({address})")


def test_an_image_that_was_pasted_is_left_out_and_no_error(configured):
    attachments = {"a.png": {"image/png": "AAAA"}}
    found = shown(configured, "See ![my plot](attachment:a.png) here.", attachments=attachments)
    assert '<p>See <img alt="my plot" src="#"/> here.</p>' in found


@pytest.mark.parametrize("opening", ["", "<!--", "```\n", "$$"])
def test_a_text_too_long_to_be_shown_is_cut_and_says_so(configured, opening):
    found = shown(configured, opening + "word " * 9_999 + "kept? " + "far " * 5_000 + "END")
    said = f"This cell has {len(opening) + 70_004} characters. The page shows the first 50000; the notebook has all of them."
    assert said in found
    assert found.count("word") == (0 if opening == "<!--" else 9_999)  # an unclosed comment is left out
    assert "far " not in found
    assert "END" not in found


def test_a_text_that_is_long_is_shown(configured):
    found = shown(configured, "word " * 9_999 + "END")
    assert "END" in found
    assert "The page shows" not in found


def test_many_long_texts_are_cut_too(configured):
    cells = [nbformat.v4.new_markdown_cell("word " * 9_000) for _ in range(20)]
    notebook = nbformat.v4.new_notebook(cells=cells)
    for _ in range(2):  # one exporter shows the notebooks of a class, each in full
        page = HTMLExporter(config=configured, template_name="classic").from_notebook_node(notebook)[0]
        page = page[page.index("<body") :]
        assert page.count("word") == 40_000
        assert page.count("The page shows the first 20000") == 1
        assert page.count("The page shows the first 0;") == 15
