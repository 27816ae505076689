"""The site's front page: a map of the course. `tools/site.py` writes it over Sphinx's own index.

It is one HTML file without a request: the pictograms, the player and the script are in it. Titles, minutes and needs are those that the
chapters state, the short courses those of docs/teaching.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape
from pathlib import Path

import nbformat
from allranks.course import map as course_map

HERE = Path(__file__).resolve().parent / "front"
# the columns of the map beside the nine moves; the capstone stands below the last two
COLUMNS = (
    ("Meet the ranks", ("00", "02", "03")),
    ("Nine moves", ()),
    ("Put together", ("17", "16", "18", "62")),
    ("In training", ("20", "21", "60", "61", "22", "23", "24", "25", "26", "27", "28")),
    ("On machines", ("41", "40", "47", "63", "45", "48", "46", "44", "43")),
)
CAPSTONE = "30"
# the shorter courses of docs/teaching.md, by the words with which their sections begin; the first one is drawn on the map
COURSES = {
    "The short way": "a working all-reduce in 90 minutes",
    "Two hours": "with a teacher",
    "One day": "with a teacher",
}
BESIDE = {
    "01": "twenty situations",
    "29": "what fits, what it costs",
    "65": "every collective on one page",
    "42": "its rules, on a laptop",
    "64": "a gallery",
}

# the live pages: file, title, what one does there
LIVE = (
    ("schedule", "Write a schedule", "proved, priced, played"),
    ("explain", "Drop your profile", "it stays on your computer"),
    ("race", "The race", "your schedule against the bound"),
    ("price", "What it costs", "the calculator"),
)


@dataclass(frozen=True)
class Chapter:
    """What the map says of a chapter."""

    part: str
    stem: str
    title: str
    minutes: int
    needs: tuple[str, ...]

    @property
    def number(self) -> str:
        """Its two digits."""
        return self.stem[:2]

    @property
    def address(self) -> str:
        """Its page, from the front page."""
        return f"chapters/{self.part}/{self.stem}.html"


def chapters(root: Path) -> dict[str, Chapter]:
    """Every chapter by its number, from its first cell: the heading, the minutes, and what should be read before it."""
    found = {}
    for chapter in course_map.chapters():
        head = nbformat.read(root / chapter.path, as_version=4).cells[0].source
        title = re.search(r"^# (.+)$", head, flags=re.M)
        minutes = re.search(r"(\d+) minutes", head)
        before = re.search(r"(?:before it:|· after) ([^·\n]+)", head, flags=re.M)
        needs = re.findall(r"\((?:\.\./\w+/)?(\d\d)_\w+\.ipynb\)", before[1]) if before else []
        found[chapter.number] = Chapter(chapter.part, chapter.stem, title[1], int(minutes[1]), tuple(needs))
    return found


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
    """The HTML; `labs` and `documents` are (title, address) of the other pages. `live`: whether the live pages are there."""
    from allranks import Player, schedules
    from allranks.pictures.palette import page_style

    there, short = chapters(root), courses(root)
    path = short["The short way"]
    parts = {
        "STYLE": page_style(".page") + (HERE / "map.css").read_text(encoding="utf-8"),
        "SCRIPT": (HERE / "map.js").read_text(encoding="utf-8"),
        "START": _start(there["00"]),
        "COLUMNS": "".join(_column(name, numbers, there, path) for name, numbers in COLUMNS),
        "CAPSTONE": _card(there[CAPSTONE], path, set(), "capstone"),
        "COURSES": _courses(short, there),
        "BESIDE": "".join(_plain(there[number], words, path) for number, words in BESIDE.items()),
        "LIVE": _live() if live else "",
        "PLAYER": Player(schedules.ring_all_reduce(4), nbytes=64 << 20).page(),
        "LABS": _links(labs),
        "DOCUMENTS": _links(documents),
    }
    text = (HERE / "page.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], text)


def _start(first: Chapter) -> str:
    return f'<a class="start" href="{first.address}"><b>Start: {first.minutes} minutes</b></a>'


def _column(name: str, numbers: tuple[str, ...], there: dict[str, Chapter], path: list[str]) -> str:
    if not numbers:
        return f'<section class="column moves"><h2>{name}</h2><div class="cards">{_moves(there, path)}</div></section>'
    common = set.intersection(*(set(there[number].needs) for number in numbers))
    said, inside = common, ""
    for number in numbers:
        inside += _card(there[number], path, said)
        said = common | {number}  # the line to the next card says so
    after = f" <small>after {', '.join(sorted(common))}</small>" if common else ""
    return f'<section class="column"><h2>{name}{after}</h2><div class="cards">{inside}</div></section>'


def _attributes(chapter: Chapter) -> str:
    needs = " ".join(chapter.needs)
    return f'href="{chapter.address}" data-chapter="{chapter.number}" data-needs="{needs}"'


def _badge(number: str, path: list[str]) -> str:
    """The place of a chapter in the short course; the script changes it when another course is chosen."""
    hidden, place = ("", path.index(number) + 1) if number in path else (" hidden", "")
    return f'<span class="badge"{hidden}>{place}</span>'


def _card(chapter: Chapter, path: list[str], said: set[str], kind: str = "") -> str:
    """A chapter on the map, with what it needs; `said` is what need not be said again."""
    left = [number for number in chapter.needs if number not in said]
    needs = f" <span>(after {', '.join(left)})</span>" if left else ""
    return (
        f'<a class="card {kind}" {_attributes(chapter)}><b>{escape(chapter.title)}</b>'
        f"<small><span>{chapter.number} · {chapter.minutes} min</span>{needs}</small>{_badge(chapter.number, path)}</a>"
    )


def _moves(there: dict[str, Chapter], path: list[str]) -> str:
    from allranks.pictures import pictogram
    from allranks.pictures.moves import MOVES, TO

    out = [f'<span class="to">{escape(where)}</span>' for where in TO]
    carded = {number for _, numbers in COLUMNS for number in numbers}  # point to point stands in the first column
    for whence, row in MOVES:
        out.append(f'<span class="from">{escape(whence)}</span>')
        for move in row:
            chapter = there[course_map.find(move.chapter.rpartition("/")[2]).number]
            again = chapter.number in carded  # a chapter has one card, though two moves may be in it
            carded.add(chapter.number)
            attributes = f'href="{chapter.address}"' if again else _attributes(chapter)
            out.append(
                f'<a class="card move" {attributes} title="{escape(move.does)}">{pictogram(move.name, 84, inline=True)}'
                f"<b>{escape(move.called)}</b><small>{chapter.number} · {chapter.minutes} min</small>"
                f"{'' if again else _badge(chapter.number, path)}</a>"
            )
    return "".join(out)


def _courses(short: dict[str, list[str]], there: dict[str, Chapter]) -> str:
    out = []
    for name, numbers in short.items():
        first = name == next(iter(short))
        words = ", ".join(numbers)
        pressed = "true" if first else "false"
        out.append(
            f'<button type="button" aria-pressed="{pressed}" data-path="{" ".join(numbers)}"><b>{name}</b><small>{words} · {COURSES[name]}</small></button>'
        )
    out.append(
        '<a class="card" href="docs/teaching.html"><b>A semester</b><small>all of it, fourteen weeks, every lab</small></a>'
    )
    return "".join(out)


def _plain(chapter: Chapter, words: str, path: list[str]) -> str:
    return (
        f'<a class="card" {_attributes(chapter)}><b>{escape(chapter.title)}</b>'
        f"<small>{chapter.number} · {escape(words)}</small>{_badge(chapter.number, path)}</a>"
    )


def _live() -> str:
    """The pages in which Python runs in the browser."""
    cards = "".join(
        f'<a class="card" href="live/{name}.html"><b>{title}</b><small>{words}</small></a>'
        for name, title, words in LIVE
    )
    return f'<section class="below wide"><h2>Without an install: Python in this browser</h2><div class="row">{cards}</div></section>'


def _links(pages: list[tuple[str, str]]) -> str:
    return '<span class="dot"> · </span>'.join(f'<a href="{address}">{escape(title)}</a>' for title, address in pages)
