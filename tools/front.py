"""The site's front page: a map of the course. `tools/site.py` writes it over Sphinx's own index.

It is one HTML file without a request: the pictograms, the player and the script are in it. Titles, minutes and needs
are those that the chapters state, the short courses those of docs/teaching.md.
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

from allranks.base import chapters as course_map

HERE = Path(__file__).resolve().parent / "front"
# the shorter courses of docs/teaching.md, by the words with which their sections begin; the first one is drawn on the
# map
COURSES = {
    "The short way": "a working all-reduce in 75 minutes",
    "Two hours": "with a teacher",
    "One day": "with a teacher",
}
# the live pages: file, title, what one does there
LIVE = (
    ("schedule", "Write a schedule", "proved, priced, played"),
    ("explain", "Drop your profile", "it stays on your computer"),
    ("race", "The race", "your schedule against the bound"),
    ("price", "What it costs", "the calculator"),
)


def courses(root: Path) -> dict[str, list[str]]:
    """The numbers of the chapters of each course in COURSES, in their order in docs/teaching.md."""
    guide, found = (root / "docs" / "teaching.md").read_text(encoding="utf-8"), {}
    for name in COURSES:
        section = re.split(r"^## ", guide.split(f"## {name}", 1)[1], flags=re.M)[0]
        rows = [re.split(r"(?<!\\)\|", row) for row in section.splitlines() if re.match(r"\| \d", row)]
        columns = zip(*rows, strict=True)  # one after the other: the morning, then the afternoon
        cells = [cell for column in columns for cell in column]
        numbers = [found_[0] for cell in cells if (found_ := re.findall(r"^ \[(\d\d)\]\(\.\./chapters/", cell))]
        found[name] = numbers
    return found


def page(root: Path, labs: list[tuple[str, str]], documents: list[tuple[str, str]], live: bool = False) -> str:
    """The HTML; `labs` and `documents` are (title, address) of the other pages. `live`: whether the live pages are
    there.
    """
    from allranks import Player, schedules
    from allranks.course.map import words
    from allranks.course.map.drawing import Manner
    from allranks.course.map.page import STYLE, key, pictures
    from allranks.course.state import state
    from allranks.show.pictures.palette import page_style

    course = state(None)  # of a visitor without a past; the script puts in what this browser knows
    manner = Manner(lambda chapter: chapter.path.with_suffix(".html").as_posix())
    first = course.core[0]
    parts = {
        "STYLE": page_style(".page") + STYLE + (HERE / "map.css").read_text(encoding="utf-8"),
        "SCRIPT": (HERE / "map.js").read_text(encoding="utf-8"),
        "START": (
            f'<a class="start" href="{manner.href(first.chapter)}"><b>Start: {first.contents.minutes} minutes</b></a>'
        ),
        "LENGTH": f"{words.length(course)}; in your notebook, on ranks of your own",
        "MAP": pictures(course, manner),
        "KEY": key("kept in this browser, nowhere else"),
        "COURSES": _courses(courses(root)),
        "LIVE": _live() if live else "",
        "PLAYER": Player(schedules.ring_all_reduce(4), nbytes=64 << 20).page(),
        "LABS": _links(labs),
        "DOCUMENTS": _links(documents),
    }
    text = (HERE / "page.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], text)


def _courses(short: dict[str, list[str]]) -> str:
    """The shorter courses as lists of links, and the whole one."""
    out = []
    for name, numbers in short.items():
        there = [course_map.find(number) for number in numbers]
        links = ", ".join(f'<a href="{c.path.with_suffix(".html").as_posix()}">{escape(c.title)}</a>' for c in there)
        out.append(f"<p><b>{name}</b>, {COURSES[name]}: {links}</p>")
    return "".join(
        [*out, '<p><b>A semester</b>: <a href="docs/teaching.html">all of it, fourteen weeks, every lab</a></p>']
    )


def _live() -> str:
    """The pages in which Python runs in the browser."""
    cards = "".join(
        f'<a class="card" href="live/{name}.html"><b>{title}</b><small>{words}</small></a>'
        for name, title, words in LIVE
    )
    return (
        '<section class="below wide"><h2>Without an install: Python in this browser</h2><div '
        f'class="row">{cards}</div></section>'
    )


def _links(pages: list[tuple[str, str]]) -> str:
    return '<span class="dot"> · </span>'.join(f'<a href="{address}">{escape(title)}</a>' for title, address in pages)
