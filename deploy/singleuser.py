"""Starts one person's Jupyter server, as that person: the command of deploy/jupyterhub_config.py, and of the image.

Before the server starts, this script closes the home to others and copies the course's chapters into ~/allranks, also
the labs if there is no exchange; it never overwrites a file. It sets the person's limits if no cgroup does, and warms a
learner's engines. All of it runs with the person's own rights, so root does nothing in a person's directory.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import resource
import shutil
import signal
import socket
import sys
import time
from pathlib import Path

DEPLOY = Path(__file__).resolve().parent
CHECKOUT = DEPLOY.parent
HOME = Path.home()
COURSE = HOME / "allranks"
ON_SHARED_MACHINE = "ALLRANKS_HUB_ROLE" in os.environ  # jupyterhub_config.py sets it; a pod does not have it
STARTING_S = 600  # after that a kernel has started, or never will
MAX_PROCESSES = 2048  # and threads, of one person


def close_home() -> None:
    """Makes this person's files unreadable for others, whatever the machine's defaults are.

    A pod's home is a volume that belongs to root; we can't change its mode, but no other pod has this volume.
    """
    os.umask(0o077)
    try:
        HOME.chmod(0o700)
    except PermissionError:
        if ON_SHARED_MACHINE:
            raise


def lay_out_course() -> None:
    """Copies what learners get and do not have yet, the labs only without an exchange: nbgrader fetches none that is there.

    A home that has chapters of the time when all lay in one folder keeps them, and gets the page that says where each is now.
    """
    if sorted((COURSE / "chapters").glob("*.ipynb")):
        shutil.copyfile(CHECKOUT / "docs" / "moved.md", COURSE / "chapters" / "moved.md")
    from allranks.base.course_files import for_learners

    (COURSE / "labs").mkdir(exist_ok=True)  # fetched labs go there, and the chapters link to it
    for path in for_learners(CHECKOUT):
        handed_out = path.parts[0] == "labs" and not {"ALLRANKS_EXCHANGE", "ALLRANKS_HANDIN_URL"}.isdisjoint(os.environ)
        if not handed_out and not (COURSE / path).exists():
            (COURSE / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(CHECKOUT / path, COURSE / path)


def limit(memory_bytes: int | None, cores: float | None) -> None:
    """Sets the limits of a process: memory of each process, cores, number of processes, no core dumps."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, most = resource.getrlimit(resource.RLIMIT_NPROC)
    processes = MAX_PROCESSES if most == resource.RLIM_INFINITY else min(MAX_PROCESSES, most)
    resource.setrlimit(resource.RLIMIT_NPROC, (processes, processes))
    # CUDA reserves far more address space than it uses: with GPUs only cgroups can limit memory
    if memory_bytes and not Path("/proc/driver/nvidia/version").exists():
        resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    if cores:
        available = sorted(os.sched_getaffinity(0))
        wanted = min(len(available), math.ceil(cores))
        first = os.getuid() % len(available)  # distributes people over the cores
        os.sched_setaffinity(0, {available[(first + i) % len(available)] for i in range(wanted)})


def own_rights(role: str) -> None:
    """Limits this person's first process, if no cgroup does: all others come from it, or take its limits over.

    Also gives it a session keyring of its own: the local spawner leaves everybody the hub's, with all keys in it.
    """
    from allranks.ranks.engines.forkserver.process import leave_keyring

    with contextlib.suppress(OSError):
        leave_keyring()
    # the judge limits the grader's work, rank by rank, and itself needs more than its ranks' limits
    if os.environ.pop("ALLRANKS_HUB_RLIMITS", None) and role == "learner":
        memory, cores = os.environ.get("MEM_LIMIT"), os.environ.get("CPU_LIMIT")
        limit(int(memory) if memory else None, float(cores) if cores else None)


def settings(role: str) -> None:
    """Puts the course's settings for Lab and nbgrader before the machine's, and kernels' sockets into the home."""
    layers = [DEPLOY / "jupyter" / role] if role == "learner" else []
    layers += [DEPLOY / "jupyter" / "common", CHECKOUT / "utils" / "allranks" / "jupyter"]
    os.environ["JUPYTER_CONFIG_PATH"] = os.pathsep.join(map(str, layers))
    os.environ["JUPYTER_RUNTIME_DIR"] = str(HOME / ".jr")  # short: a socket's path may have 107 bytes
    (HOME / ".jr").mkdir(mode=0o700, exist_ok=True)
    sweep(HOME / ".jr")


