"""What a planned job does in each step, and the fault in it: a plan for each kind, drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum

from allranks.exercises.planted.steps import Break, Collective, Compute, Draw, Op, Plan, Wait
from allranks.jobs.root_cause import SMALL_NBYTES, Kind


class Trap(StrEnum):
    """What a job has beside its fault, or in place of one, so that a wrong reading of the contract gives another answer."""

    OFTEN_LATE = "a rank that is last more often than the straggler, by little"
    LATE_IN_WORLD = "the straggler's host is late in all calls of the whole world"
    WAITS_BEYOND = "the others wait a little more than the limit"
    OTHER_OPERATION = "the call that differs has the others' bytes"
    OTHER_OUT = "the call that differs does so only in what the rank gets out"
    OTHER_IN = "the call that differs does so only in what the rank puts in, and another rank has lost its file"
    TWO_DIFFER = "two calls differ"
    LOWER_LOST = "a lower rank of another group has lost its file"
    HIGHER_LOST = "a higher rank of another group has lost its file"
    UNEVEN = "ranks get different bytes in an all_to_all, in a job that stands still"
    TWINS = "two groups have the same members, and calls are just below 65,536 bytes or have as many"
    SMALL_BEYOND = "small calls take a little more than the limit"
    LITTLE_OVERLAP = "a little less is hidden than the limit"
    NESTED = "calls of one rank overlap"
    REST_BEYOND = "what is not hidden takes a little more than the limit"
    SMALL_SHORT = "small calls take a little less than the limit, and nothing is hidden"
    SIZES = "calls of one rank move bytes at very different speeds, and many have less than 1,000,000 bytes"
    LINK_BEYOND = "the slow rank's calls are a little slower than the limit"
    ONE_SIDE = "what ranks put in and what they get out differ"
    LOAD_BEYOND = "one rank gets a little more than the limit"
    LOAD_LOST = "one rank gets too much, and another one's file is lost"
    WAITS_SHORT = "the others wait a little less than the limit, and ranks compute long before and after all calls"
    LINK_SHORT = "one rank's calls are slower, a little less than the limit"
    LOAD_SHORT = "one rank gets more, a little less than the limit"
    REST_SHORT = "nothing is hidden, and it takes a little less than the limit"
    SMALL_AND_WAITS = "small calls take long, and a rank is late"
    SMALL_AND_LINK = "small calls take long, and one rank's calls are slow"
    SMALL_AND_LOAD = "small calls take long, and one rank gets too much"
    LINK_AND_LOAD = "one rank gets too much, and its calls are slow"
    SOME_OVERLAP = "calls take long, and a little more of them is hidden than the limit"


GRIDS = ((2, 3), (2, 4), (3, 3))  # rows and columns


def plan_of(kind: Kind, draw: Draw, trap: Trap | None = None) -> Plan:
    """A plan with this fault; all else that may look like one is far below the limits. With a `trap` a certain shortcut fails."""
    plan = _healthy(draw)
    if trap is None:
        return _PLANS[kind](plan, draw)
    return _TRAPPED[trap](replace(plan, steps=draw.whole(4, 6)), draw)


def _healthy(draw: Draw) -> Plan:
    """A job without a fault, with what healthy jobs have too: small calls at the start, a rank that is late once, a file lost."""
    rows, columns = draw.one(GRIDS)
    count = rows * columns
    order = list(range(count))
    grid = tuple(tuple(order[r * columns : (r + 1) * columns]) for r in range(rows))
    if draw.chance(0.5):
        grid = tuple(tuple(order[r::rows]) for r in range(rows))
    hosts = tuple(f"node{rank * 2 // count}" for rank in range(count))
    unit = draw.between(2500, 5000)
    plan = Plan(
        grid,
        draw.one((_tensor, _experts))(draw, unit),
        draw.whole(5, 8),
        hosts,
        draw.between(30, 60),
        draw.between(5e3, 12e3),
        warm_up=draw.whole(6, 25),
        late_once=(draw.whole(0, count - 1), draw.between(0.3, 1.2) * unit),
        bias=(draw.whole(0, count - 1), draw.between(1.003, 1.01)),
    )
    return _with_file_lost(plan, draw) if draw.chance(0.4) else plan


def _with_file_lost(plan: Plan, draw: Draw, keep: tuple[int, ...] = ()) -> Plan:
    """One rank has left no file, though it did its work: a full disk, a path that two ranks shared."""
    return replace(plan, absent=(draw.one([rank for rank in range(plan.ranks) if rank not in keep]),))


def _megabytes(draw: Draw, low: float, high: float) -> int:
    return draw.whole(int(low * 1000), int(high * 1000)) * 1008  # a multiple of the group sizes


def _backward(draw: Draw, unit: float, buckets: int, overlapped: bool = True) -> list[Op]:
    """Gradients, bucket by bucket; then the optimizer and the loss."""
    size = _megabytes(draw, 8, 14)
    found: list[Op] = []
    for _ in range(buckets):
        found += [Compute(unit)] + ([Collective("column", "all_reduce", size, waits=False)] if overlapped else [])
    if not overlapped:
        found += [Collective("column", "all_reduce", size) for _ in range(buckets)]
    loss = Collective("world", "all_reduce", draw.one((4, 8, 16)))
    return [*found, Compute(unit), Wait(), *_norms(draw), Compute(unit / 2), loss]


def _norms(draw: Draw) -> list[Op]:
    """The norm of each layer's gradient: many small calls that cost next to nothing."""
    return [Collective("row", "all_reduce", draw.one((4, 8, 16))) for _ in range(draw.whole(7, 10))]


