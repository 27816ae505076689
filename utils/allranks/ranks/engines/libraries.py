"""What torch and the NVIDIA driver on this machine are: torch's CUDA, the NCCL that torch loads, WSL2, and CUDA's MPS.

Nothing here imports torch or starts CUDA, so a notebook can ask before it has ranks.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import mmap
import os
import re
import struct
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import ClassVar

import psutil

from allranks.ranks.engines.forkserver.client import linker_told

# the oldest driver that runs programs of a CUDA version: NVIDIA's page on minor version compatibility
DRIVERS = {11: 450, 12: 525, 13: 580}
# the oldest GPUs that a CUDA version still has code for, by compute capability
OLDEST_GPUS = {12: (5, 0), 13: (7, 5)}
ASK_S = 60.0
MPS_PIPES = Path("/tmp/nvidia-mps")  # MPS's own default

# ELF's numbers, from elf.h
_LOAD, _DYNAMIC = 1, 2
_NEEDED, _STRINGS, _RPATH, _RUNPATH = 1, 5, 15, 29

# runs in another process, so that no library of NCCL stays in the notebook's
_ASK_LIBRARIES = """
import ctypes, sys

def ask(path):
    try:
        answer = ctypes.CDLL(path).ncclGetVersion
    except (OSError, AttributeError):
        return
    version = ctypes.c_int()
    if answer(ctypes.byref(version)) == 0:
        print("ncclGetVersion:", version.value)
        sys.exit()

for path in (None, *sys.argv[1:]):  # None: what LD_PRELOAD brought comes before what torch's own search finds
    ask(path)
"""
_ASK_TORCH = "import torch; print('torch:', *torch.cuda.nccl.version())"


def torch_folder() -> Path | None:
    """The folder of the torch that `import torch` takes; None if there is none."""
    try:
        spec = importlib.util.find_spec("torch")
    except (ImportError, ValueError):
        return None
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    return Path(places[0]) if places else None


def torch_cuda(folder: Path | None = None) -> tuple[int, ...] | None:
    """The CUDA version that torch was built with, such as (13, 2); None for a build without CUDA."""
    folder = folder or torch_folder()
    try:
        text = (folder / "version.py").read_text(encoding="utf-8") if folder is not None else ""
    except OSError:
        return None
    said = re.search(r"^cuda\b[^=\n]*=\s*['\"](\d+(?:\.\d+)*)['\"]", text, re.MULTILINE)
    return tuple(int(n) for n in said[1].split(".")) if said else None


def nccl_version(folder: Path | None = None) -> tuple[int, ...] | None:
    """The version of the NCCL that torch loads, such as (2, 30, 7); None if torch has none.

    It asks the library itself: one that LD_PRELOAD names, else the one that the dynamic linker finds for torch. If that
    library can't be asked, it is the version of the NCCL package that pip installed.
    """
    folder = folder or torch_folder()
    library = folder / "lib" / "libtorch_cuda.so" if folder is not None else None
    if library is None or not library.is_file():
        return None
    return _asked(library, library.stat().st_mtime_ns, linker_told()) or _packaged()


@functools.lru_cache(maxsize=8)
def _asked(library: Path, changed_ns: int, loads: tuple[str, ...]) -> tuple[int, ...] | None:
    """What NCCL says, asked in another process. The last two arguments only tell cached answers apart."""
    candidates = candidates_of(library)
    if candidates is None:  # NCCL is a part of torch's own library, which only loads with all of torch
        command = [sys.executable, "-c", _ASK_TORCH]
    else:
        command = [sys.executable, "-I", "-S", "-c", _ASK_LIBRARIES, *candidates]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=ASK_S, stdin=subprocess.DEVNULL).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    if code := re.search(r"^ncclGetVersion: (\d+)$", said, re.MULTILINE):
        return _decoded(int(code[1]))
    if parts := re.search(r"^torch: (\d+(?: \d+)*)$", said, re.MULTILINE):
        return tuple(int(n) for n in parts[1].split())
    return None


class _Symbol(ctypes.Structure):
    """What dladdr says of a function: Dl_info of dlfcn.h."""

    _fields_: ClassVar = [
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("at", ctypes.c_void_p),
    ]


def nccl_in_use(maps: Path = Path("/proc/self/maps")) -> tuple[tuple[int, ...], str] | None:
    """(version, file) of the NCCL that torch calls in this process, by that library's own answer; None if there is none.

    `torch.cuda.nccl.version()` says only for which version torch was built. A process may hold two NCCLs, one that LD_PRELOAD
    names and torch's own; torch calls the one that the dynamic linker gave to its library.
    """
    try:
        lines = maps.read_text(encoding="utf-8").splitlines()
        own = next(file for line in lines if (file := line.split(None, 5)[-1]).endswith("/libtorch_cuda.so"))
        ask, say = ctypes.CDLL(own).ncclGetVersion, ctypes.CDLL(None).dladdr
    except (OSError, StopIteration, AttributeError):  # no GPU build, or one whose NCCL is a part of torch's own library
        return None
    version, symbol = ctypes.c_int(), _Symbol()
    if ask(ctypes.byref(version)) or not say(ctypes.cast(ask, ctypes.c_void_p), ctypes.byref(symbol)):
        return None
    return _decoded(version.value), os.fsdecode(symbol.file or b"")


def _decoded(code: int) -> tuple[int, ...]:
    """NCCL's version from its number: 23007 is 2.30.7; up to 2.8 a digit less, 2708 is 2.7.8."""
    big = 10_000 if code >= 10_000 else 1_000
    return code // big, code % big // 100, code % 100


