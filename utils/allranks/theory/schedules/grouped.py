"""Algorithms for groups of ranks: nodes that slower links join, and the rows and columns of a torus."""

from __future__ import annotations

from collections.abc import Iterable

from allranks.theory.schedules.binomial import binomial_broadcast, binomial_reduce
from allranks.theory.schedules.core import MAX_RANKS, Move, Schedule, ScheduleError, check_ranks, in_sequence
from allranks.theory.schedules.ring import ring_gather, ring_reduce


def hierarchical_all_reduce(ranks: int, ranks_per_node: int | None = None) -> Schedule:
    """Two-level all-reduce: reduce-scatter inside each node, all-reduce between nodes, all-gather inside each node.

    Node k holds ranks kg to kg+g-1. Without `ranks_per_node`, g is the largest divisor of p that is at most sqrt(p).
    With m nodes, a1 and b1 inside a node, a2 and b2 between nodes: 2(g-1)a1 + 2n(g-1)/g b1 + 2(m-1)a2 + 2(n/g)(m-1)/m
    b2, since each rank sends only n/g to other nodes.

    >>> schedules.hierarchical_all_reduce(16, ranks_per_node=8).steps
    16
    """
    g = group_size(ranks, ranks_per_node)
    return Schedule("all_reduce", "hierarchical", ranks, ranks, tuple(_rows_then_columns(ranks // g, g)), meta=_meta(g))


def torus_all_reduce(ranks: int, columns: int | None = None) -> Schedule:
    """All-reduce on a torus: reduce-scatter in each row, all-reduce in each column, all-gather in each row.

    With c columns and d rows: [2(c-1) + 2(d-1)]a + 2n(p-1)/p b; the columns move only n/c (Mikami et al. 2018).

    >>> schedules.torus_all_reduce(12, columns=4).steps
    10
    """
    c = group_size(ranks, columns, "columns", "rows")
    return Schedule("all_reduce", "torus", ranks, ranks, tuple(_rows_then_columns(ranks // c, c)), meta={"columns": c})


def leader_all_reduce(ranks: int, ranks_per_node: int | None = None) -> Schedule:
    """Two-level all-reduce through leaders: reduce to one rank of each node, ring all-reduce among these, broadcast.

    With m nodes of g ranks, a leader alone sends 2n(m-1)/m to other nodes: g times as much as a rank in
    `hierarchical_all_reduce`.

    >>> schedules.leader_all_reduce(8, ranks_per_node=4).bytes_sent(800)
    [2400, 1600, 800, 800, 2400, 1600, 800, 800]
    """
    g = group_size(ranks, ranks_per_node)
    m = ranks // g
    whole = tuple(range(m))

    def everywhere(moves: Iterable[Move]) -> list[Move]:
        return [Move(x.step, node * g + x.src, node * g + x.dst, whole, x.reduce) for x in moves for node in range(m)]

    ring = in_sequence(ring_reduce(m, 1), ring_gather(m, 1))
    leaders = [Move(x.step, x.src * g, x.dst * g, x.chunks, x.reduce) for x in ring]
    moves = in_sequence(everywhere(binomial_reduce(g).moves), leaders, everywhere(binomial_broadcast(g).moves))
    return Schedule("all_reduce", "leader", ranks, m, tuple(moves), meta=_meta(g))


def hierarchical_all_gather(ranks: int, ranks_per_node: int | None = None) -> Schedule:
    """Two-level all-gather: first between nodes, among ranks with the same place, then inside each node.

    With m nodes of g ranks: (m-1)a2 + (n/g)(m-1)/m b2 + (g-1)a1 + n(g-1)/g b1. Each part crosses the border of a node
    as often as in a ring, but by the card of its own place.

    >>> schedules.hierarchical_all_gather(16, ranks_per_node=4).steps
    6
    """
    g = group_size(ranks, ranks_per_node)
    m = ranks // g
    moves = in_sequence(_columns(ring_gather(m, 0), g), _rows(ring_gather(g, 0), m, g))
    return Schedule("all_gather", "hierarchical", ranks, ranks, tuple(moves), meta=_meta(g))


def hierarchical_reduce_scatter(ranks: int, ranks_per_node: int | None = None) -> Schedule:
    """Two-level reduce-scatter: first inside each node, then between nodes, among ranks with the same place.

    With m nodes of g ranks: (g-1)a1 + n(g-1)/g b1 + (m-1)a2 + (n/g)(m-1)/m b2.

    >>> schedules.hierarchical_reduce_scatter(16, ranks_per_node=4).bytes_sent(1600)[0]
    1500
    """
    g = group_size(ranks, ranks_per_node)
    m = ranks // g
    moves = in_sequence(_rows(ring_reduce(g, 0), m, g), _columns(ring_reduce(m, 0), g))
    return Schedule("reduce_scatter", "hierarchical", ranks, ranks, tuple(moves), meta=_meta(g))


def hierarchical_all_to_all(ranks: int, ranks_per_node: int | None = None) -> Schedule:
    """Two-level all-to-all: exchange first inside each node, then between nodes, among ranks with the same place.

    A part for place j of another node first goes to place j of the sender's own node. From there it goes to that node.
    With m nodes of g ranks: (g-1)a1 + n(g-1)/g b1 + (m-1)a2 + n(m-1)/m b2. A rank sends m-1 messages to other nodes
    instead of (m-1)g, each g times as large.

    >>> schedules.hierarchical_all_to_all(16, ranks_per_node=4).steps
    6
    """
    g = group_size(ranks, ranks_per_node)
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
    return Schedule(
        "all_to_all", "hierarchical", ranks, ranks * ranks, tuple(in_sequence(inside, between)), meta=_meta(g)
    )


def group_size(ranks: int, size: int | None, name: str = "ranks_per_node", groups: str = "nodes") -> int:
    """The ranks of one group: `size`, or if it is None the largest divisor of `ranks` that is at most its square root.

    Raises ScheduleError, which calls the option `name` and its groups `groups`, if `size` does not divide `ranks`.
    """
    check_ranks(min(ranks, MAX_RANKS) if isinstance(ranks, int) else ranks)  # rules of a larger world list no messages
    if size is None:
        return max(g for g in range(1, int(ranks**0.5) + 1) if ranks % g == 0)
    if isinstance(size, bool) or not isinstance(size, int) or size < 1 or ranks % size:
        raise ScheduleError(f"{name} is {size!r}; it must divide the {ranks} ranks into equal {groups}")
    return size


def _meta(g: int) -> dict[str, int]:
    return {"ranks_per_node": g}


def _rows_then_columns(m: int, g: int) -> list[Move]:
    """m rows of g ranks: reduce-scatter in rows, all-reduce in columns (j reduces chunks jm to jm+m-1), all-gather."""

    def rows(moves: list[Move]) -> list[Move]:
        return [
            Move(x.step, row * g + x.src, row * g + x.dst, tuple(x.chunks[0] * m + c for c in range(m)), x.reduce)
            for x in moves
            for row in range(m)
        ]

    columns = [
        Move(x.step, x.src * g + j, x.dst * g + j, (j * m + x.chunks[0],), x.reduce)
        for x in in_sequence(ring_reduce(m, 1), ring_gather(m, 1))
        for j in range(g)
    ]
    return in_sequence(rows(ring_reduce(g, 0)), columns, rows(ring_gather(g, 0)))


def _rows(moves: list[Move], m: int, g: int) -> list[Move]:
    """A ring's moves in each of m nodes of g ranks. Chunk j of the ring is place j's of all nodes: j, g+j, ..."""
    return [
        Move(x.step, row * g + x.src, row * g + x.dst, tuple(node * g + x.chunks[0] for node in range(m)), x.reduce)
        for x in moves
        for row in range(m)
    ]


def _columns(moves: list[Move], g: int) -> list[Move]:
    """A ring's moves between nodes of g ranks, among the ranks of each place j. Chunk c is place j's of node c."""
    return [
        Move(x.step, x.src * g + j, x.dst * g + j, (x.chunks[0] * g + j,), x.reduce) for x in moves for j in range(g)
    ]
