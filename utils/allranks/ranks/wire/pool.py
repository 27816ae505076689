"""Ranks that stay: forked once, they run one program after another, each run with a fresh log, clock and group."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

from allranks.base.errors import CourseError
from allranks.ranks.engines.usercode import by_value
from allranks.ranks.wire import ending, launch
from allranks.ranks.wire.body import CodecError
from allranks.ranks.wire.codec import Channel
from allranks.ranks.wire.messages import Program
from allranks.ranks.wire.options import RunOptions
from allranks.ranks.wire.outcome import Outcome
from allranks.ranks.wire.router import DELIVERIES, Router
from allranks.ranks.wire.session import Member, Session
from allranks.ranks.wire.student_code import Lines, filename_of, texts
from allranks.theory.simulator.clock import Network, UniformNetwork
from allranks.theory.simulator.simulation import TopologyNetwork
from allranks.theory.topology import Topology

MAX_RANKS = 64
_START_S = 120


class WireError(CourseError, RuntimeError):
    """The wire was asked for what it can't do, or its ranks can't be started."""


class Ranks:
    """A pool of up to 64 ranks. A context manager: at its end every process is gone.

    `spawner.spawn("allranks.ranks.wire.rank:main", fds=[socket, output])` starts a rank, for example in a sandbox. Without a
    spawner, `launch` is "fork" or "forkserver", as in `run`.
    """

    _target = launch.TARGET  # what the next rank begins with

    def __init__(self, ranks: int = 4, *, spawner: launch.Spawner | None = None, launch: str | None = None) -> None:
        _check_ranks(ranks, MAX_RANKS)
        self.size = ranks
        self._spawner = spawner
        self._launch = launch
        self._members: list[Member | None] = [None] * ranks
        self._owner = os.getpid()
        self._closed = False

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()

    def close(self) -> None:
        """Kills every rank and waits until it is gone."""
        if self._closed or os.getpid() != self._owner:
            return
        self._closed = True
        self._discard([r for r, m in enumerate(self._members) if m is not None])

    @property
    def pids(self) -> list[int]:
        """The processes that are alive."""
        return [m.process.pid for m in self._members if m is not None]

    def import_compiler(self) -> None:
        """From now on ranks have torch's compiler from the process that forks them; those without it are replaced."""
        self._begin_with(launch.WITH_COMPILER)

    def import_autograd(self) -> None:
        """From now on ranks have what torch imports for backward with a gradient; those without it are replaced."""
        self._begin_with(launch.WITH_AUTOGRAD)

    def _begin_with(self, target: str) -> None:
        if launch.TARGETS.index(target) > launch.TARGETS.index(self._target):
            self._target = target
            self._discard(range(self.size))

    def start(self, ranks: int | None = None) -> None:
        """Forks the first `ranks` ranks (all by default) that don't live yet."""
        self._ensure(self.size if ranks is None else ranks)

    def run(self, fn: Callable | Program, ranks: int | None = None, args: Sequence = (), **options: Any) -> Outcome:
        """Runs `fn` once on each of `ranks` ranks and says what happened; see `run`. Raises WireError.

        Example (needs ranks):
            >>> with wire.Ranks(4) as pool:
            ...     few, many = pool.run(dist.get_world_size, 2), pool.run(dist.get_world_size, 4)
            >>> few.results, many.results
            ([2, 2], [4, 4, 4, 4])
        """
        if self._closed:
            raise WireError("These ranks were closed; make new ones.")
        ranks = self.size if ranks is None else ranks
        _check_ranks(ranks, self.size)
        if options.get("delivery", DELIVERIES[0]) not in DELIVERIES:
            raise WireError(f"delivery is {options['delivery']!r}; it must be one of {', '.join(DELIVERIES)}.")
        asked = RunOptions(**options)
        jobs = _arguments(ranks, args, asked.per_rank, asked.calls)
        fabric = _fabric(asked.topology, asked.scale, asked.alpha, asked.beta)
        began = time.monotonic()
        if not asked.rules.alone:  # a rank that ran an answer refuses for good what answers may not do
            self._discard([r for r, m in enumerate(self._members) if m is not None and m.alone])
        self._ensure(ranks)
        for member in self._members[:ranks]:
            if member is not None:
                member.alone = asked.rules.alone
        router = Router(ranks, asked.rules, asked.delivery, asked.seed, asked.calls or 1, asked.pieces, asked.memory)
        session = Session(self._members[:ranks], router, asked.limits)
        filename = fn.filename if isinstance(fn, Program) else filename_of(fn)
        try:
            with by_value(fn):
                session.begin(asked.job(ranks, filename, derive_rank_seed(asked.seed)), fn, jobs, asked.guard)
            session.loop(time.monotonic() + asked.wall_s)
        except BaseException:
            self._discard(range(ranks))
            raise
        text_of = texts(fn, filename)
        session.kill_children()
        results, finals = session.results(asked.calls is not None, jobs, asked.final_args)
        failure = ending.verdict(router, Lines(text_of, asked.name_line), asked.limits)
        self._discard(session.stop_ranks())
        router.forget()
        return Outcome(
            results=results,
            failure=failure,
            output=session.output(),
            final_args=[made[-1] if made else None for made in finals],
            all_final_args=finals,
            wall_s=time.monotonic() - began,
            router=router,
            fabric=fabric,
            text_of=text_of,
        )

    def _ensure(self, ranks: int) -> None:
        """Starts the ranks that are missing, and waits until each has said hello."""
        missing = [r for r in range(ranks) if self._members[r] is None]
        for rank, member in enumerate(self._members[:ranks]):
            if member is not None and not member.alive():
                self._discard([rank])
                missing.append(rank)
        if not missing:
            return
        for rank in sorted(missing):
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            output, printed = os.pipe()
            os.set_blocking(output, False)
            try:
                process = self._start([theirs.fileno(), printed])
            except Exception as error:
                ours.close()
                os.close(output)
                raise WireError(f"Rank {rank} could not be started: {error}") from None
            finally:
                theirs.close()
                os.close(printed)
            self._members[rank] = Member(process, Channel(ours, blocking=False), output)
        self._greet([self._members[r] for r in missing])

    def _start(self, fds: list[int]) -> launch.Process:
        """A new rank; one that imports for itself what the process that forks can't."""
        try:
            return launch.starter(self._spawner, self._launch, self._target)(fds)
        except Exception:
            if self._target == launch.TARGET:
                raise
            self._target = launch.TARGET
            return self._start(fds)

    def _greet(self, members: list[Member]) -> None:
        deadline = time.monotonic() + _START_S
        for member in members:
            try:
                member.channel.socket.settimeout(max(0.1, deadline - time.monotonic()))
                message, _ = member.channel.receive()
                if not isinstance(message, dict) or "hello" not in message:
                    raise CodecError("it did not say hello")
                member.channel.socket.setblocking(False)
            except (OSError, EOFError, CodecError) as error:
                rank = self._members.index(member)
                self._discard([r for r, m in enumerate(self._members) if m is not None])
                raise WireError(f"Rank {rank} ended before it was ready ({error}).") from None

    def _discard(self, ranks) -> None:
        """Kills these ranks; the next run starts new ones."""
        gone = []
        for rank in ranks:
            member, self._members[rank] = self._members[rank], None
            if member is not None:
                member.process.kill()
                member.close()
                gone.append(member.process)
        launch.ended(gone, 5)


