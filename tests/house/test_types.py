"""The rooms of floors 1 to 3 are checked as strictly as mypy can: nothing of them may leave the list in pyproject.toml."""

import tomllib

import pytest
from test_layers import FLOORS, PACKAGE

pytestmark = pytest.mark.core
ROOT = PACKAGE.parents[1]
# of floors 1 to 3, what is not strict yet
LOOSE = {"ranks/__init__", "ranks/magics", "ranks/wire", "ranks/world", "show/__init__", "show/widgets"}
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
    """The rooms and their parts that an override of mypy's settings names with all that is strict."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mypy"]
    (override,) = [o for o in settings["overrides"] if all(o.get(name) is True for name in STRICT)]
    assert set(override) == STRICT | {"module"}, "no other setting may loosen what these make strict"
    return {module.removeprefix("allranks.").removesuffix(".*") for module in override["module"]}


def parts_of(room: str) -> set[str]:
    """What lies in a room, as ROOM/NAME: its files and folders."""
    inside = [path for path in (PACKAGE / room).iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()]
    return {f"{room}/{path.stem}" for path in inside}


def test_all_of_floors_1_to_3_is_strict():
    strict = {name.replace(".", "/") for name in strict_rooms()}
    parts = {part for floor in (1, 2, 3) for room in FLOORS[floor] if room not in strict for part in parts_of(room)}
    assert parts - strict == LOOSE


def test_all_that_is_on_the_list_is_there():
    for name in strict_rooms():
        path = PACKAGE.joinpath(*name.split("."))
        assert path.is_dir() or path.with_suffix(".py").is_file(), name
