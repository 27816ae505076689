"""Formulas as pictures, so that a page shows them without a network: matplotlib's mathtext draws them as SVG.

It knows TeX's symbols, fractions and roots, but no environments such as matrices: these are shown as they were typed.
"""

from __future__ import annotations

import base64
import functools
import html
import io
import re

MAX_CHARACTERS = 500
SIZE_PT = 11
PICTURE = "data:image/svg+xml;base64,"
# what mathtext writes in another way
_OTHERWISE = ((r"\bmod", r"\;\mathrm{mod}\;"), (r"\lg", r"\mathrm{lg}\,"), (r"\dfrac", r"\frac"), (r"\tfrac", r"\frac"))


def formula(tex: str, is_display: bool = False) -> str:
    """The HTML of a formula: a picture whose words for a screen reader are the TeX, or the TeX itself where it can't be drawn.

    >>> formula("p-1").startswith('<img class="formula"')
    True
    >>> formula(r"\\begin{bmatrix}1\\end{bmatrix}")
    '<code>\\\\begin{bmatrix}1\\\\end{bmatrix}</code>'
    """
    said = html.escape(" ".join(tex.split()))
    drawn = _drawn(" ".join(tex.split())) if len(tex) <= MAX_CHARACTERS else None
    if drawn is None:
        shown = f"<code>{said}</code>"
    else:
        data, height, depth = drawn
        shown = (
            f'<img class="formula" alt="{said}" style="height:{height:.2f}em;vertical-align:{-depth:.2f}em" '
            f'src="{PICTURE}{data}"/>'
        )
    return f'<div style="text-align:center;margin:.6em 0">{shown}</div>' if is_display else shown


@functools.cache
def ready() -> bool:
    """Imports what draws formulas; False if that is not installed. An import that a time limit interrupts can't be done again."""
    try:
        from matplotlib import figure, mathtext  # noqa: F401
    except ImportError:
        return False
    return True


@functools.lru_cache(maxsize=1000)  # all students' notebooks have the lab's own formulas
def _drawn(tex: str) -> tuple[str, float, float] | None:
    """The SVG in base64, its height and its depth below the line, in units of the text's size; None if it can't be drawn."""
    if not ready():
        return None
    from matplotlib import mathtext
    from matplotlib.font_manager import FontProperties

    for old, new in _OTHERWISE:
        tex = re.sub(rf"{re.escape(old)}(?![a-zA-Z])", new.replace("\\", "\\\\"), tex)
    if "$" in tex:
        return None
    file = io.BytesIO()
    try:
        depth = mathtext.math_to_image(f"${tex}$", file, prop=FontProperties(size=SIZE_PT), format="svg")
    except (ValueError, RuntimeError, RecursionError, OverflowError):  # mathtext's words for what it does not know
        return None
    svg = file.getvalue().decode()
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->|<\?xml.*?\?>|<!DOCTYPE.*?>", "", svg, flags=re.DOTALL)
    found = re.search(r'height="([0-9.]+)pt"', svg)
    if found is None:
        return None
    return base64.b64encode(svg.encode()).decode(), float(found[1]) / SIZE_PT, float(depth) / SIZE_PT
