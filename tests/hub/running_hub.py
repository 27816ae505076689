"""A real hub in the house (house.py), with its accounts: what the scene and the benches of the hub stand on."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import requests
from visitor import MAKES_TOKENS, Visitor

ROOT = Path(__file__).resolve().parents[2]
GRADER = "allranks-grader"
# a busy machine may take minutes for what is not tried here: how long things take
LOCAL = f"""
c.Spawner.start_timeout = c.Spawner.http_timeout = 600
c.JupyterHub.services.append({{"name": "visitors", "api_token": {MAKES_TOKENS!r}}})
c.JupyterHub.load_roles.append({{"name": "visitors", "scopes": ["tokens"], "services": ["visitors"]}})
"""


@dataclass
class Hub:
    """The running hub, and what the acts pass on to each other."""

    log: Path
    process: subprocess.Popen | None = None
    people: dict[str, Visitor] = field(default_factory=dict)

    def start(self, **environment: str) -> None:
        """As the administrator's unit does, from a directory that has nothing to do with it."""
        assert not self.answers(), "another hub runs: this one would take its proxy away"
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "jupyterhub", "-f", ROOT / "deploy" / "jupyterhub_config.py"],
                cwd="/",
                env={"PATH": os.environ["PATH"], **environment},
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        deadline = time.monotonic() + 600
        while not self.answers():
            assert self.process.poll() is None, "the hub ended"
            assert time.monotonic() < deadline, "the hub does not answer"
            time.sleep(0.3)

    @staticmethod
    def answers() -> bool:
        """Whether a hub runs behind the proxy."""
        try:
            return requests.get("http://127.0.0.1:8000/hub/api/", timeout=30).ok
        except requests.RequestException:
            return False

    def stop(self) -> None:
        """As systemd does: it asks, and in the end insists."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def run(*command: object, **options) -> str:
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True, **options).stdout


def processes_of(name: str) -> list[psutil.Process]:
    """Every process that runs as this Unix user and is not a zombie."""
    found = []
    for process in psutil.process_iter(["uids", "status"]):
        if process.info["uids"].real == pwd.getpwnam(name).pw_uid and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


def ranks_of(name: str) -> set[int]:
    """The pids of ranks and controllers that the user's fork servers have forked. A fork keeps the command line; a kernel is named."""
    forks = [
        p for p in processes_of(name) if "allranks.ranks.engines.forkserver" in p.cmdline() and p.name() != "ipykernel"
    ]
    warm = {p.pid: p.ppid() for p in forks}
    return {pid for pid, parent in warm.items() if parent in warm}


def make_accounts(people: dict[str, tuple[str, str | None]]) -> None:
    """Real Unix accounts, by name their password and their group; the groups; the grader with its clone of the course."""
    names = ["hub", *(f"{name}.hub" for name in (*people, GRADER))]
    with open("/etc/hosts", "a", encoding="utf-8") as hosts:  # browsers know these names; Python asks this file
        hosts.write("".join(f"127.0.0.1 {name}.localhost\n" for name in names))
    Path("/etc/allranks").mkdir(exist_ok=True)
    Path("/etc/allranks/hub.py").write_text(LOCAL)
    for group in ("allranks-students", "allranks-instructors"):
        run("groupadd", group)
    for name, (_, group) in people.items():
        run("useradd", "--create-home", "--shell", "/bin/bash", *(["--groups", group] if group else []), name)
    run("useradd", "--create-home", GRADER)
    run("chpasswd", input="".join(f"{name}:{password}\n" for name, (password, _) in people.items()))
    course = Path("/home") / GRADER / "allranks"
    for folder in ("autograder", "solutions", "labs", "chapters"):  # what the grader's clone has, as it is here now
        left_out = shutil.ignore_patterns("__pycache__", "*.db", "submitted", "autograded", "feedback", "secret.txt")
        shutil.copytree(ROOT / folder, course / folder, ignore=left_out)
    run("chown", "-R", f"{GRADER}:", course)
