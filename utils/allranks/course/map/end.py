"""The line at the end of a chapter: where the reader is on it, what the reader can do now, what is proved, what comes next."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any

from allranks.base import record
from allranks.base.chapters import Chapter, core, find, side_trips
from allranks.base.record import Did
from allranks.course.contents import Item
from allranks.course.map import words
from allranks.course.map.drawing import status
from allranks.course.map.page import style
from allranks.course.map.shapes import STATION, circle, inked, path, rect, station, tag, text, width_of
from allranks.course.state import Progress, State, state
from allranks.show.pictures.pictogram import n

WIDTH, LINE_AT = 912, 44
MAP_ENV = "ALLRANKS_MAP"  # set by the extension of JupyterLab that shows the map, for the kernels of its server


class ChapterEnd:
    """What `done` returns: a card in a notebook, sentences elsewhere."""

    def __init__(self, chapter: Chapter, state: State) -> None:
        self.chapter, self.state = chapter, state

    @property
    def progress(self) -> Progress:
        """The chapter, of which this is the end, and what the reader did in it."""
        return replace(self.state[self.chapter.number], ended=True)

    @property
    def next(self) -> Chapter | None:
        """Where the one button leads: along the core, and after its last chapter to one that was skipped; None if there is none."""
        return self._marked.go_on

    def text(self) -> str:
        """The card as plain text."""
        lines = [f"{words.standing(self.progress)}.", f"{words.can(self.progress)} {self.chapter.can}."]
        lines += [my_model] if (my_model := self._my_model()) else []
        lines += [f"  [{'x' if good else ' '}] {name}{missing}" for name, good, missing, _ in self._checks()]
        if self.next is None:
            lines.append("No chapter of the core is left.")
        else:
            lines.append(f"Next: {words.named(self.next)}, {words.time(self.state[self.next.number].contents.minutes)}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return self.text()

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        return {"text/plain": self.text(), "text/html": self.html()}

    def html(self) -> str:
        """The card, with links relative to the chapter's notebook."""
        my_model = self._my_model()
        return (
            f'{style()}<style>{_STYLE}</style><section class="ar-map ar-theme m-done" aria-label="The end of this chapter">'
            f"{self._line()}<p class=m-head>{escape(words.standing(self.progress))}</p>"
            f"<div class=m-columns><div><p>{words.can(self.progress)}</p><p class=m-can>{escape(self.chapter.can)}.</p>"
            f"{f'<p>{escape(my_model)}</p>' if my_model else ''}</div>"
            f"<div>{self._list()}</div><div>{self._onward()}</div></div></section>"
        )

    def _my_model(self) -> str:
        """What the story's model won in this chapter, or needs next; "" for a side trip."""
        from allranks.show.widgets import my_model_story

        return my_model_story.won(my_model_story.name_of(self.chapter)) if self.chapter.core else ""

    def _checks(self) -> Iterator[tuple[str, bool, str, Item]]:
        """Each check: its name, whether it passed, what it still lacks in words."""
        for item in self.progress.contents.checks:
            lacks = self.progress.missing(item)
            said = f": {lacks[0]}{f', and {len(lacks) - 1} more' if len(lacks) > 1 else ''}" if lacks else ""
            yield item.name, self.progress.passed(item), said, item

    def _list(self) -> str:
        rows = ""
        for name, good, missing, item in self._checks():
            sign = rect(1, 1, 14, 14, "m-proof proved" if good else "m-proof", 2)
            sign += path("M4,8.2l3,3l5,-6", "m-tick") if good else ""
            box = f'<svg width="16" height="16" role="img" aria-label="{"proved" if good else "not yet"}">{sign}</svg>'
            said = f"<code>{escape(name)}</code>"
            if not good:
                where = (
                    ""
                    if item.notebook == self.chapter.path
                    else f" <small>in {escape(item.notebook.parts[1][:5])}</small>"
                )
                said = f'<a href="{self._to(item.notebook, item.cell)}">{said}{escape(missing)}</a>{where}'
            rows += f"<li>{box}<span>{said}</span></li>"
        questions = self.progress.contents.questions
        dots = "".join(
            circle(5 + 14 * i, 6, 4.4, "m-proof proved" if q.name in self.progress.answered else "m-proof")
            for i, q in enumerate(questions)
        )
        if questions:
            rows += f'<li><svg width="{14 * len(questions)}" height="12" aria-hidden="true">{dots}</svg><small>{words.answered(self.progress)}</small></li>'
        return f"<ul>{rows}</ul>"

    def _to(self, notebook: Path, cell: str = "") -> str:
        """The address of a notebook from the folder of this chapter's."""
        where = os.path.relpath(notebook, self.chapter.path.parent).replace(os.sep, "/")
        return escape(where + (f"#cell-id={cell}" if cell else ""))

    def _onward(self) -> str:
        out = ""
        if self.next is not None:
            minutes = words.time(self.state[self.next.number].contents.minutes)
            out += f'<a class="m-button main" href="{self._to(self.next.path)}">{escape(self.next.title)}</a><p>next, {minutes}</p>'
        else:
            out += "<p class=m-head>No chapter of the core is left.</p>"
        aside = [trip for trip in self._trips() if not self.state[trip.number].ended][:2]
        links = [f'<a href="{self._to(trip.path)}">aside: {escape(trip.title)}</a>' for trip in aside]
        if os.environ.get(MAP_ENV):
            links.append(
                '<a href="#" data-commandlinker-command="allranks:map" data-commandlinker-args="{}">the map</a>'
            )
        return out + "".join(f"<p>{link}</p>" for link in links)

    def _trips(self) -> tuple[Chapter, ...]:
        """The side trips of this chapter; of a side trip those that hang beside it, the later ones first."""
        if self.chapter.core:
            return side_trips(self.chapter)
        beside = side_trips(find(self.chapter.hangs_on))
        at = beside.index(self.chapter)
        return beside[at + 1 :] + beside[:at]

    @property
    def _marked(self) -> State:
        """The state with the reader at the end of this chapter, as the map has it after this card."""
        found = [self.progress if one.chapter == self.chapter else one for one in self.state.chapters]
        return State(tuple(found), self.chapter)

    def _line(self) -> str:
        """Four stations of the core: one before, here, two after; a side trip stands under the chapter it hangs on."""
        path_ = core()
        at = path_.index(self.chapter if self.chapter.core else find(self.chapter.hangs_on))
        first = max(0, min(at - 1, len(path_) - 4))
        shown = path_[first : first + 4]
        x = {chapter: 76 + 222.0 * place for place, chapter in enumerate(shown)}
        here = x[path_[at]]
        left, right = (0.0 if first else x[shown[0]]), (float(WIDTH) if shown[-1] != path_[-1] else x[shown[-1]])
        track = f"M{n(left)},{LINE_AT}H{n(right)}"
        walked = dict(zip(pairwise(path_), self._marked.walked, strict=True))
        # the pieces that are in view; the first one comes from the station before them
        ends = [path_[first - 1], *shown] if first else list(shown)
        stops = [0.0, *(x[chapter] - left for chapter in shown)] if first else [x[chapter] - left for chapter in shown]
        out = path(track, "m-track") + path(track, "m-hollow")
        out += inked(track, stops, [walked[piece] for piece in pairwise(ends)])
        for chapter in shown:
            kind = "here" if chapter == path_[at] else status(self._marked, chapter)
            name = text(
                x[chapter] + STATION + 8,
                LINE_AT - 12,
                chapter.title,
                13,
                kind="m-ink",
                weight=700 if kind in ("here", "next") else 400,
            )
            out += f'<g class="m-chapter {kind}">{station(x[chapter], LINE_AT, chapter.number, first=chapter == path_[0])}{name}</g>'
        said = "you are here" if self.chapter.core else f"side trip: {words.named(self.chapter)}"
        # the name of a side trip may reach below the next station
        low = 18 if self.chapter.core else STATION + 16
        half = width_of(said, 12, 700) / 2 + 5
        out += tag(min(here + STATION + 8 + half, WIDTH - half - 8), LINE_AT + low, said)
        high = LINE_AT + low + 16
        label = f"{words.standing(self.progress)}; chapter {at + 1} of the {len(path_)} of the core."
        return f'<div class=m-piece><svg width="{WIDTH}" height="{high}" viewBox="0 0 {WIDTH} {high}" role="img" aria-label="{escape(label)}">{out}</svg></div>'