def run(
    fn: Callable | Program, ranks: int = 4, args: Sequence = (), *, spawner=None, launch=None, **options
) -> Outcome:
    """Runs `fn(*args)` on `ranks` forked ranks over the wire; returns an Outcome (`results, trace, deadlock`).

    `fn` is a function or a Program. A failure of the program raises nothing: see `Outcome.failure`. The options:

    - `per_rank`: `per_rank[r]` are the arguments of rank r; then `args` is not used.
    - `calls`: how often `fn` is called. `per_rank[r][k]` are then the arguments of call k, and each result is a list.
    - `allow`: the names of the operations that may be called; without it, all.
    - `rules`: a `Rules`, in place of `allow`. It can also limit the peers and refuse tensors that are not contiguous, and
      apply NCCL's rules.
    - `delivery`: "rendezvous" (a send waits for its receive), "buffered" (a send returns at once) or "shuffled" (as
      rendezvous, but one rank runs at a time, in an order drawn from `seed`).
    - `alpha`, `beta`: seconds a message and seconds a byte on the virtual clock; or a `topology` in their place. With `scale` each
      byte stands for so many on that topology, so that a small tensor takes the time of a large one.
    - `cpu_s`, `wall_s`: seconds of processor time that one rank may use, and of real time that the run may take.
    - `memory_bytes`: how much memory a rank may add to what it has at its start.
    - `output_bytes`: how much of each rank's printed text is kept. A rank that prints 16 times as much ends the run.
    - `final_args`: False if the arguments need not come back as the ranks left them.
    - `guard`: for an argument that is a view, send its whole storage both ways. Then `final_args` shows writes outside it.
    - `pieces`: for each rank and call the pieces of work that it may ask for, (virtual seconds, bytes of the result).
    - `memory`: a `Memory` that the ranks share, see `memory()`. Then `Outcome.races` says which accesses nothing orders.
    - `name_line`: a function from a line number to its name in messages, such as "line 4".
    - `ahead`: a rank's process goes on while it waits for a send, and the router keeps what it says until the send is complete.
      This takes fewer messages to the router, but what the rank prints then comes earlier.
    - `launch`: "fork" copies this process; "forkserver" asks a small server process, which is safe if this process has
      threads or CUDA. Without it, fork if this process has one thread and no CUDA, else the fork server.
    - `spawner`: an object that starts the ranks in place of `launch`, as in `Ranks`.

    Raises WireError for wrong arguments, or if the ranks can't be started.

    Example (needs ranks):
        >>> def total():
        ...     x = torch.full((4,), float(dist.get_rank()))
        ...     dist.all_reduce(x)
        ...     return x.tolist()
        >>> wire.run(total, ranks=4).results[3]
        [6.0, 6.0, 6.0, 6.0]
    """
    with Ranks(ranks, spawner=spawner, launch=launch) as pool:
        return pool.run(fn, ranks, args, **options)


