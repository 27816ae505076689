"""The judge: a separate process that marks exercises, one after the other.

`autograder.trusted` starts it and talks to it by JSON, one object in each line of stdin and stdout. The judge has the
inputs, the right answers and the router, but no access to the gradebook. It gets a submission as text; that code runs
only in the ranks, in the sandbox.

    {"exercise": "ring_all_reduce", "cells": ["import torch", ...], "filename": "all_reduce.ipynb", "secret": 7,
     "wall_s": 60}
    (and "variant": {"key": ..., "student": ...} in a course that gives each student a variant)
    {"verdict": {"exercise": ..., "passed": ..., "score": ..., "cases": [...], "reason": ..., "svg": ..., "incidents": [...]}}

All exercises of a submission run on the same ranks; {"release": true} ends these ranks, and its answer is {}.

An incident is {"kind", "what"}, with a kind of `rows.KINDS`: something that a teacher should look at.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from allranks.base.errors import CourseError
from allranks.ranks.engines.forkserver.process import die_with_parent, preload

COURSE = Path(__file__).resolve().parent.parent
MEMORY_BYTES = 8 << 30
MAX_REPLY_BYTES = 8 << 20
MAX_PICTURE_CHARACTERS = 200_000
MAX_DRAWN_EVENTS = 2000
GRACE_S = 20.0  # the judge keeps the time limit itself; a judge that hangs is killed so many seconds after it
# the incident for each kind of failure that the wire reports: its kind, and words for the teacher
INCIDENTS = {
    "cpu limit": ("timed out", "used up its processor time"),
    "wall limit": ("timed out", "did not end in time"),
    "memory": ("crashed", "used more memory than a rank may use"),
    "killed": ("crashed", "a rank was killed, or sent data that the router can't read"),
    "exited": ("crashed", "ended the process of its rank"),
    "output": ("crashed", "printed too much"),
    "forked": ("suspicious", "tried to start other processes"),
}


class JudgeError(CourseError, RuntimeError):
    """The judge can't mark. The cause is our code or the machine, never the submission."""


class NoJudge(JudgeError):
    """No judge can start; stop grading."""


class OutOfTime(CourseError):
    """The judge did not finish in time. The judge and all its ranks were killed."""


class Died(CourseError):
    """The judge process ended while it marked; the message says how."""


# ------------------------------------------------------------------------------------------------- the grader's side


