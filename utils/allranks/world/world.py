"""`World`: start ranks, run on them, and end them."""

from __future__ import annotations

import atexit
import contextlib
import html
import sys
import threading
import time
from collections.abc import Callable

from allranks.engines import rank as on_rank
from allranks.engines.devices import place
from allranks.errors import CourseError
from allranks.trace import Trace
from allranks.world.cluster import Engines, WorldError, choose_launcher
from allranks.world.failures import RankDied, RanksError, RanksStuck, describe, name_ranks
from allranks.world.outputs import STYLE, WIDGET, Grid
from allranks.world.standing import Standing, dump, read

DEADLINE_S = 60.0
# after a rank failed, how long the others may go on before they are looked at
GRACE_S = 1.0
POLL_S = 0.02
SHOW_AFTER_S = 3.0

_current: World | None = None
_guard = threading.RLock()


def current() -> World:
    """The world of this notebook. Raises WorldError where none is running."""
    if _current is None or not _current.running:
        raise WorldError("No world is running. Start one first:  from allranks import World; world = World(ranks=4)")
    return _current


class World:
    """Real ranks: one a GPU with NCCL, or processes on the CPU with gloo, in one torch.distributed group.

        with World(ranks=4) as world:
            world.run(step)          # what each rank returned, in the order of ranks

    `ranks` is the world size; without it there are as many as GPUs, or 4 on the CPU. `backend` is "nccl" or "gloo";
    without it the best that fits. `deadline` is how many seconds a call may take before it is ended with a report of
    where each rank stands. A process has one world: `World()` gives the running one where it fits what is asked, and
    ends it first where it does not. The ranks end with the process that started them.

    Raises WorldError or DeviceError, each one sentence with what to do, and leaves no process behind.
    """

    def __init__(
        self,
        ranks: int | None = None,
        *,
        backend: str | None = None,
        deadline: float = DEADLINE_S,
        launcher: str | None = None,
    ) -> None:
        global _current
        _check_deadline(deadline)
        with _guard:
            self._placement = place(ranks, backend)
            self._launcher, slow = choose_launcher(launcher)
            self.deadline = deadline
            self._busy = threading.Lock()
            running = _current
            if running is not None and running.running:
                same = running._placement.backend == self._placement.backend and running._launcher == self._launcher
                if same and ranks in (None, running.ranks):
                    self._engines, self._placement = running._engines, running._placement
                    self._busy = running._busy
                    _current = self
                    return
                running.stop()
            self._engines = Engines(self._placement, self._launcher)
            notes = [n for n in (slow, self._placement.note) if n]
            self._start(notes)
            _current = self

    def _start(self, notes: list[str] | None = None) -> None:
        began = time.monotonic()
        line = _Line(f"{self.ranks} rank{'' if self.ranks == 1 else 's'}")
        try:
            self._engines.start(line.say)
        except BaseException:
            line.clear()
            raise
        seconds = time.monotonic() - began
        line.say(" ".join([f"ready in {seconds:.1f} s ({self.backend}).", *(notes or [])]), last=True)

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
        """Calls `fn(*args, **kwargs)` on every rank at once; the list of what each rank returned.

        `fn` is plain torch.distributed code: the group is there, `dist.get_rank()` tells ranks apart. What ranks print
        is shown by rank. Raises RanksError where ranks raised, RanksStuck after the deadline or when the ranks wait
        for one that failed, RankDied when a process ended; after the last two the world has fresh ranks.
        """
        return self._call(fn, (fn, args, kwargs), deadline)

    def trace(self, fn: Callable, *args, deadline: float | None = None, **kwargs) -> tuple[list, Trace]:
        """Calls `fn` as `run` does, and records what it sends: (results, trace of kind "live").

        The trace has each send, receive and collective with its bytes, its line and its times on this machine's clock;
        on GPUs, the times of the rank's stream. `Player(trace)` plays it.
        """
        from allranks.world import live

        parts = self._call(fn, (live.record, (fn, args, kwargs), {}), deadline)
        return [result for result, _ in parts], live.join([part for _, part in parts])

    def _call(self, fn: Callable, call: tuple, deadline: float | None) -> list:
        import cloudpickle

        if not callable(fn):
            raise WorldError(f"world.run takes a function that every rank calls; it got {type(fn).__name__}.")
        try:
            with _by_value(fn):
                payload = cloudpickle.dumps(call)
        except CourseError:
            raise
        except Exception as error:
            raise WorldError(f"This can't be sent to the ranks: {error}") from None
        return self._everywhere(on_rank.call, (payload,), deadline)

    def cell(self, source: str, deadline: float | None = None) -> None:
        """Runs the source of a `%%ranks` cell in every rank's own namespace; raises as `run` does."""
        self._everywhere(on_rank.cell, (source,), deadline, source)

    def __getitem__(self, name: str) -> list:
        """What the variable `name` of the `%%ranks` cells holds on each rank: `world["loss"]`."""
        if not isinstance(name, str) or not name.isidentifier():
            raise WorldError(
                f"world[{name!r}]: ask for a variable of the ranks by its name, for example world['loss']."
            )
        return self._everywhere(on_rank.pull, (name,), None)

    def reset(self) -> None:
        """A fresh set of ranks, whatever state the old ones are in. The notebook's own variables stay."""
        self._engines.stop()
        self._start()

    def stop(self) -> None:
        """Ends all ranks. Doing it twice is harmless."""
        self._engines.stop()

    def __enter__(self) -> World:
        return self

    def __exit__(self, *exc_info) -> None:
        self.stop()

    def __reduce__(self):
        raise WorldError(
            "A World can't be sent to its own ranks: use `world` in the notebook, and `dist` on the ranks."
        )

    def _everywhere(self, function, args: tuple, deadline: float | None, source: str | None = None) -> list:

        deadline = self.deadline if deadline is None else deadline
        _check_deadline(deadline)
        if not self.running:
            raise WorldError("This world was stopped. Start it again:  world = World(ranks=4)")
        if not self._busy.acquire(blocking=False):
            raise WorldError("The ranks are busy with another cell; collectives of two cells must not mix.")
        try:
            self._raise_if_dead({})
            pending = self._engines.submit(function, [args] * self.ranks)
            screen = _Screen(self.ranks)
            try:
                outcomes = self._wait(pending, deadline, screen, source)
            except KeyboardInterrupt:
                standings = self._standings(source)
                self._replace(screen)
                raise RanksStuck(
                    "\n".join(["Stopped by you. Where each rank was:", *map(_indent, standings), _FRESH]), standings
                ) from None
            failed = {rank: error for rank, (kind, error) in outcomes.items() if kind == "error"}
            screen.finish(pending, failed)
            if failed:
                raise RanksError(describe(failed, self.ranks, source), failed)
            return [outcomes[rank][1] for rank in range(self.ranks)]
        finally:
            self._busy.release()

    def _wait(self, pending: list, deadline_s: float, screen: _Screen, source: str | None) -> dict[int, tuple]:
        """Waits for every rank, showing what they print; {rank: outcome}."""
        import cloudpickle

        began, outcomes, failed_at = time.monotonic(), {}, None
        while True:
            for rank, reply in enumerate(pending):
                if rank not in outcomes and reply.ready():
                    outcomes[rank] = _open(reply, cloudpickle.loads)
                    if outcomes[rank][0] == "error" and failed_at is None:
                        failed_at = time.monotonic()
            if len(outcomes) == len(pending):
                return outcomes
            errors = {rank: error for rank, (kind, error) in outcomes.items() if kind == "error"}
            self._raise_if_dead(errors, screen, pending, source)
            now = time.monotonic()
            screen.update(pending, now - began, deadline_s)
            if now - began > deadline_s:
                self._give_up(
                    f"Not every rank was back after {deadline_s:g} s. Where each rank stands:",
                    outcomes, errors, screen, pending, source,
                )  # fmt: skip
            if failed_at is not None and now - failed_at > GRACE_S:
                failed_at = now
                waiting = [s for s in self._standings(source) if s.rank not in outcomes]
                if waiting and all(s.waits for s in waiting):
                    self._give_up(
                        "The others wait for what can't come any more:", outcomes, errors, screen, pending, source
                    )
            first = next(reply for rank, reply in enumerate(pending) if rank not in outcomes)
            first.wait(POLL_S)

    def _give_up(self, reason: str, outcomes: dict, errors: dict, screen, pending, source) -> None:
        standings = [s for s in self._standings(source) if s.rank not in outcomes]
        done = [rank for rank in outcomes if rank not in errors]
        lines = [describe(errors, self.ranks, source)] if errors else []
        lines += [reason, *map(_indent, standings)]
        if done:
            lines.append(f"    {name_ranks(sorted(done), self.ranks)}: done")
        screen.finish(pending, errors)
        self._replace(screen)
        raise RanksStuck("\n".join([*lines, _FRESH]), standings, errors)

    def _raise_if_dead(self, errors: dict, screen=None, pending=(), source: str | None = None) -> None:
        dead = self._engines.dead()
        if not dead:
            return
        words = "; ".join(f"rank {rank} {how}" for rank, how in dead.items())
        if screen is not None:
            screen.finish(pending, {**errors, **{rank: {} for rank in dead}})
        self._replace(screen)
        said = [describe(errors, self.ranks, source)] if errors else []
        raise RankDied("\n".join([*said, f"{words[0].upper()}{words[1:]}, so the group is broken.", _FRESH]))

    def _standings(self, source: str | None) -> list[Standing]:
        stacks = {rank: self._engines.stacks(rank) for rank in range(self.ranks)}
        texts = dump(dict(enumerate(self._engines.pids)), stacks)
        return [read(rank, texts.get(rank), source) for rank in range(self.ranks)]

    def _replace(self, screen=None) -> None:
        """Fresh ranks, without a word: the error that follows says it."""
        self._engines.stop()
        self._engines.start(lambda _: None)

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


