"""The rooms of floors 1 to 3 are checked as strictly as mypy can: none may leave the list in pyproject.toml."""

import tomllib

import pytest
from test_layers import FLOORS, PACKAGE, PLACE_OF

pytestmark = pytest.mark.core
ROOT = PACKAGE.parents[1]
# what `mypy --strict` sets and what can be set for one module; the rest of it stands in [tool.mypy] for all
STRICT = {
    "strict_optional",
    "disallow_any_generics",
    "disallow_incomplete_defs",
    "disallow_subclassing_any",
    "disallow_untyped_calls",
    "disallow_untyped_decorators",
    "disallow_untyped_defs",
    "extra_checks",
    "no_implicit_reexport",
    "strict_equality",
    "warn_return_any",
}


def strict_rooms() -> set[str]:
    """The rooms that an override of mypy's settings names with all that is strict."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mypy"]
    (override,) = [o for o in settings["overrides"] if all(o.get(name) is True for name in STRICT)]
    assert set(override) == STRICT | {"module"}, "no other setting may loosen what these make strict"
    return {module.removeprefix("allranks.").removesuffix(".*") for module in override["module"]}


def test_every_room_of_floors_1_to_3_is_strict():
    assert {room for floor in (1, 2, 3) for room in FLOORS[floor]} <= strict_rooms()


def test_every_room_on_the_list_is_there():
    assert strict_rooms() <= set(PLACE_OF)
