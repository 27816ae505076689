"""A world whose engines this notebook starts on other machines, through ipyparallel's Slurm or SSH launcher."""

from __future__ import annotations

import itertools
import os
import shutil
import socket
import time
from collections.abc import Callable

from allranks.ranks.engines import clusters
from allranks.ranks.engines.forkserver.client import ForkServer
from allranks.ranks.world.attached import Attached
from allranks.ranks.world.cluster import START_TIMEOUT_S, Engines, WorldError

LOOK_S = 2.0
_numbers = itertools.count()


class Launched(Attached):
    """A controller on this machine, and engines on others.

    They are started, joined into a group, and ended with the world.
    """

    afterwards = "The engines were ended, so that none goes on running; world.reset() starts new ones."

    def __init__(self, profile: str, ranks: int | None, backend: str | None, launcher: str, **options) -> None:
        clusters.job(profile, ranks, backend=backend, **options)  # refuses a wrong request before anything starts
        super().__init__(f"the {profile} profile", backend)
        self.launcher = launcher
        self._request = {"profile": profile, "ranks": ranks, "backend": backend, **options}

    def _start(self, progress: Callable[[str], None]) -> None:
        # home directories are shared: a process on another machine may have the same pid
        self.directory = clusters.shared_directory() / f"world-{socket.gethostname()}-{next(_numbers)}-{os.getpid()}"
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(mode=0o700)
        job = clusters.job(**self._request, directory=self.directory)
        warm = self.launcher != "local"
        if warm:
            progress("importing torch once, for the controller")
            ForkServer.ensure().wait_warm(START_TIMEOUT_S)
        progress("starting the controller")
        self._start_controller(
            warm,
            missed_beats=20,
            engines=job.launcher,
            n=job.ranks,
            controller_ip="*",
            controller_location=job.address,
            send_engines_connection_env=False,  # keys are sent in files: more people can read an environment
        )
        self._client = self._cluster.connect_client_sync()
        progress(f"asking {job.profile} for {job.ranks} engines")
        engines = self._cluster.engines[self._cluster.start_engines_sync(job.ranks, **job.traits)]
        self._wait(job, engines, progress)
        self._meet(progress, time.monotonic() + START_TIMEOUT_S, job.address)

    def _wait(self, job: clusters.Job, engines, progress: Callable[[str], None]) -> None:
        """Waits until all engines are registered, and shows the queue's state.

        Raises WorldError if the job ends or takes too long.
        """
        deadline, said, looked = time.monotonic() + job.wait_s, "", 0.0
        while (there := len(self._client.ids)) < job.ranks:
            if self._cancelled:
                raise WorldError("The start was stopped.")
            state = None
            if job.profile == "slurm" and time.monotonic() - looked > LOOK_S:
                state, looked = engines.queue_state(), time.monotonic()
            text = f"{there} of {job.ranks} ranks are there" + (f"; job {engines.job_id}: {state}" if state else "")
            if text != said:
                progress(text)
                said = text
            if time.monotonic() > deadline:
                raise WorldError(f"{there} of {job.ranks} engines had registered after {job.wait_s:g} s.{self._log()}")
            if state is not None and state.split()[0] in (
                "FAILED",
                "CANCELLED",
                "TIMEOUT",
                "COMPLETED",
                "NODE_FAIL",
            ):
                raise WorldError(
                    f"Slurm's job {engines.job_id} ended ({state}) before its engines were there.{self._log()}"
                )
            time.sleep(0.1)

    def _log(self) -> str:
        """The last line of the engines' log, for an error."""
        log = self.directory / "engines.log"
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()] if log.exists() else []
        return f" Its log ends: {lines[-1][:300]}" if lines else ""

    def _stop(self) -> None:
        Engines._stop(self)
