"""How many bytes a call keeps in memory: in tensors, and in whatever else holds numbers: arrays, bytes, lists."""

from __future__ import annotations

import array
import gc
import io
from collections import deque
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
# Of these only big ones are data: torch makes many small texts and whole numbers. Each with what says its size.
_BIG_NBYTES = 1024
_HOLDERS = (list, tuple, dict, set, frozenset, deque)
_BIG = (str, int, io.BytesIO, io.StringIO, *_HOLDERS)

# The memory of tensors, and the bytes of all else. It is no class of ours: a rank's objects are of no type of the judge's.
Memory = tuple[set[StorageWeakRef], int]


def memory_now() -> Memory:
    """The memory of all tensors of this process but states of generators, which checkpointing keeps; and the bytes of other things.

    Autograd keeps a tensor that it saved as the object that it was.
    """
    gc.collect()  # a circle of references lives for as long as the collector pleases
    return _memory_of(objects_made_here(held=True))


def _memory_of(things: Sequence[object]) -> Memory:
    generator = torch.get_rng_state()
    kept: set[StorageWeakRef] = set()
    nbytes = 0
    for thing in each_of(_COUNTED, things):
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


def big_nbytes(things: Sequence[object]) -> int:
    """The bytes of big texts, whole numbers and files in memory among these, and of what holds many things that are not counted by themselves."""
    total = 0
    for thing in each_of(_BIG, things):
        kind = next(kind for kind in _BIG if isinstance(thing, kind))  # an answer's own type may say any size
        nbytes = kind.__sizeof__(thing)
        if nbytes >= _BIG_NBYTES and (kind not in _HOLDERS or not isinstance(next(iter(thing), 0.0), _COUNTED)):
            total += nbytes
    return total


def kept_nbytes(before: Memory, returned: object) -> int:
    """The bytes of tensors that are there beside those of `before` and what came back, and of all else that holds numbers."""
    now, nbytes = memory_now()
    known = before[0] | ({StorageWeakRef(returned.untyped_storage())} if isinstance(returned, torch.Tensor) else set())
    return _storage_nbytes(now - known) + max(0, nbytes - before[1])


def _storage_nbytes(memories: set[StorageWeakRef]) -> int:
    storages = (torch.UntypedStorage._new_with_weak_ptr(ref.cdata) for ref in memories)
    return sum(storage.nbytes() for storage in storages if storage is not None)


def all_nbytes(things: Sequence[object]) -> int:
    """The bytes of tensors among these, of what else holds numbers, and of big texts and the like."""
    memories, nbytes = _memory_of(things)
    return _storage_nbytes(memories) + nbytes + big_nbytes(things)
