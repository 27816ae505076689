"""What the site's live pages ask of the course: `answer(name, request)`, plain data in and plain data out.

The pages run this file in the reader's browser (Pyodide); tools/live_site.py asks it while it builds them, so that a
page shows its first result before Python is loaded. Every answer may hold

- `html`: the result, with everything of the reader's escaped;
- `fault`: one sentence on what is wrong, and the `line` of the program if one is known;
- `player`: what the course's player plays, as its traits;
- `text`: the same as the command `allranks` prints.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import re
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from allranks.base.errors import CourseError
from allranks.cli import main as command_line
from allranks.cli._shared import CommandError, Size, as_sentence
from allranks.exercises.planted import RECORDED, recorded
from allranks.exercises.planted.job import as_job
from allranks.jobs import explain
from allranks.jobs.lanes import lanes
from allranks.jobs.phrases import ms
from allranks.show.player.page import in_words, prepared
from allranks.theory.race import TASKS, RaceError, Task, judge, leaderboard, task
from allranks.theory.race.entry import packed, returned, unpacked
from allranks.theory.race.page import section
from allranks.theory.race.scoring import MAX_PIECES
from allranks.theory.schedules import COLLECTIVES, Schedule
from allranks.theory.schedules.proof import fault_of
from allranks.theory.simulator.simulation import run_schedule
from allranks.theory.topology import PRESETS, node_fabric, preset
from allranks.theory.trace import Trace

FILE = "my_entry.py"
MOST_PLAYED = 4000  # messages; a player of more is slow, and nobody could follow it
MOST_PLAYED_RANKS = 64
MOST_LANES = 20_000  # events of a profile that are drawn
MOST_TEXT = 200_000  # characters of an answer
ROOTED = ("broadcast", "reduce", "scatter", "gather")
Data = dict[str, Any]


def answer(name: str, request: str) -> str:
    """The answer as JSON; one that could not be worked out has a `fault`."""
    try:
        return json.dumps(ANSWERS[name](**json.loads(request)))
    except CommandError as error:
        return json.dumps(_wrong(error.message))
    except CourseError as error:
        return json.dumps(_wrong(as_sentence(error)))
    except MemoryError:
        said = _wrong("The browser's memory is full; send ranges of chunks, or fewer messages.", restart=True)
        return json.dumps(said)
    except RecursionError:
        return json.dumps(_wrong("It calls itself too deeply (RecursionError)."))


def _wrong(sentence: str, **more: Any) -> Data:
    """An answer that says what is wrong, with the line of the program that the sentence names."""
    found = re.search(r"\bline (\d+)", sentence)
    sentence = sentence[:2000]
    html = f'<p class="verdict wrong" role="alert">{escape(sentence)}</p>'
    return {"fault": {"text": sentence, "line": int(found[1]) if found else None}, "html": html} | more


def as_played(sources: Sequence[Schedule | Trace], nbytes: int | None = None) -> Data:
    """What the player takes: traits that are not as utils/js/src/live/play.js has them; and what it shows, in words."""
    animations, axis = prepared(sources, nbytes)
    return {
        "axis": axis,
        "animation": base64.b64encode(animations[0].payload()).decode(),
        "words": in_words(animations)[:MOST_TEXT],
    }


def _table(rows: Sequence[tuple[str, str, str]]) -> str:
    """Figures: each row a name, a figure, and what it means."""
    cells = "".join(f"<tr><th scope=row>{name}</th><td>{figure}</td><td>{why}</td></tr>" for name, figure, why in rows)
    return f'<table class="figures"><tbody>{cells}</tbody></table>'


# ---------------------------------------------------------------------------------------------------- your own schedule


def _made(source: str, wanted: Task) -> Schedule:
    """What `schedule(task)` of the program returns. Raises RaceError in the words of `allranks race`."""
    path = Path(FILE)
    path.write_text(source, encoding="utf-8")
    try:
        return unpacked(packed(returned(path, wanted)))
    except RaceError as error:
        raise RaceError(f"{FILE}: {error}") from None


def own_schedule(source: str, collective: str, ranks: int, nbytes: str, machine: str, root: int = 0) -> Data:
    """Proves, prices and plays what the program returns for these settings. `nbytes` may have a unit: "64MiB"."""
    if collective not in COLLECTIVES:
        raise CommandError(f"There is no collective {collective!r}; there are {', '.join(COLLECTIVES)}.")
    if isinstance(ranks, bool) or not isinstance(ranks, int) or not 1 <= ranks <= 1024:
        raise CommandError(f"The ranks are {ranks}; here they are a whole number from 1 to 1024.")
    whose = root if collective in ROOTED else None
    if whose is not None and not 0 <= whose < ranks:
        raise CommandError(f"The root is {whose}; it must be one of the ranks 0 to {ranks - 1}.")
    size, where = Size().convert(nbytes, None, None), preset(machine)
    fabric: Callable[[], Any] = lambda: node_fabric(where, ranks)  # noqa: E731  built only if the program asks for it
    wanted = Task("yours", "your own", collective, ranks, size, where.name, fabric, whose)
    found = _made(source, wanted)
    for what, given, asked in (
        ("collective", found.collective, collective),
        ("number of ranks", found.ranks, ranks),
        ("root", found.root, whose),
    ):
        if given != asked:
            return _wrong(f"Of your schedule the {what} is {given}; you chose {asked}.")
    if fault := fault_of(found, MAX_PIECES):
        said = _wrong(as_sentence(CourseError(fault)))
        said["html"] += "<p>The player shows the schedule as it is, up to where it goes wrong and after.</p>"
        with contextlib.suppress(CourseError, ValueError, KeyError, IndexError):
            said |= _player_of(found, found, size)
        return said
    timed = run_schedule(found, size, where)
    bound, taken = timed.lower_bound_seconds, timed.seconds
    share = f"{100 * bound / taken:.0f} % of the time" if taken else "no time passes"
    rate = (
        f"algbw {timed.algbw_gb_per_s:.4g} GB/s, busbw {timed.busbw_gb_per_s:.4g} GB/s" if timed.busbw_gb_per_s else ""
    )
    promise = (
        f"after step {timed.steps} every rank has what {collective} promises" if timed.steps else "nothing to send"
    )
    rows = [
        ("time", ms(1e6 * taken), f"on {escape(where.name)}, message by message"),
        ("lower bound", ms(1e6 * bound), f"no schedule is faster there: {share}"),
        ("steps", str(timed.steps), f"{len(found.moves)} messages in all"),
        ("bytes sent", f"{timed.bytes_per_rank:,}", "by the busiest rank"),
    ]
    if rate:
        rows.append(("bandwidth", rate.split(", ")[0], rate.split(", ")[1]))
    html = f'<p class="verdict right">Proved: {promise}.</p>{_table(rows)}'
    text = f"{found.algorithm}: {ms(1e6 * taken)}, lower bound {ms(1e6 * bound)}, {timed.steps} steps"
    return {"html": html, "text": text, "seconds": taken} | _player_of(found, timed.trace, size)


def _player_of(schedule: Schedule, played: Schedule | Trace, nbytes: int) -> Data:
    """The player of a schedule, or why there is none."""
    count, ranks = len(schedule.moves), schedule.ranks
    if not count:
        return {"unplayed": "There is no message to play."}
    if count > MOST_PLAYED or ranks > MOST_PLAYED_RANKS:
        return {
            "unplayed": (
                f"{count} messages of {ranks} ranks are not played here; up to {MOST_PLAYED} messages of "
                f"{MOST_PLAYED_RANKS} ranks are."
            )
        }
    return {"player": as_played([played], nbytes if isinstance(played, Schedule) else None)}


# ---------------------------------------------------------------------------------------------------------- the race


def raced(source: str, name: str) -> Data:
    """Scores the program for a task of the race, beside the leaderboard's entries: what `allranks race` prints."""
    where = task(name)
    entries = [entry for entry in leaderboard.load() if entry.task == where.name]
    try:
        result = judge(_made(source, where), where)
    except RaceError as error:
        said = as_sentence(error)
        return _wrong(said, board=section(where, entries))
    place = 1 + sum(entry.picoseconds < result.picoseconds for entry in entries)
    text = f"{result.text()}\n  place        {place} beside {len(entries)} entries of the course"
    yours = leaderboard.Entry(where.name, "your schedule", "you", result.picoseconds, result.score, file=FILE)
    html = (
        f'<p class="verdict right">Proved. Score {result.score}, place {place} beside {len(entries)} entries.</p>'
        f'<pre class="report" tabindex="0" aria-label="what the command prints">{escape(text)}</pre>'
    )
    return {"html": html, "text": text, "score": result.score, "board": section(where, [*entries, yours], yours)}


