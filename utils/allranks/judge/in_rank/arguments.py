"""The kinds of arguments that an answer is called with, one class a kind. This file is a rank's too, so it knows no right answer.

The trusted process describes an argument as plain data, and a rank builds from that what the student's function gets. Some kinds are
functions that work in virtual time: the router hands their results out as `pieces`, so that no rank has them before.
"""

from __future__ import annotations

import array
import ctypes
import gc
import mmap
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from allranks.judge.in_rank.live import Use, each_of, grown_nbytes, kept_nbytes, memory_now
from allranks.ranks.engines.alone import objects_made_here
from allranks.ranks.wire.buffers import holds_poison
from allranks.ranks.wire.endpoint import at_each_send, do_piece, take_piece
from allranks.ranks.wire.failures import Misuse, MisuseError
from allranks.ranks.wire.memory_model import Memory
from allranks.ranks.wire.values import Pickled, dtype_name, from_raw, raw
from allranks.ranks.wire.window import memory

GUARD = 77  # fills the storage around a view; it must still be there afterwards
KEPT_NBYTES = 8  # of the number that says how many bytes a call keeps until its gradient comes
MOST_WHOLE = 2  # blocks that `Blocks` computes with
_BUFFERS = (bytes, bytearray, array.array, mmap.mmap)
_COPIES = (torch.Tensor, np.ndarray, *_BUFFERS, list, tuple)  # what may hold a block's weights
_NOISE_NBYTES = 1 << 18  # where no message waits: 0.12 MB was the most that right answers had beside two blocks
_LARGE = 1 << 17  # bytes of a block beside which a rank's other things are nothing
_NO_CHANCE = 16  # bytes of weights that nothing else has by chance

Arg = Any  # an Argument, a wire.Memory, a number, a dict of plain data, or a list or tuple of these
Args = tuple[Arg, ...]
Piece = tuple[float, bytes]  # virtual seconds, and the bytes of the result


# A tensor of a rank's arguments, its storage, the window on it that is the tensor or its gradient, and whether it is the gradient.
# It is no class of ours: a rank's objects are of no type of the judge's.
Handle = tuple[torch.Tensor, torch.Tensor, torch.Tensor, bool]


class Argument:
    """A kind of argument. `describe` says it as plain data, from which `build` makes it in the rank."""

    is_argument = True  # else `build` makes what is called with what the function returned

    def describe(self) -> list:
        """The argument as plain data, behind the name of its class."""
        return []

    @staticmethod
    def build(handles: list[Handle], before: list, *described: Any) -> Any:
        """In the rank: the argument. `handles` gets every tensor of it; `before` are the arguments, or items of its list, to the left."""
        raise NotImplementedError

    def handed_out(self, args: Args) -> list[Piece]:
        """The pieces of work that it makes in virtual time, in order; `args` are all arguments of the rank."""
        return []

    def plain(self) -> Any:
        """The argument as an oracle sees it."""
        return self

    def views(self, path: tuple) -> list[tuple[tuple, View]]:
        """Its tensors, each with the path that leads to it."""
        return []

    def zeroed(self) -> Any:
        """The same with zeros in its floating tensors."""
        return self


@dataclass(frozen=True)
class View(Argument):
    """A tensor argument: a window on a larger storage, so that writes beside it can be seen too."""

    base: torch.Tensor
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    def tensor(self, base: torch.Tensor | None = None) -> torch.Tensor:
        """The tensor, on this storage or on `base`, another one of the same length."""
        return torch.as_strided(self.base if base is None else base, self.size, self.stride, self.offset)

    @staticmethod
    def of(values: torch.Tensor, layout: str = "contiguous") -> View:
        """A copy of the values in this layout, with guard elements around them."""
        size = tuple(values.shape)
        stride, offset, extra = list(values.contiguous().stride()), 0, 0
        if layout == "offset":
            offset, extra = 3, 5
        elif layout == "strided" or (layout == "transposed" and values.dim() < 2):
            stride, offset, extra = [2 * s for s in stride], 1, 2
        elif layout == "transposed":
            stride = list(torch.empty(size[::-1]).stride())[::-1]
        elif layout not in ("contiguous", "three dimensions"):
            raise ValueError(
                f"layout is {layout!r}; it must be contiguous, offset, strided, transposed or three dimensions"
            )
        last = sum((n - 1) * s for n, s in zip(size, stride, strict=True)) if values.numel() else -1
        base = torch.full((offset + last + 1 + extra,), GUARD, dtype=values.dtype)
        view = View(base, size, tuple(stride), offset)
        view.tensor().copy_(values)
        return view

    def zeros(self) -> View:
        """The same window with zeros in it."""
        base = self.base.clone()
        self.tensor(base).zero_()
        return View(base, self.size, self.stride, self.offset)

    def describe(self) -> list:
        return [self.base, list(self.size), list(self.stride), self.offset]

    @staticmethod
    def build(handles: list[Handle], before: list, *described: Any) -> torch.Tensor:
        tensor, base = _window(*described)
        handles.append((tensor, base, tensor, False))
        return tensor

    def plain(self) -> torch.Tensor:
        return self.tensor().clone()

    def views(self, path: tuple) -> list[tuple[tuple, View]]:
        return [(path, self)]

    def zeroed(self) -> View:
        return self.zeros() if self.base.dtype.is_floating_point else self