def _tensor(draw: Draw, unit: float, overlapped: bool = True) -> tuple[Op, ...]:
    """Tensor parallel in the rows, with gradients reduced in the columns."""
    size, found = _megabytes(draw, 2, 4), list[Op]()
    for _ in range(draw.whole(2, 3)):
        found += [Collective("row", "all_gather", size), Compute(unit), Collective("row", "reduce_scatter", size)]
        found.append(Compute(unit / 2))
    return (*found, *_backward(draw, unit, draw.whole(2, 4), overlapped))


def _experts(draw: Draw, unit: float, overlapped: bool = True) -> tuple[Op, ...]:
    """A mixture of experts in the rows: tokens go out and come back; gradients are reduced in the columns."""
    size, found = _megabytes(draw, 2, 4), list[Op]()
    for _ in range(draw.whole(2, 3)):
        exchange = Collective("row", "all_to_all", size)
        found += [Compute(unit), exchange, Compute(unit, by_load=True), exchange]
    return (*found, *_backward(draw, unit, draw.whole(2, 4), overlapped))


def _mild_load(plan: Plan, draw: Draw) -> Plan:
    """Experts are never quite even."""
    return replace(plan, load=_rows_even([draw.between(0.9, 1.1) for _ in range(plan.ranks)], plan))


def _rows_even(load: list[float], plan: Plan) -> tuple[float, ...]:
    """The load scaled so that each row gets as much as it sends."""
    for row in plan.grid:
        total = sum(load[rank] for rank in row)
        for rank in row:
            load[rank] *= len(row) / total
    return tuple(load)


def _plain(plan: Plan, draw: Draw) -> Plan:
    if draw.chance(0.3):  # nothing is hidden, but there is little to hide
        few: list[Op] = [Compute(9000.0), Collective("column", "all_reduce", _megabytes(draw, 2, 3))]
        few += [Compute(7000.0), *_norms(draw), Collective("world", "all_reduce", 8)]
        return _mild_load(replace(plan, program=tuple(few)), draw)
    return _mild_load(plan, draw)


def _straggler(plan: Plan, draw: Draw) -> Plan:
    blamed = draw.whole(0, plan.ranks - 1)
    every = draw.one((1, 1, 2))
    if blamed in plan.absent:
        plan = _with_file_lost(plan, draw, (blamed,))
    late = (draw.one([r for r in range(plan.ranks) if r != blamed]), plan.late_once[1])
    slower = draw.between(1.7, 2.3) if every == 1 else draw.between(2.4, 3.2)
    return _mild_load(replace(plan, blamed=blamed, slower=slower, slow_every=every, late_once=late), draw)


