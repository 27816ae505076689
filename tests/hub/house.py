"""A machine within the machine for the hub's test: its own accounts, homes, ports and processes, all gone with it.

    unshare --mount --pid --net --fork --mount-proc --kill-child python tests/hub/house.py PROGRAM [ARGUMENTS]

Run as root in fresh namespaces. /etc is a copy, so that useradd makes real Unix users that only this house knows;
/home, /tmp and /var/lib are empty; the loopback interface is private, so that the configuration's own ports are free.
A directory that other users may not pass, such as root's home, is opened as far as the interpreter and the checkout
need it. Then this process is the house's init, and runs
the Python program: the test's scene, or a bench of the hub.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import resource
import shutil
import socket
import struct
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STASH = Path("/mnt")  # hidden in the house, like everything that is mounted over
SIOCSIFFLAGS, IFF_UP = 0x8914, 0x1
NAMESPACES = ["unshare", "--mount", "--pid", "--net", "--fork", "--mount-proc", "--kill-child"]
# and the program that runs in the house, with its arguments. The house ends with who started it, however that ends
COMMAND = ["setpriv", "--pdeathsig", "KILL", *NAMESPACES, sys.executable, __file__]
PROGRAMS = {
    "unshare": "apt install util-linux",
    "setpriv": "apt install util-linux",
    "mount": "apt install mount",
    "useradd": "apt install passwd",
    "bwrap": "apt install bubblewrap",
    "configurable-http-proxy": "apt install nodejs npm; npm install -g configurable-http-proxy@5.3.0",
}


def what_is_missing() -> str | None:
    """Why there can be no such house here, and how to fix it; None where there can."""
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


def mount(*arguments: object) -> None:
    """mount(8), which says what was wrong."""
    subprocess.run(["mount", *map(str, arguments)], check=True)


def loopback_up() -> None:
    """Switches on the new network namespace's only interface."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))


def cover(directory: Path, mode: str, keep: list[Path]) -> None:
    """An empty directory in place of this one, in which only what is in `keep` is there as before."""
    inside = [path for path in keep if directory in path.parents]
    stashed = []
    for path in inside:
        place = STASH / f"kept-{len(list(STASH.iterdir()))}"
        place.mkdir()
        mount("--bind", path, place)
        stashed.append(place)
    mount("-t", "tmpfs", "-o", f"mode={mode}", "house", directory)
    for path, place in zip(inside, stashed, strict=True):
        path.mkdir(parents=True)
        mount("--bind", place, path)
        while path.parent != directory:
            path = path.parent
            path.chmod(0o755)


def closed_above(path: Path) -> Path | None:
    """The highest directory above `path` that other users can't pass."""
    for directory in reversed(path.parents):
        if not directory.stat().st_mode & 0o001:
            return directory
    return None


def furnish() -> None:
    """Everything that makes the house."""
    needed = [ROOT, Path(sys.base_prefix).resolve()]
    mount("-t", "tmpfs", "-o", "mode=755", "house", STASH)
    for directory, mode in (("/tmp", "1777"), ("/home", "755"), ("/var/lib", "755")):
        cover(Path(directory), mode, needed)
    for path in needed:
        while (closed := closed_above(path)) is not None:
            cover(closed, "755", needed)
    shutil.copytree("/etc", STASH / "etc", symlinks=True)
    mount("--bind", STASH / "etc", "/etc")
    loopback_up()


def init(child: int) -> int:
    """Reaps every orphan of the house until `child` ends; its exit code."""
    while True:
        pid, status = os.wait()
        if pid == child:
            return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    if os.getpid() != 1:  # it would cover this machine's own /etc and /home
        sys.exit(
            f"house.py must be the first process of fresh namespaces: {' '.join(NAMESPACES)} python {__file__} PROGRAM"
        )
    furnish()
    os.chdir(ROOT)
    os.environ.pop("TMPDIR", None)
    pid = os.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
    code = init(pid)
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"The house used {spent.ru_utime + spent.ru_stime:.0f} s of CPU.", flush=True)
    sys.exit(abs(code))
