"""A sandbox for ranks, by bubblewrap: no network, a read-only view of Python and of what a rank needs of the package.

    with Sandbox() as sandbox:
        child = sandbox.spawn("package.module:function", args={"any": "JSON"}, fds=[3])
        child.poll(), child.wait(timeout=1), child.kill()

It has the interface of `allranks.ranks.engines.forkserver.client.ForkServer`, so that the wire can fork its ranks here. The first
process in the sandbox (`sandbox_forkserver.py`) imports torch once; every rank is a fork of it, with its own
namespaces. Process ids are those inside the sandbox; they mean nothing outside.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from allranks.base.errors import CourseError
from allranks.ranks.engines.alone import SHOWN as IN_A_RANK
from allranks.ranks.engines.forkserver import client, mailbox

from autograder import seccomp

FORKSERVER = Path(__file__).with_name("sandbox_forkserver.py")
INSIDE = Path("/sandbox_forkserver.py")
NOBODY = 65534
# a rank can hold FSIZE times NOFILE bytes in memfds
# CPU (seconds) stops a rank that has switched off its own time limit: no exercise takes so long
LIMITS = {"CPU": 600, "NPROC": 128, "NOFILE": 64, "CORE": 0, "FSIZE": 8 << 20, "DATA": 1 << 30, "MAPPED": 5 << 28}
# queued signals and locked memory count for all processes of a user: a rank may have none, and so can't read the count
LIMITS |= {"SIGPENDING": 0, "MEMLOCK": 0}


# what a rank has of the package, beside the files that its folders need; the rest knows right answers, or schedules that are some
SHOWN = ("__init__", *IN_A_RANK)


class SandboxError(CourseError, RuntimeError):
    """No sandbox can be made here, or it ended; the message says why, and how to fix it."""


class Child(mailbox.Child):
    """A rank in the sandbox. `pid` is its process id inside, so only the sandbox can send it a signal."""

    def __init__(self, sandbox: Sandbox, pid: int) -> None:
        super().__init__(pid, log=None)
        self._sandbox = sandbox

    def kill(self, sig: int = signal.SIGKILL) -> None:
        """Sends a signal, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(SandboxError):
                self._sandbox._send({"kill": self.pid, "signal": int(sig)})


class Sandbox(client.Connection):
    """A bubblewrap sandbox that forks ranks on request; everything in it ends with this process. Thread-safe.

    LIMITS are the resource limits of each rank, by name without RLIMIT_; MAPPED is how many bytes it may map after
    its start. Raises SandboxError if no sandbox can be made.
    """

    name = "The sandbox"
    error = SandboxError

    def __init__(self) -> None:
        start, refused = command(), _filter()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._log = open(os.memfd_create("sandbox-log"), "w+b", buffering=0)
        # bubblewrap's --die-with-parent watches the thread that started it: that thread must live as long as the sandbox
        process = subprocess.Popen(
            [*start, str(theirs.fileno()), json.dumps(LIMITS), refused.hex()],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env={"PATH": "/usr/bin:/bin"},
        )
        theirs.close()
        super().__init__(ours, process, "allranks-sandbox")

    def spawn(self, target: str, *, args=None, env=None, fds=(), cwd=None, log=None, timeout: float = 120) -> Child:
        """Forks a rank that calls `target` ("module:function") with (`args`, `fds`). `env` is added to `ENVIRONMENT`.

        `cwd` and `log` are only there because ForkServer has them, and are ignored: a rank's folder is its own
        /scratch, and what it prints is dropped.
        """
        reply = self._ask({"target": target, "args": args, "env": ENVIRONMENT | (env or {})}, fds, timeout)
        if "error" in reply:
            raise SandboxError(f"No rank could be started in the sandbox: {reply['error']}.")
        child = Child(self, reply["pid"])
        self._mail.adopt(child)
        return child

    def close(self) -> None:
        """Ends the sandbox and everything in it."""
        self.process.kill()
        self.process.wait()
        self._finish("it was closed")

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _raise_if_closed(self) -> None:
        if not self.alive:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(5)  # then the log holds everything that it printed
        super()._raise_if_closed()

    def _hint(self) -> str:
        size = os.fstat(self._log.fileno()).st_size
        said = os.pread(self._log.fileno(), 4000, max(0, size - 4000)).decode(errors="replace").strip()
        return f"It said: {said.splitlines()[-1]}" if said else "It said nothing."


ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/scratch",
    "TMPDIR": "/scratch",
    "LANG": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "TORCH_DISABLE_ADDR2LINE": "1",
}


