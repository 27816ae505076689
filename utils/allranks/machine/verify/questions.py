"""What only a GPU can answer, asked in short steps that stand in the phases calls, faults and sweeps.

On the CPU each step has a stand-in for what the GPU does, so that the step itself is tried everywhere: a sleep in C code for a
kernel, a raised error for a device-side assert, the course's shared memory for symmetric memory. Its figures say so.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

from allranks.base.errors import counted
from allranks.machine.verify.calls import device
from allranks.machine.verify.steps import Context, Step, StepFailed, StepSkipped, as_user_code
from allranks.ranks.engines import watch
from allranks.ranks.world import RanksError
from allranks.ranks.world.rank_status import ask_ranks

HOLD_S = 2.0  # how long a rank's GPU is busy while it is asked what it waits for
ASK_AFTER_S = 0.8
CYCLES = int(5e9)  # of a GPU's clock: as long at 2.5 GHz, and longer on those that are slower
KINDS = ("item", "print", "cpu", "bool", "end")
SETTING = "NCCL_DEBUG_SUBSYS"  # NCCL reads it, and it changes no result
ASSERTED = "device-side assert"
STAND_IN = "a stand-in, for want of a GPU"


# ------------------------------------------------------------------------------------------------------- on the ranks


def gloo_sub_group() -> str:
    """A gloo group of some ranks, then a group of the backend's own: the first must not be split from the second's source."""
    import torch
    import torch.distributed as dist

    rank, x = dist.get_rank(), torch.ones(1, device="cpu")
    dist.new_group([0], backend="gloo")
    pair = dist.new_group([0, 1], backend="gloo")
    if rank < 2:
        dist.all_reduce(x, group=pair)
        if x.item() != 2:
            return f"the sum over a gloo group of two is {x.item()}"
    y, own = torch.ones(1, device=device()), dist.new_group([0, 1])
    if rank < 2:
        dist.all_reduce(y, group=own)
    return "" if y.item() == (2 if rank < 2 else 1) else f"the sum over a group of the world's backend is {y.item()}"


def no_symmetric_memory() -> str:
    """Why torch can't map one rank's memory for another here; "" if it can. The same words on all ranks."""
    import torch
    import torch.distributed as dist

    ranks, mine, count = dist.get_world_size(), torch.cuda.current_device(), torch.cuda.device_count()
    if count < ranks:  # they share GPUs, or each sees one MIG device
        return f"torch takes one rank a GPU here: {ranks} ranks see {counted(count, 'GPU')} each."
    others = (other for other in range(ranks) if other != mine)
    reached = torch.tensor([all(torch.cuda.can_device_access_peer(mine, other) for other in others)], device=device())
    dist.all_reduce(reached, op=dist.ReduceOp.MIN)
    return "" if reached.item() else "These GPUs have no P2P, so none can map another one's memory."


def symmetric_memory() -> tuple[str, float | str]:
    """What was used, and the number that the next rank wrote into its part; "" and why where it can't be had."""
    import torch
    import torch.distributed as dist

    rank, ranks = dist.get_rank(), dist.get_world_size()
    if device().type != "cuda":
        from allranks.ranks.memory.shared import SharedMemory

        memory = SharedMemory(1)
        memory.tensor(rank).fill_(rank)
        dist.barrier()
        found = memory.tensor((rank + 1) % ranks).item()
        dist.barrier()
        return STAND_IN, float(found)
    if why := no_symmetric_memory():
        return "", why
    import torch.distributed._symmetric_memory as symmetric

    mine = symmetric.empty(1024, device=device())
    mine.fill_(rank)
    handle = symmetric.rendezvous(mine, dist.group.WORLD.group_name)
    handle.barrier()
    value = handle.get_buffer((rank + 1) % ranks, (1024,), torch.float32)[0].item()
    handle.barrier()
    return "torch.distributed._symmetric_memory", float(value)


def call_then_compute() -> None:
    """An all_reduce, work that lasts longer, and only then the wait; a second all_reduce marks where that is."""
    import torch
    import torch.distributed as dist

    # few elements: ranks that share a GPU take turns on it, and a large all_reduce would take longer than the work beside it
    x, a = torch.ones(1 << 10, device=device()), torch.ones(4096 if device().type == "cuda" else 64, device=device())
    a = torch.outer(a, a)
    dist.barrier()
    work = dist.all_reduce(x, async_op=True)
    for _ in range(40):
        a @ a
    if device().type != "cuda":
        time.sleep(0.5)
    dist.all_reduce(torch.ones(1, device=device()))
    work.wait()


