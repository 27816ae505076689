"""Which steps there are, and one run of them: in order, within the minutes, with the record on the disk after each."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from allranks.base.errors import CourseError
from allranks.machine.verify import calls, chapters, faults, machine, questions, sweeps
from allranks.machine.verify.record import Record
from allranks.machine.verify.steps import LEGACY_PHASES, PHASES, Outcome, Plan, Step
from allranks.machine.verify.worker import Worker
from allranks.ranks.engines import gpu_processes
from allranks.ranks.engines.devices import SHARING_NCCL, Inventory, place
from allranks.ranks.engines.forkserver.client import ForkServer, ForkServerError
from allranks.ranks.engines.forkserver.process import forking_is_safe

ALL_STEPS: tuple[Step, ...] = (
    *machine.STEPS,
    *calls.STEPS,
    *questions.CALLS,
    *questions.FAULTS,  # before the faults that take long
    *faults.STEPS,
    *questions.SWEEPS,
    *sweeps.STEPS,
    *chapters.STEPS,
)
LEGACY_ENV = {"TORCH_DIST_USE_NCCL2": "0"}
FIRST_NCCL2 = (2, 15)  # the first torch whose "nccl" is the new backend
MOST_SERVERS = 5  # after so many lost fork servers each step starts its own
SHORTEST_S = 3.0  # a step with less time is not begun


class VerifyError(CourseError):
    """A run of `verify` that can't begin; the message says what to change."""


def choose(
    ranks: int | None = None, gpus: int | None = None, minutes: float = 10, inventory: Inventory | None = None
) -> Plan:
    """The plan for this machine: NCCL on its GPUs, also on a single one, else gloo on the CPU. Raises DeviceError, VerifyError."""
    if not 0 < minutes < 1e6:
        raise VerifyError(f"--minutes {minutes:g}: it is a number of minutes above 0, for example 10.")
    have = inventory or Inventory.of_this_machine()
    cards = len({gpu.physical for gpu in have.gpus})
    if gpus is None and have.nccl and cards:
        if ranks is None and cards == 1:  # World() alone would take the CPU
            gpus, ranks = 1, 2 if have.nccl >= SHARING_NCCL else 1
        elif ranks is not None and ranks > cards and have.nccl >= SHARING_NCCL:
            gpus = cards
    placement = place(ranks, None, have, gpus=gpus)
    return Plan(placement.ranks, placement.backend, gpus if placement.backend == "nccl" else None, minutes)


def verify(
    plan: Plan,
    folder: Path,
    *,
    only: Sequence[str] = (),
    steps: Sequence[Step] = ALL_STEPS,
    legacy: bool = False,
    say: Callable[[Outcome], None] = lambda outcome: None,
) -> Record:
    """Carries out the steps and writes the record into `folder` after each; returns it.

    `only` names phases. With `legacy`, a second pass uses torch's older NCCL backend. An interrupt ends the run: the record
    then says "stopped", and is returned. Raises VerifyError for an unknown phase and a folder that can't be written.
    """
    if unknown := [phase for phase in only if phase not in PHASES]:
        raise VerifyError(f"There is no phase {unknown[0]!r}; there are {', '.join(PHASES)}.")
    chosen = [step for step in steps if not only or step.phase in only]
    record = Record(plan, f"{datetime.now(UTC):%Y-%m-%d %H:%M}", _machine(plan))
    began = time.monotonic()

    def write() -> None:
        record.seconds = time.monotonic() - began
        try:
            record.write(folder)
        except OSError as error:
            raise VerifyError(
                f"The record can't be written to {folder}: {error.strerror}. Name another folder: --out DIR"
            ) from None

    write()
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(_run_directory())
        if plan.backend == "nccl":
            # else steps fail at their limits where the driver shuts GPUs down between two looks
            gpus = {gpu.physical for gpu in Inventory.of_this_machine().gpus}
            stack.callback(gpu_processes.keep_initialized(gpus))
        try:
            for old in (False, True)[: 1 + legacy]:
                turn = [step for step in chosen if not old or step.phase in LEGACY_PHASES]
                if old and (why := _no_legacy(plan)):
                    for step in turn:
                        say(record.add(Outcome(step.phase, step.name, "skip", reason=why, legacy=True)))
                    continue
                _pass(record, turn, directory, old, write, say)
            record.ended, record.now = "complete", ""
        except KeyboardInterrupt:
            record.ended = "stopped"
        finally:
            write()
    return record


