"""Inside a rank: a thread that reports what the main thread is doing, even while it waits in gloo or NCCL.

The thread reads the main thread's frames only when asked, so it costs nothing otherwise. Where the main thread holds
the GIL in C code for ever, this thread can't answer; then SIGUSR1 and faulthandler do (see `rank.arm_stack_dump`).
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import linecache
import os
import queue
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

from allranks.ranks.engines.usercode import in_library

C10D = "distributed_c10d.py"
# torch's wrapper functions between a public collective and its caller
PLUMBING = {"wrapper", "func_wrapper", "_wrapper"}
_TENSORS = ("tensor", "input", "input_tensor", "output", "output_tensor", "tensor_list", "input_list")
_PEERS = ("dst", "src", "group_dst", "group_src")
# Asked first by `status`, in the watching thread: what does this process wait for below the user's line? None: for nothing
# that this function knows. Else a dict of what `status` returns: waits_for ("GPU", "queue"), op, peer, shape, dtype, group,
# seq, and begun, the line where that operation was begun.
waits: list[Callable[[], dict[str, Any] | None]] = []


def serve(path: str) -> None:
    """Starts a thread that answers every connection to the Unix socket `path` with one JSON object (see `status`)."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(path)
    os.chmod(path, 0o600)
    listening.listen(8)
    threading.Thread(target=_answer, args=(listening,), name="allranks-watch", daemon=True).start()


def _answer(listening: socket.socket) -> None:
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            return
        with connection, contextlib.suppress(OSError):
            connection.sendall(json.dumps(status()).encode())


LOOK_AGAIN_S = 0.2  # 40 times as long as Python lets one thread run before another may; `ask_ranks` waits 0.5
ASK_S = 0.05  # how long CUDA may take to answer; a look has two such questions
NOT_READY = 600  # cudaErrorNotReady, in every version from 11 to 13
RELAXED = 2  # cudaStreamCaptureModeRelaxed, and the driver's


def status() -> dict[str, Any]:
    """What the main thread is doing: some of op, peer, shape, dtype, group, seq, file, line, text, waits_for and begun.

    seq is how many collectives the group has begun. For waits_for and begun see `waits`.
    """
    frame = _main_frame()
    found, below = _look(frame), _below()
    # a tensor's value is read in C code, of which no frame tells: x.item(), print(x), x.cpu()
    if not below and found.keys() == {"file", "line", "text"} and _stands(frame):
        below = {"waits_for": "GPU", **_counted(None)}
    return {**found, **below}


def _main_frame() -> FrameType | None:
    """The main thread's innermost frame."""
    return sys._current_frames().get(threading.main_thread().ident or 0)


_ran: list[bool] = []  # the main thread has run Python code since we asked


def _run(_: object) -> int:
    _ran.append(True)
    return 0


_run_in_c = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(_run)


def _stands(frame: FrameType | None) -> bool:
    """Whether the main thread stays in one call of C code while its GPU has unfinished work: then it waits for that.

    A call that computes on the CPU for long, while the GPU works too, looks the same.
    """
    return frame is not None and stands(lambda: gpu_works(frame))


def stands(works: Callable[[], bool]) -> bool:
    """Whether the main thread stays in one call of C code while `works` says that what it may wait for is not done."""
    if not works():
        return False
    _ran.clear()
    # frames alone can't tell: a loop is always seen at its end, where Python lets other threads run
    ctypes.pythonapi.Py_AddPendingCall(_run_in_c, None)
    time.sleep(LOOK_AGAIN_S)
    return not _ran and works()


_gpu: list[Any] = []  # the rank's device


def on_gpu(device: Any) -> None:
    """Says which GPU this rank uses."""
    _gpu[:] = [device]