_FRESH = "The world has fresh ranks now: run the cells that set up their variables again."


def _backend_words(described: dict) -> str:
    return f"{described['backend']} {described['nccl']}" if described["nccl"] else described["backend"]


def _indent(standing: Standing) -> str:
    return f"    {standing}"


def _check_deadline(deadline: object) -> None:
    if isinstance(deadline, bool) or not isinstance(deadline, (int, float)) or not 0 < deadline < 1e9:
        raise WorldError(f"deadline={deadline!r}: it is a number of seconds above 0, for example 60.")


@contextlib.contextmanager
def _by_value(fn: Callable):
    """Sends a function of the user's own module as it is now, not by a name that ranks would import once and keep."""
    import cloudpickle

    module = sys.modules.get(getattr(fn, "__module__", None) or "")
    file = getattr(module, "__file__", None)
    if module is None or file is None or module.__name__ == "__main__" or on_rank.in_library(file):
        yield
        return
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def _open(reply, loads) -> tuple:
    """The outcome that a rank sent: ("value", result) or ("error", details)."""
    try:
        packed = reply.get(0)
    except Exception as error:  # the engine itself could not call our function
        kind = getattr(error, "ename", type(error).__name__)
        return "error", {"type": kind, "message": getattr(error, "evalue", str(error)), "hint": None, "frames": []}
    try:
        return loads(packed)
    except Exception as error:
        hint = "while the result was unpacked in the notebook"
        return "error", {"type": type(error).__name__, "message": str(error), "hint": hint, "frames": []}


