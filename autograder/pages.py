"""The grader's pages, as Jinja2's templates in templates/. What is put into one is escaped, unless the template says that it is safe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from allranks.base.theme import style
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from autograder.rows import printable

TEMPLATES = Path(__file__).with_name("templates")


def _shown(value: Any) -> Any:
    """Text without control characters: students choose some of it."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


_pages = Environment(
    loader=FileSystemLoader(TEMPLATES),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_shown,
    trim_blocks=True,
    lstrip_blocks=True,
)


def page(name: str, filters: dict[str, Any] | None = None, **about: Any) -> str:
    """The HTML of a template with these values; `style` is the course's. Raises jinja2.UndefinedError for one that is missing.

    >>> "&lt;b&gt;" in page("feedback_top.html.j2", parts=[], worst=None, score=1.0, most=2.0, waits=0, handed_in="<b>", again=None)
    True
    """
    here = _pages.overlay()
    here.filters = {**_pages.filters, **(filters or {})}
    return here.get_template(name).render(style=Markup(style()), **about)
