"""One meaning a colour, in every picture of the course: the style sheet that Python's HTML and the widgets' JavaScript
share.

`LIGHT` and `DARK` hold its colours by name, such as "ink", "lost" or "rank-0", as #rrggbb.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_SHEET = Path(__file__).with_name("theme.css").read_text(encoding="utf-8")


def _colours(block: str) -> dict[str, str]:
    found = re.findall(r"--ar-([\w-]+): #(\w+);", block)
    return {name: "#" + (value if len(value) == 6 else "".join(2 * c for c in value)) for name, value in found}


_BLOCKS = re.findall(r"\{(.*?)\}", _SHEET, re.DOTALL)
LIGHT = _colours(_BLOCKS[0])
DARK = LIGHT | _colours(_BLOCKS[1])  # what it does not change is not there
# the body of a page that names no theme: it follows the system
UNNAMED = re.findall(r"(body:not\(.*?\)) \.ar-theme", _SHEET)[0]


@cache
def style() -> str:
    """The style sheet, as an element of HTML: what has the class `ar-theme` can use its variables, in both themes.

    >>> "--ar-ink" in style()
    True
    """
    rules = re.sub(r"/\*.*?\*/", "", _SHEET, flags=re.DOTALL)
    return f"<style>{' '.join(rules.split())}</style>"
