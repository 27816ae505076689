"""deploy/jupyterhub_config.py as it is shipped, read by a process of its own in a test's folder; it starts nothing."""

import os
import pwd
import subprocess
import sys
from pathlib import Path

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
READS = """
import os, sys
from pathlib import Path
from traitlets.config.loader import PyFileConfigLoader

found = Path.stat  # as if others could enter the checkout's folder: this starts no server
Path.stat = lambda path, **how: os.stat_result((found(path, **how).st_mode | 1, *found(path, **how)[1:]))

def shipped():
    return PyFileConfigLoader("jupyterhub_config.py", path=sys.argv[1]).load_config()
"""


def answer_of(program: str, folder: Path, settings: dict[str, str]) -> subprocess.CompletedProcess:
    """What a program says for which `shipped()` is the configuration, with these settings and all else below the folder."""
    (folder / "configurable-http-proxy").touch(0o755)
    for name in ("state", "exchange"):
        (folder / name).mkdir()
    paths = {"STATE": "state", "EXCHANGE": "exchange", "MACHINE": "machine/socket", "LTI_LAUNCHES": "lti/launches.json"}
    about = {f"ALLRANKS_HUB_{name}": str(folder / path) for name, path in paths.items()}
    about |= {"ALLRANKS_LEASES": str(folder / "leases"), "PATH": f"{folder}:{os.environ['PATH']}"}
    about |= {"ALLRANKS_HUB_GRADER": pwd.getpwuid(os.geteuid()).pw_name, "ALLRANKS_HUB_SPAWNER": "local"}
    about |= {"ALLRANKS_HUB_GPU_PAGE": "", **settings}
    return subprocess.run(
        [sys.executable, "-c", READS + program, str(DEPLOY)],
        env={**os.environ, **about},
        capture_output=True,
        text=True,
        check=False,
    )
