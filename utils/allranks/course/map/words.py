"""What the map says in words: where the reader is, what is proved, what is left; and the whole map as plain text."""

from __future__ import annotations

from allranks.base.chapters import Chapter, Part, chapters, find, parts
from allranks.base.errors import counted
from allranks.course.contents import Kind
from allranks.course.state import Progress, State

NOTHING_YET = "Nothing is proved yet: that is where everybody begins."
KEPT = "kept in your folder"


def time(minutes: int) -> str:
    """Minutes as people say them.

    >>> time(45), time(475), time(600)
    ('45 min', '7 h 55 min', '10 h')
    """
    hours, rest = divmod(minutes, 60)
    return " ".join([f"{hours} h"] * bool(hours) + [f"{rest} min"] * bool(rest or not hours))


def named(chapter: Chapter) -> str:
    """A chapter by its number and title, as the map and the file browser show it."""
    return f"{chapter.number} {chapter.title}"


def kept_together(chapter: Chapter) -> str:
    """The same with a space between that no line breaks."""
    return f"{chapter.number}\u00a0{chapter.title}"


def standing(progress: Progress) -> str:
    """Where a reader stands in a chapter, in one line: the map says it, and the card that ends the chapter."""
    name = named(progress.chapter)
    if not progress.ended:
        return f"You are in {name}"
    if progress.finished:
        return f"You finished {name}"
    said = proofs(progress).partition(", ")[0]
    stop = "" if name.endswith("?") else ":"
    return f"You are at the end of {name}{f'{stop} {said}' if said else ''}"


def proofs(progress: Progress) -> str:
    """How many checks and predictions of a chapter are done; "" for a chapter that has none."""
    said = []
    if checks := len(progress.contents.checks):
        said.append(f"proved {progress.proved} of {checks}")
    if questions := len(progress.contents.questions):
        said.append(f"{progress.predicted} of {questions} {answered(progress)}")
    return ", ".join(said)


def answered(progress: Progress) -> str:
    """What a chapter's questions are, and what is done with them."""
    questions = progress.contents.questions
    one, many, done = ("quiz", "quizzes", "answered") if questions[0].kind is Kind.QUIZ else ("prediction", "", "made")
    return f"{counted(len(questions), one, many).partition(' ')[2]} {done}"


def can(progress: Progress) -> str:
    """What stands before that which a chapter teaches: only who has finished it can do it now."""
    if progress.finished:
        return "You can now"
    return "When all is proved, you can" if progress.contents.checks else "The chapter shows how to"


def heading(state: State) -> str:
    """The map's first line: where the reader is."""
    if state.here is None:
        return "You are at the beginning"
    if all(progress.finished for progress in state.core):
        return "You finished the core"
    return standing(state[state.here.number])


def length(state: State) -> str:
    """How long the course is."""
    trips = sum(not chapter.core for chapter in chapters())
    return f"{time(state.minutes)} in {len(state.core)} core chapters, and {counted(trips, 'side trip')}"


def proved(state: State) -> str:
    """How many checks and predictions the chapters hold that the reader has opened, and how many of them are done."""
    if state.here is None:
        return NOTHING_YET
    met = [progress for progress in state.chapters if progress.seen]
    checks = {item.name: progress.passed(item) for progress in met for item in progress.contents.checks}
    questions = sum(len(progress.contents.questions) for progress in met)
    answers = sum(progress.predicted for progress in met)
    said = f"{sum(checks.values())} of {counted(len(checks), 'check')} passed, {answers} of {counted(questions, 'prediction')} made"
    return f"In {_opened(len(met))}: {said}."


def _opened(count: int) -> str:
    return f"the {count} chapters that you opened" if count > 1 else "the chapter that you opened"


def left(state: State) -> str:
    """What is left of the core."""
    if state.here is None:
        return f"{length(state)}."
    if state.minutes_left == 0:
        return f"All {time(state.minutes)} of the core are done."
    return f"{time(state.minutes_left)} left of the {time(state.minutes)} of the core."


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
    minutes = f"{time(progress.minutes_left)}{' left' if progress.seen else ''}" if progress.minutes_left else "read"
    return ", ".join(filter(None, [proofs(progress), minutes]))


def of_part(part: Part, state: State) -> str:
    """What is left of a part: its time, and in which chapter if it is one; or if all is read, the checks that did not pass."""
    mine = [progress for progress in state.core if progress.chapter.part == part.folder]
    if left := sum(progress.minutes_left for progress in mine):
        [first, *others] = [progress for progress in mine if progress.minutes_left]
        where = "" if others else f" in {first.chapter.number}"
        return f"{time(left)} left{where}" if any(progress.seen for progress in mine) else time(left)
    missing = sum(len(progress.contents.checks) - progress.proved for progress in mine)
    return f"{counted(missing, 'check')} left" if missing else "done"


def text(state: State) -> str:
    """The map for a terminal.

    `#` is a chapter of the core of which something is proved, `>` where the reader is, `:` one of which nothing is proved yet, `o` what lies ahead,
    `-` a side trip, `+` one that was ended.
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
                mark = "#" if progress.walked else ":" if progress.seen else "o"
            else:
                mark = "  +" if progress.ended else "  -"
            why = f"  {chapter.why} (from {find(chapter.hangs_on).number})" if chapter.why else ""
            lines.append(
                f"{mark:>{3 + 2 * (mark in '>#:o')}} {named(chapter)}: {of_chapter(progress)}.{why}".replace(
                    "    ", "  ", 1
                )
            )
    if state.go_on is not None:
        lines += ["", f"{go_on(state)}: {state.go_on.path.as_posix()}"]
    return "\n".join(lines)
