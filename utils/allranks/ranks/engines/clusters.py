"""Engines on other machines: the settings with which ipyparallel's Slurm and SSH launchers start an engine per rank.

Slurm numbers its engines itself (`SLURM_PROCID`); engines over SSH are numbered in the order of the hosts. Each engine
finds its number in `RANK` and its host in `ALLRANKS_HOST`. `allranks.ranks.engines.nodes` reads both, and gives the engine a
GPU and a network interface.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ipyparallel.cluster.launcher import SlurmEngineSetLauncher, SSHEngineLauncher, SSHEngineSetLauncher

from allranks.ranks.engines.devices import MAX_RANKS, DeviceError
from allranks.ranks.engines.nodes import address_towards

PROFILES = ("slurm", "ssh")
WAIT_S = {"slurm": 900.0, "ssh": 120.0}  # how long to wait for all engines: a job may stand in a queue
# the controller dies with its notebook; an engine that hears no heartbeat for so many seconds then ends itself
HEARTBEATS = 30
# options of sbatch that the user can't set, because we set them
OURS = ("nodes", "ntasks", "ntasks-per-node", "output", "export", "job-name", "distribution")
SLURM_TEMPLATE = """#!/bin/sh
#SBATCH --job-name=allranks
#SBATCH --export=ALL
#SBATCH --nodes={nodes}
#SBATCH --ntasks={n}
#SBATCH --ntasks-per-node={per_node}
#SBATCH --output={output_file}
{options}
srun --distribution=block sh -c 'export RANK=$SLURM_PROCID ALLRANKS_HOST=$SLURMD_NODENAME; exec "$@" --IPEngine.id=$SLURM_PROCID' engine {program_and_args}
"""


class ClusterError(DeviceError):
    """A profile can't be used: it is unknown, has no hosts, or has an unknown setting."""


class SlurmEngines(SlurmEngineSetLauncher):  # type: ignore[misc]  # ipyparallel has no types
    """ipyparallel's Slurm launcher. Where Slurm refuses a job, the error quotes what Slurm printed."""

    def _run_command(self, command: list[str], **kwargs: Any) -> str:
        try:
            done: subprocess.CompletedProcess[str] = subprocess.run(
                command, capture_output=True, text=True, timeout=120, **kwargs
            )
        except OSError as error:
            raise ClusterError(
                f"{command[0]} can't be run ({error.strerror}): World(profile='slurm') starts on a machine where jobs are "
                "submitted with it."
            ) from None
        if done.returncode:
            said = " ".join(done.stderr.split()) or f"exit status {done.returncode}"
            raise ClusterError(f"Slurm refused ({command[0]}): {said}")
        return done.stdout

    def queue_state(self) -> str | None:
        """The job's state and its reason, as squeue prints them; None if squeue prints nothing or is missing."""
        try:
            said = self._run_command(["squeue", "--noheader", "--job", self.job_id, "--format=%T %r"]).split()
        except ClusterError:
            return None
        return " ".join(word for word in said if word != "None") or None


class NumberedSSHEngine(SSHEngineLauncher):  # type: ignore[misc]  # ipyparallel has no types
    """Tells its engine its rank, and the name of its host as the user wrote it."""

    def start(self, *args: Any, **kwargs: Any) -> Any:
        """Starts the engine. Raises ClusterError if ssh can't reach the host, or there is no such Python."""
        try:
            return super().start(*args, **kwargs)
        except Exception as error:
            # ipyparallel sometimes wraps the error in another one
            failed = error if isinstance(error, subprocess.CalledProcessError) else error.__context__
            if not isinstance(failed, subprocess.CalledProcessError):
                raise
            login = shlex.join(["ssh", *self.ssh_args, self.location])
            if failed.returncode == 255:  # ssh itself failed, not the command
                raise ClusterError(f"ssh can't reach {self.location}; try `{login} true` in a terminal.") from None
            raise ClusterError(
                f"{self.location} can't run ranks with {self.remote_python}: try `{login} {self.remote_python} -m ipyparallel.engine "
                "--version` in a terminal, and name the Python there in settings={'python': ...}."
            ) from None

    def get_env(self) -> dict[str, str]:
        """The environment of the engine, with its rank and its host."""
        rank = list(self.parent.launchers).index(self.identifier)
        host = self.identifier.rpartition("/")[0].rpartition("@")[2]
        return {**super().get_env(), "RANK": str(rank), "ALLRANKS_HOST": host}


