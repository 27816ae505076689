"""Creates .venv and installs All Ranks into it. Needs nothing but Python 3.11 or newer; run by `make setup`.

Chooses torch: with an NVIDIA driver the CUDA build (which brings NCCL 2.30), else the CPU build. The CPU build is not
on PyPI for Linux under its plain version, so it is asked for by its local version first (a mirror or wheel folder that
pip is configured with), then through uv, which knows PyTorch's own index, and only then taken as PyPI has it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"


def has_nvidia_driver() -> bool:
    """Whether this machine runs the NVIDIA kernel driver (asked without CUDA, which may be missing)."""
    return Path("/proc/driver/nvidia/version").exists() or shutil.which("nvidia-smi") is not None


def run(*command: object, quiet: bool = False) -> bool:
    """Runs a command; True where it succeeded. `quiet` hides what it prints."""
    sink = subprocess.DEVNULL if quiet else None
    return subprocess.run([str(part) for part in command], stdout=sink, stderr=sink).returncode == 0


def pip(*arguments: object, quiet: bool = False) -> bool:
    """pip inside the new environment."""
    return run(PYTHON, "-m", "pip", "--disable-pip-version-check", *arguments, quiet=quiet)


def install_torch(kind: str, pin: str) -> bool:
    """Installs the pinned torch: the CUDA build, or the lightest CPU build that can be had."""
    if kind == "gpu" or sys.platform == "darwin":
        return pip("install", pin)
    if pip("install", "-q", f"{pin}+cpu", quiet=True):
        return True
    if pip("install", "-q", "uv", quiet=True) and run(
        PYTHON, "-m", "uv", "pip", "install", "--python", PYTHON, "--torch-backend", "cpu", pin
    ):
        return True
    print("No CPU build of torch could be had; taking PyPI's, which brings several gigabytes of CUDA.", flush=True)
    return pip("install", pin)


def main() -> int:
    """Sets up .venv; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torch", choices=("cpu", "gpu"), help="instead of looking for an NVIDIA driver")
    options = parser.parse_args()
    if sys.version_info < (3, 11):  # noqa: UP036 - this file is what an older Python meets first
        print(
            f"All Ranks needs Python 3.11 or newer; {sys.executable} is {sys.version.split()[0]}. "
            "Say `make setup PYTHON=python3.12`, or whichever you have."
        )
        return 2
    import tomllib  # new in 3.11, so after the check

    kind = options.torch or ("gpu" if has_nvidia_driver() else "cpu")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [pin] = project["optional-dependencies"][kind]
    size = "about 200 MB" if kind == "cpu" else "about 3 GB, NCCL and the CUDA libraries with it"
    print(
        f"Setting up {VENV.name}: {pin} for {kind.upper()} ({size}), JupyterLab and the rest (about 260 MB).",
        flush=True,
    )
    if not PYTHON.exists() and not run(sys.executable, "-m", "venv", VENV):
        print("Python could not make a virtual environment. On Debian: apt install python3-venv.")
        return 1
    steps = (
        lambda: install_torch(kind, pin),
        lambda: pip("install", "-q", "-c", ROOT / "constraints.txt", "-e", f"{ROOT}[{kind},lab,grading,dev]"),
    )
    for step in steps:
        if not step():
            print("The installation stopped at the command above; what is there is kept. Run `make setup` again.")
            return 1
    (VENV / ".allranks-setup").touch()
    os.utime(VENV / ".allranks-setup")
    return 0


if __name__ == "__main__":
    sys.exit(main())
