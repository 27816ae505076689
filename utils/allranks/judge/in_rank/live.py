"""How many bytes a call leaves in memory: tensors that it made and that are still there, and arrays."""

from __future__ import annotations

import gc

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from allranks.ranks.engines.alone import objects_made_here

_LEAST_NBYTES = 64  # of an array: smaller ones are no data of a case


def memory_now() -> set[StorageWeakRef]:
    """The memory of all tensors of this process but states of generators, which checkpointing keeps.

    Autograd keeps a tensor that it saved as the object that it was.
    """
    generator = torch.get_rng_state()
    tensors = (
        thing for thing in objects_made_here() if isinstance(thing, torch.Tensor) and thing.layout == torch.strided
    )
    kept = (t for t in tensors if (t.dtype, t.shape) != (generator.dtype, generator.shape))
    return {StorageWeakRef(tensor.untyped_storage()) for tensor in kept}


def kept_nbytes(before: set[StorageWeakRef], returned: object) -> int:
    """The bytes of tensors that are there beside those of `before` and what came back, and of all arrays with memory of their own."""
    gc.collect()  # a circle of references lives for as long as the collector pleases
    known = before | ({StorageWeakRef(returned.untyped_storage())} if isinstance(returned, torch.Tensor) else set())
    storages = (torch.UntypedStorage._new_with_weak_ptr(ref.cdata) for ref in memory_now() - known)
    found = {id(thing): thing for thing in objects_made_here(held=True) if type(thing) is np.ndarray}
    arrays = (a.nbytes for a in found.values() if a.flags.owndata and a.nbytes >= _LEAST_NBYTES)
    return sum(storage.nbytes() for storage in storages if storage is not None) + sum(arrays)
