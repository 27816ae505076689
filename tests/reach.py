"""Which tests a change can reach: the files of the project as a graph, read from their text alone.

An arrow leads from a file to one that it uses: what it imports (also inside functions, and through the packages' lazy
names), a command of the command line or a file that it names in a string, a notebook's script, the exercise that a
notebook checks. How far a test is from a change is the number of arrows between them.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import re
import subprocess
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "utils/allranks"
# packages by the name under which they are imported
PLACES = {"allranks": PACKAGE, "autograder": "autograder", "bench": "bench"}
# folders whose files tests look for by a pattern: one that names such a folder uses all that is in it
FOLDERS = ("chapters", "labs", "solutions", "docs", "deploy", "bench", "tools", ".github")
# files that everything rests on: after a change of one of them nothing counts as tried
EVERYTHING = ("pyproject.toml", "constraints.txt", "Makefile", "setup.py", "tests/conftest.py")
FAR = 99
_WORD = re.compile(r"\w+")
_ANSWER = re.compile(
    r"tests/exercises/(right|wrong|variants)/"
)  # known answers stand alone: they import nothing of ours


def project_files(root: Path = ROOT) -> list[str]:
    """The files of the project by their path from `root`: those in git and new ones that git does not ignore;
    without git, all.
    """
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        text=True,
    )
    if listed.returncode == 0:
        return sorted({name for name in listed.stdout.split("\0") if name and (root / name).is_file()})
    hidden = {path for path in root.rglob(".*")}
    return sorted(
        str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and not hidden & {path, *path.parents}
    )


def digests(root: Path = ROOT) -> dict[str, str]:
    """What each file of the project holds, as a digest, by its path."""
    return {name: hashlib.sha1((root / name).read_bytes()).hexdigest() for name in project_files(root)}


@dataclass(frozen=True)
class Source:
    """What the text of one Python file says: the modules that it imports, the strings and words in each of its
    functions.
    """

    imports: tuple[tuple[str, tuple[str, ...]], ...]
    strings: Mapping[str, frozenset[str]]  # by test function; "" for the rest of the file
    lazy: Mapping[str, str]  # a package's lazy names: name -> module
    own_imports: Mapping[str, str]  # names that the file imports: name -> module


def _absolute(module: str | None, level: int, own: list[str]) -> str:
    above = own[: len(own) - level + 1] if level else []
    return ".".join([*above, *([module] if module else [])])


def _lazy_names(tree: ast.Module, own: str) -> dict[str, str]:
    """The tables `_FROM` and `_MODULES` of a package, with whole module names."""
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Dict):
            if node.targets[0].id in ("_FROM", "_MODULES"):
                for key, value in zip(node.value.keys, node.value.values, strict=True):
                    if isinstance(key, ast.Constant) and isinstance(value, ast.Constant):
                        found[key.value] = value.value if "." in value.value else f"{own}.{value.value}"
    return found


def read_source(text: str, own: str, package: bool) -> Source:
    """Reads a Python file; `own` is its module's name, `package` whether it is an `__init__.py`."""
    tree = ast.parse(text)
    here = own.split(".") if package else own.split(".")[:-1]
    imports: list[tuple[str, tuple[str, ...]]] = []
    names: dict[str, str] = {}
    strings: dict[str, set[str]] = defaultdict(set)
    tests = [node for node in tree.body if getattr(node, "name", "").startswith("test_")]
    rest = ast.Module([node for node in tree.body if node not in tests], [])
    for part in (rest, *tests):
        words = strings[getattr(part, "name", "")]
        for node in ast.walk(part):
            if isinstance(node, ast.Constant):
                if isinstance(node.value, str):
                    words.add(node.value)
            elif isinstance(node, ast.Import):
                imports.extend((alias.name, ()) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                module = _absolute(node.module, node.level, here)
                imports.append((module, tuple(alias.name for alias in node.names)))
                names.update({alias.asname or alias.name: module for alias in node.names})
    frozen = {function: frozenset(found) for function, found in strings.items()}
    return Source(tuple(imports), frozen, _lazy_names(tree, own) if package else {}, names)


class Graph:
    """The files of the project and the arrows between them."""

    def __init__(self, root: Path = ROOT, files: Iterable[str] | None = None) -> None:
        self.root = root
        self.files = sorted(files if files is not None else project_files(root))
        self._known = set(self.files)
        self._modules = {module: name for name in self.files if (module := _module_of(name))}
        self._named = self._distinct_names()
        self._commands = {
            Path(name).stem.rstrip("_").replace("_", "-"): name
            for name in self.files
            if re.fullmatch(rf"({PACKAGE}/cli|autograder/commands)/[a-z]\w*\.py", name)
        }
        self._mentions: dict[tuple[str, str], set[str]] = defaultdict(set)
        self.uses: dict[str, set[str]] = {name: set(self._arrows(name)) - {name} for name in self.files}
        rooms = {str(Path(name).parent) for name in self.files if name.startswith(f"{PACKAGE}/")}
        for folder in (*FOLDERS, *rooms):
            self.uses[folder] = {name for name in self.files if name.startswith(f"{folder}/")}

    @property
    def functions(self) -> list[tuple[str, str]]:
        """(file, test function) of each test; "" for the rest of a file."""
        return [key for key in self._mentions if key[0].startswith("tests/")]

    def _distinct_names(self) -> dict[str, str]:
        """Names that stand for one file when they occur in a string: with their ending, or a notebook's without."""
        found: dict[str, list[str]] = defaultdict(list)
        for name in self.files:
            path = Path(name)
            if path.suffix in (".ipynb", ".py") and path.parts[0] in ("chapters", "solutions"):
                found[path.stem if path.parts[0] == "chapters" else path.parts[1]].append(name)
            if path.suffix and path.name != "__init__.py" and not name.startswith("utils/js/"):
                found[path.name].append(name)
        return {word: names[0] for word, names in found.items() if len({_script_of(n) or n for n in names}) == 1}

    def _source(self, name: str) -> Source | None:
        return _read(self.root / name, _module_of(name) or Path(name).stem, name.endswith("__init__.py"))

    def _resolve(self, module: str, names: tuple[str, ...], seen: tuple[str, ...] = ()) -> Iterator[str]:
        """The files behind `from module import names`: the submodules, or where a package has the names from."""
        if module not in self._modules:
            if module.partition(".")[2] and module not in seen:
                yield from self._resolve(module.rpartition(".")[0], (module.rpartition(".")[2],), (*seen, module))
            return
        file = self._modules[module]
        if not file.endswith("__init__.py"):
            yield file
            return
        source = self._source(file)
        for name in names or ("",):
            if f"{module}.{name}" in self._modules:
                yield self._modules[f"{module}.{name}"]
            elif source and (origin := source.lazy.get(name) or source.own_imports.get(name)) and module not in seen:
                yield from self._resolve(origin, (name,), (*seen, module))
            elif file != f"{PACKAGE}/__init__.py":
                yield file

    def _arrows(self, name: str) -> Iterator[str]:
        path = Path(name)
        if script := _script_of(name):
            yield from (s for s in [script] if s in self._known)
        if path.suffix == ".js" and "static" in path.parts:  # a bundle is made from the sources of its name
            made_from = tuple(f"utils/js/src/{folder}/" for folder in (path.stem, "common"))
            yield from (other for other in self.files if other.startswith(made_from))
        if path.suffix != ".py" or _ANSWER.match(name) or not (source := self._source(name)):
            return
        if path.is_relative_to(PACKAGE):  # what a room shows in a browser lies beside its modules
            yield from (other for other in self.files if other.startswith(f"{path.parent}/static/"))
        for module, names in source.imports:
            yield from self._resolve(module, names)
        for function, strings in source.strings.items():
            self._mentions[name, function] |= set(self._mentioned(name, strings))
        if path.parts[0] == "tests":
            yield from self._mirrored(path)
        else:
            for found in [self._mentions[name, function] for function in source.strings]:
                yield from found
        if path.parts[0] in ("chapters", "solutions"):
            words = set(_WORD.findall((self.root / name).read_text(encoding="utf-8")))
            yield from self.exercises(words)

    def _mirrored(self, path: Path) -> Iterator[str]:
        """The tests lie as the package does: tests/PLACE/test_X.py is for PLACE/X.py or PLACE/X/, and less nearly
        for all of PLACE.
        """
        place = "/".join([PACKAGE, *path.parts[1:-1]])
        name = path.stem.removeprefix("test_")
        yield from (file for file in (f"{place}/{name}.py", f"{place}/{name}/__init__.py") if file in self._known)
        if len(path.parts) > 2:
            yield place

    def _mentioned(self, name: str, strings: frozenset[str]) -> Iterator[str]:
        """The files that strings name: whole or as the end of a path; modules by their dotted name; in a test also
        commands.
        """
        for text in strings:
            if len(text) > 200:
                continue
            last = text.rpartition("/")[2]
            if found := self._named.get(last) or self._named.get(text.partition(".ipynb")[0].rpartition("/")[2]):
                yield found
            elif text in self._modules and "." in text:
                yield self._modules[text]
            elif name.startswith("tests/"):
                yield from (folder for folder in (text.partition("/")[0],) if folder in FOLDERS)
                yield from (self._commands[text] for text in [text] if text in self._commands)
                yield from self.exercises([text])

    def exercises(self, words: Iterable[str]) -> Iterator[str]:
        """The files of the exercises among these words."""
        for word in words:
            if (file := f"{PACKAGE}/exercises/{word}.py") in self._known:
                yield file

    def of_test(self, file: str, function: str, words: Iterable[str]) -> set[str]:
        """What one test uses beside what its whole file does: `words` are those of its parameters."""
        found = set(self._mentions[file, ""] | self._mentions[file, function])
        known = {word: self._named[word] for word in words if word in self._named}
        if known:  # of the notebooks that its file names, its own alone
            found = {name for name in found if not name.endswith(".ipynb") and name not in FOLDERS}
        return found | set(known.values()) | set(self.exercises(words))

    def distances(self, changed: Iterable[str]) -> dict[str, int]:
        """How many arrows lead from each file to the nearest that changed; 0 for what changed itself."""
        used_by: dict[str, list[str]] = defaultdict(list)
        for name, used in self.uses.items():
            for other in used:
                used_by[other].append(name)
        found = {name: 0 for name in changed}
        waiting = deque(found)
        while waiting:
            name = waiting.popleft()
            for other in used_by[name]:
                if other not in found:
                    found[other] = found[name] + 1
                    waiting.append(other)
        return found


def _module_of(name: str) -> str | None:
    """The name under which a file is imported; a test's helper is imported by its bare name."""
    path = Path(name)
    if path.suffix != ".py":
        return None
    for package, place in PLACES.items():
        if path.is_relative_to(place):
            parts = [package, *path.relative_to(place).with_suffix("").parts]
            return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    is_helper = path.parts[0] == "tests" and not path.name.startswith(("test_", "conftest"))
    return path.stem if is_helper and not _ANSWER.match(name) else None


def _script_of(name: str) -> str | None:
    """The percent script from which a notebook is built."""
    path = Path(name)
    if path.suffix != ".ipynb" or path.parts[0] not in ("chapters", "solutions", "labs"):
        return None
    if path.parts[0] == "chapters":
        return str(Path("chapters/source", *path.parts[1:]).with_suffix(".py"))
    return str(Path("solutions", path.parts[1], "source", path.name).with_suffix(".py"))


@functools.cache
def _read(path: Path, own: str, package: bool) -> Source | None:
    try:
        return read_source(path.read_text(encoding="utf-8"), own, package)
    except (SyntaxError, UnicodeDecodeError):  # some wrong answers are no Python on purpose
        return None
