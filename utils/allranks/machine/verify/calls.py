"""The second phase: every collective with every dtype, groups, traces, batches, DDP and objects, each result compared."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from allranks.machine.verify.steps import Context, Step, StepFailed, StepSkipped

if TYPE_CHECKING:
    import torch

# what the backend must take, by torch's own tables for gloo and NCCL
DTYPES = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64")
# what it may refuse; the record says which
OTHERS = ("bool", "int16", "complex64", "float8_e4m3fn", "float8_e5m2")
COUNT = 12  # elements of one part


# ------------------------------------------------------------------------------------------------------- on the ranks


def device() -> torch.device:
    """Where the default group's collectives run."""
    import torch
    import torch.distributed as dist

    return torch.device("cuda", torch.cuda.current_device()) if "nccl" in dist.get_backend() else torch.device("cpu")


def numbers(rank: int, count: int, kind: str) -> list[int]:
    """A rank's input: small whole numbers, so that sums over 16 ranks are exact in every dtype, also where each hop rounds."""
    if kind == "bool" or "float8" in kind:  # float8_e5m2 has no 9: NCCL's ring would round in between
        return [(rank + i) % 2 for i in range(count)]
    return [(rank + i) % 4 for i in range(count)]


def vector(rank: int, count: int, kind: str) -> torch.Tensor:
    """The rank's input as a tensor on the group's device."""
    import torch

    return (
        torch.tensor(numbers(rank, count, kind), dtype=torch.float32, device="cpu")
        .to(getattr(torch, kind))
        .to(device())
    )


def read(tensor: torch.Tensor) -> list[float]:
    """The elements of a real tensor on any device, in any dtype."""
    import torch

    real = torch.view_as_real(tensor)[..., 0] if tensor.is_complex() else tensor
    # the ranks' default device may be a GPU, and a dtype may know no other conversion than that to float32
    values: list[float] = real.detach().cpu().to(torch.float32 if real.dtype.itemsize < 4 else torch.float64).tolist()
    return values


def differing(found: list[float], wanted: list[float], tolerance: float = 0.0) -> str:
    """What is wrong with a result; "" if it is right."""
    if len(found) != len(wanted):
        return f"{len(found)} elements instead of {len(wanted)}"
    bad = [i for i, (f, w) in enumerate(zip(found, wanted, strict=True)) if not abs(f - w) <= tolerance * abs(w)]
    if not bad:
        return ""
    i = bad[0]
    return f"{len(bad)} of {len(wanted)} elements are wrong; element {i} is {found[i]:g} instead of {wanted[i]:g}"


def together(count: int, kind: str, ranks: int) -> list[list[int]]:
    """The inputs of all ranks."""
    return [numbers(rank, count, kind) for rank in range(ranks)]


def all_reduce(rank: int, ranks: int, kind: str) -> str:
    """SUM, MIN, MAX and, of floating-point numbers, AVG."""
    import torch.distributed as dist

    columns = list(zip(*together(COUNT, kind, ranks), strict=True))
    wanted: dict[str, tuple[list[float], float]] = {"SUM": ([float(sum(c)) for c in columns], 0.0)}
    if kind == "bool":
        wanted = {"SUM": ([float(any(c)) for c in columns], 0.0)}
    elif not kind.startswith("complex"):
        wanted["MIN"] = [float(min(c)) for c in columns], 0.0
        wanted["MAX"] = [float(max(c)) for c in columns], 0.0
        if "float" in kind:
            wanted["AVG"] = [sum(c) / ranks for c in columns], 0.3 if "float8" in kind else 1e-2
    for op, (values, tolerance) in wanted.items():
        x = vector(rank, COUNT, kind)
        dist.all_reduce(x, op=getattr(dist.ReduceOp, op))
        if wrong := differing(read(x), values, tolerance):
            return f"{op}: {wrong}"
    return ""


