"""The third phase: ranks that hang, raise and die, the reports about them, the ranks that follow, and memory that comes back."""

from __future__ import annotations

import contextlib
import gc
import os
import time
from collections.abc import Callable
from typing import Any

import psutil

from allranks.machine.verify.calls import device
from allranks.machine.verify.machine import our_processes
from allranks.machine.verify.steps import Context, Step, StepFailed, StepSkipped, as_user_code
from allranks.ranks.world import RankDied, RanksError, RanksStuck, World

DEADLINE_S = 5.0
# when one rank has raised an error, the others' wait must show long before their deadline
SOON_S = 15.0
HELD_BYTES = 256 << 20
GIVEN_BACK_S = 20.0  # how long memory may take to be free again
LEFT_BYTES = 200 << 20  # of what a GPU, or our processes, had before


# ------------------------------------------------------------------------------------------------------- on the ranks


def add() -> float:
    """The sum of ones over all ranks."""
    import torch
    import torch.distributed as dist

    x = torch.ones(1, device=device())
    dist.all_reduce(x)
    return float(x.item())


def one_is_absent() -> None:
    """Every rank but rank 0 makes a call."""
    import torch
    import torch.distributed as dist

    if dist.get_rank():
        dist.all_reduce(torch.ones(4, device=device()))


def one_raises() -> float:
    """Rank 0 raises an error; the others wait for the value of a sum that can't come."""
    import torch
    import torch.distributed as dist

    x = torch.ones(4, device=device())
    if dist.get_rank() == 0:
        raise ValueError("planted by verify")
    dist.all_reduce(x)
    return float(x.sum().item())


def add_for_ever() -> None:
    """Sums until the rank dies."""
    while True:
        add()