def derive_rank_seed(seed: int) -> int:
    """A seed for the ranks; the run's own seed would reveal every rank's inputs."""
    return int.from_bytes(hashlib.sha256(f"ranks {seed}".encode()).digest()[:4], "big")


def _fabric(topology: Network | Topology | None, scale: int, alpha: float, beta: float) -> Network:
    """The links of the virtual clock."""
    if isinstance(scale, bool) or not isinstance(scale, int) or scale < 1:
        raise WireError(f"scale is {scale!r}; it must be a whole number, 1 or more.")
    if isinstance(topology, Topology):
        return TopologyNetwork(topology, scale)
    if scale != 1:
        raise WireError("scale is for a topology: with alpha and beta, give a larger beta.")
    return UniformNetwork(alpha, beta) if topology is None else topology


def _check_ranks(ranks: object, limit: int) -> None:
    if isinstance(ranks, bool) or not isinstance(ranks, int) or not 1 <= ranks <= limit:
        raise WireError(f"ranks is {ranks!r}; it must be a whole number from 1 to {limit}.")


def _arguments(ranks: int, args: Sequence, per_rank: Sequence | None, calls: int | None) -> list[list[tuple]]:
    """The arguments of every call of every rank."""
    if per_rank is None:
        per_rank = [[tuple(args)] * (calls or 1) if calls is not None else tuple(args)] * ranks
    if len(per_rank) != ranks:
        raise WireError(f"per_rank has {len(per_rank)} entries for {ranks} ranks.")
    jobs = []
    for rank, given in enumerate(per_rank):
        made = [tuple(a) for a in given] if calls is not None else [tuple(given)]
        if calls is not None and len(made) != calls:
            raise WireError(f"per_rank[{rank}] has arguments for {len(made)} calls; calls is {calls}.")
        jobs.append(made)
    return jobs