def command() -> list[str]:
    """The command line that starts the fork server, without its three arguments.

    Raises SandboxError if there is no bubblewrap.
    """
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise SandboxError(
            "There is no sandbox here: bubblewrap is missing. Install it (Debian: apt install bubblewrap)."
        )
    folders = _folders()
    # The fork server keeps its capabilities, to give each rank its own namespaces; they have no effect outside.
    flags = "--unshare-all --die-with-parent --new-session --clearenv --cap-add ALL"
    line = [
        bwrap,
        *flags.split(),
        *_view([(path, path) for path in folders] + [(FORKSERVER, INSIDE)]),
        *_without_oracles(),
    ]
    if not any(folder.is_relative_to("/tmp") for folder in folders):
        line += ["--symlink", "scratch", "/tmp"]
    # Not --dev: with its terminals the fork server could not make process namespaces.
    for device in ("null", "zero", "full", "random", "urandom"):
        line += ["--dev-bind", f"/dev/{device}", f"/dev/{device}"]
    # the fork server's own scratch: torch's compiler makes a folder when it is imported. Each rank mounts another one over it
    line += "--proc /proc --dir /dev/shm --tmpfs /scratch --remount-ro / --chdir /".split()
    for name, value in ENVIRONMENT.items():
        line += ["--setenv", name, value]
    # Isolated mode (-I): neither the user's packages nor the script's folder are on the path.
    line += ["--", sys.executable, "-I", "-B", str(INSIDE)]
    if os.getuid() == 0:
        # The limit on processes does not apply to root: first become the user nobody, in a view that nobody can read.
        outer = _view([(path, path) for path in folders] + [(FORKSERVER, FORKSERVER)])
        mounts = "--bind /proc /proc --dev-bind /dev /dev --perms 1777 --dir /tmp --chdir /".split()
        become_nobody = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        line = [bwrap, "--die-with-parent", *outer, *mounts, "--", *become_nobody, *line]
    return line


def _filter() -> bytes:
    try:
        return seccomp.program()
    except OSError as error:
        raise SandboxError(
            f"There is no sandbox here: {error}. It needs libseccomp 2 (Debian: apt install libseccomp2)."
        ) from None


def _folders() -> list[Path]:
    """The folders that a rank may read: the system's libraries, Python, its packages and ours (see `_without_oracles`).

    Not the course, no user's home, and no data in /usr: nbgrader's exchange may be in /usr/local/share.
    """
    import allranks

    system = [Path("/usr"), Path("/usr/local")]
    prefixes = [Path(sys.prefix), Path(sys.base_prefix)]
    wanted = [
        path for prefix in system for kind in ("bin", "sbin", "lib*", "cuda*") for path in sorted(prefix.glob(kind))
    ]
    wanted += [prefix for prefix in prefixes if prefix not in system]
    wanted += [Path(allranks.__file__).parent]
    wanted += [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    wanted += [Path(sys.executable).resolve().parent, Path("/etc/ld.so.cache"), Path("/etc/localtime")]
    wanted = [path for path in dict.fromkeys(wanted) if path.exists()]
    return [path for path in wanted if not any(other != path and path.is_relative_to(other) for other in wanted)]


def _without_oracles() -> list[str]:
    """bubblewrap's arguments that hide the package, except `SHOWN`."""
    import allranks

    package = Path(allranks.__file__).parent
    shown: list[Path] = []
    for name in SHOWN:
        path = package.joinpath(*name.split("."))
        path = path if path.is_dir() else path.with_suffix(".py")
        if not path.exists():
            raise SandboxError(f"There is no {name!r} in the package: what a rank needs has moved.")
        on_the_way = [parent / "__init__.py" for parent in path.parents if package in parent.parents]
        shown += [path, *(file for file in on_the_way if file.exists())]
    arguments = ["--tmpfs", str(package)]
    for folder in sorted({path.parent for path in shown} - {package}):
        arguments += ["--perms", "0755", "--dir", str(folder)]
    for path in shown:
        arguments += ["--ro-bind", str(path), str(path)]
    arguments += ["--remount-ro", str(package)]
    return arguments + [word for path in _oracles_elsewhere() for word in ("--ro-bind", "/dev/null", str(path))]


def _oracles_elsewhere() -> Iterator[Path]:
    """The files of exercises that other packages offer, and their compiled forms."""
    from allranks.exercises import elsewhere

    for point in elsewhere():
        try:
            found = importlib.util.find_spec(point.module)
        except (ImportError, ValueError):
            continue  # what can't be found can't be read either
        if found is None or found.origin is None:
            continue
        shown = [path for path in _folders() if Path(found.origin).is_relative_to(path)]
        compiled = sorted(Path(found.cached).parent.glob(f"{Path(found.origin).stem}.*.pyc")) if found.cached else []
        yield from (path for path in (Path(found.origin), *compiled) if shown and path.is_file())


def _view(binds: list[tuple[Path, Path]]) -> list[str]:
    """bubblewrap's arguments that show these paths (outside, inside), and the system's usual links."""
    # bubblewrap would make the parent folders readable by their owner only
    on_the_way = sorted({parent for _, inside in binds for parent in inside.parents} - {Path("/")})
    arguments = [word for path in on_the_way for word in ("--perms", "0755", "--dir", str(path))]
    for outside, inside in binds:
        arguments += ["--ro-bind", str(outside), str(inside)]
    for link in ("/bin", "/sbin", "/lib", "/lib32", "/lib64"):
        if os.path.islink(link):
            arguments += ["--symlink", os.readlink(link), link]
        elif os.path.isdir(link):
            arguments += ["--ro-bind", link, link]
    return arguments
