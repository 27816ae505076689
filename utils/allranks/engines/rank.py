"""What runs inside the forked processes: ipyparallel's engine, and a rank's entry to torch.distributed.

`join`, `call`, `cell` and `pull` are called over ipyparallel by `World`; students never see them.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from allranks.engines.devices import GPU_SHARE_ENV, MEMORY_ENV
from allranks.engines.usercode import in_library

if TYPE_CHECKING:
    import torch

STACKS_ENV = "ALLRANKS_STACKS"  # the file that a rank writes its stacks to when it gets SIGUSR1
WATCH_ENV = "ALLRANKS_WATCH"  # the socket on which it tells where it stands
# World's own deadline comes first; a group's time-out only poisons the group
GROUP_TIMEOUT_S = 24 * 3600


def engine(args: dict[str, Any], fds: list[int]) -> None:
    """Runs ipyparallel's engine with the arguments in `args["argv"]` until it is told to stop."""
    from ipyparallel.engine.app import IPEngine

    arm_stack_dump()
    sys.modules["debugpy"] = None  # type: ignore[assignment]  # a debugger can't reach a rank, and its import is half of an engine's start
    sys.argv = ["ipengine", *args["argv"]]
    IPEngine.launch_instance(args["argv"])


def arm_stack_dump() -> None:
    """Lets SIGUSR1 write every thread's Python stack to `$ALLRANKS_STACKS`, also while the main thread sits in C++."""
    path = os.environ.get(STACKS_ENV)
    if path:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        faulthandler.register(signal.SIGUSR1, file=descriptor, all_threads=True, chain=False)
        faulthandler.enable(file=descriptor, all_threads=True)


def join(
    rank: int, world_size: int, backend: str, meet: str, env: dict[str, str], threads: int, path: list[str] | None
) -> dict[str, Any]:
    """Makes this engine one rank of a new default group, and its namespace ready; what it is, as `describe` says it.

    Every rank must call it at once. `meet` is torch's init_method: the rendezvous file, or an address, `env` what must be set before CUDA
    starts (CUDA_VISIBLE_DEVICES), `threads` how many threads torch may use in this rank, `path` the notebook's
    sys.path, so that both find the same modules.
    """
    from datetime import timedelta

    os.environ.update(env)
    arm_stack_dump()
    if path is not None:
        sys.path[:] = path

    import torch
    import torch.distributed as dist

    from allranks.engines import watch

    if WATCH_ENV in env:
        watch.serve(env[WATCH_ENV])
    if dist.is_initialized():  # an engine that a notebook joined before
        dist.destroy_process_group()

    torch.set_num_threads(threads)
    _limit_memory(env.get(MEMORY_ENV))
    device = torch.device("cpu")
    if backend == "nccl":
        device = torch.device("cuda", 0)  # CUDA_VISIBLE_DEVICES shows this rank its own GPU only
        torch.cuda.set_device(device)
        _limit_gpu_memory(env.get(GPU_SHARE_ENV), device)
        torch.set_default_device(device)  # so that a cell's torch.ones(4) is on the GPU, and the text is one for both
    dist.init_process_group(
        backend,
        init_method=meet,
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=GROUP_TIMEOUT_S),
    )
    _namespace().update(rank=rank, world_size=world_size, device=device, torch=torch, dist=dist)
    # the first collective connects everybody to everybody: paid here, not in the student's first cell
    dist.all_reduce(torch.zeros(1, device=device))
    wait_for_gpu()
    return describe()


def _limit_memory(limit: str | None) -> None:
    """Lets this rank fill `limit` bytes; more is a MemoryError or torch's own, which names the size."""
    if limit:
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = int(limit) if hard == resource.RLIM_INFINITY else min(int(limit), hard)
        resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))


def _limit_gpu_memory(share: str | None, device: torch.device) -> None:
    """Lets this rank's tensors fill that share of its GPU's memory; more is torch's own error, which names both sizes.

    What CUDA and NCCL take for themselves comes on top: some hundred MB a rank.
    """
    if share:
        import torch

        torch.cuda.set_per_process_memory_fraction(float(share), device)


def describe() -> dict[str, Any]:
    """This rank in plain data: rank, pid, device in words, backend, torch's and NCCL's versions."""
    import torch
    import torch.distributed as dist

    on_gpu = dist.get_backend() == "nccl"
    threads = torch.get_num_threads()
    nccl = ".".join(map(str, torch.cuda.nccl.version())) if on_gpu else None  # type: ignore[no-untyped-call]  # torch gives it no types
    return {
        "rank": dist.get_rank(),
        "pid": os.getpid(),
        "device": torch.cuda.get_device_name() if on_gpu else f"CPU, {threads} thread{'' if threads == 1 else 's'}",
        "backend": dist.get_backend(),
        "torch": str(torch.__version__),  # plain: its own type would have whoever reads it import torch
        "nccl": nccl,
    }


def cell(source: str) -> bytes:
    """Runs the source of a `%%ranks` cell in this rank's interactive namespace; the outcome as `call` gives it."""
    from IPython import get_ipython

    shell = get_ipython()
    show, shell._showtraceback = shell._showtraceback, lambda *_: None  # the notebook shows it, once for all ranks
    try:
        result = shell.run_cell(source, store_history=True)
    finally:
        shell._showtraceback = show
    error = result.error_before_exec or result.error_in_exec
    if error is None:
        try:
            wait_for_gpu()
        except Exception as late:
            error = late
    return _dumps("value", None) if error is None else _dumps("error", describe_error(error))


def pull(name: str) -> bytes:
    """The value of a variable that a `%%ranks` cell set on this rank, as `call` gives it."""
    namespace = _namespace()
    if name not in namespace:
        message = f"there is no {name!r} on this rank"
        return _dumps("error", {"type": "NameError", "message": message, "hint": None, "frames": []})
    return _pack(namespace[name], name)


def call(payload: bytes) -> bytes:
    """Calls the function in `payload` (cloudpickled (function, args, kwargs)); the outcome, cloudpickled.

    The outcome is ("value", result) or ("error", {...}): an exception crosses as data, with the lines of the student's
    own frames, so that the notebook can show it without a traceback of the plumbing.
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
    """Waits until this rank's GPU has done what was queued: with NCCL a call returns though others never come."""
    import torch

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
    """A value as `call` gives it; its CUDA tensors come to the CPU, for the notebook must not start CUDA."""
    import torch
    from torch.utils import _pytree

    try:
        if _uses_gpu():
            value = _pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.cpu(), value)
        return _dumps("value", value)
    except Exception as error:
        return _dumps("error", describe_error(error, hint=f"while {what} was packed to be sent back"))


def describe_error(error: BaseException, hint: str | None = None) -> dict[str, Any]:
    """An exception as plain data: type, message, and its frames outside the libraries as (file, line, function, text)."""
    import linecache
    import traceback

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
        "frames": [(file, line, name, linecache.getline(file, line).strip()) for file, line, name in frames],
    }


def _namespace() -> dict[str, Any]:
    """The engine's interactive namespace, where `%%ranks` cells run."""
    from IPython import get_ipython

    shell = get_ipython()
    return shell.user_ns if shell is not None else {}