def _rarely_slow(plan: Plan, draw: Draw) -> Plan:
    """A straggler that is slow in one step of three, and another rank that is a little slower in every step.

    Before small calls nobody computes: which rank is the last in them is chance, so there are none but the loss.
    """
    blamed, other = draw.shuffled(list(range(plan.ranks)))[:2]
    absent = tuple(rank for rank in plan.absent if rank not in (blamed, other))
    few = tuple(
        op for op in plan.program if not (isinstance(op, Collective) and op.of == "row" and op.nbytes < SMALL_NBYTES)
    )
    plan = replace(plan, program=few, warm_up=0, blamed=blamed, slower=draw.between(4.2, 5.5), slow_every=3)
    plan = replace(plan, bias=(other, 1.2), absent=absent)
    return _mild_load(replace(plan, late_once=(other, plan.late_once[1])), draw)


def _desync(plan: Plan, draw: Draw) -> Plan:
    plan = replace(plan, program=_tensor(draw, 3000.0))
    blamed = draw.whole(0, plan.ranks - 1)
    row = next(row for row in plan.grid if blamed in row)
    large = [i for i, op in enumerate(plan.program) if isinstance(op, Collective) and op.of == "row" and op.nbytes > 99]
    place = draw.one(large[:-1])  # the call after it differs from it, so that a call left out shows at once
    broken = Break(draw.whole(2, plan.steps - 1), place, draw.one(("skip", "swap", "bytes")))
    plan = replace(plan, blamed=blamed, broken=broken, absent=())
    return _with_file_lost(plan, draw, row) if draw.chance(0.4) else plan


def _missing(plan: Plan, draw: Draw) -> Plan:
    blamed = draw.whole(0, plan.ranks - 1)
    row = next(row for row in plan.grid if blamed in row)
    places = [i for i, op in enumerate(plan.program) if isinstance(op, Collective) and op.of == "row"]
    broken = Break(draw.whole(2, plan.steps - 1), draw.one(places), "die")
    others = [rank for rank in range(plan.ranks) if rank not in row]
    absent = (blamed, draw.one(others)) if draw.chance(0.5) else (blamed,)
    return _mild_load(replace(plan, blamed=blamed, broken=broken, absent=absent), draw)


def _missing_beside(plan: Plan, draw: Draw, lower: bool) -> Plan:
    """A dead rank, and one that is alive and has lost its file: with a lower number, or with a higher one."""
    row_of = {rank: row for row in plan.grid for rank in row}
    found = [(a, b) for a in row_of for b in row_of if b not in row_of[a] and (b < a) == lower]
    blamed, lost = draw.one(sorted(found))
    places = [i for i, op in enumerate(plan.program) if isinstance(op, Collective) and op.of == "row"]
    broken = Break(draw.whole(2, plan.steps - 1), draw.one(places), "die")
    return _mild_load(replace(plan, blamed=blamed, broken=broken, absent=(blamed, lost)), draw)


def _late_in_world(plan: Plan, draw: Draw) -> Plan:
    """A slow host, and on it one rank that is slower still: by their starts in the world's calls its clock would seem late."""
    unit = draw.between(4000, 6000)
    program = (
        Compute(unit), Collective("world", "all_reduce", 8), Collective("row", "all_gather", _megabytes(draw, 2, 3)),
        Compute(unit / 8), Collective("column", "all_reduce", _megabytes(draw, 2, 3)),
    )  # fmt: skip
    return replace(
        plan, program=program, blamed=draw.whole(0, plan.ranks - 1), slower=draw.between(2.5, 2.8), absent=(), warm_up=0,
        slow_host=draw.between(1.6, 1.75), late_once=(0, 0.0),
    )  # fmt: skip


