"""How fast an answer is: its virtual time on a machine against the lower bound, its critical path, and what would help.

A case with the option `_machine` runs on that machine's links; each byte of its small tensors stands for many.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from allranks.base.errors import CourseError, seconds_in_words, size_in_words
from allranks.judge.cases import Args, Setup, views
from allranks.judge.exercise import Exercise, Group, Rule, Run
from allranks.theory import topology as machines
from allranks.theory.cost.bounds import lower_bound_seconds
from allranks.theory.simulator.simulation import TopologyNetwork
from allranks.theory.topology import Topology

NBYTES = 64 << 20
MAX_RANKS = 16  # of a run on a machine that the reader names
MOST_NBYTES = 1 << 50
_ANY_ORDER = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")  # all ranks do the same there
_PARTS = (*_ANY_ORDER, "broadcast", "reduce")  # the vector can be cut, and each part go its own way


class MachineError(CourseError, ValueError):
    """An answer can't be timed there."""


@dataclass(frozen=True)
class Machine:
    """A topology, its name in words, and the bytes for which the first argument of a case stands."""

    name: str
    topology: Topology
    nbytes: int


Bound = Callable[[Run], float]  # seconds


def machine_of(setup: Setup) -> Machine | None:
    """The machine on which a case is timed, if it is."""
    found = setup.option("_machine")
    return found if isinstance(found, Machine) else None


