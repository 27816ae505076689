"""The private directory for the sockets, rendezvous files and logs of this user's worlds."""

from __future__ import annotations

import os
import platform
import stat
import tempfile
from pathlib import Path

from allranks.base.errors import CourseError

# a Unix socket's path may have 107 bytes; ours adds at most 40 to the directory
MAX_PATH = 64


class RunDirError(CourseError, RuntimeError):
    """The run directory can't be made or written, or other users can read it."""


def run_dir() -> Path:
    """The directory; made if missing. It belongs to this user, and no other user can open it (mode 0700).

    It is `ALLRANKS_RUN_DIR`, else `$XDG_RUNTIME_DIR/allranks`, else `/tmp/allranks-UID`, and where another user has taken
    that name, `~/.allranks-HOST`. Raises RunDirError if it belongs to another user, is open to other users, or can't be
    written; the message says how to fix it.
    """
    named = os.environ.get("ALLRANKS_RUN_DIR")
    if named:
        path = Path(named)
    elif os.environ.get("XDG_RUNTIME_DIR") and os.access(os.environ["XDG_RUNTIME_DIR"], os.W_OK):
        path = Path(os.environ["XDG_RUNTIME_DIR"]) / "allranks"
    else:
        path = Path(tempfile.gettempdir()) / f"allranks-{os.getuid()}"
        if _is_taken(path):
            # with the host's name: machines may share homes, and each sweeps what its own processes have left
            path = Path.home() / f".allranks-{platform.node().partition('.')[0][:12]}"
    if len(os.fsencode(path.absolute())) > MAX_PATH:
        raise RunDirError(
            f"The run directory {path} has a path longer than {MAX_PATH} bytes, too long for sockets. "
            "Set ALLRANKS_RUN_DIR to a shorter one, for example /tmp/ar."
        )
    fix = "Remove it, or set ALLRANKS_RUN_DIR to a directory of your own."
    try:
        path.mkdir(mode=0o700, parents=bool(named), exist_ok=True)
        found = path.lstat()
    except OSError as error:
        raise RunDirError(f"The run directory {path} can't be made ({error.strerror}). {fix}") from None
    if not stat.S_ISDIR(found.st_mode):
        raise RunDirError(f"The run directory {path} is not a directory. {fix}")
    if found.st_uid != os.getuid():
        raise RunDirError(f"The run directory {path} belongs to another user (uid {found.st_uid}). {fix}")
    if found.st_mode & 0o077:
        raise RunDirError(f"The run directory {path} is open to other users. Run `chmod 700 {path}`, or: {fix}")
    if not os.access(path, os.W_OK | os.X_OK):
        raise RunDirError(f"The run directory {path} can't be written. {fix}")
    return path.absolute()


def _is_taken(path: Path) -> bool:
    """Whether another user has made it: in /tmp everybody may, and only they can remove it."""
    try:
        return path.lstat().st_uid != os.getuid()
    except OSError:
        return False


def sweep(directory: Path) -> list[Path]:
    """Removes the files in `directory` whose process has ended, and returns them.

    Their names end in `-PID` or `-PID.ext`.
    """
    removed = []
    for entry in directory.iterdir():
        pid = entry.name.partition(".")[0].rpartition("-")[2]
        # more digits are no process: the last part of a UUID may have digits alone, and kernels' files end in one
        if not (pid.isdigit() and len(pid) < 10) or _alive(int(pid)):
            continue
        try:
            if entry.is_dir() and not entry.is_symlink():
                for inner in sorted(entry.rglob("*"), reverse=True):
                    inner.rmdir() if inner.is_dir() and not inner.is_symlink() else inner.unlink()
                entry.rmdir()
            else:
                entry.unlink()
        except OSError:
            continue  # another process removed it at the same time
        removed.append(entry)
    return removed


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
