"""Files that are there whole or not at all, whenever the process that writes them ends."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


def write_whole(path: Path, content: str | bytes, mode: int | None = None) -> None:
    """Puts the content into a file: who reads it meanwhile finds what was there before. Raises OSError.

    Without `mode` a file keeps its rights, and a new one has the usual ones.
    """
    with _draft(path, content, mode) as draft:
        os.replace(draft, path)


def make_whole(path: Path, content: str | bytes, mode: int | None = None) -> None:
    """The same for a file that stays as it is once it is there: of several processes that make it, one does."""
    with _draft(path, content, mode) as draft, contextlib.suppress(FileExistsError):
        os.link(draft, path)


@contextlib.contextmanager
def _draft(path: Path, content: str | bytes, mode: int | None) -> Iterator[Path]:
    """A file beside `path` with the content and the rights; it is gone afterwards, unless it has become the file."""
    descriptor, name = tempfile.mkstemp(prefix=".allranks-", dir=path.parent)
    draft = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.encode("utf-8") if isinstance(content, str) else content)
        if mode is None:
            mode = path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask()
        draft.chmod(mode)
        yield draft
    finally:
        draft.unlink(missing_ok=True)


def _umask() -> int:
    now = os.umask(0o077)
    os.umask(now)
    return now