def sweep(folder: Path) -> None:
    """Removes what servers and kernels that were killed have left in Jupyter's runtime directory."""
    for path in sorted(folder.iterdir()):
        if path.is_socket() and not _answers(path):
            path.unlink(missing_ok=True)
    for path in sorted(folder.glob("kernel-*.json")):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            about = json.loads(path.read_text(encoding="utf-8"))
            # a kernel that is just starting has no sockets yet
            old = time.time() - path.stat().st_mtime > STARTING_S
            if old and about.get("transport") == "ipc" and not list(folder.glob(f"{Path(about['ip']).name}-*")):
                path.unlink(missing_ok=True)
    for path in sorted(folder.glob("jpserver-*")):
        pid = path.name.split("-")[1].partition(".")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            path.unlink(missing_ok=True)


def _answers(path: Path) -> bool:
    """Whether somebody listens on a Unix socket."""
    with socket.socket(socket.AF_UNIX) as asking:
        asking.setblocking(False)
        try:
            asking.connect(str(path))
        except ConnectionRefusedError:
            return False
        except OSError:  # its queue is full, or the path is too long to ask
            return True
    return True


def answer_the_proxy_and_me() -> None:
    """Makes this process's web server hang up on all accounts of the machine but root, whose proxy asks for others, and this one.

    Who is not logged in could otherwise send bodies of half a gigabyte: the server reads them before it asks for a login.
    """
    from allranks.ranks.engines.strangers import other_end
    from tornado.httpserver import HTTPServer

    handle_stream = HTTPServer.handle_stream

    def checked(self, stream, address):
        if other_end(stream.socket) not in (0, os.getuid()):
            stream.close()
            return None
        return handle_stream(self, stream, address)

    HTTPServer.handle_stream = checked


def warm_engines() -> None:
    """Starts the fork server that all notebooks of this server share, if forking is safe here."""
    from allranks.ranks.engines.forkserver.client import ForkServerError
    from allranks.ranks.engines.forkserver.process import forking_is_safe
    from allranks.ranks.engines.kernels import name_to_jupyter, warm_for_jupyter

    name_to_jupyter()  # also where kernels are not forked: ours have no open port
    if forking_is_safe():
        try:
            warm_for_jupyter()
        except ForkServerError as error:  # worlds still start, only slower
            print(error, file=sys.stderr)


def run_in_a_shared_process() -> bool:
    """Runs this script in a fork of the machine's fork server, which shares memory with other people's; waits for its end.

    False if there is no such server: then the server runs here. This process then only passes signals on.
    """
    if os.environ.pop("ALLRANKS_IN_A_FORK", None) or "JUPYTERHUB_API_TOKEN" not in os.environ:
        return False
    from allranks.ranks.engines.forkserver import machine

    read, write = os.pipe()  # the fork ends when nobody holds `write` any more
    what = {"argv": [str(Path(__file__).resolve()), *sys.argv[1:]], "title": "jupyterhub-singleuser (All Ranks)"}
    fork = machine.spawn(f"{machine.__name__}:program", what, [read, 1, 2], {"ALLRANKS_IN_A_FORK": "1"})
    os.close(read)
    if fork is None:
        os.close(write)
        return False
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: fork.send_signal(number))
    fork.wait()
    return True


def main() -> None:
    """Runs the server: the hub's single-user server, or `allranks lab` in a container without a hub."""
    role = os.environ.get("ALLRANKS_HUB_ROLE", "learner")
    own_rights(role)
    if run_in_a_shared_process():
        return
    close_home()
    COURSE.mkdir(exist_ok=True)
    if "JUPYTERHUB_API_TOKEN" not in os.environ:
        lay_out_course()
        os.chdir(COURSE)
        from allranks.cli.lab import command as lab

        lab(["--no-browser", *sys.argv[1:]])
    settings(role)
    if role == "grader":
        folder = COURSE / "autograder"
        if not (folder / "nbgrader_config.py").is_file():
            sys.exit(f"{COURSE} must be a clone of the course, owned by {HOME.name}: docs/jupyterhub.md, step 2.")
        if exchange := os.environ.get("ALLRANKS_EXCHANGE"):  # for nbgrader in a shell outside of the hub
            (folder / "exchange.txt").write_text(f"{exchange}\n", encoding="utf-8")
        os.chdir(folder)  # nbgrader reads its configuration from the current folder
        from allranks.ranks.engines.kernels import name_to_jupyter

        name_to_jupyter()
    else:
        lay_out_course()
        os.chdir(COURSE)
        warm_engines()

    from jupyterhub.singleuser import main as singleuser

    if ON_SHARED_MACHINE:
        answer_the_proxy_and_me()
    sys.argv[0] = "jupyterhub-singleuser"
    singleuser()


if __name__ == "__main__":
    main()
