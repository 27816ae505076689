"""Which torch `make setup` installs: it goes by the NVIDIA driver, before any package is there."""

import sys
from pathlib import Path

import pytest
from allranks.ranks.engines import libraries
from loading import loaded

FILE = Path(__file__).resolve().parents[2] / "tools" / "setup.py"
setup = loaded(FILE)

PROPRIETARY = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC version:  gcc "
    "version 12.2.0 (Debian 12.2.0-14)\n"
)
OPEN = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (dvs-builder@U22)\nGCC "
    "version:  gcc 12\n"
)


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Writes an nvidia-smi that prints something; the only one on the path."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()

    def smi(said: str, code: int = 0, folder: str = "bin") -> None:
        (tmp_path / folder).mkdir(exist_ok=True)
        file = tmp_path / folder / "nvidia-smi"
        file.write_text(f"#!{sys.executable}\nprint({said!r})\nraise SystemExit({code})\n")
        file.chmod(0o755)

    return smi


@pytest.mark.parametrize("text, version", [(PROPRIETARY, "535.104.05"), (OPEN, "580.65.06"), ("something else", "?")])
def test_the_loaded_driver_says_its_version(tmp_path, text, version):
    (tmp_path / "version").write_text(text)
    assert setup.nvidia_driver(tmp_path / "version") == version


def test_without_a_driver_in_proc_nvidia_smi_is_asked(tmp_path, programs):
    nowhere = tmp_path / "none"
    assert setup.nvidia_driver(nowhere, nowhere) is None
    programs("550.54.15\n550.54.15")
    assert setup.nvidia_driver(nowhere, nowhere) == "550.54.15"
    programs("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", 9)
    assert setup.nvidia_driver(nowhere, nowhere) is None


def test_under_wsl2_windows_nvidia_smi_is_asked(tmp_path, programs, monkeypatch):
    windows = tmp_path / "wsl"
    programs("581.29", folder="wsl")
    assert setup.nvidia_driver(tmp_path / "none", windows) == "581.29"
    (windows / "nvidia-smi").unlink()
    (windows / "libcuda.so.1").touch()
    assert setup.nvidia_driver(tmp_path / "none", windows) is None
    monkeypatch.setattr(setup, "is_wsl", lambda: True)
    assert setup.nvidia_driver(tmp_path / "none", windows) == "?"
    kernel = tmp_path / "kernel"
    kernel.write_text("Linux version 5.15.167.4-microsoft-standard-WSL2")
    assert libraries.is_wsl(kernel)


@pytest.mark.parametrize(
    "asked, driver, kind, words",
    [
        (None, None, "cpu", ""),
        (None, "580.65.06", "gpu", ""),
        (None, "1000.1", "gpu", ""),
        (None, "?", "gpu", ""),
        (None, "575.57.08", "cpu", "575.57.08 is too old for torch with CUDA 13, which needs "
                                   "580 or newer: installing torch for CPUs"),
        ("gpu", "575.57.08", "gpu", "worlds will run on the CPU until the driver is updated"),
        ("cpu", "575.57.08", "cpu", ""),
        ("gpu", None, "gpu", ""),
    ],
)  # fmt: skip
def test_torch_follows_the_driver(asked, driver, kind, words):
    found, sentence = setup.choose(asked, driver)
    assert found == kind and words in sentence and bool(sentence) == bool(words)


def test_the_driver_that_is_asked_for_is_the_packages():
    assert libraries.DRIVERS[13] == setup.DRIVER
