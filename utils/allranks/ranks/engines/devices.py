"""Which rank runs where: the GPUs of this machine, the backend, and what each rank must have in its environment.

GPUs are found through NVML (nvidia-ml-py), never through CUDA: a process that has started CUDA can't be forked from.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil

from allranks.base.errors import CourseError, counted
from allranks.ranks.engines import gpu_socket, libraries

MAX_RANKS = 64  # on one machine; larger worlds are simulated
CPU_RANKS = 4
SHARES = 4  # how many people can share one GPU; ALLRANKS_GPU_SHARES sets another number
MAX_SHARES = 64
MIN_MEMORY_BYTES = 1 << 30
MEMORY_ENV = "ALLRANKS_MEMORY"  # how many bytes a rank may use
GPU_SHARE_ENV = "ALLRANKS_GPU_SHARE"  # which fraction of its GPU's memory a rank may use
MPS_ENV = "ALLRANKS_MPS"  # set if ranks use their GPU through CUDA's MPS, together with others
GPU_INDEX_ENV = "ALLRANKS_GPU_INDEX"  # which of the GPUs that a rank sees is its own
CONTROL = Path("/dev/nvidiactl")  # where there is a driver and this machine, or container, has GPUs
_NO_NVML = (
    "There are GPUs, but NVML (libnvidia-ml.so.1) is missing here; in a container, set "
    "NVIDIA_DRIVER_CAPABILITIES=compute,utility."
)
_NVML_FAILS = (
    "The NVIDIA driver is there, but NVML does not start ({}): `nvidia-smi` says the same. After an update of the driver, "
    "restart the machine."
)
_NO_PART = (
    "GPU {0} ({1}) is in MIG mode and has no MIG devices: `nvidia-smi mig -i {0} -cgi PROFILE -C` makes some, "
    "`nvidia-smi -i {0} -mig 0` ends the mode."
)
_NOT_READ = {"NCCL_VERSION"}  # images of NVIDIA's set it, and NCCL does not read it
BACKENDS = ("nccl", "gloo")
SHARING_NCCL = (
    2,
    30,
)  # the first version that lets several ranks use one GPU (NCCL_MULTI_RANK_GPU_ENABLE, experimental)
PROMISED_RANKS = 2  # on one GPU; for more, NCCL promises nothing
# how many blocks of NCCL the ranks of one GPU may have together: all must fit on it at once, also on a small one
SHARED_CTAS = 8
SHARED, EXCLUSIVE, PROHIBITED = (
    "shared",
    "exclusive",
    "prohibited",
)  # a GPU's compute mode: how many processes may use it


class DeviceError(CourseError):
    """This machine can't run the world: too many ranks, no GPU for nccl, or an unknown backend."""


@dataclass(frozen=True)
class Gpu:
    """One GPU as NVML describes it, or one MIG device: a part of a GPU that CUDA treats as a GPU.

    `index` is the number that CUDA gives the GPU in the order of PCI, among those that this process may use.
    `parent` is the UUID of the GPU that a MIG device is a part of; None for a whole GPU. `mode` is the compute mode:
    "shared", "exclusive" (one process may use the GPU) or "prohibited" (none may). `capability` is CUDA's compute
    capability, such as (9, 0); None if it is unknown.
    """

    index: int
    uuid: str
    name: str
    memory_bytes: int
    parent: str | None = None
    mode: str = SHARED
    capability: tuple[int, int] | None = None

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Gpu:
        """The GPU of which `dataclasses.asdict` was written as JSON, which has no tuples."""
        pair = data.get("capability")
        return cls(**{**data, "capability": tuple(pair) if pair else None})

    @property
    def physical(self) -> str:
        """The UUID of the whole GPU."""
        return self.parent or self.uuid