def _packaged() -> tuple[int, ...] | None:
    for name in ("nvidia-nccl-cu13", "nvidia-nccl-cu12"):
        try:
            return tuple(int(n) for n in re.findall(r"\d+", metadata.version(name))[:3])
        except metadata.PackageNotFoundError:
            continue
    return None


def candidates_of(library: Path) -> list[str] | None:
    """Where the dynamic linker looks for the NCCL that `library` needs, in its order; None if it needs none.

    An RPATH comes before LD_LIBRARY_PATH, a RUNPATH after it; the bare name at the end stands for the system's folders.
    """
    read = _dynamic_section(library)
    if read is None:
        return ["libnccl.so.2"]
    needed, rpath, runpath = read
    names = [name for name in needed if name.startswith("libnccl.so")]
    if not names:
        return None
    by_hand = [folder for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    folders = [*by_hand, *runpath] if runpath else [*rpath, *by_hand]
    origin = str(library.resolve().parent)
    there = [os.path.join(re.sub(r"\$(ORIGIN|\{ORIGIN\})", lambda _: origin, f), names[0]) for f in folders]
    return [*filter(os.path.isfile, there), names[0]]


def _dynamic_section(library: Path) -> tuple[list[str], list[str], list[str]] | None:
    """What an ELF library needs, its RPATH and its RUNPATH; None if the file can't be read as one of 64 bits."""
    try:
        with open(library, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if data[:6] != b"\x7fELF\x02\x01":
                return None
            (table,), (size, count) = struct.unpack_from("<Q", data, 32), struct.unpack_from("<HH", data, 54)
            # of each: type, flags, offset, address, (physical), bytes in the file
            segments = [struct.unpack_from("<IIQQQQ", data, table + i * size) for i in range(count)]
            entries: list[tuple[int, int]] = []
            for kind, _, offset, _, _, length in segments:
                if kind == _DYNAMIC:
                    entries = [struct.unpack_from("<qQ", data, offset + i) for i in range(0, length, 16)]
            strings = next(value for tag, value in entries if tag == _STRINGS)
            strings = next(
                strings - address + offset
                for kind, _, offset, address, _, length in segments
                if kind == _LOAD and address <= strings < address + length
            )

            def texts(wanted: int) -> list[str]:
                starts = [strings + value for tag, value in entries if tag == wanted]
                return [data[start : data.find(b"\0", start)].decode() for start in starts]

            rpath, runpath = ([f for text in texts(tag) for f in text.split(":") if f] for tag in (_RPATH, _RUNPATH))
            return texts(_NEEDED), rpath, runpath
    except (OSError, OverflowError, ValueError, struct.error, StopIteration):
        return None


def needs_driver(cuda: tuple[int, ...]) -> str:
    """Which driver runs programs of this CUDA version, in words: "driver 580 or newer"."""
    oldest = DRIVERS.get(cuda[0])
    return f"driver {oldest} or newer" if oldest else f"a driver for CUDA {cuda[0]}"


def is_wsl(version: Path = Path("/proc/version")) -> bool:
    """Whether this is Windows' Linux (WSL2), where the driver is that of Windows and GPUs have no P2P."""
    try:
        return "microsoft" in version.read_text(encoding="utf-8", errors="replace").lower()
    except OSError:
        return False


def mps_runs() -> bool:
    """Whether CUDA's MPS serves this machine's GPUs, so that several processes use one GPU at the same time."""
    said = os.environ.get("CUDA_MPS_PIPE_DIRECTORY")
    pipes = Path(said) if said else MPS_PIPES
    try:
        if not any(pipes.iterdir()):
            return False
    except OSError:
        return False
    # a container may have the folder without seeing the process; there the setting says that it is meant
    return bool(said) or any(
        (process.info["name"] or "").startswith("nvidia-cuda-mps") for process in psutil.process_iter(["name"])
    )
