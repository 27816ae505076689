"""halo_exchange(edge) -> (from_left, from_right): the edges of both neighbours on the ring, without a deadlock."""

from __future__ import annotations

from collections.abc import Sequence

from allranks.judge import evidence, rules
from allranks.judge.cases import Args, Expected, Setup, oracle_maker, plain, vectors
from allranks.judge.common import CIRCUMSTANCES, LAYOUTS, MOVED_DTYPES, many_ranks
from allranks.judge.exercise import P2P, Exercise, Group, Rule, Run


@oracle_maker
def _from(setup: Setup, args: Sequence[Args], left: int, right: int) -> list[Expected]:
    """An oracle: the edges of the ranks r + left and r + right."""
    edges, p = [plain(a[0]) for a in args], setup.ranks
    return [Expected((edges[(rank + left) % p], edges[(rank + right) % p])) for rank in range(p)]


def _from_both(run: Run) -> bool:
    """Whether rank 0 received from two neighbours: then no edge came twice."""
    return len({entry.rank for entry in evidence.received_by(run, 0)}) == 2


EXERCISE = Exercise(
    name="halo_exchange",
    promise="returns the edges of the left and of the right neighbour on the ring",
    groups=(
        Group("right edges", 3, (Setup(3, 2), Setup(4, 3), Setup(5, 4))),
        Group("any rank count", 2, (Setup(1, 4), Setup(2, 3), Setup(3, 1), Setup(8, 3))),
        Group("any size", 1, (Setup(2, 1), Setup(3, 0), Setup(4, 17))),
        many_ranks(),
        Group("any dtype", 1, MOVED_DTYPES),
        Group("any layout", 1, LAYOUTS),
        Group("any circumstances", 1, CIRCUMSTANCES),
    ),
    inputs=vectors,
    oracle=_from(-1, 1),
    allow=P2P,
    rules=(
        Rule("ring neighbours only", 2, rules.ring_messages),
        Rule("two messages a rank", 1, lambda run: rules.messages_at_most(run, 2, "one to each neighbour")),
        rules.exchanged(rules.times(lambda p: min(p - 1, 2))),
    ),
    blocking_weight=44,  # the task is to fix a deadlock: the broken program gets a fifth
    mistakes={
        "left and right are swapped: the left neighbour's edge comes first": _from(1, -1),
        "the left neighbour's edge came twice": (_from(-1, -1), lambda run: not _from_both(run)),
        "both items hold what arrived last: the second receive wrote over the first, so each needs a tensor of its "
        "own": (_from(1, 1), _from_both),
    },
    collective="send/recv",
    chunking="rank",
    demo_setup=Setup(4, 4, "float64", values="provenance"),
    peer_advice="Take the peer's number modulo the number of ranks.",
)
