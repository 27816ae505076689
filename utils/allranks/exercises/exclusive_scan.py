"""exclusive_scan(tensor) -> Tensor: the sum of all lower ranks' tensors, in ceil(lg p) + 1 rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from allranks.judge import provenance, rules
from allranks.judge.cases import DTYPES, Args, Expected, Setup, View, draw, oracle_maker, plain, summed, vectors
from allranks.judge.common import CIRCUMSTANCES, LAYOUTS, SUM_DTYPES, many_ranks
from allranks.judge.drawing import Draws
from allranks.judge.exercise import P2P, About, Exercise, Group, Rule, Run
from allranks.theory.schedules import ceil_lg

Chosen = Callable[[int, int], Sequence[int]]  # (rank, ranks) -> whose tensors are added
HUGE = {"float32": 2.0**30, "float64": 2.0**60}  # beside it a small number is lost


def _inputs(setup: Setup, rng: Draws) -> list[Args]:
    if setup.option("case") != "one huge number a rank":
        return vectors(setup, rng)
    made: list[Args] = []
    for rank in range(setup.ranks):
        values = draw(setup, rng.of_rank(rank), setup.size).abs()  # a sum of 0 could not be lost
        # in another place on each rank: all later ranks need the small numbers that came before it
        values[rank % setup.size] = HUGE[setup.dtype]
        made.append((View.of(values, setup.layout),))
    return made


@oracle_maker
def _sums(setup: Setup, args: Sequence[Args], chosen: Chosen) -> Iterator[Expected]:
    """On each rank the sum of the tensors of the ranks that are chosen for it; zeros if there are none."""
    tensors = [plain(a[0]) for a in args]
    for rank in range(setup.ranks):
        few = [tensors[i] for i in chosen(rank, setup.ranks)]
        total, atol = summed(few) if few else (torch.zeros_like(tensors[0]), None)
        yield Expected(total, {}, atol)


_oracle = _sums(lambda rank, p: range(rank))


def _subtracted(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """The sum with the rank's own tensor, less its own tensor, in the tensor's dtype."""
    made = []
    for rank, right in enumerate(_oracle(setup, args)):
        own = plain(args[rank][0])
        made.append(Expected((right.returns + own) - own, {}, right.atol))
    return made


def _first_keeps(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """Right, but rank 0 returns its own tensor."""
    right = _oracle(setup, args)
    return [Expected(plain(args[0][0])), *right[1:]]


def _no_doubling(rank: int, p: int) -> list[int]:
    """The tensors at distances 1, 2, 4 ...: each round sent the rank's own tensor again."""
    return [rank - (1 << k) for k in range(ceil_lg(p) + 1) if rank >= 1 << k]


def _one_round_short(rank: int, p: int) -> range:
    """Windows half as long as they must be: the last round is missing."""
    return range(max(0, rank - (1 << max(ceil_lg(max(p - 1, 1)) - 1, 0))), rank)


def _windows(rounds: Callable[[int], int]) -> Chosen:
    """So many rounds of doubling from the left neighbour on: together they reach 2^rounds - 1 ranks back."""
    return lambda rank, p: range(max(0, rank + 1 - (1 << rounds(p))), rank)


def _round_a_ring(rank: int, p: int) -> list[int]:
    """What all rounds bring if a rank below 0 is taken for one of the last."""
    return [(rank - back) % p for back in range(1, 1 << ceil_lg(p))]


def _one_vector_a_round(run: Run) -> str | None:
    """Each rank may send ceil(lg p) + 1 vectors in a call."""
    rounds = ceil_lg(run.ranks) + 1
    limit = run.setup.times * rounds * rules.nbytes_of(run)
    for rank, sent in enumerate(run.bytes_sent()):
        if sent > limit:
            longest = max((e for e in run.sends if e.rank == rank), key=lambda e: e.nbytes)
            why = "a rank sends to one other rank in a round"
            if longest.nbytes > rules.nbytes_of(run) or _tensors_as_given(run, rank) > 1:
                why = "send sums, not all the tensors that they are made of"
            return About(
                f"rank {rank} sends {sent} bytes{run.at(longest.line)}, but one vector in each of ceil(lg p) + 1 = {rounds} "
                f"rounds has {limit}: {why}",
                longest,
            )
    return rules.wrong_dtype(run)


