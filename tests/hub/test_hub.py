"""A real JupyterHub with the configuration as shipped: two students, an instructor, real Unix users, a lab graded; and attacks.

The scenes (scene.py, attacks.py) are played by a pytest of their own in fresh namespaces (house.py), so that their users, homes,
ports and processes are not this machine's. These tests start them and show what they said.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from waiting import until

HERE = Path(__file__).resolve().parent
SPEC = importlib.util.spec_from_file_location("house", HERE / "house.py")


# what the scene's test does, up to where it is killed
KILLED = """
import importlib.util, subprocess, sys, time
spec = importlib.util.spec_from_file_location("house", sys.argv[1])
house = importlib.util.module_from_spec(spec)
spec.loader.exec_module(house)
print(subprocess.Popen([*house.COMMAND, "-c", "import time; time.sleep(600)"]).pid, flush=True)
time.sleep(600)
"""


@pytest.mark.servers
def test_a_house_ends_with_the_tests_that_are_killed():
    house = importlib.util.module_from_spec(SPEC)
    SPEC.loader.exec_module(house)
    if reason := house.what_is_missing():
        pytest.skip(reason)
    with subprocess.Popen([sys.executable, "-c", KILLED, HERE / "house.py"], stdout=subprocess.PIPE) as tests:
        root = psutil.Process(int(tests.stdout.readline()))
        until(lambda: any(os.fspath(HERE / "house.py") in one.cmdline() for one in root.children(recursive=True)))
        inside = [root, *root.children(recursive=True)]
        tests.kill()
    until(lambda: not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in inside))


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