def _gpu_works(frame: FrameType) -> bool:
    """Whether a stream that the main thread may wait for has unfinished work. Starts no CUDA, and waits for at most `ASK_S`.

    These are the default stream, and those that the user's code has in its variables: only the main thread itself could
    tell which stream it uses now.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized() or not _gpu:
        return False
    streams, at = [0], frame  # 0: the default stream
    while at is not None:
        if not in_library(at.f_code.co_filename):
            values = (*at.f_locals.values(), *at.f_globals.values())
            streams += [value.cuda_stream for value in values if isinstance(value, torch.cuda.Stream)]
        at = at.f_back  # type: ignore[assignment]  # the loop ends there
    if not _questions:
        _questions.append(queue.SimpleQueue())
        library = f"libcudart.so.{(torch.version.cuda or '').split('.')[0]}"
        about = (_questions[0], library, _gpu[0].index)
        threading.Thread(target=_ask_cuda, args=about, name="allranks-cuda", daemon=True).start()
    answer: queue.SimpleQueue[bool] = queue.SimpleQueue()
    _questions[0].put((streams, answer))
    try:
        return answer.get(timeout=ASK_S)
    except queue.Empty:  # the driver answers nobody while it frees memory, say, and waits for the GPU itself
        return True


_questions: list[queue.SimpleQueue[Any]] = []  # (streams, where the answer goes)


def _ask_cuda(questions: queue.SimpleQueue[Any], library: str, device: int) -> None:
    """A thread that asks CUDA by its C functions: for those Python's lock is not held, and torch's own `query` holds it."""
    runtime = _runtime(library, device)
    while True:
        streams, answer = questions.get()
        answer.put(runtime is not None and any(_unfinished(runtime, stream) for stream in streams))


def _runtime(library: str, device: int) -> ctypes.CDLL | None:
    """CUDA's library, with this thread set to the device; None if no question may be asked.

    torch records CUDA graphs in global mode, where a question from any thread ends the recording, unless that thread's
    mode is relaxed. The device comes first: a thread begins on cuda:0, which may be another rank's, and the library's
    function for the mode makes a context there, some hundred MB (libcudart 13.0). The driver's own makes none.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode(ctypes.byref(ctypes.c_int(RELAXED)))
    with contextlib.suppress(OSError, AttributeError):
        runtime, relaxed = ctypes.CDLL(library), ctypes.c_int(RELAXED)
        if not runtime.cudaSetDevice(device) and not runtime.cudaThreadExchangeStreamCaptureMode(ctypes.byref(relaxed)):
            return runtime
    return None


def _unfinished(runtime: ctypes.CDLL, stream: int) -> bool:
    """Whether the stream says that it has unfinished work. One that records a graph is not asked: that would end the recording."""
    handle, records = ctypes.c_void_p(stream), ctypes.c_int()
    if runtime.cudaStreamIsCapturing(handle, ctypes.byref(records)) or records.value:
        return False
    said = int(runtime.cudaStreamQuery(handle))
    runtime.cudaGetLastError()  # "not ready" counts as an error, which would stay
    return said == NOT_READY


gpu_works: Callable[[FrameType], bool] = _gpu_works


def _below() -> dict[str, Any]:
    """What the first of `waits` that knows something answers."""
    for ask in waits:
        with contextlib.suppress(Exception):  # a report must come, even if one function can't tell
            if found := ask():
                return found
    return {}


def _look(frame: FrameType | None) -> dict[str, Any]:
    """What the main thread is doing, as its frames tell it."""
    found: dict[str, Any] = {}
    while frame is not None:
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        if file.endswith(C10D) and name not in PLUMBING and not name.startswith("_"):
            found = {"op": name, **_arguments(frame)}
        elif is_waiting_for_gpu(file, name):
            return {"waits_for": "GPU", **_counted(None)}
        elif is_gpu_synchronize(file, name):
            found = {"waits_for": "GPU", **_counted(None)}
        elif of_user(file):
            return {
                **found,
                "file": file,
                "line": frame.f_lineno,
                "text": linecache.getline(file, frame.f_lineno).strip() or None,
            }
        frame = frame.f_back
    return found