def usable_cores() -> int:
    """How many CPU cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class Driver:
    """The NVIDIA driver: its version ("580.65.06"), and the newest CUDA that it runs.

    `cuda` is None if it is unknown, and (0, 0) if the driver's library for CUDA is missing.
    """

    version: str
    cuda: tuple[int, int] | None = None


@dataclass(frozen=True)
class Inventory:
    """What this machine has for ranks: GPUs, CPU cores, the version of the NCCL that torch loads, and memory.

    `gpus` are those that torch can use. `refused` says of the others why it can't, one sentence each. `nccl` is None
    if torch has no NCCL, and `torch_cuda` if it was built without CUDA. `unclear` is a sentence on a
    CUDA_VISIBLE_DEVICES that CUDA may read in another way. `wsl`: this is Windows' Linux. `mps`: CUDA's MPS runs.
    """

    gpus: tuple[Gpu, ...]
    cores: int
    nccl: tuple[int, ...] | None
    memory_bytes: int = 8 << 30
    refused: tuple[str, ...] = ()
    driver: Driver | None = None
    torch_cuda: tuple[int, ...] | None = None
    unclear: str | None = None
    wsl: bool = False
    mps: bool = False

    @classmethod
    def of_this_machine(cls) -> Inventory:
        """What this process may use, by `CUDA_VISIBLE_DEVICES`, the CPU affinity and a JupyterHub's `MEM_LIMIT`.

        `ALLRANKS_INVENTORY` may name a JSON file of pretend GPUs instead, to try leases and placement without a GPU.
        """
        pretend = os.environ.get("ALLRANKS_INVENTORY")
        if pretend:
            return cls.from_file(pretend)
        service = gpu_socket.where()
        there, driver, refused = _nvml(service is None)
        if service is not None:  # NVML shows no GPU that this process can't open
            try:
                there = [Gpu.from_json(each) for each in gpu_socket.state(service)["gpus"]]
            except gpu_socket.GpuServiceError as error:
                refused = (str(error),)
            except (KeyError, TypeError, ValueError, AttributeError):
                refused = (f"The GPU service at {service} names its GPUs in a way that this version can't read.",)
        setting = os.environ.get("CUDA_VISIBLE_DEVICES")
        visible = _visible(there, setting)
        memory_bytes = psutil.virtual_memory().total
        hub_limit = os.environ.get("MEM_LIMIT", "")  # JupyterHub's limit for this user, in bytes
        if hub_limit.isdigit() and int(hub_limit) > 0:
            memory_bytes = min(memory_bytes, int(hub_limit))
        return cls(
            tuple(visible),
            usable_cores(),
            libraries.nccl_version(),
            memory_bytes,
            refused,
            driver=driver,
            torch_cuda=libraries.torch_cuda(),
            unclear=_unclear(there, visible, setting),
            wsl=libraries.is_wsl(),
            mps=bool(visible) and libraries.mps_runs(),
        )._judged()

    @classmethod
    def of_the_driver(cls) -> Inventory:
        """All GPUs of this machine, also those that torch can't use: for the service that opens them."""
        pretend = os.environ.get("ALLRANKS_INVENTORY")
        if pretend:
            return cls.from_file(pretend)
        there, driver, refused = _nvml()
        return cls(tuple(there), usable_cores(), None, refused=refused, driver=driver)

    @classmethod
    def from_file(cls, path: str) -> Inventory:
        """The inventory that a JSON file describes: {"gpus": [{"uuid", "name", "memory_bytes"}], "cores", "nccl": "2.30.7"}.

        A MIG device also has a "parent", the UUID of its GPU, and each may have "nodes", the paths of its device nodes. A GPU may have a "mode" and a "capability" ("9.0"), the
        machine a "driver" ("580.65.06"), "driver_cuda" and "torch_cuda" ("13.0"), "wsl" and "mps" (true or false).
        """
        try:
            with open(path, encoding="utf-8") as file:
                data = json.load(file)
            gpus = tuple(
                Gpu(
                    i,
                    g["uuid"],
                    g["name"],
                    g["memory_bytes"],
                    g.get("parent"),
                    g.get("mode", SHARED),
                    _pair(g.get("capability")),
                )
                for i, g in enumerate(data["gpus"])
            )
            driver = Driver(data.get("driver", "?"), _pair(data.get("driver_cuda")))
            return cls(
                gpus,
                data.get("cores", 1),
                _numbers(data["nccl"]) if data.get("nccl") else None,
                driver=driver,
                torch_cuda=_numbers(data["torch_cuda"]) if data.get("torch_cuda") else None,
                wsl=bool(data.get("wsl")),
                mps=bool(data.get("mps")),
            )._judged()
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DeviceError(f"The inventory {path} (ALLRANKS_INVENTORY) can't be used: {error!r}.") from None

    def _judged(self) -> Inventory:
        """The inventory with only the GPUs that torch can use; `refused` says why it can't use the others."""
        if self.gpus and (whole := self._driver_refuses()):
            return replace(self, gpus=(), refused=(whole,))
        why = {gpu: self._refuses(gpu) for gpu in self.gpus}
        sentences = dict.fromkeys(sentence for sentence in why.values() if sentence)
        left = tuple(gpu for gpu in self.gpus if not why[gpu])
        return replace(self, gpus=left, refused=(*self.refused, *sentences))

    def _driver_refuses(self) -> str | None:
        """Why the driver can't run this torch's programs; None if it can, or if that is unknown."""
        if self.driver is None or self.driver.cuda is None or self.torch_cuda is None:
            return None
        if self.driver.cuda == (0, 0):
            return (
                "The NVIDIA driver's library for CUDA (libcuda.so.1) is missing here; in a container, set "
                "NVIDIA_DRIVER_CAPABILITIES=compute,utility."
            )
        if self.driver.cuda[0] >= self.torch_cuda[0]:  # within one major version, older drivers run newer programs
            return None
        return (
            f"The NVIDIA driver {self.driver.version} runs CUDA {_dotted(self.driver.cuda)} and older; this torch was built "
            f"for CUDA {_dotted(self.torch_cuda)} and needs {libraries.needs_driver(self.torch_cuda)}{' on Windows' if self.wsl else ''}."
        )

    def _refuses(self, gpu: Gpu) -> str | None:
        if gpu.mode == PROHIBITED:
            return (
                f"GPU {gpu.index} ({gpu.name}) is in compute mode 'prohibited'; its administrator can change that with "
                f"`nvidia-smi -i {gpu.index} -c DEFAULT`."
            )
        oldest = libraries.OLDEST_GPUS.get(self.torch_cuda[0]) if self.torch_cuda else None
        if oldest and gpu.capability and gpu.capability < oldest:
            return (
                f"GPU {gpu.index} ({gpu.name}) has compute capability {_dotted(gpu.capability)}; this torch was built for CUDA "
                f"{_dotted(self.torch_cuda or ())}, which needs {_dotted(oldest)} or more."
            )
        return None