class SSHEngines(SSHEngineSetLauncher):  # type: ignore[misc]  # ipyparallel has no types
    """ipyparallel's SSH launcher, with numbered engines. At the end it removes the files that it made on the hosts."""

    launcher_class = NumberedSSHEngine

    async def stop(self) -> None:
        """Ends the engines, then removes the directories that were made for them: they hold keys and logs."""
        there = {(el.location, *el.ssh_args): (el.ssh_sender, el.remote_profile_dir) for el in self.launchers.values()}
        await super().stop()
        for sender, directory in there.values():
            with contextlib.suppress(Exception):  # the host may not answer any more
                sender.check_output_python_code(f"import shutil; shutil.rmtree('{directory}', ignore_errors=True)")


@dataclass(frozen=True)
class Job:
    """What to start: `ranks` engines, by `launcher` with `traits`. They find the controller at `address`."""

    profile: str
    ranks: int
    address: str
    wait_s: float
    launcher: type
    traits: dict[str, Any] = field(default_factory=dict)


def job(
    profile: str,
    ranks: int | None,
    nodes: int | None = None,
    backend: str | None = None,
    settings: dict[str, Any] | None = None,
    directory: Path | None = None,
) -> Job:
    """The job of a profile.

    Both profiles take these `settings`: "python" (the interpreter on the nodes), "address" (the address of this
    machine, as the nodes reach it) and "wait_s". "slurm" also takes sbatch's long options; "ssh" also takes "hosts"
    ({host: ranks}, or a list) and "ssh_args" (a list). Raises ClusterError, with one sentence, if the request makes
    no sense.
    """
    if profile not in PROFILES:
        raise ClusterError(f"profile={profile!r} is unknown; it is 'slurm' or 'ssh', or leave it out for this machine.")
    settings = dict(settings or {})
    python = settings.pop("python", sys.executable)
    address, wait_s = settings.pop("address", None), settings.pop("wait_s", WAIT_S[profile])
    if isinstance(wait_s, bool) or not isinstance(wait_s, int | float) or not 0 < wait_s < 1e7:
        raise ClusterError(f"wait_s is {wait_s!r}; it is a number of seconds above 0.")
    engine = {
        "engine_cmd": [python, "-m", "ipyparallel.engine"],
        "engine_args": [
            f"--IPEngine.max_heartbeat_misses={HEARTBEATS}",
            "--IPEngine.timeout=60",
            "--HistoryManager.enabled=False",
        ],
    }
    if profile == "slurm":
        if ranks is None:
            raise ClusterError(
                "World(profile='slurm') needs ranks=, for example World(profile='slurm', ranks=8, nodes=2)."
            )
        traits = _slurm(ranks, nodes, backend, settings, directory or Path("."))
        return Job(profile, ranks, address or own_address(), wait_s, SlurmEngines, engine | traits)
    hosts = _hosts(settings.pop("hosts", None), ranks, nodes)
    more = settings.pop("ssh_args", [])
    if settings:
        raise ClusterError(f"The ssh profile has no setting {next(iter(settings))!r}; it has hosts, python, address, ssh_args and wait_s.")  # fmt: skip
    if not isinstance(more, list) or not all(isinstance(word, str) for word in more):
        raise ClusterError(f"ssh_args is {more!r}; it is a list of words, for example ['-i', '/home/me/.ssh/key'].")
    traits = {
        "engines": hosts,
        "delay": 0.0,
        "remote_python": shlex.quote(python),  # the host's shell reads it
        "remote_profile_dir": f".cache/allranks-ssh/{socket.gethostname()}-{os.getpid()}",
        "ssh_args": ["-o", "BatchMode=yes", *more],
        "scp_args": ["-o", "BatchMode=yes", *("-P" if word == "-p" else word for word in more)],
    }
    first = next(iter(hosts)).rpartition("@")[2].partition(":")[0]
    return Job(profile, sum(hosts.values()), address or own_address(first), wait_s, SSHEngines, engine | traits)


