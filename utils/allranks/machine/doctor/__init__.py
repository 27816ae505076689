"""What is wrong with this machine, and how to fix it: a list of checks, each a function that can be called alone.

A check takes the values that it judges as arguments, and reads them from this machine if they are left out: so tests can
give it any machine.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import itertools
import os
import pwd
import resource
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from allranks.base.errors import counted
from allranks.base.extras import how_to_install, requirements
from allranks.base.rundir import RunDirError, run_dir
from allranks.ranks.engines import libraries
from allranks.ranks.engines.devices import EXCLUSIVE, PROMISED_RANKS, SHARING_NCCL, Gpu, Inventory, place
from allranks.ranks.engines.forkserver.process import forking_is_safe
from allranks.ranks.engines.served_leases import ledger_of

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
    """The result of one check.

    `status` is "pass", "warn" or "fail"; `found` says what the check saw; `fix` says what to do, and is empty on a pass.

    Example:
        >>> check = doctor.Check("cores", "warn", "1", "Give the machine two cores or more.")
        >>> check.fix
        'Give the machine two cores or more.'
    """

    name: str
    status: str
    found: str
    fix: str = ""


def passed(name: str, found: str) -> Check:
    """A check that found nothing wrong."""
    return Check(name, "pass", found)


def warned(name: str, found: str, fix: str) -> Check:
    """A check that found what makes the course slower or less useful."""
    return Check(name, "warn", found, fix)


def failed(name: str, found: str, fix: str) -> Check:
    """A check that found what keeps the course from working."""
    return Check(name, "fail", found, fix)


def python(version: tuple[int, ...] = tuple(sys.version_info[:3])) -> Check:
    """Python is new enough."""
    found = ".".join(map(str, version))
    if version < (3, 11):
        return failed("python", found, "Make the environment with Python 3.11 or newer: make setup PYTHON=python3.12")
    return passed("python", found)


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
    """Which GPUs torch can use, and why it can't use others. Fails if it can use none although there is a driver for them.

    `inventory` and `driver` (whether the driver is loaded) are this machine's if they are left out.

    Example:
        >>> doctor.gpus().name
        'gpus'
    """
    inventory = inventory or Inventory.of_this_machine()
    names = [f"{g.index}: {g.name} ({g.memory_bytes / GIB:.0f} GiB{_mode(g)})" for g in inventory.gpus]
    if inventory.wsl:
        names.append("on WSL2: NCCL works without P2P, and NVML does not tell everything")
    found = ", ".join(names)
    if inventory.gpus:
        wrong = [*inventory.refused, *([inventory.unclear] if inventory.unclear else [])]
        if wrong:
            return warned("gpus", found, " ".join(wrong))
        return passed("gpus", found)
    if inventory.refused:
        return failed("gpus", "torch can't use the GPUs", " ".join(inventory.refused))
    driver_loaded = driver() if driver else _driver_is_loaded(inventory.wsl)
    if driver_loaded and os.environ.get("CUDA_VISIBLE_DEVICES") is None:
        if inventory.wsl:
            fix = (
                "Update the NVIDIA driver on Windows (not in WSL), then run `wsl --update` and `wsl --shutdown` there."
            )
        else:
            fix = "Run nvidia-smi and fix what it reports."
        return failed("gpus", "the NVIDIA driver is loaded, but NVML shows no GPU", fix)
    return passed("gpus", "no GPU is visible: worlds run on the CPU with gloo")


def _mode(gpu: Gpu) -> str:
    return ", exclusive: one process" if gpu.mode == EXCLUSIVE else ""


def _driver_is_loaded(wsl: bool) -> bool:
    if wsl:  # the driver is that of Windows, which puts its libraries here
        return Path("/dev/dxg").exists() and Path("/usr/lib/wsl/lib/libcuda.so.1").exists()
    return Path("/proc/driver/nvidia/version").exists()


def nccl(inventory: Inventory | None = None) -> Check:
    """Which NCCL torch loads if there are GPUs, and how many ranks it lets share a GPU."""
    inventory = inventory or Inventory.of_this_machine()
    if not inventory.gpus:
        return passed("nccl", "not needed without GPUs")
    if inventory.nccl is None:
        return failed("nccl", "this torch has no NCCL, so the course can't use the GPUs", "make setup TORCH=gpu")
    version = ".".join(map(str, inventory.nccl))
    if inventory.nccl < SHARING_NCCL:
        return passed("nccl", f"{version}: one rank a GPU")
    mps = "; CUDA's MPS runs" if inventory.mps else ""
    return passed(
        "nccl",
        f"{version}: one rank a GPU, several with backend='nccl' (experimental; NCCL promises {PROMISED_RANKS}){mps}",
    )


def cuda(inventory: Inventory | None = None, driver: int | None = None, built: str | None = None) -> Check:
    """Whether the driver is new enough for the CUDA that torch was built with. Compares major versions: minor ones are compatible."""
    inventory = inventory or Inventory.of_this_machine()
    if not inventory.gpus and not inventory.refused:
        return passed("cuda", "not needed without GPUs")
    said = inventory.driver.cuda if inventory.driver is not None else None
    if driver is None and said is not None:
        driver = said[0]
    if built is None:
        built = ".".join(map(str, inventory.torch_cuda or ()))
    if not built:
        return passed("cuda", "torch was built with no CUDA")
    if driver is None:
        return warned("cuda", f"torch was built with CUDA {built}", "The driver does not say which CUDA it supports.")
    needed = libraries.needs_driver(tuple(int(n) for n in built.split(".")))
    if driver == 0:
        return failed(
            "cuda",
            "the driver's library for CUDA (libcuda.so.1) is missing",
            "In a container, set NVIDIA_DRIVER_CAPABILITIES=compute,utility; elsewhere install the whole driver.",
        )
    if driver < int(built.split(".")[0]):
        where = " on Windows" if inventory.wsl else ""
        return failed(
            "cuda",
            f"the driver supports CUDA {driver}, torch was built with {built}",
            f"Install NVIDIA {needed}{where}; until then worlds run on the CPU with gloo.",
        )
    return passed("cuda", f"driver for CUDA {driver}, torch built with {built}")


def links(inventory: Inventory | None = None, topology: list[str] | None = None) -> Check:
    """How each pair of GPUs is connected: by NVLink, or over PCIe and how far apart.

    `inventory` and `topology` (one sentence a pair) are this machine's if they are left out. Warns if no pair has NVLink.

    Example:
        >>> doctor.links().status in ("pass", "warn")
        True
    """
    inventory = inventory or Inventory.of_this_machine()
    cut = any(gpu.parent for gpu in inventory.gpus)
    if len(_cards(inventory)) < 2:
        return passed("links", "fewer than two GPUs" + (", cut into MIG devices" if cut else ""))
    pairs = _links(_cards(inventory)) if topology is None else topology
    if not pairs:
        return passed("links", "NVML can't look at the GPUs, which nobody has leased")
    found = "; ".join(pairs) + ("; these are whole GPUs, their MIG devices may have no P2P" if cut else "")
    if not any("NVLink" in pair for pair in pairs):
        return warned(
            "links",
            found,
            "Nothing to fix, but times are those of PCIe: read chapter 40 before you compare them.",
        )
    return passed("links", found)


def iommu(
    inventory: Inventory | None = None, topology: list[str] | None = None, translated: bool | None = None
) -> Check:
    """Whether the IOMMU may stop GPUs that talk over PCIe: on some machines NCCL's first collective then never ends.

    `translated`: whether the kernel translates a GPU's addresses on PCI. Like the others, it is this machine's if it is
    left out.
    """
    inventory = inventory or Inventory.of_this_machine()
    cards = _cards(inventory)
    if len(cards) < 2 or inventory.wsl:
        return passed("iommu", "no P2P over PCIe here")
    pairs = _links(cards) if topology is None else topology
    if not any("PCIe" in pair and NO_P2P not in pair for pair in pairs):
        return passed("iommu", "no P2P over PCIe here")
    if not (_is_translated(cards) if translated is None else translated):
        return passed("iommu", "off, or it leaves the GPUs' addresses alone")
    return warned(
        "iommu",
        "GPUs talk over PCIe, and the IOMMU translates their addresses",
        "If a world with NCCL does not start, set os.environ['NCCL_P2P_DISABLE'] = '1' first. On a machine of your own, "
        "iommu=pt for the kernel, or no ACS in the BIOS, keeps P2P.",
    )


NO_P2P = "no P2P"


def _cards(inventory: Inventory) -> dict[str, int]:
    """The UUIDs of the whole GPUs, with their numbers; for a MIG device its GPU."""
    return {gpu.physical: gpu.index for gpu in inventory.gpus}


def _links(cards: dict[str, int]) -> list[str]:
    """One sentence for each pair of GPUs, from NVML; none for a GPU that the GPU service keeps closed."""
    import pynvml

    levels = {
        0: "same board",
        10: "one PCIe switch",
        20: "several PCIe switches",
        30: "one host bridge",
        40: "one NUMA node",
        50: "across sockets",
    }
    read = 0  # NVML_P2P_CAPS_INDEX_READ, which NVML's Python module has as a tuple
    pynvml.nvmlInit()
    try:
        handles = []
        for uuid, number in cards.items():
            with contextlib.suppress(pynvml.NVMLError):
                handles.append((number, pynvml.nvmlDeviceGetHandleByUUID(uuid)))
        found = []
        for (i, a), (j, b) in itertools.combinations(handles, 2):
            status = pynvml.NVML_P2P_STATUS_DISABLED_BY_REGKEY
            with contextlib.suppress(pynvml.NVMLError):
                status = pynvml.nvmlDeviceGetP2PStatus(a, b, pynvml.NVML_P2P_CAPS_INDEX_NVLINK)
            if status == pynvml.NVML_P2P_STATUS_OK:
                found.append(f"{i}-{j} NVLink")
                continue
            words = "unknown"  # WSL2 and some virtual machines don't tell
            with contextlib.suppress(pynvml.NVMLError):
                words = levels.get(pynvml.nvmlDeviceGetTopologyCommonAncestor(a, b), words)
            with contextlib.suppress(pynvml.NVMLError):
                if pynvml.nvmlDeviceGetP2PStatus(a, b, read) != pynvml.NVML_P2P_STATUS_OK:
                    words += f", {NO_P2P}"
            found.append(f"{i}-{j} PCIe ({words})")
        return found
    finally:
        pynvml.nvmlShutdown()


def _is_translated(cards: dict[str, int], devices: Path = Path("/sys/bus/pci/devices")) -> bool:
    """Whether the IOMMU translates the addresses of one of these GPUs: the kernel calls that DMA, else identity."""
    import pynvml

    pynvml.nvmlInit()
    try:
        for uuid in cards:
            with contextlib.suppress(pynvml.NVMLError, OSError):
                pci = pynvml.nvmlDeviceGetPciInfo(pynvml.nvmlDeviceGetHandleByUUID(uuid))
                address = f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0"
                if (devices / address / "iommu_group" / "type").read_text().startswith("DMA"):
                    return True
        return False
    finally:
        pynvml.nvmlShutdown()


def cores(count: int | None = None) -> Check:
    """Whether there are enough cores for four ranks to make progress at the same time."""
    count = Inventory.of_this_machine().cores if count is None else count
    if count < 2:
        return warned("cores", f"{count}", "Give the machine two cores or more; four ranks on one are right but slow.")
    return passed("cores", f"{count}")


def memory(available: int | None = None) -> Check:
    """Whether enough memory is free for the fork server and four ranks."""
    available = psutil.virtual_memory().available if available is None else available
    found = f"{available / GIB:.1f} GiB available"
    if available < 2 * GIB:
        return failed("memory", found, "Free some memory: a world of four ranks needs about 2 GiB.")
    if available < 4 * GIB:
        return warned("memory", found, "Close other programs, or use World(ranks=2).")
    return passed("memory", found)


def shared_memory(total: int | None = None) -> Check:
    """Whether /dev/shm is large enough for NCCL and for large tensors that `check` carries."""
    if total is None:
        if not Path("/dev/shm").is_dir():
            return warned("shared memory", "no /dev/shm", "Mount one: mount -t tmpfs -o size=2g tmpfs /dev/shm")
        total = shutil.disk_usage("/dev/shm").total
    found = f"/dev/shm has {total / GIB:.2g} GiB"
    if total < GIB:
        return warned(
            "shared memory", found, "In a container: --shm-size=2g (Kubernetes: an emptyDir with medium: Memory)."
        )
    return passed("shared memory", found)


def locked_memory(limit: int | None = None, inventory: Inventory | None = None) -> Check:
    """Whether NCCL may pin memory."""
    inventory = inventory or Inventory.of_this_machine()
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0] if limit is None else limit
    if inventory.gpus and limit != resource.RLIM_INFINITY and limit < 64 << 20:
        return warned("locked memory", f"{limit >> 10} KiB", "ulimit -l unlimited (Docker: --ulimit memlock=-1)")
    return passed("locked memory", "unlimited" if limit == resource.RLIM_INFINITY else f"{limit >> 10} KiB")


def open_files(limit: int | None = None) -> Check:
    """Whether this user may open enough files for 16 ranks."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if limit is None else limit
    if limit < 1024:
        return warned("open files", f"{limit}", "ulimit -n 4096")
    return passed("open files", f"{limit}")


