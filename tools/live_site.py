"""Builds the site's live pages, for `tools/site.py`; `make site ARGS=--live-only` builds nothing else. Their Python is
the package's own.

Each page is HTML with its first result in it. Its script then loads Pyodide (CPython for the browser, from
utils/js/node_modules) and a zip of the modules of the package that tools/live/answers.py needs; the page of the puzzles
those of tools/live/puzzle_answers.py, and of Python's library only what these use. Nothing comes from another host: a
policy in the pages forbids it.

    site/live/NAME.html            the pages
    site/live/pyodide-VERSION/     Pyodide, what is large of it gzipped, as many servers compress nothing
    site/live/build-HASH/          scripts, style sheet and the zip; the hash is over all of them
    site/live/sw.js                keeps all of it in the browser's cache
"""

from __future__ import annotations

import ast
import base64
import gzip
import hashlib
import importlib.util
import io
import json
import os
import re
import shutil
import subprocess
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

ROOT = Path(__file__).resolve().parent.parent
HERE = ROOT / "tools" / "live"
JS = ROOT / "utils" / "js"
PACKAGE = ROOT / "utils"
SHOW = PACKAGE / "allranks" / "show"
LIBRARY = "python_stdlib.zip"
PACKED = ("pyodide.asm.wasm", "pyodide.asm.mjs")
# files beside the modules that these read
DATA = ("base/theme.css", "theory/race/leaderboard.json", "exercises/planted/static/planted_jobs.json.gz")
# rooms that need torch, matplotlib or a notebook; what imports them does so inside functions that no page calls
LEFT_OUT = (
    "allranks.show.plots",
    "allranks.show.widgets",
    "allranks.ranks",
    "allranks.judge",
    "allranks.machine.bench",
)
POLICY = (
    "default-src 'none'; script-src 'self' blob: 'wasm-unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; worker-src 'self' blob:; base-uri 'none'; form-action 'none'"
)


# what the page of the puzzles needs is written once more, smaller
PUZZLES = "puzzle_answers.py"


class LiveError(Exception):
    """The live pages can't be built; the message says what to fix."""


# ----------------------------------------------------------------------------------------------------------- the Python


def modules(start: Path, lazily: bool = True) -> dict[str, Path]:
    """The modules of the package that a file imports, and those that they import: name -> file.

    `lazily`: also those that are imported inside functions.
    """
    found: dict[str, Path] = {}
    left = [(start.stem, start)]
    while left:
        name, path = left.pop()
        for other in _imported(name, path, lazily):
            where = _file(other)
            if where is None or other in found or (lazily and other.startswith(LEFT_OUT)):
                continue
            found[other] = where
            left.append((other, where))
    return dict(sorted(found.items()))


def _file(name: str) -> Path | None:
    """The file of a module of the package."""
    path = PACKAGE.joinpath(*name.split("."))
    return next((p for p in (path / "__init__.py", path.with_suffix(".py")) if p.is_file()), None)


def _imported(name: str, path: Path, lazily: bool) -> set[str]:
    """What a file imports of the package, with the packages above."""
    found = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree) if lazily else tree.body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    ours = {other for other in found if other.split(".")[0] == "allranks"}
    if name == "allranks.cli":  # it imports its commands by name
        ours |= {f"allranks.cli.{command}" for command in ("price", "plan", "simulate")}
    above = {other.rsplit(".", i)[0] for other in ours for i in range(other.count(".") + 1)}
    return ours | above