def own_address(towards: str = "192.0.2.1") -> str:
    """The address of this machine on the network that leads to `towards`; without `towards`, on the default route."""
    try:
        return address_towards(towards)
    except OSError as error:
        if towards != "192.0.2.1":  # no host has that address: it only asks for the default route
            raise ClusterError(f"The host {towards} can't be found: {error.strerror}.") from None
        return "127.0.0.1"


def shared_directory() -> Path:
    """A private directory that the nodes also see, for connection files and logs.

    `ALLRANKS_CLUSTER_DIR` names it; else it is `~/.cache/allranks`, because most clusters share the home directories.
    Raises ClusterError if it can't be made, or if other users can read it.
    """
    path = Path(os.environ.get("ALLRANKS_CLUSTER_DIR") or Path.home() / ".cache" / "allranks")
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.stat()
    except OSError as error:
        raise ClusterError(f"The directory {path} (ALLRANKS_CLUSTER_DIR) can't be made: {error.strerror}.") from None
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise ClusterError(
            f"The directory {path} must be yours alone, because it holds keys: run `chmod 700 {path}`, or set "
            "ALLRANKS_CLUSTER_DIR to another one."
        )
    return path


def _slurm(
    ranks: int, nodes: int | None, backend: str | None, settings: dict[str, Any], directory: Path
) -> dict[str, Any]:
    nodes = 1 if nodes is None else nodes
    if isinstance(nodes, bool) or not isinstance(nodes, int) or nodes < 1 or ranks % nodes:
        raise ClusterError(f"{ranks} ranks can't be divided evenly among nodes={nodes!r}.")
    lines = []
    for name, value in settings.items():
        option = str(name).replace("_", "-")
        if option in OURS:
            raise ClusterError(f"The course sets {name!r} itself, from ranks= and nodes=; leave it out.")
        if not re.fullmatch(r"[a-z][a-z-]+", option) or "\n" in str(value):
            raise ClusterError(
                f"{name!r} is not a long option of sbatch; write for example settings={{'partition': 'gpu'}}."
            )
        lines.append(f"#SBATCH --{option}" + ("" if value is True else f"={value}"))
    asked = any(line.startswith(("#SBATCH --gpus", "#SBATCH --gres")) for line in lines)
    if backend != "gloo" and not asked:
        lines.append(f"#SBATCH --gpus-per-node={ranks // nodes}")
    return {
        "batch_template": SLURM_TEMPLATE,
        "batch_file_name": str(directory / "engines.sbatch"),
        "output_file": str(directory / "engines.log"),
        "namespace": {"nodes": nodes, "per_node": ranks // nodes, "options": "\n".join(lines)},
    }


def _hosts(hosts: object, ranks: int | None, nodes: int | None) -> dict[str, int]:
    example = "World(profile='ssh', settings={'hosts': {'node1': 4, 'node2': 4}})"
    if isinstance(hosts, list | tuple) and hosts and ranks is not None and ranks % len(hosts) == 0:
        hosts = dict.fromkeys(hosts, ranks // len(hosts))
    if not isinstance(hosts, dict) or not hosts:
        raise ClusterError(f"The ssh profile needs its hosts, and how many ranks each has: {example}.")
    for host, count in hosts.items():
        if not isinstance(host, str) or not re.fullmatch(r"([\w.-]+@)?[A-Za-z0-9][\w.-]*(:\d+)?", host):
            raise ClusterError(f"{host!r} is not a host; write node1, user@node1 or user@node1:22.")
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ClusterError(f"The host {host} has {count!r} ranks; write a whole number above 0: {example}.")
    total = sum(hosts.values())
    if ranks not in (None, total):
        raise ClusterError(f"The hosts have {total} ranks, not {ranks}; leave ranks= out, or make them agree.")
    if nodes not in (None, len(hosts)):
        raise ClusterError(f"There are {len(hosts)} hosts, not nodes={nodes!r}; leave nodes= out.")
    if total > MAX_RANKS:
        raise ClusterError(f"The hosts have {total} ranks; a world takes {MAX_RANKS}.")
    return hosts
