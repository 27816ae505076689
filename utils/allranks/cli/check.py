"""`allranks check EXERCISE FILE`: the verdict on a file, without running any of it in this process."""

from __future__ import annotations

import ast
import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from allranks.base.errors import CourseError
from allranks.cli._verdicts import LATER, MODULES, TARGET, Job, answer, worth

LOOK_S = 0.1  # how often --watch looks at the file


class CheckError(CourseError):
    """There is nothing to check; the message says what to give."""


def _complete(context: click.Context, argument: click.Parameter, typed: str) -> list[CompletionItem]:
    from allranks.exercises import names

    exercises = [] if context.params.get("what") else [CompletionItem(n) for n in names() if n.startswith(typed)]
    return [*exercises, CompletionItem(typed, type="file")]


@click.command(name="check")
@click.argument("what", metavar="[EXERCISE] FILE...", nargs=-1, required=True, shell_complete=_complete)
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as one JSON object.")
@click.option("--function", "name", metavar="NAME", help="The function's name in FILE, if it is not the exercise's.")
@click.option(
    "--rules",
    type=click.Choice(["nccl"]),
    help="Judge under the rules of NCCL: would it run on GPUs? Grades don't depend on them.",
)
@click.option(
    "--points", type=click.FloatRange(0), metavar="N", help="What it is worth: JSON also has points and max_points."
)
@click.option(
    "--topology",
    metavar="NAME",
    help="Also say how long the answer takes on this machine (a preset or a topology file), and why.",
)
@click.option(
    "--bytes", "nbytes", type=int, default=64 << 20, show_default=True, help="The vector's bytes on that machine."
)
@click.option(
    "--student",
    metavar="NAME",
    envvar=["ALLRANKS_STUDENT", "JUPYTERHUB_USER"],
    help="Who you are, in a course that gives each student a variant. Default: the account on a JupyterHub.",
)
@click.option("--watch", is_flag=True, help="Judge again at every save, until Ctrl-C.")
def command(what: tuple[str, ...], as_json: bool, name: str | None, watch: bool, **options: Any) -> None:
    """Checks the function that FILE (.py or .ipynb) defines for EXERCISE.

    Without EXERCISE it checks every exercise that the files define; one whose function still raises NotImplementedError
    is left out. A failure begins with its place, FILE:LINE, which editors open.

    The exit status is 0 for a pass, 1 for a fail, and 2 if there is nothing to check. The first call leaves a process
    behind that has torch imported, so that the next one takes half a second; it ends after ten minutes without a call
    (ALLRANKS_IDLE_S sets other seconds, 0 none).
    """
    try:
        if watch:
            sys.exit(_watch(what, as_json, name, options))
        jobs = _jobs(what, name, options)
    except CheckError as error:
        _refuse(str(error), what[0], as_json, options["points"])
    if not jobs:
        _refuse("None of these files defines a function of an exercise that is written.", "", as_json, None, code=0)
    sys.exit(_verdicts(jobs, as_json, many=not _names_an_exercise(what)))


def _refuse(sentence: str, exercise: str, as_json: bool, points: float | None, code: int = 2) -> None:
    if as_json:
        told = {"exercise": exercise, "passed": False, "score": 0.0, "cases": [], "reason": sentence}
        told |= worth(0.0, False, points)
        click.echo(json.dumps(told if code else {"passed": True, "verdicts": []}))
    else:
        click.echo(sentence, err=True)
    sys.exit(code)


def _verdicts(jobs: list[Job], as_json: bool, many: bool) -> int:
    """Prints the verdicts, from the warm server or else from this process; returns the exit code."""
    from allranks.ranks.engines.forkserver.idle import ask

    streams = (sys.stdout, sys.stderr)
    for stream in streams:
        stream.flush()
    try:
        fds = [stream.fileno() for stream in streams]
    except (OSError, AttributeError):  # not real files, as in a test
        return answer(jobs, as_json, many)
    args = {
        "jobs": [asdict(job) for job in jobs],
        "as_json": as_json,
        "many": many,
        "path": sys.path,
        "encodings": [stream.encoding or "utf-8" for stream in streams],
    }
    code = ask(TARGET, args, fds=fds, modules=MODULES, later=LATER)
    return answer(jobs, as_json, many) if code is None or code < 0 or code > 2 else code


