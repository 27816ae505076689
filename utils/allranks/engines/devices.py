"""Which rank runs where: the GPUs of this machine, the backend, and what each rank must have in its environment.

GPUs are found through NVML (nvidia-ml-py), never through CUDA: a process that has started CUDA can't be forked from.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter
from dataclasses import dataclass, replace
from importlib import metadata
from types import ModuleType

import psutil

from allranks.errors import CourseError

MAX_RANKS = 64  # on one machine; larger worlds are simulated
CPU_RANKS = 4
SHARES = 4  # how many people can share one GPU; ALLRANKS_GPU_SHARES sets another number
MAX_SHARES = 64
MIN_MEMORY_BYTES = 1 << 30
MEMORY_ENV = "ALLRANKS_MEMORY"  # how many bytes a rank may use
GPU_SHARE_ENV = "ALLRANKS_GPU_SHARE"  # which fraction of its GPU's memory a rank may use
BACKENDS = ("nccl", "gloo")
SHARING_NCCL = (
    2,
    30,
)  # the first version that lets several ranks use one GPU (NCCL_MULTI_RANK_GPU_ENABLE, experimental)


class DeviceError(CourseError):
    """This machine can't run the world: too many ranks, no GPU for nccl, or an unknown backend."""


@dataclass(frozen=True)
class Gpu:
    """One GPU as NVML describes it, or one MIG device: a part of a GPU that CUDA treats as a GPU.

    `parent` is the UUID of the GPU that a MIG device is a part of; None for a whole GPU.
    """

    index: int
    uuid: str
    name: str
    memory_bytes: int
    parent: str | None = None

    @property
    def physical(self) -> str:
        """The UUID of the whole GPU."""
        return self.parent or self.uuid


