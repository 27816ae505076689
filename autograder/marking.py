"""Marks requests with judges, in threads of `allranks grade` or in the engines of a cluster.

Both run the same call, `Marker.mark`: threads and ipyparallel's views have the interface of
`concurrent.futures.Executor`.
"""

from __future__ import annotations

import threading
import time

from autograder.judge import Judge, JudgeError

STOPPED = "The marking was stopped."


class Marker:
    """The judges of this process, one for each thread that marks. They stay warm between calls."""

    def __init__(self) -> None:
        self._own = threading.local()
        self._judges: list[Judge] = []
        self._over = False

    def mark(self, requests: list[dict], sandbox: str) -> tuple[list[dict], float]:
        """The verdict on each request, in order, and the seconds that all of them took.

        Raises JudgeError if the judge can't mark.
        """
        began = time.monotonic()
        judge = getattr(self._own, "judge", None)
        if judge is None or judge.sandbox != sandbox:
            judge = self._own.judge = Judge(sandbox)
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


HERE = Marker()  # an engine keeps this one between calls
