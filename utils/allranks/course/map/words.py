"""What the map says in words: where the reader is, what is proved, what is left; and the whole map as plain text."""

from __future__ import annotations

from allranks.base.chapters import Chapter, Part, core, find, parts
from allranks.course.state import Progress, State

NOTHING_YET = "Nothing is proved yet: that is where everybody begins."
KEPT = "kept beside your notebooks, nowhere else"


def time(minutes: int) -> str:
    """Minutes as people say them.

    >>> time(45), time(475), time(600)
    ('45 min', '7 h 55 min', '10 h')
    """
    hours, rest = divmod(minutes, 60)
    return " ".join([f"{hours} h"] * bool(hours) + [f"{rest} min"] * bool(rest or not hours))


def counted(count: int, what: str) -> str:
    """A count with its noun.

    >>> counted(1, "check"), counted(3, "check")
    ('1 check', '3 checks')
    """
    return f"{count} {what}{'' if count == 1 else 's'}"


def named(chapter: Chapter) -> str:
    """A chapter by its number and title, as the map and the file browser show it."""
    return f"{chapter.number} {chapter.title}"


def kept_together(chapter: Chapter) -> str:
    """The same with a space between that no line breaks."""
    return f"{chapter.number}\u00a0{chapter.title}"


def heading(state: State) -> str:
    """The map's first line: where the reader is."""
    if state.here is None:
        return "You are at the beginning"
    if state.go_on is None:
        return "You have walked the whole line"
    if state[state.here.number].ended:
        return f"You finished {named(state.here)}"
    return f"You are in {named(state.here)}"


def proved(state: State) -> str:
    """How many checks and predictions there were so far, and how many of them are done."""
    if state.here is None:
        return NOTHING_YET
    met = [progress for progress in state.chapters if progress.seen]
    checks = {item.name: progress.passed(item) for progress in met for item in progress.contents.checks}
    questions = sum(len(progress.contents.questions) for progress in met)
    answers = sum(progress.predicted for progress in met)
    return f"Proved so far: {sum(checks.values())} of {counted(len(checks), 'check')}, {answers} of {counted(questions, 'prediction')} made."


def left(state: State) -> str:
    """What is left of the core."""
    if state.go_on is None:
        return f"All {time(state.minutes)} of the core are done."
    if state.here is None:
        return f"{time(state.minutes)} in {len(core())} chapters."
    return f"{time(state.minutes_left)} left of {time(state.minutes)}."


def go_on(state: State) -> str:
    """What the first button says."""
    at = state.go_on
    if at is None:
        return "Look at a side trip"
    minutes = time(state[at.number].minutes_left)
    if state.here is None:
        return f"Begin: {at.title}, {minutes}"
    return f"Go on, {minutes}" if at == state.here else f"Go on: {at.title}, {minutes}"


def of_chapter(progress: Progress) -> str:
    """What was done in a chapter, for a screen reader and for a terminal."""
    holds = progress.contents
    said = []
    if holds.checks:
        said.append(f"{progress.proved} of {counted(len(holds.checks), 'check')} passed")
    if holds.questions:
        said.append(f"{progress.predicted} of {counted(len(holds.questions), 'prediction')} made")
    said.append("ended" if progress.ended else f"{time(progress.minutes_left)}{' left' if progress.seen else ''}")
    return ", ".join(said)


def of_part(part: Part, state: State) -> str:
    """What is left of a part: its time, or if the reader is past it, the checks that did not pass."""
    mine = [(place, p) for place, p in enumerate(state.core) if p.chapter.part == part.folder]
    ahead = sum(p.minutes_left for place, p in mine if place >= state.furthest or not p.seen)
    if ahead:
        return f"{time(ahead)} left" if any(p.seen for _, p in mine) else time(ahead)
    missing = sum(len(p.contents.checks) - p.proved for _, p in mine)
    return f"{counted(missing, 'check')} left" if missing else "done"


def text(state: State) -> str:
    """The map for a terminal.

    `#` is a chapter of the core that was walked, `>` where the reader is, `o` what lies ahead, `-` a side trip.
    """
    lines = [heading(state), f"{proved(state)} {left(state)}"]
    for part in parts():
        about = f" ({of_part(part, state)})" if part.number else ""
        lines += ["", f"{part.number} {part.title}{about}".strip()]
        for chapter in part.chapters:
            progress = state[chapter.number]
            if chapter == state.here:
                mark = ">"
            elif chapter.core:
                mark = "#" if progress.seen else "o"
            else:
                mark = "  +" if progress.ended else "  -"
            why = f"  {chapter.why} (from {find(chapter.hangs_on).number})" if chapter.why else ""
            lines.append(
                f"{mark:>{3 + 2 * (mark in '>#o')}} {named(chapter)}: {of_chapter(progress)}.{why}".replace(
                    "    ", "  ", 1
                )
            )
    if state.go_on is not None:
        lines += ["", f"{go_on(state)}: {state.go_on.path.as_posix()}"]
    return "\n".join(lines)