def _differs(plan: Plan, draw: Draw, how: str) -> Plan:
    """One call of one rank differs in one thing only; if that is bytes, then in the larger of what it puts in and gets out."""
    plan = replace(plan, program=_tensor(draw, 3000.0), absent=())
    wanted = {"op": "all_reduce", "out": "all_gather", "into": "reduce_scatter"}[how]
    row = [(i, op) for i, op in enumerate(plan.program) if isinstance(op, Collective) and op.of == "row"]
    place = draw.one([i for i, op in row if op.op == wanted])
    broken = Break(draw.whole(2, plan.steps - 1), place, how)
    blamed = draw.whole(0, plan.ranks - 1)
    plan = replace(plan, blamed=blamed, broken=broken)
    if how != "into":
        return plan
    return _with_file_lost(plan, draw, next(row for row in plan.grid if blamed in row))


def _two_differ(plan: Plan, draw: Draw) -> Plan:
    """A rank leaves out the first of several asynchronous calls, so that each of the others is another one than the others' call."""
    sizes = draw.shuffled([_megabytes(draw, low, low + 1) for low in (2, 4, 6, 8)])
    found: list[Op] = [Compute(2000.0), Collective("column", "all_gather", _megabytes(draw, 2, 4))]
    for size in sizes[: draw.whole(3, 4)]:
        found += [Compute(1500.0), Collective("row", "all_reduce", size, waits=False)]
    found += [Compute(2000.0), Wait(), Collective("world", "all_reduce", 8)]
    broken = Break(draw.whole(2, plan.steps - 1), 3, "skip")
    return replace(plan, program=tuple(found), blamed=draw.whole(0, plan.ranks - 1), broken=broken, absent=())


def _tiny(plan: Plan, draw: Draw, twins: bool = False) -> Plan:
    """Each parameter's gradient is reduced by a call of its own."""
    unit = draw.between(1400, 2200)
    found: list[Op] = [Compute(unit), Collective("row", "all_gather", _megabytes(draw, 1.5, 3)), Compute(unit)]
    for _ in range(draw.whole(28, 36)):
        found.append(Collective(draw.one(("column", "row")), "all_reduce", draw.whole(16, 900) * 64))
    if twins:
        found += [Collective("twin", "all_reduce", draw.whole(16, 900) * 64) for _ in range(draw.whole(6, 10))]
        found += [Collective("row", "all_reduce", nbytes) for nbytes in (65_528, 65_532, 65_536, 65_536, 65_540)]
    found += [Compute(unit / 2), Collective("world", "all_reduce", 8)]
    grid = draw.one((((0, 1, 2), (3, 4, 5)), ((0, 2, 4), (1, 3, 5))))
    hosts = ("node0",) * 3 + ("node1",) * 3
    return replace(
        plan, grid=grid, hosts=hosts, program=tuple(found), steps=4, absent=(), alpha_us=draw.between(110, 160),
        late_once=(draw.whole(0, 5), unit / 4), bias=(draw.whole(0, 5), 1.005),
    )  # fmt: skip


def _small_beside(plan: Plan, draw: Draw) -> Plan:
    """Many small calls, and large ones that take almost as long."""
    plan = _tiny(plan, draw)
    large: list[Op] = [Collective("row", "all_gather", _megabytes(draw, 14, 17)) for _ in range(2)]
    return replace(plan, program=(*plan.program, *large))


def _exposed(plan: Plan, draw: Draw) -> Plan:
    unit = draw.between(1800, 2600)
    program = draw.one((_tensor, _experts))(draw, unit, False)
    return _mild_load(replace(plan, program=program, bytes_per_us=draw.between(5e3, 8e3)), draw)


def _slow_link(plan: Plan, draw: Draw) -> Plan:
    """One rank's calls go over a slow interface, as if NCCL_SOCKET_IFNAME named the wrong one there."""
    blamed = draw.whole(0, plan.ranks - 1)
    return _mild_load(replace(plan, blamed=blamed, slow_link=draw.between(5, 9), absent=()), draw)


