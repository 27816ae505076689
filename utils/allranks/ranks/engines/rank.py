"""What runs inside a forked process: ipyparallel's engine, and the functions that make it a rank of torch.distributed.

`World` calls `join`, `call`, `cell` and `pull` through ipyparallel; students never see them.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from allranks.base.errors import counted
from allranks.ranks.engines import libraries
from allranks.ranks.engines.devices import GPU_INDEX_ENV, GPU_SHARE_ENV, MEMORY_ENV, MPS_ENV
from allranks.ranks.engines.usercode import in_library

if TYPE_CHECKING:
    import torch

STACKS_ENV = "ALLRANKS_STACKS"  # the file to which a rank writes its stacks when it gets SIGUSR1
WATCH_ENV = "ALLRANKS_WATCH"  # the socket on which a rank reports what it is doing
# so long that World's own deadline always comes first: after a time-out of torch the group can't be used any more
GROUP_TIMEOUT_S = 24 * 3600
# called when the user's code has ended, to wait for what it has queued
at_the_end: list[Callable[[], None]] = []
# each says of a user's error what the user can't see from it, or None
hints: list[Callable[[BaseException], str | None]] = []
# each gives the error behind one that torch's C++ code has made of it, or None
originals: list[Callable[[BaseException], BaseException | None]] = []
_joined: list[bool] = []  # this process has joined a group
# the end of what NCCLException says, the sentences of calls on a communicator that has failed before, and the start of what
# the older class says of NCCL's errors in messages and in calls with lists
_NCCL_SAYS = (
    "\nNCCL Last Error: ",
    "NCCL Error ",
    "NCCL operation failed",
    "NCCL operation timed out",
    "NCCL communicator was aborted",
)
# torch looks at types and reductions after it has opened NCCL's group for a call with lists, and some versions then leave it open:
# what the rank calls later joins that group, returns, and is never sent
_WITH_LISTS = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter", "batch_isend_irecv")
_INSIDE_THE_GROUP = (
    "Unsupported tensor data type for NCCL",
    "is not supported for NCCL process group",
    "_oop must have the same number of elements",  # parts of unequal sizes, of which the rank's own does not fit its tensor
    "Unconvertible NCCL type",
    "for NCCL reduction",
    "with NCCL",
    "with boolean inputs",
    "Unsupported reduce operation",
    "PreMulSum",
    "PREMUL_SUM",
)
# read by torch's class for NCCL when the group is made, the first one by both of its classes
NCCL_SETTINGS = {
    # 3, the default, ends the process of each rank whose peer has died (SIGABRT), before it can report where it was; 2 lets it go
    # on with wrong values. 0: it waits, the notebook says where, and ends it.
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
    # 1, the default, ends the process (SIGABRT) when torch's watching thread meets the error of a device-side assert in the event
    # of a collective that is under way, before the rank can report the error
    "TORCH_NCCL_RETHROW_CUDA_ERRORS": "0",
}


def engine(args: dict[str, Any], fds: list[int]) -> None:
    """Runs ipyparallel's engine with the arguments in `args["argv"]` until it is told to stop."""
    from allranks.ranks.engines import own_network

    own_network.enter()  # before anything starts a thread
    from ipyparallel.engine.app import IPEngine

    from allranks.ranks.engines.unread import leave_modules_unread

    arm_stack_dump()
    sys.modules["debugpy"] = None  # type: ignore[assignment]  # no debugger can reach a rank, and its import is slow
    leave_modules_unread()
    sys.argv = ["ipengine", *args["argv"]]
    IPEngine.launch_instance(args["argv"])


def arm_stack_dump() -> None:
    """Makes SIGUSR1 write every thread's Python stack to `$ALLRANKS_STACKS`, even while the main thread is in C++."""
    path = os.environ.get(STACKS_ENV)
    if path:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        faulthandler.register(signal.SIGUSR1, file=descriptor, all_threads=True, chain=False)
        faulthandler.enable(file=descriptor, all_threads=True)


def import_torch() -> None:
    """Imports torch, which a rank that was not forked does only now: from a network disk that can take minutes."""
    import torch.distributed  # noqa: F401


