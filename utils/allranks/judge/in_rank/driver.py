"""Runs inside a rank: builds the arguments, calls the student's function, hands back the results.

A rank may hand back anything; the trusted process checks and compares it.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import numbers
import os
from collections.abc import Callable
from types import CodeType
from typing import Any

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from allranks.judge.in_rank.live import kept_nbytes, memory_now
from allranks.ranks.engines.alone import objects_made_here
from allranks.ranks.wire.buffers import holds_poison
from allranks.ranks.wire.endpoint import do_piece, take_piece
from allranks.ranks.wire.values import dtype_name, from_raw, raw
from allranks.ranks.wire.window import memory

WRAPPER = "__allranks_call__"
LONGEST_TEXT = 40  # more of a returned text is not read
KEPT_NBYTES = 8  # of the number that says how many bytes a call keeps until its gradient comes
MOST_WHOLE = 2  # blocks that `Blocks` computes with
# what a rank says to a wrong call: {} are numbers of the case, which grading doesn't show
WROTE_INTO_GRADIENT = "a backward() wrote into the gradient that autograd gave it: copy it first"
ALL_COMPUTED = "every block has been computed forward and backward"
OTHER_BLOCK = "compute({}, ...) was called, but block {} is next, {}"
OTHER_SIZE = "block {} has {} weights, but compute got {}"
OTHER_DTYPE = "the shards of block {} are {}, but compute got {}"
OTHER_SHAPE = "add(into, part): into has the shape {}, part has {}"
WITHOUT_NUMBERS = {
    WROTE_INTO_GRADIENT: WROTE_INTO_GRADIENT,
    ALL_COMPUTED: ALL_COMPUTED,
    OTHER_BLOCK: "compute was called for another block than the one that is next",
    OTHER_SIZE: "compute got another number of weights than the block has",
    OTHER_DTYPE: "compute got weights of another dtype than the block's shards",
    OTHER_SHAPE: "add(into, part): the two shapes differ",
}
_NO_CHANCE = 16  # bytes of weights that nothing else has by chance
_TAIL = "__import__('allranks.judge.in_rank.driver', fromlist=['at_end']).at_end(globals(), {function!r})"
_END = """
def {wrapper}(case):
    from allranks.judge.in_rank.driver import call
    return call({function}, case)
"""


_earlier: list[tuple[Any, list]] = []  # what the calls of this run before returned, and their tensors


def wrapped(text: str, function: str) -> str:
    """The student's text followed by the wrapper that a rank calls; the student's line numbers stay."""
    return f"{text}\n\n{_TAIL.format(function=function)}\n"


def at_end(program: dict, function: str) -> None:
    """Adds the wrapper to the program, which ends with a call of this."""
    exec(_end(function), program)


@functools.lru_cache(maxsize=1)
def _end(function: str) -> CodeType:
    end = _END.format(wrapper=WRAPPER, function=function)
    return compile(end, "<frozen allranks>", "exec")  # a file name of our own, so that no message names these lines


def call(function: Callable, case: dict) -> dict:
    """What the student's function returned on this rank's arguments, and every tensor after the call.

    The last of several calls also hands back what the earlier ones returned, as it is now: `earlier`.
    """
    if case["call"] == 0:
        _earlier.clear()
    for name, value in case["environ"].items():
        if os.environ.get(name) != value:
            os.environ[name] = value
    handles: list = []
    arguments: list = []
    described = case["args"]
    upstream = _view(described[-1][2:])[0] if described and described[-1][0] == "upstream" else None
    for spec in described if upstream is None else described[:-1]:
        arguments.append(_build(spec, handles, arguments))
    if upstream is not None and described[-1][1]:
        before = memory_now()
        returned = function(*arguments)
        kept = kept_nbytes(before, returned)
        piece = take_piece(used=kept.to_bytes(KEPT_NBYTES, "big"))
        upstream.copy_(from_raw(piece.read(), upstream.dtype, upstream.shape))
    else:
        returned = function(*arguments)
    if upstream is not None:
        _differentiate(returned, upstream)
    _earlier.append((returned, handles))
    result = {"returned": _plain(returned), "tensors": [_state(handle) for handle in handles]}
    if case["last"]:
        result["earlier"] = [
            {"returned": _plain(value), "tensors": [_state(handle) for handle in held]} for value, held in _earlier[:-1]
        ]
        _earlier.clear()
    return result


def _differentiate(returned: Any, upstream: torch.Tensor) -> None:
    """Backward from what the function returned; what can't be differentiated leaves no gradients, and the comparison says so."""
    fits = isinstance(returned, torch.Tensor) and (returned.shape, returned.dtype) == (upstream.shape, upstream.dtype)
    if fits and returned.requires_grad:
        before = upstream.clone()
        returned.backward(upstream)
        if not torch.equal(upstream.nan_to_num(), before.nan_to_num()):
            raise ValueError(WROTE_INTO_GRADIENT)


