"""Libraries that a test compiles, in place of those that come with torch and with a driver."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

NCCL = "libnccl.so.2"
NEEDS_NCCL = "int ncclGetVersion(int*); int x(int* v) { return ncclGetVersion(v); }"  # as torch's libtorch_cuda.so does


def library(path: Path, code: str, *options: str) -> Path:
    """A library at `path`, of C code; skips the test where no compiler is."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler (apt install gcc)")
    path.parent.mkdir(parents=True, exist_ok=True)
    command = [compiler, "-shared", "-fPIC", "-xc", "-", "-xnone", "-o", str(path), *options]
    subprocess.run(command, input=code, text=True, check=True)
    return path


def nccl(folder: Path, version: int, name: str = NCCL) -> Path:
    """An NCCL in `folder` that says this version; `name` is what the dynamic linker takes it for."""
    code = f"int ncclGetVersion(int* version) {{ *version = {version}; return 0; }}"
    return library(folder / NCCL, code, f"-Wl,-soname,{name}")
