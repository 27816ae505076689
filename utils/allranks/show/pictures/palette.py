"""The colours of the still pictures, those of the theme, and the style sheets that put them into an SVG or a page."""

from __future__ import annotations

import re

from allranks.base.theme import DARK, LIGHT

HUES = 4
# An <img> learns the system's theme, not Jupyter's: words beside the boxes must be legible on the other theme's page
# too.
WORDS = ("#6a727b", "#7f878f")
# of a ribbon's colour, the rest is paper: where each number goes to one rank, and where it goes to several
ONE, MANY = 66, 56
# a class of a picture: the property that it sets, to which colour, and how much of that (the rest is paper)
CLASSES: dict[str, tuple[str, str, int]] = {
    **{f"r{rank}": ("fill", f"rank-{rank}", 100) for rank in range(HUES)},
    **{f"a{rank}": ("fill", f"rank-{rank}", ONE) for rank in range(HUES)},
    **{f"b{rank}": ("fill", f"rank-{rank}", MANY) for rank in range(HUES)},
    **{name: ("fill", name, 100) for name in ("ink", "paper", "panel", "hair", "work", "lost", "you", "wire")},
    **{f"{name}line": ("stroke", name, 100) for name in ("ink", "hair", "work", "lost", "you", "wire")},
    "forward": ("fill", "work", 55),
    "edge": ("stroke", "paper", 100),
    "line": ("stroke", "line", 100),
    "on0": ("fill", "on-rank-0", 100),
    **{f"on{rank}": ("fill", "on-rank", 100) for rank in range(1, HUES)},
    "onink": ("fill", "paper", 100),
    "words": ("fill", "soft", 100),
}
_THEMES = 'body[data-jp-theme-light="false"] {0}, body[data-theme="dark"] {0}, .vscode-dark {0}'


def mixed(colour: str, percent: int, with_: str) -> str:
    """`percent` of a colour and the rest of another, as color-mix(in srgb) does.

    >>> mixed("#0072b2", 66, "#ffffff")
    '#57a2cc'
    """
    pairs = zip(_channels(colour), _channels(with_), strict=True)
    return "#" + "".join(f"{(percent * a + (100 - percent) * b + 50) // 100:02x}" for a, b in pairs)


def style(body: str) -> str:
    """The style sheet of an SVG file with these elements: both themes, by what the reader's system prefers."""
    used = {name for names in re.findall(r'class="([^"]+)"', body) for name in names.split()}
    light, dark = (_rules(_values(*theme), used) for theme in ((LIGHT, WORDS[0]), (DARK, WORDS[1])))
    changed = "".join(rule for rule, other in zip(dark, light, strict=True) if rule != other)
    return "".join(light) + f"@media (prefers-color-scheme:dark){{{changed}}}"


def page_style(root: str = ".ar-pic") -> str:
    """The style sheet of a page with inline SVGs of the class ar-pic: Jupyter's theme, or the site's, decides.

    `root` is the selector of the element that gets the variables.
    """
    dark = _variables(DARK)
    return (
        f"{root}{{{_variables(LIGHT)}}}{_THEMES.format(root)}{{{dark}}}"
        f'@media (prefers-color-scheme:dark){{body[data-theme="auto"] {root}{{{dark}}}}}' + shared_style(".ar-pic ")
    )


def _variables(colours: dict[str, str]) -> str:
    return "".join(f"--ar-{name}:{colour};" for name, colour in colours.items())


def _values(colours: dict[str, str], words: str) -> dict[str, tuple[str, str]]:
    """What each class sets: the property and its value, written out, because not every program mixes colours."""
    found = {"words": ("fill", words)}
    for name, (what, colour, percent) in CLASSES.items():
        value = colours[colour]
        found.setdefault(name, (what, value if percent == 100 else mixed(value, percent, colours["paper"])))
    return found


def _rules(values: dict[str, tuple[str, str]], used: set[str]) -> list[str]:
    return [f".{name}{{{what}:{value}}}" for name, (what, value) in values.items() if name in used]


def shared_style(where: str) -> str:
    """The classes of the pictures for a page that has the theme's variables; `where` is the selector before each."""
    rules = []
    for name, (what, colour, percent) in CLASSES.items():
        value = f"var(--ar-{colour})"
        value = value if percent == 100 else f"color-mix(in srgb,{value} {percent}%,var(--ar-paper))"
        rules.append(f"{where}.{name}{{{what}:{value}}}")
    return "".join(rules)


def _channels(colour: str) -> list[int]:
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
