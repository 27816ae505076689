"""What `allranks --version` says: the versions of the course, torch and NCCL, and a world's backend. Without torch."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version


def about() -> str:
    """The versions, one a line."""
    from allranks.ranks.engines.devices import DeviceError, Inventory, place

    have = Inventory.of_this_machine()
    try:
        placed = place(inventory=have)
        ranks = f"{placed.backend}, {placed.ranks} ranks on {'GPUs' if placed.gpu_count else 'the CPU'}"
    except DeviceError as error:
        ranks = f"no world can start here: {error}"
    rows = {
        "allranks": _version("allranks"),
        "Python": platform.python_version(),
        "torch": _version("torch"),
        "CUDA of torch": ".".join(map(str, have.torch_cuda)) if have.torch_cuda else "none",
        "NCCL": ".".join(map(str, have.nccl)) if have.nccl else "none",
        "backend": ranks,
    }
    return "\n".join(f"{name} {found}" for name, found in rows.items())


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
