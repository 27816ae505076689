"""When each action of a pipeline starts and ends in virtual time, what is idle, and how many activations are kept."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from allranks.theory.pipelines.actions import Action, Orders, PipelineError
from allranks.theory.pipelines.checks import check, needs

Time = int | float | Fraction
FREED = {"weights": "BW", "input": "BI"}  # with which action an activation is given back


@dataclass(frozen=True)
class Span:
    """One action and when it runs."""

    action: Action
    start: Fraction
    end: Fraction


@dataclass(frozen=True)
class Timeline:
    """A pipeline's run in virtual time: `spans` has each rank's actions with their start and end.

    Times are in the unit in which `timeline` was told them. A rank's work is shared out to its stages: with two stages
    a rank, each takes half. Kept activations are counted in micro-batches of a rank's whole work, so a stage of two
    counts half.

    >>> run = pipelines.timeline(pipelines.orders("1f1b", ranks=4, micro_batches=8))
    >>> run.makespan, run.peaks()
    (33.0, [4.0, 3.0, 2.0, 1.0])
    """

    orders: Orders
    spans: tuple[tuple[Span, ...], ...]

    @cached_property
    def makespan(self) -> float:
        """From the first start to the last end."""
        return float(max((mine[-1].end for mine in self.spans if mine), default=Fraction(0)))

    def busy(self, rank: int) -> float:
        """How long a rank works."""
        return float(sum((span.end - span.start for span in self.spans[rank]), Fraction(0)))

    def span(self, rank: int) -> float:
        """From the start of a rank's first action to the end of its last."""
        mine = self.spans[rank]
        return float(mine[-1].end - mine[0].start) if mine else 0.0

    def idle_share(self, rank: int | None = None) -> float:
        """The share of the makespan in which a rank, or all ranks together, are idle: the bubble."""
        if not self.makespan:
            return 0.0
        ranks = range(self.orders.ranks) if rank is None else [rank]
        return 1 - sum(self.busy(r) for r in ranks) / (len(ranks) * self.makespan)

    def kept(self, rank: int, freed: str = "weights") -> float:
        """The most activations that a rank keeps at once.

        They are given back at the end of B or W ("weights"), or already at the end of B or I ("input").
        """
        if freed not in FREED:
            raise PipelineError(f"freed must be one of {', '.join(FREED)}, not {freed!r}.")
        now = most = 0
        for span in self.spans[rank]:
            now += span.action.kind == "F"
            most = max(most, now)
            now -= span.action.kind in FREED[freed]
        return most / self.orders.stages_per_rank

    def peaks(self, freed: str = "weights") -> list[float]:
        """What `kept` says of every rank."""
        return [self.kept(rank, freed) for rank in range(self.orders.ranks)]

    @property
    def length(self) -> str:
        """How long it takes and for how much of this ranks wait, in words; a forward pass is that of a whole rank."""
        passes = [span for mine in self.spans for span in mine if span.action.kind == "F"]
        forward = float(passes[0].end - passes[0].start) * self.orders.stages_per_rank if passes else 0.0
        takes = f"{self.makespan / forward:g} forward passes" if forward else f"{self.makespan:g}"
        return f"takes {takes}, {self.idle_share():.0%} idle"

    def __str__(self) -> str:
        kept = ", ".join(f"{peak:g}" for peak in self.peaks())
        return f"{self.orders.name}: {self.length}, keeps at most {kept} micro-batches"


def timeline(
    orders: Orders,
    *,
    forward: Time = 1,
    backward: Time | None = None,
    input: Time = 1,
    weights: Time = 1,
    send: Time = 0,
) -> Timeline:
    """Runs orders in virtual time: an action starts when its rank is free and all that it needs is there.

    `forward`, `input` and `weights` are what a rank needs for one micro-batch, all of its stages together; `backward`
    is both gradients in one, their sum unless told otherwise. What another rank made arrives `send` later. Raises
    PipelineError with what `check` says of wrong orders.

    >>> print(pipelines.timeline(pipelines.orders("zb-h1", ranks=4, micro_batches=8)))
    ZB-H1: takes 27 forward passes, 11% idle, keeps at most 4, 4, 4, 4 micro-batches
    """
    wrong = check(orders)
    if wrong:
        raise PipelineError(wrong)
    given = {"forward": forward, "backward": input + weights if backward is None else backward}
    given |= {"input": input, "weights": weights, "send": send}
    for name, value in given.items():
        if not 0 <= value < float("inf"):
            raise PipelineError(f"{name} must be a time of at least 0, not {value!r}.")
    names = {"F": "forward", "B": "backward", "I": "input", "W": "weights"}
    took = {kind: _exact(given[name]) / orders.stages_per_rank for kind, name in names.items()}
    return Timeline(orders, _run(orders, took, _exact(send)))


def _exact(time: Time) -> Fraction:
    """The time as a fraction; 0.1 is a tenth, so that times can be compared and have a common measure."""
    return Fraction(time).limit_denominator(10**6)


def _run(orders: Orders, took: dict[str, Fraction], send: Fraction) -> tuple[tuple[Span, ...], ...]:
    ends: dict[Action, Fraction] = {}
    spans: list[list[Span]] = [[] for _ in range(orders.ranks)]
    left = sum(len(mine) for mine in orders.actions)
    while left:  # no deadlock, so that each round carries out something
        for rank, mine in enumerate(orders.actions):
            while len(spans[rank]) < len(mine):
                action = mine[len(spans[rank])]
                wanted = needs(orders, action)
                if not all(need in ends for need in wanted):
                    break
                there = [ends[n] + (send if orders.rank_of(n.stage) != rank else 0) for n in wanted]
                start = max([spans[rank][-1].end if spans[rank] else Fraction(0), *there])
                ends[action] = start + took[action.kind]
                spans[rank].append(Span(action, start, ends[action]))
                left -= 1
    return tuple(tuple(mine) for mine in spans)