def _nested(plan: Plan, draw: Draw) -> Plan:
    """The gradients of two groups are reduced at the same time."""
    unit = draw.between(1500, 2000)
    found: list[Op] = []
    for _ in range(draw.whole(3, 4)):
        found += [Compute(unit), Collective("column", "all_reduce", _megabytes(draw, 8, 12), waits=False)]
        found += [Collective("row", "all_reduce", _megabytes(draw, 3, 5), waits=False, beside=True), Wait()]
    program = (*found, Compute(unit), Collective("world", "all_reduce", 8))
    return replace(plan, program=program, bytes_per_us=draw.between(5e3, 8e3))


def _sizes(plan: Plan, draw: Draw) -> Plan:
    """Of the slow rank's calls many are so small that their latency counts, and some have just 1,000,000 bytes."""
    found: list[Op] = []
    for _ in range(2):
        found += [
            Compute(4000.0),
            *(Collective("row", "all_reduce", n) for n in (10**6, 10**6, draw.whole(140, 160) * 10_008)),
        ]
        found += [Compute(4000.0), Collective("column", "all_reduce", _megabytes(draw, 14, 18))]
        found += [Collective("row", "all_reduce", draw.whole(30, 95) * 10_008) for _ in range(draw.whole(9, 12))]
    found += [Compute(4000.0), Collective("world", "all_reduce", 8)]
    plan = replace(plan, program=tuple(found), alpha_us=draw.between(150, 200), bytes_per_us=draw.between(8e3, 12e3))
    return _slow_link(plan, draw)


def _tensor_link(plan: Plan, draw: Draw) -> Plan:
    """A slow interface where most bytes go by all_gather and reduce_scatter."""
    found: list[Op] = []
    for _ in range(3):
        found += [Compute(3000.0), Collective("row", "all_gather", _megabytes(draw, 9, 12)), Compute(3000.0)]
        found.append(Collective("row", "reduce_scatter", _megabytes(draw, 9, 12)))
    found += [Collective("column", "all_gather", _megabytes(draw, 9, 12)), Collective("world", "all_reduce", 8)]
    return _slow_link(replace(plan, program=tuple(found)), draw)


def _link(plan: Plan, draw: Draw, low: float, high: float) -> Plan:
    """A link that is so many times slower."""
    plan = replace(plan, program=_tensor(draw, draw.between(4000, 5000)))
    return replace(_slow_link(plan, draw), slow_link=draw.between(low, high))


def _skewed(plan: Plan, draw: Draw) -> Plan:
    if plan.absent:
        plan = _with_file_lost(plan, draw, (0,))
    return _loaded(plan, draw, 2.6, 3.4)


def _loaded(plan: Plan, draw: Draw, low: float, high: float) -> Plan:
    """One rank gets so many times as many tokens as it would by right."""
    return _one_loaded(replace(plan, program=_experts(draw, 3000.0)), draw, low, high)


def _one_loaded(plan: Plan, draw: Draw, low: float, high: float) -> Plan:
    """The same, whatever the plan's program is."""
    blamed = draw.one([rank for rank in range(plan.ranks) if rank not in plan.absent])
    row = next(row for row in plan.grid if blamed in row)
    load = [draw.between(0.92, 1.08) for _ in range(plan.ranks)]
    most = 0.95 * len(row)
    hot = min(draw.between(low, high), most)
    load = list(_rows_even(load, plan))
    for rank in row:
        load[rank] = hot if rank == blamed else load[rank] * (len(row) - hot) / (len(row) - 1)
    return replace(plan, blamed=blamed, load=tuple(load))


def _small_and_waits(plan: Plan, draw: Draw) -> Plan:
    """A straggler in a job of many small calls: after each piece of work all ranks meet."""
    plan, loss = _tiny(plan, draw), Collective("world", "all_reduce", 8)
    program = tuple(new for op in plan.program for new in ((op, loss) if isinstance(op, Compute) else (op,)))
    return replace(
        plan, program=program, warm_up=0, blamed=draw.whole(0, plan.ranks - 1), slower=draw.between(2.2, 2.6)
    )


