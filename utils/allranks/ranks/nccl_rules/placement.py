"""Where each tensor is: on the rank's device, or in the CPU's memory, on a machine that has no device.

All tensors are in the CPU's memory here. Those that a program made for the CPU are marked by their storage, and so is all that
is computed from them. Two modes of torch see every call: `_Calls` the calls in Python (which name a device), `_Kernels` the
operations (which mix tensors, and read and write memory).
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any
from unittest import mock

import torch
import torch.distributed.device_mesh
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils import dlpack
from torch.utils._python_dispatch import TorchDispatchMode

from allranks.ranks.engines.usercode import in_library
from allranks.ranks.nccl_rules.flight import Flight, tensors_of
from allranks.ranks.nccl_rules.refusals import NOT_IN_CUDA, NcclRuleError, Rule, check_kernel

DEVICE = torch.device("cpu", 0)  # stands for the rank's GPU; torch.device("cpu") is the CPU's memory
HOST = torch.device("cpu")
_TO_NUMPY: set[Any] = {torch.Tensor.numpy, torch.Tensor.__array__}
_SHOWN = {torch.Tensor.__repr__, torch.Tensor.tolist}  # they read the values where `_Kernels` does not look
_LIFT = torch.ops.aten.lift_fresh.default
_MOVES = {torch.Tensor.to, torch.Tensor.cpu, torch.Tensor.cuda}
_GET_DEVICE = torch.Tensor.device.__get__
_IS_CUDA = torch.Tensor.is_cuda.__get__  # type: ignore[attr-defined]
_DISTRIBUTED = "torch/distributed/"
_LOADERS = "torch/utils/data/"
# operations that take tensors of both places: copies, and indices in the CPU's memory for a tensor on the device
_CROSS = {"copy_", "_to_copy", "_copy_from", "set_", "lift_fresh", "detach", "resize_"}
_FILLING = {"index_put_", "_index_put_impl_", "_unsafe_index_put", "index_put"}
_INDEXING = {"index", "_unsafe_index", *_FILLING}
_JOINING = {"cat", "stack"}  # they refuse numbers in the CPU's memory too, which others let join tensors on the device


class Placement:
    """Knows where tensors are, and which memory operations still use (`flight`).

    Inside `with placement:` torch behaves as on a rank with a GPU: a tensor made without device= or with device=DEVICE is on
    the device, one with device="cpu" is not; "cuda" means DEVICE. What a GPU refuses raises NcclRuleError.

    Example:
        >>> with Placement() as placement:
        ...     a, b = torch.ones(2), torch.ones(2, device="cpu")
        >>> placement.on_host(a), placement.on_host(b)
        (False, True)
    """

    def __init__(
        self,
        flight: Flight | None = None,
        synchronize: Callable[[], None] | None = None,
        index: int = 0,
        count: int = 1,
    ) -> None:
        """The rank's GPU has the number `index` among the `count` GPUs that it sees."""
        self.index, self.count = index, count
        self.flight = flight or Flight()
        self.synchronize = synchronize or self.flight.land_all
        self._host: dict[int, StorageWeakRef] = {}
        self._sweep_at = 1024
        self.calls = 0  # how many calls of torch in Python are under way, one inside the other
        self._modes: contextlib.ExitStack | None = None

    def __enter__(self) -> Placement:
        self._modes = contextlib.ExitStack()
        for mode in (_patched(self), _Kernels(self), _Calls(self)):
            self._modes.enter_context(mode)
        return self

    def __exit__(self, *exc_info: object) -> None:
        modes, self._modes = self._modes, None
        if modes is not None:
            modes.close()

    def on_host(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor is in the CPU's memory."""
        key = _key(tensor)
        found = self._host.get(key) if key is not None else None
        return found is not None and not found.expired()  # type: ignore[no-untyped-call]  # torch gives it no types

    def mark_host(self, value: Any) -> Any:
        """Says that all tensors of a value are in the CPU's memory; returns the value."""
        for tensor in tensors_of((value,)):
            key = _key(tensor)
            if key is not None:
                # the weak reference keeps the storage's address from being used again
                with torch._C.DisableTorchFunction():
                    self._host[key] = StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]  # torch gives it no types
        if len(self._host) > self._sweep_at:
            self._host = {key: ref for key, ref in self._host.items() if not ref.expired()}  # type: ignore[no-untyped-call]  # torch gives it no types
            self._sweep_at = max(1024, 2 * len(self._host))
        return value

    def take_from_host(self, value: Any, inputs: Any) -> None:
        """Says that new tensors are on the device, although they were made from tensors in the CPU's memory."""
        if self._host:
            kept = {_key(tensor) for tensor in tensors_of((inputs,))}
            for tensor in tensors_of((value,)):
                key = _key(tensor)
                if key is not None and key not in kept:
                    self._host.pop(key, None)

    def check_gpu(self, named: object) -> None:
        """Raises NcclRuleError if a program names a GPU that is another rank's: "cuda:0", 0, or such a torch.device."""
        if named is None or isinstance(named, bool) or not isinstance(named, int | str | torch.device):
            return
        try:
            device = torch.device("cuda", named) if isinstance(named, int) else torch.device(named)
        except RuntimeError:
            return
        if device.type == "cuda" and device.index not in (None, self.index):
            raise NcclRuleError(
                Rule.OTHER_GPU,
                f"cuda:{device.index} is another rank's GPU: this rank's is cuda:{self.index}. NCCL and symmetric memory take one "
                "rank a GPU. Write device, or cuda without a number, or torch.cuda.set_device(int(os.environ['LOCAL_RANK'])).",
            )

    def check_collective(self, op: str, tensors: list[torch.Tensor]) -> None:
        """Raises NcclRuleError if a tensor that an operation is to move is not on the device."""
        for tensor in tensors:
            if self.on_host(tensor):
                raise NcclRuleError(
                    Rule.HOST_TENSOR,
                    f"{op}: NCCL moves only tensors on the rank's GPU, and this one is in the CPU's memory. Make it with "
                    "device=device, or move it with .to(device).",
                )


