"""Arguments and results as JSON and raw bytes: tensors of any dtype, their strides, gradients and views.

Only the trusted side may send a pickle (`trusting=True`), for arguments such as a function; what a rank sends back is
tensors, tuples, lists, dicts of str, int, float, bool, str and None, and nothing else is decoded.
"""

from __future__ import annotations

import ctypes
import math

import numpy
import torch

from allranks.ranks.wire.body import Body, CodecError

DTYPES = {str(d).removeprefix("torch."): d for d in vars(torch).values() if isinstance(d, torch.dtype)}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
MAX_DEPTH = 64
_SMALL_NBYTES = 4096
MAX_BITS = 1024  # of a whole number: Python turns none of more than 4300 digits into text


class Pickled:
    """A value pickled once, to be sent to several ranks."""

    def __init__(self, value) -> None:
        import cloudpickle

        self.data = cloudpickle.dumps(value)


def dtype_name(dtype: torch.dtype) -> str:
    """ "float32" for torch.float32."""
    return _NAMES[dtype]


class _View:
    """What NumPy reads a tensor's memory by. `tensor.numpy()` would forbid for ever to resize it, as FSDP does to free a block."""

    __slots__ = ("__array_interface__", "tensor")

    def __init__(
        self, tensor: torch.Tensor, shape: tuple[int, ...], strides: tuple[int, ...] | None, code: str
    ) -> None:
        if not tensor.is_cpu:
            raise TypeError(f"a tensor in the memory of {tensor.device} can't be read here")
        address = tensor.data_ptr()
        if not address:
            raise ValueError("the memory of this tensor was given back with resize_(0)")
        self.tensor = tensor
        self.__array_interface__ = {
            "data": (address, False),
            "shape": shape,
            "strides": strides,
            "typestr": code,
            "version": 3,
        }


def unsigned(tensor: torch.Tensor) -> numpy.ndarray:
    """The memory of a real CPU tensor as whole numbers of its elements' size."""
    nbytes = tensor.element_size()
    if not tensor.numel():
        return numpy.empty(tensor.shape, f"<u{nbytes}")
    strides = None if tensor.is_contiguous() else tuple(step * nbytes for step in tensor.stride())
    return numpy.asarray(_View(tensor, tuple(tensor.shape), strides, f"<u{nbytes}"))


def place(tensor: torch.Tensor) -> tuple[int, int] | None:
    """Where a small tensor's elements lie one behind the other: the address, and how many bytes. None of another tensor.

    For these, ctypes reads and writes in a third of the time that a window of NumPy takes.
    """
    nbytes = tensor.numel() * tensor.element_size()
    if not 0 < nbytes <= _SMALL_NBYTES or not tensor.is_contiguous() or not tensor.is_cpu:
        return None
    if tensor.is_conj() or tensor.is_neg() or not (address := tensor.data_ptr()):
        return None
    return address, nbytes


def content(tensor: torch.Tensor) -> memoryview | bytes:
    """The same as `raw`, for who only reads it."""
    where = place(tensor)
    return raw(tensor) if where is None else ctypes.string_at(*where)


def fill(tensor: torch.Tensor, data: bytes | bytearray | memoryview) -> bool:
    """Fills a small tensor with these bytes. False, and nothing done, if they are not of its size, or if it is no small one."""
    where = place(tensor)
    if where is None or len(data) != where[1]:
        return False
    ctypes.memmove(where[0], bytes(data), where[1])
    return True


def raw(tensor: torch.Tensor) -> memoryview | bytes:
    """The tensor's elements as bytes in row-major order, without a copy if it is contiguous."""
    if tensor.numel() == 0:
        return b""
    plain = tensor.detach()
    if not plain.is_contiguous() or plain.is_conj() or plain.is_neg():
        plain = plain.resolve_conj().resolve_neg().contiguous()
    nbytes = plain.numel() * plain.element_size()
    return numpy.asarray(_View(plain, (nbytes,), None, "|u1")).data  # NumPy is quicker than torch with few elements


def from_raw(data, dtype: torch.dtype, shape) -> torch.Tensor:
    """A new tensor of these bytes in row-major order."""
    if math.prod(shape) == 0:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).view(dtype).reshape(shape)


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """The 1-d tensor over all of the storage that `tensor` is a view of."""
    return torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())


def encode(value, buffers: list, trusting: bool = False, guard: bool = False, _depth: int = 0):
    """JSON for `value`; the bytes of its tensors are appended to `buffers`. With `guard` a view takes its whole storage
    along. Raises CodecError for what the wire does not carry.
    """
    if value is None or isinstance(value, bool | str) or type(value) is float:
        return value
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise CodecError(f"a whole number of {value.bit_length()} bits can't be returned; {MAX_BITS} are the most")
    if type(value) is int:
        return value
    if _depth > MAX_DEPTH:
        raise CodecError(f"a value is nested deeper than {MAX_DEPTH} levels")
    depth = _depth + 1
    if isinstance(value, torch.Tensor):
        return {"tensor": _encode_tensor(value, buffers, trusting, guard, depth)}
    if type(value) is list:
        return {"list": [encode(v, buffers, trusting, guard, depth) for v in value]}
    if isinstance(value, tuple):
        return {"tuple": [encode(v, buffers, trusting, guard, depth) for v in value]}
    if isinstance(value, dict) and all([isinstance(k, str) for k in value]):
        return {"dict": [[k, encode(v, buffers, trusting, guard, depth)] for k, v in value.items()]}
    if isinstance(value, int | float):
        return int(value) if isinstance(value, int) else float(value)
    if trusting and isinstance(value, Pickled):
        buffers.append(value.data)
        return {"pickle": len(buffers) - 1}
    if not trusting:
        raise CodecError(
            f"a {type(value).__name__} can't be returned; return tensors, numbers, strings, lists, tuples or dicts"
        )
    import cloudpickle

    buffers.append(cloudpickle.dumps(value))
    return {"pickle": len(buffers) - 1}


