"""A real JupyterHub with the configuration as shipped: two students, an instructor, real Unix users, a lab graded; and attacks.

The scenes (scene.py, attacks.py) are played by a pytest of their own in fresh namespaces (house.py), so that their users, homes,
ports and processes are not this machine's. These tests start them and show what they said.
"""

import importlib.util
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
SPEC = importlib.util.spec_from_file_location("house", HERE / "house.py")


@pytest.mark.live
@pytest.mark.notebooks
@pytest.mark.servers
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("scene", ["scene.py", "attacks.py", "restore.py"])
def test_two_students_and_an_instructor(scene):
    house = importlib.util.module_from_spec(SPEC)
    SPEC.loader.exec_module(house)
    if reason := house.what_is_missing():
        pytest.skip(reason)
    options = ["-p", "no:cacheprovider", "-x", "-v", "-rs", "--durations=0", "--timeout=1200"]
    done = subprocess.run(
        [*house.COMMAND, "-m", "pytest", *options, HERE / scene],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    print(done.stdout)
    assert done.returncode == 0, f"the scene failed:\n{done.stdout[-12000:]}"
    summary = done.stdout.split("short test summary")[-1]
    assert " passed" in summary and summary.count("SKIPPED") == summary.count("names in browsers"), summary[-2000:]
