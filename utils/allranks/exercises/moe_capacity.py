"""moe_capacity(tokens, experts, capacity, expert_fns) -> Tensor: fixed room for each expert; what does not fit passes through."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from allranks.exercises.families import known
from allranks.judge import rules
from allranks.judge.cases import Args, Expected, Function, Oracle, Setup, View, draw, plain
from allranks.judge.drawing import Draws
from allranks.judge.exercise import About, Exercise, Group, Rule, Run

WIDTH = 3  # of a token
_CALLS = 2  # there and back

Places = Callable[[list[int], int, int], set[int]]  # (experts, capacity, experts a rank) -> the tokens that have room


def _inputs(setup: Setup, rng: Draws) -> list[Args]:
    made: list[Args] = []
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
        made.append((View.of(tokens, setup.layout), View.of(experts, setup.layout), capacity, fns))
    return made


def _routed(setup: Setup, count: int, start: int, rng: Draws) -> torch.Tensor:
    """Two thirds of the tokens want one of two experts, which has too little room then; the others any one."""
    total = setup.ranks * setup.option("experts_a_rank", 1)
    to = setup.option("all_to")
    popular = [start, (start + 1 + rng.integer(0, max(total - 1, 1))) % total]
    chosen = [
        to if to is not None else popular[i % 2] if i % 3 < 2 else rng.integer(0, total) for i in rng.permutation(count)
    ]
    return torch.tensor(chosen, dtype=torch.int64).reshape(count)


def _first(experts: list[int], capacity: int, local: int = 1) -> set[int]:
    """The first `capacity` tokens of each expert."""
    seen: dict[int, int] = {}
    kept = set()
    for i, expert in enumerate(experts):
        seen[expert] = seen.get(expert, 0) + 1
        if seen[expert] <= capacity:
            kept.add(i)
    return kept


def _last(experts: list[int], capacity: int, local: int = 1) -> set[int]:
    """The last `capacity` tokens of each expert."""
    n = len(experts)
    return {n - 1 - i for i in _first(experts[::-1], capacity)}


def _through(
    setup: Setup,
    args: Sequence[Args],
    places: Places = _first,
    dropped: Callable[[torch.Tensor], torch.Tensor] = lambda token: token,
    of: Callable[[int, int], int] = lambda rank, expert: expert,
) -> list[Expected]:
    """Each token that has room as its expert makes it; the others as `dropped` makes them."""
    made, local = [], len(args[0][3])
    for rank, (tokens, experts, capacity, _) in enumerate(args):
        wanted = plain(experts).tolist()
        kept, rows = places(wanted, capacity, local), []
        for i, (token, expert) in enumerate(zip(plain(tokens), wanted, strict=True)):
            where, which = divmod(of(rank, expert), local)
            rows.append(args[where][3][which](token) if i in kept else dropped(token))
        kind = tokens.base.dtype
        result = torch.stack(rows).to(kind) if rows else plain(tokens)
        made.append(Expected(result, {}, 1000 * torch.finfo(kind).eps))
    return made


def _senders_first(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """What arrives is taken to lie by expert and then by sender, but lies by sender and then by expert."""
    local = len(args[0][3])

    def of(rank: int, expert: int) -> int:
        home, which = divmod(expert, local)
        return home * local + (rank * local + which) // setup.ranks

    return _through(setup, args, of=of)


def _later(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    if all(_first(e := plain(a[1]).tolist(), a[2]) == _last(e, a[2]) for a in args):
        raise ValueError("all have room")
    return _through(setup, args, _last)


def _in_the_world(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """An expert takes `capacity` tokens of all ranks together, instead of each rank's."""
    made, seen = [], dict.fromkeys(range(setup.ranks * len(args[0][3])), 0)
    for rank, a in enumerate(args):
        kept = set()
        for i, expert in enumerate(plain(a[1]).tolist()):
            seen[expert] += 1
            if seen[expert] <= a[2]:
                kept.add(i)
        made.append(_through(setup, args, lambda e, c, n, kept=kept: kept)[rank])  # type: ignore[misc]
    return made


