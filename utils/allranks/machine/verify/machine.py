"""The first phase: what the machine is, and what listens on it."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import platform
import re
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from allranks.machine import doctor
from allranks.machine.verify.steps import Context, Step, StepFailed, StepSkipped
from allranks.ranks.engines import libraries
from allranks.ranks.engines.devices import Driver, Inventory, handles

RUN_DIR_ENV = "ALLRANKS_RUN_DIR"
# what the course needs on any machine; the others are for grading and for JupyterLab
CHECKS = (
    doctor.python, doctor.packages, doctor.cores, doctor.memory, doctor.shared_memory, doctor.locked_memory,
    doctor.open_files, doctor.processes, doctor.forking, doctor.disk, doctor.loopback, doctor.clock,
)  # fmt: skip
COMPUTE_MODES = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}


def host(context: Context) -> dict[str, Any]:
    """The processor, the memory, the system and the versions."""
    return {
        "processor": _processor(),
        "cores": psutil.cpu_count(),
        "cores_usable": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": _system(),
        "kernel": ".".join(platform.release().split(".")[:2]),
        "python": platform.python_version(),
        **{name: _version(name) for name in ("allranks", "torch", "numpy", "ipyparallel", "ipykernel")},
    }


def _processor() -> str:
    with contextlib.suppress(OSError):
        found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), flags=re.M)
        if found:
            return found[1]
    return platform.processor() or platform.machine()


def _system() -> str:
    with contextlib.suppress(OSError):
        return platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    return platform.system()


def _version(name: str) -> str | None:
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(name)
    return None


def checks(context: Context) -> dict[str, Any]:
    """The checks of `allranks doctor` that concern live ranks."""
    found, wrong = {}, []
    for check in CHECKS:
        result = check()
        found[result.name] = (
            result.found if result.status == "pass" else f"{result.found} ({result.status}: {result.fix})"
        )
        if result.status == "fail":
            wrong.append(f"{result.name}: {result.found}. {result.fix}")
    context.note(**found)
    if wrong:
        raise StepFailed(" ".join(wrong))
    return found


def gpus(context: Context) -> dict[str, Any]:
    """Each GPU with its memory, compute mode, MIG mode and PCIe link, from NVML; the driver; and which GPUs torch can use."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        if refused := Inventory.of_this_machine().refused:
            raise StepFailed(" ".join(refused)) from None
        raise StepSkipped(f"NVML finds no NVIDIA driver here ({error}).") from None
    try:
        rows = [_gpu(pynvml, number, handle) for number, handle in enumerate(handles(pynvml))]
    finally:
        pynvml.nvmlShutdown()
    have = Inventory.of_this_machine()
    driver = have.driver or Driver("?")
    context.note(
        driver=driver.version,
        driver_cuda=".".join(map(str, driver.cuda or "?")),
        visible=[gpu.index for gpu in have.gpus],
        gpus=rows,
        refused=list(have.refused),
    )
    if have.refused and not have.gpus:
        raise StepFailed(" ".join(have.refused))
    if not rows and not have.gpus:  # a service may keep the GPUs closed until they are leased
        raise StepFailed("The NVIDIA driver is there, and NVML shows no GPU; run nvidia-smi and fix what it reports.")
    return {}


def _gpu(pynvml: Any, number: int, handle: object) -> dict[str, Any]:
    """One GPU; what it can't say is None."""

    def ask(name: str, *args: Any) -> Any:
        with contextlib.suppress(pynvml.NVMLError, AttributeError):
            return getattr(pynvml, f"nvmlDeviceGet{name}")(handle, *args)
        return None

    memory, mig = ask("MemoryInfo"), ask("MigMode")
    return {
        "index": number,
        "name": ask("Name"),
        "memory_gib": round(memory.total / 2**30, 1) if memory else None,
        "memory_used_gib": round(memory.used / 2**30, 1) if memory else None,
        "compute_mode": COMPUTE_MODES.get(ask("ComputeMode")),
        "mig": None if mig is None else bool(mig[0]),
        "pcie": f"generation {ask('CurrPcieLinkGeneration')}, {ask('CurrPcieLinkWidth')} lanes",
        "power_limit_w": (ask("EnforcedPowerLimit") or 0) // 1000 or None,
    }


