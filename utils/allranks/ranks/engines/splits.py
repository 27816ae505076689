"""Groups for which torch must not split the world's NCCL communicator, because not every rank would take part.

In a world with a bound device torch splits the world's communicator for each new group, and ncclCommSplit returns only when
every rank has called it. For a gloo group only the ranks outside call it (distributed_c10d.py, `_new_process_group_helper`);
with use_local_synchronization only those inside: both hang. While the default group shows no device, torch splits nothing.
"""

from __future__ import annotations

import functools
from typing import Any

import torch.distributed.distributed_c10d as c10d

_world: list[Any] = []  # the default group that was made last; a trace puts another one in its place


def watch(world: Any) -> None:
    """Makes groups that not every rank splits without a split of `world`, the default group, from now on. Runs on a rank.

    `dist.new_group` and all that make groups through it (functional collectives, `dist.new_subgroups`) end in one function.
    """
    _world[:] = [world]
    make: Any = c10d._new_group_with_tag
    if getattr(make, "splits", False):  # this engine has joined before
        return

    @functools.wraps(make)
    def call(ranks: Any = None, timeout: Any = None, backend: Any = None, *rest: Any, **options: Any) -> Any:
        (whole,) = _world
        device, alone = whole.bound_device_id, bool(options.get("use_local_synchronization"))
        with_nccl = backend is None or "nccl" in str(backend).lower()
        if device is None or (with_nccl and not alone):
            return make(ranks, timeout, backend, *rest, **options)
        whole.bound_device_id = None
        try:
            if with_nccl:  # a communicator of its own, which its members connect at once
                options["device_id"] = options.get("device_id") or device
            return make(ranks, timeout, backend, *rest, **options)
        finally:
            whole.bound_device_id = device

    call.splits = True  # type: ignore[attr-defined]
    c10d._new_group_with_tag = call
