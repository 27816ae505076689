"""The picture at the top of each chapter. It poses the chapter's question and never answers it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from allranks.pictures.flow import Flow, flow
from allranks.pictures.moves import image
from allranks.pictures.pictogram import WIDE, document, drawn, frame_of, n

# Of a picture that is 800 wide, in a column that is narrower: letters grow, so that none is smaller than 12 px on the screen.
GROWING = "text{font:600 20px system-ui,sans-serif}@media (max-width:480px){text{font-size:30px}}"
HIGH = 400.0


def _moved(name: str) -> Callable[[], tuple[str, float, str]]:
    """The collective's flow with the ranks' names."""

    def draw() -> tuple[str, float, str]:
        f = flow(name)
        body, high = labelled(f)
        return body, high, f.words()

    return draw


def labelled(f: Flow, names: tuple[str, ...] | None = None, after: Flow | None = None) -> tuple[str, float]:
    """The elements and the height of a flow with a name for each rank, on its box if the box is full, else above all boxes."""
    full = f.slots == 1 and {part.rank for part in f.before} == set(range(f.ranks))
    top = 0.0 if full else 40.0
    frame = replace(frame_of(f.ranks, WIDE, height=HIGH), top=top)
    names = names or tuple(f"rank {rank}" for rank in range(f.ranks))
    y = top + frame.box / 2 + 7 if full else top - 12
    kinds = [f"on{rank}" if full else "words" for rank in range(f.ranks)]
    words = "".join(
        f'<text class="{kind}" x="{n(frame.x(rank) + frame.cell / 2)}" y="{n(y)}" text-anchor="middle">{name}</text>'
        for rank, (kind, name) in enumerate(zip(kinds, names, strict=True))
    )
    return drawn(f, frame) + words, top + HIGH


# the picture of each chapter that has one: its elements, its height for a width of 800, and what it shows in words
CHAPTERS: dict[str, Callable[[], tuple[str, float, str]]] = {
    "03_broadcast": _moved("broadcast"),
    "04_scatter": _moved("scatter"),
    "05_gather": _moved("gather"),
    "06_reduce": _moved("reduce"),
    "07_all_reduce": _moved("all_reduce"),
    "09_all_gather": _moved("all_gather"),
    "10_reduce_scatter": _moved("reduce_scatter"),
    "11_all_to_all": _moved("all_to_all"),
}


def hero(chapter: str) -> str:
    """The SVG at the top of a chapter, by the name of its notebook. Raises KeyError if the chapter has none.

    >>> hero("07_all_reduce")[:4]
    '<svg'
    """
    body, high, words = CHAPTERS[chapter]()
    return document(body, WIDE, high, WIDE, chapter[3:].replace("_", " "), words, more=GROWING)


def cell(chapter: str) -> str:
    """The same for a text cell."""
    return image(hero(chapter), CHAPTERS[chapter]()[2], WIDE)
