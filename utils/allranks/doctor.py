"""What is wrong with this machine, and the mend: one check a line, each a function that can be called alone.

A check takes what it looks at as arguments, with the machine's own as defaults, so that every verdict can be tested.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import resource
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import psutil

from allranks.engines.devices import SHARING_NCCL, Inventory, place
from allranks.engines.parent import forking_is_safe
from allranks.engines.rundir import RunDirError, run_dir
from allranks.extras import how_to_install, requirements

__all__ = [
    "Check",
    "examine",
    "gpus",
    "links",
]

GIB = 1 << 30
OPTIONAL = (
    "lab",
    "grading",
)  # extras that a user may leave out; the others are for the course's developers and for hubs


@dataclass(frozen=True)
class Check:
    """One verdict: `status` is "pass", "warn" or "fail"; `mend` says what to do, and is empty on a pass."""

    name: str
    status: str
    found: str
    mend: str = ""


def passed(name: str, found: str) -> Check:
    return Check(name, "pass", found)


def warned(name: str, found: str, mend: str) -> Check:
    return Check(name, "warn", found, mend)


def failed(name: str, found: str, mend: str) -> Check:
    return Check(name, "fail", found, mend)


def python(version: tuple[int, ...] = tuple(sys.version_info[:3])) -> Check:
    """Python is new enough."""
    words = ".".join(map(str, version))
    if version < (3, 11):
        return failed("python", words, "Make the environment with Python 3.11 or newer: make setup PYTHON=python3.12")
    return passed("python", words)


def packages(lines: list[str] | None = None) -> Check:
    """Every package that the course requires is installed, in a version that it accepts.

    A missing package of the extras `lab` and `grading` is no fault: what was found names the extra. `lines` are requirements
    as package metadata has them; without it they are those of the installed course.
    """
    wanted = requirements(lines)
    wrong, incomplete = [], []
    for extra in ("", *OPTIONAL):
        missing = []
        for requirement in wanted.get(extra, []):
            try:
                installed = metadata.version(requirement.name)
            except metadata.PackageNotFoundError:
                missing.append(requirement.name)
                continue
            if not requirement.specifier.contains(installed, prereleases=True):
                wrong.append(f"{requirement.name} is {installed}, not {requirement.specifier}")
        if missing and extra:
            incomplete.append(f"; the extra {extra} lacks {', '.join(missing)}")
        else:
            wrong += [f"{name} is missing" for name in missing]
    if wrong:
        return failed("packages", "; ".join(dict.fromkeys(wrong)), "make setup")
    versions = f"torch {metadata.version('torch')}, ipyparallel {metadata.version('ipyparallel')}"
    return passed("packages", versions + "".join(incomplete))


def gpus(inventory: Inventory | None = None, driver: Callable[[], bool] | None = None) -> Check:
    """The GPUs that NVML sees; a driver without any is a fault."""
    have = inventory or Inventory.of_this_machine()
    if have.gpus:
        names = ", ".join(f"{g.index}: {g.name} ({g.memory_bytes / GIB:.0f} GiB)" for g in have.gpus)
        return passed("gpus", names)
    there = driver() if driver else Path("/proc/driver/nvidia/version").exists()
    if there and os.environ.get("CUDA_VISIBLE_DEVICES") is None:
        return failed(
            "gpus", "the NVIDIA driver is loaded, but NVML shows no GPU", "Run nvidia-smi and mend what it says."
        )
    return passed("gpus", "none visible: worlds run on the CPU with gloo")


def nccl(inventory: Inventory | None = None) -> Check:
    """torch brings an NCCL where there are GPUs, and how many ranks may share one."""
    have = inventory or Inventory.of_this_machine()
    if not have.gpus:
        return passed("nccl", "not needed without GPUs")
    if have.nccl is None:
        return failed("nccl", "this torch has no NCCL, so the GPUs stay unused", "make setup TORCH=gpu")
    version = ".".join(map(str, have.nccl))
    if have.nccl < SHARING_NCCL:
        return passed("nccl", f"{version}: one rank a GPU")
    return passed("nccl", f"{version}: one rank a GPU, several with backend='nccl' (experimental)")


def cuda(inventory: Inventory | None = None, driver: int | None = None, built: str | None = None) -> Check:
    """The driver is new enough for the CUDA that torch was built for (major version; minor ones are compatible)."""
    have = inventory or Inventory.of_this_machine()
    if not have.gpus:
        return passed("cuda", "not needed without GPUs")
    if driver is None:
        import pynvml

        pynvml.nvmlInit()
        driver = pynvml.nvmlSystemGetCudaDriverVersion_v2() // 1000
        pynvml.nvmlShutdown()
    if built is None:
        import torch

        built = torch.version.cuda or ""
    if built and driver < int(built.split(".")[0]):
        return failed(
            "cuda",
            f"the driver supports CUDA {driver}, torch was built for {built}",
            f"Install a driver for CUDA {built}.",
        )
    return passed("cuda", f"driver for CUDA {driver}, torch built for {built or 'no CUDA'}")


def links(inventory: Inventory | None = None, topology: list[str] | None = None) -> Check:
    """How the GPUs are joined: NVLink, or PCIe and how far apart."""
    have = inventory or Inventory.of_this_machine()
    if len(have.gpus) < 2:
        return passed("links", "fewer than two GPUs")
    words = _links(len(have.gpus)) if topology is None else topology
    if not any("NVLink" in w for w in words):
        return warned(
            "links", "; ".join(words), "Nothing to mend: times will be those of PCIe; read chapter 19 before comparing."
        )
    return passed("links", "; ".join(words))


def _links(count: int) -> list[str]:
    import pynvml

    levels = {
        0: "same board",
        10: "one PCIe switch",
        20: "several PCIe switches",
        30: "one host bridge",
        40: "one NUMA node",
    }
    pynvml.nvmlInit()
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(count)]
        found = []
        for i, a in enumerate(handles):
            for j in range(i + 1, count):
                status = pynvml.NVML_P2P_STATUS_DISABLED_BY_REGKEY
                with contextlib.suppress(pynvml.NVMLError):
                    status = pynvml.nvmlDeviceGetP2PStatus(a, handles[j], pynvml.NVML_P2P_CAPS_INDEX_NVLINK)
                if status == pynvml.NVML_P2P_STATUS_OK:
                    found.append(f"{i}-{j} NVLink")
                else:
                    level = pynvml.nvmlDeviceGetTopologyCommonAncestor(a, handles[j])
                    found.append(f"{i}-{j} PCIe ({levels.get(level, 'across sockets')})")
        return found
    finally:
        pynvml.nvmlShutdown()


def cores(count: int | None = None) -> Check:
    """Enough cores that four ranks don't only wait for each other."""
    count = Inventory.of_this_machine().cores if count is None else count
    if count < 2:
        return warned("cores", f"{count}", "Give the machine two cores or more; four ranks on one are right but slow.")
    return passed("cores", f"{count}")