def zipped(files: dict[str, bytes]) -> bytes:
    """A zip of the files; always the same bytes."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def course() -> bytes:
    """The zip with the modules, what they read, and click, on which the commands are built."""
    files = {f"{where.relative_to(PACKAGE)}": where for where in modules(HERE / "answers.py").values()}
    files |= {f"allranks/{name}": PACKAGE / "allranks" / name for name in DATA}
    click = Path(str(importlib.util.find_spec("click").origin)).parent
    files |= {f"click/{path.name}": path for path in click.glob("*.py")}
    files["answers.py"] = HERE / "answers.py"
    return zipped({name: path.read_bytes() for name, path in files.items()})


def puzzles_python() -> tuple[bytes, bytes]:
    """The zip of the puzzles' modules, and that of the part of Python's library that they use, both as bytecode.

    Raises LiveError if they do not run in Pyodide.
    """
    files = {f"{p.relative_to(PACKAGE)}": p for p in modules(HERE / PUZZLES, lazily=False).values()} | {
        PUZZLES: HERE / PUZZLES
    }
    with tempfile.TemporaryDirectory(prefix="allranks-live-") as folder:
        sources, out = Path(folder, "sources.zip"), Path(folder, "found.json")
        sources.write_bytes(zipped({name: path.read_bytes() for name, path in files.items()}))
        _node("library.js", str(sources), str(out))
        found = json.loads(out.read_text(encoding="utf-8"))
    course_, library = ({n: base64.b64decode(d) for n, d in found[part].items()} for part in ("course", "library"))
    return zipped(course_), zipped(library)


def _node(script: str, *arguments: str) -> None:
    """Runs a script of utils/js. Raises LiveError with what it says."""
    done = subprocess.run(["node", script, *arguments], cwd=JS, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LiveError(f"node {script} fails: {done.stderr.strip()[-500:]}")


@cache
def answers() -> ModuleType:
    """tools/live/answers.py, in this Python."""
    return _module("answers")


def _module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def asked(name: str, **request: Any) -> dict[str, Any]:
    """An answer, worked out here; the program is written to a folder that is gone afterwards."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="allranks-live-") as folder:
        os.chdir(folder)
        try:
            return json.loads(answers().answer(name, json.dumps(request)))
        finally:
            os.chdir(before)


# ------------------------------------------------------------------------------------------------------------ the pages


def examples() -> dict[str, dict[str, str]]:
    """The programs of tools/live/examples by file: their first line is their title."""
    found = {}
    for path in sorted((HERE / "examples").glob("*.py")):
        source = path.read_text(encoding="utf-8")
        collective = re.search(r'Schedule\(\s*"(\w+)"', source)
        title = source.split("\n", 1)[0].removeprefix("# ")
        found[path.stem] = {
            "title": title,
            "source": source,
            "collective": collective[1] if collective else "all_reduce",
        }
    return found


def _schedule() -> dict[str, Any]:
    from allranks.show.player.page import prepared
    from allranks.show.player.still import still
    from allranks.theory.schedules import ring_all_reduce

    there = examples()
    first = asked(
        "schedule",
        source=there["a_ring"]["source"],
        collective="all_reduce",
        ranks=4,
        nbytes="64MiB",
        machine="dgx-h100",
    )
    animations, _ = prepared([ring_all_reduce(4)], 64 << 20)
    return {
        "examples": {name: one["title"] for name, one in there.items()},
        "program": there["a_ring"]["source"].rstrip("\n"),
        "collectives": _same(answers().OFFERED["collectives"]),
        "machines": _same(answers().OFFERED["machines"]),
        "result": Markup(first["html"]),
        "still": base64.b64encode(still(animations).encode()).decode(),
        "still_words": first["player"]["words"],
        "data": {"first": {"player": first["player"]}, "examples": there},
    }


def _race() -> dict[str, Any]:
    from allranks.theory.race import TASKS, leaderboard, page

    entries = leaderboard.load()
    folder = leaderboard.COURSE.parent
    sources = {e.file: (folder / e.file).read_text(encoding="utf-8") for e in entries if e.file}
    ring = examples()["a_ring"]["source"]
    return {
        "tasks": {name: f"{name}: {one.title}" for name, one in TASKS.items()},
        "program": ring.rstrip("\n"),
        "boards": {n: Markup(page.section(one, [e for e in entries if e.task == n])) for n, one in TASKS.items()},
        "data": {
            "sources": {"a ring all-reduce": ring, **sources},
            "entries": {
                name: [{"name": e.name, "file": e.file} for e in entries if e.task == name and e.file] for name in TASKS
            },
        },
    }


def _explain() -> dict[str, Any]:
    first = asked("explain", sample="straggler")
    return {
        "samples": _same(answers().OFFERED["samples"]),
        "result": Markup(first["html"]),
        "data": {"first": {"player": first["player"]}},
    }


COMMANDS = {
    "plan": "plan: which split of a training run over GPUs is fastest",
    "price ddp": "price ddp: data parallel",
    "price zero": "price zero: ZeRO and FSDP",
    "price tensor": "price tensor: tensor parallel",
    "price pipeline": "price pipeline: pipeline parallel",
    "price expert": "price expert: a mixture of experts",
    "simulate": "simulate: one collective on a machine",
}
HIDDEN_OPTIONS = ("as_json", "trace", "chrome", "as_list", "help")
# values for what a command asks for and has no default, so that the first click computes something
SUGGESTED = {
    "layers": 32, "sequence": 2048, "hidden": 4096, "microbatches": 32, "tokens": 8192, "top_k": 2,
}  # fmt: skip