def broadcast(rank: int, ranks: int, kind: str) -> str:
    """From the first and from the last rank."""
    import torch.distributed as dist

    for root in {0, ranks - 1}:
        x = vector(rank, COUNT, kind)
        dist.broadcast(x, src=root)
        if wrong := differing(read(x), [float(n) for n in numbers(root, COUNT, kind)]):
            return f"root {root}: {wrong}"
    return ""


def reduce(rank: int, ranks: int, kind: str) -> str:
    """To the last rank."""
    import torch.distributed as dist

    x, root = vector(rank, COUNT, kind), ranks - 1
    dist.reduce(x, dst=root)
    columns = zip(*together(COUNT, kind, ranks), strict=True)
    return differing(read(x), [float(any(c) if kind == "bool" else sum(c)) for c in columns]) if rank == root else ""


def all_gather(rank: int, ranks: int, kind: str) -> str:
    """Into a list, and into one tensor."""
    import torch
    import torch.distributed as dist

    mine = vector(rank, COUNT, kind)
    parts = [torch.empty_like(mine) for _ in range(ranks)]
    dist.all_gather(parts, mine)
    whole = torch.empty(ranks * COUNT, dtype=mine.dtype, device=mine.device)
    (getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor)(whole, mine)
    wanted = [float(n) for row in together(COUNT, kind, ranks) for n in row]
    wrong = differing([n for part in parts for n in read(part)], wanted)
    return f"list: {wrong}" if wrong else differing(read(whole), wanted)


def reduce_scatter(rank: int, ranks: int, kind: str) -> str:
    """From a list, and from one tensor."""
    import torch
    import torch.distributed as dist

    whole = vector(rank, ranks * COUNT, kind)
    columns = list(zip(*together(ranks * COUNT, kind, ranks), strict=True))[rank * COUNT : (rank + 1) * COUNT]
    wanted = [float(any(c) if kind == "bool" else sum(c)) for c in columns]
    mine = torch.empty(COUNT, dtype=whole.dtype, device=whole.device)
    dist.reduce_scatter(mine, list(whole.clone().chunk(ranks)))
    if wrong := differing(read(mine), wanted):
        return f"list: {wrong}"
    (getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor)(mine, whole)
    return differing(read(mine), wanted)


def all_to_all(rank: int, ranks: int, kind: str) -> str:
    """In one tensor, with parts of one size and of different sizes."""
    import torch
    import torch.distributed as dist

    whole = vector(rank, ranks * COUNT, kind)
    out = torch.empty_like(whole)
    dist.all_to_all_single(out, whole)
    if wrong := differing(read(out), exchanged(rank, ranks, kind)):
        return wrong
    parts = torch.cat([vector(rank, 1 + peer, kind) for peer in range(ranks)])
    arrived = torch.empty((1 + rank) * ranks, dtype=whole.dtype, device=whole.device)
    dist.all_to_all_single(arrived, parts, [1 + rank] * ranks, [1 + peer for peer in range(ranks)])
    wrong = differing(read(arrived), [float(n) for peer in range(ranks) for n in numbers(peer, 1 + rank, kind)])
    return f"parts of different sizes: {wrong}" if wrong else ""


def all_to_all_of_lists(rank: int, ranks: int, kind: str) -> str:
    """In lists of tensors, which gloo takes from torch 2.13 on."""
    import torch
    import torch.distributed as dist

    whole = vector(rank, ranks * COUNT, kind)
    out = torch.empty_like(whole)
    dist.all_to_all(list(out.chunk(ranks)), list(whole.chunk(ranks)))
    return differing(read(out), exchanged(rank, ranks, kind))


def exchanged(rank: int, ranks: int, kind: str) -> list[float]:
    """What a rank holds after an all_to_all of equal parts."""
    rows = together(ranks * COUNT, kind, ranks)
    return [float(n) for row in rows for n in row[rank * COUNT : (rank + 1) * COUNT]]


def gather(rank: int, ranks: int, kind: str) -> str:
    """To rank 0."""
    import torch
    import torch.distributed as dist

    mine = vector(rank, COUNT, kind)
    parts = [torch.empty_like(mine) for _ in range(ranks)] if rank == 0 else None
    dist.gather(mine, parts, dst=0)
    if parts is None:
        return ""
    return differing(
        [n for part in parts for n in read(part)], [float(n) for row in together(COUNT, kind, ranks) for n in row]
    )