def memory(available: int | None = None) -> Check:
    """Enough memory for the parent and four ranks."""
    available = psutil.virtual_memory().available if available is None else available
    words = f"{available / GIB:.1f} GiB available"
    if available < 2 * GIB:
        return failed("memory", words, "Free some memory: a world of four ranks needs about 2 GiB.")
    if available < 4 * GIB:
        return warned("memory", words, "Close other programs, or use World(ranks=2).")
    return passed("memory", words)


def shared_memory(total: int | None = None) -> Check:
    """/dev/shm is large enough for NCCL and for large tensors on the wire."""
    if total is None:
        if not Path("/dev/shm").is_dir():
            return warned("shared memory", "no /dev/shm", "Mount one: mount -t tmpfs -o size=2g tmpfs /dev/shm")
        total = shutil.disk_usage("/dev/shm").total
    words = f"/dev/shm has {total / GIB:.2g} GiB"
    if total < GIB:
        return warned(
            "shared memory", words, "In a container: --shm-size=2g (Kubernetes: an emptyDir with medium: Memory)."
        )
    return passed("shared memory", words)


def locked_memory(limit: int | None = None, inventory: Inventory | None = None) -> Check:
    """NCCL may pin memory."""
    have = inventory or Inventory.of_this_machine()
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0] if limit is None else limit
    if have.gpus and limit != resource.RLIM_INFINITY and limit < 64 << 20:
        return warned("locked memory", f"{limit >> 10} KiB", "ulimit -l unlimited (Docker: --ulimit memlock=-1)")
    return passed("locked memory", "unlimited" if limit == resource.RLIM_INFINITY else f"{limit >> 10} KiB")


