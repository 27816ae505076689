"""moe_capacity(tokens, experts, capacity, expert_fns) -> Tensor: fixed room for each expert; what does not fit passes through."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from allranks.exercises.families import experts, steadied
from allranks.judge import rules
from allranks.judge.cases import Args, Expected, Function, Setup, View, draw, oracle_maker, plain
from allranks.judge.common import circumstances, layouts
from allranks.judge.drawing import Draws
from allranks.judge.exercise import About, Exercise, Group, Rule, Run

WIDTH = 3  # of a token
_CALLS = 2  # there and back


def _inputs(setup: Setup, rng: Draws) -> Iterator[Args]:
    local, capacity = setup.option("experts_a_rank", 1), setup.option("capacity", 2)
    places, start = rng.permutation(setup.ranks * local), rng.integer(0, setup.ranks * local)
    for rank in range(setup.ranks):
        own = rng.of_rank(rank)
        count = setup.size + (rank * setup.option("spread", 0)) % 4
        tokens = draw(replace(setup, values="random"), own, count, WIDTH)
        fns = [
            Function(2 + own.integer(0, 32) / 4, 100.0 * (places[rank * local + i] + 1) + own.integer(0, 50))
            for i in range(local)
        ]
        experts = _routed(setup, count, start, own)
        yield View.of(tokens, setup.layout), View.of(experts, setup.layout), capacity, fns


def _routed(setup: Setup, count: int, start: int, rng: Draws) -> torch.Tensor:
    """Two thirds of the tokens want one of two experts, which has too little room then; the others any one."""
    total = setup.ranks * setup.option("experts_a_rank", 1)
    to = setup.option("all_to")
    popular = [start, (start + 1 + rng.integer(0, max(total - 1, 1))) % total]
    chosen = [
        to if to is not None else popular[i % 2] if i % 3 < 2 else rng.integer(0, total) for i in rng.permutation(count)
    ]
    return torch.tensor(chosen, dtype=torch.int64).reshape(count)


@dataclass(frozen=True)
class _Token:
    """One token of a rank, by its number; all ranks' arguments are at hand."""

    args: Sequence[Args]
    rank: int
    number: int

    @functools.cached_property
    def wanted(self) -> list[int]:
        """The expert of each of the rank's tokens."""
        return plain(self.args[self.rank][1]).tolist()

    @property
    def expert(self) -> int:
        return self.wanted[self.number]

    @property
    def place(self) -> int:
        """How many tokens before it want the same expert."""
        return self.wanted[: self.number].count(self.expert)

    @property
    def capacity(self) -> int:
        return self.args[0][2]

    @property
    def local(self) -> int:
        """How many experts a rank has."""
        return len(self.args[0][3])

    @property
    def has_room(self) -> bool:
        return self.place < self.capacity

    @property
    def mates(self) -> list[int]:
        """The numbers of all of the rank's tokens that want the same expert."""
        return [i for i, e in enumerate(self.wanted) if e == self.expert]

    def row(self, number: int | None = None) -> torch.Tensor:
        """The token itself, or another one of the same rank."""
        return plain(self.args[self.rank][0])[self.number if number is None else number]

    def of(self, rank: int, expert: int) -> torch.Tensor:
        """What a rank has put into this place of an expert: one of its tokens, or zeros."""
        rows = [
            row
            for row, e in zip(plain(self.args[rank][0]), plain(self.args[rank][1]).tolist(), strict=True)
            if e == expert
        ]
        return rows[self.place] if self.place < len(rows) else torch.zeros_like(self.row())

    def kept(self, stays: bool) -> Computed:
        """The token, computed by its expert if it stays, else as it came."""
        return self.row(), self.expert if stays else None

    def at(self, expert: int, row: torch.Tensor | None = None) -> Computed:
        """A token with room, or another row in its place, computed by this expert."""
        return (self.row() if row is None else row, expert) if self.has_room else self.kept(False)


Computed = tuple[torch.Tensor, int | None]  # a row, and the expert that computes it; None: none does


@oracle_maker
def _made(setup: Setup, args: Sequence[Args], make: Callable[[_Token], Computed]) -> Iterator[Expected]:
    """What each rank returns where `make` says which row each token becomes, and which expert computes it."""
    for rank, (given, _, _, fns) in enumerate(args):
        result, kind = plain(given), given.base.dtype
        for number in range(len(result)):
            row, expert = make(_Token(args, rank, number))
            where, which = divmod(expert or 0, len(fns))
            result[number] = (row if expert is None else args[where][3][which](row)).to(kind)
        yield Expected(result, {}, 1000 * torch.finfo(kind).eps)


_right = _made(lambda t: t.kept(t.has_room))


def _in_the_world(t: _Token) -> Computed:
    """An expert takes `capacity` tokens of all ranks together, instead of each rank's."""
    before = sum(plain(a[1]).tolist().count(t.expert) for a in t.args[: t.rank])
    return t.kept(before + t.place < t.capacity)