def _build(spec: list, handles: list, before: list) -> Any:
    """An argument from its description. `handles` collects every tensor with its storage; `before` are the arguments, or the
    items of the same list, to the left of it."""
    kind, *rest = spec
    if kind == "view":
        tensor, base = _view(rest)
        handles.append((tensor, "data", base, tensor))
        return tensor
    if kind == "parameter":
        tensor, base = _view(rest[0])
        tensor.requires_grad_(rest[1] is not None)
        handles.append((tensor, "data", base, tensor))
        if rest[1] is not None:
            grad, base = _view(rest[1])
            handles.append((tensor, "grad", base, grad))
            if not rest[2]:
                tensor.grad = grad
        return tensor
    if kind == "tied":
        return before[rest[0]]
    if kind == "backward":
        gradients = [window for _, which, _, window in handles if which == "grad"]
        return _backward(before[0], gradients, *rest)
    if kind == "blocks":
        return _blocks(rest[0], rest[1], [window for _, _, _, window in handles])
    if kind == "memory":
        return memory()
    if kind == "multiply":
        return _multiply(*rest)
    if kind == "add":
        return _add
    if kind == "work":
        return _work
    if kind == "function":
        scale, shift = rest
        return lambda x: x * scale + shift
    if kind in ("list", "tuple"):
        items: list = []
        for item in rest[0]:
            items.append(_build(item, handles, items))
        return tuple(items) if kind == "tuple" else items
    return rest[0]


def _backward(parameters: list, gradients: list, order: list[int]) -> Callable:
    """The function that computes one gradient after the other, in virtual time. Nobody here has a gradient before that."""

    def backward(ready: Callable[[int], Any]) -> None:
        for place in order:
            gradient = gradients[place]
            gradient.copy_(from_raw(take_piece().read(), gradient.dtype, gradient.shape))
            parameters[place].grad = gradient
            ready(place)

    return backward


def _blocks(order: list[int], sizes: list[int], shards: list[torch.Tensor]) -> Callable:
    """The function that computes one block after the other, in virtual time: forward, then backward with its gradient.

    The weights that it gets go to the trusted process, which compares them.
    """
    turns = iter(enumerate(order))
    used: list[StorageWeakRef] = []  # the memory of whole blocks that may still be there
    known: dict[bytes, int] = {}  # the weights that blocks computed with
    late: list[bool] = []  # whether weights had not arrived: who never waits for a gather keeps its memory too

    def compute(block: int, whole: torch.Tensor) -> torch.Tensor | None:
        turn, wanted = next(turns, (0, None))
        if wanted is None:
            raise ValueError(ALL_COMPUTED)
        if block != wanted:
            way = "forward" if turn < len(sizes) else "backward"
            raise ValueError(OTHER_BLOCK.format(block, wanted, way))
        if whole.numel() != sizes[wanted]:
            raise ValueError(OTHER_SIZE.format(wanted, sizes[wanted], whole.numel()))
        if whole.dtype != shards[wanted].dtype:
            right, got = (dtype_name(tensor.dtype) for tensor in (shards[wanted], whole))
            raise ValueError(OTHER_DTYPE.format(wanted, right, got))
        late.append(holds_poison(whole.detach().cpu()))
        mine = StorageWeakRef(whole.untyped_storage())
        if mine not in used:
            used.append(mine)
        weights = _bytes(whole)
        if len(weights) >= _NO_CHANCE and whole.numel() > shards[wanted].numel():
            known[weights] = wanted
        count = _count(used, known, shards, sizes)
        if count > MOST_WHOLE:
            gc.collect()  # a circle of references lives for as long as the collector pleases
            count = _count(used, known, shards, sizes)
        # the judge compares the weights and counts the blocks; a buffer that nobody waits for may be another block's memory
        result = take_piece(used=weights + bytes([0 if any(late) else min(count, 255)])).read()
        if turn < len(sizes):
            return None
        return whole * from_raw(result, whole.dtype, (sizes[wanted],)).to(whole.device)

    return compute


