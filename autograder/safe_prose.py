"""Makes the text cells of a submission harmless before formgrader or a feedback page shows them.

Markdown may hold HTML, and HTML may hold scripts. In formgrader, a script would run in the browser of a person who can
change every grade. The files themselves do not change.

`SafeProse` cleans the Markdown, and `markdown2html` the links in the HTML: the conversion decodes backslashes and
entities, so that a link may become dangerous only then.
"""

from __future__ import annotations

import html
import re

from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbconvert.preprocessors.sanitize import SanitizeHTML
from nbformat import NotebookNode

_RUNS = re.compile(r"(javascript|vbscript|data)(\s*(?::|&colon;|&#0*58;?|&#x0*3a;?))", re.IGNORECASE)
_ADDRESS = re.compile(r'\b(href|src)="([^"]*)"')
_UNSEEN = re.compile(r"[\x00-\x20]")  # a browser ignores these characters in an address
# for some texts the conversion takes quadratic time: seconds for so many characters, days for the largest file
MAX_CELL_CHARACTERS = 50_000
MAX_NOTEBOOK_CHARACTERS = 200_000
_ELSEWHERE = re.compile(r"(?!https?:|mailto:)[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def markdown2html(source: str) -> str:
    """The HTML of a Markdown text. Links lead only to web pages and mail addresses; all others are replaced by "#"."""
    return _ADDRESS.sub(_led_nowhere, MarkdownWithMath(_Renderer(escape=False)).render(source))


class _Renderer(IPythonRenderer):
    """nbconvert's renderer, but a missing attachment is no error: `SafeProse` removes attachments."""

    def image(self, text: str, url: str, title: str | None = None) -> str:
        """The image's HTML."""
        return super(IPythonRenderer, self).image(text, url, title)


def _led_nowhere(found: re.Match) -> str:
    return f'{found[1]}="#"' if _ELSEWHERE.match(_UNSEEN.sub("", html.unescape(found[2]))) else found[0]


class SafeProse(SanitizeHTML):
    """Escapes the HTML in text cells, breaks links that run scripts, and cuts cells that are too long to show.

    It leaves code cells alone, because they hold only what the grader wrote.
    """

    _left = MAX_NOTEBOOK_CHARACTERS  # how many characters of this notebook may still be shown

    def preprocess(self, notebook: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        """The notebook, made harmless."""
        self._left = MAX_NOTEBOOK_CHARACTERS
        return super().preprocess(notebook, resources)

    def preprocess_cell(self, cell: NotebookNode, resources: dict, index: int) -> tuple[NotebookNode, dict]:
        """The cell, made harmless."""
        if cell.cell_type == "code":
            return cell, resources
        self._cut(cell)
        cell, resources = super().preprocess_cell(cell, resources, index)
        cell.source = _RUNS.sub("\\1\N{ZERO WIDTH SPACE}\\2", cell.source)
        cell.pop("attachments", None)
        return cell, resources

    def _cut(self, cell: NotebookNode) -> None:
        """Cuts a text that is too long.

        Puts the notice first, so that an unclosed comment in the text can't hide it.
        """
        most, whole = min(MAX_CELL_CHARACTERS, self._left), len(cell.source)
        self._left -= min(whole, most)
        if whole > most:
            said = f"This cell has {whole} characters. The page shows the first {most}; the notebook has all of them."
            cell.source = f"**{said}**\n\n{cell.source[:most]}"