def usable_cores() -> int:
    """How many CPU cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class Inventory:
    """What this machine has for ranks: GPUs, CPU cores, torch's NCCL version (None: torch has no NCCL), and memory."""

    gpus: tuple[Gpu, ...]
    cores: int
    nccl: tuple[int, ...] | None
    memory_bytes: int = 8 << 30

    @classmethod
    def of_this_machine(cls) -> Inventory:
        """What this process may use, by `CUDA_VISIBLE_DEVICES`, the CPU affinity and a JupyterHub's `MEM_LIMIT`.

        `ALLRANKS_INVENTORY` may name a JSON file of pretend GPUs instead, to try leases and placement without a GPU.
        """
        pretend = os.environ.get("ALLRANKS_INVENTORY")
        if pretend:
            return cls.from_file(pretend)
        cores = usable_cores()
        gpus = tuple(_visible(_gpus(), os.environ.get("CUDA_VISIBLE_DEVICES")))
        memory_bytes = psutil.virtual_memory().total
        hub_limit = os.environ.get("MEM_LIMIT", "")  # JupyterHub's limit for this user, in bytes
        if hub_limit.isdigit() and int(hub_limit) > 0:
            memory_bytes = min(memory_bytes, int(hub_limit))
        return cls(gpus, cores, _nccl_version(), memory_bytes)

    @classmethod
    def from_file(cls, path: str) -> Inventory:
        """The inventory that a JSON file describes: {"gpus": [{"uuid", "name", "memory_bytes"}], "cores", "nccl": "2.30.7"}.

        A MIG device also has a "parent", the UUID of its GPU.
        """
        try:
            with open(path, encoding="utf-8") as file:
                data = json.load(file)
            gpus = tuple(
                Gpu(i, g["uuid"], g["name"], g["memory_bytes"], g.get("parent")) for i, g in enumerate(data["gpus"])
            )
            return cls(
                gpus, data.get("cores", 1), tuple(int(n) for n in data["nccl"].split(".")) if data.get("nccl") else None
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DeviceError(f"The inventory {path} (ALLRANKS_INVENTORY) can't be used: {error!r}.") from None


@dataclass(frozen=True)
class Placement:
    """Where each rank of one world runs."""

    backend: str
    gpus: tuple[Gpu | None, ...]
    env: tuple[dict[str, str], ...]
    threads: int
    note: str | None = None
    shares: int | None = None  # how many people can share each GPU; None: no sharing

    @property
    def ranks(self) -> int:
        """The world size."""
        return len(self.env)

    @property
    def gpu_count(self) -> int:
        """How many different GPUs the ranks use."""
        return len(set(self.gpus) - {None})

    def moved_to(self, gpus: tuple[Gpu, ...]) -> Placement:
        """The same placement on the GPUs of a lease. There must be as many as before."""
        mine = tuple(gpus[rank % len(gpus)] for rank in range(self.ranks))
        env = tuple({**e, "CUDA_VISIBLE_DEVICES": gpu.uuid} for e, gpu in zip(self.env, mine, strict=True))
        return replace(self, gpus=mine, env=env)


def place(
    ranks: int | None = None,
    backend: str | None = None,
    inventory: Inventory | None = None,
    memory_bytes: int | None = None,
    gpus: int | None = None,
    shared: bool = False,
) -> Placement:
    """Where each rank of a new world runs: one on each GPU, with NCCL, if there are enough GPUs; else on the CPU, with gloo.

    Without `ranks`, there is one rank for each GPU, or 4 ranks if there are fewer than two GPUs. Several ranks share
    a GPU only if backend="nccl" or `gpus` (how many GPUs to use) asks for it, and NCCL is 2.30 or later; the same is
    true for MIG devices of one GPU. With `shared`, the world takes a part of each GPU's memory, and other people can
    use the rest. `memory_bytes` limits each rank on the CPU; without it, the ranks together may use 80 % of the
    machine's memory.

    Raises DeviceError, whose message says how to fix the request.
    """
    have = inventory or Inventory.of_this_machine()
    check_request(ranks, backend, gpus)
    if backend == "gloo" and (gpus is not None or shared):
        raise DeviceError("gpus= and shared= are for GPUs, and backend='gloo' runs on the CPU; leave one of them out.")
    if gpus is not None or shared:
        backend = "nccl"
    count = len(have.gpus)
    if backend == "nccl":
        if not count:
            raise DeviceError(
                "backend='nccl' needs an NVIDIA GPU and none is visible here; leave `backend` out for gloo on the CPU."
                if gpus is None and not shared
                else "gpus= and shared= need an NVIDIA GPU and none is visible here; leave them out for gloo on the CPU."
            )
        if have.nccl is None:
            raise DeviceError(
                "This torch was built without NCCL; install the one for GPUs (`make setup TORCH=gpu`) or use "
                "backend='gloo'."
            )
    if gpus is not None and gpus > count:
        raise DeviceError(f"gpus={gpus}: this machine has {_count(count, 'GPU')}.")
    # whole GPUs: NCCL takes one rank on each, unless a setting says otherwise
    whole = len({gpu.physical for gpu in have.gpus})
    if ranks is None:
        wanted = gpus or whole
        ranks = wanted if have.nccl and (wanted > 1 or backend == "nccl") and wanted else CPU_RANKS
    if backend is None:
        backend = "nccl" if have.nccl and ranks <= whole else "gloo"
    threads = max(1, have.cores // ranks)
    common = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": str(threads)}
    if backend == "gloo":
        return _on_cpu(ranks, have, common, threads, memory_bytes)
    chosen = _spread(have.gpus)[: min(gpus or count, ranks)]
    mine = tuple(chosen[rank % len(chosen)] for rank in range(ranks))
    notes = []
    if ranks > len({gpu.physical for gpu in mine}):
        common["NCCL_MULTI_RANK_GPU_ENABLE"] = "1"
        notes.append(_crowded(ranks, len(chosen), have))
    shares = _shares() if shared else None
    env = _numbered(common, ranks)
    for gpu, its in zip(mine, env, strict=True):
        its["CUDA_VISIBLE_DEVICES"] = gpu.uuid
        if shares:
            its[GPU_SHARE_ENV] = f"{1 / (shares * mine.count(gpu)):.6f}"
    if shares:
        notes.append(f"1/{shares} of each GPU's memory is yours; others may use the rest, and share its speed.")
    return Placement("nccl", mine, env, threads, " ".join(notes) or None, shares)


def _on_cpu(ranks: int, have: Inventory, common: dict[str, str], threads: int, memory_bytes: int | None) -> Placement:
    count = len(have.gpus)
    # gloo would look up the host's name, which may give an address that other machines can reach
    common["GLOO_SOCKET_IFNAME"] = "lo0" if sys.platform == "darwin" else "lo"
    common["CUDA_VISIBLE_DEVICES"] = ""
    if memory_bytes is not None and not (isinstance(memory_bytes, int) and memory_bytes >= MIN_MEMORY_BYTES):
        raise DeviceError(
            f"memory_bytes={memory_bytes!r}: a rank needs at least {MIN_MEMORY_BYTES} bytes (torch itself takes most of it)."
        )
    common[MEMORY_ENV] = str(memory_bytes or max(MIN_MEMORY_BYTES, int(0.8 * have.memory_bytes / ranks)))
    note = None
    if count:
        note = f"{_count(ranks, 'rank')} for {_count(count, 'GPU')}: gloo on the CPU."
        if have.nccl and have.nccl >= SHARING_NCCL:
            note += f" World(ranks={ranks}, backend='nccl') shares the GPUs (experimental in NCCL)."
    return Placement("gloo", (None,) * ranks, _numbered(common, ranks), threads, note)


def _crowded(ranks: int, gpus: int, have: Inventory) -> str:
    """The note for a world in which several ranks use one GPU. Raises DeviceError if NCCL is too old for that."""
    cards = {gpu.physical for gpu in have.gpus}
    mig = any(gpu.parent for gpu in have.gpus)
    nccl = have.nccl or ()
    if nccl < SHARING_NCCL:
        version = ".".join(map(str, nccl))
        what = f"{_count(len(cards), 'GPU')} cut into {len(have.gpus)} MIG devices" if mig else _count(gpus, "GPU")
        raise DeviceError(
            f"{_count(ranks, 'rank')} on {what}: NCCL {version} takes one rank a GPU. Ask for "
            f"World(ranks={len(cards) if mig else gpus}), or for World(ranks={ranks}, backend='gloo') on the CPU."
        )
    note = (
        f"{_count(ranks, 'rank')} share {_count(gpus, 'MIG device' if mig else 'GPU')} (NCCL_MULTI_RANK_GPU_ENABLE, "
        "experimental): the results are right, but the times say nothing about a link."
    )
    if mig:
        note += " NCCL does not promise that MIG devices of one GPU can talk; if the start fails, use backend='gloo'."
    return note


def _spread(gpus: tuple[Gpu, ...]) -> list[Gpu]:
    """The GPUs, ordered so that the first ones are on as many different physical GPUs as possible."""
    before: Counter[str] = Counter()
    turns = []
    for gpu in gpus:
        turns.append(before[gpu.physical])
        before[gpu.physical] += 1
    return [gpu for _, gpu in sorted(zip(turns, gpus, strict=True), key=lambda pair: pair[0])]


def _shares() -> int:
    said = os.environ.get("ALLRANKS_GPU_SHARES", str(SHARES))
    if not said.isdigit() or not 1 <= int(said) <= MAX_SHARES:
        raise DeviceError(f"ALLRANKS_GPU_SHARES is {said!r}; it is a whole number from 1 to {MAX_SHARES}.")
    return int(said)


def check_request(ranks: object, backend: object, gpus: object = None) -> None:
    """Raises DeviceError if a request makes no sense on any machine."""
    if gpus is not None and (isinstance(gpus, bool) or not isinstance(gpus, int) or gpus < 1):
        raise DeviceError(f"gpus={gpus!r} is not a number of GPUs; World(ranks=4, gpus=1) puts four ranks on one.")
    if backend is not None and backend not in BACKENDS:
        raise DeviceError(f"backend={backend!r} is unknown; it is 'nccl' (GPUs) or 'gloo' (CPU).")
    if ranks is None:
        return
    if isinstance(ranks, bool) or not isinstance(ranks, int):
        raise DeviceError(f"ranks={ranks!r} is not a whole number; World(ranks=4) starts four.")
    if ranks < 1:
        raise DeviceError(f"ranks={ranks}: a world needs at least one rank; World(ranks=4) starts four.")
    if ranks > MAX_RANKS:
        raise DeviceError(
            f"ranks={ranks}: a live world has at most {MAX_RANKS} on one machine; larger ones can be priced from a "
            "schedule (allranks.schedules)."
        )


def _numbered(common: dict[str, str], ranks: int) -> tuple[dict[str, str], ...]:
    return tuple({**common, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _gpus() -> list[Gpu]:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    found: list[Gpu] = []
    try:
        for index in range(pynvml.nvmlDeviceGetCount()):
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                parts = _mig_devices(pynvml, handle)
                if parts is None:
                    found.append(_gpu(pynvml, index, handle))
                else:  # a GPU in MIG mode can only be used through its MIG devices
                    parent = pynvml.nvmlDeviceGetUUID(handle)
                    found += [_gpu(pynvml, index, part, parent) for part in parts]
            except (pynvml.NVMLError_NoPermission, pynvml.NVMLError_GpuIsLost):
                continue  # NVML also counts a GPU of another job and one that the system has lost
    except pynvml.NVMLError as error:
        raise DeviceError(f"The NVIDIA driver is there, but can't list its GPUs: {error}.") from None
    finally:
        pynvml.nvmlShutdown()
    return found


def _gpu(pynvml: ModuleType, index: int, handle: object, parent: str | None = None) -> Gpu:
    uuid, name = pynvml.nvmlDeviceGetUUID(handle), pynvml.nvmlDeviceGetName(handle)
    try:
        memory_bytes = pynvml.nvmlDeviceGetMemoryInfo(handle).total
    except pynvml.NVMLError_NotSupported:  # a GPU that shares the CPU's memory, such as that of a DGX Spark
        memory_bytes = psutil.virtual_memory().total
    return Gpu(index, uuid, name, memory_bytes, parent)


def _mig_devices(pynvml: ModuleType, handle: object) -> list[object] | None:
    """The handles of a GPU's MIG devices; None if it is not in MIG mode."""
    try:
        mode, _ = pynvml.nvmlDeviceGetMigMode(handle)
    except pynvml.NVMLError:  # a GPU without MIG
        return None
    if mode != pynvml.NVML_DEVICE_MIG_ENABLE:
        return None
    found = []
    for place in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            found.append(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place))
        except pynvml.NVMLError_NotFound:  # there is no MIG device at this place
            continue
    return found


def _visible(gpus: list[Gpu], setting: str | None) -> list[Gpu]:
    """The GPUs that `CUDA_VISIBLE_DEVICES` names. As in CUDA, the first entry that names no GPU ends the list.

    The number of a GPU in MIG mode means its first MIG device.
    """
    if setting is None:
        return gpus
    left = []
    for entry in filter(None, (part.strip() for part in setting.split(","))):
        match = [g for g in gpus if len(entry) > 4 and g.uuid.startswith(entry)]
        match = match or [g for g in gpus if entry == str(g.index)][:1]
        if len(match) != 1:
            break
        left += match
    return left


def _nccl_version() -> tuple[int, ...] | None:
    """The version of the NCCL package that was installed with torch; None if there is none.

    Does not import torch.
    """
    for name in ("nvidia-nccl-cu13", "nvidia-nccl-cu12"):
        try:
            return tuple(int(n) for n in re.findall(r"\d+", metadata.version(name))[:3])
        except metadata.PackageNotFoundError:
            continue
    return None