def _count(used: list[StorageWeakRef], known: dict[bytes, int], shards: list[torch.Tensor], sizes: list[int]) -> int:
    """How many whole blocks are in memory, two copies of one block as two.

    Each is a piece of memory that a block computed with, that has a block's weights, or that an all_gather is still to fill.
    """
    used[:] = [memory for memory in used if _is_there(memory)]
    dtype, whole = shards[0].dtype, set(sizes) - {shard.numel() for shard in shards}
    lengths, found = {len(weights) for weights in known}, {memory.cdata for memory in used}
    for thing in objects_made_here(held=True):
        if type(thing) is torch.Tensor and thing.dtype == dtype and _has_memory(thing):
            # not by torch: under NCCL's rules a tensor that a gather still fills must not be read, and here nothing comes of it
            nbytes = thing.numel() * thing.element_size()
            data = ctypes.string_at(thing.data_ptr(), nbytes) if nbytes in lengths or thing.numel() in whole else b""
            if data in known or (thing.numel() in whole and data and _unfilled(data, dtype)):
                found.add(thing.untyped_storage()._cdata)
        elif type(thing) is np.ndarray and thing.flags.owndata:  # else it is a window on a tensor
            if thing.nbytes in lengths and thing.tobytes() in known:
                found.add(id(thing))
    return len(found)


def _unfilled(data: bytes, dtype: torch.dtype) -> bool:
    """Whether it is what stands in memory that an operation has still to fill."""
    return holds_poison(torch.frombuffer(bytearray(data), dtype=dtype))


def _is_there(memory: StorageWeakRef) -> bool:
    """Whether somebody still has the storage, and it has not been given back with resize_(0)."""
    if memory.expired():
        return False
    storage = torch.UntypedStorage._new_with_weak_ptr(memory.cdata)
    return storage is not None and storage.nbytes() > 0


def _has_memory(tensor: torch.Tensor) -> bool:
    """Whether the tensor's elements lie in this process, one behind the other; a storage may have been given back."""
    if tensor.layout != torch.strided or tensor.device.type != "cpu" or not tensor.is_contiguous():
        return False
    return tensor.untyped_storage().nbytes() >= (tensor.storage_offset() + tensor.numel()) * tensor.element_size()


def _bytes(tensor: torch.Tensor) -> bytes:
    return bytes(raw(tensor.detach().cpu().contiguous()))


def _multiply(weight: torch.Tensor) -> Callable:
    """The function that multiplies rows with `weight`, each in virtual time."""

    def multiply(rows: torch.Tensor) -> torch.Tensor:
        for _ in range(len(rows)):
            do_piece()
        return rows @ weight

    return multiply


def _add(into: torch.Tensor, part: torch.Tensor) -> None:
    """Adds in place, in virtual time for each element."""
    if into.shape != part.shape:
        raise ValueError(OTHER_SHAPE.format(tuple(into.shape), tuple(part.shape)))
    if part.numel():
        do_piece(part.numel())
    into += part


def _work() -> None:
    """Computes one piece, in virtual time."""
    do_piece()


def _view(spec: list) -> tuple[torch.Tensor, torch.Tensor]:
    base, size, stride, offset = spec
    base = base.clone()  # the received tensor may be read-only or shared
    return torch.as_strided(base, tuple(size), tuple(stride), offset), base


def _state(handle: tuple) -> list:
    """The tensor's values now, and the storage that it was a window on before the call."""
    tensor, which, base, _ = handle
    tensor = tensor.grad if which == "grad" else tensor.detach()
    return [None if tensor is None else tensor.detach().clone(), base]


def _plain(value: Any) -> Any:
    """The returned value as plain data: ["tensor", t], ["list", [...]], ["number", n], ["text", s], or ["other", its type's name]."""
    if isinstance(value, torch.Tensor):
        return ["tensor", value.detach().cpu().clone()]
    if isinstance(value, tuple | list):
        return ["tuple" if isinstance(value, tuple) else "list", [_plain(item) for item in value]]
    if value is None or isinstance(value, bool | int | float):
        return ["number", value]
    if isinstance(value, numbers.Real):  # such as NumPy's
        return ["number", int(value) if isinstance(value, numbers.Integral) else float(value)]
    if isinstance(value, str):
        return ["text", str(value[:LONGEST_TEXT])]
    return ["other", type(value).__name__]