def join(
    rank: int, world_size: int, backend: str, meet: str, env: dict[str, str], threads: int, path: list[str] | None
) -> dict[str, Any]:
    """Makes this engine one rank of a new default group and prepares its namespace; returns what `describe` returns.

    Every rank must call it at the same time. `meet` is torch's init_method: the rendezvous file or an address. `env`
    holds variables that must be set before CUDA starts, such as CUDA_VISIBLE_DEVICES. torch uses `threads` threads in
    this rank. `path` is the notebook's sys.path, so that both find the same modules.
    """
    from datetime import timedelta

    os.environ.update(env)
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else the profiler tells each rank's reader what it does
    arm_stack_dump()
    if path is not None:
        sys.path[:] = path

    import torch
    import torch.distributed as dist

    from allranks.ranks.engines import cpu_only, older_torch, own_network, splits, strangers, watch

    if WATCH_ENV in env:
        watch.serve(env[WATCH_ENV])
    if dist.is_initialized():  # another notebook used this engine before
        dist.destroy_process_group()

    torch.set_num_threads(threads)
    _limit_memory(env.get(MEMORY_ENV))
    device = torch.device("cpu")
    older_torch.add_names()
    if backend == "nccl":
        for name, value in NCCL_SETTINGS.items():
            os.environ.setdefault(name, value)
        device = torch.device("cuda", int(env.get(GPU_INDEX_ENV, 0)))
        torch.cuda.set_device(device)
        watch.on_gpu(device)
        if MPS_ENV in env:
            signal.signal(signal.SIGTERM, end_in_peace)
        _limit_gpu_memory(env.get(GPU_SHARE_ENV), device)
        torch.set_default_device(device)  # so that torch.ones(4) in a cell is on the GPU: cells need no device=
    else:
        cpu_only.see_no_gpu()
    if backend == "gloo":
        own_network.keep_groups()
    before = strangers.sockets(os.getpid())
    dist.init_process_group(
        backend,
        init_method=meet,
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=GROUP_TIMEOUT_S),
        # communicators form at once, also those of sub-groups; without it, torch up to 2.14 makes one more for each pair
        # that sends unbatched messages, and torch 2.15 does not
        device_id=device if backend == "nccl" else None,
    )
    _joined[:] = [True]
    splits.watch(dist.group.WORLD)
    namespace().update(rank=rank, world_size=world_size, device=device, torch=torch, dist=dist)
    # the first collective connects all ranks, which takes time: do it here, not in the student's first cell
    dist.all_reduce(torch.zeros(1, device=device))
    wait_for_gpu()
    strangers.refuse(before)
    strangers.watch_groups(before)
    watch.count_from_here()
    return describe()


def _limit_memory(limit: str | None) -> None:
    """Limits this rank to `limit` bytes.

    Beyond them, Python raises MemoryError; torch raises an error that names the size.
    """
    if limit:
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = int(limit) if hard == resource.RLIM_INFINITY else min(int(limit), hard)
        resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))


def _limit_gpu_memory(share: str | None, device: torch.device) -> None:
    """Limits this rank's tensors to a fraction of its GPU's memory. Beyond it, torch's error names both sizes.

    CUDA and NCCL use more memory on top of that: some hundred MB for each rank.
    """
    if share:
        import torch

        torch.cuda.set_per_process_memory_fraction(float(share), device)


def describe() -> dict[str, Any]:
    """This rank as plain data: rank, pid, device in words, backend, and the versions of torch and of the NCCL that it uses."""
    import torch
    import torch.distributed as dist

    on_gpu = dist.get_backend() == "nccl"
    used = libraries.nccl_in_use() if on_gpu else None
    # torch itself knows for which NCCL it was built
    nccl = ".".join(map(str, used[0] if used else torch.cuda.nccl.version())) if on_gpu else None  # type: ignore[no-untyped-call]  # torch gives it no types
    return {
        "rank": dist.get_rank(),
        "pid": os.getpid(),
        "device": torch.cuda.get_device_name() if on_gpu else f"CPU, {counted(torch.get_num_threads(), 'thread')}",
        "backend": dist.get_backend(),
        "torch": str(torch.__version__),  # a plain text: to unpickle torch's own type, the notebook would import torch
        "nccl": nccl,
    }


