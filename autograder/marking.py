"""Marks requests with judges, in threads of `allranks grade` or in the engines of a cluster.

Both run the same call, `Marker.mark`: threads and ipyparallel's views have the interface of
`concurrent.futures.Executor`.
"""

from __future__ import annotations

import os
import random
import threading
import time

from autograder.judge import Judge, JudgeError

STOPPED = "The marking was stopped."


class Marker:
    """The judges of this process, one for each thread that marks. They stay warm between calls.

    With `pinned` each judge gets a core of its own, or shares it if there are more judges than cores.
    """

    def __init__(self, pinned: bool = False) -> None:
        self._cores = usable() if pinned else []
        self._own = threading.local()
        self._judges: list[Judge] = []
        self._making = threading.Lock()
        self._over = False

    def mark(self, requests: list[dict], sandbox: str) -> tuple[list[dict], float]:
        """The verdict on each request, in order, and the seconds that all of them took.

        Raises JudgeError if the judge can't mark.
        """
        began = time.monotonic()
        judge = getattr(self._own, "judge", None)
        if judge is None or judge.sandbox != sandbox:
            with self._making:
                core = self._cores[len(self._judges) % len(self._cores)] if self._cores else None
                judge = self._own.judge = Judge(sandbox, core)
                self._judges.append(judge)
        if self._over:
            raise JudgeError(STOPPED)
        judge.warm()
        verdicts = []
        for request in requests:
            if self._over:
                raise JudgeError(STOPPED)
            verdicts.append(judge.verdict(request))
        judge.release()
        return verdicts, time.monotonic() - began

    def rest(self) -> None:
        """Ends every judge, its sandbox and its ranks. The next call of `mark` starts them again."""
        for judge in self._judges:
            judge.close()

    def stop(self) -> None:
        """Ends every judge at once; later calls of `mark` raise JudgeError."""
        self._over = True
        self.rest()


def usable() -> list[int]:
    """The cores that this process may use, in an order drawn at random: another `allranks grade` may run beside this one.

    None on a system without `sched_setaffinity`.
    """
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return random.sample(cores, len(cores))


HERE = Marker()  # an engine keeps this one between calls
