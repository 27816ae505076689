"""What readers are told of pictures holds in both themes: no text names a colour, since light and dark pages have
different ones.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from allranks.base.theme import DARK, LIGHT

ROOT = Path(__file__).resolve().parents[2]
TEXTS = sorted(
    [
        *(ROOT / "chapters").rglob("*.py"),
        *(ROOT / "solutions").rglob("*.py"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "tools" / "live").glob("*.html"),
        ROOT / "README.md",
        ROOT / "TUTOR.md",
    ]
)
HUES = "red green blue orange yellow grey gray pink purple violet vermilion black white turquoise brown"
SHADES = "darker lighter"
# "dark" and "light" are themes, too: what is said to be dark or light is a picture's part
PARTS = r"(?:dark|light) (?:is|are|ones?|box(?:es)?|bars?|parts?|cells?|lines?|rows?)"
NAMED = re.compile(rf"\b(?:{'|'.join((HUES + ' ' + SHADES).split())}|{PARTS})\b", re.IGNORECASE)
# addresses, and colours that code sets
NOT_READ = re.compile(r"""https?://\S+|\bcolor\s*[=:]\s*["']?\w+""")


def colours_named(text: str) -> list[str]:
    """The words of a text that name a colour or a shade."""
    return NAMED.findall(NOT_READ.sub("", text))


def test_words_for_colours_are_found():
    assert colours_named("Green is computing; the darker, the later.") == ["Green", "darker"]
    assert colours_named("Dark is forward, the light boxes are backward.") == ["Dark is", "light boxes"]
    assert colours_named('axes.plot(x, y, color="white")  # a light theme, a dark theme, a greedy search') == []


def test_one_word_for_a_colour_would_be_wrong_in_one_theme():
    changed = {name for name in LIGHT if LIGHT[name] != DARK[name]}
    assert {"ink", "soft", "work", "paper", "rank-0"} <= changed


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_text_names_a_colour(path):
    named = colours_named(path.read_text(encoding="utf-8"))
    assert not named, f"{', '.join(named)}: say what the part is or where it is, as in 'computing is above'"


# matplotlib's own colours: "C0", f"C{rank}", "tab:blue", and its colour maps
THEIRS = re.compile(r"""\b(?:color|c|facecolor|edgecolor)\s*=\s*f?["'](?:C[\d{]|tab:)|\bcmap\s*=""")


def test_colours_of_matplotlib_are_found():
    assert THEIRS.search('axes.bar(1, 2, color=f"C{rank}")') and not THEIRS.search("axes.bar(1, 2, color=plots.WORK)")


@pytest.mark.parametrize("path", [p for p in TEXTS if p.suffix == ".py"], ids=lambda path: path.stem)
def test_charts_have_the_colours_of_the_course(path):
    assert not THEIRS.findall(path.read_text(encoding="utf-8"))
