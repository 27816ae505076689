"""The private directory where sockets, rendezvous files and logs of this user's worlds live."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from allranks.errors import CourseError

# a Unix socket's path may have 107 bytes; ours adds at most 40 to the directory
MAX_PATH = 64


class RunDirError(CourseError, RuntimeError):
    """The run directory can't be had, or another user could reach it."""


def run_dir() -> Path:
    """The directory, made if missing: owned by this user and closed to all others (0700).

    `ALLRANKS_RUN_DIR` names another one; else `$XDG_RUNTIME_DIR/allranks`, else `/tmp/allranks-UID`. Raises RunDirError
    with the mend where it belongs to somebody else, is open to others, or can't be written.
    """
    named = os.environ.get("ALLRANKS_RUN_DIR")
    if named:
        path = Path(named)
    elif os.environ.get("XDG_RUNTIME_DIR") and os.access(os.environ["XDG_RUNTIME_DIR"], os.W_OK):
        path = Path(os.environ["XDG_RUNTIME_DIR"]) / "allranks"
    else:
        path = Path(tempfile.gettempdir()) / f"allranks-{os.getuid()}"
    if len(os.fsencode(path.absolute())) > MAX_PATH:
        raise RunDirError(
            f"The run directory {path} has a path longer than {MAX_PATH} bytes, too long for sockets. "
            "Set ALLRANKS_RUN_DIR to a shorter one, for example /tmp/ar."
        )
    mend = "Remove it, or set ALLRANKS_RUN_DIR to a directory of your own."
    try:
        path.mkdir(mode=0o700, parents=bool(named), exist_ok=True)
        found = path.lstat()
    except OSError as error:
        raise RunDirError(f"The run directory {path} can't be made ({error.strerror}). {mend}") from None
    if not stat.S_ISDIR(found.st_mode):
        raise RunDirError(f"The run directory {path} is not a directory. {mend}")
    if found.st_uid != os.getuid():
        raise RunDirError(f"The run directory {path} belongs to another user (uid {found.st_uid}). {mend}")
    if found.st_mode & 0o077:
        raise RunDirError(f"The run directory {path} is open to other users. Say `chmod 700 {path}`, or: {mend}")
    if not os.access(path, os.W_OK | os.X_OK):
        raise RunDirError(f"The run directory {path} can't be written. {mend}")
    return path.absolute()


def sweep(directory: Path) -> list[Path]:
    """Removes what processes that are gone left in `directory`, and returns it: names that end in `-PID` or `-PID.ext`."""
    removed = []
    for entry in directory.iterdir():
        pid = entry.name.partition(".")[0].rpartition("-")[2]
        if not pid.isdigit() or _alive(int(pid)):
            continue
        try:
            if entry.is_dir() and not entry.is_symlink():
                for inner in sorted(entry.rglob("*"), reverse=True):
                    inner.rmdir() if inner.is_dir() and not inner.is_symlink() else inner.unlink()
                entry.rmdir()
            else:
                entry.unlink()
        except OSError:
            continue  # somebody else swept it at the same time
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