def processes(limit: int | None = None) -> Check:
    """Whether this user may start enough processes and threads for 16 ranks."""
    limit = resource.getrlimit(resource.RLIMIT_NPROC)[0] if limit is None else limit
    if limit != resource.RLIM_INFINITY and limit < 512:
        return warned("processes", f"{limit}", "ulimit -u 4096")
    return passed("processes", "unlimited" if limit == resource.RLIM_INFINITY else f"{limit}")


def forking(safe: bool | None = None) -> Check:
    """Whether ranks can be forked from a warm process, so that a world starts in less than a second."""
    if not (forking_is_safe() if safe is None else safe):
        return warned(
            "forking", f"unsafe on {sys.platform}", "Nothing to fix, but worlds start in about 15 s instead of one."
        )
    return passed("forking", "ranks are forked from a warm process")


def run_directory() -> Check:
    """Whether the private directory for sockets and rendezvous files can be made."""
    try:
        return passed("run directory", str(run_dir()))
    except RunDirError as error:
        return failed("run directory", "this directory can't be used", str(error))


def disk(free: dict[str, int] | None = None) -> Check:
    """Whether the disk has room for logs, notebooks and the environment. `free` is free bytes by folder."""
    if free is None:
        free = {str(path): shutil.disk_usage(path).free for path in {Path.cwd(), Path(tempfile.gettempdir())}}
    least = min(free, key=free.__getitem__)
    found = f"{free[least] / GIB:.1f} GiB free in {least}"
    if free[least] < GIB // 8:
        return failed("disk", found, f"Make room in {least}.")
    if free[least] < GIB:
        return warned("disk", found, f"Make room in {least}.")
    return passed("disk", found)


