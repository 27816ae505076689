"""What recording costs: an all-reduce of 1 MiB on 4 gloo ranks, recorded and not, in alternation."""

from __future__ import annotations

from bench.common import Result, alternate, median, ratio, spread

NUMEL = 1 << 18
REPEATS = 60


def many_all_reduces() -> float:
    """Seconds of one all-reduce, the mean over many, on this rank."""
    import time

    import torch
    import torch.distributed as dist

    tensor = torch.ones(NUMEL)
    dist.all_reduce(tensor)
    dist.barrier()
    began = time.perf_counter()
    for _ in range(REPEATS):
        dist.all_reduce(tensor)
        tensor.fill_(1)
    return (time.perf_counter() - began) / REPEATS


def run(rounds: int, progress) -> Result:
    """Measures `world.run` and `world.trace` of the same program in turns."""
    from allranks import World

    with World(ranks=4) as world:
        world.trace(many_all_reduces)
        times_s = alternate(
            {
                "not recorded": lambda: max(world.run(many_all_reduces)),
                "recorded": lambda: max(world.trace(many_all_reduces)[0]),
            },
            4 * rounds,
            progress,
        )
    more = ratio(times_s["recorded"], times_s["not recorded"]) - 1
    result = Result("Recording an all-reduce of 1 MiB on 4 gloo ranks", ("variant", "median ms", "spread ms"))
    for name, values in times_s.items():
        milliseconds = [1e3 * v for v in values]
        result.rows.append((name, f"{median(milliseconds):.3f}", spread(milliseconds)))
    result.notes.append(
        f"Recording adds {100 * more:.1f} % (median of the ratios of {4 * rounds} rounds in alternation)."
    )
    return result