def profiled() -> dict[str, Any]:
    """How many kernels and calls torch's profiler sees in this process, which was forked."""
    import torch
    import torch.distributed as dist
    from torch.profiler import ProfilerActivity, profile

    on_gpu = device().type == "cuda"
    x = torch.ones(1 << 16, device=device())
    for _ in range(2):  # the first one starts CUPTI
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
        with profile(activities=activities) as seen:
            dist.all_reduce(x)
            x.add_(1)
            if on_gpu:
                torch.cuda.synchronize()
    events = list(seen.events() or ())
    kernels = [event.name for event in events if event.device_type.name == "CUDA"]
    return {"events": len(events), "kernels": len(kernels), "nccl": sum("nccl" in name.lower() for name in kernels)}


def hold(kind: str) -> None:
    """Waits for a GPU that is busy, in one of the ways in which a program waits without saying so."""
    import torch

    if device().type != "cuda":
        if kind == "end":
            from allranks.ranks.engines import rank

            once = [lambda: time.sleep(HOLD_S)]
            rank.at_the_end.append(lambda: once.pop()() if once else None)
            return
        watch.gpu_works = lambda frame: True
        time.sleep(HOLD_S)  # x.item(), for example
        watch.gpu_works = watch._gpu_works
        return
    x = torch.ones(4, device=device())
    torch.cuda.synchronize()
    torch.cuda._sleep(CYCLES)
    if kind == "item":
        x[0].item()
    elif kind == "print":
        print(x)
    elif kind == "cpu":
        x.cpu()
    elif kind == "bool":
        bool(x[0] > 0)


def break_the_device() -> float:
    """An index outside of a table, which a GPU finds out in the kernel."""
    import torch

    if device().type != "cuda":
        raise torch.AcceleratorError(f"CUDA error: {ASSERTED} triggered ({STAND_IN})")
    table, where = torch.ones(4, 2, device=device()), torch.tensor([99], device=device())
    return float(torch.nn.functional.embedding(where, table).sum().item())


def one() -> float:
    """A number from the rank's device."""
    import torch

    return float(torch.ones(1, device=device()).item())


def setting() -> str | None:
    """What a rank's environment says."""
    return os.environ.get(SETTING)


def floors() -> dict[str, float]:
    """Microseconds that a clock around one call measures, what the host takes to launch it, and what it takes itself."""
    import torch
    import torch.distributed as dist

    from allranks.machine.bench import seconds_of
    from allranks.machine.bench.timers import ClockTimer, timer

    clock, host = timer(), ClockTimer(device())
    x, large = torch.zeros(1, device=device()), torch.zeros(1 << 22, device=device())
    calls: dict[str, Callable[[], object]] = {
        "wait_alone": lambda: None,
        "one_kernel": lambda: x.add_(1),
        "all_reduce_4_bytes": lambda: dist.all_reduce(x),
        "all_reduce_16_mib": lambda: dist.all_reduce(large),
    }
    found = {}
    for name, call in calls.items():
        dist.barrier()
        found[f"{name}_by_clock_us"] = 1e6 * statistics.median(host.times_s(call, 5 if "mib" in name else 50))
        dist.barrier()
        clock.times_s(call, 20)
        found[f"{name}_launch_us"] = 1e6 * clock.launch_s
        found[f"{name}_us"] = 1e6 * seconds_of(call, iterations=5)[0]
    return found


# -------------------------------------------------------------------------------------------------------- in the step


def ask_gloo_sub_group(context: Context) -> dict[str, Any]:
    """A gloo group of some ranks: those outside must not wait for a split that the others never begin."""
    context.need(2, "A sub-group")
    told = context.world().run(gloo_sub_group, deadline=context.left_s)
    if wrong := [f"rank {rank}: {words}" for rank, words in enumerate(told) if words]:
        raise StepFailed(f"{'; '.join(wrong)}.")
    return {}


def ask_symmetric_memory(context: Context) -> dict[str, Any]:
    """Each rank reads what the next one wrote, without a message."""
    context.need(2, "Symmetric memory")
    world = context.world()
    found = world.run(symmetric_memory, deadline=context.left_s)
    if not found[0][0]:
        raise StepSkipped(str(found[0][1]))
    context.note(**{"with": found[0][0]})
    wanted = [float((rank + 1) % world.ranks) for rank in range(world.ranks)]
    if [value for _, value in found] != wanted:
        raise StepFailed(f"The ranks read {[value for _, value in found]} instead of {wanted}.")
    return {}


