"""Which rank runs where: the GPUs of this machine, the backend, and what each rank must have in its environment.

GPUs are found through NVML (nvidia-ml-py), never through CUDA: a process that has started CUDA can't be forked from.
"""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import dataclass, replace
from importlib import metadata

import psutil

from allranks.errors import CourseError

MAX_RANKS = 64  # on one machine; larger worlds are simulated
CPU_RANKS = 4
MIN_MEMORY_BYTES = 1 << 30
MEMORY_ENV = "ALLRANKS_MEMORY"  # tells a rank how many bytes it may fill
BACKENDS = ("nccl", "gloo")
SHARING_NCCL = (2, 30)  # the first that lets several ranks use one GPU (NCCL_MULTI_RANK_GPU_ENABLE, experimental)


class DeviceError(CourseError):
    """A world that this machine can't place: too many ranks, no GPU for nccl, an unknown backend."""


@dataclass(frozen=True)
class Gpu:
    """One GPU as NVML knows it."""

    index: int
    uuid: str
    name: str
    memory_bytes: int


@dataclass(frozen=True)
class Inventory:
    """What worlds can be placed on: the GPUs, the CPU cores, and torch's NCCL version (None where it has none)."""

    gpus: tuple[Gpu, ...]
    cores: int
    nccl: tuple[int, ...] | None
    memory_bytes: int = 8 << 30

    @classmethod
    def of_this_machine(cls) -> Inventory:
        """What this process may use: `CUDA_VISIBLE_DEVICES`, the CPU affinity, a JupyterHub's `MEM_LIMIT` are respected.

        `ALLRANKS_INVENTORY` names a JSON file of pretend GPUs instead, for trying leases and plans without any.
        """
        pretend = os.environ.get("ALLRANKS_INVENTORY")
        if pretend:
            return cls.from_file(pretend)
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        gpus = tuple(_visible(_gpus(), os.environ.get("CUDA_VISIBLE_DEVICES")))
        memory_bytes = psutil.virtual_memory().total
        hub_limit = os.environ.get("MEM_LIMIT", "")  # what JupyterHub lets this person have, in bytes
        if hub_limit.isdigit() and int(hub_limit) > 0:
            memory_bytes = min(memory_bytes, int(hub_limit))
        return cls(gpus, cores, _nccl_version(), memory_bytes)

    @classmethod
    def from_file(cls, path: str) -> Inventory:
        """The inventory that a JSON file describes: {"gpus": [{"uuid", "name", "memory_bytes"}], "cores", "nccl": "2.30.7"}."""
        try:
            with open(path, encoding="utf-8") as file:
                data = json.load(file)
            gpus = tuple(Gpu(i, g["uuid"], g["name"], g["memory_bytes"]) for i, g in enumerate(data["gpus"]))
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

    @property
    def ranks(self) -> int:
        """The world size."""
        return len(self.env)

    @property
    def gpu_count(self) -> int:
        """How many different GPUs it uses."""
        return len(set(self.gpus) - {None})

    def moved_to(self, gpus: tuple[Gpu, ...]) -> Placement:
        """The same world on these GPUs, as many as before: those that a lease gave."""
        mine = tuple(gpus[rank % len(gpus)] for rank in range(self.ranks))
        env = tuple({**e, "CUDA_VISIBLE_DEVICES": gpu.uuid} for e, gpu in zip(self.env, mine, strict=True))
        return replace(self, gpus=mine, env=env)


def place(
    ranks: int | None = None,
    backend: str | None = None,
    inventory: Inventory | None = None,
    memory_bytes: int | None = None,
) -> Placement:
    """Where the ranks of a new world go. One rank a GPU with NCCL where there are enough, else gloo on the CPU.

    Without `ranks`: as many as there are GPUs, or 4 where there are fewer than two. More ranks than GPUs share them
    only when nccl is asked for by name and is 2.30 or later. `memory_bytes` limits each rank on the CPU; without it they
    share 80 % of the machine's. Raises DeviceError with the mend.
    """
    have = inventory or Inventory.of_this_machine()
    check_request(ranks, backend)
    count = len(have.gpus)
    if backend == "nccl":
        if not count:
            raise DeviceError(
                "backend='nccl' needs an NVIDIA GPU and none is visible here; leave `backend` out for gloo on the CPU."
            )
        if have.nccl is None:
            raise DeviceError(
                "This torch was built without NCCL; install the one for GPUs (`make setup TORCH=gpu`) or use "
                "backend='gloo'."
            )
    if ranks is None:
        ranks = count if have.nccl and (count > 1 or (count and backend == "nccl")) else CPU_RANKS
    if backend is None:
        backend = "nccl" if have.nccl and ranks <= count else "gloo"
    threads = max(1, have.cores // ranks)
    common = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": str(threads)}
    if backend == "gloo":
        # the host's own name may resolve to an address that other machines reach
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
    note = None
    if ranks > count:
        if have.nccl < SHARING_NCCL:
            version = ".".join(map(str, have.nccl))
            raise DeviceError(
                f"{_count(ranks, 'rank')} on {_count(count, 'GPU')}: NCCL {version} takes one rank a GPU. Ask for "
                f"World(ranks={count}), or for World(ranks={ranks}, backend='gloo') on the CPU."
            )
        common["NCCL_MULTI_RANK_GPU_ENABLE"] = "1"
        note = (
            f"{_count(ranks, 'rank')} share {_count(count, 'GPU')} (NCCL_MULTI_RANK_GPU_ENABLE, experimental): "
            "right results, but times that say nothing about a link."
        )
    gpus = tuple(have.gpus[rank % count] for rank in range(ranks))
    env = _numbered(common, ranks)
    for gpu, mine in zip(gpus, env, strict=True):
        mine["CUDA_VISIBLE_DEVICES"] = gpu.uuid
    return Placement("nccl", gpus, env, threads, note)


def check_request(ranks: object, backend: object) -> None:
    """Raises DeviceError where a request makes no sense on any machine."""
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
    found = []
    try:
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            found.append(
                Gpu(
                    index,
                    pynvml.nvmlDeviceGetUUID(handle),
                    pynvml.nvmlDeviceGetName(handle),
                    pynvml.nvmlDeviceGetMemoryInfo(handle).total,
                )
            )
    except pynvml.NVMLError as error:
        raise DeviceError(f"The NVIDIA driver answers, but not about its GPUs: {error}.") from None
    finally:
        pynvml.nvmlShutdown()
    return found


def _visible(gpus: list[Gpu], setting: str | None) -> list[Gpu]:
    """The GPUs that `CUDA_VISIBLE_DEVICES` leaves; as CUDA does, the first entry that is none ends the list."""
    if setting is None:
        return gpus
    left = []
    for entry in filter(None, (part.strip() for part in setting.split(","))):
        match = [g for g in gpus if entry == str(g.index) or (len(entry) > 4 and g.uuid.startswith(entry))]
        if len(match) != 1:
            break
        left += match
    return left


def _nccl_version() -> tuple[int, ...] | None:
    """The version of the NCCL wheel that this torch brought, without importing torch."""
    for name in ("nvidia-nccl-cu13", "nvidia-nccl-cu12"):
        try:
            return tuple(int(n) for n in re.findall(r"\d+", metadata.version(name))[:3])
        except metadata.PackageNotFoundError:
            continue
    return None
