"""A room of the package imports only from floors below, or from a room named before it on its own floor; no files import each other."""

import ast
import re
import subprocess
import sys
from collections.abc import Collection
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

pytestmark = pytest.mark.core
PACKAGE = Path(__file__).resolve().parents[2] / "utils" / "allranks"
# On one floor a room may import those named before it, never the other way.
FLOORS = {
    1: ("errors", "notebook", "course", "extras", "theme", "progress", "trace"),
    2: ("schedules", "topology", "engines", "memory"),
    3: (
        "cost",
        "simulator",
        "player",
        "plots",
        "pictures",
        "course_map",
        "pipelines",
        "nccl_rules",
        "board",
        "gpu_page",
    ),
    4: ("wire", "world", "bench", "profiles", "race", "widgets"),
    5: ("checking", "magics", "doctor"),
    6: ("exercises", "verify"),
    7: ("cli",),
}
PLACE_OF = {room: (floor, place) for floor, rooms in FLOORS.items() for place, room in enumerate(rooms)}
FRONT_DOOR = (8, 0)  # allranks/__init__.py opens onto every room; no room may go through it to one above
WITHOUT_TORCH = (
    "errors",
    "trace",
    "topology",
    "schedules",
    "cost",
    "simulator",
    "pictures",
    "pipelines",
    "profiles",
    "race",
)


def rooms(package: Path) -> dict[str, list[Path]]:
    """The files of each room: NAME.py, or everything under NAME/."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        room = path.relative_to(package).parts[0].removesuffix(".py")
        if room not in ("__init__", "jupyter"):  # in jupyter/ are settings, read by programs of Jupyter's
            found.setdefault(room, []).append(path)
    return found


def imported_rooms(path: Path, package: Path, there: Collection[str]) -> set[str]:
    """Those of the rooms `there` that a file imports, also inside functions; "" stands for a name of the package itself."""
    here = ("allranks", *path.relative_to(package).with_suffix("").parts)
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
    """One sentence for each arrow that points up or to the right, and for each room that has no floor."""
    faults, there = [], rooms(package)
    for room, files in there.items():
        if room not in PLACE_OF:
            faults.append(f"{room} is on no floor; name its floor in tests/house/test_layers.py.")
            continue
        for path in files:
            for other in imported_rooms(path, package, there):
                place = FRONT_DOOR if other == "" else PLACE_OF.get(other, (0, 0))
                if place > PLACE_OF[room]:
                    name = path.relative_to(package)
                    faults.append(
                        f"{name} (floor {PLACE_OF[room][0]}) imports {other or 'allranks'} (floor {place[0]})."
                    )
    return faults


def modules(package: Path) -> dict[str, Path]:
    """The files of the package by the name under which they are imported."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        found[".".join(("allranks", *parts)).removesuffix(".__init__")] = path
    return found


def imported_modules(name: str, known: dict[str, Path]) -> set[str]:
    """Those of the known files that a file imports, also inside functions; what only a type checker reads does not count."""
    own = name if known[name].name == "__init__.py" else name.rpartition(".")[0]
    tree = ast.parse(known[name].read_text(encoding="utf-8"))
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    found = set()
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = own.split(".")[: len(own.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            found |= {f"{base}.{a.name}" if f"{base}.{a.name}" in known else base for a in node.names}
    return (found & set(known)) - {name}


def circle(package: Path) -> list[str]:
    """Files that import each other in a circle, or nothing."""
    known = modules(package)
    try:
        TopologicalSorter({name: imported_modules(name, known) for name in known}).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def test_no_arrow_points_up():
    assert upward(PACKAGE) == []


def test_no_files_import_each_other():
    assert circle(PACKAGE) == []


def test_contributors_see_the_same_floors():
    page = (PACKAGE.parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d) \| `(\w+)` \| .+ \|$", page, flags=re.M)
    assert rows == [(str(floor), room) for floor in sorted(FLOORS, reverse=True) for room in FLOORS[floor]]


def test_a_circle_of_files_is_found(tmp_path):
    (tmp_path / "wire").mkdir()
    (tmp_path / "wire" / "__init__.py").write_text("", encoding="utf-8")
    (tmp_path / "wire" / "router.py").write_text("from allranks.wire.source import line\n", encoding="utf-8")
    text = "def line():\n    from . import router\n"
    (tmp_path / "wire" / "source.py").write_text(text, encoding="utf-8")
    assert set(circle(tmp_path)) == {"allranks.wire.router", "allranks.wire.source"}


def test_the_package_never_imports_the_autograder():
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            assert not any(name.split(".")[0] == "autograder" for name in names), path


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("from allranks.wire import run\n", "trace.py (floor 1) imports wire (floor 4)."),
        ("def f():\n    import allranks.wire.router\n", "trace.py (floor 1) imports wire (floor 4)."),
        ("from . import wire\n", "trace.py (floor 1) imports wire (floor 4)."),
        ("from allranks import World\n", "trace.py (floor 1) imports allranks (floor 8)."),
        ("from .wire import run\n", "trace.py (floor 1) imports wire (floor 4)."),
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


def test_test_files_have_names_of_their_own():
    """pytest imports each by its name alone: of two with one name, it refuses the second, and a run of one folder doesn't show it."""
    files = [path.name for path in Path(__file__).parents[1].rglob("test_*.py")]
    assert sorted(name for name in set(files) if files.count(name) > 1) == []
