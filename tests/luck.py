"""Where what a mistake costs is luck: its result differs from the right one with some secrets only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from allranks.judge.cases import Setup
from allranks.judge.exercise import Exercise
from allranks.judge.known import is_wrong
from allranks.judge.run import one_torch_thread


@dataclass(frozen=True)
class Lucky:
    """A mistake that shows in a case with some secrets only; `shows` has a place for each of them."""

    case: str
    cause: str
    number: int
    shows: tuple[bool, ...]

    def __str__(self) -> str:
        return f"{self.case}: {sum(self.shows)} of {len(self.shows)} secrets: {self.number} {self.cause}"


def lucky(exercise: Exercise, secrets: Iterable[int], words: Sequence[str] = ("",)) -> list[Lucky]:
    """All of them whose cause has one of the `words`. No rank is started."""
    known = [m for m in exercise.known if any(word in m.cause for word in words)]
    setups = [(group, setup) for group in exercise.groups for setup in group.setups if setup.earns_credit]
    found, secrets = [], list(secrets)
    with one_torch_thread():
        for group, setup in setups:
            columns = zip(*(_shown(exercise, setup, secret, known) for secret in secrets), strict=True)
            for number, (mistake, seen) in enumerate(zip(known, columns, strict=True)):
                if len(set(seen)) > 1:
                    found.append(Lucky(f"{group.name}: {exercise.label(setup)}", mistake.cause, number, seen))
    return found


def _shown(exercise: Exercise, setup: Setup, secret: int, known: Sequence) -> list[bool]:
    """For each mistake whether some call of the case is wrong then."""
    setup, shown = setup.drawn(secret), [False] * len(known)
    for call in range(setup.times):
        args = tuple(exercise.inputs(setup, setup.draws(secret, call)))
        right = exercise.oracle(setup, args)
        shown = [s or is_wrong(m.oracle, setup, args, right) for s, m in zip(shown, known, strict=True)]
    return shown