def _key(tensor: torch.Tensor) -> int | None:
    """The address of a tensor's storage; None for a tensor without one of its own, such as a DTensor."""
    if not _is_plain(type(tensor)):
        return None
    try:
        with torch._C.DisableTorchFunction():
            return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):
        return None


def _wanted(device: object) -> torch.device | None:
    """The place that an argument names: DEVICE, HOST, or None if it names no device of a rank."""
    if device is None or isinstance(device, bool):
        return None
    if isinstance(device, int):
        return DEVICE
    if isinstance(device, str):
        try:
            device = torch.device(device)
        except RuntimeError:
            return None
    if not isinstance(device, torch.device) or device.type not in ("cpu", "cuda"):
        return None
    return DEVICE if device.type == "cuda" or device.index is not None else HOST


def _caller() -> str:
    """The file of the code whose call a mode sees: below this file, and below what torch wraps around a mode."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.endswith(
        (__file__, "/torch/_dynamo/eval_frame.py", "/torch/_compile.py")
    ):
        frame = frame.f_back
    return frame.f_code.co_filename if frame is not None else ""


def _called_by_torch_distributed() -> bool:
    """Whether the call comes from a file of torch.distributed, which says "cpu" for the group's own device."""
    return _DISTRIBUTED in _caller()


def _is_plain(kind: type) -> bool:
    """Whether tensors of this type are torch's own, and not a DTensor, say, that handles its operations in Python."""
    return kind.__torch_dispatch__ is torch._C._disabled_torch_dispatch_impl  # type: ignore[attr-defined]


