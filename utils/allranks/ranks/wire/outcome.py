"""What a run gave: results, failure, log, trace and virtual times."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

from allranks.ranks.wire import record
from allranks.ranks.wire.failures import Failure, FailureKind
from allranks.ranks.wire.memory_model import MemoryOp, Race
from allranks.ranks.wire.messages import FileWritten, LogEntry
from allranks.ranks.wire.router import Router
from allranks.ranks.wire.wait import outermost
from allranks.theory.simulator.clock import Network, Timeline, UniformNetwork
from allranks.theory.simulator.critical import CriticalPath, critical_path
from allranks.theory.simulator.simulation import TopologyNetwork
from allranks.theory.simulator.variations import WhatIf, what_if
from allranks.theory.trace import Trace


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a run gave. Unpacks as `results, trace, deadlock`.

    `results[r]` is what rank r returned (None if it failed; a list with `calls`), `final_args[r]` its arguments
    after the last call, `output[r]` what it printed, `seconds` the virtual time, `log` the operations in
    order, `files` what was opened for writing. `wall_s` is the real time. The trace is made when first asked for.

    Example (needs ranks):
        >>> results, trace, deadlock = wire.run(dist.get_rank, ranks=3)
        >>> results, trace.ranks, deadlock
        ([0, 1, 2], 3, None)
    """

    results: list
    failure: Failure | None
    output: list[str]
    final_args: list
    all_final_args: list
    wall_s: float
    router: Router = field(repr=False)
    fabric: Network = field(repr=False)
    text_of: record.TextOf = field(repr=False)

    def __iter__(self):
        yield from (self.results, self.trace, self.deadlock)

    @property
    def deadlock(self) -> Failure | None:
        """The failure if the ranks waited for each other forever; else None."""
        return self.failure if self.failure and self.failure.kind is FailureKind.DEADLOCK else None

    @functools.cached_property
    def timeline(self) -> Timeline:
        """When each message was under way, in virtual time."""
        return record.timeline(self.router, self.fabric)

    @functools.cached_property
    def rounds(self) -> Timeline:
        """The timeline if every message took one round, whatever its size, and computing took none."""
        unit = UniformNetwork(1, 0)
        if self.fabric == unit and not any(state.work for state in self.router.ranks):
            return self.timeline
        return record.timeline(self.router, unit, computing=False)

    @property
    def seconds(self):
        """The virtual time at which the last rank ended; for a run that failed, the time that it reached."""
        return self.timeline.seconds

    @functools.cached_property
    def critical_path(self) -> CriticalPath:
        """The chain of messages and computing that decides `seconds`; `critical_path.sentences()` says it in words.

        Example (needs ranks):
            >>> def late():
            ...     if dist.get_rank() == 0:
            ...         wire.compute(3)
            ...     dist.barrier()
            >>> wire.run(late, ranks=2).critical_path.sentences()[0]
            'The critical path has no message: 75 % is computing, 25 % is collectives.'
        """
        ranks = self.router.ranks
        return critical_path(
            record.programs(self.router),
            self.timeline,
            self.fabric,
            line_of=lambda rank, index: outermost(ranks[rank].program[index][2]),
        )

    def what_if(self, *, any_order: bool = False, segmented: bool = False) -> list[WhatIf]:
        """What would make the run faster, the best first: see `allranks.theory.simulator.what_if`. Nothing for a run that failed.

        Example (needs ranks):
            >>> def chain(x):
            ...     rank = dist.get_rank()
            ...     if rank > 0:
            ...         dist.recv(x, rank - 1)
            ...     if rank < 3:
            ...         dist.send(x, rank + 1)
            >>> wire.run(chain, 4, args=(torch.zeros(64),), alpha=1.0, beta=1.0).what_if()[0].sentence()
            'With 16 segments: 2.52 times faster.'
        """
        if self.failure is not None:
            return []
        node_of = self.fabric.topology.node if isinstance(self.fabric, TopologyNetwork) else None
        return what_if(
            record.programs(self.router),
            self.fabric,
            self.seconds,
            any_order=any_order,
            node_of=node_of,
            buffered=self.router.delivery == "buffered",
            segmented=segmented,
        )

    @functools.cached_property
    def trace(self) -> Trace:
        """The run as a trace, on the virtual clock."""
        meta = {k: float(v) for k, v in vars(self.fabric).items() if isinstance(v, int | float)}
        return record.trace(self.router, self.timeline, self.rounds, meta)

    @functools.cached_property
    def log(self) -> list[LogEntry]:
        """Every operation, by the round in which it happened, then by rank; what found no partner comes last."""
        return record.log(self.router, self.rounds, self.text_of)

    @property
    def races(self) -> list[Race]:
        """The accesses of the run's memory that nothing orders, one for each pair of lines and ranks."""
        return [] if self.router.memory is None else self.router.memory.races

    @property
    def signals_left(self) -> list[tuple[int, int, int]]:
        """(from, to, how many) of the signals for which no rank waited."""
        return [] if self.router.memory is None else self.router.memory.left_signals()

    @property
    def accesses(self) -> list[MemoryOp]:
        """What the ranks did with the run's memory, in the order in which it was done."""
        return [] if self.router.memory is None else self.router.memory.done

    @functools.cached_property
    def files(self) -> list[FileWritten]:
        """The files that ranks opened for writing, the first thousand of each rank."""
        return record.files(self.router, self.text_of)
