"""A real JupyterHub with the configuration as shipped: two students, an instructor, real Unix users, a lab graded.

The scene (scene.py) is played by a pytest of its own in fresh namespaces (house.py), so that its users, homes, ports
and processes are not this machine's. This test starts it and shows what it said.
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
@pytest.mark.timeout(420)
def test_two_students_and_an_instructor():
    house = importlib.util.module_from_spec(SPEC)
    SPEC.loader.exec_module(house)
    if reason := house.what_is_missing():
        pytest.skip(reason)
    options = ["-p", "no:cacheprovider", "-x", "-v", "--durations=0", "--timeout=200"]
    done = subprocess.run(
        [*house.COMMAND, "-m", "pytest", *options, HERE / "scene.py"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    print(done.stdout)
    assert done.returncode == 0, f"the scene failed:\n{done.stdout[-12000:]}"
    assert " passed" in done.stdout and "skipped" not in done.stdout.splitlines()[-1], done.stdout[-2000:]