class _Calls(TorchFunctionMode):
    """Sees each call of torch in Python: which device it names, and what leaves the device."""

    def __init__(self, placement: Placement) -> None:
        super().__init__()
        self.placement = placement

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if isinstance(func, torch._ops.OpOverload):  # `_Kernels` calls it
            return func(*args, **(kwargs or {}))
        self.placement.calls += 1
        try:
            return self._call(func, args, kwargs or {})
        finally:
            self.placement.calls -= 1

    def _call(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if func == _GET_DEVICE:
            answer = func(*args, **kwargs)
            if answer.type != "cpu" or _called_by_torch_distributed():
                return answer
            return HOST if self.placement.on_host(args[0]) else DEVICE
        if func == _IS_CUDA:
            return not in_library(_caller()) and not self.placement.on_host(args[0])
        if func in _TO_NUMPY and not self.placement.on_host(args[0]):
            raise NcclRuleError(
                Rule.NUMPY,
                "NumPy can't read a tensor on the rank's GPU. Copy it to the CPU's memory first: tensor.cpu().numpy(), or "
                "take plain numbers with tensor.tolist().",
            )
        pickled = func is torch.Tensor.untyped_storage and _caller().endswith("torch/_tensor.py")
        if func in _SHOWN or pickled:
            self.placement.flight.touch(args[0], writing=False)
        if func in _MOVES:
            return self._move(func, args, kwargs)
        if func is torch.Tensor.type_as:
            return func(*args, **kwargs) if self._same_place(args) else self._move(torch.Tensor.to, args, kwargs)
        self.placement.check_gpu(kwargs.get("device"))
        device = _wanted(kwargs.get("device"))
        if device is None:
            self._check_generator(kwargs, DEVICE, args)
            return func(*args, **kwargs)
        kwargs = {**kwargs, "device": HOST}
        if device is HOST and _called_by_torch_distributed():
            device = DEVICE
        self._check_generator(kwargs, device, args)
        result = func(*args, **kwargs)
        if device == HOST:
            return self.placement.mark_host(result)
        self.placement.take_from_host(result, args)
        return result

    def _same_place(self, tensors: Any) -> bool:
        return len({self.placement.on_host(tensor) for tensor in tensors}) == 1

    def _check_generator(self, kwargs: dict[str, Any], device: torch.device, args: Any) -> None:
        generator = kwargs.get("generator")
        if not isinstance(generator, torch.Generator):
            return
        tensors = tensors_of(args)
        if tensors:
            device = HOST if self.placement.on_host(tensors[0]) else DEVICE
        there = getattr(generator, "place", HOST)
        if there != device and _LOADERS in _caller():
            raise NcclRuleError(
                Rule.GENERATOR,
                "A DataLoader or sampler that shuffles makes its random numbers on the default device, here the rank's GPU, and "
                "its generator is for the CPU. Give it one: DataLoader(..., shuffle=True, generator=torch.Generator(device)).",
            )
        if there != device:
            raise NcclRuleError(
                Rule.GENERATOR,
                f"This random generator is for {'the CPU' if there == HOST else 'the device'}, and the tensor is "
                f"{'on the device' if device == DEVICE else 'in the memory of the CPU'}. Make the generator with "
                f"torch.Generator({'device' if device == DEVICE else ''}).",
            )

    def _move(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        tensor, *rest = args
        name = func.__name__
        if name in ("cpu", "cuda"):
            self.placement.check_gpu(rest[0] if rest else kwargs.get("device"))
            device: torch.device | None = HOST if name == "cpu" else DEVICE
            rest, kwargs = [], {k: v for k, v in kwargs.items() if k == "memory_format"}
        else:
            other = rest[0] if rest and isinstance(rest[0], torch.Tensor) else kwargs.get("other")
            if isinstance(other, torch.Tensor):
                device = HOST if self.placement.on_host(other) else DEVICE
            else:
                named = rest[0] if rest and not isinstance(rest[0], torch.dtype) else kwargs.get("device")
                self.placement.check_gpu(named)
                device = _wanted(named)
                if device is not None and rest and not isinstance(rest[0], torch.dtype):
                    rest = [HOST, *rest[1:]]
                elif device is not None:
                    kwargs = {**kwargs, "device": HOST}
                if device is HOST and _called_by_torch_distributed():
                    device = None
        moved = tensor if name in ("cpu", "cuda") else func(tensor, *rest, **kwargs)
        if not isinstance(tensor, torch.Tensor) or device is None:
            return moved
        if (device == HOST) == self.placement.on_host(tensor):
            return moved
        if moved is tensor or _key(moved) == _key(tensor):
            moved = moved.clone()
        if device == HOST:
            return self.placement.mark_host(moved)
        # computed from a marked tensor, so marked too; a move to the device takes the mark away
        self.placement._host.pop(_key(moved) or 0, None)
        return moved


class _Kernels(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch gives it no types
    """Sees each operation on tensors: where they are, and which memory it reads and writes."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: torch would import its compiler for that, which takes seconds, in each rank."""
        return False

    def __init__(self, placement: Placement) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch gives it no types
        self.placement = placement

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        placement = self.placement
        if any(kind.__module__.startswith("torch._subclasses") for kind in types):
            return func(*args, **kwargs)  # a tensor that only stands for one, with which DTensor asks for shapes
        if not all(map(_is_plain, types)):  # it calls operations on the tensors that it holds, and those come here
            return NotImplemented
        if not placement.calls and (func is _LIFT or not tensors_of(args)) and not in_library(_caller()):
            return placement.mark_host(func(*args, **kwargs))  # torch.Tensor(...), which ignores the default device
        if (name := func.overloadpacket.__name__) in NOT_IN_CUDA and not placement.on_host(args[0]):
            check_kernel(name, args[0].dtype)
        if not placement.flight.operations and not placement._host:
            return func(*args, **kwargs)
        tensors = tensors_of(args) + tensors_of(list(kwargs.values()))
        if placement.flight.operations:
            self._touch(func, args, kwargs, tensors)
        if not placement._host:
            return func(*args, **kwargs)
        host = [placement.on_host(t) for t in tensors]
        if any(host) and not all(host):
            self._check_mixed(name, args, tensors, host)
        result = func(*args, **kwargs)
        if tensors and (host[0] if name in _INDEXING or name == "copy_" else all(host)):
            placement.mark_host(result)
        return result

    def _touch(self, func: Any, args: Any, kwargs: dict[str, Any], tensors: list[torch.Tensor]) -> None:
        if torch.Tag.inplace_view in func.tags or func.is_view:
            return  # it makes another view of the same memory, and reads nothing
        if func.namespace.startswith(("_c10d", "c10d")):
            return  # functional collectives, and so DTensor and FSDP, hand tensors over and wait for them themselves
        written: set[int] = set()
        for place, argument in enumerate(func._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                value = args[place] if place < len(args) else kwargs.get(argument.name)
                written |= {id(t) for t in tensors_of((value,))}
        for tensor in tensors:
            if _is_plain(type(tensor)):
                self.placement.flight.touch(tensor, id(tensor) in written)

    def _check_mixed(self, name: str, args: Any, tensors: list[torch.Tensor], host: list[bool]) -> None:
        if name in _CROSS:
            return
        if name in _INDEXING and not host[0]:  # the indices may be anywhere; of new values, only a single one
            tensors = [t for t in tensors_of(args[2:3]) if t.numel() > 1] if name in _FILLING else []
            host = [self.placement.on_host(tensor) for tensor in tensors]
        # a number in the CPU's memory may join tensors on the device
        if name not in _JOINING and all(
            not there or tensor.dim() == 0 for tensor, there in zip(tensors, host, strict=True)
        ):
            return
        raise NcclRuleError(
            Rule.MIXED_DEVICES,
            f"{name}: expected all tensors on the same device, but some are on the rank's GPU and some are in the CPU's "
            "memory. Make them all with device=device, or move them with .to(device).",
        )


class _Generator(torch.Generator):
    """A generator that knows for which place it was made."""

    def __new__(cls, device: Any = HOST) -> _Generator:
        made = super().__new__(cls, HOST)  # type: ignore[call-arg]  # torch gives it no types
        made.place = _wanted(device) or HOST
        return made

    place: torch.device


def for_users(instead: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    """A function that calls `instead` for a user's code, and the original one for libraries."""

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        return (original if in_library(_caller()) else instead)(*args, **kwargs)

    return call


def _with_cpu_for_cuda(function: Callable[..., Any], place: int, name: str) -> Callable[..., Any]:
    """A function whose argument `name`, at this place, may be "cuda" or a cuda device; torch for CPUs gets "cpu"."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = args[place] if place < len(args) else kwargs.get(name)
        if str(given).split(":")[0] == "cuda":
            if place < len(args):
                args = (*args[:place], "cpu", *args[place + 1 :])
            else:
                kwargs[name] = "cpu"
        return function(*args, **kwargs)

    return call


def _without_device_ids(function: Callable[..., Any], placement: Placement) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(
        self: Any, module: Any, device_ids: Any = None, output_device: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        for named in (*(device_ids or ()), output_device):
            placement.check_gpu(named)
        return function(self, module, None, None, *args, **kwargs)

    return call


@contextlib.contextmanager
def _patched(placement: Placement) -> Iterator[None]:
    """What torch's modes can't see: sources of CPU tensors, and the functions of torch.cuda that a program calls."""

    def marking(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            made = function(*args, **kwargs)
            # a tensor on the device may share its memory with another one there
            shared = [t for t in tensors_of(args) if not placement.on_host(t)]
            return made if shared else placement.mark_host(made)

        return call

    with contextlib.ExitStack() as stack:
        for module, name in (
            (torch, "from_numpy"),
            (torch, "frombuffer"),
            (torch, "from_dlpack"),
            (dlpack, "from_dlpack"),
        ):
            stack.enter_context(mock.patch.object(module, name, marking(getattr(module, name))))
        stack.enter_context(mock.patch.object(torch, "Generator", _Generator))
        torch.set_default_device(DEVICE)  # also what torch.get_default_device() answers
        stack.callback(torch.set_default_device, None)
        for owner, name, place, argument in (
            (torch.distributed, "init_device_mesh", 0, "device_type"),
            (torch.distributed.device_mesh, "init_device_mesh", 0, "device_type"),
            (torch.autocast, "__init__", 1, "device_type"),
        ):
            function = _with_cpu_for_cuda(getattr(owner, name), place, argument)
            stack.enter_context(mock.patch.object(owner, name, function))
        ddp = torch.nn.parallel.DistributedDataParallel
        stack.enter_context(mock.patch.object(ddp, "__init__", _without_device_ids(ddp.__init__, placement)))
        cuda = torch.cuda
        for name, instead in (
            ("is_available", lambda: True),
            ("device_count", lambda: placement.count),
            ("current_device", lambda: placement.index),
            ("set_device", placement.check_gpu),
        ):
            function = for_users(instead, getattr(cuda, name))
            stack.enter_context(mock.patch.object(cuda, name, function))
        stack.enter_context(mock.patch.object(cuda, "synchronize", lambda device=None: placement.synchronize()))
        yield
