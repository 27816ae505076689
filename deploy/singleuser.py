"""Starts one person's Jupyter server, as that person: the command of deploy/jupyterhub_config.py, and of the image.

Before the server: the home is closed to others, the course's chapters are laid out in ~/allranks, as are its labs where
nothing hands them out (what is there already stays as it is), and where no cgroup does it, the person's limits are set.
A learner's engines are warm before the first cell. All of it runs with the person's own rights: nothing here is done by
root in a directory of theirs.
"""

from __future__ import annotations

import math
import os
import resource
import shutil
import sys
from pathlib import Path

DEPLOY = Path(__file__).resolve().parent
CHECKOUT = DEPLOY.parent
HOME = Path.home()
COURSE = HOME / "allranks"
ON_SHARED_MACHINE = "ALLRANKS_HUB_ROLE" in os.environ  # which the hub of jupyterhub_config.py sets, and no pod has
MAX_PROCESSES = 2048  # and threads, of one person


def close_home() -> None:
    """No file of this person is another's to read, whatever the machine's defaults are.

    A pod's home is a volume that belongs to root, whose mode is not ours to change; nobody else's pod has it.
    """
    os.umask(0o077)
    try:
        HOME.chmod(0o700)
    except PermissionError:
        if ON_SHARED_MACHINE:
            raise


def lay_out_course() -> None:
    """The chapters, and the labs unless nbgrader's exchange hands them out, which refuses a lab that is there already."""
    lay_out("chapters")
    (COURSE / "labs").mkdir(exist_ok=True)  # where fetched labs go, and where the chapters' links lead
    if "ALLRANKS_EXCHANGE" not in os.environ:
        lay_out("labs")


def lay_out(folder: str) -> None:
    """Copies what of the checkout's folder is not there yet; a learner's own copy is never written over."""
    source = CHECKOUT / folder
    for path in sorted(source.rglob("*")):
        target = COURSE / folder / path.relative_to(source)
        if any(part.startswith((".", "__")) for part in path.relative_to(source).parts) or path.suffix == ".py":
            continue  # the percent scripts are for those who write chapters
        if path.is_dir():
            target.mkdir(parents=True, exist_ok=True)
        elif not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)


def limit(memory_bytes: int | None, cores: float | None) -> None:
    """The hub's limits by the means of a process: memory of each process, cores of all, processes, no core dumps."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, most = resource.getrlimit(resource.RLIMIT_NPROC)
    processes = MAX_PROCESSES if most == resource.RLIM_INFINITY else min(MAX_PROCESSES, most)
    resource.setrlimit(resource.RLIMIT_NPROC, (processes, processes))
    # CUDA reserves far more address space than it uses: where there are GPUs, only cgroups can limit memory
    if memory_bytes and not Path("/proc/driver/nvidia/version").exists():
        resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    if cores:
        available = sorted(os.sched_getaffinity(0))
        wanted = min(len(available), math.ceil(cores))
        first = os.getuid() % len(available)  # so that people are spread over the cores
        os.sched_setaffinity(0, {available[(first + i) % len(available)] for i in range(wanted)})


def settings(role: str) -> None:
    """Puts the course's settings for Lab and nbgrader before the machine's, and the sockets of kernels under home."""
    layers = [DEPLOY / "jupyter" / role] if role == "learner" else []
    layers += [DEPLOY / "jupyter" / "common", CHECKOUT / "utils" / "allranks" / "jupyter"]
    os.environ["JUPYTER_CONFIG_PATH"] = os.pathsep.join(map(str, layers))
    os.environ["JUPYTER_RUNTIME_DIR"] = str(HOME / ".jr")  # short: a socket's path may have 107 bytes
    (HOME / ".jr").mkdir(mode=0o700, exist_ok=True)


def warm_engines() -> None:
    """Starts the fork server that all notebooks of this server share, where one can be had."""
    from allranks.engines.forkserver import ForkServerError, forking_is_safe
    from allranks.engines.kernels import warm_for_jupyter

    if forking_is_safe():
        try:
            warm_for_jupyter()
        except ForkServerError as error:  # worlds start all the same, later and slower
            print(error, file=sys.stderr)


def main() -> None:
    """Becomes the server: the hub's, or in a container without a hub `allranks lab`."""
    close_home()
    COURSE.mkdir(exist_ok=True)
    if "JUPYTERHUB_API_TOKEN" not in os.environ:
        lay_out_course()
        os.chdir(COURSE)
        from allranks.cli.lab import command as lab

        lab(["--no-browser", *sys.argv[1:]])
    role = os.environ.get("ALLRANKS_HUB_ROLE", "learner")
    settings(role)
    # the grader's work is limited by the judge, rank by rank, which needs room above its ranks' own limits
    if os.environ.pop("ALLRANKS_HUB_RLIMITS", None) and role == "learner":
        memory, cores = os.environ.get("MEM_LIMIT"), os.environ.get("CPU_LIMIT")
        limit(int(memory) if memory else None, float(cores) if cores else None)
    if role == "grader":
        folder = COURSE / "autograder"
        if not (folder / "nbgrader_config.py").is_file():
            sys.exit(f"{COURSE} must be a clone of the course, owned by {HOME.name}: docs/jupyterhub.md, step 2.")
        os.chdir(folder)  # nbgrader reads its configuration from the folder it is started in
    else:
        lay_out_course()
        os.chdir(COURSE)
        warm_engines()

    from jupyterhub.singleuser import main as singleuser

    sys.argv[0] = "jupyterhub-singleuser"
    singleuser()


if __name__ == "__main__":
    main()