def ask_end_of_a_bar(context: Context) -> dict[str, Any]:
    """In a trace, an asynchronous call ends when it is complete, and not where the program waits for it."""
    _, found = context.world().trace(call_then_compute, deadline=context.left_s)
    bars: dict[int, list[tuple[float, float | None]]] = {}
    for event in found.events:
        if event.op == "all_reduce":
            bars.setdefault(event.rank, []).append((event.start, event.end))
    context.note(all_reduces_s={f"rank {rank}": sorted(spans) for rank, spans in bars.items()})
    for rank, spans in sorted(bars.items()):
        (_, end), (marked, _) = sorted(spans)
        if end is None or end > marked:
            raise StepFailed(f"On rank {rank} the bar ends at {end} s, and the program came to its wait at {marked} s.")
    return {}


def ask_profiler(context: Context) -> dict[str, Any]:
    """torch's profiler works in a rank."""
    seen = context.world().run(profiled, deadline=context.left_s)
    context.note(ranks=seen)
    what = "kernels" if context.plan.backend == "nccl" else "events"
    if blind := [rank for rank, found in enumerate(seen) if not found[what]]:
        raise StepFailed(f"The profiler saw no {what} on the ranks {blind}.")
    return {}


def ask_panels(context: Context) -> dict[str, Any]:
    """What a picture says of ranks that wait for their GPU in `.item()`, `print`, `.cpu()`, `bool` and at the end of a call."""
    world, wrong = context.world(), []
    sockets = {rank: world._engines.watch(rank) for rank in range(world.ranks)}
    world.run(one)
    for kind in KINDS:
        answers: list[dict[int, dict[str, Any]]] = []

        def ask(answers: list[dict[int, dict[str, Any]]] = answers) -> None:
            time.sleep(ASK_AFTER_S)
            answers.append(ask_ranks(sockets))

        asking = threading.Thread(target=ask)
        asking.start()
        world.run(as_user_code(hold), kind, deadline=context.left_s)
        asking.join()
        says = {rank: answers[0].get(rank, {}).get("waits_for", "does not answer") for rank in sockets}
        context.note(**{kind: {f"rank {rank}": words for rank, words in says.items()}})
        wrong += [f"{kind}, rank {rank}: {words}" for rank, words in says.items() if words != "GPU"]
    if wrong:
        raise StepFailed(f"Ranks that wait for their GPU say something else: {'; '.join(wrong)}.")
    return {}


def ask_assert(context: Context) -> dict[str, Any]:
    """After a device-side assert, CUDA repeats its error for ever; the world must have fresh ranks, and say so."""
    world = context.world()
    world.run(one)
    before = world.pids
    try:
        world.run(break_the_device, deadline=context.left_s)
    except RanksError as error:
        context.note(report=str(error))
        if "fresh ranks" not in str(error) or set(before) & set(world.pids):
            raise StepFailed(
                "The ranks of a device-side assert were not replaced, or the error does not say so."
            ) from None
    else:
        raise StepFailed("An index outside of a table gave no error.")
    if (values := world.run(one)) != [1.0] * world.ranks:
        raise StepFailed(f"After the assert, the ranks' ones are {values}.")
    return {}


def ask_settings(context: Context) -> dict[str, Any]:
    """A setting of NCCL reaches the ranks that start after it was made, and is gone after it was taken back."""
    before = os.environ.get(SETTING)
    found: list[str | None] = []
    try:
        for value in ("INIT", "ENV", None):
            if value is None:
                os.environ.pop(SETTING, None)
            else:
                os.environ[SETTING] = value
            world = context.world()
            if context.plan.backend != "nccl":  # NCCL's settings make no other world of gloo
                world.reset()
            found += set(world.run(setting))
    finally:
        os.environ.pop(SETTING, None)
        if before is not None:
            os.environ[SETTING] = before
    context.note(seen=found)
    if found != ["INIT", "ENV", None]:
        raise StepFailed(f"Ranks that started with {SETTING} = INIT, ENV and nothing have {found}.")
    return {}


def ask_floors(context: Context) -> dict[str, Any]:
    """What a clock around one call measures, beside two events around many."""
    found = context.world().run(floors, deadline=context.left_s)
    slowest = {name: max(each[name] for each in found) for name in found[0]}
    # no launch is as long as its wait where a call is timed to its end, or waits on the host
    return {name: float(f"{value:.4g}") for name, value in slowest.items() if 0 < value < float("inf")}


CALLS = (
    Step("calls", "gloo sub-group", ask_gloo_sub_group, 40),
    Step("calls", "symmetric memory", ask_symmetric_memory, 40),
    Step("calls", "end of a bar", ask_end_of_a_bar, 40),
    Step("calls", "profiler", ask_profiler, 40),
)
FAULTS = (
    Step("faults", "panels", ask_panels, 60),
    Step("faults", "device-side assert", ask_assert, 40),
    Step("faults", "settings of NCCL", ask_settings, 60),
)
SWEEPS = (Step("sweeps", "floors", ask_floors, 40),)
