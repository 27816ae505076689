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
# Markdown's time grows with the square of some texts: seconds for this many characters, days for what a file may hold
MAX_CELL_CHARACTERS = 50_000
MAX_NOTEBOOK_CHARACTERS = 200_000
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
    """Escapes the HTML in text cells, breaks links that run something, and cuts what is too long to be shown.

    Code cells hold only what the grader wrote.
    """

    _left = MAX_NOTEBOOK_CHARACTERS  # that may still be shown of a notebook

    def preprocess(self, notebook: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        """The notebook, harmless."""
        self._left = MAX_NOTEBOOK_CHARACTERS
        return super().preprocess(notebook, resources)

    def preprocess_cell(self, cell: NotebookNode, resources: dict, index: int) -> tuple[NotebookNode, dict]:
        """The cell, harmless."""
        if cell.cell_type == "code":
            return cell, resources
        self._cut(cell)
        cell, resources = super().preprocess_cell(cell, resources, index)
        cell.source = _RUNS.sub("\\1\N{ZERO WIDTH SPACE}\\2", cell.source)
        cell.pop("attachments", None)
        return cell, resources

    def _cut(self, cell: NotebookNode) -> None:
        """Leaves out of a text what is too long, and says so above it, where no unclosed comment of the text's own hides it."""
        most, whole = min(MAX_CELL_CHARACTERS, self._left), len(cell.source)
        self._left -= min(whole, most)
        if whole > most:
            said = f"This cell has {whole} characters. The page shows the first {most}; the notebook has all of them."
            cell.source = f"**{said}**\n\n{cell.source[:most]}"