def _pass(
    record: Record,
    steps: Sequence[Step],
    directory: Path,
    legacy: bool,
    write: Callable[[], None],
    say: Callable[[Outcome], None],
) -> None:
    """One pass through the steps; a phase may use its share of the minutes, and what the phases before it left."""
    env = {**os.environ, "PYTHONUNBUFFERED": "1", **(LEGACY_ENV if legacy else {})}
    worker: Worker | None = None
    until = time.monotonic() + 60 * record.plan.minutes
    server, started = _fork_server(env), 1
    ends: dict[str, float] = {}
    try:
        for step in steps:
            if (server is None or not server.alive) and started < MOST_SERVERS:
                server, started = _fork_server(env), started + 1
            record.now = f"{step.phase}, {step.name}"
            write()
            left_s = ends.get(step.phase, until) - time.monotonic()
            if (worker is None or worker.process.poll() is not None) and left_s > SHORTEST_S:
                worker = Worker(record.plan, directory / "steps.log", env)
                worker.wait(left_s)
            if not ends:  # only now: the first start, from a network disk, say, is no phase's time
                now = time.monotonic()
                ends = {phase: now + end_s for phase, end_s in _ends(_phases(steps, record.plan), until - now).items()}
            left_s = ends.get(step.phase, until) - time.monotonic()
            if worker is None or left_s < SHORTEST_S:
                why = f"The time of the phase {step.phase} was over; --minutes takes more than {record.plan.minutes:g}."
                say(record.add(Outcome(step.phase, step.name, "skip", reason=why, legacy=legacy)))
                write()
                continue
            outcome = worker.run(step, min(step.limit_s, left_s), legacy)
            if outcome.result == "fail" and left_s < step.limit_s and outcome.seconds >= left_s - 1:
                why = (
                    f"Cut off by the end of the phase {step.phase}; --minutes takes more than {record.plan.minutes:g}."
                )
                outcome = replace(outcome, result="skip", reason=why)
            record.add(outcome)
            write()  # before it is said: whoever reads the line may end the run
            say(outcome)
    finally:
        if worker is not None:
            worker.end()
        if server is not None:
            server.close()


def _phases(steps: Sequence[Step], plan: Plan) -> set[str]:
    """The phases that need time: no chapter runs on one rank."""
    return {step.phase for step in steps} - ({"chapters"} if plan.ranks < 2 else set())


def _ends(phases: set[str], seconds: float) -> dict[str, float]:
    """The second at which each phase ends; with some phases only, they share all seconds in the same proportion."""
    lengths = {name: end - before for (name, end), before in zip(PHASES.items(), (0.0, *PHASES.values()), strict=False)}
    whole = sum(length for phase, length in lengths.items() if phase in phases) or 1
    found, at_s = {}, 0.0
    for phase, length in lengths.items():
        if phase in phases:
            at_s += seconds * length / whole
            found[phase] = at_s
    return found


def _fork_server(env: dict[str, str]) -> ForkServer | None:
    """One fork server for all workers and notebooks of a pass, so that each world starts at once; None where forks are unsafe."""
    if not forking_is_safe():
        return None
    env.pop("ALLRANKS_FORKSERVER", None)  # that of a JupyterLab has other settings
    before = dict(os.environ)
    os.environ.update(env)
    try:
        server = ForkServer.start(lasting=True)
        server.wait_warm()
    except ForkServerError:
        return None  # the step that starts a world says what is wrong
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)
    env["ALLRANKS_FORKSERVER"] = str(server.path)
    return server


@contextlib.contextmanager
def _run_directory():
    """A run directory of this run's own: it marks all of its processes, and no other notebook's world is touched."""
    before = os.environ.get("ALLRANKS_RUN_DIR")
    directory = Path(tempfile.mkdtemp(prefix="arv-", dir="/tmp" if os.access("/tmp", os.W_OK) else None))
    os.environ["ALLRANKS_RUN_DIR"] = str(directory)
    try:
        yield directory
    finally:
        os.environ.pop("ALLRANKS_RUN_DIR")
        if before is not None:
            os.environ["ALLRANKS_RUN_DIR"] = before
        shutil.rmtree(directory, ignore_errors=True)


def _machine(plan: Plan) -> str:
    """A few words for the file's name."""
    gpus = Inventory.of_this_machine().gpus if plan.backend == "nccl" else ()
    if not gpus:
        return "cpu"
    name = re.sub(r"[^a-z0-9]+", "-", gpus[0].name.lower().replace("nvidia", "")).strip("-")
    return f"{name}-x{plan.gpus or plan.ranks}"


def _no_legacy(plan: Plan) -> str:
    """Why there is no second pass here; "" if there is one."""
    from importlib import metadata

    if plan.backend != "nccl":
        return "There is no NCCL in this run, so no older backend of it."
    version = tuple(int(n) for n in re.findall(r"\d+", metadata.version("torch"))[:2])
    if version < FIRST_NCCL2:
        return f"torch {metadata.version('torch')} has only the older backend: the first pass was with it."
    return ""


def record_folder(course: Path | None, wanted: Path | None) -> Path:
    """Where the record is written: the folder that was asked for, else the course's docs/verified/, else this folder."""
    if wanted is not None:
        return wanted
    usual = None if course is None else course / "docs" / "verified"
    return usual if usual is not None and os.access(usual, os.W_OK) else Path.cwd()


def with_course(plan: Plan, course: Path | None) -> Plan:
    """The plan with the folder that holds the chapters."""
    return replace(plan, course=None if course is None else str(course))
