"""heal(weights, step) -> int: ranks that are behind get the weights of ranks that are up to date, point to point."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import torch

from allranks.exercises.families import only_where, steadied
from allranks.judge import rules
from allranks.judge.cases import Args, Expected, Setup, View, draw, oracle_maker, plain, shape_of
from allranks.judge.common import LAYOUTS, MOVED_DTYPES, RING_RANKS, SIZES, many_ranks
from allranks.judge.compare import same
from allranks.judge.drawing import Draws
from allranks.judge.exercise import P2P, YOUR_VARIANT, About, Exercise, Group, Rule, Run, Variants

STEP_NBYTES = 16  # a rank, of what tells the steps


def _inputs(setup: Setup, rng: Draws) -> Iterator[Args]:
    many = setup.option("_many_steps")  # float32 holds the newest of them and the one before it as the same number
    latest = 2**24 + 4 * rng.integer(1, 1000) + 1 if many else rng.integer(100_000, 900_000)
    always = setup.option("_fresh")  # a rank that is never behind
    order = [rank for rank in rng.permutation(setup.ranks) if always is None or rank != always % setup.ranks]
    behind = set(order[: setup.option("behind", 1)])
    most = 9 if setup.dtype == "bfloat16" else 9999
    fresh = draw(setup, rng, *shape_of(setup), most=most)
    for rank in range(setup.ranks):
        mine = rng.of_rank(rank)
        weights = draw(setup, mine, *shape_of(setup), most=most) if rank in behind else fresh
        yield View.of(weights, setup.layout), latest - (1 if many else _lag(mine)) if rank in behind else latest


def _lag(rng: Draws) -> int:
    """How many steps a rank is behind."""
    return rng.integer(1, 40)


def _latest(args: Sequence[Args]) -> int:
    return max(a[1] for a in args)


def _fresh(args: Sequence[Args]) -> list[int]:
    """The ranks that are up to date."""
    return [rank for rank, a in enumerate(args) if a[1] == _latest(args)]


@oracle_maker
def _ending(
    setup: Setup, args: Sequence[Args], make: Callable[[Sequence[Args], int], torch.Tensor], number: bool = False
) -> list[Expected]:
    """An oracle from `make(args, rank)`, the weights that a rank ends with; with `number` it is the right one."""
    ends = [make(args, rank) for rank in range(setup.ranks)]
    if not number and all(same(end, _right(args, rank)) for rank, end in enumerate(ends)):
        raise ValueError("the right weights, so it is another mistake")
    return [Expected(_latest(args) if number else None, {(0,): end}) for end in ends]


def _right(args: Sequence[Args], rank: int) -> torch.Tensor:
    return plain(args[_fresh(args)[0]][0])


def _own_step(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    return [Expected(a[1], {(0,): _right(args, rank)}) for rank, a in enumerate(args)]


def _rounded_steps(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """As if the steps were those that float32 holds."""
    steps = torch.tensor([a[1] for a in args], dtype=torch.float32)
    newest = steps.amax()
    fresh = [rank for rank, step in enumerate(steps) if step == newest]
    if int(newest) == _latest(args):
        raise ValueError("the right step")
    ends = [plain(args[rank if rank in fresh else fresh[0]][0]) for rank in range(setup.ranks)]
    return [Expected(int(newest), {(0,): end}) for end in ends]


def _oldest(args: Sequence[Args], rank: int) -> torch.Tensor:
    first = min(range(len(args)), key=lambda r: args[r][1])
    return plain(args[first][0])


def _weights_to(run: Run, call: int, rank: int) -> int:
    """A rank that is behind needs all weights; others need none."""
    return 0 if rank in _fresh(run.args[call]) else rules.nbytes_of(run, call, rank)


def _only_behind(run: Run) -> str | None:
    """Weights go once to each rank that is behind, from ranks that are up to date."""
    for call in range(run.setup.times):
        fresh = _fresh(run.args[call])
        mine = [e for e in run.sends if e.call == call]
        for rank in range(run.ranks):
            came = [e for e in mine if e.peer == rank]
            total, enough = sum(e.nbytes for e in came), _weights_to(run, call, rank)
            if total > enough:
                why = "it is up to date and needs none" if rank in fresh else f"its weights have {enough}"
                wide = next(filter(None, (rules.wider(run, e) for e in came)), None) if enough else None
                return wide or About(
                    f"rank {rank} receives {total} bytes{run.at(came[-1].line)}, but {why}: "
                    "each rank that is behind gets the weights once, the others nothing",
                    came[-1],
                )
    return _told_in_few_bytes(run)


def _told_in_few_bytes(run: Run) -> str | None:
    for _, rank, told in run.by_rank(run.collectives):
        total, enough = sum(map(rules.received_from_others, told)), STEP_NBYTES * run.ranks
        if total > enough:
            worst = max(told, key=lambda e: e.received_nbytes)
            return About(
                f"rank {rank} receives {total} bytes in collectives{run.at(worst.line)}, but the steps of all ranks have {enough} "
                "at most: weights go point to point, to the ranks that are behind",
                worst,
            )
    return None


def _givers(args: Sequence[Args], slow: int | None = None) -> list[int]:
    """The ranks that give their weights: those up to date, without the slow one if there is another."""
    fresh = _fresh(args)
    return [rank for rank in fresh if slow is None or rank != slow % len(args)] or fresh


def _slow_gives_nothing(run: Run, slow: int) -> str | None:
    rank = slow % run.ranks
    for call in range(run.setup.times):
        first = next((e for e in run.sends if e.call == call and e.rank == rank and e.nbytes > STEP_NBYTES), None)
        if first is not None and rank not in _givers(run.args[call], slow):
            return About(
                f"rank {rank} is slow, and rank {first.peer} waits for the weights that it sends{run.at(first.line)}: "
                "another rank is up to date too",
                first,
                kind="the slow rank gives weights",
            )
    return None


def _with_slow_rank(exercise: Exercise, drawn: Mapping[str, int]) -> Exercise:
    slow = drawn["slow"]
    cases = tuple(
        _case(ranks, size, behind).with_options(_fresh=slow)
        for ranks, size, behind in ((4, 21, 2), (8, 23, 5), (8, 20, 6))
    )
    shared = next(rule for rule in exercise.rules if rule.breach is _shared_out)
    others = tuple(rule for rule in exercise.rules if rule is not shared)
    return replace(
        exercise,
        groups=(*exercise.groups, Group(YOUR_VARIANT, 2, cases)),
        rules=(
            Rule(f"{YOUR_VARIANT}: rank {slow} gives nothing", 4, lambda run: _slow_gives_nothing(run, slow)),
            replace(shared, breach=lambda run: _shared_out(run, slow)),
            *others,
        ),
    )


def _shared_out(run: Run, slow: int | None = None) -> str | None:
    """No rank may serve more than its share of the ranks that are behind."""
    for call in range(run.setup.times):
        nbytes = rules.nbytes_of(run, call)
        fresh, givers = _fresh(run.args[call]), _givers(run.args[call], slow)
        who = "up to date" if slow is None else "that can give"
        behind = run.ranks - len(fresh)
        share = -(-behind // len(givers))
        sent: Counter[int] = Counter()
        for entry in run.sends:
            if entry.call == call:
                sent[entry.rank] += entry.nbytes
        for rank, total in sorted(sent.items()):
            if total > share * nbytes + behind * run.itemsize:  # pieces of all ranks may be rounded
                first = next(e for e in run.sends if e.rank == rank and e.call == call)
                return About(
                    f"rank {rank} sends {total} bytes{run.at(first.line)}, but with {behind} ranks behind and {len(givers)} {who} "
                    f"{share * nbytes} bytes are enough for each of these: share the work out",
                    first,
                )
    return None


def _case(ranks: int, size: int, behind: int = 1, **more: object) -> Setup:
    return Setup(ranks, size, **more).with_options(behind=behind)  # type: ignore[arg-type]


EXERCISE = Exercise(
    name="heal",
    promise="gives every rank that is behind the weights of one that is up to date, and returns the largest step",
    groups=(
        Group("one is behind", 3, (_case(2, 19), _case(3, 23), _case(4, 20))),
        Group("several are behind", 3, (_case(4, 23, 2), _case(5, 20, 2), _case(4, 29, 3), _case(6, 21, 3))),
        Group("nobody is behind", 1, (_case(3, 19, 0), _case(1, 4, 0))),
        Group("any rank count", 1, (_case(8, 20, 5), _case(7, 19, 3), _case(5, 23, 4))),
        many_ranks(2, _case(9, 19, 4), ranks=RING_RANKS, behind=(4, 5, 6, 7), size=SIZES),
        Group("any size", 1, (_case(3, 0), _case(3, 1), _case(3, 97, 2))),
        Group("any dtype", 1, tuple(_case(s.ranks, s.size, 2, dtype=s.dtype, values=s.values) for s in MOVED_DTYPES)),
        Group("any layout", 1, tuple(_case(s.ranks, s.size, 2, layout=s.layout) for s in LAYOUTS)),
        Group(
            "any circumstances",
            1,
            (
                _case(3, 19, 1, times=2),
                _case(4, 20, 2, outer_world=True),
                _case(4, 23, 2, delivery="shuffled"),
                _case(4, 21, 2, note="steps above 2^24").with_options(_many_steps=True),
            ),
        ),
    ),
    inputs=_inputs,
    labels={"behind": "{} behind"},
    oracle=_ending(_right, number=True),
    allow=P2P | {"all_gather", "all_gather_into_tensor", "all_reduce"},
    rules=(
        Rule("weights only to ranks that are behind", 5, _only_behind),
        Rule("the work is shared out", 4, _shared_out),
        rules.carried(_weights_to, rules.nothing),
    ),
    blocking_weight=2,
    variants=Variants(
        (("slow", tuple(range(8))),),
        "rank {slow} is slow",
        "rank {slow} is slow (rank {slow} mod p in a world of p ranks). It gives its weights to nobody if another rank is up to date; "
        "the others share its part of the work.",
        _with_slow_rank,
    ),
    mistakes={
        "the steps travelled as float32, which holds no odd number above 2^24: send them in an integer dtype": (
            _rounded_steps,
            lambda run: any(e.dtype == "float32" for e in run.collectives),
        ),
        "each rank returned its own step: return the largest one, the same on every rank": _own_step,
        "0 came back where no rank is behind: return the largest step there too": only_where(
            lambda setup, args: len(_fresh(args)) == len(args),
            lambda setup, args: [Expected(0, {(0,): _right(args, rank)}) for rank in range(setup.ranks)],
        ),
        "the ranks that were behind still have their old weights": _ending(lambda args, rank: plain(args[rank][0])),
        "rank 0's weights came: but rank 0 may be behind too": _ending(lambda args, rank: plain(args[0][0])),
        "the last rank's weights came: but the last rank may be behind too": _ending(
            lambda args, rank: plain(args[-1][0])
        ),
        "the weights of the rank that is furthest behind: the largest step is the newest": _ending(_oldest),
        "the left neighbour's weights: it may be behind too": _ending(
            lambda args, rank: plain(args[rank if rank in _fresh(args) else rank - 1][0])
        ),
    },
    collective="send/recv",
    demo_setup=_case(4, 20, 2),
    forbidden_advice="The steps are told with all_gather or all_reduce, and the weights with isend and irecv or batch_isend_irecv.",
    peer_advice="Pair the ranks that are behind with those that are up to date, in the same way on every rank.",
)


def _behind(setup: Setup) -> int:
    """How many ranks are behind, 0 where it is told which one is not."""
    return setup.option("behind", 1) if setup.option("_fresh") is None else 0


# where one rank is behind, it is rank 0 in the cases of three ranks and the last one in the others
EXERCISE = steadied(
    EXERCISE,
    {
        "rank 0's weights came": lambda setup: _behind(setup) > (setup.ranks != 3),
        "the last rank's weights came": lambda setup: _behind(setup) > (setup.ranks == 3),
        "the left neighbour's weights": lambda setup: _behind(setup) > 1,
    },
)
