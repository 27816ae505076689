"""The known orders of a pipeline, for any number of ranks and micro-batches that they allow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from allranks.theory.pipelines.actions import Action, Orders, PipelineError

# rank, ranks, micro-batches, stages a rank -> the rank's actions
Make = Callable[[int, int, int, int], Iterator[Action]]


@dataclass(frozen=True)
class Known:
    """A schedule: how it is written, who does what, and whether it is made for several stages a rank."""

    title: str
    make: Make
    interleaved: bool = False


def order(
    name: str, rank: int, ranks: int, micro_batches: int, *, stages_per_rank: int | None = None
) -> tuple[Action, ...]:
    """What one rank does in a schedule of `SCHEDULES`, in its order. Raises PipelineError if the schedule does not
    allow it.

    >>> [str(action) for action in pipelines.order("1f1b", rank=1, ranks=2, micro_batches=2)]
    ['1F0', '1B0', '1F1', '1B1']
    """
    known, several = _known(name, ranks, micro_batches, stages_per_rank)
    if not 0 <= rank < ranks:
        raise PipelineError(f"there is no rank {rank}: the ranks are 0 to {ranks - 1}.")
    return tuple(known.make(rank, ranks, micro_batches, several))


def orders(name: str, ranks: int, micro_batches: int, *, stages_per_rank: int | None = None) -> Orders:
    """What every rank does in a schedule of `SCHEDULES`. "interleaved" has two stages a rank unless told otherwise.

    >>> print(pipelines.orders("zb-h1", ranks=2, micro_batches=3))
    rank 0: F0 F1 I0 W0 F2 I1 W1 I2 W2
    rank 1: F0 I0 F1 I1 W0 F2 I2 W1 W2
    """
    known, several = _known(name, ranks, micro_batches, stages_per_rank)
    actions = tuple(tuple(known.make(rank, ranks, micro_batches, several)) for rank in range(ranks))
    title = f"{known.title}, {several} stages a rank" if several > 1 else known.title
    return Orders(title, ranks, micro_batches, several * ranks, actions)


def _known(name: str, ranks: int, micro_batches: int, stages_per_rank: int | None) -> tuple[Known, int]:
    """The schedule, and the stages a rank. Raises PipelineError."""
    if name not in SCHEDULES:
        raise PipelineError(f"there is no schedule {name!r}; there are {', '.join(SCHEDULES)}.")
    known = SCHEDULES[name]
    several = (2 if known.interleaved else 1) if stages_per_rank is None else stages_per_rank
    for what, value in (("ranks", ranks), ("micro_batches", micro_batches), ("stages_per_rank", several)):
        if not isinstance(value, int) or value < 1:
            raise PipelineError(f"{what} must be a whole number from 1 up, not {value!r}.")
    if several > 1 and not known.interleaved:
        raise PipelineError(f"{name} has one stage a rank, not {several}; for several there is interleaved.")
    if known.interleaved and micro_batches % _rounds(ranks, micro_batches):
        rounds = _rounds(ranks, micro_batches)
        raise PipelineError(
            f"interleaved takes micro-batches in {rounds} equal rounds of at least {ranks}, "
            f"and {micro_batches} is no multiple of {rounds}; take {micro_batches - micro_batches % ranks}."
        )
    return known, several


def _gpipe(rank: int, ranks: int, micro_batches: int, several: int) -> Iterator[Action]:
    for kind in "FB":
        for i in range(micro_batches):
            yield Action(rank, kind, i)


def _one_f_one_b(rank: int, ranks: int, micro_batches: int, several: int) -> Iterator[Action]:
    ahead = min(ranks - 1 - rank, micro_batches)
    for i in range(ahead):
        yield Action(rank, "F", i)
    for i in range(micro_batches):
        if ahead + i < micro_batches:
            yield Action(rank, "F", ahead + i)
        yield Action(rank, "B", i)


def _rounds(ranks: int, micro_batches: int) -> int:
    """In how many rounds the micro-batches pass a rank's stages: each round has at least as many as there are ranks."""
    return max(1, micro_batches // ranks)


def _interleaved(rank: int, ranks: int, micro_batches: int, several: int) -> Iterator[Action]:
    """A round of micro-batches through the rank's first stage, then through the next; backward from the last."""
    each = micro_batches // _rounds(ranks, micro_batches)
    total = micro_batches * several

    def place(i: int, kind: str) -> Action:
        """The i-th forward or backward of this rank."""
        turn, rest = divmod(i, each * several)
        piece, within = divmod(rest, each)
        piece = several - 1 - piece if kind == "B" else piece
        return Action(piece * ranks + rank, kind, turn * each + within)

    ahead = min((several - 1) * each + 2 * (ranks - 1 - rank), total)
    for i in range(ahead):
        yield place(i, "F")
    for i in range(total):
        if ahead + i < total:
            yield place(ahead + i, "F")
        yield place(i, "B")


def _split(rank: int, micro_batches: int, ahead: int, late: int) -> Iterator[Action]:
    """`ahead` forward, then one forward and one input's gradient in turn; weights follow `late` micro-batches later."""
    ahead = min(ahead, micro_batches)
    for i in range(ahead):
        yield Action(rank, "F", i)
    for i in range(micro_batches):
        if ahead + i < micro_batches:
            yield Action(rank, "F", ahead + i)
        yield Action(rank, "I", i)
        if i >= late:
            yield Action(rank, "W", i - late)
    for i in range(max(micro_batches - late, 0), micro_batches):
        yield Action(rank, "W", i)


def _zb_h1(rank: int, ranks: int, micro_batches: int, several: int) -> Iterator[Action]:
    return _split(rank, micro_batches, ranks - 1 - rank, rank)


def _zb_h2(rank: int, ranks: int, micro_batches: int, several: int) -> Iterator[Action]:
    """One more forward ahead than `_split` has it, so that its forward comes behind the gradients."""
    ahead = min(2 * (ranks - 1 - rank) + 1, micro_batches)
    late = 2 * rank
    for i in range(ahead):
        yield Action(rank, "F", i)
    for i in range(micro_batches):
        yield Action(rank, "I", i)
        if i >= late:
            yield Action(rank, "W", i - late)
        if ahead + i < micro_batches:
            yield Action(rank, "F", ahead + i)
    for i in range(max(micro_batches - late, 0), micro_batches):
        yield Action(rank, "W", i)


# the known schedules by name
SCHEDULES: dict[str, Known] = {
    "gpipe": Known("GPipe", _gpipe),
    "1f1b": Known("1F1B", _one_f_one_b),
    "interleaved": Known("Interleaved 1F1B", _interleaved, interleaved=True),
    "zb-h1": Known("ZB-H1", _zb_h1),
    "zb-h2": Known("ZB-H2", _zb_h2),
}