# ------------------------------------------------------------------------------------------------------- which
# exercises


def _names_an_exercise(what: tuple[str, ...]) -> bool:
    from allranks.exercises import exists

    return not what[0].endswith((".py", ".ipynb")) or exists(what[0])


def _jobs(what: tuple[str, ...], name: str | None, options: dict[str, Any]) -> list[Job]:
    """What to check: the exercise that is named, or every one that the files define. Raises CheckError."""
    from allranks.exercises import ExerciseError, exists, get

    if _names_an_exercise(what):
        if not exists(what[0]):
            try:
                get(what[0])
            except ExerciseError as error:  # it names the nearest one
                raise CheckError(str(error)) from None
        if len(what) != 2:
            raise CheckError(f"Give one file after the exercise: allranks check {what[0]} FILE.")
        return [Job(what[0], what[1], name, **options)]
    if name is not None:
        raise CheckError("--function needs the exercise before the file: allranks check EXERCISE FILE --function NAME.")
    return [Job(exercise, file, None, **options) for file in what for exercise in _written(file)]


def _written(file: str) -> list[str]:
    """The exercises that a file defines and that are begun, in its order. Raises CheckError if it can't be read."""
    from allranks.exercises import names

    known = set(names())
    found: dict[str, bool] = {}
    for text in _texts(file):
        try:
            body = ast.parse(text).body
        except (SyntaxError, ValueError, RecursionError):
            # the exercise that it seems to define tells what does not parse
            found |= {name: True for name in known if f"def {name}(" in text}
            continue
        found |= {
            node.name: _is_begun(node) for node in body if isinstance(node, ast.FunctionDef) and node.name in known
        }
    return [name for name, begun in found.items() if begun]


def _texts(file: str) -> list[str]:
    from allranks.judge.source import SourceError, plain_texts

    try:
        return plain_texts(file)
    except SourceError as error:
        raise CheckError(str(error)) from None


def _is_begun(function: ast.FunctionDef) -> bool:
    """Whether the function is more than the released stub, which only raises NotImplementedError."""
    rest = [node for node in function.body if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))]
    if len(rest) == 1 and isinstance(rest[0], ast.Raise):
        return "NotImplementedError" not in ast.unparse(rest[0])
    return bool(rest)


# -----------------------------------------------------------------------------------------------------------------
# --watch


def _watch(what: tuple[str, ...], as_json: bool, name: str | None, options: dict[str, Any]) -> int:
    """Judges at every save, until Ctrl-C. Raises CheckError if what is asked for can't be."""
    files = what[1:] if _names_an_exercise(what) else what
    _jobs(what, name, options)
    seen = None
    try:
        while True:
            now = [_stamp(file) for file in files]
            if now != seen and None not in now:  # None: the editor is between removing it and writing it
                time.sleep(LOOK_S / 2)
                if [_stamp(file) for file in files] != now:
                    continue  # it is still being written
                seen = now
                if not as_json:
                    click.echo(f"\n--- {time.strftime('%H:%M:%S')} ---")
                try:
                    jobs = _jobs(what, name, options)
                    if jobs:
                        _verdicts(jobs, as_json, many=not _names_an_exercise(what))
                except CheckError as error:
                    click.echo(str(error), err=True)
            time.sleep(LOOK_S)
    except KeyboardInterrupt:
        return 0


def _stamp(file: str) -> tuple[int, int, int] | None:
    """What changes when the file is saved; None if it is not there."""
    try:
        found = os.stat(Path(file))
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
