"""How many bytes a call keeps in memory: exactly in tensors, arrays, bytes and numbers, and from 0.5 MB on in whatever form."""

from __future__ import annotations

import array
import ctypes
import functools
import gc
import mmap
import sys
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from allranks.ranks.engines.alone import objects_made_here

_NUMBER_NBYTES = 8  # of a number that is an object, as in a list
_BYTES_LEAST = 16  # shorter ones are no data of a case

_NUMBERS = (float, complex, np.number)
_BYTES = (bytes, bytearray, mmap.mmap)
_COUNTED = (torch.Tensor, *_NUMBERS, np.ndarray, array.array, *_BYTES)
_SMALL_NBYTES = 512  # Python has memory of its own for objects up to this size, and malloc has all larger ones
# what torch, Python and the wire may take for themselves in a call: 0.43 MB was the most that was measured in right answers
_NOISE_NBYTES = 1 << 19

# All bytes in use, and how many modules there are. They are no classes of ours: a rank's objects are of no type of the judge's.
Use = tuple[int, int]
# The memory of tensors, the bytes of all else that holds numbers, and what is in use.
Memory = tuple[set[StorageWeakRef], int, Use]


def memory_now() -> Memory:
    """The memory of all tensors of this process but states of generators, which checkpointing keeps; and the bytes of other things.

    Autograd keeps a tensor that it saved as the object that it was.
    """
    gc.collect()  # a circle of references lives for as long as the collector pleases
    use, generator = in_use(), torch.get_rng_state()
    kept: set[StorageWeakRef] = set()
    nbytes = 0
    for thing in each_of(_COUNTED, objects_made_here(held=True)):
        if not isinstance(thing, torch.Tensor):
            nbytes += _nbytes(thing)
        elif thing.layout == torch.strided and (thing.dtype, thing.shape) != (generator.dtype, generator.shape):
            kept.add(StorageWeakRef(thing.untyped_storage()))
    return kept, nbytes, use


def in_use() -> Use:
    """What this process has in memory, in whatever form: texts, whole numbers, closures, tensors that only autograd knows.

    Each small object counts as the largest that a small one may be.
    """
    malloc = _malloc()
    now = malloc() if malloc is not None else None
    given = 0 if now is None else now.uordblks + now.hblkhd
    return given + sys.getallocatedblocks() * _SMALL_NBYTES, len(sys.modules)


def grown_nbytes(before: Use, noise: int = _NOISE_NBYTES) -> int:
    """How many bytes more are in use, beyond what torch and Python may take for themselves; 0 where a module was imported since."""
    now, modules = in_use()
    more = (now - before[0] + _WRAPS // 2) % _WRAPS - _WRAPS // 2
    return max(0, more - noise) if modules == before[1] else 0


_WRAPS = 1 << 32  # malloc's counts have 32 bits


class _Malloc(ctypes.Structure):
    """What glibc's mallinfo() returns."""

    _names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_uint) for name in _names.split()]


@functools.cache
def _malloc() -> Callable[[], _Malloc] | None:
    """What asks malloc how much it gave out; None where the C library is not glibc."""
    ask = getattr(ctypes.CDLL(None), "mallinfo", None)
    if ask is not None:
        ask.restype = _Malloc
    return ask


def each_of(types: tuple[type, ...], things: Sequence[object]) -> Iterable:
    """Those that are of these types, each once. It asks each type once: to ask each of some 2,000 things takes milliseconds."""
    kinds = list(map(type, things))
    # an answer's own type may have any hash; and each id() is told to the hooks of sys.addaudithook
    numbers = list(map(object.__hash__, kinds))
    wanted = {number for number, kind in dict(zip(numbers, kinds, strict=True)).items() if issubclass(kind, types)}
    found = [thing for thing, number in zip(things, numbers, strict=True) if number in wanted]
    return dict(zip(map(object.__hash__, found), found, strict=True)).values()


def _nbytes(thing: object) -> int:
    """The bytes of numbers in a thing that is no tensor, without those of the things that it holds."""
    if isinstance(thing, _NUMBERS):
        return _NUMBER_NBYTES
    if type(thing) is np.ndarray:  # else it is a window on a tensor
        return thing.nbytes if thing.flags.owndata else 0
    if isinstance(thing, array.array):
        return len(thing) * thing.itemsize
    if isinstance(thing, _BYTES) and len(thing) >= _BYTES_LEAST:
        return len(thing)
    return 0


def kept_nbytes(before: Memory, returned: object) -> int:
    """The bytes that are in memory beside those of `before` and what came back.

    Tensors, and all else that holds numbers, count exactly; what has another form counts with all that is in use.
    """
    there, counted, use = before
    back = {StorageWeakRef(returned.untyped_storage())} if isinstance(returned, torch.Tensor) else set()
    if grown_nbytes(use):
        gc.collect()
        if grown := grown_nbytes(use):  # there may be very many objects, so none is looked at
            return max(0, grown - _nbytes_of(back - there))
    now, nbytes, _ = memory_now()
    return _nbytes_of(now - there - back) + max(0, nbytes - counted)


def _nbytes_of(memories: set[StorageWeakRef]) -> int:
    storages = (torch.UntypedStorage._new_with_weak_ptr(ref.cdata) for ref in memories)
    return sum(storage.nbytes() for storage in storages if storage is not None)
