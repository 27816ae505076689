"""Predict against measure: alpha and beta fitted on every other size foretell the other sizes, and another world size."""

from __future__ import annotations

from collections.abc import Callable

from bench.common import Result

RANKS, OTHER_RANKS = 2, 4
FIRST, LAST = 8, 16 << 20
ITERATIONS = 10  # a round
ALGORITHMS = (None, "ring", "recursive doubling")  # None is the backend's own


def run(rounds: int, progress: Callable[[str], None]) -> Result:
    """Each round passes through all sizes of all algorithms on both worlds; the best time of a size is its time."""
    from allranks import World
    from allranks.machine.bench import Call, sizes, sweep

    found = {}
    for ranks in (RANKS, OTHER_RANKS):
        with World(ranks=ranks) as world:
            for algorithm in ALGORITHMS:
                name = algorithm or f"{world.backend}'s own"
                progress(f"{name} on {ranks} ranks")
                call = Call("all_reduce", algorithm=algorithm)
                found[name, ranks] = sweep(
                    world, call, sizes(FIRST, LAST), iterations=ITERATIONS * rounds, passes=rounds, warmups=2
                )
    result = Result(
        f"Predicted against measured: all_reduce, {FIRST} B to {LAST >> 20} MiB",
        ("algorithm", "fitted on", "predicts", "sizes", "median error", "worst", "at bytes"),
    )
    for (name, ranks), measured in found.items():
        held = measured.prediction()
        half = f"{ranks} ranks, half"
        result.rows.append((name, half, f"{ranks} ranks, rest", *_errors(held)))
        if ranks == OTHER_RANKS:
            carried = measured.prediction(found[name, RANKS].fit())
            result.rows.append((name, f"{RANKS} ranks", f"{ranks} ranks", *_errors(carried)))
    wrong = sum(measured.wrong for measured in found.values())
    result.notes.append(
        f"{rounds} passes of {ITERATIONS} iterations; fitted on every other size (half), or on all; errors are |predicted / measured - 1| of a size's best time. The model is two "
        "numbers, alpha and beta, put into the algorithm's formula (for the backend's own algorithm, a ring is assumed); it leaves out caches "
        f"and ranks that share a core. Wrong elements: {wrong}."
    )
    return result


def _errors(prediction) -> tuple[str, ...]:
    nbytes, worst = prediction.worst
    return str(len(prediction.points)), f"{prediction.median_error:.1%}", f"{worst:.1%}", f"{nbytes:,}"