def _small_and_link(plan: Plan, draw: Draw) -> Plan:
    """A slow interface in a job of many small calls."""
    plan = _tiny(plan, draw)
    large = Collective("column", "all_gather", _megabytes(draw, 1.5, 3))
    return _slow_link(replace(plan, program=(large, *plan.program)), draw)


def _small_and_load(plan: Plan, draw: Draw) -> Plan:
    """One rank gets too many tokens in a job of many small calls."""
    plan = _tiny(plan, draw)
    exchange = Collective("row", "all_to_all", _megabytes(draw, 2, 4))
    return _one_loaded(replace(plan, program=(exchange, *plan.program)), draw, 2.4, 2.8)


def _link_and_load(plan: Plan, draw: Draw) -> Plan:
    """One rank gets too many tokens, over a slow interface."""
    return replace(_loaded(_whole(plan), draw, 2.6, 3.4), slow_link=draw.between(5, 9))


def _whole(plan: Plan) -> Plan:
    """The plan with the files of all ranks."""
    return replace(plan, absent=())


_PLANS: dict[Kind, Callable[[Plan, Draw], Plan]] = {
    Kind.STRAGGLER: _straggler,
    Kind.DESYNC: _desync,
    Kind.MISSING_RANK: _missing,
    Kind.TINY_CALLS: _tiny,
    Kind.NO_OVERLAP: _exposed,
    Kind.WRONG_INTERFACE: _slow_link,
    Kind.SKEWED_ALL_TO_ALL: _skewed,
    Kind.HEALTHY: _plain,
}

_TRAPPED: dict[Trap, Callable[[Plan, Draw], Plan]] = {
    Trap.OFTEN_LATE: _rarely_slow,
    Trap.LATE_IN_WORLD: _late_in_world,
    Trap.WAITS_BEYOND: _straggler,
    Trap.OTHER_OPERATION: lambda plan, draw: _differs(plan, draw, "op"),
    Trap.OTHER_OUT: lambda plan, draw: _differs(plan, draw, "out"),
    Trap.OTHER_IN: lambda plan, draw: _differs(plan, draw, "into"),
    Trap.TWO_DIFFER: _two_differ,
    Trap.LOWER_LOST: lambda plan, draw: _missing_beside(plan, draw, True),
    Trap.HIGHER_LOST: lambda plan, draw: _missing_beside(plan, draw, False),
    Trap.UNEVEN: lambda plan, draw: _missing(replace(plan, program=_experts(draw, draw.between(2500, 5000))), draw),
    Trap.TWINS: lambda plan, draw: _tiny(plan, draw, twins=True),
    Trap.SMALL_BEYOND: _tiny,
    Trap.LITTLE_OVERLAP: _exposed,
    Trap.NESTED: _nested,
    Trap.REST_BEYOND: _exposed,
    Trap.SMALL_SHORT: _small_beside,
    Trap.SIZES: _sizes,
    Trap.LINK_BEYOND: lambda plan, draw: _link(plan, draw, 2.3, 2.5),
    Trap.ONE_SIDE: _tensor_link,
    Trap.LOAD_BEYOND: lambda plan, draw: _loaded(_whole(plan), draw, 2.25, 2.4),
    Trap.LOAD_LOST: lambda plan, draw: _loaded(_with_file_lost(plan, draw), draw, 2.6, 3.4),
    Trap.WAITS_SHORT: lambda plan, draw: _straggler(_whole(plan), draw),
    Trap.LINK_SHORT: lambda plan, draw: _link(plan, draw, 1.62, 1.72),
    Trap.LOAD_SHORT: lambda plan, draw: _loaded(_whole(plan), draw, 1.62, 1.75),
    Trap.REST_SHORT: _exposed,
    Trap.SOME_OVERLAP: _exposed,
    Trap.SMALL_AND_WAITS: _small_and_waits,
    Trap.SMALL_AND_LINK: _small_and_link,
    Trap.SMALL_AND_LOAD: _small_and_load,
    Trap.LINK_AND_LOAD: _link_and_load,
}
