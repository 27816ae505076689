"""The examples in docstrings of base, theory, jobs and plots give the output that they show, also those of names that are not public."""

import doctest
import importlib
import pkgutil

import allranks
import pytest

ROOMS = ("base", "theory", "jobs", "show.plots")


def modules():
    """The names of all modules of these rooms."""
    for room in ROOMS:
        module = importlib.import_module(f"allranks.{room}")
        yield module.__name__
        for found in pkgutil.walk_packages(getattr(module, "__path__", ()), f"{module.__name__}."):
            yield found.name


@pytest.mark.parametrize("name", list(modules()))
def test_examples_give_the_output_that_they_show(name):
    """They are written as a reader writes them, with the names of `from allranks import *`."""
    public = {exported: getattr(allranks, exported) for exported in allranks.__all__}
    assert doctest.testmod(importlib.import_module(name), extraglobs=public).failed == 0