def hold(nbytes: int) -> int:
    """Takes memory in this rank, and keeps it until the rank ends."""
    import torch

    globals()["_held"] = torch.ones(nbytes // 4, device=device())
    return os.getpid()


# -------------------------------------------------------------------------------------------------------- in the step


def _fails_with(kinds: tuple[type[Exception], ...], call: Callable[[], object], what: str) -> Any:
    """The error of one of these kinds that the call raises, and its seconds. Raises StepFailed if it raises none."""
    began = time.monotonic()
    try:
        call()
    except kinds as error:
        return error, time.monotonic() - began
    except Exception as error:
        raise StepFailed(f"{what} gave {type(error).__name__} instead of {kinds[0].__name__}: {error}") from None
    raise StepFailed(f"{what} gave no error.")


def _recovers(world: World) -> dict[str, Any]:
    """The next call has right results on fresh ranks."""
    began = time.monotonic()
    sums = world.run(add, deadline=60)
    if sums != [float(world.ranks)] * world.ranks:
        raise StepFailed(f"After the fault, the ranks' sums are {sums} instead of {world.ranks}.")
    return {"seconds_to_next_result": round(time.monotonic() - began, 2)}


def hang(context: Context) -> dict[str, Any]:
    """One rank does not make a call: the report at the deadline names those that wait, and the one that does not."""
    context.need(2, "A hang")
    world = context.world()
    world.run(add)
    stuck, seconds = _fails_with(
        (RanksStuck,), lambda: world.run(one_is_absent, deadline=DEADLINE_S), "A rank that does not come"
    )
    context.note(seconds_to_report=round(seconds, 2), report=str(stuck))
    waiting = sorted(status.rank for status in stuck.statuses if status.waits)
    if waiting != list(range(1, world.ranks)):
        raise StepFailed(f"The report says that the ranks {waiting} wait; all but rank 0 do.")
    return _recovers(world)


def error_beside_item(context: Context) -> dict[str, Any]:
    """One rank raises an error while others sit in `.item()`: both are told long before the deadline."""
    context.need(2, "An error beside a wait")
    world = context.world()
    world.run(add)
    stuck, seconds = _fails_with(
        (RanksStuck, RanksError),
        lambda: world.run(as_user_code(one_raises), deadline=max(SOON_S + 15, DEADLINE_S)),
        "An error on rank 0",
    )
    context.note(seconds_to_report=round(seconds, 2), report=str(stuck))
    if sorted(stuck.errors)[:1] != [0]:
        raise StepFailed("The report does not have the error of rank 0.")
    if seconds > SOON_S:
        raise StepFailed(
            f"The report came after {seconds:.0f} s: that the other ranks wait was not seen before the deadline."
        )
    return _recovers(world)


def kill(context: Context) -> dict[str, Any]:
    """A rank is killed in the middle of its calls: the report names it, and fresh ranks follow."""
    world = context.world()
    world.run(add)
    victim, before = world.ranks - 1, world.pids
    world.fault(victim, "kill", after_s=0.5)
    died, seconds = _fails_with((RankDied,), lambda: world.run(add_for_ever, deadline=30), "A killed rank")
    context.note(seconds_to_report=round(seconds, 2), report=str(died))
    found = _recovers(world)
    if left := set(before) & set(world.pids) | {pid for pid in before if _runs(pid)}:
        raise StepFailed(f"{len(left)} of the {len(before)} old ranks still run after the kill of one.")
    return found


def _runs(pid: int) -> bool:
    """Whether the process has not ended within five seconds."""
    until = time.monotonic() + 5
    while time.monotonic() < until:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return False
        except psutil.NoSuchProcess:
            return False
        time.sleep(0.05)
    return True


def pause(context: Context) -> dict[str, Any]:
    """A rank is stopped (SIGSTOP): the report says which one does not answer."""
    context.need(2, "A stopped rank")
    world = context.world()
    world.run(add)
    world.fault(1, "pause", after_s=0.3)
    stuck, seconds = _fails_with((RanksStuck,), lambda: world.run(add_for_ever, deadline=DEADLINE_S), "A stopped rank")
    context.note(seconds_to_report=round(seconds, 2), report=str(stuck))
    silent = [status.rank for status in stuck.statuses if not status.known]
    if silent != [1]:
        raise StepFailed(f"The report says that the ranks {silent} do not answer; rank 1 was stopped.")
    return _recovers(world)


def memory_back(context: Context) -> dict[str, Any]:
    """Ranks take memory and end; what they took is free again, on the GPU by NVML, on the CPU by the processes."""
    world = context.world()
    world.stop()
    gc.collect()
    on_gpus = context.plan.backend == "nccl"
    before = settled_bytes(on_gpus)
    held, where = HELD_BYTES, "GPUs" if on_gpus else "processes"
    world = context.world()
    pids = world.run(hold, held, deadline=context.left_s)
    during = used_bytes(on_gpus)
    world.stop()
    until = time.monotonic() + GIVEN_BACK_S
    while (after := used_bytes(on_gpus)) - before > LEFT_BYTES and time.monotonic() < until:
        time.sleep(0.2)
    context.note(
        before_mib=before >> 20,
        with_ranks_mib=during >> 20,
        after_mib=after >> 20,
        of=where,
        each_rank_held_mib=held >> 20,
    )
    if left := [pid for pid in pids if _runs(pid)]:
        raise StepFailed(f"{len(left)} of {len(pids)} ranks still run after the world was stopped.")
    if during - before < held * len(pids) // 2:
        raise StepFailed(
            f"The ranks held {held * len(pids) >> 20} MiB, and only {during - before >> 20} MiB more were seen in use."
        )
    if after - before > LEFT_BYTES:
        raise StepFailed(f"{after - before >> 20} MiB more than before are in use after the ranks have ended.")
    return {}


def settled_bytes(on_gpus: bool) -> int:
    """The memory in use, after what ended ranks still give back."""
    until, found = time.monotonic() + GIVEN_BACK_S, used_bytes(on_gpus)
    while time.monotonic() < until:
        time.sleep(0.5)
        found, last = used_bytes(on_gpus), found
        if abs(found - last) < 1 << 20:
            break
    return found


def used_bytes(on_gpus: bool) -> int:
    """The memory in use: of all visible GPUs, by NVML, or of all our processes together. Raises StepSkipped where NVML can't tell."""
    if on_gpus:
        import pynvml

        from allranks.ranks.engines.devices import Inventory

        # by UUID: NVML may count GPUs that this process must not open
        uuids = {gpu.physical for gpu in Inventory.of_this_machine().gpus}
        pynvml.nvmlInit()
        try:
            handles = [pynvml.nvmlDeviceGetHandleByUUID(uuid) for uuid in sorted(uuids)]
            return sum(pynvml.nvmlDeviceGetMemoryInfo(handle).used for handle in handles)
        # a GPU that shares the CPU's memory, and one that the GPU service keeps closed while nobody has leased it
        except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_NoPermission) as error:
            raise StepSkipped(f"NVML does not say how much memory of a GPU is in use here ({error}).") from None
        finally:
            pynvml.nvmlShutdown()
    total = 0
    for process in our_processes():
        with contextlib.suppress(psutil.Error):
            info = process.memory_full_info()
            total += getattr(info, "pss", info.uss)  # a page that forks share counts once
    return total


STEPS = (
    Step("faults", "hang", hang, 60),
    Step("faults", "error beside .item()", error_beside_item, 60),
    Step("faults", "kill", kill, 60),
    Step("faults", "pause", pause, 60),
    Step("faults", "memory back", memory_back, 90),
)
