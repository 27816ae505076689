"""Every exercise: the warm server of `allranks check` imports them when it has nothing else to do."""

import importlib

from allranks.exercises import names

for name in names():
    importlib.import_module(f"allranks.exercises.{name}")
