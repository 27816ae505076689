"""`allranks grade LAB`: nbgrader's autograde with the trusted step over every submission, several at a time."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import json
import os
import platform
import selectors
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from allranks.cli._grader import on_engine
from allranks.course.teaching import grader_of

from autograder.commands._course import (
    GradeError,
    complete,
    course_option,
    find_course,
    json_option,
    known_lab,
    section_option,
    students_of,
)
from autograder.rows import in_words, not_graded, printable, report

MAX_JOBS = 64
AHEAD = 2  # submissions read in advance, so that no judge is idle while the gradebook is written
ASK_S = 120.0  # for one request to the writer: a malicious notebook can take days to read
TRIES = 2  # how often a submission is marked when its engine is lost


@click.command(name="grade")
@click.argument("lab", shell_complete=complete)
@course_option
@click.option("--student", "only", multiple=True, metavar="NAME", help="Grade this student only; may be repeated.")
@section_option
@click.option("--jobs", type=click.IntRange(1, MAX_JOBS), help="Submissions at a time. Default: one for each core.")
@click.option(
    "--cluster",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Mark on the engines of an ipyparallel cluster: its cluster file or its client connection file.",
)
@click.option("--force", is_flag=True, help="Grade again what has been graded.")
@json_option
def command(
    lab: str,
    course: Path | None,
    only: tuple[str, ...],
    sections: tuple[str, ...],
    jobs: int | None,
    cluster: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Grades every submission in autograder/submitted/STUDENT/LAB, and records the points in nbgrader's gradebook.

    Those that are graded already are left as they are, so a run that was stopped can be started again. The exit status
    is 0 if all are graded, 1 if some could not be, and 2 if nothing could be done.
    """
    from allranks.base.extras import MissingExtraError, require

    lab = lab.rstrip("/")  # a shell's completion adds one
    rows: list[dict[str, Any]] = []
    overview: list[str] = []
    told: list[str] = []
    try:
        require("nbgrader", "allranks grade")
        root = find_course(course or Path.cwd())
        told = settle_pairs(root, lab)
        section = students_of(root, sections)
        students = find_students(root, lab, only, section)
        if cluster is None:
            judges = in_threads(min(len(students), jobs or default_jobs()))
        else:
            judges = on_cluster(root, cluster)
        with progress(len(students), as_json) as tell, judges as where:
            for row in grade(root, lab, students, where, force, overview, section):
                rows.append(row)
                tell(in_words(row))
    except (GradeError, MissingExtraError) as error:
        if as_json:
            click.echo(json.dumps({"lab": lab, "students": rows, "reason": str(error)}))
        else:
            click.echo(str(error), err=True)
        sys.exit(2)
    rows.sort(key=lambda row: row["student"])
    if as_json:
        click.echo(json.dumps({"lab": lab, "students": rows} | ({"pairs": told} if told else {})))
    else:
        parts = ["\n".join(map(printable, told)), report(rows), "\n".join(map(printable, overview))]
        click.echo("\n" + "\n\n".join(filter(None, parts)))
    sys.exit(1 if any(row["score"] is None for row in rows) else 0)


def settle_pairs(course: Path, lab: str) -> list[str]:
    """Gives each pair of students one work, and says what was done; nothing in a course without pairs."""
    known_lab(course, lab)
    folder = course / "autograder"
    declared = "Pairs" in (folder / "nbgrader_config.py").read_text(encoding="utf-8", errors="replace")
    if not declared and not (folder / "pairs.csv").exists() and not (folder / "pairs").exists():
        return []
    from autograder import pairs

    try:
        return list(pairs.settle(course, lab).told) if pairs.uses_pairs(course, lab) else []
    except pairs.PairsError as error:
        raise GradeError(str(error)) from None


def default_jobs() -> int:
    """How many judges to run: one for each core that this process may use."""
    from allranks.ranks.engines.devices import usable_cores

    return max(1, min(MAX_JOBS, usable_cores()))


