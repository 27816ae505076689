"""What the warm server of `allranks check` imports before it forks: the judge and every exercise."""

import importlib

from allranks.checking import judging, source
from allranks.exercises import names

__all__ = ["judging", "source"]

for name in names():
    importlib.import_module(f"allranks.exercises.{name}")
