"""mirror(tensor) -> Tensor: rank r gets the tensor of rank p-1-r."""

from __future__ import annotations

from allranks.judge import rules
from allranks.judge.cases import Expected, Setup, plain, vectors
from allranks.judge.common import CIRCUMSTANCES, LAYOUTS, MOVED_DTYPES, many_ranks, returning
from allranks.judge.exercise import P2P, About, Exercise, Group, Rule, Run


def _one_each(run: Run) -> str | None:
    if broken := rules.no_messages(run):
        return broken
    for rank in range(run.ranks):
        mine = [e for e in run.sends if e.rank == rank]
        other = next((e for e in mine if e.peer != run.ranks - 1 - rank), None)
        if other is not None:
            return About(
                f"rank {rank} sends to rank {other.peer}{run.at(other.line)}, but its mirror image is rank {run.ranks - 1 - rank}",
                other,
            )
        if len(mine) > run.setup.times:
            return About(
                f"rank {rank} sends {len(mine)} messages{run.at(mine[-1].line)}, but one, to its mirror image, is enough",
                mine[-1],
            )
    return None


def _needed(run: Run, call: int, rank: int) -> int:
    return 0 if rank == run.ranks - 1 - rank else rules.nbytes_of(run, call, rank)


EXERCISE = Exercise(
    name="mirror",
    promise="returns the tensor of rank p-1-r on rank r",
    groups=(
        Group("right tensor", 3, (Setup(2, 3), Setup(4, 5), Setup(8, 4))),
        Group("odd rank counts", 1, (Setup(1, 3), Setup(3, 4), Setup(5, 2))),
        Group("any size", 0.5, (Setup(4, 0), Setup(4, 1))),
        many_ranks(0.5),
        Group("any dtype", 0.5, MOVED_DTYPES),
        Group("any layout", 0.5, LAYOUTS),
        Group("any circumstances", 0.5, CIRCUMSTANCES),
    ),
    inputs=vectors,
    oracle=lambda setup, args: [Expected(plain(args[setup.ranks - 1 - rank][0])) for rank in range(setup.ranks)],
    allow=P2P,
    rules=(Rule("one message a rank", 1, _one_each), rules.in_dtype(0), rules.exchanged(_needed)),
    mistakes={
        "shifted by one place: the ring is another exercise": returning(
            lambda tensors, rank, setup: tensors[(rank - 1) % setup.ranks]
        ),
    },
    collective=None,
    chunking="rank",
    blocking_weight=10,
    peer_advice="The mirror image of rank r is rank p-1-r.",
    own_rank_advice="With an odd p the middle rank is its own mirror image: it copies its tensor.",
)
