"""all_gather_v(tensor) -> list[Tensor]: every rank's rows on every rank, though each rank has another number of rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import torch

from allranks.judge import rules
from allranks.judge.cases import Args, Expected, Setup, View, draw, plain
from allranks.judge.drawing import Draws
from allranks.judge.exercise import P2P, About, Exercise, Group, Rule, Run
from allranks.ranks.wire import LogEntry
from allranks.ranks.wire.values import dtype_name

LENGTH_NBYTES = 8  # a number of rows, sent as int64
COLUMNS = 3  # of a row in a layout of two dimensions
LONG = {"more rows than int8 holds": 130, "more rows than int16 holds": 33_000}  # rows of rank 0
_WHOLE = ("int64", "int32", "int16", "int8", "uint8", "bool")  # dtypes of whole numbers
_ONE_NUMBER = "one number is enough to say how long a part is"


def _rows(setup: Setup, rng: Draws) -> list[int]:
    """How many rows each rank has: at least `size` of them, and how many more is drawn. Which rank has most is not."""
    p, least = setup.ranks, setup.size
    more = rng.distinct(p)
    match setup.option("case"):
        case "one rank has almost all":
            return [least + (40 + more[r] if r == p - 1 else 0) for r in range(p)]
        case "more rows than int8 holds" | "more rows than int16 holds" as long:
            return [least + (LONG[long] + more[r] if r == 0 else 0) for r in range(p)]
        case "some ranks have nothing":
            return [least + more[r] if r % 2 else 0 for r in range(p)]
        case "one rank has something":
            return [least + more[r] if r == 1 else 0 for r in range(p)]
        case "equal numbers":
            return [least] * p
        case _:
            return [least + number for number in more]


def _inputs(setup: Setup, rng: Draws) -> Iterator[Args]:
    flat = setup.layout in ("contiguous", "offset")
    most = 9 if setup.dtype == "bfloat16" else 9999
    for rank, rows in enumerate(_rows(setup, rng)):
        shape = (rows,) if flat and not setup.option("row") else (rows, setup.option("columns", COLUMNS))
        yield (View.of(draw(setup, rng.of_rank(rank), *shape, most=most), setup.layout),)


def _padded(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """Every part as long as the longest, with zeros behind it."""
    parts = [plain(a[0]) for a in args]
    longest = max(map(len, parts))
    made = [torch.cat([t, t.new_zeros((longest - len(t), *t.shape[1:]))]) for t in parts]
    return [Expected(made) for _ in args]


def _cut(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """Every part cut to the shortest."""
    parts = [plain(a[0]) for a in args]
    shortest = min(map(len, parts))
    return [Expected([t[:shortest] for t in parts]) for _ in args]


def _no_empty(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """Parts without rows left out of the list."""
    parts = [plain(a[0]) for a in args]
    if all(map(len, parts)):
        raise ValueError("no part is empty")
    return [Expected([t for t in parts if len(t)]) for _ in args]


def _nbytes(run: Run, call: int) -> list[int]:
    """The bytes of each rank's part."""
    return [rules.nbytes_of(run, call, rank) for rank in range(run.ranks)]


def _lengths(run: Run) -> int:
    return LENGTH_NBYTES * run.ranks


def _of_lengths(run: Run, sent: Sequence[LogEntry]) -> int:
    """The bytes of the messages that carry whole numbers; 0 where the parts are whole numbers too."""
    kind = _kind(run)
    if kind in _WHOLE:
        return 0
    return sum(e.nbytes for e in sent if str(e.dtype) in _WHOLE)


def _kind(run: Run) -> str:
    return dtype_name(run.first_view.base.dtype)


def _whole_lengths(run: Run) -> str | None:
    """What is no part is a number of rows, or several: whole numbers."""
    for entry in run.sends:
        if entry.numel and str(entry.dtype) not in (_kind(run), *_WHOLE):
            return About(
                f"rank {entry.rank} sends {entry.dtype}{run.at(entry.line)}, but the tensor is {_kind(run)}: numbers of rows are "
                "whole numbers, and a floating dtype can't hold all large ones, so send them in an integer dtype",
                entry,
                str(entry.dtype),
                "int64",
            )
    return None


_PADDING = "that is what padding to the longest part costs; send each part at its own length"
_PADDING_MORE = "every message has the same length, and no part is as long: send each part at its own length"


def _padded_to(run: Run, call: int) -> int:
    """The bytes of every message that carries a part, if all have the same and some part has fewer; else 0."""
    parts, no_parts = _nbytes(run, call), frozenset() if _kind(run) in _WHOLE else _WHOLE
    sizes = Counter(e.nbytes for e in run.sends if e.call == call and str(e.dtype) not in no_parts)
    if not no_parts:
        sizes = Counter({n: count for n, count in sizes.items() if n > _lengths(run)})
    longest = max(sizes, default=0)
    several = set(sizes) - {0, longest}
    # each part of that length travels p-1 times at most
    more = sizes[longest] > (run.ranks - 1) * parts.count(longest)
    return longest if not several and more and longest >= max(parts) and longest > min(parts) else 0


