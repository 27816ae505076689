"""How many bytes a call keeps in memory: in tensors, and in whatever else holds numbers: arrays, bytes, lists."""

from __future__ import annotations

import array
import gc
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from allranks.ranks.engines.alone import objects_made_here

_NUMBER_NBYTES = 8  # of a number that is an object, as in a list
_BYTES_LEAST = 16  # shorter ones are no data of a case

_NUMBERS = (float, complex, np.number)
_BYTES = (bytes, bytearray)
_COUNTED = (torch.Tensor, *_NUMBERS, np.ndarray, array.array, *_BYTES)

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
    for thing in each_of(_COUNTED, objects_made_here(held=True)):
        if not isinstance(thing, torch.Tensor):
            nbytes += _nbytes(thing)
        elif thing.layout == torch.strided and (thing.dtype, thing.shape) != (generator.dtype, generator.shape):
            kept.add(StorageWeakRef(thing.untyped_storage()))
    return kept, nbytes


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
    """The bytes of tensors that are there beside those of `before` and what came back, and of all else that holds numbers."""
    now, nbytes = memory_now()
    known = before[0] | ({StorageWeakRef(returned.untyped_storage())} if isinstance(returned, torch.Tensor) else set())
    storages = (torch.UntypedStorage._new_with_weak_ptr(ref.cdata) for ref in now - known)
    return sum(storage.nbytes() for storage in storages if storage is not None) + max(0, nbytes - before[1])
