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