def _last_place_shared(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """All tokens of an expert from its last place on were put there, each over the one before, and all got what came back."""
    made, local = [], len(args[0][3])
    for rank, right in enumerate(_through(setup, args)):
        wanted, capacity = plain(args[rank][1]).tolist(), args[rank][2]
        at: dict[int, list[int]] = {}
        for i, expert in enumerate(wanted):
            at.setdefault(expert, []).append(i)
        result = right.returns.clone()
        for expert, rows in at.items():
            where, which = divmod(expert, local)
            result[rows[capacity - 1 :]] = args[where][3][which](plain(args[rank][0])[rows[-1]]).to(result.dtype)
        made.append(Expected(result, {}, right.atol))
    if all(torch.equal(m.returns, r.returns) for m, r in zip(made, _through(setup, args), strict=True)):
        raise ValueError("all have room")
    return made


Keeps = Callable[[int, int, int, int], bool]  # (token's number, its place, capacity, experts): whether it is stored


def _beyond(keeps: Keeps) -> Oracle:
    """Places from `capacity` on were taken too: those are places of the next expert, where the last token that came stays."""
    return lambda setup, args: _stored(setup, args, keeps)


def _stored(setup: Setup, args: Sequence[Args], keeps: Keeps) -> list[Expected]:
    made, local, right = [], len(args[0][3]), _through(setup, args)
    for rank, a in enumerate(args):
        tokens, wanted, capacity = plain(a[0]), plain(a[1]).tolist(), a[2]
        total = setup.ranks * local
        places = [(i, e, wanted[:i].count(e)) for i, e in enumerate(wanted)]
        at = [(i, e * capacity + place) for i, e, place in places if keeps(i, place, capacity, total)]
        at = [(i, slot) for i, slot in at if slot < setup.ranks * local * capacity]
        stored = {slot: i for i, slot in at}
        result = tokens.clone()
        for i, slot in at:
            where, which = divmod(slot // capacity, local)
            result[i] = args[where][3][which](tokens[stored[slot]]).to(result.dtype)
        made.append(Expected(result, {}, right[rank].atol))
    return made


def _first_place_shared(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """Each token in the first place of its expert: the last one stays there, and all get what came back."""
    made, local = [], len(args[0][3])
    for a, right in zip(args, _through(setup, args), strict=True):
        tokens, result = plain(a[0]), right.returns.clone()
        last = {e: i for i, e in enumerate(plain(a[1]).tolist())}
        for i, e in enumerate(plain(a[1]).tolist()):
            result[i] = args[e // local][3][e % local](tokens[last[e]]).to(result.dtype)
        made.append(Expected(result, {}, right.atol))
    return made


def _by_expert_first(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """What arrived was taken to be in the order of the experts, and in each of the senders; the results went back in the right order."""
    local, p = len(args[0][3]), setup.ranks
    if local == 1:
        raise ValueError("there is one order")
    routed = [plain(a[1]).tolist() for a in args]
    made = []
    for rank, right in enumerate(_through(setup, args)):
        result = right.returns.clone()
        for i in _first(routed[rank], args[rank][2]):
            where, which = divmod(routed[rank][i], local)
            place = routed[rank][:i].count(routed[rank][i])
            sender, other = divmod(which * p + rank, local)
            theirs = [j for j, e in enumerate(routed[sender]) if e == where * local + other]
            tokens = plain(args[sender][0])
            token = tokens[theirs[place]] if place < len(theirs) else torch.zeros_like(plain(args[rank][0])[i])
            result[i] = args[where][3][which](token).to(result.dtype)
        made.append(Expected(result, {}, right.atol))
    return made


def _sorted(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    right = _through(setup, args)
    return [
        Expected(wanted.returns[torch.argsort(plain(a[1]), stable=True)], {}, wanted.atol)
        for wanted, a in zip(right, args, strict=True)
    ]


def _no_way_back(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """Each rank took what its own experts had made of the others' tokens."""
    made, local = [], len(args[0][3])
    routed = [plain(a[1]).tolist() for a in args]
    given: list[dict[int, list[int]]] = []  # of each rank: the tokens that each expert has room for
    for wanted, a in zip(routed, args, strict=True):
        given.append({})
        for i in sorted(_first(wanted, a[2])):
            given[-1].setdefault(wanted[i], []).append(i)
    for rank, right in enumerate(_through(setup, args)):
        result = right.returns.clone()
        for expert, rows in given[rank].items():
            sender, which = divmod(expert, local)
            theirs = given[sender].get(rank * local + which, [])
            for place, row in enumerate(rows):
                tokens = plain(args[sender][0])
                token = tokens[theirs[place]] if place < len(theirs) else plain(args[rank][0])[row] * 0
                result[row] = args[rank][3][which](token).to(result.dtype)
        made.append(Expected(result, {}, right.atol))
    return made


def _by_rank(experts: list[int], capacity: int, local: int) -> set[int]:
    """The room of one expert for all experts of a rank."""
    return _first([e // local for e in experts], capacity)


def _shifted(by: int) -> Places:
    return lambda experts, capacity, local: _first(experts, capacity + by)


def _part(run: Run, call: int) -> int:
    """Bytes of the room that each rank has for the experts of one other rank."""
    _, _, capacity, fns = run.args[call][0]
    return len(fns) * capacity * WIDTH * run.itemsize


def _kept_both_ways(run: Run) -> str | None:
    """Two ranks must give each other at least the tokens that have room, and their results."""
    for call, args in enumerate(run.args):
        local = len(args[0][3])
        counts = []
        for a in args:
            experts = plain(a[1]).tolist()
            kept = [experts[i] // local for i in _first(experts, a[2])]
            counts.append([kept.count(peer) for peer in range(run.ranks)])
        for rank, row in enumerate(rules.between(run, call)):
            for peer, nbytes in enumerate(row):
                least = (counts[rank][peer] + counts[peer][rank]) * WIDTH * run.itemsize
                if rank != peer and nbytes < least:
                    return rules.no_messages(run) or (
                        f"rank {rank} sends {nbytes} bytes to rank {peer}, but its tokens that have room there and those that it "
                        f"gives back have {least}: each of them must go to its expert's rank, and come back"
                    )
    return None


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
        Group("any number of tokens", 1, (_case(3, 0), _case(3, 0, spread=2), _case(4, 6, spread=1))),
        Group("any dtype", 1, (_case(3, 7, dtype="float64"), _case(3, 7, dtype="bfloat16"))),
        Group("any layout", 1, (_case(3, 6, layout="strided"), _case(3, 6, layout="transposed"))),
        Group("any circumstances", 1, (_case(3, 7, times=2), _case(3, 7, outer_world=True))),
    ),
    inputs=_inputs,
    labels={"spread": "more on some ranks", "all_to": "all for expert {}"},
    oracle=_through,
    allow=frozenset({"all_to_all", "all_to_all_single"}),
    rules=(
        rules.in_dtype(0, whole=True),
        Rule("each token that has room to its expert and back", 1, _kept_both_ways, essential=True),
        Rule("two calls with fixed room", 8, _fixed_room),
    ),
    mistakes=known(
        {
            "tokens without room are zero: they pass through as they came": lambda s, a: _through(
                s, a, dropped=torch.zeros_like
            ),
            "no token was dropped: each rank has room for capacity tokens an expert": lambda s, a: _through(
                s, a, _shifted(10**6)
            ),
            "the last tokens of each expert were kept: the first ones have the room": _later,
            "place number capacity of an expert was used too, which is the first place of the next expert: its own "
            "places are 0 to capacity - 1": _beyond(lambda i, place, capacity, experts: place <= capacity),
            "tokens without room were put into the places of the next expert: a token is kept only where its place "
            "with its expert is below capacity, whatever its number among the tokens": _beyond(
                lambda i, place, capacity, experts: i < capacity * experts
            ),
            "every token was put into the first place of its expert: its place is the number of tokens before it "
            "that want the same expert, a cumsum over the tokens (dim 0)": _first_place_shared,
            "what arrives is in the order of its senders, and of each sender in that of the experts: (p, L, "
            "capacity, width), not (L, p, capacity, width)": [_by_expert_first, _senders_first],
            "one token too few for each expert: capacity of them have room": lambda s, a: _through(s, a, _shifted(-1)),
            "the room was counted for all experts of a rank together: each expert has room of its own for capacity "
            "tokens": lambda s, a: _through(s, a, _by_rank),
            "the room was counted over all experts together: each expert has room of its own for capacity tokens": lambda s, a: (
                _through(s, a, lambda experts, capacity, local: set(range(capacity)))
            ),
            "the room was counted over all ranks: each rank has room of its own for capacity of its tokens with each "
            "expert": _in_the_world,
            "expert e was looked for on rank e % p: it is on rank e // L, with L = len(expert_fns)": lambda s, a: (
                _through(s, a, of=lambda rank, e: e % s.ranks * len(a[0][3]) + e // s.ranks)
            ),
            "tokens without room were put into the last place of their expert, over the token that was there: they "
            "are not sent, and pass through as they came": _last_place_shared,
            "every token was computed by the first expert of its expert's rank: expert e is expert_fns[e % L] there, "
            "with L = len(expert_fns)": lambda s, a: _through(
                s, a, of=lambda rank, e: e // len(a[0][3]) * len(a[0][3])
            ),
            "the way back is missing: a rank's experts have made the others' tokens, so a second all_to_all must "
            "give these back": _no_way_back,
            "sorted by expert: put the results back into the order of the tokens": _sorted,
        }
    ),
    unit="token a rank",
    collective="all_to_all",
    chunking="none",
    demo_setup=_case(4, 6),
    index_advice=_one_place_too_far,
    forbidden_advice="It needs all_to_all (or all_to_all_single) only: the room is fixed, so no sizes have to be exchanged.",
)