def _choices(flag: str, option: Any) -> list[str]:
    """What a field offers; empty where the reader writes."""
    from allranks.theory.cost.plan import MODELS

    known = {"--model": list(MODELS), "--collective": answers().OFFERED["collectives"]}
    if "PRESET" in str(option.metavar):
        return answers().OFFERED["machines"]
    return known.get(flag) or list(getattr(option.type, "choices", ()))


def _fields(name: str) -> list[dict[str, Any]]:
    """The form of a command: a field for each of its options."""
    import click
    from allranks.cli import main

    command: Any = main
    for word in name.split():
        command = command.get_command(click.Context(command), word)
    fields = []
    for option in command.params:
        if option.name in HIDDEN_OPTIONS:
            continue
        flag = max(option.opts, key=len)
        # of a newer click, None and "nothing is said" are not the same; of a flag the box says it
        default = str(option.default) if isinstance(option.default, str | int | float) and not option.multiple else ""
        names = _choices(flag, option)
        fields.append(
            {
                "flag": flag,
                "id": f"{name} {flag}".replace(" ", "_"),
                "words": flag.removeprefix("--").replace("-", " "),
                "help": option.help,
                "is_flag": option.is_flag,
                "choices": names and _same([*([] if default else [""]), *names]),
                "default": default,
                "value": default or (str(SUGGESTED.get(option.name, "")) if option.required else ""),
                "required": option.required,
            }
        )
    return fields


def _price() -> dict[str, Any]:
    first = asked("command", arguments=["plan"])
    return {
        "commands": COMMANDS,
        "forms": {name: _fields(name) for name in COMMANDS},
        "result": Markup(first["html"]),
        "data": {},
    }


def _puzzles() -> dict[str, Any]:
    from allranks.exercises.puzzles import catalogue

    puzzles = [puzzle | {"starter": puzzle["starter"].rstrip()} for puzzle in catalogue()]
    # shown while the code is word for word the puzzle's own
    judged = _module("puzzle_answers").judged
    recorded = {puzzle["id"]: judged(puzzle["id"], puzzle["starter"]) for puzzle in puzzles}
    return {"puzzles": puzzles, "recorded": recorded, "data": {"puzzles": puzzles, "recorded": recorded}}


def _model() -> dict[str, Any]:
    from allranks import my_model
    from allranks.base import chapters

    shown = my_model("your_own_job")
    state = {"kind": shown.kind, "data": shown.data, "values": shown.values, "kept": shown.kept}
    chapter = chapters.find("48_your_own_job").path.with_suffix(".html").as_posix()
    return {"words": shown.text(), "chapter": chapter, "data": {"model": state}}


@cache
def players() -> dict[str, str]:
    """The animation of every algorithm on 4 and on 8 ranks in base64, by "ring_all_reduce/4"."""
    from allranks.theory.schedules import ALGORITHMS

    made = ((f"{name}/{ranks}", make(ranks)) for name, make in ALGORITHMS.items() for ranks in (4, 8))
    return {name: answers().as_played([schedule], 64 << 20)["animation"] for name, schedule in made if schedule.moves}


def _player() -> dict[str, Any]:
    return {"names": list(players()), "data": {}}


def _same(names: list[str]) -> dict[str, str]:
    """Options whose words are their values."""
    return {name: name for name in names}


# the pages in their order: file, its name in the navigation, what it holds
PAGES = {
    "puzzles": ("Ten puzzles", _puzzles),
    "model": ("One model", _model),
    "schedule": ("Write a schedule", _schedule),
    "explain": ("Explain a profile", _explain),
    "race": ("The race", _race),
    "price": ("What it costs", _price),
    "player": ("The player", _player),
}


# ------------------------------------------------------------------------------------------------------------ all of it


def missing() -> str:
    """Why the pages can't be built here, in one sentence; "" if they can."""
    if shutil.which("node") is None:
        return "Node.js is not installed, and the live pages need it; install it, or build without them (--no-live)"
    if not (JS / "node_modules" / "pyodide").is_dir() or not (JS / "node_modules" / "esbuild").is_dir():
        return (
            "the tools of the JavaScript are not installed: `make js-tools`, or build without the live pages "
            "(--no-live)"
        )
    return ""