def _encode_tensor(tensor: torch.Tensor, buffers: list, trusting: bool, guard: bool, depth: int) -> list:
    if tensor.device.type != "cpu" or tensor.layout != torch.strided:
        raise CodecError(f"a {tensor.layout} tensor on {tensor.device} can't pass; the wire carries dense CPU tensors")
    plain = tensor.detach().resolve_conj().resolve_neg()
    if guard:
        offset, storage = plain.storage_offset(), whole(plain)
    elif plain.is_contiguous():
        offset, storage = 0, plain.reshape(-1)
    else:
        # same strides over a storage of its own: the neighbours of a view are nobody else's business
        span = 1 + sum((n - 1) * s for n, s in zip(plain.shape, plain.stride(), strict=True)) if plain.numel() else 0
        offset, storage = 0, torch.zeros(span, dtype=plain.dtype)
        once = [1 if s == 0 else n for n, s in zip(plain.shape, plain.stride(), strict=True)]
        storage.as_strided(once, plain.stride()).copy_(plain.as_strided(once, plain.stride(), plain.storage_offset()))
    buffers.append(raw(storage))
    flags = tensor.requires_grad + 2 * isinstance(tensor, torch.nn.Parameter)
    grad = tensor.grad if tensor.is_leaf else None
    node = [
        dtype_name(tensor.dtype),
        list(tensor.shape),
        list(tensor.stride()),
        offset,
        storage.numel(),
        flags,
        len(buffers) - 1,
    ]
    return [*node, None if grad is None else encode(grad, buffers, trusting, False, depth)]


def decode(node, buffers: list, trusting: bool = False, _depth: int = 0):
    """The value that `encode` wrote. Raises CodecError if the JSON and the buffers contradict each other."""
    if node is None or isinstance(node, bool | int | float | str):
        return node
    if _depth > MAX_DEPTH or not isinstance(node, dict) or len(node) != 1:
        raise CodecError("a value on the wire is not one of ours")
    depth = _depth + 1
    ((tag, inner),) = node.items()
    try:
        match tag:
            case "list":
                return [decode(n, buffers, trusting, depth) for n in inner]
            case "tuple":
                return tuple([decode(n, buffers, trusting, depth) for n in inner])
            case "dict":
                return {str(k): decode(n, buffers, trusting, depth) for k, n in inner}
            case "tensor":
                return _decode_tensor(inner, buffers, trusting, depth)
            case "pickle" if trusting:
                import cloudpickle

                return cloudpickle.loads(buffers[inner])
    except (TypeError, ValueError, IndexError, KeyError, RuntimeError, OverflowError) as error:
        if tag == "pickle":
            raise
        raise CodecError(f"a value on the wire contradicts itself: {error}") from None
    raise CodecError("a value on the wire is not one of ours")


def _decode_tensor(node: list, buffers: list, trusting: bool, depth: int) -> torch.Tensor:
    name, shape, stride, offset, numel, flags, index, grad = node
    dtype = DTYPES[name]
    if min([*shape, *stride, offset, numel, index, 0]) < 0 or len(shape) != len(stride):
        raise CodecError("a tensor on the wire has a negative size")
    if len(buffers[index]) != numel * dtype.itemsize:
        raise CodecError("a tensor on the wire has another number of bytes than its shape says")
    last = offset + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))
    if math.prod(shape) and last >= numel:
        raise CodecError("a tensor on the wire reaches beyond its storage")
    storage = from_raw(buffers[index], dtype, (numel,))
    tensor = torch.empty(0, dtype=dtype).set_(storage.untyped_storage(), offset, shape, stride)
    if flags & 2:
        tensor = torch.nn.Parameter(tensor, requires_grad=bool(flags & 1))
    elif flags & 1:
        tensor.requires_grad_(True)
    if grad is not None:
        tensor.grad = decode(grad, buffers, trusting, depth)
    return tensor


def pack(message: dict, value, *, trusting: bool = False, guard: bool = False) -> tuple[dict, Body]:
    """`message` with the encoded value and its sizes, and the body that carries its tensors."""
    buffers: list = []
    node = encode(value, buffers, trusting=trusting, guard=guard)
    return {**message, "value": node, "sizes": [len(b) for b in buffers]}, Body.of(buffers)


def unpack(message: dict, body: Body, *, trusting: bool = False):
    """The value that `pack` put into a message."""
    data, buffers, at = memoryview(body.read()), [], 0
    for size in message["sizes"]:
        if not isinstance(size, int) or size < 0 or at + size > len(data):
            raise CodecError("a value on the wire has other sizes than its body")
        buffers.append(data[at : at + size])
        at += size
    return decode(message["value"], buffers, trusting=trusting)
