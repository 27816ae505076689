"""`World`: start ranks, run on them, and end them."""

from __future__ import annotations

import atexit
import contextlib
import html
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from allranks.base.errors import CourseError, counted
from allranks.ranks.engines import gpu_processes
from allranks.ranks.engines import rank as on_rank
from allranks.ranks.engines.devices import Inventory, Placement, check_request
from allranks.ranks.engines.leases import Lease
from allranks.ranks.engines.served_leases import ledger_of
from allranks.ranks.engines.usercode import by_value
from allranks.ranks.world import live
from allranks.ranks.world.attached import Attached
from allranks.ranks.world.call import Call, breaks_group
from allranks.ranks.world.cluster import Engines, WorldError, choose_launcher
from allranks.ranks.world.failures import RanksError
from allranks.ranks.world.faults import InjectedFault
from allranks.ranks.world.idle import Idle
from allranks.ranks.world.request import RULES, Request, check_seconds
from allranks.ranks.world.screen import Line
from allranks.ranks.world.shared import Borrowed, Keeper, Shared
from allranks.theory.trace import Trace

_current: World | None = None
_guard = threading.RLock()


def current() -> World:
    """The world of this notebook. Raises WorldError if none is running."""
    if _current is None or not _current.running:
        why = _current.why_stopped if _current is not None else None
        raise WorldError(why or f"No world is running. Start one first:  {START}")
    return _current


START = "from allranks import World; world = World(ranks=4)"


