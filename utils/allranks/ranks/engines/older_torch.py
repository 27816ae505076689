"""What older torch names or does differently: the one place for it. Ranks, wire and recorder work with torch 2.11 and later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from packaging.version import Version
from torch.distributed import distributed_c10d as c10d

# torch.distributed's functions: their name from 2.13 on, and the one before
FUNCTIONS = {"all_gather_single": "all_gather_into_tensor", "reduce_scatter_single": "reduce_scatter_tensor"}
# a process group's methods, the same
METHODS = {
    "all_gather_single": "_allgather_base",
    "reduce_scatter_single": "_reduce_scatter_base",
    "all_to_all_single": "alltoall_base",
    "all_gather_single_coalesced": "allgather_into_tensor_coalesced",
    "reduce_scatter_single_coalesced": "reduce_scatter_tensor_coalesced",
}


def method(group: object, name: str) -> Callable[..., Any]:
    """The group's method `name`, or the one that has this name from torch 2.13 on."""
    found: Callable[..., Any] = getattr(group, name, None) or getattr(group, METHODS[name])
    return found


def add_names() -> None:
    """Gives torch.distributed what older versions lack; does nothing when called again.

    Before 2.13: `all_gather_single` and `reduce_scatter_single`. Before 2.15: batches of sends and receives also for
    groups in Python, such as a recorded NCCL group.
    """
    for module in (dist, c10d):
        for name, before in FUNCTIONS.items():
            if not hasattr(module, name):
                setattr(module, name, getattr(module, before))
        if Version(torch.__version__) < Version("2.15"):
            setattr(module, "batch_isend_irecv", _batch_isend_irecv)  # noqa: B010  # mypy knows no such attribute


_batch_of_torch = dist.batch_isend_irecv


def _batch_isend_irecv(p2p_op_list: list[dist.P2POp]) -> list[Any]:
    """torch's `batch_isend_irecv` as from 2.15 on: a group in Python whose backend runs batches gets one, too."""
    group = (p2p_op_list[0].group if p2p_op_list else None) or c10d._get_default_group()
    if type(group) is dist.ProcessGroup or not getattr(group, "supports_coalescing", False):
        return _batch_of_torch(p2p_op_list)
    c10d._check_p2p_op_list(p2p_op_list)
    with c10d._coalescing_manager(group, p2p_op_list[0].tensor.device, async_ops=True) as batch:
        for part in p2p_op_list:
            peer = {"group_dst" if part.op is dist.isend else "group_src": part.group_peer}
            part.op(part.tensor, group=part.group, tag=part.tag, **peer)
    works: list[Any] = batch.works
    return works
