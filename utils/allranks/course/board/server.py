"""The workshop board: who has passed what, and what the class predicted, live, for a projector. Kept in memory only, never on a disk.

Whoever has the address, which ends with a random key, may look and tell. The board takes no code and no inputs: an exercise that
there is, pass or not, and a few words; a question, and what was chosen.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
import math
import re
import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tornado import web
from tornado.iostream import StreamClosedError

from allranks.base import course_files as files
from allranks.base.board import MAX_NAME, BoardError
from allranks.base.theme import style
from allranks.base.web_service import Service, serve_at
from allranks.course.contents import contents
from allranks.course.map.drawing import Manner
from allranks.course.map.page import pictures
from allranks.course.map.page import style as map_style
from allranks.course.state import state
from allranks.machine.accounts_server import AccountsServer
from allranks.ranks.engines.strangers import other_end

PAGE = Path(__file__).with_name("static") / "board.html"
MAX_LEARNERS = 500
MAX_CAUSE = 120
MAX_QUESTIONS = 200
MAX_CHOICE = 120
MAX_NUMBER = 1e15
BARS = 8  # at most, of numbers
TOO_MANY = "Too many new learners come from there at once: try again in a minute."
REFUSAL = "That is no message for a board."
MAX_BODY = 4096
NEW_AT_ONCE = (
    100  # learners from one source: an account of this machine, or another machine, maybe with a class behind it
)
NEW_EVERY_S = 1.0  # then one more at most so often
Standings = list[tuple[str, list[tuple[str, str]]]]
EVERY_S = 0.5  # the page is told at most so often


@dataclass
class Learner:
    """One learner: the number of the row, the name if names are shown, and of each exercise the last verdict."""

    number: int
    name: str = ""
    source: str = ""
    exercises: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass
class Newcomers:
    """How many learners a source may still bring: `NEW_AT_ONCE`, and one more every `NEW_EVERY_S`."""

    left: float = NEW_AT_ONCE
    at_s: float | None = None

    def admit(self, now_s: float) -> bool:
        """Whether one more may come now; counts it then."""
        since = 0.0 if self.at_s is None else now_s - self.at_s
        self.left, self.at_s = min(NEW_AT_ONCE, self.left + since / NEW_EVERY_S), now_s
        if self.left < 1:
            return False
        self.left -= 1
        return True


@dataclass
class Question:
    """A question that was answered: its short form, what each learner said last, and from where; and who asked first."""

    title: str
    source: str = ""
    said: dict[str, str | float] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    newcomers: dict[str, Newcomers] = field(default_factory=dict)

    def state(self) -> dict[str, Any]:
        """How many answered, and a bar for each answer, as (words, count)."""
        return {"answers": len(self.said), "bars": bars(list(self.said.values()))}


def bars(said: Sequence[str | float]) -> list[tuple[str, int]]:
    """How often each answer was given, the most frequent first; numbers in order of size, in ranges if there are many.

    Example:
        >>> bars(["every rank", "rank 0", "every rank"])
        [('every rank', 2), ('rank 0', 1)]
        >>> bars([6, 3, 6])
        [('3', 1), ('6', 2)]
        >>> bars([1, 2, 3, 20, 30, 40, 300, 4000, 50000])
        [('1 to 10', 3), ('10 to 100', 3), ('100 to 1,000', 1), ('1,000 to 10,000', 1), ('10,000 to 100,000', 1)]
    """
    numbers = [value for value in said if not isinstance(value, str)]
    counts = Counter(value for value in said if isinstance(value, str)).most_common()
    if len(set(numbers)) <= BARS:
        return counts + [(_written(value), numbers.count(value)) for value in sorted(set(numbers))]
    edges = _edges(min(numbers), max(numbers))
    held = [sum(low <= value < high for value in numbers) for low, high in itertools.pairwise(edges)]
    held[-1] += numbers.count(edges[-1])
    ends = [f"{_written(low)} to {_written(high)}" for low, high in itertools.pairwise(edges)]
    return counts + list(zip(ends, held, strict=True))


def _edges(low: float, high: float) -> list[float]:
    """The ends of at most BARS ranges of equal length; of equal ratio, powers of ten, where numbers differ a hundredfold."""
    if low > 0 and high >= 100 * low:
        first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
        every = -(-(last - first) // BARS)
        return [10.0**power for power in range(first, last + every, every)]
    step = 10.0 ** math.floor(math.log10((high - low) / BARS))
    step *= next(
        times
        for times in (1, 2, 5, 10, 20)
        if math.floor(high / (times * step)) - math.floor(low / (times * step)) < BARS
    )
    first = math.floor(low / step)
    return [step * k for k in range(first, math.floor(high / step) + 2)]


def _written(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def surplus(sources: dict[str, str], source: str) -> str | None:
    """On a full board: the newest entry of the source with the most, if that has more than `source` would have.

    Example:
        >>> surplus({"a": "account 1", "b": "account 1", "c": "account 1"}, "account 2"), surplus({"a": "account 1"}, "account 2")
        ('c', None)
    """
    of = Counter(sources.values())
    most, count = of.most_common(1)[0]
    return next(one for one in reversed(sources) if sources[one] == most) if count > of[source] + 1 else None


class Standing:
    """What the board knows. `known` are the exercises that there are; with `names` the learners' names are kept.

    `race` gives a race's standings, (task, [(entry, score), the fastest first]), or is None if there is no race to show.
    """

    def __init__(self, known: Collection[str], names: bool, race: Callable[[], Standings] | None = None) -> None:
        self.known, self.names, self.race = frozenset(known), names, race
        self.learners: dict[str, Learner] = {}
        self.questions: dict[str, Question] = {}
        self.newcomers: dict[str, Newcomers] = {}  # by source
        self.came = 0  # learners so far
        self.course = files.given()  # whose chapters are on the map; None where the notebooks are not installed

    def take(self, told: Any, source: str = "", now_s: float | None = None) -> str | None:
        """Takes a message from a source; returns why not, or None. `now_s` is the time on a clock that only goes forward."""
        match told:
            case {
                "who": str(who),
                "question": str(question),
                "title": str(title),
                "choice": str() | int() | float() as choice,
            }:
                words = _plain(question, MAX_CHOICE), _plain(title, MAX_CHOICE)
                return self._take_choice(who, *words, choice, source, time.monotonic() if now_s is None else now_s)
            case {
                "who": str(who),
                "name": str(name),
                "exercise": str(exercise),
                "passed": bool(passed),
                "cause": str(cause),
            }:
                pass
            case _:
                return REFUSAL
        if not _NUMBER.fullmatch(who) or exercise not in self.known:
            return REFUSAL
        learner = self.learners.get(who)
        if learner is None:
            newcomers = self.newcomers.setdefault(source, Newcomers())
            if not newcomers.admit(time.monotonic() if now_s is None else now_s):
                return TOO_MANY
            sources = {other: one.source for other, one in self.learners.items()}
            if len(sources) >= MAX_LEARNERS:
                if (least := surplus(sources, source)) is None:
                    return f"The board has {MAX_LEARNERS} learners already."
                del self.learners[least]
            self.came += 1
            learner = self.learners[who] = Learner(self.came, source=source)
        if self.names:
            learner.name = _plain(name, MAX_NAME)
        before = learner.exercises.get(exercise, {"passed": False, "tries": 0})
        learner.exercises[exercise] = {
            "passed": passed or before["passed"],  # what was passed once stays so
            "cause": "" if passed or before["passed"] else _plain(cause, MAX_CAUSE),
            "tries": before["tries"] + 1,
        }
        return None

    def _take_choice(
        self, who: str, question: str, title: str, choice: str | float, source: str, now_s: float
    ) -> str | None:
        if isinstance(choice, str):
            choice = _plain(choice, MAX_CHOICE)
        good = choice != "" if isinstance(choice, str) else type(choice) is not bool and abs(choice) <= MAX_NUMBER
        if not (_NUMBER.fullmatch(who) and question and title and good):
            return REFUSAL
        if question not in self.questions and len(self.questions) >= MAX_QUESTIONS:
            least = surplus({name: one.source for name, one in self.questions.items()}, source)
            if least is None:
                return f"The board has {MAX_QUESTIONS} questions already."
            del self.questions[least]
        asked = self.questions.setdefault(question, Question(title, source))
        if who not in asked.said:
            if not asked.newcomers.setdefault(source, Newcomers()).admit(now_s):
                return TOO_MANY
            if len(asked.said) >= MAX_LEARNERS:
                if (least := surplus(asked.sources, source)) is None:
                    return f"The board has {MAX_LEARNERS} learners already."
                del asked.said[least], asked.sources[least]
        asked.said[who], asked.sources[who] = choice, source  # the last one counts
        return None

    def counts(self) -> dict[str, str]:
        """Of each chapter in which somebody did something, how many passed its checks and answered its questions, in words.

        Predictions come without a number that joins them, so the question that most answered counts.
        """
        found = {}
        for number, holds in contents(self.course).items() if self.course else ():
            of_checks = {item.name for item in holds.checks}
            passed = sum(
                any(one.exercises.get(name, {}).get("passed") for name in of_checks) for one in self.learners.values()
            )
            said = [len(self.questions[item.name].said) for item in holds.questions if item.name in self.questions]
            parts = [f"{passed} passed"] * bool(passed) + [f"{max(said, default=0)} predicted"] * bool(said)
            if parts:
                found[number] = ", ".join(parts)
        return found

    def state(self) -> dict[str, Any]:
        """What the page shows: the learners in the order in which they came, the exercises that somebody has tried, the questions."""
        tried = {exercise: None for learner in self.learners.values() for exercise in learner.exercises}
        learners = [
            {"number": one.number, "name": one.name, "exercises": one.exercises} for one in self.learners.values()
        ]
        questions = [{"question": name, "title": one.title} | one.state() for name, one in self.questions.items()]
        shown = {"exercises": list(tried), "learners": learners, "questions": questions}
        if counts := self.counts():
            shown["map"] = counts
        return shown if self.race is None else shown | {"race": self.race()}


_NUMBER = re.compile(r"[0-9a-f]{16}")


def _plain(text: str, most: int) -> str:
    return "".join(c for c in text if c.isprintable())[:most].strip()


class _Handler(Service):
    def initialize(self, standing: Standing) -> None:
        self.standing = standing


class _Page(_Handler):
    def get(self) -> None:
        nonce = self.page_nonce()
        page = PAGE.read_text(encoding="utf-8").replace("{{style}}", style()).replace("{{nonce}}", nonce)
        page = page.replace("{{map}}", class_map() if self.standing.course else "")
        self.finish(page)


@functools.cache
def class_map() -> str:
    """The map of the course without anybody on it: the page puts in what the class did."""
    return f'{map_style()}<h2>The class on the map</h2><div class="ar-map">{pictures(state(None), Manner(counts={}))}</div>'


class _Tell(_Handler):
    def post(self) -> None:
        try:
            told = json.loads(self.request.body)
        except (ValueError, RecursionError):
            told = None
        refusal = self.standing.take(told, self._source())
        self.set_status(400 if refusal else 204)
        if refusal:
            self.finish({"reason": refusal})

    def _source(self) -> str:
        """Who tells: an account of this machine, or the address of another."""
        connection: Any = self.request.connection
        uid = other_end(connection.stream.socket)
        return f"account {uid}" if uid is not None else self.request.remote_ip


class _Said(_Handler):
    """What the class said to one question, for the card of a learner who has answered it."""

    def get(self, question: str) -> None:
        asked = self.standing.questions.get(_plain(question, MAX_CHOICE))
        if asked is None:
            self.set_status(404)
        self.finish(asked.state() if asked else {"reason": "Nobody has answered this question."})


class _Events(_Handler):
    """Server-sent events: the whole state, again whenever it has changed."""

    async def get(self) -> None:
        self.set_header("Content-Type", "text/event-stream")
        last = ""
        try:
            while True:
                state = json.dumps(self.standing.state())
                self.write(f"data: {state}\n\n" if state != last else ": still here\n\n")
                last = state
                await self.flush()
                await asyncio.sleep(EVERY_S)
        except StreamClosedError:
            return


def application(standing: Standing, key: str) -> web.Application:
    """The board's pages, for tornado; all lie below the key."""
    shared = {"standing": standing}
    routes = [(rf"/{key}/?", _Page, shared), (rf"/{key}/tell", _Tell, shared), (rf"/{key}/events", _Events, shared)]
    routes.append((rf"/{key}/said/(.+)", _Said, shared))
    return web.Application(routes, log_function=lambda handler: None)  # the log would have the key


async def serve(standing: Standing, host: str, port: int, tell: Callable[[int, str], object]) -> None:
    """Serves until it is cancelled; `tell` gets the port and the key. Raises BoardError if the port can't be used."""
    key = secrets.token_urlsafe(9).replace("-", "x").replace("_", "y")
    pages = application(standing, key)
    await serve_at(host, port, pages, lambda used: tell(used, key), MAX_BODY, BoardError, AccountsServer)