@dataclass(frozen=True)
class Placement:
    """Where each rank of one world runs.

    `fixed` holds the environment variables of each rank that stay for as long as the world does; `env` adds the settings of
    gloo and NCCL that the notebook has now, unless the ranks are on other machines (`local` is false).
    """

    backend: str
    gpus: tuple[Gpu | None, ...]
    fixed: tuple[dict[str, str], ...]
    threads: int
    note: str | None = None
    shares: int | None = None  # how many people can share each GPU; None: no sharing
    wsl: bool = False
    local: bool = True

    @property
    def ranks(self) -> int:
        """The world size."""
        return len(self.fixed)

    @property
    def gpu_count(self) -> int:
        """How many different GPUs the ranks use."""
        return len(set(self.gpus) - {None})

    @property
    def mps(self) -> bool:
        """Whether the ranks use their GPUs through CUDA's MPS, which other people's processes may use too."""
        return any(MPS_ENV in each for each in self.fixed)

    @property
    def env(self) -> tuple[dict[str, str], ...]:
        """The environment variables of each rank, for ranks that start now. Raises DeviceError if a setting forbids that."""
        settings = _settings(self.gpus, self.wsl) if self.local else {}
        return tuple({**settings, **each} for each in self.fixed)

    def moved_to(self, gpus: tuple[Gpu, ...]) -> Placement:
        """The same placement on the GPUs of a lease. There must be as many as before."""
        mine = _in_blocks(gpus, self.ranks)
        return replace(self, gpus=mine, fixed=_showing(mine, self.fixed))


def own_settings() -> dict[str, str]:
    """The notebook's own settings of NCCL, as they are now: NCCL reads them when ranks start, and never again."""
    return {n: v for n, v in sorted(os.environ.items()) if n.startswith("NCCL_") and v and n not in _NOT_READ}


