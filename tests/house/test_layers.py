"""A room of the package imports only from floors below (or beside it, without going round in a circle)."""

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "utils" / "allranks"
FLOORS = {
    1: ("errors", "notebook", "trace", "topology", "schedules"),
    2: ("cost", "network", "workload", "plan", "execute", "engines", "player", "plots", "cheatsheet", "drill"),
    3: ("wire", "simulate", "world", "calculator"),
    4: ("exercises", "bench"),
    5: ("magics", "cli", "doctor"),
}
FLOOR_OF = {room: floor for floor, rooms in FLOORS.items() for room in rooms}
FRONT_DOOR = 6  # allranks/__init__.py opens onto every room; no room may go through it to one above
WITHOUT_TORCH = ("errors", "trace", "topology", "schedules", "cost", "network", "workload", "plan", "simulate")


def rooms(package: Path) -> dict[str, list[Path]]:
    """The files of each room: NAME.py, or everything under NAME/."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        room = path.relative_to(package).parts[0].removesuffix(".py")
        if room not in ("__init__", "jupyter"):  # in jupyter/ are settings, read by programs of Jupyter's
            found.setdefault(room, []).append(path)
    return found


def imported_rooms(path: Path, package: Path) -> set[str]:
    """The rooms that a file imports, also inside functions; "" stands for a name of the package itself."""
    here = ("allranks", *path.relative_to(package).with_suffix("").parts)
    there = set(rooms(package))
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules = [(alias.name.split("."), []) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = list(here[: len(here) - node.level]) if node.level else []
            modules = [(base + (node.module.split(".") if node.module else []), [a.name for a in node.names])]
        else:
            continue
        for module, names in modules:
            if module[0] != "allranks":
                continue
            if len(module) > 1:
                found.add(module[1])
            else:
                found |= {name if name in there else "" for name in names if not name.startswith("__")}
    return found - {here[1]}


def upward(package: Path) -> list[str]:
    """One sentence for each arrow that points up, and for each room that has no floor."""
    faults = []
    for room, files in rooms(package).items():
        if room not in FLOOR_OF:
            faults.append(f"{room} is on no floor; name its floor in tests/house/test_layers.py.")
            continue
        for path in files:
            for other in imported_rooms(path, package):
                floor = FRONT_DOOR if other == "" else FLOOR_OF.get(other, 0)
                if floor > FLOOR_OF[room]:
                    name = path.relative_to(package)
                    faults.append(f"{name} (floor {FLOOR_OF[room]}) imports {other or 'allranks'} (floor {floor}).")
    return faults


def test_no_arrow_points_up():
    assert upward(PACKAGE) == []


def test_no_rooms_import_each_other():
    arrows = {
        room: {other for path in files for other in imported_rooms(path, PACKAGE)}
        for room, files in rooms(PACKAGE).items()
    }
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        pytest.fail("these rooms import each other in a circle: " + " -> ".join(error.args[1]))


def test_the_package_never_imports_the_autograder():
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            assert not any(name.split(".")[0] == "autograder" for name in names), path


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("from allranks.wire import run\n", "trace.py (floor 1) imports wire (floor 3)."),
        ("def f():\n    import allranks.wire.router\n", "trace.py (floor 1) imports wire (floor 3)."),
        ("from . import wire\n", "trace.py (floor 1) imports wire (floor 3)."),
        ("from allranks import World\n", "trace.py (floor 1) imports allranks (floor 6)."),
        ("from .wire import run\n", "trace.py (floor 1) imports wire (floor 3)."),
    ],
)
def test_an_upward_arrow_is_found(tmp_path, text, fault):
    (tmp_path / "trace.py").write_text(text, encoding="utf-8")
    (tmp_path / "wire").mkdir()
    (tmp_path / "wire" / "__init__.py").write_text("from allranks import trace\n", encoding="utf-8")
    assert upward(tmp_path) == [fault]


def test_a_room_without_a_floor_is_found(tmp_path):
    (tmp_path / "attic.py").write_text("", encoding="utf-8")
    assert upward(tmp_path) == ["attic is on no floor; name its floor in tests/house/test_layers.py."]


@pytest.mark.parametrize("room", [room for room in WITHOUT_TORCH if room in rooms(PACKAGE)])
def test_imports_without_torch(room):
    code = f"import sys; sys.modules['torch'] = None; import allranks.{room}"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