def _in_notebook() -> bool:
    with contextlib.suppress(ImportError):
        from IPython import get_ipython

        shell = get_ipython()
        return shell is not None and getattr(shell, "kernel", None) is not None
    return False


class _Line:
    """One line of progress, rewritten in place; silent outside of notebooks."""

    def __init__(self, title: str) -> None:
        self.title, self.handle, self.last = title, None, None

    def say(self, text: str, last: bool = False) -> None:
        if not _in_notebook() or text == self.last:
            return
        from IPython.display import display

        self.last = text
        bundle = {
            "text/html": f'{STYLE}<div class="ar-note">{html.escape(self.title)}: {html.escape(text)}</div>',
            "text/plain": f"{self.title}: {text}",
        }
        if self.handle is None:
            self.handle = display(bundle, raw=True, display_id=True)
        else:
            self.handle.update(bundle, raw=True)

    def clear(self) -> None:
        if self.handle is not None:
            self.handle.update({"text/plain": ""}, raw=True)


class _Screen:
    """Shows what the ranks print while they run, and the countdown once it takes long."""

    def __init__(self, ranks: int) -> None:
        self.grid, self.handle, self.shown, self.next = Grid(ranks), None, "", 0.0

    def update(self, pending: list, elapsed_s: float, deadline_s: float) -> None:
        """Rewrites the display, at most ten times a second."""
        if elapsed_s < self.next or not _in_notebook():
            return
        self.next = elapsed_s + 0.1
        self.grid.note = f"{elapsed_s:.0f} s of {deadline_s:g} s" if elapsed_s > SHOW_AFTER_S else ""
        self._collect(pending)
        self._show()

    def finish(self, pending: list, failed: dict) -> None:
        """The last state: everything that was printed, no countdown."""
        for reply in pending:
            if reply.ready():
                with contextlib.suppress(Exception):
                    reply.wait_for_output(1)
        self.grid.note = ""
        self._collect(pending)
        for rank, output in enumerate(self.grid.ranks):
            output.failed = rank in failed
        if _in_notebook():
            self._show()
            self._show_widgets(pending)
        elif not self.grid.empty:
            print(self.grid, flush=True)

    def _collect(self, pending: list) -> None:
        for output, reply in zip(self.grid.ranks, pending, strict=True):
            found = reply.metadata
            output.stdout, output.stderr = found.get("stdout") or "", found.get("stderr") or ""
            shown = [o["data"] for o in found.get("outputs") or [] if WIDGET not in o["data"]]
            result = found.get("execute_result")
            output.shown = shown + ([result["data"]] if result else [])

    def _show(self) -> None:
        from IPython.display import display

        text = self.grid.as_html()
        if text == self.shown or (self.handle is None and self.grid.empty):
            return
        self.shown = text
        bundle = self.grid._repr_mimebundle_()
        if self.handle is None:
            self.handle = display(bundle, raw=True, display_id=True)
        else:
            self.handle.update(bundle, raw=True)

    def _show_widgets(self, pending: list) -> None:
        from IPython.display import display

        for reply in pending:
            for output in reply.metadata.get("outputs") or []:
                if WIDGET in output["data"]:
                    display(output["data"], raw=True)


def _stop_at_exit() -> None:
    if _current is not None:
        _current.stop()


atexit.register(_stop_at_exit)
