"""The course's own all-reduces, written with sends and receives, against the backend's, over sizes."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from bench.common import Result, alternate, median, ratio

RANKS = 4
SIZES = (1 << 10, 1 << 14, 1 << 18, 1 << 22, 1 << 26)
OURS = ("ring", "rabenseifner", "recursive doubling", "double binary tree", "tree")


def run(rounds: int, progress: Callable[[str], None]) -> Result:
    """In each round every algorithm runs every size; a time is the median call of the slowest rank."""
    from allranks import World
    from allranks.machine.bench.sweeps import Call, measure
    from allranks.theory.schedules import find

    with World(ranks=RANKS) as world:
        backend = world.backend

        def measured(algorithm: str | None, nbytes: int) -> float:
            schedule = find("all_reduce", algorithm)(RANKS) if algorithm else None
            call = Call("all_reduce", algorithm=algorithm)
            parts = world.run(measure, call, schedule, nbytes // 4, 20, 2, 2.0, False)
            return max(statistics.median(part["times_s"]) for part in parts)

        result = Result(
            f"The course's all-reduces against {backend}'s own, {RANKS} ranks",
            ("bytes", f"{backend} ms", *(f"{name} ms (ratio)" for name in OURS)),
        )
        for nbytes in SIZES:
            variants = {name or backend: lambda name=name, n=nbytes: measured(name, n) for name in (None, *OURS)}
            times_s = alternate(variants, rounds, lambda text, n=nbytes: progress(f"{n} bytes, {text}"))
            own = times_s[backend]
            cells = (f"{1e3 * median(times_s[name]):.2f} ({ratio(times_s[name], own):.2f})" for name in OURS)
            result.rows.append((f"{nbytes:,}", f"{1e3 * median(own):.2f}", *cells))
    result.notes.append(
        f"{rounds} rounds in alternation; in brackets the median of the ratios to {backend}'s own time: above 1 is slower. "
        "All work in place on the same vector. What ours take longer at small sizes is Python between the steps; at large sizes all of "
        "them copy and add the same bytes."
    )
    return result