def of_user(file: str) -> bool:
    """Whether a line of this file is one that a user looks for: the command that starts a rank (`python -c`) is none."""
    return file != "<string>" and not in_library(file)


def _arguments(frame: FrameType) -> dict[str, Any]:
    """Peer, shape, dtype, group and seq of the call in a frame of torch.distributed, if the frame has them."""
    values: dict[str, Any] = frame.f_locals
    found: dict[str, Any] = {}
    peer = next((values[n] for n in _PEERS if isinstance(values.get(n), int)), None)
    if peer is not None and frame.f_code.co_name in ("send", "recv"):
        found["peer"] = peer
    for name in _TENSORS:
        tensor = values.get(name)
        if isinstance(tensor, (list, tuple)) and tensor:
            tensor = tensor[0]
        if tensor is not None and hasattr(tensor, "dtype") and hasattr(tensor, "shape"):
            found["shape"], found["dtype"] = list(tensor.shape), str(tensor.dtype).removeprefix("torch.")
            break
    return found | _counted(values.get("group"))


_before: dict[Any, int] = {}  # collectives of the default group that the user did not call
# by how much messages have raised a group's number: gloo counts them too, and ranks may send different numbers of them
_by_messages: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
_MESSAGES = ("send", "recv", "recv_anysource")


def count_from_here() -> None:
    """What the default group has begun until now was for setting it up: `seq` leaves it out, and all messages to come."""
    _before.clear()
    c10d = sys.modules["torch.distributed.distributed_c10d"]
    for name in _MESSAGES:
        plain = getattr(c10d.ProcessGroup, name)
        if not hasattr(plain, "__wrapped__"):
            setattr(c10d.ProcessGroup, name, _counting(plain))
    group = c10d._get_default_group()
    with contextlib.suppress(Exception):  # not every backend counts
        _before[group] = _collectives(group)


def _counting(plain: Callable[..., Any]) -> Callable[..., Any]:
    """A group's method that begins a message, and notes what this added to the group's number."""

    @functools.wraps(plain)
    def begun(group: Any, *arguments: Any, **options: Any) -> Any:
        before = _number(group)
        work = plain(group, *arguments, **options)
        if before is not None and (added := (_number(group) or before) - before):
            _by_messages[group] = _by_messages.get(group, 0) + added
        return work

    return begun


def _number(group: Any) -> int | None:
    with contextlib.suppress(Exception):
        number: int = group._get_sequence_number_for_group()
        return number
    return None


def _collectives(group: Any) -> int:
    """How many collectives a group has begun, without messages. Raises what the backend raises if it does not count."""
    number: int = group._get_sequence_number_for_group()
    return number - _by_messages.get(getattr(group, "inner", group), 0)


def _counted(group: Any) -> dict[str, Any]:
    """How many collectives a group has begun (`seq`), and its ranks (`group`). None means the default group."""
    found = {}
    with contextlib.suppress(Exception):
        # not an import statement: it could wait for an import of the main thread that never ends
        c10d = sys.modules["torch.distributed.distributed_c10d"]
        group = group or c10d._get_default_group()
        found["seq"] = _collectives(group) - _before.get(group, 0)
        found["group"] = c10d.get_process_group_ranks(group)
    return found


def is_waiting_for_gpu(file: str, function: str) -> bool:
    """Whether a frame is `rank.wait_for_gpu`: then the user's code has ended, but its GPU is still busy."""
    return function == "wait_for_gpu" and file.endswith("engines/rank.py")


def is_gpu_synchronize(file: str, function: str) -> bool:
    """Whether a frame is one of torch's functions that wait for the GPU: of the device, a stream or an event."""
    return function == "synchronize" and file.endswith(("torch/cuda/__init__.py", "torch/cuda/streams.py"))
