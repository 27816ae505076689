"""What was sent to Canvas or Moodle: a line for each mark, in `autograder/lti/sent.jsonl`, which only the grader's account can read."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from allranks.base.errors import CourseError

FOLDER, SENT = "lti", "sent.jsonl"


class Busy(CourseError):
    """Another command sends marks of this course; the message is one sentence."""


def folder_of(course: Path) -> Path:
    """Where the key, the platform's addresses and the lines are."""
    return course / "autograder" / FOLDER


@contextlib.contextmanager
def alone(course: Path) -> Iterator[None]:
    """Keeps other commands from sending marks and from changing the lines meanwhile. Raises Busy if one does."""
    descriptor = os.open(folder_of(course) / "lock", os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy("Marks of this course are being sent by another command: wait for its end.") from None
        yield
    finally:
        os.close(descriptor)


def digest(comment: str) -> str:
    """What is kept of a comment: enough to see that it has changed."""
    return hashlib.sha256(comment.encode()).hexdigest()[:16]


def record(course: Path, lab: str, item: str, student: str, points: float, most: float, comment: str) -> None:
    """Appends a mark that was sent to the column `item`, in one write."""
    entry: dict[str, Any] = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "lab": lab,
        "item": item,
        "student": student,
    }
    entry |= {"points": points, "most": most, "comment": digest(comment)}
    descriptor = os.open(folder_of(course) / SENT, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(descriptor, "ab", buffering=0) as file:
        file.write(f"{json.dumps(entry)}\n".encode())


def lines(course: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each line as text, and read; one that a stop cut off is left out."""
    try:
        text = (folder_of(course) / SENT).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        try:
            entry = json.loads(line)
            yield line, {**entry, "student": str(entry["student"]), "points": float(entry["points"])}
        except (ValueError, KeyError, TypeError):
            continue


def to(course: Path, item: str) -> dict[str, dict[str, Any]]:
    """The last mark that was sent to a column, by student."""
    return {entry["student"]: entry for _, entry in lines(course) if entry.get("item") == item}
