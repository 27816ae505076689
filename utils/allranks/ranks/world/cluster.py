"""The engines of a world: a controller, and one engine for each rank.

Starts them, joins them into a group, and ends them.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import os
import queue
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from allranks.base.errors import CourseError
from allranks.base.rundir import RunDirError, run_dir, sweep
from allranks.ranks.engines import gpu_processes, own_network, strangers
from allranks.ranks.engines import rank as on_rank
from allranks.ranks.engines.devices import Placement, own_settings
from allranks.ranks.engines.forkserver.client import ForkServer, ForkServerError
from allranks.ranks.engines.forkserver.process import describe_exit, forking_is_safe

START_TIMEOUT_S = 90.0
IMPORT_TIMEOUT_S = 300.0  # for torch, which ranks of a slow start import from a disk that may be a network's
STALL_S = 0.5
STARTS = 3  # how often ranks are started before other accounts that take a rank's place are too many
BROKEN = re.compile(
    r"Connection (reset|refused|closed)|Broken pipe|Socket closed", re.I
)  # what gloo says of a peer that left
LOOK_S = 0.2  # between two looks at who is connected, while ranks meet
LEAVE_S = 20.0  # how long ranks that were ended may hold a GPU
PEACE_S = 3.0  # how long ranks under CUDA's MPS may take to end by themselves
KEEP_NOTHING = "--IPController.db_class=ipyparallel.controller.dictdb.NoDB"  # else the controller keeps everything that was sent, up to 1 GiB
IMPORTED = "imported torch"
_numbers = itertools.count()


class WorldError(CourseError):
    """The world can't be started or used; the message says what to do."""


# what NCCL and CUDA say when ranks can't start on GPUs that NVML lists, and what that means
_NCCL_SAYS = {
    "nvmlDeviceGet": "\nNCCL asks for every GPU of the machine, also those that this world does not use, and one does not answer: "
    "`nvidia-smi` says which. World(backend='gloo') runs on the CPU.",
    "no kernel image": "\nThis torch has no code for these GPUs: torch.cuda.get_arch_list() says for which it has. "
    "World(backend='gloo') runs on the CPU.",
    "system not yet initialized": "\nCUDA waits for the GPUs' NVSwitch, which `nvidia-smi` does not show: its service must run, in the version of the "
    "driver (systemctl status nvidia-fabricmanager). World(backend='gloo') runs on the CPU.",
    "CUDA unknown error": "\nThe driver's part for CUDA (the module nvidia-uvm) is not there: `nvidia-modprobe -u -c=0` loads it, and a container "
    "needs /dev/nvidia-uvm. World(backend='gloo') runs on the CPU.",
    "Cannot re-initialize CUDA": "\nSomething that Python imports here, such as a plugin of torch, has started CUDA in the process from which ranks are "
    "forked. World(launcher='local') forks none; World(backend='gloo') runs on the CPU.",
}


class NotMetError(WorldError):
    """A rank could not join the group of all."""


