"""The base of our process groups in Python, the wire's and the recorder's: what torch.distributed needs of both."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from allranks.ranks.engines import older_torch

older_torch.add_names()


class PythonGroup(dist.ProcessGroup):
    """A process group in Python, with the backend's name `backend_name` for torch. Subclasses define the operations."""

    backend_name: str
    _known_as: str | None = None

    def _get_backend(self, device: torch.device) -> PythonGroup:  # type: ignore[override]
        """The group itself. torch 2.15 asks a group for the backend of a device before it batches sends."""
        return self

    @property
    def _device_types(self) -> list[torch.device]:
        """The devices whose tensors the group takes. torch's object collectives make their tensors there."""
        # none while torch makes the group: to one with devices torch 2.15 attaches its flight recorder, and that fails
        return [torch.device("cpu")] if self in c10d._world.pg_map else []

    @property
    def group_name(self) -> str:  # type: ignore[override]
        """The name by which DTensor and functional collectives find this group; torch names no groups in Python."""
        return self.getGroupName()

    def getGroupName(self) -> str:
        """The same name, for torch's C++, whose own way asks a backend object that groups in Python have not."""
        if (name := c10d._world.pg_names.get(self)) is not None:
            self._known_as = name
        return self._known_as or "a group in Python"  # torch forgets the name before it asks a group that it destroys

    def setGroupName(self, name: str) -> None:
        """Keeps the name that torch's C++ gives."""
        self._known_as = name

    def getBackendName(self) -> str:
        """The backend's name."""
        return self.backend_name


class Works(dist._Work):
    """One handle for several operations."""

    def __init__(self, works: Sequence[dist._Work]) -> None:
        super().__init__()
        self.works = works

    def wait(self, *timeout: timedelta) -> bool:
        """Waits for all of them."""
        return all([work.wait(*timeout) for work in self.works])

    def is_completed(self) -> bool:
        """Whether all are complete."""
        return all(work.is_completed() for work in self.works)