def _tensors_as_given(run: Run, rank: int) -> int:
    """How many of the rank's messages are just a tensor that some rank was given, its own or another's."""
    found = 0
    for entry in run.sends:
        sent = provenance.numbers(entry) if entry.rank == rank else None
        if sent is not None:
            given = [plain(a[0]).reshape(-1) for a in run.args[entry.call]]
            found += any(torch.equal(sent, tensor) for tensor in given)
    return found


def _from_below(run: Run, call: int, rank: int) -> int:
    """What a rank needs of the lower ranks: one vector."""
    return rules.nbytes_of(run, call, rank) if rank else 0


def _for_above(run: Run, call: int, rank: int) -> int:
    """What the higher ranks need of a rank: one vector."""
    return rules.nbytes_of(run, call, rank) if rank < run.ranks - 1 else 0


_HUGE = tuple(
    Setup(ranks, size, dtype).with_options(case="one huge number a rank")
    for ranks, size, dtype in ((3, 5, "float32"), (4, 6, "float64"), (5, 7, "float32"))
)

EXERCISE = Exercise(
    name="exclusive_scan",
    promise="returns the sum of the tensors of all lower ranks, zeros on rank 0, in ceil(lg p) + 1 rounds at most",
    groups=(
        Group("right sums", 3, (Setup(2, 2), Setup(4, 5), Setup(8, 7))),
        Group("any rank count", 2, (Setup(1, 4), Setup(3, 5), Setup(5, 5), Setup(6, 4), Setup(7, 3))),
        many_ranks(),
        Group("no digit lost", 2, _HUGE),
        Group("any size", 1, (Setup(2, 1), Setup(4, 0), Setup(3, 0), Setup(4, 17), Setup(1, 0))),
        Group("any dtype", 1, SUM_DTYPES),
        Group("any layout", 1, LAYOUTS),
        Group("any circumstances", 1, CIRCUMSTANCES),
    ),
    inputs=_inputs,
    labels={"case": "{}"},
    oracle=_oracle,
    allow=P2P,
    rules=(
        Rule("one vector a round", 4, lambda run: rules.no_messages(run) or _one_vector_a_round(run)),
        rules.in_rounds(lambda p: ceil_lg(p) + 1, "ceil(lg p) + 1", 6),
        rules.carried(_from_below, _for_above),
    ),
    blocking_weight=2,
    mistakes={
        "the inclusive scan: a rank's own tensor is not part of its result": _sums(lambda rank, p: range(rank + 1)),
        "the sum of the higher ranks: the scan runs the other way": _sums(lambda rank, p: range(rank + 1, p)),
        "the sum of all ranks, and not of the lower ones only": _sums(lambda rank, p: range(p)),
        "the sum of all other ranks: what comes from a higher rank must not be added": _sums(
            lambda rank, p: [i for i in range(p) if i != rank]
        ),
        "the left neighbour's tensor only: each round must send the sum so far, to a rank twice as far away": _sums(
            lambda rank, p: range(max(rank - 1, 0), rank)
        ),
        "the tensors at distances 1, 2, 4 ... only: each round must send the sum so far, not the rank's own "
        "tensor": _sums(_no_doubling),
        "the last round is missing: the distance doubles until it reaches p": [
            _sums(_one_round_short),
            _sums(_windows(lambda p: max(ceil_lg(p) - 1, 0))),
            _sums(_windows(lambda p: p.bit_length() - 1)),
        ],
        "the rounds go round a ring, from rank 0 on to the last ranks: a rank with no partner at this distance "
        "neither sends nor receives there": _sums(_round_a_ring),
        "rank 0 has no lower rank: its result is zeros": _first_keeps,
        "the own tensor was added and then subtracted: beside a huge number the small ones are lost, so never add it": (
            _subtracted,
            lambda run: DTYPES[run.setup.dtype].is_floating_point,
        ),
    },
    collective="scan",
    algorithm="dissemination",
    demo_setup=Setup(4, 5, "float64", values="provenance"),
    peer_advice="A scan has two ends: a rank with no partner at this distance neither sends nor receives there.",
)
