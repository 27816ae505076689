"""A submission's prose, made harmless before formgrader or a feedback page shows it.

Markdown may hold HTML, and HTML may hold scripts; in formgrader these would run in the browser of somebody who may
change every grade. The files themselves are left as they are.

`SafeProse` looks at the Markdown, `markdown2html` at what has become of it: backslashes and entities are undone in between.
"""

from __future__ import annotations

import html
import re

from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbconvert.preprocessors.sanitize import SanitizeHTML
from nbformat import NotebookNode

_RUNS = re.compile(r"(javascript|vbscript|data)(\s*(?::|&colon;|&#0*58;?|&#x0*3a;?))", re.IGNORECASE)
_ADDRESS = re.compile(r'\b(href|src)="([^"]*)"')
_UNSEEN = re.compile(r"[\x00-\x20]")  # which a browser leaves out of an address, wherever it stands
_ELSEWHERE = re.compile(r"(?!https?:|mailto:)[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def markdown2html(source: str) -> str:
    """HTML made of Markdown; what leads neither to a page nor to a mailbox leads nowhere."""
    return _ADDRESS.sub(_led_nowhere, MarkdownWithMath(_Renderer(escape=False)).render(source))


class _Renderer(IPythonRenderer):
    """nbconvert's own, but an attachment, which `SafeProse` takes away, is an image that isn't there and no error."""

    def image(self, text: str, url: str, title: str | None = None) -> str:
        """The image's HTML."""
        return super(IPythonRenderer, self).image(text, url, title)


def _led_nowhere(found: re.Match) -> str:
    return f'{found[1]}="#"' if _ELSEWHERE.match(_UNSEEN.sub("", html.unescape(found[2]))) else found[0]


class SafeProse(SanitizeHTML):
    """Escapes the HTML in text cells and breaks links that run something. Code cells hold only what the grader wrote."""

    def preprocess_cell(self, cell: NotebookNode, resources: dict, index: int) -> tuple[NotebookNode, dict]:
        """The cell, harmless."""
        if cell.cell_type == "code":
            return cell, resources
        cell, resources = super().preprocess_cell(cell, resources, index)
        cell.source = _RUNS.sub("\\1\N{ZERO WIDTH SPACE}\\2", cell.source)
        cell.pop("attachments", None)
        return cell, resources
