"""Text cells as formgrader and the feedback pages show them: by nbconvert's exporter, in the course's configuration."""

from __future__ import annotations

import re

import nbformat
import pytest
from bs4 import BeautifulSoup
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
    assert_leads_nowhere(shown(configured, link.format(address)))


def assert_leads_nowhere(page: str) -> None:
    """No tag of the page has an address, but within the page or of a picture that is in it."""
    for tag in BeautifulSoup(page, "html.parser").find_all(True):
        addresses = {name: value for name, value in tag.attrs.items() if name not in ("class", "id", "alt", "title")}
        led = [
            v
            for v in addresses.values()
            if re.search(r"[:/.(]", str(v)) and not str(v).startswith(("#", "data:image/svg"))
        ]
        assert not led, f"<{tag.name}>: {addresses}"


@pytest.mark.parametrize(
    "address", ["https://a.org/x?y=z", "mailto:x@y.org", "//a.org/x", "plot.png", "/user/mal/notes", "a/b:c"]
)
@pytest.mark.parametrize(
    "link", ["[x]({})", '<a href="{}" target="_top">x</a>', "[x][1]\n\n[1]: {}", "<{}>", "![x]({})"]
)
def test_a_link_and_a_picture_are_shown_as_text(configured, link, address):
    """Whoever reads answers can change marks: a click would open a page that a student chose."""
    found = shown(configured, f"before {link.format(address)}")
    assert_leads_nowhere(found)
    if not link.startswith("<{") or "://" in address or "@" in address:
        assert address in BeautifulSoup(found, "html.parser").get_text()


@pytest.mark.parametrize(
    "text",
    [
        '<img src="https://a.org/t.png">',
        '<img srcset="https://a.org/t.png 2x">',
        '<table background="https://a.org/t.png"><tr><td>x</td></tr></table>',
        '<p style="background:url(https://a.org/t.png)">x</p>',
        '<video poster="https://a.org/t.png"></video>',
        '<svg><image href="https://a.org/t.png"/></svg>',
        '<link rel="stylesheet" href="https://a.org/t.css">',
        '<meta http-equiv="refresh" content="0;url=https://a.org">',
        '<blockquote cite="https://a.org">x</blockquote>',
        "![x](https://a.org/t.png)",
        "[![x](https://a.org/t.png)](https://a.org)",
    ],
)
def test_nothing_in_a_text_is_loaded_from_elsewhere(configured, text):
    assert_leads_nowhere(shown(configured, text))


def test_links_within_the_page_and_formulas_stay(configured):
    assert '<a href="#here">x</a>' in shown(configured, "[x](#here)")
    assert "data:image/svg" in shown(configured, "$a^2$")


def test_an_image_that_was_pasted_is_left_out_and_no_error(configured):
    attachments = {"a.png": {"image/png": "AAAA"}}
    found = shown(configured, "See ![my plot](attachment:a.png) here.", attachments=attachments)
    assert "<p>See [picture my plot attachment:a.png] here.</p>" in found


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
