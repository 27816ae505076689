"""What the course keeps for a learner beside the notebooks: small files of plain data, in the folder that holds the
chapters.

Nothing here may stop a notebook: what can't be read counts as empty, and what can't be written is not kept.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from allranks.base import course_files as files
from allranks.base.whole import write_whole

MY_MODEL = "my_model"  # which axes of my model a reader has opened, and what they chose


def place(name: str, start: Path | None = None) -> Path:
    """The file that keeps `name` for notebooks in the folder `start` (the present one); it need not be there.

    It is in the nearest folder above that holds the course's chapters, so that all parts share it; else in `start`
    itself.
    """
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if (folder / files.FIRST_CHAPTER).is_file():
            return folder / f".allranks_{name}.json"
    return here / f".allranks_{name}.json"


def read(name: str, start: Path | None = None) -> dict[str, Any]:
    """What was kept under this name; empty if nothing was."""
    try:
        found = json.loads(place(name, start).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write(name: str, data: dict[str, Any], start: Path | None = None) -> None:
    """Keeps `data` under this name; a reader of the file finds all of it or what was there before."""
    with contextlib.suppress(OSError):
        write_whole(place(name, start), json.dumps(data), 0o600)