def loopback(host: str = "127.0.0.1") -> Check:
    """Whether processes of this machine reach each other's ports."""
    try:
        with socket.socket() as listening, socket.socket() as calling:
            listening.bind((host, 0))
            listening.listen(1)
            calling.settimeout(3)
            calling.connect(listening.getsockname())
    except OSError as error:
        return failed(
            "loopback",
            f"{host}: {error}",
            "Let processes talk over 127.0.0.1: look for a firewall, or a missing interface lo.",
        )
    return passed("loopback", f"ports on {host} can be reached")


def sandbox(program: str | None = None, filters: str = "libseccomp.so.2", user: str | None = None) -> Check:
    """Whether submissions can be graded: bubblewrap is installed and may make namespaces, and libseccomp is installed.

    `user` is the account that grades, if it is another one; only root can ask for that. Raises KeyError if there is none.
    """
    program = shutil.which("bwrap") if program is None else program
    if not program:
        return warned("sandbox", "no bubblewrap", "Only for grading: apt install bubblewrap")
    try:
        ctypes.CDLL(filters)
    except OSError as error:
        return warned("sandbox", str(error), "Only for grading: apt install libseccomp2")
    command = [program, "--unshare-all", "--ro-bind", "/", "/", "true"]
    account: dict[str, Any] = {}
    if user is not None:
        account = {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": [], "cwd": "/"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, **account)
        found = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        works = done.returncode == 0
    except (OSError, subprocess.TimeoutExpired) as error:
        found, works = str(error), False
    if not works:
        return warned(
            "sandbox",
            found,
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
        return failed("widgets", f"JupyterLab lacks {', '.join(missing)}", "make setup, then start JupyterLab again")
    return passed("widgets", "JupyterLab has ipywidgets and anywidget")


def kernel(executable: str | None = None) -> Check:
    """Whether notebooks run with this Python."""
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
    """Whether students may write to nbgrader's exchange, if the machine has one: nbgrader requires it."""
    if not path.exists():
        return passed("exchange", "no exchange (only a shared machine needs one, to hand out labs)")
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o333 != 0o333:
        return warned("exchange", f"{path} has mode {mode:o}", f"chmod ugo+rwx {path}")
    return passed("exchange", f"{path} has mode {mode:o}")


def clock(skew_s: float | None = None) -> Check:
    """Whether the clocks of disk and machine agree: rendezvous files and nbgrader's deadlines rely on both."""
    if skew_s is None:
        with tempfile.NamedTemporaryFile() as file:
            skew_s = abs(os.stat(file.name).st_mtime - time.time())
    if skew_s > 5:
        return warned(
            "clock",
            f"the times of files are {skew_s:.0f} s off",
            "Set the clock (chrony, ntpd); on NFS, the clock of the server.",
        )
    return passed("clock", "the machine's and the disk's agree")


def world(start: Callable[[int, str], list[float]] | None = None, inventory: Inventory | None = None) -> Check:
    """Whether a small world starts, adds a number of each rank, and ends. Starts real processes, which takes seconds.

    With GPUs that are free it is one of NCCL, on two GPUs, or on one; otherwise two ranks on the CPU. `start` takes the
    number of ranks and the backend, and returns the sum that each rank holds.
    """
    inventory = inventory or Inventory.of_this_machine()
    start = start or _try_world
    if not inventory.gpus or inventory.nccl is None:
        return _tried(start, 2, "gloo", "two ranks")
    free = _free(inventory)
    if not free:
        on_cpu = _tried(start, 2, "gloo", "two ranks on the CPU")
        if on_cpu.status == "fail":
            return on_cpu
        return warned(
            "world",
            f"{on_cpu.found}; NCCL was not tried, because other worlds have all GPUs",
            "Run this again when a GPU is free; `allranks gpus` shows who has them.",
        )
    ranks = min(2, free)
    words = f"{counted(ranks, 'rank')} of NCCL {'.'.join(map(str, inventory.nccl))}, one on each GPU,"
    on_gpus = _tried(start, ranks, "nccl", words)
    if on_gpus.status == "fail" and _tried(start, 2, "gloo", "two ranks").status == "pass":
        return failed(
            "world",
            f"NCCL: {on_gpus.found}",
            "World(backend='gloo') works meanwhile. NCCL_DEBUG=INFO in the environment makes NCCL say what it does; "
            "docs/gpus.md lists what often helps.",
        )
    return on_gpus


def _free(inventory: Inventory) -> int:
    """How many GPUs no world has a lease on; of MIG devices, how many GPUs have a free one."""
    ledger = ledger_of(inventory.gpus)
    holders, sharers = ledger.holders(), ledger.sharers()
    return len({gpu.physical for gpu in inventory.gpus if holders[gpu.uuid] is None and not sharers[gpu.uuid]})


def _tried(start: Callable[[int, str], list[float]], ranks: int, backend: str, words: str) -> Check:
    try:
        began_s = time.monotonic()
        sums = start(ranks, backend)
    except Exception as error:
        return failed(
            "world",
            (str(error) or type(error).__name__).splitlines()[0],
            "Fix what fails above; then try World(ranks=2) in Python.",
        )
    if sums != [float(ranks)] * ranks:
        return failed(
            "world", f"{ranks} ranks added ones and hold {sums}", "Please report this with the output of doctor."
        )
    return passed("world", f"{words} started and added in {time.monotonic() - began_s:.1f} s")


def _try_world(ranks: int, backend: str) -> list[float]:
    from allranks.ranks.world import World

    def add() -> float:
        import torch
        import torch.distributed as dist

        ones = torch.ones(1)  # on a rank with a GPU, torch makes it there
        dist.all_reduce(ones)
        return ones.item()

    place(ranks, backend)
    with World(ranks=ranks, backend=backend) as few:
        return few.run(add, deadline=60)


CHECKS: tuple[Callable[[], Check], ...] = (
    python, packages, gpus, nccl, cuda, links, iommu, cores, memory, shared_memory, locked_memory, open_files, processes, forking,
    run_directory, disk, loopback, sandbox, widgets, kernel, exchange, clock, world,
)  # fmt: skip


def examine() -> list[Check]:
    """Runs every check; their results, in order. A check that raises counts as failed, with the error as what was found.

    The last check starts a small world, with NCCL if there are GPUs, and so ends this process's running world.

    Example (needs ranks):
        >>> [check.name for check in doctor.examine() if check.status == "fail"]
        []
    """
    return results_of(CHECKS)


def results_of(checks: Iterable[Callable[..., Check]], *about: object) -> list[Check]:
    """The results of checks that are called with `about`; one that raises counts as failed."""
    found = []
    for check in checks:
        try:
            found.append(check(*about))
        except Exception as error:
            name = check.__name__.replace("_", " ")
            found.append(
                failed(name, f"{type(error).__name__}: {error}", "Please report this with the output of doctor.")
            )
    return found