def links(context: Context) -> dict[str, Any]:
    """How each pair of GPUs is connected."""
    found = doctor.links()
    if found.status == "fail":
        raise StepFailed(f"{found.found}. {found.fix}")
    return {"pairs": found.found}


def nccl(context: Context) -> dict[str, Any]:
    """The NCCL that torch calls: its version by its own answer, its file, and the version for which torch was built."""
    import torch

    version = torch.version.cuda or getattr(torch.version, "hip", None)
    if version is None:
        raise StepSkipped("This torch is a build for CPUs; it has no NCCL.")
    by_torch = ".".join(map(str, torch.cuda.nccl.version()[:3]))  # the one that it was built for
    used = libraries.nccl_in_use()
    folder = libraries.torch_folder()
    if used is None and folder is not None and libraries.candidates_of(folder / "lib" / "libtorch_cuda.so") is None:
        return {"version": by_torch, "file": "a part of torch's own library", "cuda": version}
    if used is None:
        raise StepFailed(
            "This torch is a build for GPUs, and no NCCL of it answers in its process; install torch again."
        )
    numbers, file = used
    preloaded = os.environ.get("LD_PRELOAD", "")
    return {
        "version": ".".join(map(str, numbers)), "file": file, "built_for": by_torch, "cuda": version, "preloaded": preloaded
    }  # fmt: skip


def interfaces(context: Context) -> dict[str, Any]:
    """The network interfaces, without their addresses, and the InfiniBand devices."""
    up = {
        name: f"{'up' if stats.isup else 'down'}, {stats.speed or 'unknown'} Mbit/s, MTU {stats.mtu}"
        for name, stats in psutil.net_if_stats().items()
    }
    infiniband = Path("/sys/class/infiniband")
    return {"interfaces": up, "infiniband": sorted(os.listdir(infiniband)) if infiniband.is_dir() else []}


def listening(context: Context) -> dict[str, Any]:
    """The claim that nothing listens but on loopback: the sockets of our processes while a world runs."""
    before = listeners()
    world = context.world()
    world.run(_nothing)
    mine = our_processes()
    ours = listeners(mine)
    outside = sorted(f"{words} ({name})" for words, name in ours if not _is_loopback(words))
    context.note(
        processes=len(mine),
        on_loopback=len(ours) - len(outside),
        new_of_others=len(listeners() - before - ours),
    )
    if outside:
        raise StepFailed(f"Sockets of this world listen on more than loopback: {'; '.join(outside)}.")
    if not set(world.pids) <= {process.pid for process in mine}:
        raise StepFailed("The ranks are not among the processes whose sockets were looked at.")
    return {}


def _nothing() -> None:
    return None


def our_processes() -> list[psutil.Process]:
    """This process and every other process with the run directory of this run."""
    mark = os.environ.get(RUN_DIR_ENV)
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid == os.getpid() or (mark and process.environ().get(RUN_DIR_ENV) == mark):
                found.append(process)
    return found


def listeners(processes: list[psutil.Process] | None = None) -> set[tuple[str, str]]:
    """(address:port, name of the process) of every listening socket, by default of all processes that we may look at."""
    found = set()
    for process in psutil.process_iter() if processes is None else processes:
        with contextlib.suppress(psutil.Error):
            for connection in process.net_connections(kind="inet"):
                if connection.status == psutil.CONN_LISTEN:
                    found.add((f"{connection.laddr.ip}:{connection.laddr.port}", process.name()))
    return found


def _is_loopback(words: str) -> bool:
    address = ipaddress.ip_address(words.rpartition(":")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


STEPS = (
    Step("machine", "host", host, 20),
    Step("machine", "checks", checks, 40),
    Step("machine", "gpus", gpus, 20),
    Step("machine", "links", links, 20),
    Step("machine", "nccl", nccl, 60),
    Step("machine", "interfaces", interfaces, 20),
    Step("machine", "listening sockets", listening, 100),
)
