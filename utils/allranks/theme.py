"""One meaning a colour, in every picture of the course: the style sheet that Python's HTML and the widgets' JavaScript share."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path


@cache
def style() -> str:
    """The style sheet, as an element of HTML: what has the class `ar-theme` can use its variables, in both themes.

    >>> "--ar-ink" in style()
    True
    """
    text = Path(__file__).with_name("theme.css").read_text(encoding="utf-8")
    rules = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    return f"<style>{' '.join(rules.split())}</style>"