class World:
    """Real ranks in one torch.distributed group: one on each GPU with NCCL, or processes on the CPU with gloo.

        with World(ranks=4) as world:
            world.run(step)          # what each rank returned, in the order of ranks

    A process has one world. `World(...)` returns the running world if it is what the arguments ask for; otherwise
    it ends that world and starts a new one. The ranks end with the process that started them.

    - `ranks`: the world size; without it, one rank for each GPU, or 4 on the CPU.
    - `backend`: "nccl" or "gloo"; without it, nccl if there are enough GPUs, else gloo.
    - `deadline`: how many seconds a call may take. Then it ends with a report of what each rank is doing.
    - `idle_minutes`: the world stops after so many minutes without use; it warns before.
    - `memory_bytes`: how much memory one rank on the CPU may use, so that a mistake gives an error and does not fill the
      machine; without it, the ranks together may use 80 % of the memory.
    - `gpus`: how many GPUs to use; with fewer GPUs than ranks, ranks share them (NCCL 2.30).
    - `shared`: take only a part of each GPU's memory, so that other people can use the rest. Without it, nobody else
      can use the GPUs for 20 minutes. After that, the world stops between two calls as soon as somebody waits for GPUs.
    - `profile`: "slurm" or "ssh" starts the ranks on other machines, on `nodes` of them, with `settings` as in
      docs/clusters.md.
    - `rules`: "nccl" runs the ranks on the CPU under NCCL's rules: what NCCL refuses raises NcclRuleError, calls return
      before they are done, and a program that would hang on NCCL hangs here (docs/nccl_rules.md). For a whole notebook, set
      the environment variable ALLRANKS_RULES=nccl.
    - `name`: all notebooks of this user that ask for this name share the world. The first one owns it, and they take
      turns.

    Raises WorldError or DeviceError, whose message says what to do, and then leaves no process behind.

    Example (needs ranks):
        >>> world = World(ranks=4)
        >>> world.run(dist.get_rank)
        [0, 1, 2, 3]
    """

    _engines: Engines
    _idle: Idle

    def __new__(cls, *args, **options) -> World:
        """The running world if it is what the arguments ask for; otherwise a new one."""
        wanted = Request.of(args, options)
        with _guard:
            if _current is not None and _current.running and wanted.cluster is None:
                check_request(wanted.ranks, wanted.backend, wanted.gpus)
                if _current._is(wanted):
                    return _current
                if wanted.profile is None:  # refuses a wrong request before the running world ends
                    wanted.place()
                if wanted.name is not None:
                    Shared(wanted.name)  # for the same reason
            return super().__new__(cls)

    def __init__(self, *args, **options) -> None:
        global _current
        wanted = Request.of(args, options)
        launcher, slow = choose_launcher(wanted.launcher)
        with _guard:
            self.deadline = wanted.deadline
            if self is _current and self.running:
                self._idle.limit_s = 60 * wanted.idle_minutes
                return
            elsewhere = _elsewhere(wanted, launcher)
            if _current is not None:
                _current.stop()
            self.profile, self.rules, self.name = wanted.profile, wanted.rules, wanted.name
            self._shared = Shared(wanted.name) if wanted.name is not None else None
            self._keeper: Keeper | None = None
            self._busy = threading.Lock()
            self._fault: InjectedFault | None = None
            self._undisturbed = False
            self.why_stopped: str | None = None
            self._line: Line | None = None
            self._lease: Lease | None = None
            self._gpus_kept = contextlib.ExitStack()
            self._engines = elsewhere or self._engines_here(wanted, launcher)
            self._idle = Idle(60 * wanted.idle_minutes, self._stop_idle, self._say_idle, self._look)
            self._told_dead: dict[int, str] = {}
            self._slow = slow
            _current = self  # set before the ranks start: after an interrupt, the next World ends those that started
            self._start()

    def _engines_here(self, wanted: Request, launcher: str) -> Engines:
        """The engines of a world on this machine, not started yet: of one's own, or those of the name's owner."""
        if wanted.cluster is not None:
            return Attached(wanted.cluster, wanted.backend)
        # what the owner of the name published; None if there is no name, or if this process owns it
        told = self._shared.wait_for_notice() if self._shared is not None and not self._shared.claim() else None
        if told is not None:
            have = len(told["described"])
            if wanted.ranks not in (None, have):
                raise WorldError(
                    f"The shared world {self.name!r} has {have} ranks, not {wanted.ranks}; World(name={self.name!r}) joins it."
                )
            wanted = replace(wanted, ranks=have, backend=told["backend"])
        try:
            placement = wanted.place()
        except BaseException:
            if self._shared is not None:
                self._shared.give_up()  # else no process could use the name until this one ends
            raise
        return Engines(placement, launcher, self.rules) if told is None else Borrowed(placement, self._shared)

    def _is(self, wanted: Request) -> bool:
        """Whether this world is what a request asks for."""
        placed = self._placement
        fits = wanted.ranks in (None, self.ranks) and wanted.asked_backend in (None, self.backend)
        fits = fits and wanted.gpus in (None, placed.gpu_count) and wanted.rules == self.rules
        fits = fits and (not wanted.shared or placed.shares is not None)
        fits = fits and wanted.name in (None, self.name) and wanted.profile in (None, self.profile)
        return fits and not self._engines.outdated

    @classmethod
    def attach(cls, file: str | Path, **options) -> World:
        """A world on engines of ipyparallel that run already, on this or other machines. Each engine becomes one rank.

        `file` is ipyparallel's cluster file, or the controller's connection file for clients. `stop` leaves the engines
        running, because they belong to their cluster. `backend`, `deadline` and `idle_minutes` are as in World.
        """
        return cls(cluster=file, **options)

    @property
    def _placement(self) -> Placement:
        return self._engines.placement

    def _start(self) -> None:
        began = time.monotonic()
        self._line = line = Line(counted(self.ranks, "rank") if self.ranks else "ranks")
        try:
            if self.backend == "nccl" and self._lease is None and self._engines.ours:
                self._lease = self._wait_for_gpus(line)
                self._engines.placement = self._placement.moved_to(self._lease.gpus)
                self._gpus_kept.callback(gpu_processes.keep_initialized({gpu.physical for gpu in self._lease.gpus}))
            self._engines.start(line.say)
            if self._shared is not None and self._engines.ours:
                self._shared.publish(self._engines)
                self._keeper = Keeper(self._shared, self._engines, self._busy)
        except BaseException:
            line.clear()
            self._engines.stop()
            self._give_back()
            self.why_stopped = f"The world's ranks did not start. Try again:  {START}"
            raise
        seconds = time.monotonic() - began
        backend = self.backend if self.rules is None else f"{self.backend} under {RULES[self.rules]} rules"
        self._began_words = f"ready in {seconds:.1f} s ({backend})."
        line.say(self._ready)
        self.why_stopped = None
        self._idle.start()

    @property
    def _ready(self) -> str:
        """What the world's line says while the ranks are there."""
        notes = [note for note in (self._slow, self._placement.note) if note]
        if self._engines.settings and self.backend == "nccl":
            said = ", ".join(f"{name}={value}" for name, value in self._engines.settings.items())
            whose = "your" if self._engines.ours else "the owner's"
            notes.append(f"NCCL runs with {whose} settings: {said}.")
        return " ".join([self._began_words, *notes, *self._engines.notes])

    def _wait_for_gpus(self, line: Line) -> Lease:
        def told(place: int, seconds: float | None) -> None:
            estimate = "" if seconds is None else f", about {max(1, round(seconds / 60))} min at most"
            line.say(f"waiting for {self._placement.gpu_count} free GPUs: place {place} in the queue{estimate}")

        ledger = ledger_of(Inventory.of_this_machine().gpus)
        return ledger.acquire(self._placement.gpu_count, told=told, shares=self._placement.shares)

    def _give_back(self) -> None:
        lease, self._lease = self._lease, None
        self._gpus_kept.close()
        if lease is not None:
            lease.release()
        if self._keeper is not None:
            self._keeper.end()
        if self._shared is not None:
            self._shared.give_up()

    def _look(self) -> bool:
        """Shows which ranks have ended between calls; returns whether the GPUs must be given back.

        Called every second.
        """
        if self._shared is not None and self._shared.used():  # by another notebook
            self._idle.touch()
        dead = {} if self._busy.locked() else self._engines.dead()
        if dead and dead != self._told_dead:
            words = "; ".join(f"rank {rank} {how}" for rank, how in dead.items())
            self._line.say(f"{words}; the next call gets fresh ranks.")
        self._told_dead = dead
        return self._slice_is_over()

    def _slice_is_over(self) -> bool:
        return self._lease is not None and self._lease.over

    def _lost(self) -> str:
        return f"lost its GPUs: {self._lease.lost}"

    def _stop_idle(self) -> bool:
        if not self._busy.acquire(blocking=False):
            return False
        try:
            if self._shared is not None and self._shared.taken():  # by another notebook, for a long call
                return False
            if self._lease is not None and self._lease.lost:
                why = self._lost()
            elif self._slice_is_over():
                why = "gave its GPUs back: its time was over and others wait"
            else:
                why = f"stopped itself after {self._idle.limit_s / 60:g} minutes without use"
            self.why_stopped = f"The world {why}. Start it again:  {START}"
            self._engines.stop()
            self._give_back()
            self._line.say(f"{why}.")
        finally:
            self._busy.release()
        return True

    def _say_idle(self, left_s: float | None) -> None:
        if left_s is None:
            self._line.say(self._ready)
        else:
            self._line.say(f"{self._ready} Not used for a while: stops itself in {left_s / 60:.0f} min.")

    @property
    def ranks(self) -> int:
        """The world size."""
        return self._placement.ranks

    @property
    def backend(self) -> str:
        """ "nccl" or "gloo"."""
        return self._placement.backend

    @property
    def running(self) -> bool:
        """Whether the ranks are there."""
        return bool(self._engines.described)

    @property
    def pids(self) -> list[int]:
        """The process id of each rank."""
        return self._engines.pids

    def run(self, fn: Callable, *args, deadline: float | None = None, **kwargs) -> list:
        """Calls `fn(*args, **kwargs)` on every rank at once; returns the list of what each rank returned.

        `fn` is plain torch.distributed code: the group exists already, and `dist.get_rank()` gives the rank. What the
        ranks print is shown by rank. Raises RanksError if ranks raised an error; RanksStuck after the deadline, or
        if ranks wait for one that failed; RankDied if a process ended. After the last two, the world has new
        ranks.

        Example (needs ranks):
            >>> def total():
            ...     x = torch.tensor([float(dist.get_rank())])
            ...     dist.all_reduce(x)
            ...     return x.item()
            >>> world.run(total)
            [6.0, 6.0, 6.0, 6.0]
        """
        return self._call(fn, (fn, args, kwargs), deadline)

    def trace(self, fn: Callable, *args, deadline: float | None = None, **kwargs) -> tuple[list, Trace]:
        """Calls `fn` as `run` does, and records what the ranks send; returns (results, trace of kind "live").

        The trace holds each send, receive and collective with its bytes, its line of code and its times, by this
        machine's clock or, on GPUs, on the rank's stream. `Player(trace)` plays it.

        Example (needs ranks):
            >>> results, trace = world.trace(lambda: dist.all_reduce(torch.ones(1024)))
            >>> trace.kind, trace.ranks
            ('live', 4)
        """
        parts = self._call(fn, (live.record, (fn, args, kwargs), {}), deadline)
        return [result for result, _ in parts], live.join([part for _, part in parts])

    def _call(self, fn: Callable, call: tuple, deadline: float | None) -> list:
        import cloudpickle

        if not callable(fn):
            raise WorldError(f"world.run takes a function that every rank calls; it got {type(fn).__name__}.")
        try:
            with by_value(fn):
                payload = cloudpickle.dumps(call)
        except CourseError:
            raise
        except Exception as error:
            raise WorldError(f"This can't be sent to the ranks: {error}") from None
        return self._everywhere(on_rank.call, (payload,), deadline)

    def cell(self, source: str, deadline: float | None = None) -> None:
        """Runs the source of a `%%ranks` cell in the namespace of every rank. Raises what `run` raises."""
        self._everywhere(on_rank.cell, (source,), deadline, source)

    def __getitem__(self, name: str) -> list:
        """The value on each rank of a variable that `%%ranks` cells set: `world["loss"]`."""
        if not isinstance(name, str) or not name.isidentifier():
            raise WorldError(
                f"world[{name!r}]: ask for a variable of the ranks by its name, for example world['loss']."
            )
        return self._everywhere(on_rank.pull, (name,), None)

    def reset(self) -> None:
        """Replaces all ranks by new ones, in any state. The notebook's own variables stay."""
        if self._shared is not None and self.running:
            # the keeper also starts new ranks when it sees ranks end; this lock prevents that
            held = self._busy.acquire(blocking=False)
            try:
                self._renew()
            finally:
                if held:
                    self._busy.release()
            return
        if self._shared is not None and self._engines.ours and not self._shared.claim():
            raise WorldError(
                f"Another notebook owns the world {self.name!r} now; join it with World(name={self.name!r})."
            )
        self._engines.stop()
        if self._lease is not None and self._lease.lost:
            self._lease.release()
            self._lease = None
        self._start()

    def _renew(self) -> None:
        if self._lease is not None and self._lease.lost:  # new ranks could not open the GPUs
            why = self._lost()
            self.why_stopped = f"The world {why}. Start it again:  {START}"
            self._idle.end()
            self._engines.stop()
            self._give_back()
            self._line.say(f"{why}.")
            return
        self._engines.renew()
        self._line.say(self._ready)
        if self._shared is not None and self._engines.ours:
            self._shared.publish(self._engines)

    def stop(self) -> None:
        """Ends all ranks; those of a shared world only if this notebook owns it. A second call does nothing."""
        self._idle.end()
        if self._keeper is not None:
            self._keeper.end()
        self._engines.stop()
        self._give_back()

    def __enter__(self) -> World:
        return self

    def __exit__(self, *exc_info) -> None:
        self.stop()

    def __reduce__(self):
        raise WorldError(
            "A World can't be sent to its own ranks: use `world` in the notebook, and `dist` on the ranks."
        )

    def fault(self, rank: int, kind: str, *, after_s: float = 0.2, delay_s: float = 0.1) -> None:
        """Breaks something on purpose in the next call only, to show what a real training job sees.

        `kind` is "kill" (SIGKILL after `after_s` seconds), "pause" (SIGSTOP after `after_s` seconds), "slow" (each
        operation of the rank begins `delay_s` seconds late) or "drop_message" (the rank's first send is not sent).
        Raises WorldError.
        """
        if kind == "kill" and self._placement.mps and self._placement.shares is not None:
            raise WorldError(
                "This world shares its GPUs through CUDA's MPS, where a rank that is killed can end other people's ranks too. "
                "Take kind='pause', or a world without shared=."
            )
        self._fault = InjectedFault.checked(rank, kind, after_s, delay_s, self.ranks)

    @contextlib.contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Within it a long call shows no picture of what the ranks do: to ask them takes time that a measurement would see.

        Example (needs ranks):
            >>> with world.undisturbed():
            ...     done = world.run(lambda: dist.all_reduce(torch.ones(1024)))
        """
        self._undisturbed = True
        try:
            yield
        finally:
            self._undisturbed = False

    def _turn(self, deadline: float):
        """A context in which it is our turn to use a shared world; other worlds need no turns."""
        if self._shared is None:
            return contextlib.nullcontext()
        return self._shared.turn(
            deadline, lambda: self._line.say(f"{self._ready} Waiting for another notebook's call.")
        )

    def _call_now(
        self, function, args: tuple, deadline: float, source: str | None, fault: InjectedFault | None
    ) -> list:
        call = Call(self._engines, function, args, deadline, source, fault, self._undisturbed)
        try:
            return call.results()
        except RanksError as error:
            if breaks_group(error.errors) and not call.gone:
                self._renew()
            raise
        except BaseException:  # a rank hangs, has died, or was interrupted: these ranks can't be used any more
            if not call.gone:
                self._renew()
            raise

    def _takes_ranks(self) -> bool:
        """Takes the ranks for a call; returns False if another call has them."""
        if self._busy.acquire(blocking=False):
            return True
        if self._keeper is None:
            return False
        self._keeper.wait()  # it has them while it starts new ones: that is nobody's call
        return self._busy.acquire(blocking=False)

    def _everywhere(self, function, args: tuple, deadline: float | None, source: str | None = None) -> list:
        deadline = self.deadline if deadline is None else deadline
        check_seconds("deadline", deadline, "seconds")
        if not self.running:
            raise WorldError(self.why_stopped or f"This world was stopped. Start it again:  {START}")
        if not self._takes_ranks():
            raise WorldError("The ranks are busy with another cell; collectives of two cells must not mix.")
        fault, self._fault = self._fault, None
        if fault is not None and not fault.is_signal:
            function, args = live.under_fault, (fault, function, args)
        try:
            with self._turn(deadline):
                if self._engines.refresh():
                    self._line.say(f"{self._ready} Another notebook reset them: set their variables up again.")
                return self._call_now(function, args, deadline, source, fault)
        finally:
            self._busy.release()
            self._idle.touch()

    def __repr__(self) -> str:
        if not self.running:
            return f"<World of {self.ranks} ranks, stopped>"
        rows = [["rank", "pid", "device", "backend"], *self._rows()]
        widths = [max(len(str(row[i])) for row in rows) for i in range(4)]
        lines = ["  ".join(str(c).rjust(w) if i < 2 else str(c).ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))) for row in rows]  # fmt: skip
        return "\n".join(line.rstrip() for line in lines)

    def _rows(self) -> list[list]:
        return [[d["rank"], d["pid"], d["device"], _backend_words(d)] for d in self._engines.described]

    def _repr_html_(self) -> str:
        if not self.running:
            return f"<i>World of {self.ranks} ranks, stopped</i>"
        head = "".join(f"<th>{name}</th>" for name in ("rank", "pid", "device", "backend"))
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(str(value))}</td>" for value in row) + "</tr>" for row in self._rows()
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _backend_words(described: dict) -> str:
    return f"{described['backend']} {described['nccl']}" if described["nccl"] else described["backend"]


def _elsewhere(wanted: Request, launcher: str) -> Engines | None:
    """The engines of a profile; None if there is none."""
    if wanted.profile is None:
        return None
    from allranks.ranks.world.launched import Launched  # this import of ipyparallel's launchers takes half a second

    return Launched(
        wanted.profile, wanted.ranks, wanted.backend, launcher, nodes=wanted.nodes, settings=wanted.settings
    )


def _stop_at_exit() -> None:
    if _current is not None:
        _current.stop()


def _forget() -> None:
    """Makes a forked process forget the world: the ranks belong to its parent, which alone may use and end them."""
    global _current, _guard
    # a fork copies locks but not the threads that hold them, so make a new lock
    world, _current, _guard = _current, None, threading.RLock()
    if world is not None:
        world._busy, world._keeper = threading.Lock(), None
        world._idle.forget()
        world.why_stopped = "This process was forked from the one that started the world: use the world there."
        world._engines.forget()
        world._gpus_kept.pop_all()  # else the parent's GPUs, by descriptors that both have
        if world._lease is not None:
            world._lease.forget()
        if world._shared is not None:
            world._shared.forget()


# what help(), editors and docs/api.md show
World.__signature__ = Request.signature()  # type: ignore[attr-defined]
World.__init__.__signature__ = Request.signature("self")  # type: ignore[attr-defined]
atexit.register(_stop_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
