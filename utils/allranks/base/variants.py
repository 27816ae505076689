"""Whether the students of a course get variants of a lab: one file beside the notebook says so, in solutions/LAB and in
labs/LAB.

    {"lab": "lab02_rooted", "key": "0f3a..."}

Students have the file, and may know the key: what each one must do follows from the key and the student's name, and is
no secret. The key is made of the course's secret, which can't be found from it. The grader reads the copy in solutions/
only.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from allranks.base.errors import CourseError
from allranks.base.whole import write_whole

FILE = "variants.json"
MAX_NAME = 255  # of a folder
_MAX_BYTES = 10_000
_KEY = re.compile(r"[0-9a-f]{32}")


class VariantError(CourseError, ValueError):
    """The variant of a student can't be told; the message is one sentence that says what to do.

    Example:
        >>> as_student("a/b")
        Traceback (most recent call last):
        ...
        allranks.base.variants.VariantError: 'a/b' is no student's name: give the name by which the course knows you.
    """


@dataclass(frozen=True)
class Variant:
    """One student's variant, in words: `brief` for a teacher's overview, `words` for the student."""

    student: str
    brief: str
    words: str


def key_of(folder: Path) -> str | None:
    """The key of the lab in this folder; None where the course gives no variants. Raises VariantError if damaged."""
    path = folder / FILE
    try:
        with open(path, "rb") as file:
            told = json.loads(file.read(_MAX_BYTES))
        key = told["key"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        key = ""
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        raise VariantError(f"{path} is damaged: fetch the lab again, or ask your teacher for this file.")
    return key


def write(course: Path, lab: str, secret: int) -> None:
    """Writes the file of a lab, beside the instructor's notebook and beside the students'."""
    key = hashlib.sha256(json.dumps(["variants", secret, lab]).encode()).hexdigest()[:32]
    text = json.dumps({"lab": lab, "key": key}) + "\n"
    for folder in _folders(course, lab):
        write_whole(folder / FILE, text)


def remove(course: Path, lab: str) -> bool:
    """Removes the file of a lab; whether there was one."""
    found = False
    for folder in _folders(course, lab):
        found = found or (folder / FILE).exists()
        (folder / FILE).unlink(missing_ok=True)
    return found


def _folders(course: Path, lab: str) -> list[Path]:
    return [folder for kind in ("solutions", "labs") if (folder := course / kind / lab).is_dir()]


def name_of(student: str) -> str:
    """The name as the draw takes it. Raises VariantError if no student can have it."""
    name = student.strip()
    if not name or len(name) > MAX_NAME or not name.isprintable() or "/" in name:
        raise VariantError(f"{student!r} is no student's name: give the name by which the course knows you.")
    return name


def account() -> str | None:
    """The name that the surroundings tell: `ALLRANKS_STUDENT`, or the account on a JupyterHub; None without both."""
    return os.environ.get("ALLRANKS_STUDENT") or os.environ.get("JUPYTERHUB_USER") or None
