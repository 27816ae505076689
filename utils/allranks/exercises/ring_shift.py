"""ring_shift(tensor, k) -> Tensor: rank r gets the tensor of rank (r - k) mod p."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from allranks.judge import rules
from allranks.judge.cases import Args, Expected, Setup, View, plain, vectors
from allranks.judge.common import CIRCUMSTANCES, LAYOUTS, MOVED_DTYPES, SIZES, Make, many_ranks, returning
from allranks.judge.drawing import Draws
from allranks.judge.exercise import P2P, YOUR_VARIANT, About, Exercise, Group, Rule, Run, Variants

NO_DIMENSION = "a tensor without dimensions"


def _inputs(setup: Setup, rng: Draws) -> list[Args]:
    tensors = [view for (view,) in vectors(setup, rng)]
    if setup.option("case") == NO_DIMENSION:
        tensors = [View.of(view.tensor().reshape(())) for view in tensors]
    return [(view, setup.option("k", 1)) for view in tensors]


def _oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    k = setup.option("k", 1)
    return [Expected(plain(args[(rank - k) % setup.ranks][0])) for rank in range(setup.ranks)]


def _from(step: Callable[[int], int]) -> Make:
    """The tensor of rank r + step(k)."""
    return lambda tensors, rank, setup: tensors[(rank + step(setup.option("k", 1))) % setup.ranks]


def _needed(run: Run, call: int, rank: int) -> int:
    return rules.nbytes_of(run, call, rank) if run.setup.option("k", 1) % run.ranks else 0


def _one_way(run: Run, pieces: int = 1) -> str | None:
    """The tensor must go straight to rank r + k, or from neighbour to neighbour, in `pieces` messages a hop."""
    p, k = run.ranks, run.setup.option("k", 1) % run.ranks
    if not k:
        return None
    if broken := rules.messages_in_dtype(run):
        return broken
    straight = all((e.peer - e.rank) % p == k for e in run.sends)
    other = next((e for e in run.sends if (e.peer - e.rank) % p not in (k, 1, p - 1)), None)
    if other is not None:
        return About(
            f"rank {other.rank} sends to rank {other.peer}{run.at(other.line)}, but its tensor belongs to rank "
            f"{(other.rank + k) % p} only, k = {k} places further",
            other,
        )
    places = max(k, p - k)
    return (
        rules.messages_at_most(run, pieces, _at_most(pieces, "from each rank"))
        if straight
        else rules.messages_at_most(run, places * pieces, _at_most(pieces, "for each place of the way"))
    )


def _at_most(pieces: int, where: str) -> str:
    return f"one message {where}" if pieces == 1 else f"{pieces} messages {where}"


def _in_pieces(run: Run, most: int) -> str | None:
    """No message may have more than `most` elements, and there must be as few messages as that allows."""
    pieces = -(-run.setup.size // most)
    large = next((e for e in run.sends if e.numel > most), None)
    if large is not None:
        return About(
            f"rank {large.rank} sends {large.numel} elements in one message{run.at(large.line)}, but {most} is the most",
            large,
            f"{large.numel} elements",
            f"at most {most}",
            "a message is too large",
        )
    return _one_way(run, max(pieces, 1))


def _with_pieces(exercise: Exercise, drawn: Mapping[str, int]) -> Exercise:
    most = drawn["most"]
    rule = Rule(
        f"{YOUR_VARIANT}: at most {most} elements a message, to rank r + k only", 6, lambda run: _in_pieces(run, most)
    )
    return replace(
        exercise,
        groups=(*exercise.groups, Group(YOUR_VARIANT, 2, _k(1, Setup(2, 24), Setup(3, 60), Setup(4, 25)))),
        rules=(rule, *exercise.rules[1:]),
    )


def _k(k: int, *setups: Setup) -> tuple[Setup, ...]:
    return tuple(replace(s.with_options(k=k), note="") for s in setups)


EXERCISE = Exercise(
    name="ring_shift",
    promise="returns the tensor of the rank k places to the left on the ring",
    groups=(
        Group("right neighbour", 3, (*_k(1, Setup(2, 3), Setup(3, 4), Setup(4, 5)), *_k(2, Setup(3, 2), Setup(5, 3)))),
        Group(
            "any k",
            2,
            tuple(
                s for k, p in ((0, 3), (-1, 3), (3, 4), (7, 3), (-9, 5), (4, 4), (-6, 3)) for s in _k(k, Setup(p, 4))
            ),
        ),
        Group(
            "any rank count",
            1,
            (*_k(1, Setup(1, 4), Setup(5, 4), Setup(8, 4)), *_k(4, Setup(8, 3)), *_k(3, Setup(1, 2))),
        ),
        many_ranks(k=(-15, -20, -29), size=SIZES),
        Group(
            "any size",
            1,
            (*_k(1, Setup(3, 0), Setup(3, 1), Setup(4, 17)), *_k(1, Setup(3, 1).with_options(case=NO_DIMENSION))),
        ),
        Group("any dtype", 1, _k(1, *MOVED_DTYPES)),
        Group("any layout", 1, _k(1, *LAYOUTS)),
        Group("any circumstances", 1, _k(1, *CIRCUMSTANCES)),
    ),
    inputs=_inputs,
    oracle=_oracle,
    allow=P2P,
    rules=(Rule("to rank r + k only", 4, _one_way), rules.exchanged(_needed)),
    blocking_weight=3,
    variants=Variants(
        (("most", (3, 4, 5, 6, 7, 8, 9)),),
        "{most} elements a message",
        "a message carries at most {most} elements. A longer tensor goes in pieces, and in as few messages as that allows.",
        _with_pieces,
    ),
    mistakes={
        "shifted in the wrong direction: rank r gets the tensor of rank r - k, so it sends to r + k": returning(
            _from(lambda k: k)
        ),
        "shifted by 1, whatever k is": returning(_from(lambda k: -1)),
    },
    collective="send/recv",
    chunking="rank",
    demo_setup=Setup(4, 4, "float64", values="provenance").with_options(k=1),
    peer_advice="Take the peer's number modulo the number of ranks.",
)
