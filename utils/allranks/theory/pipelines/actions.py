"""What a rank of a pipeline does, as data: an action is one piece of work, orders are each rank's list of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from allranks.base.errors import CourseError

KINDS = {
    "F": "forward",
    "B": "backward",
    "I": "gradient of the input",
    "W": "gradient of the weights",
}
PLACES = ("loop", "v")
_TEXT = re.compile(r"(\d*)([FBIW])(\d+)")


class PipelineError(CourseError):
    """A pipeline that can't be: wrong orders, or a schedule that does not allow these ranks and micro-batches."""


@dataclass(frozen=True, order=True)
class Action:
    """One piece of a rank's work: a kind of `KINDS`, a stage, a micro-batch. "B" is "I" and "W" in one.

    >>> pipelines.Action(2, "F", 0).words
    'F0 of stage 2'
    """

    stage: int
    kind: str
    micro_batch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.short}"

    @property
    def short(self) -> str:
        """The action without its stage, such as F3."""
        return f"{self.kind}{self.micro_batch}"

    @property
    def words(self) -> str:
        """The action in a sentence: "F3 of stage 1"."""
        return f"{self.short} of stage {self.stage}"


@dataclass(frozen=True)
class Orders:
    """What each rank of a pipeline does, in its order. Stages are numbered as the activations pass them.

    With several stages a rank, `place` says which: "loop" puts stage s on rank s modulo p; "v" goes back from the last
    rank, so that rank 0 has the first stage and the last.

    >>> print(pipelines.orders("1f1b", ranks=2, micro_batches=2))
    rank 0: F0 F1 B0 B1
    rank 1: F0 B0 F1 B1
    """

    name: str
    ranks: int
    micro_batches: int
    stages: int
    actions: tuple[tuple[Action, ...], ...]
    place: str = "loop"

    @property
    def stages_per_rank(self) -> int:
        """How many stages a rank has."""
        return self.stages // self.ranks

    def rank_of(self, stage: int) -> int:
        """The rank that has this stage."""
        turn, rank = divmod(stage, self.ranks)
        return self.ranks - 1 - rank if self.place == "v" and turn % 2 else rank

    @cached_property
    def texts(self) -> tuple[tuple[str, ...], ...]:
        """Each rank's actions as words: with their stage only where a rank has several."""
        short = self.stages == self.ranks
        return tuple(tuple(a.short if short else str(a) for a in mine) for mine in self.actions)

    @cached_property
    def by_rank(self) -> tuple[frozenset[Action], ...]:
        """Each rank's actions, to ask quickly whether one is among them."""
        return tuple(frozenset(mine) for mine in self.actions)

    def __str__(self) -> str:
        return "\n".join(f"rank {rank}: {' '.join(mine)}" for rank, mine in enumerate(self.texts))


def read(
    texts: Sequence[Sequence[str]],
    micro_batches: int,
    *,
    stages: int | None = None,
    place: str = "loop",
    name: str = "these orders",
) -> Orders:
    """Orders from each rank's words, such as "F0", or "4F0" with the stage before it, as torch.distributed.pipelining
    writes them.

    Without a stage, an action is of the rank's own stage. Raises PipelineError for words that are no action.

    >>> pipelines.read([["F0", "B0"], ["F0", "B0"]], micro_batches=1).stages
    2
    """
    ranks = len(texts)
    stages = ranks if stages is None else stages
    if place not in PLACES:
        raise PipelineError(f"place must be one of {', '.join(PLACES)}, not {place!r}.")
    if ranks < 1 or stages < ranks or stages % ranks:
        raise PipelineError(
            f"{stages} stages can't be shared out to {ranks} ranks: each needs the same number of them."
        )
    actions = tuple(tuple(_parsed(text, rank) for text in mine) for rank, mine in enumerate(texts))
    return Orders(name, ranks, micro_batches, stages, actions, place)


def _parsed(text: str, rank: int) -> Action:
    found = _TEXT.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise PipelineError(
            f"{text!r} in rank {rank}'s order is no action; write a kind of F, B, I, W and a number: F0."
        )
    stage, kind, micro_batch = found.groups()
    return Action(int(stage) if stage else rank, kind, int(micro_batch))