def scatter(rank: int, ranks: int, kind: str) -> str:
    """From rank 0."""
    import torch
    import torch.distributed as dist

    whole = vector(0, ranks * COUNT, kind)
    mine = torch.empty(COUNT, dtype=whole.dtype, device=whole.device)
    dist.scatter(mine, list(whole.chunk(ranks)) if rank == 0 else None, src=0)
    return differing(read(mine), [float(n) for n in numbers(0, ranks * COUNT, kind)[rank * COUNT : (rank + 1) * COUNT]])


def send_recv(rank: int, ranks: int, kind: str) -> str:
    """Even ranks send to the next one, then receive from it."""
    import torch
    import torch.distributed as dist

    x, arrived = vector(rank, COUNT, kind), torch.empty_like(vector(rank, COUNT, kind))
    peer = rank ^ 1
    if peer >= ranks:
        return ""
    for sends in (rank % 2 == 0, rank % 2 == 1):
        if sends:
            dist.send(x, peer)
        else:
            dist.recv(arrived, peer)
    return differing(read(arrived), [float(n) for n in numbers(peer, COUNT, kind)])


def batch(rank: int, ranks: int, kind: str) -> str:
    """Each rank sends to the next and receives from the one before, in one batch."""
    import torch
    import torch.distributed as dist

    x = vector(rank, COUNT, kind)
    arrived = torch.empty_like(x)
    before, after = (rank - 1) % ranks, (rank + 1) % ranks
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, x, after), dist.P2POp(dist.irecv, arrived, before)]):
        work.wait()
    return differing(read(arrived), [float(n) for n in numbers(before, COUNT, kind)])


LISTS = "all_to_all of lists"
COLLECTIVES: dict[str, Callable[[int, int, str], str]] = {
    "all_reduce": all_reduce,
    "broadcast": broadcast,
    "reduce": reduce,
    "all_gather": all_gather,
    "reduce_scatter": reduce_scatter,
    "all_to_all": all_to_all,
    LISTS: all_to_all_of_lists,
    "gather": gather,
    "scatter": scatter,
    "send and recv": send_recv,
    "batch_isend_irecv": batch,
}
IN_PAIRS = ("send and recv", "batch_isend_irecv")
BROKEN = "broken"  # in place of a dtype


def try_dtypes(call: Callable[[int, int, str], str], kinds: tuple[str, ...]) -> dict[str, tuple[str, str]]:
    """On a rank: ("right", ""), ("wrong", how) or ("refused", the error) for each dtype that this torch has.

    Under `BROKEN` it says whether an error leaves a group that can't be used again.
    """
    import torch
    import torch.distributed as dist

    from allranks.ranks.engines.rank import describe_error

    found = {}
    for kind in kinds:
        if not hasattr(torch, kind):
            continue
        try:
            wrong = call(dist.get_rank(), dist.get_world_size(), kind)
            found[kind] = ("wrong", wrong) if wrong else ("right", "")
        except (RuntimeError, ValueError, TypeError, NotImplementedError) as error:
            found[kind] = "refused", str(error).strip().splitlines()[0][:160] if str(error) else type(error).__name__
            if describe_error(error)["breaks_group"]:
                found[BROKEN] = "", ""
    return found


