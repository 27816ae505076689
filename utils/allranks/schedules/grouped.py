"""Groups of ranks: nodes joined by slower links, and rows and columns of a torus."""

from __future__ import annotations

from collections.abc import Iterable

from allranks.schedules.binomial import binomial_broadcast, binomial_reduce
from allranks.schedules.core import Move, Schedule, ScheduleError, after, check_ranks
from allranks.schedules.ring import ring_gather, ring_reduce


def hierarchical_all_reduce(ranks: int, ranks_per_node: int | None = None) -> Schedule:
    """Two-level all-reduce: reduce-scatter in each node, all-reduce between nodes, all-gather in each node.

    With m nodes of g ranks: 2(g-1)a1 + 2n(g-1)/g b1 + 2(m-1)a2 + 2(n/g)(m-1)/m b2; each rank's link between nodes carries
    only its n/g. Node k holds ranks kg to kg+g-1. Without `ranks_per_node`, nodes are as near to square as p allows.
    """
    g = nodes_of(ranks, ranks_per_node)
    return Schedule("all_reduce", "hierarchical", ranks, ranks, tuple(_rows_then_columns(ranks // g, g)), meta=_meta(g))


def torus_all_reduce(ranks: int, columns: int | None = None) -> Schedule:
    """Two-dimensional torus of a columns and b rows: reduce-scatter in the row, all-reduce in the column, all-gather in
    the row (Mikami et al. 2018). [2(a-1) + 2(b-1)]a + 2n(p-1)/p b; the columns move only n/a.
    """
    a = nodes_of(ranks, columns, "columns", "rows")
    return Schedule("all_reduce", "torus", ranks, ranks, tuple(_rows_then_columns(ranks // a, a)), meta={"columns": a})


def leader_all_reduce(ranks: int, ranks_per_node: int | None = None) -> Schedule:
    """Two-level all-reduce through leaders: binomial reduce in each node, ring all-reduce of the leaders, broadcast.

    Between nodes every leader moves 2n(m-1)/m alone: g times the bytes of `hierarchical_all_reduce` for that link.
    """
    g = nodes_of(ranks, ranks_per_node)
    m = ranks // g
    whole = tuple(range(m))

    def everywhere(moves: Iterable[Move]) -> list[Move]:
        return [Move(x.step, node * g + x.src, node * g + x.dst, whole, x.reduce) for x in moves for node in range(m)]

    ring = after(ring_reduce(m, 1), ring_gather(m, 1))
    leaders = [Move(x.step, x.src * g, x.dst * g, x.chunks, x.reduce) for x in ring]
    moves = after(everywhere(binomial_reduce(g).moves), leaders, everywhere(binomial_broadcast(g).moves))
    return Schedule("all_reduce", "leader", ranks, m, tuple(moves), meta=_meta(g))


def hierarchical_all_to_all(ranks: int, ranks_per_node: int | None = None) -> Schedule:
    """Two-level all-to-all: in the node first, to the rank with the receiver's place; then between nodes, place by place.

    (g-1)a1 + n(g-1)/g b1 + (m-1)a2 + n(m-1)/m b2: m-1 messages between nodes instead of (m-1)g, g times as large.
    """
    g = nodes_of(ranks, ranks_per_node)
    m = ranks // g
    inside, between = [], []
    for i in range(1, g):
        for r in range(ranks):
            node, place = divmod(r, g)
            to = (place + i) % g
            inside.append(Move(i - 1, r, node * g + to, tuple(r * ranks + far * g + to for far in range(m))))
    for i in range(1, m):
        for r in range(ranks):
            node, place = divmod(r, g)
            dst = (node + i) % m * g + place
            between.append(Move(i - 1, r, dst, tuple((node * g + near) * ranks + dst for near in range(g))))
    return Schedule("all_to_all", "hierarchical", ranks, ranks * ranks, tuple(after(inside, between)), meta=_meta(g))


def nodes_of(ranks: int, size: int | None, name: str = "ranks_per_node", groups: str = "nodes") -> int:
    """The ranks of one node: `size`, or the largest divisor of `ranks` that is at most its root. Raises ScheduleError."""
    check_ranks(ranks)
    if size is None:
        return max(g for g in range(1, int(ranks**0.5) + 1) if ranks % g == 0)
    if isinstance(size, bool) or not isinstance(size, int) or size < 1 or ranks % size:
        raise ScheduleError(f"{name} is {size!r}; it must divide the {ranks} ranks into equal {groups}")
    return size


def _meta(g: int) -> dict[str, int]:
    return {"ranks_per_node": g}


def _rows_then_columns(m: int, g: int) -> list[Move]:
    """m rows of g ranks: reduce-scatter in rows, all-reduce in columns, all-gather in rows. Part j is chunks jm to jm+m-1."""

    def rows(moves: list[Move]) -> list[Move]:
        return [
            Move(x.step, row * g + x.src, row * g + x.dst, tuple(x.chunks[0] * m + c for c in range(m)), x.reduce)
            for x in moves
            for row in range(m)
        ]

    columns = [
        Move(x.step, x.src * g + j, x.dst * g + j, (j * m + x.chunks[0],), x.reduce)
        for x in after(ring_reduce(m, 1), ring_gather(m, 1))
        for j in range(g)
    ]
    return after(rows(ring_reduce(g, 0)), columns, rows(ring_gather(g, 0)))