def _beyond(keeps: Callable[[_Token], bool]) -> Callable[[_Token], Computed]:
    """Places from `capacity` on were taken too: those are places of the next expert, where the last token that came stays."""

    def make(t: _Token) -> Computed:
        kept = [one for one in (_Token(t.args, t.rank, i) for i in range(len(t.wanted))) if keeps(one)]
        slots = {one.number: one.expert * t.capacity + one.place for one in kept}
        slot = slots.get(t.number, -1)
        if not 0 <= slot < len(t.args) * t.local * t.capacity:
            return t.kept(False)
        last = max(number for number, other in slots.items() if other == slot)
        return t.row(last), slot // t.capacity

    return make


def _senders_first(t: _Token) -> Computed:
    """What arrives is taken to lie by expert and then by sender, but lies by sender and then by expert."""
    home, which = divmod(t.expert, t.local)
    return t.at(home * t.local + (t.rank * t.local + which) // len(t.args))


def _by_expert_first(t: _Token) -> Computed:
    """What arrived was taken to be in the order of the experts, and in each of the senders; the results went back in the right order."""
    home, which = divmod(t.expert, t.local)
    sender, other = divmod(which * len(t.args) + t.rank, t.local)
    return t.at(t.expert, t.of(sender, home * t.local + other))


def _no_way_back(t: _Token) -> Computed:
    """Each rank took what its own experts had made of the others' tokens."""
    sender, which = divmod(t.expert, t.local)
    mine = t.rank * t.local + which
    return t.at(mine, t.of(sender, mine))


def _part(run: Run, call: int) -> int:
    """Bytes of the room that each rank has for the experts of one other rank."""
    _, _, capacity, fns = run.args[call][0]
    return len(fns) * capacity * WIDTH * run.itemsize


def _kept_both_ways(run: Run) -> str | None:
    """Two ranks must give each other at least the tokens that have room, and their results."""

    def homes(given: Args) -> list[int]:
        wanted = plain(given[1]).tolist()
        return [e // len(given[3]) for i, e in enumerate(wanted) if wanted[:i].count(e) < given[2]]

    which = "its tokens that have room there"
    return experts.not_there_and_back(run, lambda args: experts.counted(args, homes), WIDTH * run.itemsize, which)


def _fixed_room(run: Run) -> str | None:
    """Two calls, each with the same room for each rank: no sizes have to be known."""
    for call in range(run.setup.times):
        part = _part(run, call)
        for rank in range(run.ranks):
            mine = [e for e in run.collectives if e.rank == rank and e.call == call]
            if len(mine) != _CALLS:
                words = f"rank {rank} calls all_to_all {len(mine)} times"
                if mine:
                    words += run.at(mine[-1].line)
                return About(
                    f"{words}, but there are {_CALLS} calls: there and back. The room for each expert is fixed, so no sizes have "
                    "to be exchanged",
                    mine[-1] if mine else None,
                )
            for entry in mine:
                wrong = next((peer for peer, n in enumerate(entry.splits) if n != part and peer != rank), None)
                if wrong is not None:
                    return About(
                        f"rank {rank} gives rank {wrong} {entry.splits[wrong]} bytes in one call{run.at(entry.line)}, but the room "
                        f"for the experts of one rank has {part}: len(expert_fns) x capacity rows, however many tokens there are",
                        entry,
                    )
    return None


def _one_place_too_far(run: Run, index: int, size: int) -> str:
    """What an index just behind all the places says."""
    _, _, capacity, fns = run.args[0][0]
    if not index == size == run.ranks * len(fns) * capacity:
        return ""
    return (
        f"There are {size} places in all, 0 to {size - 1}, and {index} is behind the last expert's: probably a token got place number "
        "capacity, but an expert's own places are 0 to capacity - 1 (keep a token where place < capacity)."
    )


def _case(ranks: int, size: int, capacity: int = 2, local: int = 1, dtype: str = "float32", **more: object) -> Setup:
    options = {name: more.pop(name) for name in ("all_to", "spread") if name in more}
    setup = Setup(ranks, size, dtype, **more)  # type: ignore[arg-type]
    return setup.with_options(capacity=capacity, experts_a_rank=local, **options)


EXERCISE = Exercise(
    name="moe_capacity",
    promise="returns each token as its expert makes it, and as it was where its expert has no room for it",
    groups=(
        Group("right tokens", 3, (_case(2, 6), _case(3, 7), _case(4, 9))),
        Group("several experts a rank", 2, (_case(2, 8, 2, 2), _case(2, 9, 2, 3), _case(4, 10, 1, 2))),
        Group("any capacity", 2, (_case(3, 8, 1), _case(3, 6, 7), _case(4, 12, 3))),
        Group("any rank count", 1, (_case(1, 5), _case(5, 8), _case(8, 9))),
        Group("many ranks", 2, (_case(9, 10, local=2).with_choices(ranks=(9, 11), size=(10, 14), capacity=(1, 2, 3)),)),
        Group("any routing", 2, (_case(3, 5, all_to=0), _case(3, 5, 3, 2, all_to=5), _case(4, 1))),
        Group("any number of tokens", 1, (_case(3, 0), _case(4, 0, spread=2, all_to=1), _case(4, 6, spread=1))),
        Group("any dtype", 1, (_case(3, 7, dtype="float64"), _case(3, 7, dtype="bfloat16"))),
        layouts(_case(3, 6), "strided", "transposed"),
        circumstances(_case(3, 7)),
    ),
    inputs=_inputs,
    labels={"spread": "more on some ranks", "all_to": "all for expert {}"},
    oracle=_right,
    allow=frozenset({"all_to_all", "all_to_all_single"}),
    rules=(
        rules.in_dtype(0, whole=True),
        Rule("each token that has room to its expert and back", 1, _kept_both_ways, essential=True),
        Rule("two calls with fixed room", 8, _fixed_room),
    ),
    mistakes={
        "tokens without room are zero: they pass through as they came": _made(
            lambda t: t.kept(True) if t.has_room else (t.row() * 0, None)
        ),
        "no token was dropped: each rank has room for capacity tokens an expert": _made(lambda t: t.kept(True)),
        "the last tokens of each expert were kept: the first ones have the room": _made(
            lambda t: t.kept(t.place >= len(t.mates) - t.capacity)
        ),
        "place number capacity of an expert was used too, which is the first place of the next expert: its own "
        "places are 0 to capacity - 1": _made(_beyond(lambda t: t.place <= t.capacity)),
        "tokens without room were put into the places of the next expert: a token is kept only where its place "
        "with its expert is below capacity, whatever its number among the tokens": _made(
            _beyond(lambda t: t.number < t.capacity * t.local * len(t.args))
        ),
        "every token was put into the first place of its expert: its place is the number of tokens before it "
        "that want the same expert, a cumsum over the tokens (dim 0)": _made(lambda t: (t.row(t.mates[-1]), t.expert)),
        "what arrives is in the order of its senders, and of each sender in that of the experts: (p, L, "
        "capacity, width), not (L, p, capacity, width)": [_made(_by_expert_first), _made(_senders_first)],
        "one token too few for each expert: capacity of them have room": _made(
            lambda t: t.kept(t.place < t.capacity - 1)
        ),
        "the room was counted for all experts of a rank together: each expert has room of its own for capacity "
        "tokens": _made(
            lambda t: t.kept(sum(e // t.local == t.expert // t.local for e in t.wanted[: t.number]) < t.capacity)
        ),
        "the room was counted over all experts together: each expert has room of its own for capacity tokens": _made(
            lambda t: t.kept(t.number < t.capacity)
        ),
        "the room was counted over all ranks: each rank has room of its own for capacity of its tokens with each "
        "expert": _made(_in_the_world),
        "expert e was looked for on rank e % p: it is on rank e // L, with L = len(expert_fns)": _made(
            lambda t: t.at(t.expert % len(t.args) * t.local + t.expert // len(t.args))
        ),
        "tokens without room were put into the last place of their expert, over the token that was there: they "
        "are not sent, and pass through as they came": _made(
            lambda t: (t.row(t.mates[-1] if t.place >= t.capacity - 1 else None), t.expert)
        ),
        "every token was computed by the first expert of its expert's rank: expert e is expert_fns[e % L] there, "
        "with L = len(expert_fns)": _made(lambda t: t.at(t.expert // t.local * t.local)),
        "the way back is missing: a rank's experts have made the others' tokens, so a second all_to_all must "
        "give these back": _made(_no_way_back),
        "sorted by expert: put the results back into the order of the tokens": lambda setup, args: [
            replace(wanted, returns=wanted.returns[torch.argsort(plain(a[1]), stable=True)])
            for wanted, a in zip(_right(setup, args), args, strict=True)
        ],
    },
    unit="token a rank",
    collective="all_to_all",
    demo_setup=_case(4, 6),
    index_advice=_one_place_too_far,
    forbidden_advice="It needs all_to_all (or all_to_all_single) only: the room is fixed, so no sizes have to be exchanged.",
)
EXERCISE = steadied(
    EXERCISE,
    {
        "into the places of the next expert": lambda setup: (
            setup.option("capacity") < 7 and setup.option("all_to") is None and setup.size > 1
        ),
        "place number capacity": lambda setup: (
            setup.option("capacity") < 7 and setup.option("all_to") is None and setup.size > 1
        ),
        "the room was counted over all ranks": lambda setup: setup.option("capacity") == 7,
    },
)