def sub_groups() -> str:
    """Even and odd ranks add among themselves; then every rank makes the pairs of a DeviceMesh."""
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    rank, ranks = dist.get_rank(), dist.get_world_size()
    sides = [[r for r in range(ranks) if r % 2 == side] for side in range(min(2, ranks))]
    groups = [dist.new_group(side) for side in sides]
    x = torch.ones(1, device=device()) * rank
    dist.all_reduce(x, group=groups[rank % 2])
    if wrong := differing(read(x), [float(sum(sides[rank % 2]))]):
        return f"new_group: {wrong}"
    shape = (ranks // 2, 2) if ranks % 2 == 0 else (ranks, 1)
    mesh = init_device_mesh(device().type, shape, mesh_dim_names=("outer", "inner"))
    for name, mates in (
        ("inner", [r for r in range(ranks) if r // shape[1] == rank // shape[1]]),
        ("outer", [r for r in range(ranks) if r % shape[1] == rank % shape[1]]),
    ):
        x = torch.ones(1, device=device()) * rank
        dist.all_reduce(x, group=mesh.get_group(name))
        if wrong := differing(read(x), [float(sum(mates))]):
            return f"DeviceMesh, dimension {name}: {wrong}"
    return ""


def objects() -> str:
    """The four calls that send Python objects."""
    import torch.distributed as dist

    rank, ranks = dist.get_rank(), dist.get_world_size()
    everybody: list[Any] = [None] * ranks
    dist.all_gather_object(everybody, {"rank": rank})
    if everybody != [{"rank": r} for r in range(ranks)]:
        return f"all_gather_object gave {everybody}"
    told = [("hello", ranks)] if rank == 0 else [None]
    dist.broadcast_object_list(told, src=0)
    if told != [("hello", ranks)]:
        return f"broadcast_object_list gave {told}"
    gathered: list[Any] | None = [None] * ranks if rank == 0 else None
    dist.gather_object(rank, gathered, dst=0)
    if rank == 0 and gathered != list(range(ranks)):
        return f"gather_object gave {gathered}"
    mine: list[Any] = [None]
    dist.scatter_object_list(mine, [str(r) for r in range(ranks)] if rank == 0 else None, src=0)
    return "" if mine == [str(rank)] else f"scatter_object_list gave {mine}"


def ddp_step() -> str:
    """One step of DistributedDataParallel: the gradients are the mean of every rank's own."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    rank, ranks, where = dist.get_rank(), dist.get_world_size(), device()
    torch.manual_seed(1)  # the same weights on all ranks
    layer = torch.nn.Linear(8, 4, device=where)
    inputs = [torch.linspace(-1, 1 + r, 24, device=where).reshape(3, 8) for r in range(ranks)]
    wanted = torch.zeros(4, 8, device=where)
    for x in inputs:
        (gradient,) = torch.autograd.grad(layer(x).square().mean(), layer.weight)
        wanted += gradient / ranks
    model = DistributedDataParallel(layer, device_ids=[where.index] if where.type == "cuda" else None)
    model(inputs[rank]).square().mean().backward()
    off = float((layer.weight.grad - wanted).abs().max() / wanted.abs().max())
    return "" if off < 1e-4 else f"the mean gradient is off by {off:.1%} of its largest element"


def ring_pass() -> float:
    """What `trace` records: one all_reduce, and one message to the next rank."""
    import torch
    import torch.distributed as dist

    rank, ranks = dist.get_rank(), dist.get_world_size()
    x = torch.ones(1024, device=device())
    dist.all_reduce(x)
    if ranks > 1:
        arrived = torch.empty_like(x)
        pair = [dist.P2POp(dist.isend, x, (rank + 1) % ranks), dist.P2POp(dist.irecv, arrived, (rank - 1) % ranks)]
        for work in dist.batch_isend_irecv(pair):
            work.wait()
    return float(x[0].item())


# -------------------------------------------------------------------------------------------------------- in the step


def start(context: Context) -> dict[str, Any]:
    """New ranks form a group; their devices, backend and versions."""
    context.stop_world()
    began = time.monotonic()
    world = context.world()
    seconds = time.monotonic() - began
    ranks = [{key: value for key, value in row.items() if key != "pid"} for row in world._engines.described]
    context.note(seconds_to_ranks=round(seconds, 2), ranks=ranks, note=world._placement.note or "")
    if world.backend != context.plan.backend:
        raise StepFailed(f"The world uses {world.backend}, and this run is to prove {context.plan.backend}.")
    began = time.monotonic()
    world.reset()
    world.run(ring_pass)
    return {"seconds_to_fresh_ranks": round(time.monotonic() - began, 2)}


def every_dtype(name: str, context: Context) -> dict[str, Any]:
    """One collective with all dtypes."""
    if name in IN_PAIRS:
        context.need(2, name)
    try:
        return compare_dtypes(context, COLLECTIVES[name])
    except StepFailed as error:
        if name == LISTS and context.plan.backend == "gloo" and not context.figures.keys() & {"right", "wrong"}:
            raise StepSkipped(f"gloo of this torch has no all_to_all of lists. {error}") from None
        raise


def compare_dtypes(context: Context, call: Callable[[int, int, str], str]) -> dict[str, Any]:
    """Calls `call` with all dtypes on all ranks. Raises StepFailed if a result is wrong, or a needed dtype is refused."""
    world = context.world()
    parts: list[dict[str, tuple[str, str]]] = [{} for _ in range(world.ranks)]
    # one dtype a call: with some backends an error leaves a group that can't be used again
    for kinds in (DTYPES, *((kind,) for kind in OTHERS)):
        told = world.run(try_dtypes, call, kinds, deadline=context.left_s)
        if any([more.pop(BROKEN, None) for more in told]):
            world.reset()
        for part, more in zip(parts, told, strict=True):
            part.update(more)
    by_result: dict[str, list[str]] = {"right": [], "wrong": [], "refused": []}
    faults = []
    for kind in parts[0]:
        results = {rank: part[kind] for rank, part in enumerate(parts)}
        worst = next((r for r in ("wrong", "refused") if any(v[0] == r for v in results.values())), "right")
        by_result[worst].append(kind)
        if worst == "wrong" or (worst == "refused" and kind in DTYPES):
            rank = next(rank for rank, (result, _) in results.items() if result == worst)
            faults.append(f"{kind}, rank {rank}: {worst}: {results[rank][1]}.")
    context.note(**{result: kinds for result, kinds in by_result.items() if kinds})
    if faults:
        raise StepFailed(" ".join(faults))
    return {}


def on_all_ranks(function: Callable[[], str], needs: int, context: Context) -> dict[str, Any]:
    """Calls a function that returns what is wrong; "" everywhere passes."""
    context.need(needs, "This step")
    told = context.world().run(function, deadline=context.left_s)
    if wrong := [f"rank {rank}: {words}" for rank, words in enumerate(told) if words]:
        raise StepFailed(f"{'; '.join(wrong)}.")
    return {}


def trace(context: Context) -> dict[str, Any]:
    """What `world.trace` records of an all_reduce and of one message from each rank."""
    world = context.world()
    results, found = world.trace(ring_pass, deadline=context.left_s)
    ranks = world.ranks
    if results != [float(ranks)] * ranks:
        raise StepFailed(f"Under the trace, the ranks' sums are {results} instead of {ranks}.")
    sums = sorted(event.rank for event in found.events if event.op == "all_reduce")
    sent = sorted((m.src, m.dst, m.nbytes) for m in found.messages())
    context.note(events=len(found.events), messages=len(sent), collective=found.collective)
    if sums != list(range(ranks)):
        raise StepFailed(f"The trace has an all_reduce of the ranks {sums}; every rank made one.")
    if ranks > 1 and sent != sorted((r, (r + 1) % ranks, 4096) for r in range(ranks)):
        raise StepFailed(f"The trace has the messages {sent}; each rank sent 4096 bytes to the next.")
    if any(event.end is None or event.end < event.start for event in found.events):
        raise StepFailed("An event of the trace has no end.")
    return {}


STEPS = (
    Step("calls", "start", start, 100),
    *(Step("calls", name, partial(every_dtype, name), 60) for name in COLLECTIVES),
    Step("calls", "sub-groups", partial(on_all_ranks, sub_groups, 1), 60),
    Step("calls", "objects", partial(on_all_ranks, objects, 1), 60),
    Step("calls", "trace", trace, 60),
    Step("calls", "DDP step", partial(on_all_ranks, ddp_step, 1), 90),
)