def _in_blocks(gpus: Sequence[Gpu], ranks: int) -> tuple[Gpu, ...]:
    """The GPU of each rank: neighbours share a GPU, and those of one physical GPU are neighbours.

    NCCL 2.30 looks only at neighbouring ranks for what several ranks on one GPU can't have.
    """
    order = {name: place for place, name in enumerate(dict.fromkeys(gpu.physical for gpu in gpus))}
    ordered = sorted(gpus, key=lambda gpu: order[gpu.physical])
    return tuple(ordered[rank * len(ordered) // ranks] for rank in range(ranks))


def _showing(mine: Sequence[Gpu], env: Sequence[dict[str, str]]) -> tuple[dict[str, str], ...]:
    """The environments with the GPUs that each rank sees."""
    seen = visible([gpu.uuid for gpu in mine])
    return tuple(
        {**each, "CUDA_VISIBLE_DEVICES": shown, GPU_INDEX_ENV: str(index)}
        for each, (shown, index) in zip(env, seen, strict=True)
    )


def visible(mine: Sequence[str]) -> list[tuple[str, int]]:
    """(CUDA_VISIBLE_DEVICES, index of its own) of each rank, for ranks of one machine on the GPUs with these UUIDs.

    All ranks see all GPUs of their world, in one order, as with torchrun: symmetric memory refuses ranks whose devices have
    one index, and a script's `torch.cuda.set_device(LOCAL_RANK)` works, unless ranks share a GPU. Of MIG devices CUDA
    shows a process only one.

    >>> visible(["GPU-a", "GPU-b"])
    [('GPU-a,GPU-b', 0), ('GPU-a,GPU-b', 1)]
    >>> visible(["MIG-a", "MIG-b"])
    [('MIG-a', 0), ('MIG-b', 0)]
    """
    if any(uuid.startswith("MIG-") for uuid in mine):
        return [(uuid, 0) for uuid in mine]
    there = list(dict.fromkeys(mine))
    return [(",".join(there), there.index(uuid)) for uuid in mine]


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
    true for MIG devices of one GPU. GPUs that this torch can't use count as none, and the note says why. With `shared`, the world takes a part of each GPU's memory, and other people can
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
        if not count and have.refused:
            raise DeviceError(f"{' '.join(have.refused)} {_leave_out(gpus, shared)}")
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
        raise DeviceError(f"gpus={gpus}: this machine has {counted(count, 'GPU')}.")
    # whole GPUs: NCCL takes one rank on each, unless a setting says otherwise
    whole = len({gpu.physical for gpu in have.gpus})
    left_out = have.refused if ranks is None and gpus is None else ()  # of what World() would take
    if ranks is None:
        wanted = gpus or whole
        ranks = wanted if have.nccl and (wanted > 1 or backend == "nccl") and wanted else CPU_RANKS
    by_itself = backend is None
    if backend is None:
        backend = "nccl" if have.nccl and ranks <= whole else "gloo"
    threads = max(1, have.cores // ranks)
    common = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": str(threads)}
    if backend == "gloo":
        note = _why_cpu(ranks, have) if by_itself else None
        return _on_cpu(ranks, have, common, threads, memory_bytes, note)
    chosen = spread(have.gpus)[: min(gpus or count, ranks)]
    mine = _in_blocks(chosen, ranks)
    notes = [*left_out, *([have.unclear] if have.unclear else [])]
    if have.wsl and ranks > 1:
        notes.append("WSL2 has no P2P between GPUs: NCCL uses the machine's memory (NCCL_P2P_DISABLE).")
    if _ranks_a_card(mine) > 1:
        notes.append(_crowded(mine, have))
    shares = default_shares() if shared else None
    if have.mps:
        common[MPS_ENV] = "1"
    env = _showing(mine, _numbered(common, ranks))
    if shares:
        _refuse_exclusive(mine, have, "Leave out shared=")
        for gpu, its in zip(mine, env, strict=True):
            its[GPU_SHARE_ENV] = f"{1 / (shares * mine.count(gpu)):.6f}"
        notes.append(f"1/{shares} of each GPU's memory is yours; others may use the rest, and share its speed.")
        if have.mps:
            notes.append(
                "They share CUDA's MPS with you: a rank of theirs that is killed in the middle of its work can end yours."
            )
    return Placement("nccl", mine, env, threads, " ".join(notes) or None, shares, have.wsl)


def _on_cpu(
    ranks: int, have: Inventory, common: dict[str, str], threads: int, memory_bytes: int | None, note: str | None
) -> Placement:
    common["CUDA_VISIBLE_DEVICES"] = ""
    if memory_bytes is not None and not (isinstance(memory_bytes, int) and memory_bytes >= MIN_MEMORY_BYTES):
        raise DeviceError(
            f"memory_bytes={memory_bytes!r}: a rank needs at least {MIN_MEMORY_BYTES} bytes (torch itself takes most of it)."
        )
    common[MEMORY_ENV] = str(memory_bytes or max(MIN_MEMORY_BYTES, int(0.8 * have.memory_bytes / ranks)))
    return Placement("gloo", (None,) * ranks, _numbered(common, ranks), threads, note)


def _own(name: str, otherwise: str) -> str:
    """The user's own setting of an environment variable, if there is one. The fork server may have started without it."""
    return os.environ.get(name) or otherwise


def _settings(mine: Sequence[Gpu | None], wsl: bool) -> dict[str, str]:
    """What gloo and NCCL are told now: the notebook's own settings, and what the course sets where it has none.

    Left alone, both may take an address that other machines can reach. Raises DeviceError if a setting forbids the placement.
    """
    lo = "lo0" if sys.platform == "darwin" else "lo"
    found = {
        **own_settings(),
        "GLOO_SOCKET_IFNAME": _own("GLOO_SOCKET_IFNAME", lo),
        "NCCL_SOCKET_IFNAME": _own(
            "NCCL_SOCKET_IFNAME", f"={lo}"
        ),  # "=": exactly this name, no other that begins with it
        # NCCL's RAS would tell every account of the machine about the job, on a port without a key
        "NCCL_RAS_ENABLE": _own("NCCL_RAS_ENABLE", "0"),
    }
    gpus = [gpu for gpu in mine if gpu is not None]
    if gpus:
        found["CUDA_DEVICE_ORDER"] = _own("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
        if wsl and len(gpus) > 1:
            found["NCCL_P2P_DISABLE"] = _own("NCCL_P2P_DISABLE", "1")
        if _ranks_a_card(gpus) > 1:
            found |= _crowd(gpus)
    return found


def _why_cpu(ranks: int, have: Inventory) -> str | None:
    """The note for a world that runs on the CPU although there are GPUs; None if there are none."""
    count = len(have.gpus)
    if not count:
        return f"{' '.join(have.refused)} The ranks run on the CPU with gloo." if have.refused else None
    if have.nccl is None:
        return f"{counted(ranks, 'rank')} with gloo on the CPU: this torch has no NCCL for the {counted(count, 'GPU')} (`make setup TORCH=gpu`)."
    note = f"{counted(ranks, 'rank')} for {counted(count, 'GPU')}: gloo on the CPU."
    if have.refused:
        note += f" {' '.join(have.refused)}"
    if have.nccl >= SHARING_NCCL:
        note += f" World(ranks={ranks}, backend='nccl') shares the GPUs (experimental in NCCL)."
    return note


def _leave_out(gpus: int | None, shared: bool) -> str:
    options = "`backend`" if gpus is None and not shared else "gpus= and shared="
    return f"Leave {options} out for gloo on the CPU."


def _ranks_a_card(mine: Sequence[Gpu]) -> int:
    """The most ranks on one physical GPU."""
    return max(Counter(gpu.physical for gpu in mine).values())


def _crowd(mine: Sequence[Gpu]) -> dict[str, str]:
    """What NCCL must be told if several ranks use one GPU; `mine` has the GPU of each rank. Raises DeviceError."""
    nvls = os.environ.get("NCCL_NVLS_ENABLE", "0")
    if nvls != "0":
        raise DeviceError(f"NCCL_NVLS_ENABLE={nvls} is set, and with it NCCL takes one rank a GPU. Unset it.")
    most = max(Counter(gpu.uuid for gpu in mine).values())
    # NCCL 2.30 itself switches NVLS off only where the last two ranks share a GPU
    settings = {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_NVLS_ENABLE": "0"}
    if most > 1 and not os.environ.get("NCCL_MAX_NCHANNELS"):  # the older name of the same limit
        settings["NCCL_MAX_CTAS"] = _own("NCCL_MAX_CTAS", str(max(1, SHARED_CTAS // most)))
    return settings


def _crowded(mine: Sequence[Gpu], have: Inventory) -> str:
    """The note for a world in which several ranks use one GPU. Raises DeviceError if that is not possible."""
    ranks, used, cards = len(mine), len(set(mine)), {gpu.physical for gpu in have.gpus}
    mig = any(gpu.parent for gpu in have.gpus)
    nccl = have.nccl or ()
    fewer = len(cards) if mig else used
    if nccl < SHARING_NCCL:
        what = f"{counted(len(cards), 'GPU')} cut into {len(have.gpus)} MIG devices" if mig else counted(used, "GPU")
        raise DeviceError(
            f"{counted(ranks, 'rank')} on {what}: NCCL {_dotted(nccl)} takes one rank a GPU. Ask for World(ranks={fewer}), or for "
            f"World(ranks={ranks}, backend='gloo') on the CPU."
        )
    most = max(Counter(gpu.uuid for gpu in mine).values())
    if most > 1:
        _refuse_exclusive(mine, have, f"Ask for World(ranks={fewer})")
    settings = _crowd(mine)
    limit = f", NCCL_MAX_CTAS={settings['NCCL_MAX_CTAS']}" if "NCCL_MAX_CTAS" in settings else ""
    note = (
        f"{counted(ranks, 'rank')} share {counted(used, 'MIG device' if mig else 'GPU')} (NCCL_MULTI_RANK_GPU_ENABLE{limit}; "
        "experimental): the results are right, but the times say nothing about a link."
    )
    if most > 1:
        note += (
            " CUDA's MPS runs: they use it at the same time." if have.mps else " Without CUDA's MPS they take turns."
        )
    if most > PROMISED_RANKS:
        note += (
            f" NCCL promises {PROMISED_RANKS} ranks a GPU, here there are {most}; if they hang, ask for fewer or use "
            "backend='gloo'."
        )
    if mig:
        note += " NCCL does not promise that MIG devices of one GPU can talk; if the start fails, use backend='gloo'."
    return note


def _refuse_exclusive(mine: Sequence[Gpu], have: Inventory, instead: str) -> None:
    """Raises DeviceError if one of the GPUs takes only one process. With MPS that one is MPS itself, which serves all."""
    for gpu in mine:
        if gpu.mode == EXCLUSIVE and not have.mps:
            raise DeviceError(
                f"GPU {gpu.index} ({gpu.name}) is in exclusive compute mode: only one process may use it. {instead}, or let "
                f"its administrator run `nvidia-smi -i {gpu.index} -c DEFAULT`."
            )


def spread(gpus: tuple[Gpu, ...]) -> list[Gpu]:
    """The GPUs, ordered so that the first ones are on as many different physical GPUs as possible."""
    before: Counter[str] = Counter()
    turns = []
    for gpu in gpus:
        turns.append(before[gpu.physical])
        before[gpu.physical] += 1
    return [gpu for _, gpu in sorted(zip(turns, gpus, strict=True), key=lambda pair: pair[0])]


def default_shares() -> int:
    """Into how many parts a shared GPU is divided on this machine. Raises DeviceError if the setting is no such number."""
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


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in text.split("."))


def _pair(text: str | None) -> tuple[int, int] | None:
    if not text:
        return None
    major, minor, *_ = (*_numbers(text), 0)
    return major, minor


def _dotted(version: Sequence[int]) -> str:
    return ".".join(map(str, version))


def _nvml(look: bool = True) -> tuple[list[Gpu], Driver | None, tuple[str, ...]]:
    """The GPUs that this process may use, in the order of PCI, the driver, and why NVML names none; nothing without a driver.

    Without `look`, no GPU: to look at one, NVML opens it for a moment.
    """
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_DriverNotLoaded:
        return [], None, ()
    except pynvml.NVMLError_LibraryNotFound:  # in a container without GPUs too, which has no such node
        return [], None, (_NO_NVML,) if CONTROL.exists() else ()
    except pynvml.NVMLError as error:
        return [], None, (_NVML_FAILS.format(error),)
    found: list[Gpu] = []
    refused = []
    try:
        for index, handle in enumerate(handles(pynvml) if look else ()):
            # it may be lost at any moment
            with contextlib.suppress(pynvml.NVMLError_GpuIsLost, pynvml.NVMLError_Unknown):
                parts = _mig_devices(pynvml, handle)
                if parts is None:
                    found.append(_gpu(pynvml, index, handle, handle))
                else:  # a GPU in MIG mode can only be used through its MIG devices
                    found += [_gpu(pynvml, index, part, handle) for part in parts]
                if parts == [] and os.environ.get("CUDA_VISIBLE_DEVICES") is None:  # else it may have been left out
                    refused.append(_NO_PART.format(index, pynvml.nvmlDeviceGetName(handle)))
        return found, _driver(pynvml), tuple(refused)
    except pynvml.NVMLError as error:
        raise DeviceError(f"The NVIDIA driver is there, but can't list its GPUs: {error}.") from None
    finally:
        pynvml.nvmlShutdown()


def handles(pynvml: ModuleType) -> list[Any]:
    """The handles of the GPUs that this process may use, in the order of their addresses on PCI.

    Those are CUDA's numbers with CUDA_DEVICE_ORDER=PCI_BUS_ID: a batch system that hides the other GPUs of a node numbers
    a job's own from 0.
    """
    found, failed = [], None
    for index in range(pynvml.nvmlDeviceGetCount()):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            pynvml.nvmlDeviceGetUUID(handle)
        except (pynvml.NVMLError_NoPermission, pynvml.NVMLError_GpuIsLost):
            continue  # NVML also counts a GPU of another job and one that the system has lost
        except pynvml.NVMLError_Unknown as error:  # what it says of one that has failed; of all, if the driver has
            failed = error
            continue
        try:
            pci = pynvml.nvmlDeviceGetPciInfo(handle)
            place = (pci.domain, pci.bus, pci.device)
        except pynvml.NVMLError:
            place = (0, 0, 0)
        found.append((place, index, handle))
    if failed and not found:
        raise failed
    return [handle for _, _, handle in sorted(found, key=lambda each: each[:2])]


def _driver(pynvml: ModuleType) -> Driver:
    cuda: tuple[int, int] | None = None
    try:
        code = pynvml.nvmlSystemGetCudaDriverVersion_v2()
        cuda = (code // 1000, code % 1000 // 10)
    except pynvml.NVMLError_LibraryNotFound:
        cuda = (0, 0)
    except pynvml.NVMLError:
        pass
    version = "?"
    with contextlib.suppress(pynvml.NVMLError):
        version = pynvml.nvmlSystemGetDriverVersion()
    return Driver(version, cuda)


def _gpu(pynvml: ModuleType, index: int, handle: object, card: object) -> Gpu:
    """A GPU, or a MIG device of the GPU `card`."""
    uuid, name = pynvml.nvmlDeviceGetUUID(handle), pynvml.nvmlDeviceGetName(handle)
    try:
        memory_bytes = pynvml.nvmlDeviceGetMemoryInfo(handle).total
    except pynvml.NVMLError_NotSupported:  # a GPU that shares the CPU's memory, such as that of a DGX Spark
        memory_bytes = psutil.virtual_memory().total
    mode, capability = SHARED, None
    with contextlib.suppress(pynvml.NVMLError):  # WSL2's NVML does not answer everything
        mode = {
            pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS: EXCLUSIVE,
            pynvml.NVML_COMPUTEMODE_EXCLUSIVE_THREAD: EXCLUSIVE,
            pynvml.NVML_COMPUTEMODE_PROHIBITED: PROHIBITED,
        }.get(pynvml.nvmlDeviceGetComputeMode(card), SHARED)
    with contextlib.suppress(pynvml.NVMLError):
        major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(card)
        capability = (major, minor)
    parent = None if handle is card else pynvml.nvmlDeviceGetUUID(card)
    return Gpu(index, uuid, name, memory_bytes, parent, mode, capability)


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


def _unclear(there: Sequence[Gpu], visible: Sequence[Gpu], setting: str | None) -> str | None:
    """A sentence if CUDA may read the numbers in `CUDA_VISIBLE_DEVICES` in another order than we do.

    Without CUDA_DEVICE_ORDER, CUDA puts the fastest GPU first. Among equal GPUs that is the order of PCI.
    """
    numbers = [entry for entry in (setting or "").split(",") if entry.strip().isdigit()]
    alike = len({gpu.name.split(" MIG ")[0] for gpu in there}) < 2
    by_pci = os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    if not numbers or alike or by_pci or len(visible) == len(there):
        return None
    return (
        f"CUDA_VISIBLE_DEVICES={setting} is read in the order of nvidia-smi, and these GPUs are not alike: CUDA itself "
        "puts the fastest first. Set CUDA_DEVICE_ORDER=PCI_BUS_ID too, or name GPUs by their UUID (nvidia-smi -L)."
    )