def _no_padding(run: Run) -> str | None:
    """A rank may receive the others' parts and one number of each rank, and nothing else."""
    for call in range(run.setup.times):
        parts = _nbytes(run, call)
        for rank in range(run.ranks):
            mine = run.operations(call, rank)
            got = sum(map(rules.received_from_others, mine))
            needs = sum(parts) - parts[rank]
            if got <= needs + _lengths(run):
                continue
            most = max(mine, key=lambda e: e.received_nbytes)
            padded = _padded_to(run, call)
            whole = sum(e.nbytes == padded for e in run.sends if e.peer == rank and e.call == call)
            if _of_lengths(run, [e for e in run.sends if e.peer == rank and e.call == call]) > _lengths(run):
                why = _ONE_NUMBER
            elif padded and whole > sum(part == padded for r, part in enumerate(parts) if r != rank):
                why = _PADDING if padded == max(parts) else _PADDING_MORE
            else:
                why = "each part must come once, and a rank's own part not at all"
            return About(
                f"rank {rank} receives {got} bytes{run.at(most.line)}, but the others' parts have {needs}, and one number of "
                f"8 bytes for each rank's length is allowed: {why}",
                most,
            )
    return None


def _shared_out(run: Run) -> str | None:
    """No rank may send more than all parts together, once: the longest part must not leave its rank p-1 times."""
    for call in range(run.setup.times):
        limit = sum(_nbytes(run, call)) + _lengths(run)
        for rank in range(run.ranks):
            mine = [e for e in run.sends if e.rank == rank and e.call == call]
            sent = sum(e.nbytes for e in mine)
            if sent > limit:
                longest = max(mine, key=lambda e: e.nbytes)
                why = "send your part once, and let the receivers pass it on round the ring"
                if padded := _padded_to(run, call):
                    why = _PADDING if padded == max(_nbytes(run, call)) else _PADDING_MORE
                return About(
                    f"rank {rank} sends {sent} bytes{run.at(longest.line)}, but all parts and their lengths together have "
                    f"{limit}: {_ONE_NUMBER if _of_lengths(run, mine) > _lengths(run) else why}",
                    longest,
                )
    return None


def _others_parts(run: Run, call: int, rank: int) -> int:
    parts = _nbytes(run, call)
    return sum(parts) - parts[rank]


def _case(ranks: int, size: int, case: str = "another number on each rank", **fields: object) -> Setup:
    return Setup(ranks, size, **fields).with_options(case=case)  # type: ignore[arg-type]


EXERCISE = Exercise(
    name="all_gather_v",
    promise="returns the list of all ranks' tensors, which have different numbers of rows",
    groups=(
        Group("right parts", 3, (_case(2, 2), _case(3, 4), _case(4, 1))),
        Group(
            "very different lengths",
            3,
            (
                _case(4, 1, "one rank has almost all"),
                _case(5, 2, "one rank has almost all"),
                _case(3, 2, "more rows than int8 holds"),
                _case(3, 2, "more rows than int16 holds", dtype="uint8"),
            ),
        ),
        Group(
            "empty parts",
            2,
            (
                _case(3, 2, "some ranks have nothing"),
                _case(4, 1, "some ranks have nothing"),
                _case(4, 3, "one rank has something"),
            ),
        ),
        Group("any rank count", 1, (_case(1, 4), _case(5, 1), _case(8, 2), _case(4, 3, "equal numbers"))),
        Group("many ranks", 2, (_case(9, 2).with_choices(ranks=(9, 11), size=(2, 3, 5)),)),
        Group("nothing at all", 1, (_case(3, 0, "equal numbers"), _case(1, 0, "equal numbers"))),
        Group(
            "any dtype",
            1,
            (
                _case(3, 3, dtype="float64", values="precise"),
                _case(4, 2, dtype="int64", values="precise"),
                _case(3, 2, dtype="bfloat16"),
                _case(3, 3, dtype="bool"),
            ),
        ),
        Group(
            "any shape and layout",
            1,
            (
                _case(3, 2).with_options(row=True),
                _case(3, 2).with_options(row=True, columns=0),  # rows without elements
                _case(3, 3, layout="offset"),
                _case(3, 3, layout="strided"),
                _case(3, 3, layout="transposed"),
            ),
        ),
        Group(
            "any circumstances",
            1,
            (
                _case(3, 2, times=2),
                _case(3, 2, "equal numbers", times=2),  # of the same sizes: a buffer that is kept would be used again
                _case(3, 2, outer_world=True),
                _case(4, 3, delivery="shuffled"),
            ),
        ),
    ),
    inputs=_inputs,
    labels={"case": "{}", "row": "in one dimension", "columns": "{} columns"},
    oracle=lambda setup, args: [Expected([plain(a[0]) for a in args]) for _ in args],
    allow=P2P,
    rules=(
        Rule("lengths in an integer dtype", 1, _whole_lengths),
        Rule("no padding", 5, lambda run: rules.no_messages(run) or _no_padding(run)),
        Rule("at most all parts once from each rank", 4, lambda run: rules.no_messages(run) or _shared_out(run)),
        rules.in_rounds(lambda p: 2 * (p - 1), "2(p-1)", 3),
        rules.carried(_others_parts),
    ),
    blocking_weight=2,
    mistakes={
        "the padding is still there: cut each part to its own length": _padded,
        "every part was cut to the shortest: each one has a length of its own": _cut,
        "the empty parts are missing from the list: it has one tensor for each rank": _no_empty,
    },
    unit="row",
    collective="all_gather",
    algorithm="ring",
    comparable=False,
    demo_setup=_case(4, 2),
    empty_advice="A part without rows may be sent or not, but both ends must agree: where one rank sends it, the other must receive it.",
    peer_advice="Take the peer's number modulo the number of ranks.",
)
