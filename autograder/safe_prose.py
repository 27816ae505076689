"""Makes the text cells of a submission harmless before formgrader or a feedback page shows them.

Markdown may hold HTML, and HTML may hold scripts. In formgrader, a script would run in the browser of a person who can
change every grade; a link that such a person clicks leads to a page that a student chose; a picture from elsewhere tells
its server who reads what, and when. The files themselves do not change.

`SafeProse` cleans the Markdown, and `markdown2html` the addresses in the HTML: the conversion decodes backslashes and
entities, so that an address may become dangerous only then.
"""

from __future__ import annotations

import html
import re

from bs4 import BeautifulSoup
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbconvert.preprocessors.sanitize import SanitizeHTML
from nbformat import NotebookNode
from nbgrader.server_extensions.formgrader.base import BaseHandler

from autograder.formulas import PICTURE, formula, ready
from autograder.showing import cut, in_time

_RUNS = re.compile(r"(javascript|vbscript|data)(\s*(?::|&colon;|&#0*58;?|&#x0*3a;?))", re.IGNORECASE)
# what may stay of a tag; all other attributes could load or run something, or lay a tag over the page
_HARMLESS = {"alt", "title", "class", "align", "colspan", "rowspan", "start", "id", "name"}
_FORMULA = re.compile(r"height:\d{1,3}\.\d\dem;vertical-align:-?\d{1,3}\.\d\dem|text-align:center;margin:\.6em 0")
# texts beside the notebook in formgrader's page of a submission: nbconvert's templates escape nothing
_BESIDE = ("student", "first_name", "last_name", "assignment_id", "notebook_id", "notebook_path")
_LOADS = (
    "img",
    "iframe",
    "object",
    "embed",
    "video",
    "audio",
    "source",
    "link",
    "script",
    "style",
    "meta",
    "base",
    "form",
)


def markdown2html(source: str) -> str:
    """The HTML of a Markdown text. A link is its text and its address, not to be clicked; a picture is its name and address.

    Nothing in it loads or leads anywhere. Only links within the page stay, and formulas, which are pictures in the page.
    """
    ready()  # before the time runs
    return in_time(
        lambda: without_addresses(MarkdownWithMath(_Renderer(escape=False)).render(source)), lambda: _plain(source)
    )


def without_addresses(shown: str) -> str:
    """The HTML without what a browser follows, loads or runs.

    >>> without_addresses('<p>See <a href="https://a.org">this</a></p>')
    '<p>See this (https://a.org)</p>'
    """
    soup = BeautifulSoup(shown, "html.parser")
    for tag in soup.find_all(True):
        address = str(tag.get("href") or tag.get("src") or "").strip()
        for name in set(tag.attrs) - _HARMLESS:
            if name != "style" or not _FORMULA.fullmatch(str(tag[name])):
                del tag[name]
        if tag.name == "a" and address.startswith("#"):
            tag["href"] = address
        elif tag.name == "a":
            if address and address != tag.get_text():
                tag.append(f" ({address})")
            tag.unwrap()
        elif tag.name == "img" and address.startswith(PICTURE):  # a browser runs no script in a picture
            tag["src"] = address
        elif tag.name in _LOADS:
            tag.replace_with(f"[{' '.join(filter(None, ('picture', str(tag.get('alt') or ''), address)))}]")
    return str(soup)


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


def guard_formgrader() -> None:
    """Makes formgrader's pages escape what they are given: a link that a student sends may name a lab `<script>`."""
    if getattr(BaseHandler, "allranks", False):
        return
    render = BaseHandler.render

    def escaped(self: BaseHandler, name: str, **about: object) -> str:
        self.settings["nbgrader_jinja2_env"].autoescape = True
        return render(self, name, **about)

    BaseHandler.render, BaseHandler.allranks = escaped, True


class SafeProse(SanitizeHTML):
    """Escapes the HTML in text cells and in names, breaks links that run scripts, and cuts cells that are too long to show.

    Of code cells it leaves the outputs alone, because they hold only what the grader wrote.
    """

    def preprocess(self, notebook: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        """The notebook, made harmless."""
        cut(notebook)  # for notebooks that were graded before grading did so
        notebook.metadata.pop("widgets", None)
        resources |= {name: html.escape(resources[name]) for name in _BESIDE if isinstance(resources.get(name), str)}
        return super().preprocess(notebook, resources)

    def preprocess_cell(self, cell: NotebookNode, resources: dict, index: int) -> tuple[NotebookNode, dict]:
        """The cell, made harmless."""
        if cell.cell_type == "code":
            return cell, resources
        cell, resources = super().preprocess_cell(cell, resources, index)
        cell.source = _RUNS.sub("\\1\N{ZERO WIDTH SPACE}\\2", cell.source)
        return cell, resources
