"""How much of each GPU is in use now, by NVML's count: of all processes, with and without a lease."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from allranks.ranks.engines.devices import Gpu

Use = dict[str, int | None]
UNKNOWN: Use = {"memory_used_bytes": None, "busy_percent": None}


def use_of(gpus: Iterable[Gpu]) -> dict[str, Use]:
    """The memory in use of each GPU or MIG device, and how busy it was in the last moment; None for what NVML does not say.

    A GPU that this process can't look at is left out. ALLRANKS_INVENTORY's file may say it for pretend GPUs.
    """
    pretend = os.environ.get("ALLRANKS_INVENTORY")
    if pretend:
        return _pretended(Path(pretend))
    import pynvml

    found: dict[str, Use] = {}
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return found
    try:
        for gpu in gpus:
            with contextlib.suppress(pynvml.NVMLError):
                found[gpu.uuid] = _use(pynvml, pynvml.nvmlDeviceGetHandleByUUID(gpu.uuid))
    finally:
        pynvml.nvmlShutdown()
    return found


def _use(pynvml: ModuleType, handle: object) -> Use:
    said: Use = {**UNKNOWN}
    with contextlib.suppress(pynvml.NVMLError):
        said["memory_used_bytes"] = _memory(pynvml, handle)
    with contextlib.suppress(pynvml.NVMLError):  # NVML does not say it for a MIG device
        said["busy_percent"] = int(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)
    return said


def _memory(pynvml: ModuleType, handle: object) -> int:
    """The bytes that programs use, as nvidia-smi shows them: the first version of the call counts the driver's own too."""
    try:
        about: Any = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    except (pynvml.NVMLError_FunctionNotFound, pynvml.NVMLError_ArgumentVersionMismatch):  # a driver before 510
        about = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return int(about.used)


def _pretended(path: Path) -> dict[str, Use]:
    try:
        listed = json.loads(path.read_text(encoding="utf-8"))["gpus"]
        return {gpu["uuid"]: {name: gpu.get(name) for name in UNKNOWN} for gpu in listed}
    except (OSError, ValueError, KeyError, TypeError):
        return {}
