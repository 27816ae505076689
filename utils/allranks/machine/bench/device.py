"""What a measurement must know of the device: sizes and words for which a chapter's claim holds on a CPU and on GPUs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from allranks.machine.bench.sweeps import BenchError, seconds_of

if TYPE_CHECKING:
    from allranks.ranks.world import World

LEAST_S = 1e-3  # a sleep is exact to about a tenth of this, and Python's own work is hidden below it
PLATEAU_NBYTES = {"nccl": 1 << 30, "gloo": 64 << 20}  # where a doubling of the size no longer raises the bandwidth


def lasting(
    make: Callable[[int], Callable[[], object]], numel: int, least_s: float = LEAST_S, most: int = 1 << 28
) -> tuple[int, float]:
    """The first of `numel`, 4 `numel`, ... for which the call `make(numel)` takes at least `least_s` seconds, and its seconds.

    Few bytes take long between processes of a CPU, and no time between GPUs. With this a chapter has communication that
    can be seen on both, and work that is as long: it sleeps the seconds returned. Every rank of the default group must call
    it; all get the same. It stops at `most` numbers. Raises BenchError if `numel` is below 1 or above `most`.

    Example (needs ranks):
        >>> def as_long_as_a_sum():
        ...     return bench.lasting(lambda n: lambda x=torch.ones(n): dist.all_reduce(x), 2**18)
        >>> numel, seconds = world.run(as_long_as_a_sum)[0]
    """
    if not 1 <= numel <= most:
        raise BenchError(f"numel is {numel}; it must be at least 1 and at most {most}.")
    while True:
        (seconds,) = seconds_of(make(numel), iterations=5)
        if seconds >= least_s or 4 * numel > most:
            return numel, seconds
        numel *= 4


def up_to_plateau(world: World | None = None, first: int = 1024, factor: int = 4) -> list[int]:
    """Sizes in bytes from `first` on, each `factor` times the one before, up to where more bytes bring no more bandwidth.

    That is 64 MiB between processes of a CPU, and 1 GiB between GPUs. A rank leaves `world` out: its default group says
    what carries the bytes. Raises BenchError for sizes that never end.

    Example (needs ranks):
        >>> bench.up_to_plateau(world)[-1]
        67108864
    """
    if first < 1 or factor < 2:
        raise BenchError(f"first is {first} and factor {factor}; they must be at least 1 and 2.")
    found = [first]
    backend = world.backend if world is not None else _backend()
    while found[-1] * factor <= PLATEAU_NBYTES["nccl" if backend == "nccl" else "gloo"]:
        found.append(found[-1] * factor)
    return found


def _backend() -> str:
    import torch.distributed as dist

    return dist.get_backend()


def fitted_words(world: World, alpha_s: float, beta_s_per_byte: float, *, messages: bool = False) -> str:
    """What an alpha and a beta of a ring's formula mean on this world's backend, in one line.

    Between processes of a CPU the library sends a ring's messages. NCCL may take another algorithm, such as a switch that
    adds: there the two are figures of a call, put in a ring's terms. With `messages` they were fitted to sends and
    receives, such as those of the course's own algorithms, so they are a message's on GPUs too.

    Example (needs ranks):
        >>> bench.fitted_words(world, 50e-6, 1e-9)
        'alpha = 50 µs a message, 1/beta = 1.00 GB/s per direction'
    """
    alpha, rate = (
        f"{1e6 * alpha_s:.1f}" if alpha_s < 10e-6 else f"{1e6 * alpha_s:.0f}",
        1e-9 / max(beta_s_per_byte, 1e-15),
    )
    if world.backend == "nccl" and messages:
        return (
            f"alpha = {alpha} µs a message (a kernel that sends and receives), 1/beta = {rate:.2f} GB/s per direction"
        )
    if world.backend == "nccl":
        return (
            f"alpha = {alpha} µs (a call's fixed time, with its launch, over the steps of a ring), "
            f"1/beta = {rate:.2f} GB/s (busbw, of whichever algorithm NCCL took)"
        )
    return f"alpha = {alpha} µs a message, 1/beta = {rate:.2f} GB/s per direction"