@dataclass(frozen=True)
class Parameter(Argument):
    """A parameter argument: its data, and its gradient (None: frozen, so that it doesn't require grad).

    With `absent` the parameter requires grad, but its `.grad` is None before the call; `grad` is then its gradient all the same:
    zeros, or what `Backward` will put there. `name` is the argument's, where it is no item of a list.
    """

    data: View
    grad: View | None
    absent: bool = False
    name: str = ""

    @staticmethod
    def without_gradient(name: str, values: torch.Tensor, layout: str = "contiguous") -> Parameter:
        """A parameter with these values and no gradient yet."""
        return Parameter(View.of(values, layout), View.of(torch.zeros_like(values)), True, name)

    def describe(self) -> list:
        # a gradient that there is not yet must be in no rank
        grad = None if self.grad is None else (self.grad.zeros() if self.absent else self.grad).describe()
        return [self.data.describe(), grad, self.absent]

    @staticmethod
    def build(handles: list[Handle], before: list, *described: Any) -> torch.Tensor:
        data, grad, absent = described
        tensor, base = _window(*data)
        tensor.requires_grad_(grad is not None)
        handles.append((tensor, base, tensor, False))
        if grad is not None:
            window, base = _window(*grad)
            handles.append((tensor, base, window, True))
            if not absent:
                tensor.grad = window
        return tensor

    def plain(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        return (self.data.plain(), None if self.grad is None else self.grad.plain())

    def views(self, path: tuple) -> list[tuple[tuple, View]]:
        found = [((*path, "data"), self.data)]
        return found if self.grad is None else [*found, ((*path, "grad"), self.grad)]

    def zeroed(self) -> Parameter:
        return replace(self, data=self.data.zeroed(), grad=None if self.grad is None else self.grad.zeroed())


@dataclass(frozen=True)
class Tied(Argument):
    """The parameter at index `place` of the same list a second time: the same object, as two layers may share one."""

    place: int

    def describe(self) -> list:
        return [self.place]

    @staticmethod
    def build(handles: list[Handle], before: list, *described: Any) -> torch.Tensor:
        return before[described[0]]


@dataclass(frozen=True)
class Backward(Argument):
    """A function argument `backward(ready)`. For each parameter of argument 0, in this `order`, it takes `seconds` of virtual
    time, puts the gradient into `.grad` and calls `ready(index)`. No rank has a gradient before that: the router hands them out."""

    order: tuple[int, ...]
    seconds: tuple[float, ...]

    def describe(self) -> list:
        return [list(self.order)]

    @staticmethod
    def build(handles: list[Handle], before: list, *described: Any) -> Callable:
        (order,) = described
        parameters, gradients = before[0], [window for _, _, window, of_grad in handles if of_grad]

        def backward(ready: Callable[[int], Any]) -> None:
            for place in order:
                gradient = gradients[place]
                gradient.copy_(from_raw(take_piece().read(), gradient.dtype, gradient.shape))
                parameters[place].grad = gradient
                ready(place)

        return backward

    def handed_out(self, args: Args) -> list[Piece]:
        grads = [args[0][place].grad for place in self.order]
        return [(seconds, _bytes(grad.tensor())) for grad, seconds in zip(grads, self.seconds, strict=True)]


@dataclass(frozen=True)
class Blocks(Argument):
    """A function argument `compute(block, whole)`: the passes of a model's blocks, forward from the first to the last, then back.

    Each takes `seconds` of virtual time. `gradients` are those of each block's output: backward returns whole * gradient, forward
    None. No rank has a gradient before its turn: the router hands them out.
    """

    gradients: tuple[View, ...]
    seconds: float

    @property
    def order(self) -> list[int]:
        """The blocks in the order of their turns."""
        count = len(self.gradients)
        return [*range(count), *reversed(range(count))]

    def describe(self) -> list:
        return [self.order, [view.tensor().numel() for view in self.gradients]]

    @staticmethod
    def build(handles: list[Handle], before: list, *described: Any) -> Callable:
        """The weights that it gets go to the trusted process, which compares them."""
        order, sizes = described
        shards = [window for _, _, window, _ in handles]
        turns = iter(enumerate(order))
        used: list[StorageWeakRef] = []  # the memory of whole blocks that may still be there
        known: dict[bytes, int] = {}  # the weights that blocks computed with
        counts = [0]  # of whole blocks, at each turn
        at_start = memory_now()[2] if min(sizes) * shards[0].element_size() >= _LARGE else None
        late: list[bool] = []  # whether weights had not arrived: who never waits for a gather keeps its memory too

        def compute(block: int, whole: torch.Tensor) -> torch.Tensor | None:
            turn, wanted = next(turns, (0, None))
            if wanted is None:
                raise MisuseError(Misuse.ALL_COMPUTED, "every block has been computed forward and backward")
            if block != wanted:
                way = "forward" if turn < len(sizes) else "backward"
                raise MisuseError(
                    Misuse.OTHER_BLOCK, f"compute({block}, ...) was called, but block {wanted} is next, {way}"
                )
            if whole.numel() != sizes[wanted]:
                message = f"block {wanted} has {sizes[wanted]} weights, but compute got {whole.numel()}"
                raise MisuseError(Misuse.OTHER_SIZE, message)
            if whole.dtype != shards[wanted].dtype:
                right, got = (dtype_name(tensor.dtype) for tensor in (shards[wanted], whole))
                raise MisuseError(
                    Misuse.OTHER_DTYPE, f"the shards of block {wanted} are {right}, but compute got {got}"
                )
            late.append(holds_poison(whole.detach().cpu()))
            mine = StorageWeakRef(whole.untyped_storage())
            if mine not in used:
                used.append(mine)
            weights = _bytes(whole)
            if len(weights) >= _NO_CHANCE and whole.numel() > shards[wanted].numel():
                known[weights] = wanted
            # what a rank keeps from the forward pass in any form; behind it gradients are under way, as large as blocks
            forward = at_start if turn < len(sizes) else None
            if counts[-1] <= MOST_WHOLE:  # else the rule is broken, and there may be much to count
                counts.append(_count(used, known, shards, sizes, forward))
                if counts[-1] > MOST_WHOLE:
                    gc.collect()  # a circle of references lives for as long as the collector pleases
                    counts[-1] = _count(used, known, shards, sizes, forward)
            # the judge compares the weights and counts the blocks; a buffer that nobody waits for may be another block's memory
            result = take_piece(used=weights + bytes([0 if any(late) else min(counts[-1], 255)])).read()
            if turn < len(sizes):
                return None
            return whole * from_raw(result, whole.dtype, (sizes[wanted],)).to(whole.device)

        return compute

    def handed_out(self, args: Args) -> list[Piece]:
        forward = [(self.seconds, b"")] * len(self.gradients)
        return [*forward, *((self.seconds, _bytes(gradient.tensor())) for gradient in reversed(self.gradients))]


@dataclass(frozen=True)
class Upstream(Argument):
    """No argument, but last in the list of them: after the call, what the function returned is differentiated, with this gradient.

    With `seconds` the router hands the gradient out, after so much virtual time: no rank has it during the call, and the trace
    tells what came before it and what after.
    """

    gradient: View
    seconds: float = 0.0

    is_argument = False

    def describe(self) -> list:
        return [self.seconds > 0, *(self.gradient.zeros() if self.seconds else self.gradient).describe()]

    @staticmethod
    def build(handles: list[Handle], before: list, *described: Any) -> Callable:
        late, *window = described
        gradient, _ = _window(*window)
        there = memory_now() if late else None

        def differentiate(returned: Any) -> None:
            """Backward from what was returned; what can't be differentiated leaves no gradients, and the comparison says so."""
            if there is not None:
                kept = kept_nbytes(there, returned)
                piece = take_piece(used=kept.to_bytes(KEPT_NBYTES, "big"))
                gradient.copy_(from_raw(piece.read(), gradient.dtype, gradient.shape))
            fits = isinstance(returned, torch.Tensor) and (returned.shape, returned.dtype) == (
                gradient.shape,
                gradient.dtype,
            )
            if fits and returned.requires_grad:
                before = gradient.clone()
                returned.backward(gradient)
                if not torch.equal(gradient.nan_to_num(), before.nan_to_num()):
                    message = "a backward() wrote into the gradient that autograd gave it: copy it first"
                    raise MisuseError(Misuse.WROTE_INTO_GRADIENT, message)

        return differentiate

    def handed_out(self, args: Args) -> list[Piece]:
        return [(self.seconds, _bytes(self.gradient.tensor()))] if self.seconds else []

    def plain(self) -> torch.Tensor:
        return self.gradient.plain()

    def zeroed(self) -> Upstream:
        return replace(self, gradient=self.gradient.zeroed())


@dataclass(frozen=True)
class Peak(Argument):
    """No argument, but last in the list of them: the bytes that a rank's tensors and arrays have at its sends.

    After the call the trusted process gets how many they were at the worst send, beside the arguments: room that is made before the
    first send counts too.
    """

    is_argument = False

    def describe(self) -> list:
        return []

    @staticmethod
    def build(handles: list[Handle], before: list, *described: Any) -> Callable:
        there, found = memory_now(), []
        at_each_send(lambda: found.append(kept_nbytes(there, None)))

        def tell(returned: Any) -> None:
            """Hands over the figure, whatever was returned."""
            at_each_send(lambda: None)
            most = max(found, default=0)
            take_piece(used=most.to_bytes(KEPT_NBYTES, "big")).read()

        return tell

    def handed_out(self, args: Args) -> list[Piece]:
        return [(0.0, b"")]


@dataclass(frozen=True)
class Multiply(Argument):
    """A function argument `multiply(rows)`, which returns `rows @ weight` and takes `row_s` seconds of virtual time for each row.

    The router counts the rows, `rows` of them in a call; it charges the time, whatever a rank says.
    """

    weight: torch.Tensor
    rows: int
    row_s: float

    def describe(self) -> list:
        return [self.weight]

    @staticmethod
    def build(handles: list[Handle], before: list, *described: Any) -> Callable:
        (weight,) = described

        def multiply(rows: torch.Tensor) -> torch.Tensor:
            for _ in range(len(rows)):
                do_piece()
            return rows @ weight

        return multiply

    def handed_out(self, args: Args) -> list[Piece]:
        return [(self.row_s, b"")] * self.rows


@dataclass(frozen=True)
class Add(Argument):
    """A function argument `add(into, part)`, which adds `part` to `into` in place and takes `element_s` seconds of virtual time
    for each element; all that this rank must add has `elements`. The router charges the time, whatever a rank says."""

    elements: int
    element_s: float

    @staticmethod
    def build(handles: list[Handle], before: list, *described: Any) -> Callable:
        def add(into: torch.Tensor, part: torch.Tensor) -> None:
            """Adds in place, in virtual time for each element."""
            if into.shape != part.shape:
                message = f"add(into, part): into has the shape {tuple(into.shape)}, part has {tuple(part.shape)}"
                raise MisuseError(Misuse.OTHER_SHAPE, message)
            if part.numel():
                do_piece(part.numel())
            into += part

        return add

    def handed_out(self, args: Args) -> list[Piece]:
        return [(self.element_s, b"")] * self.elements


@dataclass(frozen=True)
class Work(Argument):
    """A function argument `work()`, which computes one of `pieces` pieces in `seconds` of virtual time; the router charges it."""

    pieces: int
    seconds: float

    @staticmethod
    def build(handles: list[Handle], before: list, *described: Any) -> Callable:
        def work() -> None:
            """Computes one piece, in virtual time."""
            do_piece()

        return work

    def handed_out(self, args: Args) -> list[Piece]:
        return [(self.seconds, b"")] * self.pieces


@dataclass(frozen=True)
class Function(Argument):
    """A function argument, made inside the rank: x * scale + shift, elementwise."""

    scale: float
    shift: float

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale + self.shift

    def describe(self) -> list:
        return [self.scale, self.shift]

    @staticmethod
    def build(handles: list[Handle], before: list, *described: Any) -> Callable:
        scale, shift = described
        return lambda x: x * scale + shift


KINDS: dict[str, type[Argument]] = {
    kind.__name__: kind
    for kind in (View, Parameter, Tied, Backward, Blocks, Upstream, Peak, Multiply, Add, Work, Function)
}


def describe(arg: Arg) -> list:
    """The argument as plain data, of which `build` makes it in a rank: the name of its kind, and what the kind says of it."""
    if isinstance(arg, Argument):
        return [type(arg).__name__, *arg.describe()]
    if isinstance(arg, list | tuple):
        return [type(arg).__name__, [describe(item) for item in arg]]
    if isinstance(arg, Memory):
        return ["memory"]
    # plain data, and much of it: a plain dict without what a subclass knows, pickled, which is quicker
    return ["value", Pickled(dict(arg)) if isinstance(arg, dict) else arg]


def build(described: list, handles: list[Handle], before: list) -> Any:
    """In a rank: the argument that `describe` described."""
    name, *rest = described
    if name in KINDS:
        return KINDS[name].build(handles, before, *rest)
    if name in ("list", "tuple"):
        items: list = []
        for item in rest[0]:
            items.append(build(item, handles, items))
        return tuple(items) if name == "tuple" else items
    return memory() if name == "memory" else rest[0]


def pieces(args: Args) -> list[Piece]:
    """The pieces of work of all arguments of a rank, in order."""
    return [piece for arg in args if isinstance(arg, Argument) for piece in arg.handed_out(args)]


def plain(arg: Arg) -> Arg:
    """The argument as the student's function sees it, for the oracle: views become contiguous tensors."""
    if isinstance(arg, list | tuple):
        return type(arg)(plain(a) for a in arg)
    return arg.plain() if isinstance(arg, Argument) else arg


def views(arg: Arg, path: tuple = ()) -> list[tuple[tuple, View]]:
    """Every tensor inside an argument, with the path that leads to it."""
    if isinstance(arg, list | tuple):
        return [pair for i, item in enumerate(arg) for pair in views(item, (*path, i))]
    return arg.views(path) if isinstance(arg, Argument) else []


def zeroed(arg: Arg) -> Arg:
    """The argument with zeros in its floating tensors."""
    if isinstance(arg, list | tuple):
        return type(arg)(zeroed(a) for a in arg)
    return arg.zeroed() if isinstance(arg, Argument) else arg


def _window(base: torch.Tensor, size: list[int], stride: list[int], offset: int) -> tuple[torch.Tensor, torch.Tensor]:
    base = base.clone()  # the received tensor may be read-only or shared
    return torch.as_strided(base, tuple(size), tuple(stride), offset), base


def _count(
    used: list[StorageWeakRef],
    known: dict[bytes, int],
    shards: list[torch.Tensor],
    sizes: list[int],
    before: Use | None,
) -> int:
    """How many whole blocks are in memory, two copies of one block as two.

    Each is a piece of memory that a block computed with, that has a block's weights, or that an all_gather is still to fill; or an
    array, bytes or a list with a block's weights. Where `before` was in use before the call, what is in memory in any other form counts by
    its bytes too, beyond those of a copy of the shards and of what this function keeps itself.
    """
    used[:] = [memory for memory in used if _is_there(memory)]
    dtype, whole = shards[0].dtype, set(sizes) - {shard.numel() for shard in shards}
    lengths, found = {len(weights) for weights in known}, {memory.cdata for memory in used}
    ours = set(map(id, known))
    for thing in each_of(_COPIES, objects_made_here(held=True)):
        if type(thing) is torch.Tensor and thing.dtype == dtype and _has_memory(thing):
            # not by torch: under NCCL's rules a tensor that a gather still fills must not be read, and here nothing comes of it
            nbytes = thing.numel() * thing.element_size()
            data = ctypes.string_at(thing.data_ptr(), nbytes) if nbytes in lengths or thing.numel() in whole else b""
            if data in known or (thing.numel() in whole and data and _unfilled(data, dtype)):
                found.add(thing.untyped_storage()._cdata)
        elif id(thing) not in ours and _copied(thing, dtype, lengths) in known:
            found.add(id(thing))
    if before is None:
        return len(found)
    own = sum(shard.numel() * shard.element_size() for shard in shards) + sum(map(len, known))
    return max(len(found), (grown_nbytes(before, _NOISE_NBYTES) - own) // (max(sizes) * dtype.itemsize))


def _copied(thing: Any, dtype: torch.dtype, lengths: set[int]) -> bytes:
    """The bytes of numbers of this dtype that are in an array, in bytes or in a list; b"" if they are of another length than these."""
    if type(thing) is np.ndarray and thing.flags.owndata:  # else it is a window on a tensor
        return thing.tobytes() if thing.nbytes in lengths else b""
    if isinstance(thing, _BUFFERS):
        return bytes(thing) if memoryview(thing).nbytes in lengths else b""
    if type(thing) in (list, tuple) and len(thing) * dtype.itemsize in lengths:
        return _bytes(torch.tensor(thing, dtype=dtype)) if all(type(one) is float for one in thing) else b""
    return b""


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
