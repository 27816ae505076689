"""Creates .venv and installs All Ranks into it. Needs only Python 3.11 or newer; `make setup` runs it.

With an NVIDIA driver that is new enough it installs the CUDA build of torch (with NCCL 2.30), otherwise the CPU build.
For Linux PyPI has no CPU build under the plain version, so it tries three ways: first the local version (`+cpu`), which
a mirror or wheel folder in pip's configuration may have; then uv, which knows PyTorch's own index; last PyPI's build.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"


DRIVER = 580  # the oldest NVIDIA driver that runs CUDA 13, which the pinned torch for GPUs was built for


def is_wsl(version: Path = Path("/proc/version")) -> bool:
    """Whether this is Windows' Linux (WSL2), where the driver is that of Windows."""
    return version.exists() and "microsoft" in version.read_text(errors="replace").lower()


def nvidia_driver(
    loaded: Path = Path("/proc/driver/nvidia/version"), windows: Path = Path("/usr/lib/wsl/lib")
) -> str | None:
    """The version of the NVIDIA driver, "?" if it does not tell, None if there is none. Does not use CUDA.

    Under WSL2 nothing is in /proc: `windows` has what Windows' driver puts there, nvidia-smi among it.
    """
    if loaded.exists():
        said = re.search(r"\b\d{3,}\.\d+(\.\d+)*\b", loaded.read_text(errors="replace"))
        return said[0] if said else "?"
    program = shutil.which("nvidia-smi") or shutil.which("nvidia-smi", path=str(windows))
    if program is None:
        return "?" if is_wsl() and (windows / "libcuda.so.1").exists() else None
    command = [program, "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    said = re.search(r"^\d{3,}\.\d+(\.\d+)*$", done.stdout, re.MULTILINE)
    return said[0] if said else None  # it is often installed where there is no driver, and then only says so


def choose(asked: str | None, driver: str | None) -> tuple[str, str]:
    """Which torch to install, "gpu" or "cpu", and a sentence on the driver; the sentence is empty if it needs none."""
    major = driver.split(".")[0] if driver is not None else ""
    old = major.isdigit() and int(major) < DRIVER
    if asked is None and old:
        return "cpu", (
            f"The NVIDIA driver {driver} is too old for torch with CUDA 13, which needs {DRIVER} or newer: "
            "installing torch for CPUs, on which every chapter runs. After an update of the driver: make "
            "setup TORCH=gpu"
        )
    if asked == "gpu" and old:
        return "gpu", (
            f"The NVIDIA driver {driver} is too old for this torch, which needs {DRIVER} or newer: worlds will "
            "run on the CPU until the driver is updated."
        )
    return asked or ("gpu" if driver is not None else "cpu"), ""


def run(*command: object, quiet: bool = False) -> bool:
    """Runs a command; True if it succeeded. `quiet` hides its output."""
    sink = subprocess.DEVNULL if quiet else None
    return subprocess.run([str(part) for part in command], stdout=sink, stderr=sink).returncode == 0


def pip(*arguments: object, quiet: bool = False) -> bool:
    """Runs pip of the new environment; True if it succeeded."""
    return run(PYTHON, "-m", "pip", "--disable-pip-version-check", *arguments, quiet=quiet)


def install_torch(kind: str, pin: str) -> bool:
    """Installs the pinned torch, the CUDA build or the smallest CPU build available; True if it succeeded."""
    if kind == "gpu" or sys.platform == "darwin":
        return pip("install", pin)
    if pip("install", "-q", f"{pin}+cpu", quiet=True):
        return True
    if pip("install", "-q", "uv", quiet=True) and run(
        PYTHON, "-m", "uv", "pip", "install", "--python", PYTHON, "--torch-backend", "cpu", pin
    ):
        return True
    print("Found no CPU build of torch; installing PyPI's, with several gigabytes of CUDA.", flush=True)
    return pip("install", pin)


def main() -> int:
    """Sets up .venv; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torch", choices=("cpu", "gpu"), help="instead of looking for an NVIDIA driver")
    options = parser.parse_args()
    if sys.version_info < (3, 11):  # noqa: UP036 - an older Python runs this file first
        print(
            f"All Ranks needs Python 3.11 or newer; {sys.executable} is {sys.version.split()[0]}. "
            "Run `make setup PYTHON=python3.12`, or with another version that you have."
        )
        return 2
    import tomllib  # new in 3.11, so after the check

    kind, sentence = choose(options.torch, nvidia_driver())
    if sentence:
        print(sentence, flush=True)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [pin] = project["optional-dependencies"][kind]
    size = "about 200 MB" if kind == "cpu" else "about 3 GB, with NCCL and the CUDA libraries"
    print(
        f"Setting up {VENV.name}: {pin} for {kind.upper()} ({size}), JupyterLab and the rest (about 260 MB).",
        flush=True,
    )
    if not PYTHON.exists() and not run(sys.executable, "-m", "venv", VENV):
        print("Python could not make a virtual environment. On Debian: apt install python3-venv.")
        return 1
    if not pip("--version", quiet=True):  # uv sync makes environments without it
        run(PYTHON, "-m", "ensurepip", quiet=True)
    steps = (
        lambda: install_torch(kind, pin),
        lambda: pip("install", "-q", "-c", ROOT / "constraints.txt", "-e", f"{ROOT}[{kind},lab,grading,dev]"),
    )
    for step in steps:
        if not step():
            print("The command above failed, and the installation stopped. Run `make setup` again; it continues.")
            return 1
    (VENV / ".allranks-setup").touch()
    os.utime(VENV / ".allranks-setup")
    return 0


if __name__ == "__main__":
    sys.exit(main())