def open_files(limit: int | None = None) -> Check:
    """Enough file descriptors for 16 ranks."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if limit is None else limit
    if limit < 1024:
        return warned("open files", f"{limit}", "ulimit -n 4096")
    return passed("open files", f"{limit}")


def processes(limit: int | None = None) -> Check:
    """Enough processes and threads for 16 ranks."""
    limit = resource.getrlimit(resource.RLIMIT_NPROC)[0] if limit is None else limit
    if limit != resource.RLIM_INFINITY and limit < 512:
        return warned("processes", f"{limit}", "ulimit -u 4096")
    return passed("processes", "unlimited" if limit == resource.RLIM_INFINITY else f"{limit}")


def forking(safe: bool | None = None) -> Check:
    """Ranks can be forked, which makes worlds start at once."""
    if not (forking_is_safe() if safe is None else safe):
        return warned(
            "forking", f"unsafe on {sys.platform}", "Nothing to mend: worlds start in about 15 s instead of one."
        )
    return passed("forking", "ranks are forked from a warm process")


def run_directory() -> Check:
    """The private directory for sockets and rendezvous files can be had."""
    try:
        return passed("run directory", str(run_dir()))
    except RunDirError as error:
        return failed("run directory", "it can't be used", str(error))


def disk(free: dict[str, int] | None = None) -> Check:
    """Room for logs, notebooks and the environment."""
    if free is None:
        free = {str(path): shutil.disk_usage(path).free for path in {Path.cwd(), Path(tempfile.gettempdir())}}
    least = min(free, key=free.__getitem__)
    words = f"{free[least] / GIB:.1f} GiB free in {least}"
    if free[least] < GIB // 8:
        return failed("disk", words, f"Make room in {least}.")
    if free[least] < GIB:
        return warned("disk", words, f"Make room in {least}.")
    return passed("disk", words)


def loopback(host: str = "127.0.0.1") -> Check:
    """Processes of this machine reach each other's ports."""
    try:
        with socket.socket() as listening, socket.socket() as calling:
            listening.bind((host, 0))
            listening.listen(1)
            calling.settimeout(3)
            calling.connect(listening.getsockname())
    except OSError as error:
        return failed(
            "loopback", f"{host}: {error}", "Let processes talk over 127.0.0.1 (a firewall, or no lo interface)."
        )
    return passed("loopback", f"ports on {host} can be reached")


