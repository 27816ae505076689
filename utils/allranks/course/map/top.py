"""With what a chapter begins: where it stands on the map, as a picture and in words. From the table of chapters, and nobody writes it down."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from allranks.base.chapters import Chapter, after, core, find, link, parts
from allranks.base.errors import capital
from allranks.base.theme import LIGHT
from allranks.course.length import minutes
from allranks.course.map import words
from allranks.course.map.shapes import circle, path, rect, text, width_of
from allranks.show.pictures.moves import image
from allranks.show.pictures.pictogram import document, n

WIDTH, HIGH = 800, 78
EDGE, LINE_AT, RADIUS = 14.0, 38.0, 12.0
YOU = "you are here"
# where the column is so narrow that words would be too small, the line stays: what it says stands below it, too
_STYLE = (
    f"text{{font-family:system-ui,sans-serif}}.onyou{{fill:{LIGHT['on-you']}}}.none{{fill:none}}"
    "@media (max-width:720px){text,.tag{display:none}}"
)


def top(chapter: Chapter, cells: Sequence[Mapping[str, Any]]) -> str:
    """The lines below a chapter's title, for its text cell; `cells` are those of its notebook, by which it says how long it takes."""
    about = [f"{minutes(cells)} minutes", chapter.runs]
    for said, numbers in (("needs", chapter.needs), ("helps", chapter.helps)):
        # `where` names what is before a chapter of the core; a side trip may hang on a chapter that it does not need
        others = [other for other in map(find, numbers) if other != _before(chapter)]
        about += [f"{said}: {_links(chapter, others)}"] if others else []
    about += [f"the short way: {chapter.short}"] if chapter.short else []
    return "\n".join([picture(chapter), "", f"{where(chapter)}  ", " · ".join(about)])


def where(chapter: Chapter) -> str:
    """Where a chapter stands, in one line of Markdown: its part, its place on the core or what it hangs on, and what comes next.

    >>> where(find("23"))  # doctest: +ELLIPSIS
    '**Part 3 of 4, One model on many GPUs** · a side trip from [22 Sharded](...): *When do weights come, and when go?* · then ...'
    """
    path_, before, following = core(), _before(chapter), after(chapter)
    if chapter.core:
        said = [f"{path_.index(chapter) + 1} of {len(path_)} on the core"]
        said += [f"before it {_links(chapter, [before])}" if before else "the first one"]
        said += [f"after it {_links(chapter, [following])}" if following else "the last one"]
        return f"**{_part(chapter)}** · {' · '.join(said)}"
    hangs_on = find(chapter.hangs_on)
    on_the_way = following == hangs_on != path_[-1]
    said = [f"a side trip {'on the way to' if on_the_way else 'from'} {_links(chapter, [hangs_on])}: *{chapter.why}*"]
    if following and following != hangs_on:
        said += [f"then {_links(chapter, [following])}"]
    elif not on_the_way:
        said += ["then back"]
    return f"**{_part(chapter)}** · {' · '.join(said)}"


def _part(chapter: Chapter) -> str:
    part = next(part for part in parts() if part.folder == chapter.part)
    numbered = [part for part in parts() if part.number]
    return f"Part {part.number} of {len(numbered)}, {part.title}" if part.number else part.title


def _before(chapter: Chapter) -> Chapter | None:
    """The chapter before one of the core; None for the first one, and for a side trip."""
    at = core().index(chapter) if chapter.core else 0
    return core()[at - 1] if at else None


def _links(source: Chapter, targets: Iterable[Chapter]) -> str:
    return ", ".join(f"[{words.named(target)}]({link(source, target)})" for target in targets)


def picture(chapter: Chapter) -> str:
    """The whole core as one line, with the reader's place in yellow; a side trip hangs on its station."""
    path_ = core()
    x = _places(path_)
    at = chapter if chapter.core else find(chapter.hangs_on)
    out = "".join(
        path(f"M{n(x[a] + RADIUS)},{n(LINE_AT)}H{n(x[b] - RADIUS)}", "line", ' stroke-width="4"')
        for a, b in pairwise(path_)
    )
    for part in parts():
        first = next((one for one in part.chapters if one.core), None)
        if first is not None and part.number:
            title = f"{part.number} {capital(part.title.partition(':')[0].removeprefix('The '))}"
            weight = 700 if part.folder == at.part else 400
            out += text(x[first] - RADIUS, 14, title, 12, kind="words", weight=weight)
    for one in path_:
        out += _station(one, x[one], here=one == at)
    out += _tag(chapter, x[at])
    return image(document(out, WIDTH, HIGH, WIDTH, "Where you are", _said(chapter), more=_STYLE), _said(chapter), WIDTH)


def _places(path_: Sequence[Chapter]) -> dict[Chapter, float]:
    """Where the stations stand: evenly, with half a step more where a part begins."""
    steps = [1.5 if a.part != b.part else 1.0 for a, b in pairwise(path_)]
    one = (WIDTH - 2 * (EDGE + RADIUS)) / sum(steps)
    return {chapter: EDGE + RADIUS + one * sum(steps[:number]) for number, chapter in enumerate(path_)}


def _station(chapter: Chapter, x: float, *, here: bool) -> str:
    kind, wide = ("you inkline", 2.5) if here else ("none line", 2)
    ring = f' stroke-width="{wide}"'
    side = 2 * RADIUS - 2
    if chapter == core()[0]:
        shape = rect(x - side / 2, LINE_AT - side / 2, side, side, kind, 5, ring)
    else:
        shape = circle(x, LINE_AT, RADIUS, kind, ring)
    number = text(x, LINE_AT + 4.5, chapter.number, 13, kind="onyou" if here else "words", weight=600, anchor="middle")
    return shape + number


def _tag(chapter: Chapter, x: float) -> str:
    """What hangs below the station: that the reader is there, or the side trip."""
    said = YOU if chapter.core else f"{YOU}: {words.named(chapter)}"
    wide, y = width_of(said, 13, 700) + 14, LINE_AT + 29
    left = max(2.0, min(x - 14, WIDTH - wide - 2))
    stem = "" if chapter.core else path(f"M{n(x)},{n(LINE_AT + RADIUS)}V{n(y - 9)}", "line", ' stroke-width="2"')
    box = rect(left, y - 10, wide, 21, "you inkline tag", 4, ' stroke-width="1"')
    return stem + box + text(left + wide / 2, y + 5, said, 13, kind="onyou", weight=700, anchor="middle")


def _said(chapter: Chapter) -> str:
    """The picture in words."""
    path_ = core()
    if chapter.core:
        return f"You are here: {words.named(chapter)}, {path_.index(chapter) + 1} of {len(path_)} on the core."
    return f"You are here: {words.named(chapter)}, a side trip at {words.named(find(chapter.hangs_on))}."