# ------------------------------------------------------------------------------------------------- a profile of a real
# job


def explained(files: Sequence[str] = (), sample: str = "") -> Data:
    """Explains the files, or a recorded job of the course: `allranks explain`'s words, and the ranks' lanes in time."""
    if sample and sample not in RECORDED:
        raise CommandError(f"There is no sample {sample!r}; there are {', '.join(RECORDED)}.")
    found = explain(as_job(recorded(sample)) if sample else list(files))
    text = found.text()
    said: Data = {
        "text": text,
        "html": f'<pre class="report" tabindex="0" aria-label="the report">{escape(text)}</pre>',
    }
    drawn = lanes(found.job, found.matching, waits=True)
    if not drawn.events:
        return said
    if len(drawn.events) > MOST_LANES:
        return said | {
            "unplayed": f"The {len(drawn.events):,} events are too many to draw here; up to {MOST_LANES:,} are."
        }
    return said | {"player": as_played([drawn])}


# ------------------------------------------------------------------------------------------------------- the calculator


def command(arguments: Sequence[str]) -> Data:
    """What `allranks` prints for these arguments. Only what computes is let in: price, plan and simulate."""
    if not arguments or arguments[0] not in ("price", "plan", "simulate"):
        raise CommandError("Here run price, plan and simulate.")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            command_line(list(arguments), prog_name="allranks")
            status = 0
        except SystemExit as end:
            status = int(end.code or 0)
    text = printed.getvalue().rstrip()[:MOST_TEXT]
    if status:
        last = re.sub(r"^Error: ", "", text.splitlines()[-1]) if text else f"It ended with {status}."
        return _wrong(last) | {"text": text}
    return {
        "text": text,
        "html": f'<pre class="report" tabindex="0" aria-label="what the command prints">{escape(text)}</pre>',
    }


ANSWERS: dict[str, Callable[..., Data]] = {
    "schedule": own_schedule,
    "race": raced,
    "explain": explained,
    "command": command,
}
# what the forms offer
OFFERED = {
    "collectives": [name for name in COLLECTIVES if name != "barrier"],
    "machines": list(PRESETS),
    "tasks": list(TASKS),
    "samples": list(RECORDED),
}