def find_students(course: Path, lab: str, only: tuple[str, ...], section: frozenset[str] | None = None) -> list[str]:
    """The names of the students who handed in the lab, of a section's if one is given.

    Raises GradeError for an unknown lab, for none, for a missing one of `only`, and if none of them is in the section.
    """
    known_lab(course, lab)
    submitted = course / "autograder" / "submitted"
    found = sorted(path.name for path in submitted.glob("*") if os.path.lexists(path / lab))
    for name in only:
        if name not in found:
            raise GradeError(f"{name} has not handed in {lab}: there is no autograder/submitted/{name}/{lab}.")
    if not found:
        raise GradeError(f"Nobody has handed in {lab}: put notebooks into autograder/submitted/STUDENT/{lab}/.")
    if section is not None and section.isdisjoint(found):
        raise GradeError(f"Nobody of this section has handed in {lab}.")
    wanted = [name for name in found if (not only or name in only) and (section is None or name in section)]
    if not wanted:
        raise GradeError(f"None of {', '.join(only)} is in this section: leave --student or --section out.")
    return wanted


# ---------------------------------------------------------------------------------------------------- where it is marked


@dataclass(frozen=True)
class Judges:
    """Where submissions are marked: an executor, the function that it calls with (requests, sandbox), and the number of judges."""

    executor: concurrent.futures.Executor
    mark: Callable[[list[dict[str, Any]], str], tuple[list[dict[str, Any]], float]]
    count: int


@contextlib.contextmanager
def in_threads(count: int) -> Iterator[Judges]:
    """Judges on this machine: each is a child process of one of our threads."""
    from autograder import marking

    marker = marking.Marker(pinned=count > 1)
    executor = concurrent.futures.ThreadPoolExecutor(count, thread_name_prefix="judge")
    try:
        for _ in range(count):  # starts the judges while the first submissions are read
            executor.submit(marker.mark, [], "bubblewrap")
        yield Judges(executor, marker.mark, count)
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
        marker.stop()
        executor.shutdown()


@contextlib.contextmanager
def on_cluster(course: Path, file: Path) -> Iterator[Judges]:
    """Judges in the engines of an ipyparallel cluster; the next free engine gets the next submission.

    Raises GradeError if the cluster can't be reached or has no engine, or if an engine does not see the course's folder.
    """
    import ipyparallel as ipp
    from allranks.ranks.world.attached import connect
    from allranks.ranks.world.cluster import WorldError

    try:
        client = connect(ipp, file)
    except WorldError as error:
        raise GradeError(str(error)) from None
    try:
        if not client.ids:
            raise GradeError(f"The cluster of {file} has no engines yet; wait until they are registered.")
        sees = client[:].apply_sync(os.path.isfile, str(course / "autograder" / "nbgrader_config.py"))
        blind = sorted({host for host, seen in zip(client[:].apply_sync(platform.node), sees, strict=True) if not seen})
        if blind:
            raise GradeError(
                f"Engines on {', '.join(blind)} don't see {course}: put the course in a folder that all machines share."
            )
        view = client.load_balanced_view()
        yield Judges(
            view.executor, functools.partial(on_engine, str(course), "autograder.marking:HERE.mark"), len(client.ids)
        )
        with contextlib.suppress(ipp.error.CompositeError, ipp.error.TimeoutError):
            client[:].apply_async(on_engine, str(course), "autograder.marking:HERE.rest").get(30)
    finally:
        client.close()


def rehearsed(course: Path, lab: str, dry_run: bool) -> contextlib.AbstractContextManager[Path]:
    """The course's folder; for a dry run a copy, in which everything can be done."""
    from autograder import rehearsal

    return rehearsal.rehearsal(course, lab) if dry_run else contextlib.nullcontext(course)


# ------------------------------------------------------------------------------------------------------------- the run


