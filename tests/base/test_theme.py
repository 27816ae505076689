"""The colours of all pictures."""

import re

from allranks.base import theme
from allranks.base.theme import DARK, LIGHT, style


def test_both_themes_have_every_colour():
    assert LIGHT.keys() == DARK.keys()
    assert LIGHT["ink"] == "#1b1f24" and DARK["ink"] == "#e8eaed"
    assert all(re.fullmatch("#[0-9a-f]{6}", value) for value in [*LIGHT.values(), *DARK.values()])


def test_the_style_sheet_has_no_comment_and_both_themes():
    assert "/*" not in style()
    assert LIGHT["lost"] in style() and DARK["lost"] in style()


def test_a_bare_page_has_the_same_dark_colours():
    """The sheet says them twice: a media query can't share a rule with selectors."""
    assert theme._colours(theme._BLOCKS[2]) == theme._colours(theme._BLOCKS[1])