def network(setup: Setup, args: Args) -> TopologyNetwork | None:
    """The links of the case's machine, on which the first tensor of rank 0 stands for the machine's bytes."""
    where = machine_of(setup)
    if where is None:
        return None
    return TopologyNetwork(where.topology, max(1, where.nbytes // max(1, _nbytes(args))))


def _nbytes(args: Args) -> int:
    """Bytes of the first argument: a tensor, or a list of them."""
    return sum(view.tensor().numel() * view.base.element_size() for _, view in views(args[0])) if args else 0


def nbytes_of(run: Run) -> int:
    """The bytes for which the vector of the collective stands, as `cost` counts them: all ranks' shards in all_gather."""
    links = run.outcome.fabric
    scale = links.scale if isinstance(links, TopologyNetwork) else 1
    return _nbytes(run.args[0][0]) * scale * (run.ranks if run.exercise.collective == "all_gather" else 1)


def _is_plain(exercise: Exercise) -> bool:
    """Whether the exercise is just the collective, so that its bound and its parts are those of the collective."""
    fast = any(isinstance(rule, FastRule) for rule in exercise.rules)
    return fast or exercise.name.endswith(exercise.collective or "no collective")


def bound_s(run: Run) -> float:
    """The least seconds of any algorithm for the exercise's collective on the machine."""
    where = machine_of(run.setup)
    if where is None or run.exercise.collective is None or not _is_plain(run.exercise):
        return 0.0
    return lower_bound_seconds(run.exercise.collective, run.ranks, nbytes_of(run), where.topology)


@dataclass(frozen=True)
class Speed:
    """A run's seconds and those of the bound (0: not known), and the sentences on it."""

    seconds: float
    bound: float
    ratio_words: str
    path: tuple[str, ...]
    better: tuple[str, ...]

    @property
    def ratio(self) -> float:
        """How many times the bound."""
        return self.seconds / self.bound if self.bound else 1.0

    @property
    def sentences(self) -> tuple[str, ...]:
        """All that is to be said of it."""
        return (f"{self.ratio_words}.", *self.path, *self.better)


def of(run: Run | None, bound: Bound | None = None) -> Speed | None:
    """How fast the run was; None if it was not timed on a machine."""
    where = machine_of(run.setup) if run is not None else None
    if run is None or where is None or run.failure is not None:
        return None
    bound = bound or next((rule.bound for rule in run.exercise.rules if isinstance(rule, FastRule)), bound_s)
    took, least = float(run.outcome.seconds), bound(run)
    each = " a rank" if run.exercise.collective == "all_gather" else ""
    words = f"On {where.name}, {run.ranks} ranks take {seconds_in_words(took)} for {size_in_words(where.nbytes)}{each}"
    if least > 0:
        words += f", {took / least:.2f} times the lower bound of {seconds_in_words(least)}"
    better: list[str] = []
    if _is_plain(run.exercise) and run.exercise.collective in _PARTS:
        found = run.outcome.what_if(any_order=run.exercise.collective in _ANY_ORDER, segmented=_sends_segments(run))
        better = [one.sentence() for one in found]
    return Speed(took, least, words, tuple(run.outcome.critical_path.sentences(run.where)), tuple(better))


def _sends_segments(run: Run) -> bool:
    """Whether every message is shorter than what the collective sends in one step, so that the vector is cut further already."""
    whole = _nbytes(run.args[0][0])
    in_chunks = run.exercise.collective in ("all_reduce", "reduce_scatter", "all_to_all")
    longest = max((e.nbytes for e in run.sends), default=whole)
    return longest < (whole // run.ranks if in_chunks else whole)


@dataclass(frozen=True)
class FastRule(Rule):
    """A rule on the time; `bound` gives the least seconds of a run, and `told` says of a slow one how slow and why, and what else is to be said."""

    bound: Bound = bound_s
    told: Callable[[Run], tuple[str, str] | None] = lambda run: None


def at_most(times: float, weight: float, bound: Bound = bound_s) -> FastRule:
    """The rule that the virtual time is at most so many times the bound. A slower run earns half of its share: `times` over its ratio."""

    def told(run: Run) -> tuple[str, str] | None:
        found = of(run, bound) if float(run.outcome.seconds) > times * bound(run) else None
        if found is None:
            return None
        *others, why = found.path[:2]
        slow = f"{found.ratio:.2f} times the lower bound, and at most {times:g} times is asked"
        return f"{slow}: {why[:1].lower()}{why[1:]}", " ".join((f"{found.ratio_words}.", *others, *found.better[:2]))

    def breach(run: Run) -> str | None:
        said = told(run)
        return None if said is None else " ".join(said)

    def part(run: Run) -> float:
        least, took = bound(run), float(run.outcome.seconds)
        return min(1.0, times * least / took) / 2 if took > 0 else 0.0

    return FastRule(
        f"at most {times:g} times the lower bound",
        weight,
        breach,
        lambda setup: machine_of(setup) is not None and setup.ranks > 1 and setup.times == 1,
        part=part,
        bound=bound,
        told=told,
    )


# --------------------------------------------------------------------------------------- on a machine that the reader names


def machine(exercise: Exercise, topology: str | Topology, nbytes: int) -> Machine:
    """The machine that a reader has named. Raises MachineError, or TopologyError for a name or file that is none."""
    if not exercise.allow:
        raise MachineError(f"{exercise.name} sends no messages, so that no topology changes its time.")
    if isinstance(nbytes, bool) or not isinstance(nbytes, int) or not 1 <= nbytes <= MOST_NBYTES:
        raise MachineError(f"nbytes is {nbytes!r}; it must be a whole number of bytes from 1 to 2^50.")
    if not isinstance(topology, (str, Topology)):
        raise MachineError(
            f"topology is a {type(topology).__name__}; give a preset's name, a topology file or a Topology."
        )
    found = machines.preset(topology) if isinstance(topology, str) else topology
    return Machine(found.name, found, nbytes)


def setup_on(exercise: Exercise, machine: Machine, most: int) -> Setup:
    """The exercise's case of which the player shows the messages, with the ranks of two nodes of the machine where it can have so many."""
    demo = replace(exercise.demo_setup, values="small", dtype="float32").with_options(_machine=machine)
    g = machine.topology.ranks_per_node
    ranks = max(2, min(most, MAX_RANKS, g if machine.topology.nic is None else 2 * g))
    node = demo.option("ranks_per_node")
    if node is not None:
        inside = g if ranks % g == 0 and g < ranks else 1
        demo = demo.with_options(ranks_per_node=inside)
    wanted = replace(demo, ranks=ranks, size=demo.size * ranks // demo.ranks)
    try:
        list(exercise.inputs(wanted, wanted.draws(0)))
    except Exception:  # inputs of another number of ranks need other sizes: then the case as it is
        return exercise.demo_setup.with_options(_machine=machine)
    return wanted


# ------------------------------------------------------------------------------------- what exercises on speed have in common


def sum_groups(
    timed: tuple[Setup, ...], change: Callable[[Setup], Setup] = lambda setup: setup, many: tuple[int, ...] = (9, 12)
) -> tuple[Group, ...]:
    """The cases of an all-reduce that is judged by its time: few of each property, and the `timed` ones on a machine.

    `change` gives a case the exercise's own options; `many` are the rank counts of which one is drawn.
    """

    def made(*setups: Setup) -> tuple[Setup, ...]:
        return tuple(map(change, setups))

    drawn = Setup(9, 19).with_choices(ranks=many, size=(19, 23, 29, 31))
    return (
        Group("right sum", 2, made(Setup(2, 8), Setup(3, 6), Setup(4, 16))),
        Group("any rank count", 1, made(Setup(1, 4), Setup(5, 15), Setup(6, 12))),
        Group("any size", 1, made(Setup(2, 1), Setup(3, 7), Setup(4, 2), Setup(3, 0), Setup(4, 10))),
        Group("many ranks", 1, made(drawn)),
        Group(
            "any dtype",
            0.5,
            made(
                Setup(3, 6, "float64", values="precise"),
                Setup(2, 8, "int64", values="precise"),
                Setup(3, 6, "bfloat16"),
            ),
        ),
        Group("any layout", 0.5, made(Setup(3, 6, layout="strided"), Setup(3, 12, layout="transposed"))),
        Group(
            "any circumstances",
            1,
            made(Setup(3, 10, times=2), Setup(3, 6, outer_world=True), Setup(3, 12, delivery="shuffled")),
        ),
        Group("on the machine", 1, timed),
    )


def computed_s(run: Run, rank: int) -> float:
    """Virtual seconds that a rank computed."""
    return float(sum(work.end - work.start for work in run.outcome.timeline.work if work.rank == rank))
