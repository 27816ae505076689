"""Builds the site's live pages, for `tools/site.py`; `make site ARGS=--live-only` builds nothing else. Their Python is
the package's own.

Each page is HTML with its first result in it. Its script then loads Pyodide (CPython for the browser, from
utils/js/node_modules) and a zip of the modules of the package that tools/live/answers.py needs. Nothing comes from
another host: a policy in the pages forbids it.

    site/live/NAME.html            the pages
    site/live/pyodide-VERSION/     Pyodide, as its package has it
    site/live/build-HASH/          scripts, style sheet and the zip; the hash is over all of them
    site/live/sw.js                keeps all of it in the browser's cache
"""

from __future__ import annotations

import ast
import base64
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
PYODIDE = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json")
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
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; worker-src 'self' blob:; base-uri 'none'; form-action 'none'"
)


class LiveError(Exception):
    """The live pages can't be built; the message says what to fix."""


# ----------------------------------------------------------------------------------------------------------- the Python


def modules(start: Path) -> dict[str, Path]:
    """The modules of the package that a file imports, and those that they import, also in functions: name -> file."""
    found: dict[str, Path] = {}
    left = [("answers", start)]
    while left:
        name, path = left.pop()
        for other in _imported(name, path):
            where = _file(other)
            if where is None or other in found or other.startswith(LEFT_OUT):
                continue
            found[other] = where
            left.append((other, where))
    return dict(sorted(found.items()))


def _file(name: str) -> Path | None:
    """The file of a module of the package."""
    path = PACKAGE.joinpath(*name.split("."))
    return next((p for p in (path / "__init__.py", path.with_suffix(".py")) if p.is_file()), None)


def _imported(name: str, path: Path) -> set[str]:
    """What a file imports of the package, with the packages above."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    ours = {other for other in found if other.split(".")[0] == "allranks"}
    if name == "allranks.cli":  # it imports its commands by name
        ours |= {f"allranks.cli.{command}" for command in ("price", "plan", "simulate")}
    above = {other.rsplit(".", i)[0] for other in ours for i in range(other.count(".") + 1)}
    return ours | above


def course() -> bytes:
    """The zip with the modules, what they read, and click, on which the commands are built; always the same bytes."""
    files = {f"{where.relative_to(PACKAGE)}": where for where in modules(HERE / "answers.py").values()}
    files |= {f"allranks/{name}": PACKAGE / "allranks" / name for name in DATA}
    click = Path(str(importlib.util.find_spec("click").origin)).parent
    files |= {f"click/{path.name}": path for path in click.glob("*.py")}
    files["answers.py"] = HERE / "answers.py"
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, path in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), path.read_bytes(), zipfile.ZIP_DEFLATED)
    return out.getvalue()


@cache
def answers() -> ModuleType:
    """tools/live/answers.py, in this Python."""
    spec = importlib.util.spec_from_file_location("answers", HERE / "answers.py")
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


def _same(names: list[str]) -> dict[str, str]:
    """Options whose words are their values."""
    return {name: name for name in names}


# the pages in their order: file, its name in the navigation, what it holds
PAGES = {
    "schedule": ("Write a schedule", _schedule),
    "explain": ("Explain a profile", _explain),
    "race": ("The race", _race),
    "price": ("What it costs", _price),
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
    for name in PYODIDE:
        shutil.copy(JS / "node_modules" / "pyodide" / name, output / pyodide / name)
    with tempfile.TemporaryDirectory(prefix="allranks-live-") as folder:
        made = Path(folder)
        _bundle(made)
        service_worker = (made / "sw.js").read_text(encoding="utf-8")
        (made / "sw.js").unlink()  # it lies beside the pages, as it serves these
        (made / "course.zip").write_bytes(course())
        shutil.copy(PACKAGE / "allranks" / "show" / "player" / "static" / "player.js", made / "player.js")
        sheet = (PACKAGE / "allranks" / "base" / "theme.css").read_text(encoding="utf-8")
        (made / "live.css").write_text(sheet + (HERE / "live.css").read_text(encoding="utf-8"), encoding="utf-8")
        digest = hashlib.sha256(b"".join(p.name.encode() + p.read_bytes() for p in sorted(made.iterdir()))).hexdigest()
        build_folder = f"build-{digest[:12]}/"
        (output / build_folder).mkdir()  # a copy of the temporary folder would be for its owner only
        for path in made.iterdir():
            shutil.copy(path, output / build_folder / path.name)
    loaded = {f"{pyodide}{n}": n for n in ("pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json")}
    loaded[f"{build_folder}course.zip"] = "course.zip"
    sizes = {name: (output / path).stat().st_size for path, name in loaded.items()}
    places = {"pyodide": pyodide, "build": build_folder, "sizes": sizes}
    pages = [_written(output, name, places) for name in PAGES]
    files = [
        p.relative_to(output).as_posix() for folder in (build_folder, pyodide) for p in (output / folder).iterdir()
    ]
    # the page itself keeps what it loads with a progress bar
    first = [*(page.name for page in pages), *sorted(name for name in files if name not in loaded)]
    kept = base64.b64encode(json.dumps({"folders": [pyodide, build_folder], "first": first}).encode()).decode()
    (output / "sw.js").write_text(service_worker.replace("__KEPT__", kept), encoding="utf-8")
    return pages


def _bundle(folder: Path) -> None:
    """The pages' scripts. Raises LiveError with what esbuild says."""
    done = subprocess.run(["node", "live.js", str(folder)], cwd=JS, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LiveError(f"the scripts of the live pages can't be bundled: {done.stderr.strip()[-500:]}")


def _written(output: Path, name: str, places: dict[str, Any]) -> Path:
    """Writes one page."""
    templates = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    templates.policies["json.dumps_kwargs"] = {"sort_keys": True, "ensure_ascii": False}
    navigation = {other: words for other, (words, _) in PAGES.items()}
    common = {"name": name, "policy": POLICY, "pages": navigation, "places": places}
    path = output / f"{name}.html"
    path.write_text(templates.get_template(f"{name}.html").render(PAGES[name][1]() | common) + "\n", encoding="utf-8")
    return path
