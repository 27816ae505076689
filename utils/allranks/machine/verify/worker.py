"""The process that carries out steps, and its parent's end. It ends when a step fails, hangs or dies: the next step gets a new one.

The parent sends (step, plan, seconds); the worker answers with any number of ("figures", {...}) and one
("pass" | "fail" | "skip", reason, figures). Its own output, and what its ranks print, goes to a file.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil

from allranks.machine.verify.machine import our_processes
from allranks.machine.verify.steps import Context, Outcome, Plan, Step, StepFailed, StepSkipped
from allranks.ranks.engines.forkserver.process import describe_exit, die_with_parent
from allranks.ranks.engines.usercode import by_value

START_S = 90
GRACE_S = 3  # beyond a step's limit, for its own sentence
TAIL = 1500  # characters of the output that a failed step keeps


class Worker:
    """The parent's end: one process for many steps."""

    def __init__(self, plan: Plan, log: Path, env: dict[str, str]) -> None:
        self.plan, self.log = plan, log
        ours, theirs = socket.socketpair()
        with theirs, open(log, "ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "allranks.machine.verify.worker", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=env,
                start_new_session=True,  # Ctrl-C is for the parent, which writes the record first
            )
        self._connection = Connection(ours.detach())
        self._ready, self._late = False, time.monotonic() + START_S

    def wait(self, most_s: float) -> None:
        """Waits until the worker can begin, which takes long where Python's files come from a network disk."""
        with contextlib.suppress(StepFailed):  # the step says so
            self._begin(most_s)

    def _begin(self, most_s: float = START_S) -> None:
        """Waits for a worker that is not ready yet, in all START_S seconds from its start."""
        if not self._ready:
            self._expect(min(self._late - time.monotonic(), most_s), "did not start")
            self._ready = True

    def run(self, step: Step, limit_s: float, legacy: bool = False) -> Outcome:
        """Carries out a step. After any result but "pass" and "skip" this worker has ended."""
        import cloudpickle

        began = time.monotonic()
        offset = self.log.stat().st_size
        figures: dict[str, Any] = {}
        try:
            self._begin()
            began = time.monotonic()
            with by_value(step.function):
                payload = cloudpickle.dumps((step, self.plan, limit_s))
            self._connection.send_bytes(payload)
            until = began + limit_s + GRACE_S
            while True:
                kind, *rest = self._expect(until - time.monotonic(), f"did not end within {limit_s:.0f} s")
                if kind != "figures":
                    break
                figures = rest[0]
            reason, figures = rest
        except StepFailed as error:
            kind, reason = "fail", str(error)
        except BaseException:
            self.end()
            raise
        seconds = time.monotonic() - began
        output = ""
        if kind == "fail":
            output = self.log.read_bytes()[offset:].decode(errors="replace")[-TAIL:]
            if left := self.end():
                reason += f" {left} processes of it had to be killed."
        return Outcome(step.phase, step.name, kind, round(seconds, 2), reason, figures, output, legacy)

    def _expect(self, timeout_s: float, otherwise: str) -> tuple[Any, ...]:
        """The worker's next message. Raises StepFailed if none comes in time, or if the worker has ended."""
        import cloudpickle

        try:
            if not self._connection.poll(max(0.0, timeout_s)):
                raise StepFailed(f"The step {otherwise}.")
            message: tuple[Any, ...] = cloudpickle.loads(self._connection.recv_bytes())
            return message
        except (EOFError, ConnectionError):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(5)
            raise StepFailed(f"The process of the step {describe_exit(self.process.poll())}.") from None

    def end(self, patience_s: float = 10) -> int:
        """Ends the worker and its ranks; how many of them outlasted `patience_s` seconds and were killed one by one."""
        self._connection.close()
        try:
            self.process.wait(2 if self._ready and self.process.poll() is None else 0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        until = time.monotonic() + patience_s
        while (left := _left()) and time.monotonic() < until:
            time.sleep(0.05)
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        return len(left)


def _left() -> list[psutil.Process]:
    """What still runs of this run: neither this process nor the fork server that it started."""
    found = []
    for process in our_processes():
        with contextlib.suppress(psutil.Error):
            server = "allranks.ranks.engines.forkserver" in process.cmdline() and process.ppid() == os.getpid()
            if process.pid != os.getpid() and not server and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def main(descriptor: int) -> None:
    """The worker: carries out steps until the parent closes the connection."""
    import cloudpickle

    die_with_parent()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    connection = Connection(descriptor)

    def tell(*message: Any) -> None:
        connection.send_bytes(cloudpickle.dumps(message))

    tell("ready")
    while True:
        try:
            step, plan, limit_s = cloudpickle.loads(connection.recv_bytes())
        except EOFError:
            return
        context = Context(plan, limit_s, told=lambda figures: tell("figures", figures))
        try:
            context.figures.update(step.function(context) or {})
            tell("pass", "", context.figures)
        except StepSkipped as reason:
            tell("skip", str(reason), context.figures)
        except StepFailed as reason:
            tell("fail", str(reason), context.figures)
        except Exception as error:
            tell("fail", f"{type(error).__name__}: {error}", context.figures)


if __name__ == "__main__":
    main(int(sys.argv[1]))
