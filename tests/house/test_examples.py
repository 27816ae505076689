"""The examples in docstrings of floors 1 to 3 give the output that they show, and every public name there has one."""

import doctest
import importlib
import inspect
import pkgutil

import pytest
from allranks.schedules import ALGORITHMS

ROOMS = ("errors", "trace", "schedules", "topology", "cost", "simulator", "plots")


def modules():
    """The names of all modules of these rooms."""
    for room in ROOMS:
        module = importlib.import_module(f"allranks.{room}")
        yield module.__name__
        for found in pkgutil.iter_modules(getattr(module, "__path__", ())):
            yield f"{module.__name__}.{found.name}"


def public(name):
    """The classes and functions that a module exports and this package defines; errors need no example."""
    module = importlib.import_module(name)
    for exported in getattr(module, "__all__", ()):
        thing = getattr(module, exported)
        named = inspect.isclass(thing) or inspect.isfunction(thing)
        if named and not (inspect.isclass(thing) and issubclass(thing, Exception)):
            yield exported, thing


@pytest.mark.parametrize("name", list(modules()))
def test_examples_give_the_output_that_they_show(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0


@pytest.mark.parametrize("name", list(modules()))
def test_every_public_name_has_an_example(name):
    """Except the algorithms, which are proved in tests/test_schedules.py, so that a new one needs nothing more."""
    without = [exported for exported, thing in public(name) if ">>>" not in (thing.__doc__ or "")]
    assert set(without) <= set(ALGORITHMS)
