"""The map for narrow pages: the same line, from top to bottom. Side trips are folded into one line, open only where the reader is."""

from __future__ import annotations

from allranks.base.chapters import Chapter, parts
from allranks.base.errors import counted
from allranks.course.map import words
from allranks.course.map.drawing import WON, Manner, _extras, _proved, _trips, hangs_near, linked, said_at, status
from allranks.course.map.shapes import (
    circle,
    glyph,
    inked,
    path,
    picture_of,
    placed,
    proofs,
    proofs_width,
    rect,
    station,
    tag,
    text,
    width_of,
)
from allranks.course.state import Progress, State
from allranks.show.pictures.pictogram import n

WIDTH = 390
LINE_X, TEXT_X = 40.0, 84.0
RADIUS = 16


def tall(state: State, width: int = WIDTH, manner: Manner | None = None) -> str:
    """The map as an SVG element of this width in pixels."""
    manner = manner or Manner()
    fields, inside, y = "", "", 0.0
    places: list[float] = []
    for part in (part for part in parts() if part.number):
        top = y
        note = "" if manner.counts is not None else words.of_part(part, state)
        inside += text(TEXT_X, y + 30, part.number, 15, kind="m-ink", weight=700)
        inside += text(TEXT_X + 18, y + 30, part.title, 15, kind="m-ink", weight=600)
        inside += text(TEXT_X, y + 48, note, 13, kind="m-soft")
        y += 62
        for chapter in (chapter for chapter in part.chapters if chapter.core):
            places.append(y + 24)
            drawn, y = _stop(state, chapter, y, width, manner)
            inside += drawn
        fields += rect(6, top, width - 12, y + 6 - top, "m-field", 14)
        y += 16
    extras, high = _extras(state, width, y + 6, manner)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="m-map" width="{width}" height="{n(high)}" viewBox="0 0 {width} {n(high)}" '
        f'role="group" aria-label="The course as a line of {len(state.core)} chapters with side trips">'
        f"{fields}{_line(places, state)}{inside}{extras}</svg>"
    )


def _line(places: list[float], state: State) -> str:
    d = f"M{n(LINE_X)},{n(places[0])}V{n(places[-1])}"
    ink = inked(d, [place - places[0] for place in places], state.walked)
    return f'<g aria-hidden="true">{path(d, "m-track")}{path(d, "m-hollow")}{ink}</g>'


def _stop(state: State, chapter: Chapter, y: float, width: int, manner: Manner) -> tuple[str, float]:
    """A station with its side trips, and where they end."""
    progress, kind = state[chapter.number], status(state, chapter)
    middle = y + 24
    area = rect(LINE_X - 20, y, width - LINE_X, 50, "m-area")
    inside = glyph(chapter, width - 76, middle - 22)
    weight = 700 if kind in ("here", "next") else 600
    inside += text(TEXT_X, middle - 3, chapter.title, 15, kind="m-ink", weight=weight)
    if won := WON.get(chapter.unlocks):
        inside += text(
            TEXT_X + width_of(chapter.title, 15, weight) + 12, middle - 3, won, 12, kind="m-soft", weight=600
        )
    if manner.counts is not None:
        inside += text(TEXT_X, middle + 17, manner.counts.get(chapter.number, ""), 12, kind="m-soft m-count")
    else:
        checks, questions = _proved(progress)
        after = TEXT_X + proofs_width(len(checks), len(questions)) + 14
        inside += proofs(TEXT_X, middle + 14, checks, questions, anchor="start")
        inside += text(after, middle + 18, _note(progress), 12, kind="m-soft")
    inside += station(LINE_X, middle, chapter.number, first=chapter == state.core[0].chapter, radius=RADIUS)
    y += 56
    if kind == "here" and manner.counts is None:
        said = said_at(state, manner)
        inside += tag(TEXT_X + width_of(said, 12, 700) / 2 + 5, y + 6, said)
        y += 30
    out = linked(state, chapter, manner, area + inside, (width - 62.0, middle + 22))
    drawn, y = _trips_of(state, chapter, middle, y, manner)
    return out + drawn, y


def _note(progress: Progress) -> str:
    """What is left of a chapter: minutes, or if all is read, its checks."""
    if progress.minutes_left:
        return words.time(progress.minutes_left) + (" left" if progress.seen else "")
    missing = len(progress.contents.checks) - progress.proved
    return f"{counted(missing, 'check')} left" if missing else ""


def _trips_of(state: State, chapter: Chapter, middle: float, y: float, manner: Manner) -> tuple[str, float]:
    trips = _trips(chapter)
    at = state.here or state.go_on
    if at is not None and hangs_near(at) == chapter:
        out = ""
        for trip in trips:
            elbow = f"M{n(LINE_X)},{n(middle + RADIUS)}V{n(y)}q0,10 10,10H{n(TEXT_X - 4)}"
            mark = (
                placed(picture_of(trip), TEXT_X, y - 4, 28)
                if picture_of(trip)
                else circle(TEXT_X + 4, y + 10, 5, "m-dot")
            )
            x = TEXT_X + (38 if picture_of(trip) else 18)
            length = "" if manner.counts is not None else words.time(state[trip.number].contents.minutes)
            second = (
                tag(x + width_of(manner.tag, 12, 700) / 2 + 7, y + 27, manner.tag)
                if trip == state.here and manner.counts is None
                else text(x, y + 30, trip.why, 12, kind="m-soft")
            )
            inside = (
                path(elbow, "m-elbow", ' aria-hidden="true"')
                + mark
                + text(x, y + 14, words.named(trip), 13, kind="m-ink", weight=600)
                + text(x + width_of(words.named(trip), 13, 600) + 8, y + 14, length, 12, kind="m-soft")
            )
            out += linked(state, trip, manner, rect(TEXT_X, y - 4, 280, 40, "m-area") + inside + second)
            y += 46
        return out, y + 2
    out = ""
    for trip in trips:
        elbow = f"M{n(LINE_X)},{n(middle + RADIUS)}V{n(y - 2)}q0,10 10,10H{n(TEXT_X)}"
        inside = path(elbow, "m-elbow", ' aria-hidden="true"') + circle(TEXT_X + 4, y + 8, 5, "m-dot")
        inside += text(TEXT_X + 16, y + 12.5, words.named(trip), 13, kind="m-soft")
        out += linked(state, trip, manner, rect(TEXT_X, y - 6, 280, 28, "m-area") + inside)
        y += 30
    return out, y + 4 * bool(trips)