class Judge:
    """The grader's connection to a judge process. `sandbox` is "bubblewrap" or "none".

    With a `core`, the judge and its ranks run on this one: they take turns anyway, and a message between two cores costs
    more of both.
    """

    _shared: Judge | None = None

    def __init__(self, sandbox: str = "bubblewrap", core: int | None = None) -> None:
        self.sandbox, self.core = sandbox, core
        self._process: subprocess.Popen | None = None
        self._reading = threading.RLock()
        self._pending = b""

    @classmethod
    def shared(cls, sandbox: str) -> Judge:
        """The judge of this process. One judge marks all submissions, so that torch and the sandbox start only once."""
        if cls._shared is None or cls._shared.sandbox != sandbox:
            if cls._shared is not None:
                cls._shared.close()
            cls._shared = cls(sandbox)
            atexit.register(cls._shared.close)
        return cls._shared

    @classmethod
    def release_shared(cls) -> None:
        """Calls `release` on the shared judge, if there is one."""
        if cls._shared is not None:
            cls._shared.release()

    def mark(self, request: dict, limit_s: float) -> dict:
        """The verdict on a request. The time limit begins when the judge is warm.

        Raises OutOfTime, Died or JudgeError.
        """
        self.warm()
        reply = self._ask(request, limit_s)
        if "error" in reply:
            self.close()  # its state may be damaged: the next submission gets a new judge
            raise JudgeError(reply["error"])
        return reply["verdict"]

    def warm(self) -> None:
        """Starts the judge and its sandbox, if they don't run. Raises NoJudge."""
        if self._process is None or self._process.poll() is not None:
            self._start()

    def verdict(self, request: dict) -> dict:
        """Like `mark`, with the time limit of the request. A submission that blocks or crashes the judge gets 0 points.

        Raises JudgeError.
        """
        try:
            return self.mark(request, request["wall_s"] + GRACE_S)
        except OutOfTime:
            incident = {"kind": "timed out", "what": "the judge hung and was killed"}
            reason = f"The marking was stopped after {request['wall_s']:g} s."
        except Died as how:
            incident = {"kind": "crashed", "what": f"the marking broke down: {how}"}
            reason = f"The marking broke down ({how}). Ask your teacher to look at it."
        empty = {"exercise": request["exercise"], "passed": False, "score": 0.0, "cases": []}
        return {**empty, "mistake": incident["what"].partition(":")[0], "reason": reason, "incidents": [incident]}

    def release(self) -> None:
        """Ends the ranks of the marked submission, so that its code can't go on while the next one is marked."""
        if self._process is None or self._process.poll() is not None:
            return
        try:
            self._ask({"release": True}, GRACE_S)
        except (OutOfTime, Died):
            self.close()

    def close(self) -> None:
        """Ends the judge, its sandbox and every rank.

        Any thread may call it; a thread that waits for an answer gets Died.
        """
        process, self._process, self._pending = self._process, None, b""
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            with self._reading:  # a thread that waits for a descriptor never wakes if it is closed
                with contextlib.suppress(OSError):  # close() also flushes; that fails if the judge has ended
                    process.stdin.close()
                process.stdout.close()

    def _start(self) -> None:
        self.close()
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "NBGRADER"))}
        environment["PYTHONPATH"] = str(COURSE)
        # Its stderr is the grader's stderr, so that the instructor can read its errors.
        process = self._process = subprocess.Popen(
            [sys.executable, "-m", "autograder.judge", self.sandbox, *([] if self.core is None else [str(self.core)])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd="/",
            env=environment,
            start_new_session=True,
        )
        try:
            first = self._reply(process, 120)
        except (OutOfTime, Died) as error:
            raise NoJudge(f"The judge could not be started: {error}.") from None
        if "error" in first:
            self.close()  # wait for its end, or the next request would seem to have caused it
            raise NoJudge(first["error"])

    def _ask(self, message: dict, limit_s: float) -> dict:
        process = self._process
        if process is None:
            raise Died("the judge was stopped")
        try:
            process.stdin.write(json.dumps(message).encode() + b"\n")
            process.stdin.flush()
        except (OSError, ValueError):  # it has ended, or was closed
            raise self._died(process) from None
        return self._reply(process, limit_s)

    def _reply(self, process: subprocess.Popen, limit_s: float) -> dict:
        deadline = time.monotonic() + limit_s
        with self._reading, selectors.DefaultSelector() as selector:
            if process.stdout.closed:
                raise Died("the judge was stopped")
            selector.register(process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._pending:
                left = deadline - time.monotonic()
                if left <= 0:
                    self.close()
                    raise OutOfTime(f"it took longer than {limit_s:g} s")
                if not selector.select(min(left, 1.0)):
                    if self._process is not process:  # it was closed, but a child of it still holds the pipe open
                        raise Died("the judge was stopped")
                    continue
                part = os.read(process.stdout.fileno(), 65536)
                if not part or len(self._pending) > MAX_REPLY_BYTES:
                    raise self._died(process)
                self._pending += part
            line, _, self._pending = self._pending.partition(b"\n")
        return json.loads(line)

    def _died(self, process: subprocess.Popen) -> Died:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
        code = process.poll()
        self.close()
        how = (
            f"was killed by {signal.Signals(-code).name}"
            if code is not None and code < 0
            else f"ended with code {code}"
        )
        return Died(f"the judge {how}")


# ------------------------------------------------------------------------------------------------- the judge's side


def serve(sandbox_kind: str, core: str | None = None) -> None:
    """Reads requests from stdin until it closes, and writes a verdict on each."""
    if core is not None:
        with contextlib.suppress(OSError):  # the core went to somebody else meanwhile: any one will do
            os.sched_setaffinity(0, {int(core)})
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # prints go to stderr: on stdout they would be read as replies

    def reply(message: dict) -> None:
        out.write(json.dumps(message).encode() + b"\n")

    die_with_parent()
    _limit_memory()
    try:
        spawner = _spawner(sandbox_kind)
    except JudgeError as error:
        reply({"error": str(error)})
        return
    reply({"ready": True})
    ranks = _SubmissionRanks(spawner)
    for line in sys.stdin.buffer:
        request = json.loads(line)
        if "release" in request:
            ranks.release()
            reply({})
            continue
        try:
            reply({"verdict": judge(request, ranks)})
        except Exception as error:
            import traceback

            traceback.print_exc()
            reply({"error": f"The judge failed on {request.get('exercise')}: {type(error).__name__}: {error}"})


def judge(request: dict, ranks: _SubmissionRanks) -> dict:
    """The verdict on one exercise of a submission, as plain data."""
    from allranks import exercises
    from allranks.judge import judging, variants
    from allranks.judge.causes import UNREADABLE
    from allranks.judge.source import SourceError, read_source

    from autograder.suspect import oddities

    name = request["exercise"]
    exercise = exercises.get(name)
    if "variant" in request:
        exercise = variants.of_student(exercise, request["variant"]["key"], request["variant"]["student"])
    cells = [{"cell_type": "code", "source": source} for source in request["cells"]]
    try:
        source = read_source({"cells": cells}, name, request["filename"])
    except (SourceError, RecursionError) as error:
        reason = str(error) if isinstance(error, SourceError) else "The code is nested too deeply to be read."
        empty = {"exercise": name, "passed": False, "score": 0.0, "cases": [], "mistake": UNREADABLE}
        return {**empty, "reason": reason, "incidents": []}
    pool, ends = ranks.to(request)
    verdict = judging.judge(exercise, source, secret=_secret(request), pool=pool, wall_s=request["wall_s"])
    incidents = [dict(zip(("kind", "what"), INCIDENTS[end], strict=True)) for end in sorted(ends & set(INCIDENTS))]
    incidents += [{"kind": "suspicious", "what": what} for what in oddities(source)]
    return verdict.card() | {"svg": _picture(verdict), "incidents": incidents}


def _secret(request: dict) -> int:
    """The seed of the inputs. Each exercise and each answer gets other inputs, so one run shows nothing about another."""
    words = json.dumps([request["secret"], request["exercise"], request["cells"]])
    return int.from_bytes(hashlib.sha256(words.encode()).digest()[:16], "big")


class _SubmissionRanks:
    """The ranks that a submission runs on. No rank ever runs the code of two submissions."""

    def __init__(self, spawner) -> None:
        self._spawner = spawner
        self._whose: list[str] | None = None
        self._pool: Any = None

    def to(self, request: dict):
        """A pool for this submission, and a set to which the pool adds the wire's names of its failures."""
        from allranks.judge.judging import MAX_RANKS
        from allranks.ranks.wire import Ranks

        class Watched(Ranks):
            ends: set[str]

            def run(self, *args, **options):
                outcome = super().run(*args, **options)
                if outcome.failure is not None:
                    self.ends.add(outcome.failure.kind.value)
                return outcome

        if self._pool is None or self._whose != request["cells"]:
            self.release()
            self._pool, self._whose = Watched(MAX_RANKS, spawner=self._spawner), request["cells"]
        self._pool.ends = set()
        return self._pool, self._pool.ends

    def release(self) -> None:
        """Ends the ranks."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()


def _picture(verdict) -> str | None:
    """A picture of a wrong answer, as SVG: the cycle of waits, or the messages of one case. It shows no input."""
    if verdict.svg or verdict.passed or verdict.trace is None or not 0 < len(verdict.trace) <= MAX_DRAWN_EVENTS:
        return verdict.svg
    from allranks.show.player.animation import animate
    from allranks.show.player.still import still

    try:
        picture = still([animate(verdict.trace)])
    except Exception:  # some traces can't be drawn; the words of the verdict are enough
        return None
    return picture if len(picture) <= MAX_PICTURE_CHARACTERS else None


def _limit_memory() -> None:
    """Limits this process's memory, because the ranks send data to it."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(hard, MEMORY_BYTES)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _spawner(kind: str):
    if kind == "none":
        return None
    from autograder.sandbox import Sandbox, SandboxError

    try:
        sandbox = Sandbox()
        preload("torch.distributed", "allranks.judge.judging", "autograder.suspect")  # while the sandbox warms
        sandbox.wait_warm()
    except SandboxError as error:
        raise JudgeError(
            f"{error} Nothing was graded. (To grade without a sandbox, on a machine that holds nothing of value and "
            'where you trust every submission, set `c.TrustedStep.sandbox = "none"`.)'
        ) from None
    return sandbox


if __name__ == "__main__":
    serve(*sys.argv[1:])
