"""A real JupyterHub with the configuration as shipped: two students, an instructor, real Unix users, a lab graded.

The scene (scene.py) is played by a pytest of its own in fresh namespaces (house.py), so that its users, homes, ports
and processes are not this machine's. This test starts it and shows what it said.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
NAMESPACES = ["unshare", "--mount", "--pid", "--net", "--fork", "--mount-proc", "--kill-child"]
PROGRAMS = {
    "unshare": "apt install util-linux",
    "mount": "apt install mount",
    "useradd": "apt install passwd",
    "bwrap": "apt install bubblewrap",
    "configurable-http-proxy": "apt install nodejs npm; npm install -g configurable-http-proxy@5.3.0",
}


def what_is_missing() -> str | None:
    """Why the scene can't be played here, and how to fix it; None where it can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "making real Unix users takes root on Linux"
    for module in ("jupyterhub", "jupyterhub_idle_culler", "systemdspawner"):
        if importlib.util.find_spec(module) is None:
            return f"{module} is not installed: pip install -c constraints.txt -e '.[hub]'"
    for program, fix in PROGRAMS.items():
        if shutil.which(program) is None:
            return f"{program} is not installed: {fix}"
    if not Path("/etc/pam.d/login").is_file():
        return "PAM has no rules for logins: apt install login"
    tried = subprocess.run([*NAMESPACES, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        return f"this machine gives root no namespaces: {tried.stderr.strip()}"
    return None


@pytest.mark.live
@pytest.mark.notebooks
@pytest.mark.servers
@pytest.mark.timeout(420)
def test_two_students_and_an_instructor():
    reason = what_is_missing()
    if reason:
        pytest.skip(reason)
    done = subprocess.run(
        [*NAMESPACES, sys.executable, HERE / "house.py", "-x", "-v", "--durations=0", "--timeout=200"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    print(done.stdout)
    assert done.returncode == 0, f"the scene failed:\n{done.stdout[-12000:]}"
    assert " passed" in done.stdout and "skipped" not in done.stdout.splitlines()[-1], done.stdout[-2000:]
