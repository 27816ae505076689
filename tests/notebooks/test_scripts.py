"""The scripts beside the chapters run under torchrun, as a stranger starts them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.live, pytest.mark.notebooks, pytest.mark.timeout(200)]
SCRIPTS = Path(__file__).resolve().parents[2] / "chapters" / "scripts"


def run(name: str, ranks: int, folder: Path) -> str:
    """What the script prints under torchrun, on the CPU."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    command += ["--log-dir", str(folder), str(SCRIPTS / name)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_mean_of_all_ranks(tmp_path):
    told = run("distributed_mean.py", 3, tmp_path)
    assert "3 ranks on " in told and told.rstrip().endswith("the mean of 0 to 2 is [1.0, 1.0, 1.0]")


@pytest.mark.nightly
def test_every_collective(tmp_path):
    told = run("every_collective.py", 3, tmp_path)
    blocks: dict[str, list[str]] = {}
    name = ""
    for line in told.splitlines():
        if line.startswith("  rank"):
            blocks.setdefault(name, []).append(line.split(": ", 1)[1])
        else:
            name = line
    assert blocks == {
        "broadcast": ["[1] -> [1]", "[2] -> [1]", "[3] -> [1]"],
        "scatter": ["[0, 1, 2] -> [0]", "None -> [1]", "None -> [2]"],
        "gather": ["[1] -> [1, 2, 3]", "[2] -> None", "[3] -> None"],
        "reduce": ["[1] -> [6]", "[2] -> None", "[3] -> None"],
        "all_reduce": ["[1] -> [6]", "[2] -> [6]", "[3] -> [6]"],
        "all_gather": ["[1] -> [1, 2, 3]", "[2] -> [1, 2, 3]", "[3] -> [1, 2, 3]"],
        "reduce_scatter": ["[0, 1, 2] -> [30]", "[10, 11, 12] -> [33]", "[20, 21, 22] -> [36]"],
        "all_to_all": ["[0, 1, 2] -> [0, 10, 20]", "[10, 11, 12] -> [1, 11, 21]", "[20, 21, 22] -> [2, 12, 22]"],
    }