class Engines:
    """The processes of one world. `start` makes all of them, or none; `stop` ends all of them.

    `launcher` is "warm" (forked) or "local" (ipyparallel's own, for systems where forking is unsafe).
    """

    ended: ClassVar[set[int]] = set()  # processes on GPUs that this one has ended, and that may still hold memory there
    ours = True  # whether this process starts, publishes and leases them
    # what the message says about the ranks after a call that never returned
    afterwards = "The world has fresh ranks now: run the cells that set up their variables again."

    def __init__(self, placement: Placement, launcher: str, rules: str | None = None) -> None:
        self.placement, self.rules = placement, rules
        self.launcher = launcher
        self.described: list[dict] = []
        self.settings: dict[str, str] | None = None  # NCCL's, with which the ranks were started; None: not known
        self.directory: Path | None = None
        # ipyparallel's, which are untyped
        self._cluster: Any = None
        self._client: Any = None
        self._views: list = []
        self._launchers: dict = {}
        self.changing = threading.RLock()  # held while processes start or end: other threads may call `stop` too
        self._cancelled = False
        self.notes: list[str] = []  # what went wrong at the start, and was mended

    def start(self, progress: Callable[[str], None]) -> None:
        """Starts everything and joins the ranks into one group. Raises WorldError, and then leaves nothing behind."""
        with self.changing:
            self._cancelled = False
            self.notes = []
            told: queue.SimpleQueue = queue.SimpleQueue()
            failure: list[BaseException] = []

            def work() -> None:
                try:
                    self._start_alone(told.put)
                except BaseException as error:
                    failure.append(self._in_words(error))
                    self._stop()
                finally:
                    told.put(None)

            # in a thread: the stop button could otherwise interrupt between a fork and the record of it
            worker = threading.Thread(target=work, name="allranks-start")
            worker.start()
            try:
                while (text := told.get()) is not None:
                    progress(text)
            except BaseException:
                self._cancelled = True
                _uninterrupted(worker.join)
                _uninterrupted(self._stop)
                raise
            worker.join()
            if failure:
                raise failure[0]

    def _in_words(self, error: BaseException) -> BaseException:
        if isinstance(error, (ForkServerError, RunDirError)):
            return WorldError(str(error))
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES):
            where = self.directory.parent if self.directory else "the run directory"
            return WorldError(
                f"The world can't write to {where}: {os.strerror(error.errno)}. Make room there, or set ALLRANKS_RUN_DIR "
                "to another directory."
            )
        log = self._last_words() if isinstance(error, WorldError) else ""
        return WorldError(f"{error} {log}") if log else error

    def _start_alone(self, progress: Callable[[str], None]) -> None:
        """Starts everything; anew if another account took a rank's place or a connection broke, which `notes` says then."""
        for left in reversed(range(STARTS)):
            try:
                self._start(progress)
                return
            except strangers.StrangerError as error:
                self._stop()
                if not left:
                    raise WorldError(
                        f"{error} It happened {STARTS} times, so the ranks were not started. Tell who administers this machine."
                    ) from None
                self.notes.append(f"{error} So the ranks were started anew.")
            except NotMetError as error:
                self._stop()
                # who knocks at a port of gloo and leaves again breaks the start of all, and can't be named any more
                if not left or self.placement.backend != "gloo" or BROKEN.search(str(error)) is None:
                    raise
                self.notes.append("A connection between the ranks broke while they met. So they were started anew.")
            progress(self.notes[-1])

    def _start(self, progress: Callable[[str], None]) -> None:
        ranks = self.placement.ranks
        base = run_dir()
        sweep(base)
        self.directory = base / f"world-{next(_numbers)}-{os.getpid()}"
        try:
            shutil.rmtree(self.directory, ignore_errors=True)
            self.directory.mkdir(mode=0o700)
        except OSError as error:
            raise WorldError(f"The world's directory {self.directory} can't be made: {error.strerror}.") from None
        if self.launcher == "warm":
            progress("importing torch once, for all ranks")
            ForkServer.ensure()
        import ipyparallel  # noqa: F401  # it takes half a second; the fork server imports torch at the same time
        from traitlets.config import Config

        if self.launcher == "warm":
            ForkServer.ensure().wait_warm(IMPORT_TIMEOUT_S)
        self._wait_for_old_ranks(progress)
        progress("starting the controller")
        deadline = time.monotonic() + START_TIMEOUT_S
        apart = self.placement.backend == "gloo" and os.environ.get(own_network.WANTED_ENV) != "0"
        engine_env = {"BaseLauncher": {"environment": {own_network.WANTED_ENV: "1"}}} if apart else {}
        self._start_controller(
            self.launcher == "warm", missed_beats=60, engines=self.launcher, n=ranks, delay=0, config=Config(engine_env)
        )
        engines = self._cluster.engines[self._cluster.start_engines_sync(ranks)]
        self._launchers = dict(engines.ranks if self.launcher == "warm" else engines.launchers)
        engines.announce = False  # a world replaces all its engines at once, hub included
        self._client = self._connect(ranks, deadline, progress)
        self._views = [self._client[i] for i in sorted(self._client.ids)]
        if self.launcher != "warm":
            progress("the ranks import torch")
            self._import()
        progress(f"{ranks} ranks meet ({self.placement.backend})")
        self.described = self._join(time.monotonic() + START_TIMEOUT_S)

    def _wait_for_old_ranks(self, progress: Callable[[str], None]) -> None:
        """Waits until the GPUs are free of ranks that were ended: a GPU for one process only, or a small one, has no room."""
        gpus = sorted({gpu.uuid for gpu in self.placement.gpus if gpu is not None})
        if not gpus or not Engines.ended:
            return
        progress("waiting until the old ranks have left the GPUs")
        left = gpu_processes.wait_until_gone(Engines.ended, gpus, LEAVE_S)
        Engines.ended.clear()
        if left:
            pids = ", ".join(map(str, sorted(left)))
            raise WorldError(
                f"Processes of the old ranks (pid {pids}) still hold a GPU {LEAVE_S:g} s after they were "
                "ended. See `nvidia-smi`; when they are gone, call world.reset()."
            )

    def _start_controller(self, warm: bool, missed_beats: int, **options) -> None:
        """Starts ipyparallel's controller; forks it if `warm` is true. `options` are those of ipyparallel's Cluster.

        The controller forgets an engine that misses `missed_beats` heartbeats; there is one in each second.
        """
        import ipyparallel as ipp

        from allranks.ranks.engines.launchers import CurveControllerLauncher

        arguments = ["--HeartMonitor.period=1000", f"--HeartMonitor.max_heartmonitor_misses={missed_beats}"]
        arguments.append(KEEP_NOTHING)
        if warm:
            arguments.append("--IPController.use_threads=True")
            if "controller_ip" not in options:  # no engine is on another machine
                arguments += ["--IPController.transport=ipc", f"--IPController.ip={self.directory / 'zmq'}"]
        self._cluster = ipp.Cluster(
            controller="warm" if warm else CurveControllerLauncher,
            profile_dir=str(self.directory),
            cluster_id="",
            controller_args=arguments,
            load_profile=False,
            shutdown_atexit=False,  # ours runs instead, and prints nothing
            log_level=logging.ERROR,
            **options,
        )
        self._cluster.start_controller_sync()

    def _connect(self, ranks: int, deadline: float, progress: Callable[[str], None]):
        """A client that knows all engines.

        The hub tells its clients about new engines, but a client that connects at the same moment may miss one. So
        after `STALL_S` seconds without news we connect again: the answer to a new connection lists all engines.
        """
        client = self._cluster.connect_client_sync()
        seen, since = -1, time.monotonic()
        try:
            while len(client.ids) < ranks:
                if len(client.ids) != seen:
                    seen, since = len(client.ids), time.monotonic()
                    progress(f"{seen} of {ranks} ranks are there")
                self._expect_alive(deadline, "registered")
                time.sleep(0.01)
                if time.monotonic() - since > STALL_S:
                    client.close()
                    client = self._cluster.connect_client_sync()
                    since = time.monotonic()
        except BaseException:
            client.close()
            raise
        return client

    def _import(self) -> None:
        """Lets ranks that were not forked import torch, so that the time to meet says something about the network."""
        pending = [view.apply_async(on_rank.import_torch) for view in self._views]
        deadline = time.monotonic() + IMPORT_TIMEOUT_S
        for rank, reply in enumerate(pending):
            while not reply.ready():
                self._expect_alive(deadline, IMPORTED)
                reply.wait(0.05)
            if not reply.successful():
                self._refused(rank, reply)

    def _join(self, deadline: float) -> list[dict]:
        store, env = self.directory / "store", self.placement.env
        self.settings = own_settings()
        join = on_rank.join if self.rules is None else _join_under_rules
        pending = [
            view.apply_async(
                join,
                rank,
                self.placement.ranks,
                self.placement.backend,
                f"file://{store}",
                {
                    **env[rank],
                    on_rank.STACKS_ENV: str(self.stacks(rank)),
                    on_rank.WATCH_ENV: str(self.watch(rank)),
                },
                self.placement.threads,
                sys.path,
            )
            for rank, view in enumerate(self._views)
        ]
        before = frozenset().union(*map(strangers.sockets, self._processes()))
        look = time.monotonic()
        while not all(p.ready() for p in pending):
            if time.monotonic() >= look:  # a rank whose place is taken never joins
                look = time.monotonic() + LOOK_S
                strangers.refuse(before, self._processes)
            for rank, p in enumerate(pending):
                if p.ready() and not p.successful():
                    self._refused(rank, p)
            self._expect_alive(deadline, "joined")
            pending[0].wait(0.02) if not pending[0].ready() else time.sleep(0.01)
        return [p.get() if p.successful() else self._refused(rank, p) for rank, p in enumerate(pending)]

    def _refused(self, rank: int, pending) -> NoReturn:
        try:
            pending.get(0)
        except Exception as error:
            words = getattr(error, "evalue", None) or str(error)
            if getattr(error, "ename", None) == strangers.StrangerError.__name__:
                raise strangers.StrangerError(words) from None
            why = (
                next((why for says, why in _NCCL_SAYS.items() if says in words), "")
                if self.placement.backend == "nccl"
                else ""
            )
            raise NotMetError(f"Rank {rank} could not join the {self.placement.backend} group: {words}{why}") from None
        raise NotMetError(f"Rank {rank} could not join the {self.placement.backend} group.")

    def _expect_alive(self, deadline: float, verb: str) -> None:
        if self._cancelled:
            raise WorldError("The start was stopped.")
        for rank, exit_words in self.dead().items():
            raise WorldError(f"Rank {rank} {exit_words} before it had {verb}.")
        if time.monotonic() > deadline:
            if verb == IMPORTED:
                raise WorldError(
                    f"Not all {self.placement.ranks} ranks had {verb} after {IMPORT_TIMEOUT_S:.0f} s. The first import from a "
                    "network disk is slow, and the next one faster: try again."
                )
            words = f"Not all {self.placement.ranks} ranks had {verb} after {START_TIMEOUT_S:.0f} s."
            if self.placement.backend == "nccl" and verb == "joined":
                words += (
                    " Where GPUs can't reach each other over PCIe, NCCL hangs here: set os.environ['NCCL_P2P_DISABLE'] = '1' and "
                    "try again, or use World(backend='gloo'); `allranks doctor` looks for the cause."
                )
            raise WorldError(words)

    def submit(self, function, per_rank: list[tuple]) -> list:
        """Starts `function(*per_rank[r])` on every rank r; returns ipyparallel's AsyncResults in the order of ranks."""
        return [view.apply_async(function, *args) for view, args in zip(self._views, per_rank, strict=True)]

    def stacks(self, rank: int) -> Path:
        """The file to which rank `rank` writes its stacks."""
        return self.directory / f"stacks-{rank}"

    def watch(self, rank: int) -> Path:
        """The socket on which rank `rank` reports what it is doing."""
        return self.directory / f"rank-{rank}.sock"

    @property
    def outdated(self) -> bool:
        """Whether the notebook has other settings of NCCL now than the ranks were started with."""
        return self.ours and self.placement.backend == "nccl" and self.settings not in (None, own_settings())

    @property
    def pids(self) -> list[int]:
        """The process id of each rank."""
        return [d["pid"] for d in self.described]

    def _processes(self) -> list[int]:
        """The process id of each rank that was started here, before the ranks have said them."""
        children = [
            getattr(launcher, "child", None) or getattr(launcher, "process", None)
            for launcher in self._launchers.values()
        ]
        return [child.pid for child in children if child is not None]

    def dead(self) -> dict[int, str]:
        """The ranks whose process has ended, and how: {2: "was killed by SIGKILL"}. Empty after `stop`."""
        launchers = self._launchers
        if self.launcher == "warm":
            codes = {int(number): launcher.poll() for number, launcher in launchers.items()}
        else:
            ended = {n: launcher for n, launcher in launchers.items() if launcher.state == "after"}
            codes = {int(number): (launcher.stop_data or {}).get("exit_code", 1) for number, launcher in ended.items()}
        if self._launchers is not launchers:  # another thread is ending them now
            return {}
        return {rank: describe_exit(code) for rank, code in sorted(codes.items()) if code is not None}

    def refresh(self) -> bool:
        """Always False; only the ranks of shared worlds are replaced by another process."""
        return False

    def renew(self) -> None:
        """Replaces all processes by new ones, and shows no progress."""
        with self.changing:  # who stops the world meanwhile ends the new ones too
            self.stop()
            self.start(lambda _: None)

    def controller_died(self) -> str | None:
        """How the controller ended, in words; None while it runs."""
        cluster = self._cluster
        controller = cluster.controller if cluster is not None else None
        code = controller.poll() if self.launcher == "warm" and controller is not None else None
        if code is None or self._cluster is not cluster:  # another thread is ending it now
            return None
        return describe_exit(code)

    def stop(self) -> None:
        """Ends every process and removes every file, in any state. A second call does nothing."""
        with self.changing:
            _uninterrupted(self._stop)

    def _let_go(self) -> None:
        """Closes the connection to the engines, but does not end the engines."""
        client, self._client = self._client, None
        self._views, self.described = [], []
        with contextlib.suppress(Exception):
            if client is not None:
                client.close()

    def _stop(self) -> None:
        pids = [d["pid"] for d in self.described if "pid" in d]
        self._let_go()
        cluster, self._cluster = self._cluster, None
        ranks, self._launchers = self._launchers, {}
        if cluster is not None:
            launchers = [*ranks.values(), *filter(None, [cluster.controller])]
            children = [launcher.child for launcher in launchers if getattr(launcher, "child", None)]
            if self.ours and any(self.placement.gpus):
                Engines.ended.update(pids, (r.child.pid for r in ranks.values() if getattr(r, "child", None)))
            if self.placement.mps:
                end_in_peace([*pids, *(r.child.pid for r in ranks.values() if getattr(r, "child", None))])
            for child in children:
                child.kill()
            with contextlib.suppress(Exception):
                cluster.stop_cluster_sync()
            for child in children:
                child.wait(5)
            loop = getattr(cluster, "_thread_loop", None)  # ipyparallel never ends this thread
            if loop is not None:
                loop.add_callback(loop.stop)
        if self.directory is not None:
            shutil.rmtree(self.directory, ignore_errors=True)

    def forget(self) -> None:
        """Makes a forked process forget the engines: they belong to its parent."""
        # keep these objects: deleting them would close the parent's connections
        self._forgotten = self._cluster, self._client, self._views
        self._cluster = self._client = self.directory = None
        self._views, self._launchers, self.described = [], {}, []
        self.changing = threading.RLock()

    def _last_words(self) -> str:
        """The last lines of the engines' logs, for an error that happened while they started."""
        lines: list[str] = []
        for log in sorted((self.directory / "log").glob("*.log")) if self.directory else ():
            lines += [line for line in log.read_text(errors="replace").splitlines() if line.strip()][-2:]
        errors = [line for line in lines if "rror" in line]
        return f"Its log says: {errors[-1]}" if errors else ""


