"""A command of nbgrader in a course's folder, and what a person should read of its output."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

# the students whom a command is about, as JSON, for the grader's own steps: `ps` shows a command line to every account
ONLY = "ALLRANKS_ONLY_STUDENTS"


def nbgrader(folder: Path, *arguments: str, only: Collection[str] | None = None) -> tuple[int, list[str]]:
    """Runs a command of nbgrader in the course; its exit status, and what a person should read of what it said.

    `only` are the students whose pages are made or given out; None is everybody.
    """
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    done = subprocess.run(
        [sys.executable, "-m", "nbgrader", *arguments],
        cwd=folder / "autograder",
        env=os.environ | {"PATH": path} | ({} if only is None else {ONLY: json.dumps(sorted(only))}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    said = [line for line in done.stdout.splitlines() if line.strip()]
    told = [line.partition("] ")[2] for line in said if re.search(r"\| (WARNING|ERROR|CRITICAL)\]", line)]
    return done.returncode, [line for line in told if not line.startswith("Config option")]  # nbgrader's own, of a step