def cell(source: str) -> bytes:
    """Runs the source of a `%%ranks` cell in this rank's namespace; returns the outcome in the form of `call`."""
    from IPython import get_ipython

    shell = get_ipython()
    # the notebook shows errors, once for all ranks; IPython's words take a second of processor time, and keep the error
    unsaid: dict[str, Any] = dict.fromkeys(
        ("showtraceback", "_showtraceback", "_format_exception_for_storage"), lambda *_, **__: {}
    )
    vars(shell).update(unsaid)
    try:
        result = shell.run_cell(source, store_history=True)
    finally:
        for name in unsaid:
            del vars(shell)[name]
    error = result.error_before_exec or result.error_in_exec
    if error is None:
        try:
            wait_for_gpu()
        except Exception as late:
            error = late
    if error is None:
        return _dumps("value", None)
    try:
        return _dumps("error", describe_error(error))
    finally:
        shell.last_execution_result = None
        _let_go(error)


def _let_go(error: BaseException | None) -> None:
    """Frees what the functions of an error hold: else, after "out of memory", it stays until the collector comes."""
    import traceback

    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error.__context__, error = None, error.__context__


def pull(name: str) -> bytes:
    """The value of a variable that a `%%ranks` cell set on this rank, in the form of `call`."""
    values = namespace()
    if name not in values:
        message = f"there is no {name!r} on this rank"
        return _dumps("error", {"type": "NameError", "message": message, "hint": None, "frames": []})
    return _pack(values[name], name)


def call(payload: bytes) -> bytes:
    """Calls the function in `payload`, cloudpickled (function, args, kwargs). Returns the outcome, cloudpickled.

    The outcome is ("value", result) or ("error", {...}). An exception is sent as plain data, with only the lines of the
    student's own code, so that the notebook can show it without the lines of our code (see `describe_error`).
    """
    import cloudpickle

    try:
        function, args, kwargs = cloudpickle.loads(payload)
    except Exception as error:
        return _dumps("error", describe_error(error, hint="while the function was unpacked on the rank"))
    try:
        result = function(*args, **kwargs)
        wait_for_gpu()
    except BaseException as error:
        return _dumps("error", describe_error(error))
    return _pack(result, "the result")


def wait_for_gpu() -> None:
    """Waits until this rank's GPU has finished all queued work: with NCCL, a call returns even if other ranks never do."""
    import torch

    for settle in at_the_end:
        settle()
    if _uses_gpu():
        torch.cuda.synchronize()


def _uses_gpu() -> bool:
    """Whether this process has started CUDA."""
    import torch

    started: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]  # torch gives it no types
    return started


def _dumps(kind: str, value: object) -> bytes:
    """The pair (`kind`, `value`), cloudpickled."""
    import cloudpickle

    packed: bytes = cloudpickle.dumps((kind, value))
    return packed


def _pack(value: object, what: str) -> bytes:
    """A value in the form of `call`. Its CUDA tensors come on the CPU, because the notebook must not start CUDA.

    That holds for tensors in objects too, such as the parameters of a model: unpickled, they would go to GPUs of the notebook's
    with the same numbers, whoever has leased those.
    """
    try:
        return _dumps_on_cpu("value", value) if _uses_gpu() else _dumps("value", value)
    except Exception as error:
        return _dumps("error", describe_error(error, hint=f"while {what} was packed to be sent back"))


def _dumps_on_cpu(kind: str, value: object) -> bytes:
    """As `_dumps`, with each CUDA tensor as its copy on the CPU."""
    import io

    import cloudpickle
    import torch

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
        def reducer_override(self, thing: Any) -> Any:
            if not (isinstance(thing, torch.Tensor) and thing.is_cuda):
                return super().reducer_override(thing)
            there = thing.cpu()
            if isinstance(thing, torch.nn.Parameter):
                there = torch.nn.Parameter(there.detach(), thing.requires_grad)
            return there.__reduce_ex__(cloudpickle.DEFAULT_PROTOCOL)  # type: ignore[no-untyped-call]  # torch gives it no types

    packed = io.BytesIO()
    Pickler(packed).dump((kind, value))
    return packed.getvalue()