def end_in_peace(pids: Iterable[int]) -> None:
    """Asks ranks to end when their GPU has done its work, and waits a little for that (see `rank.end_in_peace`)."""
    left, deadline = set(pids), time.monotonic() + PEACE_S
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    while (left := {pid for pid in left if gpu_processes.runs(pid)}) and time.monotonic() < deadline:
        time.sleep(0.02)


def _join_under_rules(*arguments: Any) -> dict[str, Any]:
    """Calls `nccl_group.join`. Runs on each rank, so that the notebook need not import torch."""
    from allranks.ranks.world import nccl_group

    return nccl_group.join(*arguments)


def _uninterrupted(function: Callable[[], None]) -> None:
    """Calls `function` to its end, even if the stop button is pressed; raises KeyboardInterrupt afterwards."""
    worker = threading.Thread(target=function, name="allranks-stop")
    try:
        worker.start()
    except RuntimeError:  # while Python ends: 3.12.0 to 3.12.2 start no thread then (CPython issue 113964)
        function()
        return
    interrupt = None
    while worker.is_alive():
        try:
            worker.join()
        except KeyboardInterrupt as error:
            interrupt = error
    if interrupt is not None:
        raise interrupt


def choose_launcher(asked: str | None) -> tuple[str, str | None]:
    """(launcher, note): the launcher to use; the note says why it is the slow one, else it is None."""
    if asked not in (None, "warm", "local"):
        raise WorldError(f"launcher={asked!r} is unknown; it is 'warm' (forked) or 'local' (ipyparallel's own).")
    if asked is None and not forking_is_safe():
        return "local", "Forking is unsafe on this system: ranks start one by one with ipyparallel's own launcher."
    return asked or "warm", None
