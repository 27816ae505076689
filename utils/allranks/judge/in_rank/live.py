"""How many bytes a call keeps in memory: in tensors, and in whatever else holds numbers: arrays, bytes, texts, lists."""

from __future__ import annotations

import array
import ctypes
import gc
import io
from numbers import Number

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from allranks.ranks.engines.alone import objects_made_here

_NUMBER_NBYTES = 8  # of a number that is an object, as in a list
_BYTES_LEAST = 16  # shorter bytes and texts are no data of a case
_SMALL = 1 << 32  # a whole number below that is a count, an index or a line

# The memory of tensors, and the bytes of all else. It is no class of ours: a rank's objects are of no type of the judge's.
Memory = tuple[set[StorageWeakRef], int]


def memory_now() -> Memory:
    """The memory of all tensors of this process but states of generators, which checkpointing keeps; and the bytes of other things.

    Autograd keeps a tensor that it saved as the object that it was.
    """
    gc.collect()  # a circle of references lives for as long as the collector pleases
    generator = torch.get_rng_state()
    kept: set[StorageWeakRef] = set()
    nbytes = 0
    everything = objects_made_here(held=True)
    seen = {id(thing.cdata) for thing in everything if isinstance(thing, StorageWeakRef)}  # numbers of our own
    for thing in everything:
        if isinstance(thing, torch.Tensor):
            if thing.layout == torch.strided and (thing.dtype, thing.shape) != (generator.dtype, generator.shape):
                kept.add(StorageWeakRef(thing.untyped_storage()))
        elif type(thing) is torch.UntypedStorage:
            kept.add(StorageWeakRef(thing))
        elif id(thing) not in seen:
            seen.add(id(thing))
            nbytes += _nbytes(thing)
    return kept, nbytes


def _nbytes(thing: object) -> int:
    """The bytes of numbers in a thing that is no tensor, without those of the things that it holds."""
    if isinstance(thing, int):
        return (thing.bit_length() + 7) // 8 if abs(thing) >= _SMALL else 0
    if isinstance(thing, np.generic):
        return thing.nbytes
    if isinstance(thing, Number):
        return _NUMBER_NBYTES
    if type(thing) is np.ndarray:  # else it is a window on a tensor
        return thing.nbytes if thing.flags.owndata else 0
    if isinstance(thing, array.array):
        return len(thing) * thing.itemsize
    if isinstance(thing, bytes | bytearray | str) and len(thing) >= _BYTES_LEAST:
        return len(thing)
    if isinstance(thing, io.BytesIO | io.StringIO):
        return len(thing.getvalue())
    return ctypes.sizeof(thing) if isinstance(thing, ctypes.Array | ctypes.Structure) else 0


def kept_nbytes(before: Memory, returned: object) -> int:
    """The bytes of tensors that are there beside those of `before` and what came back, and of all else that holds numbers."""
    now, nbytes = memory_now()
    known = before[0] | ({StorageWeakRef(returned.untyped_storage())} if isinstance(returned, torch.Tensor) else set())
    storages = (torch.UntypedStorage._new_with_weak_ptr(ref.cdata) for ref in now - known)
    return sum(storage.nbytes() for storage in storages if storage is not None) + max(0, nbytes - before[1])
