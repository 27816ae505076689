"""embedding_lookup(ids, shard) -> Tensor: rows of a table sharded by rows, in the order of ids.

Every rank holds as many rows: rank r has the rows r*s to (r+1)*s - 1, s = len(shard).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from allranks.judge import provenance, rules
from allranks.judge.cases import DTYPES, Args, Expected, Setup, View, draw, plain
from allranks.judge.common import SIZES, circumstances, layouts, many_ranks
from allranks.judge.drawing import Draws
from allranks.judge.exercise import About, Exercise, Group, Rule, Run
from allranks.ranks.wire import LogEntry
from allranks.ranks.wire.values import dtype_name

WIDTH = 3
_WHOLE = ("int32", "int64")
_FLOATING = ("float32", "float64", "float16", "bfloat16")
_MOST = 1 << 16  # larger than every id, count or index, smaller than the bits of a row's numbers read as whole numbers


def _inputs(setup: Setup, rng: Draws) -> Iterator[Args]:
    rows, wanted = setup.option("rows", 4), rng.integer(0, setup.ranks)
    for rank in range(setup.ranks):
        mine = rng.of_rank(rank)
        shard = draw(replace(setup, values="random"), mine, rows, WIDTH)  # rows that no few whole numbers can tell
        count = setup.size + (rank * setup.option("spread", 0)) % 4
        owner = setup.option("all_on")
        different = max(1, count // 3) if setup.option("repeated") else count
        ids = torch.tensor(_ids(rank, count, different, rows, setup.ranks, owner, wanted, mine), dtype=torch.int64)
        yield View.of(ids, setup.layout), View.of(shard)


def _ids(
    rank: int, count: int, different: int, rows: int, ranks: int, owner: int | None, wanted: int, rng: Draws
) -> list[int]:
    """Ids of other ranks' rows first; as many different ones as asked, and not sorted by owner."""
    free = [[o * rows + place for place in rng.permutation(rows)] for o in range(ranks)]
    chosen: list[int] = []
    for i in range(different):
        # half of them from one owner each, the others from one that all want: so no two ranks ask each other for as many
        first = owner if owner is not None else (rank + 1 + i) % ranks if i < -(-different // 2) else wanted
        order = [first] if owner is not None else [(first + k) % ranks for k in range(ranks)]
        found = next((free[o].pop() for o in order if free[o]), None)
        chosen.append(chosen[i % len(chosen)] if found is None and chosen else found or 0)
    ids = [chosen[i % different] for i in rng.permutation(count)]
    return ids[::-1] if ids == sorted(ids) else ids


def _rows(args: Sequence[Args]) -> torch.Tensor:
    return torch.cat([plain(a[1]) for a in args])


def _oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    table = _rows(args)
    return [Expected(table[plain(a[0])]) for a in args]


def _sorted(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """The right rows, in the order of the ranks that own them."""
    table, rows = _rows(args), setup.option("rows", 4)
    made = []
    for a in args:
        ids = plain(a[0])
        made.append(Expected(table[ids[torch.argsort(ids // rows, stable=True)]]))
    return made


def _unsorted(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """The ids are cut by how many each rank owns, but are not sorted: each is looked up on the rank that its index leads to."""
    table, rows = _rows(args), setup.option("rows", 4)
    made = []
    for a in args:
        ids = plain(a[0])
        made.append(Expected(table[(ids // rows).sort().values * rows + ids % rows]))
    return made


def _owner_by_modulo(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """Asks rank id % p, which looks at row id % rows of its shard."""
    table, rows, asked = _rows(args), setup.option("rows", 4), [plain(a[0]) for a in args]
    return [Expected(table[ids % setup.ranks * rows + ids % rows]) for ids in asked]


def _unique(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """A row for each different id, in the order of sorted ids."""
    table = _rows(args)
    return [Expected(table[plain(a[0]).unique()]) for a in args]


def _ascending(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """A row for each id, in the order of sorted ids."""
    table = _rows(args)
    return [Expected(table[plain(a[0]).sort().values]) for a in args]


def _own_shard(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    rows = setup.option("rows", 4)
    return [Expected(plain(a[1])[plain(a[0]) % rows]) for a in args]


def _no_row_twice(run: Run) -> str | None:
    if broken := rules.no_messages(run):
        return broken
    kind = run.args[0][0][1].base.dtype
    of_rows = {e.match for e in run.collectives if not _carries_ids(e) and _has_room_for_a_row(e, kind)}
    carrying = [e for e in run.collectives if e.match in of_rows]
    others = [e for e in run.collectives if e.match not in of_rows]
    for call, args in enumerate(run.args):
        enough = _numbers_enough(args)
        for rank in range(run.ranks):
            asking = [e for e in others if e.rank == rank and e.call == call]
            numbers = sum(e.received_nbytes // DTYPES[e.dtype].itemsize for e in asking if e.dtype in DTYPES)
            if numbers > enough:
                return About(
                    f"rank {rank} receives {numbers} numbers{run.at(asking[-1].line)} in messages that seem to carry no rows, more "
                    f"than ids and counts need ({enough}): send each row once, as a row of the table",
                    asking[-1],
                )
            ids = plain(args[rank][0])
            mine = [e for e in carrying if e.rank == rank and e.call == call]
            rows = int(sum(e.received_nbytes / _row_nbytes(e, kind) for e in mine))
            if rows > len(ids.unique()):
                return About(
                    f"rank {rank} receives {rows} rows{run.at(mine[-1].line)} for {len(ids.unique())} different ids: "
                    "ask for each row once (torch.unique with return_inverse)",
                    mine[-1],
                )
    return None


def _rows_in_their_dtype(run: Run) -> str | None:
    """Rows travel in the table's dtype, or as their bytes."""
    kind = run.args[0][0][1].base.dtype
    for entry in run.collectives:
        sent = DTYPES.get(entry.dtype or "", kind)
        if sent.is_floating_point and sent != kind and _has_room_for_a_row(entry, kind):
            return About(
                f"rank {entry.rank} sends {entry.dtype}{run.at(entry.line)}, but the table is {dtype_name(kind)}: rows travel in the "
                "table's own dtype, ids in an integer dtype",
                entry,
                str(entry.dtype),
                dtype_name(kind),
            )
    return None


def _rows_sent(run: Run) -> str | None:
    """Each rank must get the bytes of every different row that it needs from the rank that holds it."""
    for call, args in enumerate(run.args):
        rows, row = len(plain(args[0][1])), WIDTH * args[0][1].base.element_size()
        given = rules.between(run, call)
        for rank, a in enumerate(args):
            owners = torch.bincount(plain(a[0]).unique() // rows, minlength=run.ranks).tolist()
            for owner, count in enumerate(owners):
                if owner != rank and given[owner][rank] < count * row:
                    return rules.no_messages(run) or (
                        f"rank {owner} sends {given[owner][rank]} bytes to rank {rank}, but the {count} different rows that rank "
                        f"{rank} needs of it have {count * row}: the rows themselves must be in the messages"
                    )
    return None


def _numbers_enough(args: Sequence[Args]) -> int:
    """The most numbers that a rank needs to learn which rows to send: three rounds of counts, and from every rank each different id
    with two more numbers, or its ids padded to one length, or a flag for each row."""
    ids, p, rows = [plain(a[0]) for a in args], len(args), len(plain(args[0][1]))
    return 3 * p + max(3 * sum(len(i.unique()) for i in ids), p * max(len(i) for i in ids), p * rows)


def _row_nbytes(entry: LogEntry, kind: torch.dtype) -> int:
    """Bytes of a row in this message: floating numbers may have been cast to another dtype; whole numbers may be a row's raw bytes."""
    sent = DTYPES.get(entry.dtype or "", kind)
    return WIDTH * (sent if sent.is_floating_point else kind).itemsize


def _has_room_for_a_row(entry: LogEntry, kind: torch.dtype) -> bool:
    """Whether some part of it is longer than one number and at least as long as a row."""
    return max(entry.splits, default=0) >= max(_row_nbytes(entry, kind), 9)


def _carries_ids(entry: LogEntry) -> bool:
    """Whether it carries ids or counts: whole numbers by their values, since the dtype may be a pretence or hold them as well."""
    numbers = provenance.numbers(entry) if entry.dtype in (*_WHOLE, *_FLOATING) else None
    if numbers is None or not bool(((-_MOST < numbers) & (numbers < _MOST)).all()):
        return False
    return not numbers.is_floating_point() or torch.equal(numbers, numbers.floor())


EXERCISE = Exercise(
    name="embedding_lookup",
    promise="returns the table's rows in the order of ids",
    groups=(
        Group("right rows", 3, (Setup(2, 3), Setup(3, 5), Setup(4, 6))),
        Group("any rank count", 1, (Setup(1, 4), Setup(5, 5), Setup(8, 6))),
        many_ranks(2, size=SIZES, rows=(5, 6, 7)),
        Group(
            "any ids",
            2,
            (
                *(Setup(3, 4).with_options(all_on=e) for e in (0, 2)),
                Setup(3, 9).with_options(repeated=True),
                Setup(4, 12).with_options(repeated=True),
            ),
        ),
        Group(
            "any number of ids",
            2,
            (
                Setup(3, 0),
                Setup(3, 0).with_options(spread=2),
                Setup(4, 1).with_options(spread=1),
                Setup(3, 4).with_options(rows=1),
            ),
        ),
        Group("any dtype", 1, (Setup(3, 5, "float64", values="precise"), Setup(3, 5, "bfloat16"))),
        layouts(Setup(3, 4), "strided", "offset"),
        circumstances(Setup(3, 5)),
    ),
    inputs=_inputs,
    labels={
        "spread": "more on some ranks",
        "all_on": "all on rank {}",
        "repeated": "with repeats",
        "rows": "len(shard)={}",
    },
    oracle=_oracle,
    allow=frozenset({"all_to_all", "all_to_all_single"}),
    rules=(
        Rule("no row sent twice", 6, _no_row_twice),
        Rule("rows in their dtype", 0, _rows_in_their_dtype),
        Rule("carried by messages", 1, _rows_sent, essential=True),
    ),
    mistakes={
        "in the order of the ranks that own the rows: put them back into the order of ids": _sorted,
        "in ascending order of the ids, as sort or unique leaves them: put "
        "the rows back into the order of ids": _ascending,
        "the rows of the different ids came back, in ascending order: bring them into the order of ids with "
        "unique's inverse (return_inverse)": _unique,
        "looked up in the rank's own shard: each row is on rank id // len(shard)": _own_shard,
        "looked up on rank id % p: the table is cut into blocks of rows, so each row is on rank id // len(shard)": (
            _owner_by_modulo
        ),
        "ids cut by the sizes without being sorted: sort them by owner, id "
        "// len(shard), before they are sent": _unsorted,
    },
    unit="id a rank",
    collective="all_to_all",
    demo_setup=Setup(4, 4),
    forbidden_advice="It needs all_to_all (or all_to_all_single) only.",
)