def build(output: Path) -> list[Path]:
    """Writes the live pages into `output` (site/live); the paths of the pages. Raises LiveError."""
    if why := missing():
        raise LiveError(why)
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    version = json.loads((JS / "node_modules" / "pyodide" / "package.json").read_text(encoding="utf-8"))["version"]
    pyodide = f"pyodide-{version}/"
    (output / pyodide).mkdir()
    there = JS / "node_modules" / "pyodide"
    shutil.copy(there / LIBRARY, output / pyodide / LIBRARY)
    for name in PACKED:
        packed = gzip.compress((there / name).read_bytes(), 9, mtime=0)
        (output / pyodide / f"{name}.packed").write_bytes(packed)
    lock = json.loads((there / "pyodide-lock.json").read_text(encoding="utf-8")) | {"packages": {}}
    with tempfile.TemporaryDirectory(prefix="allranks-live-") as folder:
        made = Path(folder)
        _node("live.js", str(made))
        service_worker = (made / "sw.js").read_text(encoding="utf-8")
        (made / "sw.js").unlink()  # it lies beside the pages, as it serves these
        shutil.move(made / "embed.js", output / "embed.js")  # its address stands in other people's pages
        (made / "players.json").write_text(json.dumps(players()), encoding="utf-8")
        (made / "course.zip").write_bytes(course())
        for name, data in zip(("puzzles.zip", "library.zip"), puzzles_python(), strict=True):
            (made / name).write_bytes(data)
        shutil.copy(SHOW / "player" / "static" / "player.js", made / "playback.js")
        shutil.copy(SHOW / "widgets" / "static" / "explore.js", made / "explore.js")
        sheet = (PACKAGE / "allranks" / "base" / "theme.css").read_text(encoding="utf-8")
        (made / "live.css").write_text(sheet + (HERE / "live.css").read_text(encoding="utf-8"), encoding="utf-8")
        digest = hashlib.sha256(b"".join(p.name.encode() + p.read_bytes() for p in sorted(made.iterdir()))).hexdigest()
        build_folder = f"build-{digest[:12]}/"
        (output / build_folder).mkdir()  # a copy of the temporary folder would be for its owner only
        for path in made.iterdir():
            shutil.copy(path, output / build_folder / path.name)
    parts = dict(zip(("wasm", "script"), (f"{pyodide}{name}.packed" for name in PACKED), strict=True))
    python = {
        "answers": parts | {"library": f"{pyodide}{LIBRARY}", "course": f"{build_folder}course.zip"},
        "puzzle_answers": parts | {"library": f"{build_folder}library.zip", "course": f"{build_folder}puzzles.zip"},
    }
    loaded = {path for paths in python.values() for path in paths.values()}

    def places(name: str) -> dict[str, Any]:
        module = "puzzle_answers" if name == "puzzles" else "answers"
        sizes = {part: (output / path).stat().st_size for part, path in python[module].items()}
        found = {"pyodide": pyodide, "build": build_folder, "module": module, "files": python[module], "sizes": sizes}
        return found | {"lock": json.dumps(lock)}

    pages = [_written(output, name, places(name)) for name in PAGES]
    files = [
        p.relative_to(output).as_posix() for folder in (build_folder, pyodide) for p in (output / folder).iterdir()
    ]
    # the page itself keeps what it loads with a progress bar
    first = [*(page.name for page in pages), *sorted(name for name in files if name not in loaded)]
    kept = base64.b64encode(json.dumps({"folders": [pyodide, build_folder], "first": first}).encode()).decode()
    (output / "sw.js").write_text(service_worker.replace("__KEPT__", kept), encoding="utf-8")
    return pages


def loads(live: Path) -> str:
    """How many MB Python is that the puzzles load, as their page says it."""
    page = (live / "puzzles.html").read_text(encoding="utf-8")
    return str(json.loads(re.search(r'id="places">(.*?)</script>', page)[1])["loads"])


def _written(output: Path, name: str, places: dict[str, Any]) -> Path:
    """Writes one page."""
    templates = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    templates.policies["json.dumps_kwargs"] = {"sort_keys": True, "ensure_ascii": False}
    navigation = {other: words for other, (words, _) in PAGES.items()}
    places |= {"loads": f"{sum(places['sizes'].values()) / 1e6:.1f}"}
    common = {"loads": places["loads"], "name": name, "policy": POLICY, "pages": navigation, "places": places}
    path = output / f"{name}.html"
    path.write_text(templates.get_template(f"{name}.html").render(PAGES[name][1]() | common) + "\n", encoding="utf-8")
    return path
