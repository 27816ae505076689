"""`allranks check EXERCISE FILE`: the verdict on a file, without running any of it in this process."""

from __future__ import annotations

import json
import sys

import click


@click.command(name="check")
@click.argument("exercise")
@click.argument("file", type=click.Path())
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
def command(
    exercise: str,
    file: str,
    as_json: bool,
    name: str | None,
    rules: str | None,
    points: float | None,
    topology: str | None,
    nbytes: int,
) -> None:
    """Checks the function that FILE (.py or .ipynb) defines for EXERCISE.

    The exit status is 0 for a pass, 1 for a fail, and 2 if there is nothing to check.
    """
    from allranks.checking.judging import judge
    from allranks.checking.source import read_source
    from allranks.errors import CourseError
    from allranks.exercises import get, names

    try:
        if exercise not in names():
            get(exercise)  # raises, and names the nearest one
        source = read_source(file, name or exercise)
        verdict = judge(get(exercise), source, rules=rules, topology=topology, nbytes=nbytes)
    except CourseError as error:
        if as_json:
            told = {"exercise": exercise, "passed": False, "score": 0.0, "cases": [], "reason": str(error)}
            click.echo(json.dumps(told | _worth(0.0, False, points)))
        else:
            click.echo(str(error), err=True)
        sys.exit(2)
    worth = _worth(verdict.score, verdict.passed, points)
    click.echo(json.dumps(verdict.to_dict() | worth) if as_json else verdict.text())
    sys.exit(0 if verdict.passed else 1)


def _worth(score: float, passed: bool, points: float | None) -> dict[str, float]:
    """What `--points` adds to the JSON."""
    from allranks.checking.verdict import points_of

    return {} if points is None else {"points": points_of(score, passed, points), "max_points": points}