def grade(
    course: Path,
    lab: str,
    students: list[str],
    judges: Judges,
    force: bool,
    overview: list[str] | None = None,
    section: frozenset[str] | None = None,
) -> Iterator[dict[str, Any]]:
    """Reads, marks and records every submission; yields each student's row when it is recorded.

    Many judges mark; one process writes the gradebook. At the end `overview` gets the first lines of the class overview,
    or of the `section`'s. Raises GradeError if nothing can be graded.
    """
    waiting = deque(students)
    marking: dict[
        concurrent.futures.Future[tuple[list[dict[str, Any]], float]], tuple[str, list[dict[str, Any]], int]
    ] = {}
    with _Writer(course, lab, force) as writer:
        prepared = writer.prepare()

        def begin(student: str, requests: list[dict[str, Any]], tries: int) -> None:
            future = judges.executor.submit(judges.mark, requests, prepared["sandbox"])
            marking[future] = student, requests, tries

        while waiting or marking:
            while waiting and len(marking) < judges.count + AHEAD:
                student = waiting.popleft()
                read = writer.ask({"read": student})
                if "error" in read:
                    raise GradeError(read["error"])
                if "ended" in read:
                    yield not_graded(student, read["ended"])
                elif "row" in read:
                    yield read["row"]
                else:
                    begin(student, read["requests"], TRIES)
            done, _ = concurrent.futures.wait(marking, return_when=concurrent.futures.FIRST_COMPLETED)
            for future in done:
                student, requests, tries = marking.pop(future)
                try:
                    verdicts, marking_s = future.result()
                except Exception as error:
                    if _no_judge_can_start(error):
                        raise GradeError(str(error)) from None
                    if tries > 1:
                        begin(student, requests, tries - 1)
                    else:
                        yield not_graded(student, f"its marking was lost ({type(error).__name__}: {error})")
                    continue
                decided = {"requests": requests, "verdicts": verdicts, "seconds": marking_s}
                recorded = writer.ask({"record": student, **decided})
                yield recorded.get("row") or not_graded(student, recorded["ended"])
        if overview is not None:
            overview += writer.ask({"overview": None if section is None else sorted(section)}).get("lines", ())


def _no_judge_can_start(error: Exception) -> bool:
    """Whether no judge can start, so that grading must stop. An error from an engine has only the name of its type."""
    return "NoJudge" in (type(error).__name__, getattr(error, "ename", ""))


class _Writer:
    """The process that reads submissions and writes the gradebook (`autograder.grading`). It is started again when it ended."""

    def __init__(self, course: Path, lab: str, force: bool) -> None:
        self.course = course
        self.command = [sys.executable, "-m", "autograder.grading", lab, *(["--force"] if force else [])]
        self.process: subprocess.Popen[str] | None = None
        self.log = tempfile.TemporaryFile(mode="w+", errors="replace")

    def prepare(self) -> dict[str, Any]:
        """Starts the process; returns how to mark the lab. Raises GradeError if the lab can't be recorded."""
        paths = [str(grader_of(self.course)), os.environ.get("PYTHONPATH", "")]
        self.process = subprocess.Popen(
            self.command,
            cwd=self.course / "autograder",
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )
        said = self.ask({"prepare": True})
        if "sandbox" not in said:
            raise GradeError(f"Nothing was graded: {said.get('error') or said['ended']}")
        return said

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The writer's answer, or {"ended": why} if the process ended; the next request starts a new one."""
        if self.process is None:
            self.prepare()
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            with selectors.DefaultSelector() as selector:
                selector.register(self.process.stdout, selectors.EVENT_READ)
                if not selector.select(ASK_S):
                    self.process.kill()
                    self._end()
                    return {"ended": f"reading or recording it took longer than {ASK_S:g} s."}
            answer = self.process.stdout.readline()
        except OSError:
            answer = ""
        if answer:
            return json.loads(answer)
        code = self._end()
        self.log.seek(0)
        last = [line for line in self.log.read().splitlines() if line.strip()][-1:]
        return {"ended": f"the grader ended with code {code}" + (f": {last[0]}" if last else ".")}

    def _end(self) -> int | None:
        process, self.process = self.process, None
        if process is None:
            return None
        with contextlib.suppress(OSError):  # flushing fails if the process ended before it read everything
            process.stdin.close()
        process.stdout.close()
        try:
            return process.wait(2)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.process.kill()
        self._end()
        self.log.close()


# ----------------------------------------------------------------------------------------------------------- the output


@contextlib.contextmanager
def progress(total: int, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Shows a progress bar on a terminal; gives the function that prints a line above it."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield (lambda line: None) if quiet else click.echo
        return
    columns = TextColumn("grading"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=total)

        def tell(line: str) -> None:
            console.print(line, markup=False, highlight=False, soft_wrap=True)
            bar.advance(task)

        yield tell
