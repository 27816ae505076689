"""The site's front page: a map of the course. `tools/site.py` writes it over Sphinx's own index.

It is one HTML file without a request: the pictograms, the player and the script are in it. Titles, minutes and needs
are those that the chapters state, the short courses those of docs/teaching.md.
"""

from __future__ import annotations

import re
from pathlib import Path

from allranks.base import chapters as course_map
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

HERE = Path(__file__).resolve().parent / "front"
# the shorter courses of docs/teaching.md, by the words with which their sections begin; the first one is drawn on the
# map
COURSES = {
    "The short way": "a working all-reduce in 85 minutes",
    "Two hours": "with a teacher",
    "One day": "with a teacher",
}
# how high the ring is, in pixels, and that it begins again at its end
RING = {"stage": 400, "loop": True}
# the live pages: file, title, what one does there
LIVE = (
    ("puzzles", "Ten puzzles", "a ring from send and recv"),
    ("model", "One model on 64 GPUs", "what each split costs"),
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


def ring() -> str:
    """The ring all-reduce of four ranks that moves by itself; with reduced motion it stands still in a step."""
    from allranks.show.player.page import page_without_kernel
    from allranks.theory.schedules import ring_all_reduce

    return page_without_kernel(ring_all_reduce(4), nbytes=64 << 20, arrangement="ring", bare=RING, playing=True)


def page(root: Path, labs: list[tuple[str, str]], documents: list[tuple[str, str]], loads: str = "") -> str:
    """The HTML; `labs` and `documents` are (title, address) of pages. `loads`: how many MB the puzzles load.

    "": there are no live pages.
    """
    from allranks.course.map import words
    from allranks.course.map.drawing import Manner
    from allranks.course.map.page import STYLE, key, pictures
    from allranks.course.state import state
    from allranks.show.pictures.palette import page_style

    course = state(None)  # of a visitor without a past; the script puts in what this browser knows
    manner = Manner(lambda chapter: chapter.path.with_suffix(".html").as_posix())
    first = course.core[0]
    templates = Environment(loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return (
        templates.get_template("page.html").render(
            style=Markup(page_style(".page") + STYLE + (HERE / "map.css").read_text(encoding="utf-8")),
            script=Markup((HERE / "map.js").read_text(encoding="utf-8")),
            start=manner.href(first.chapter),
            minutes=first.contents.minutes,
            length=f"{words.length(course)}; in your notebook, on ranks of your own",
            map=Markup(pictures(course, manner)),
            key=Markup(key("kept in this browser, nowhere else")),
            courses=_courses(courses(root)),
            live=LIVE,
            loads=loads,
            player=Markup(ring()),
            labs=labs,
            documents=documents,
        )
        + "\n"
    )


def _courses(short: dict[str, list[str]]) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """The shorter courses, and the whole one, as (name, words, chapters), a chapter as (title, address)."""
    out = []
    for name, numbers in short.items():
        there = [course_map.find(number) for number in numbers]
        out.append((name, f", {COURSES[name]}", [(c.title, c.path.with_suffix(".html").as_posix()) for c in there]))
    return [*out, ("A semester", "", [("all of it, fourteen weeks, every lab", "docs/teaching.html")])]
