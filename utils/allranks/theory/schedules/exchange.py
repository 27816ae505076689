"""Algorithms in which every rank sends to many others: pairwise exchange, Bruck's, and the dissemination barrier."""

from __future__ import annotations

from allranks.theory.schedules.core import Move, Schedule, ScheduleError, check_ranks


def pairwise_reduce_scatter(ranks: int) -> Schedule:
    """Pairwise reduce-scatter: in step i, rank r sends rank r+i's part to it, and adds its own part from rank r-i.

    (p-1)a + n(p-1)/p (b + g) for any p (MPICH). Unlike in a ring, no rank sends on what it received.

    >>> [(m.src, m.dst, m.chunks) for m in schedules.pairwise_reduce_scatter(3).by_step[0]]
    [(0, 1, (1,)), (1, 2, (2,)), (2, 0, (0,))]
    """
    check_ranks(ranks)
    moves = [
        Move(i - 1, r, (r + i) % ranks, ((r + i) % ranks,), reduce=True) for i in range(1, ranks) for r in range(ranks)
    ]
    return Schedule("reduce_scatter", "pairwise", ranks, ranks, tuple(moves))


def pairwise_all_to_all(ranks: int) -> Schedule:
    """Pairwise all-to-all: p-1 steps; in each step every rank sends one other rank its part. (p-1)a + n(p-1)/p b.

    In step i rank r exchanges with rank r xor i if p is a power of two; else it sends to r+i and receives from r-i
    (MPICH).

    >>> [(m.src, m.dst) for m in schedules.pairwise_all_to_all(4).by_step[0]]
    [(0, 1), (1, 0), (2, 3), (3, 2)]
    """
    check_ranks(ranks)
    power = ranks & (ranks - 1) == 0
    moves = [
        Move(i - 1, r, dst, (r * ranks + dst,))
        for i in range(1, ranks)
        for r in range(ranks)
        for dst in [r ^ i if power else (r + i) % ranks]
    ]
    return Schedule("all_to_all", "pairwise", ranks, ranks * ranks, tuple(moves))


def bruck_all_gather(ranks: int) -> Schedule:
    """Bruck's all-gather: in step k each rank sends all that it has to rank r - 2^k, in the last step only what is missing.

    ceil(lg p)a + n(p-1)/p b for any p (MPICH). A real implementation also rotates its buffer once at the end.

    >>> [len(step[0].chunks) for step in schedules.bruck_all_gather(6).by_step]
    [1, 2, 2]
    """
    check_ranks(ranks)
    moves, have, step = [], 1, 0
    while have < ranks:
        count = min(have, ranks - have)
        moves += [Move(step, r, (r - have) % ranks, tuple((r + j) % ranks for j in range(count))) for r in range(ranks)]
        have, step = 2 * have, step + 1
    return Schedule("all_gather", "bruck", ranks, ranks, tuple(moves))


def pat_all_gather(ranks: int, in_flight: int | None = None) -> Schedule:
    """NCCL's PAT all-gather: as Bruck's, but the farthest partner comes first, so that far links carry the fewest chunks.

    For d = 2^k, from the largest below p down to 1, each rank sends rank r-d its own chunk and those of the ranks r+2d, r+4d, ...
    that r-d lacks. ceil(lg p)a + n(p-1)/p b, if chunks are packed into one message. Large chunks are messages of their own,
    `in_flight` of them at once (in NCCL 8): then a step moves at most so many, and the steps grow as p/8, the linear term
    (NCCL 2.30.7, src/include/collectives.h, lines 440 to 1009). Raises ScheduleError.

    >>> [(m.dst, m.chunks) for m in schedules.pat_all_gather(8).moves if m.src == 0]
    [(4, (0,)), (6, (0, 4)), (7, (0, 2, 4, 6))]
    >>> [schedules.pat_all_gather(p, in_flight=8).steps for p in (16, 32, 64, 256)]
    [4, 6, 10, 34]
    """
    moves = [
        Move(step, r, (r - d) % ranks, tuple((r + j) % ranks for j in held))
        for step, (d, held) in enumerate(pat_steps(ranks, in_flight))
        for r in range(ranks)
    ]
    return Schedule("all_gather", "pat", ranks, ranks, tuple(moves), meta={"in_flight": in_flight or ranks})


def pat_reduce_scatter(ranks: int, in_flight: int | None = None) -> Schedule:
    """NCCL's PAT reduce-scatter: `pat_all_gather` backwards, so that the nearest partner comes first, with the most chunks.

    ceil(lg p)a + n(p-1)/p (b + g), if chunks are packed; `in_flight` as there. Raises ScheduleError.

    >>> [(m.dst, m.chunks) for m in schedules.pat_reduce_scatter(4).moves if m.src == 0]
    [(1, (1, 3)), (2, (2,))]
    """
    moves = [
        Move(step, r, (r + d) % ranks, tuple((r + d + j) % ranks for j in held), reduce=True)
        for step, (d, held) in enumerate(reversed(pat_steps(ranks, in_flight)))
        for r in range(ranks)
    ]
    return Schedule("reduce_scatter", "pat", ranks, ranks, tuple(moves), meta={"in_flight": in_flight or ranks})


def pat_steps(ranks: int, in_flight: int | None) -> list[tuple[int, tuple[int, ...]]]:
    """Each step of PAT's all-gather: the distance d, and how much further on the owners of the chunks are."""
    check_ranks(ranks)
    if in_flight is not None and (isinstance(in_flight, bool) or not isinstance(in_flight, int) or in_flight < 1):
        raise ScheduleError(f"in_flight is {in_flight!r}; it is a whole number of chunks, 1 or more")
    steps = []
    for bit in reversed(range((ranks - 1).bit_length())):
        d = 1 << bit
        held = range(0, ranks - d, 2 * d)
        for first in range(0, len(held), in_flight or len(held)):
            steps.append((d, tuple(held[first : first + (in_flight or len(held))])))
    return steps


def bruck_all_to_all(ranks: int) -> Schedule:
    """Bruck's all-to-all: in step k each rank sends to rank r + 2^k all parts whose distance to go has bit k set.

    ceil(lg p) steps of about n/2: ceil(lg p)a + (n/2)lg p b for powers of two. For small messages only.

    >>> schedules.bruck_all_to_all(8).bytes_sent(800)[0]
    1200
    """
    check_ranks(ranks)
    moves = []
    for bit in range((ranks - 1).bit_length()):
        hop = 1 << bit
        for r in range(ranks):
            # a part for the rank d places further on has already gone as far as the bits of d below `bit` say
            chunks = [
                ((r - (d & (hop - 1))) % ranks) * ranks + (r - (d & (hop - 1)) + d) % ranks
                for d in range(1, ranks)
                if d & hop
            ]
            moves.append(Move(bit, r, (r + hop) % ranks, tuple(chunks)))
    return Schedule("all_to_all", "bruck", ranks, ranks * ranks, tuple(moves))


def dissemination_barrier(ranks: int) -> Schedule:
    """Dissemination barrier: in step k, rank r tells rank r + 2^k of every rank that it knows to have come.

    ceil(lg p)a (MPICH); its messages have no bytes.

    >>> schedules.dissemination_barrier(9).steps
    4
    """
    check_ranks(ranks)
    moves, know, step = [], 1, 0
    while know < ranks:
        moves += [Move(step, r, (r + know) % ranks, tuple((r - j) % ranks for j in range(know))) for r in range(ranks)]
        know, step = 2 * know, step + 1
    return Schedule("barrier", "dissemination", ranks, ranks, tuple(moves))