_STYLE = (
    ".m-done{border:1px solid var(--ar-line);border-radius:10px;padding:0 24px 16px!important;max-width:962px;overflow:hidden}"
    ".m-done p{margin:0 0 8px;color:var(--ar-soft);font-size:13px}.m-done .m-can{font-size:18px;line-height:1.35;font-weight:600;color:var(--ar-ink)}"
    ".m-done .m-head{font-size:15px;font-weight:700;color:var(--ar-ink)}.m-done>.m-head{margin-top:14px}.m-piece{overflow-x:auto;margin:0 -24px;border-bottom:1px solid var(--ar-hair)}"
    ".m-columns{display:flex;flex-wrap:wrap;gap:16px 36px;padding-top:4px}.m-columns>div{flex:1 1 250px}.m-columns>div:last-child{flex:0 1 176px}"
    ".m-done ul{list-style:none;margin:0;padding:0}.m-done li{display:flex;gap:9px;align-items:center;min-height:28px;font-size:14px}"
    ".m-done li svg{flex:none}.m-done small{color:var(--ar-soft);font-size:13px}.m-done a{color:var(--ar-ink);text-underline-offset:3px}"
    ".m-done code{font:13px var(--ar-mono);color:inherit;background:none;padding:0}.m-done a.m-button.main{color:var(--ar-paper);width:100%;margin-bottom:8px}"
    ".m-tick{fill:none;stroke:var(--ar-paper);stroke-width:1.8;stroke-linecap:round;stroke-linejoin:round}"
)


def done(chapter: str) -> ChapterEnd:
    """The card that ends a chapter, by the chapter's number: what you can do now, what is proved, what comes next.

    It marks the chapter as ended on your map. The record stays beside your notebooks. Raises KeyError if there is no such chapter.

    Example:
        >>> print(done("00").text().splitlines()[0])
        You are at the end of 00 Start here: 0 of 4 predictions made.
    """
    found = find(chapter)
    record.note(Did.ENDED, found.number)
    return ChapterEnd(found, state(record.own_folder()))