def describe_error(error: BaseException, hint: str | None = None) -> dict[str, Any]:
    """An exception as plain data: type, message, hint, the user's frames as (file, line, function, text), breaks_group.

    breaks_group: the ranks can't go on in the same group after it.
    """
    import linecache
    import traceback

    behind = next(filter(None, (original(error) for original in originals)), None)
    if behind is not None:
        error = behind.with_traceback(error.__traceback__)
    hint = hint or next(filter(None, (tell(error) for tell in (*hints, _of_a_script))), None)
    frames = [
        (frame.f_code.co_filename, line, frame.f_code.co_name)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if not in_library(frame.f_code.co_filename)
    ]
    if isinstance(error, SyntaxError) and error.lineno:
        frames = [(error.filename or "", error.lineno, "")]
    return {
        "type": type(error).__name__,
        "message": str(error.msg) if isinstance(error, SyntaxError) else str(error),
        "hint": hint,
        "breaks_group": getattr(error, "breaks_group", False)
        or _lost_its_group()
        or _left_a_batch()
        or _poisons(error),
        "frames": [(file, line, name, linecache.getline(file, line).strip()) for file, line, name in frames],
    }


def _lost_its_group() -> bool:
    """Whether the user's code has ended the group that `join` made."""
    import torch.distributed as dist

    return bool(_joined) and not dist.is_initialized()


def _left_a_batch() -> bool:
    """Whether a batch of messages failed in its middle: torch then takes the group's later calls for parts of it, and does nothing."""
    from torch.distributed import distributed_c10d as c10d

    return bool(c10d._world.pg_coalesce_state)


def _left_nccls_group(error: BaseException) -> bool:
    """Whether torch raised this error between NCCL's ncclGroupStart and ncclGroupEnd."""
    import traceback

    from allranks.ranks.engines import watch

    if not any(words in str(error) for words in _INSIDE_THE_GROUP):
        return False
    codes = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    return any(code.co_filename.endswith(watch.C10D) and code.co_name in _WITH_LISTS for code in codes)


def _of_a_script(error: BaseException) -> str | None:
    """What to leave out of a script that was written for torchrun: a rank has its group and its GPU already."""
    words = str(error)
    if _lost_its_group():
        return "dist.destroy_process_group() has ended the group of all ranks; leave it out, the world ends its ranks"
    if "initialize the default process group twice" in words:
        return "a rank has its group already: leave this line out, and dist.destroy_process_group() too"
    if "invalid device ordinal" in words and GPU_INDEX_ENV in os.environ:
        own = f"cuda:{os.environ[GPU_INDEX_ENV]}"
        return (
            f"this rank's GPU is {own}, and it is set already: leave out torch.cuda.set_device, or write "
            f"torch.cuda.set_device(device). A number of a rank names no GPU where ranks share one"
        )
    return None


def _poisons(error: BaseException | None) -> bool:
    """Whether CUDA or NCCL can't go on in this process: after a device-side assert, say, every later call fails with its error.

    Running out of memory is no such error, and a number that names no GPU. The user's code may have raised another error from
    it, or because of it.
    """
    import torch
    import torch.distributed as dist

    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, dist.DistBackendError) or _of_nccl(error) or _left_nccls_group(error):
            return True
        if isinstance(error, torch.AcceleratorError) and not _is_harmless(error):
            return True
        error = error.__cause__ or error.__context__
    if _uses_gpu():
        try:
            torch.cuda.current_stream().query()  # does not wait; an error of CUDA that stays is raised here too
        except torch.AcceleratorError as left:
            return not _is_harmless(left)
        except Exception:  # a stream that can't be asked, for example while it records a graph
            return False
    return False


def _of_nccl(error: BaseException) -> bool:
    """Whether torch raised an error of NCCL as a plain RuntimeError: torch 2.15's class (NCCLException), and the older one in some calls."""
    return type(error) is RuntimeError and any(words in str(error) for words in _NCCL_SAYS)


def _is_harmless(error: BaseException) -> bool:
    """Whether a process can go on after this error of CUDA."""
    return any(words in str(error) for words in ("out of memory", "invalid device ordinal"))


def end_in_peace(*_: object) -> None:
    """Ends this rank when its GPU has done its work: under CUDA's MPS, a process that is killed before can break all others.

    A handler of SIGTERM; a rank in a collective that never ends does not come here, and is killed.
    """
    import torch

    if _uses_gpu():
        try:
            torch.cuda.synchronize()
        except RuntimeError:  # an error of the user's code, which its own call has reported
            pass
    os._exit(0)


def namespace() -> dict[str, Any]:
    """The engine's interactive namespace, where `%%ranks` cells run."""
    from IPython import get_ipython

    shell = get_ipython()
    return shell.user_ns if shell is not None else {}
