"""What the warm server of `allranks check` imports before it forks: the judge and every exercise."""

import importlib

from allranks.exercises import names
from allranks.judge import judging, source

__all__ = ["judging", "source"]

for name in names():
    importlib.import_module(f"allranks.exercises.{name}")