def sandbox(program: str | None = None, filters: str = "libseccomp.so.2") -> Check:
    """Submissions can be graded: bubblewrap is there and may make namespaces, and so is libseccomp."""
    program = shutil.which("bwrap") if program is None else program
    if not program:
        return warned("sandbox", "no bubblewrap", "Only for grading: apt install bubblewrap")
    try:
        ctypes.CDLL(filters)
    except OSError as error:
        return warned("sandbox", str(error), "Only for grading: apt install libseccomp2")
    command = [program, "--unshare-all", "--ro-bind", "/", "/", "true"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
        words = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        works = done.returncode == 0
    except (OSError, subprocess.TimeoutExpired) as error:
        words, works = str(error), False
    if not works:
        return warned(
            "sandbox",
            words,
            "Only for grading: allow bubblewrap user namespaces; docs/instructor.md says how, under "
            "'What a submission can and can't do'.",
        )
    return passed("sandbox", f"{program} makes namespaces")


def widgets(roots: list[Path] | None = None) -> Check:
    """The browser's part of the player and of ipywidgets is installed in a folder that JupyterLab searches."""
    from jupyter_core.paths import jupyter_path

    if roots is None and importlib.util.find_spec("jupyterlab") is None:
        return warned("widgets", "JupyterLab is not installed", f"Only for notebooks. {how_to_install('lab')}")
    roots = [Path(p) for p in jupyter_path("labextensions")] if roots is None else roots
    missing = [
        n for n in ("anywidget", "@jupyter-widgets/jupyterlab-manager") if not any((r / n).exists() for r in roots)
    ]
    if missing:
        return failed("widgets", f"JupyterLab lacks {', '.join(missing)}", "make setup, then start JupyterLab anew")
    return passed("widgets", "JupyterLab has ipywidgets and anywidget")


def kernel(executable: str | None = None) -> Check:
    """Notebooks run with this Python."""
    if executable is None:
        from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

        try:
            executable = KernelSpecManager().get_kernel_spec("python3").argv[0]
        except NoSuchKernel:
            return failed(
                "kernel", "there is no kernel named python3", f"{sys.executable} -m ipykernel install --sys-prefix"
            )
    found = shutil.which(executable) or executable
    if Path(found).resolve() != Path(sys.executable).resolve() and executable not in ("python", "python3"):
        return warned(
            "kernel",
            f"python3 runs {executable}",
            f"{sys.executable} -m ipykernel install --sys-prefix, or use allranks lab",
        )
    return passed("kernel", f"python3 runs {executable}")


def exchange(path: Path = Path("/usr/local/share/nbgrader/exchange")) -> Check:
    """nbgrader's exchange, where there is one, is open to students as nbgrader wants it."""
    if not path.exists():
        return passed("exchange", "none (only needed to hand labs out on a shared machine)")
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o333 != 0o333:
        return warned("exchange", f"{path} has mode {mode:o}", f"chmod ugo+rwx {path}")
    return passed("exchange", f"{path} has mode {mode:o}")


def clock(skew_s: float | None = None) -> Check:
    """The disk's clock and the machine's agree, which rendezvous files and nbgrader's deadlines rely on."""
    if skew_s is None:
        with tempfile.NamedTemporaryFile() as file:
            skew_s = abs(os.stat(file.name).st_mtime - time.time())
    if skew_s > 5:
        return warned("clock", f"files are {skew_s:.0f} s off", "Set the clock (chrony, ntpd); on NFS the server's.")
    return passed("clock", "the machine's and the disk's agree")


def world(start: Callable[[], list] | None = None) -> Check:
    """The proof: a world of two ranks starts, adds, and ends."""
    try:
        began = time.monotonic()
        sums = _try_world() if start is None else start()
        if sums != [2.0, 2.0]:
            return failed(
                "world", f"two ranks added 1 and 1 and hold {sums}", "Please report this with the output of doctor."
            )
        return passed("world", f"two ranks started and added in {time.monotonic() - began:.1f} s")
    except Exception as error:
        return failed("world", str(error).splitlines()[0], "Mend what fails above; then try World(ranks=2) in Python.")


def _try_world() -> list:
    from allranks.world import World

    def add():
        import torch
        import torch.distributed as dist

        ones = torch.ones(1)
        dist.all_reduce(ones)
        return ones.item()

    place(2, "gloo")
    with World(ranks=2, backend="gloo") as two:
        return two.run(add, deadline=30)


CHECKS: tuple[Callable[[], Check], ...] = (
    python, packages, gpus, nccl, cuda, links, cores, memory, shared_memory, locked_memory, open_files, processes, forking,
    run_directory, disk, loopback, sandbox, widgets, kernel, exchange, clock, world,
)  # fmt: skip


def examine() -> list[Check]:
    """Every check, in order. A check that raises is a failed one: it names itself and the error."""
    found = []
    for check in CHECKS:
        try:
            found.append(check())
        except Exception as error:
            name = check.__name__.replace("_", " ")
            found.append(
                failed(name, f"{type(error).__name__}: {error}", "Please report this with the output of doctor.")
            )
    return found
