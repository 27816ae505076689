"""Where the judges are: in threads of `allranks grade`, or in the engines of a cluster. The same call for both.

`Marker.mark` is what is sent to either, by `concurrent.futures.Executor`'s interface, which ipyparallel's views have too.
"""

from __future__ import annotations

import threading
import time

from autograder.judge import Judge, JudgeError

STOPPED = "The marking was stopped."


class Marker:
    """Judges that stay warm, one for each thread that marks."""

    def __init__(self) -> None:
        self._own = threading.local()
        self._judges: list[Judge] = []
        self._over = False

    def mark(self, requests: list[dict], sandbox: str) -> tuple[list[dict], float]:
        """The verdict on each request in turn, and the seconds that all took.

        Raises JudgeError where nothing can be marked here.
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
        """Ends every judge with its sandbox and its ranks, until something is to be marked again."""
        for judge in self._judges:
            judge.close()

    def stop(self) -> None:
        """The same for good, whatever they are at."""
        self._over = True
        self.rest()


HERE = Marker()  # an engine's, from one call to the next
