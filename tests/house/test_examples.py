"""The examples in docstrings of floors 1 to 3 and of profiles and race give the output that they show, also those of names that are not public."""

import doctest
import importlib
import pkgutil

import allranks
import pytest

ROOMS = ("errors", "trace", "schedules", "topology", "cost", "simulator", "plots", "profiles", "race")


def modules():
    """The names of all modules of these rooms."""
    for room in ROOMS:
        module = importlib.import_module(f"allranks.{room}")
        yield module.__name__
        for found in pkgutil.iter_modules(getattr(module, "__path__", ())):
            yield f"{module.__name__}.{found.name}"


@pytest.mark.parametrize("name", list(modules()))
def test_examples_give_the_output_that_they_show(name):
    """They are written as a reader writes them, with the names of `from allranks import *`."""
    public = {exported: getattr(allranks, exported) for exported in allranks.__all__}
    assert doctest.testmod(importlib.import_module(name), extraglobs=public).failed == 0
