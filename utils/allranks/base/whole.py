"""Files that are there whole or not at all, whenever the process that writes them ends."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_whole(path: Path, content: str | bytes, mode: int | None = None) -> None:
    """Puts the content into a file: who reads it meanwhile finds what was there before. Raises OSError.

    Without `mode` a file keeps its rights, and a new one has the usual ones.
    """
    descriptor, draft = tempfile.mkstemp(prefix=".allranks-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.encode("utf-8") if isinstance(content, str) else content)
        if mode is None:
            mode = path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask()
        os.chmod(draft, mode)
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise


def _umask() -> int:
    now = os.umask(0o077)
    os.umask(now)
    return now
