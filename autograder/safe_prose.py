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

from autograder.formulas import PICTURE, formula
from autograder.showing import cut, in_time

_RUNS = re.compile(r"(javascript|vbscript|data)(\s*(?::|&colon;|&#0*58;?|&#x0*3a;?))", re.IGNORECASE)
_ADDRESS = re.compile(r'\b(href|src)="([^"]*)"')
_UNSEEN = re.compile(r"[\x00-\x20]")  # a browser ignores these characters in an address
_ELSEWHERE = re.compile(r"(?!https?:|mailto:)[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def markdown2html(source: str) -> str:
    """The HTML of a Markdown text. Links lead only to web pages and mail addresses; all others are replaced by "#".

    Formulas are pictures in the page.
    """
    shown = in_time(lambda: MarkdownWithMath(_Renderer(escape=False)).render(source), lambda: _plain(source))
    return _ADDRESS.sub(_led_nowhere, shown)


def _plain(source: str) -> str:
    said = "This text takes too long to be laid out. The page shows it as it was typed."
    return f"<p><strong>{said}</strong></p>\n<pre>{html.escape(source)}</pre>"


class _Renderer(IPythonRenderer):
    """nbconvert's renderer, but a missing attachment is no error, and code is shown as text: a fence can't choose a language."""

    def block_code(self, code: str, info: str | None = None) -> str:
        """The HTML of a code block."""
        return f"<pre><code>{html.escape(code)}</code></pre>\n"

    def inline_math(self, body: str) -> str:
        """The picture of a formula in a line."""
        return formula(body)

    def block_math(self, body: str) -> str:
        """The picture of a formula that stands alone."""
        return formula(body, is_display=True)

    def latex_environment(self, name: str, body: str) -> str:
        """An environment, as it was typed."""
        typed = "\\begin{" + name + "}" + body + "\\end{" + name + "}"
        return f"<pre><code>{html.escape(typed)}</code></pre>"

    def image(self, text: str, url: str, title: str | None = None) -> str:
        """The image's HTML."""
        return super(IPythonRenderer, self).image(text, url, title)


def _led_nowhere(found: re.Match) -> str:
    if found[1] == "src" and found[2].startswith(PICTURE):  # a browser runs no script in a picture
        return found[0]
    return f'{found[1]}="#"' if _ELSEWHERE.match(_UNSEEN.sub("", html.unescape(found[2]))) else found[0]


class SafeProse(SanitizeHTML):
    """Escapes the HTML in text cells, breaks links that run scripts, and cuts cells that are too long to show.

    Of code cells it leaves the outputs alone, because they hold only what the grader wrote.
    """

    def preprocess(self, notebook: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        """The notebook, made harmless."""
        cut(notebook)  # for notebooks that were graded before grading did so
        notebook.metadata.pop("widgets", None)
        return super().preprocess(notebook, resources)

    def preprocess_cell(self, cell: NotebookNode, resources: dict, index: int) -> tuple[NotebookNode, dict]:
        """The cell, made harmless."""
        if cell.cell_type == "code":
            return cell, resources
        cell, resources = super().preprocess_cell(cell, resources, index)
        cell.source = _RUNS.sub("\\1\N{ZERO WIDTH SPACE}\\2", cell.source)
        return cell, resources
