"""hsdp_gradient(gradient, ranks_per_node) -> Tensor: the mean over all ranks, sharded inside a node and copied between nodes.

Node i holds the ranks i*g to (i+1)*g - 1; its rank i*g + j returns chunk j of the mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from allranks.base.errors import name_ranks
from allranks.exercises.families import known
from allranks.judge import rules
from allranks.judge.cases import Args, Expected, Oracle, Setup, View, draw, plain
from allranks.judge.drawing import Draws
from allranks.judge.exercise import About, Exercise, Group, Mistake, Rule, Run
from allranks.ranks.wire import LogEntry

SCATTERS = frozenset({"reduce_scatter", "reduce_scatter_tensor"})


def _per_node(setup: Setup) -> int:
    return setup.option("ranks_per_node")


def _inputs(setup: Setup, rng: Draws) -> list[Args]:
    g = _per_node(setup)
    return [(View.of(draw(setup, rng.of_rank(rank), g * setup.size), setup.layout), g) for rank in range(setup.ranks)]


def _mean(everywhere: bool = True, divide: str = "p") -> Oracle:
    """Chunks of the mean: over this rank's node only without `everywhere`."""

    def oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
        p, g, made = setup.ranks, _per_node(setup), []
        tensors = [plain(a[0]).double() for a in args]
        by = {"p": p, "g": g, "m": p // g, "1": 1}[divide]
        for rank in range(p):
            first = rank // g * g
            total = torch.stack(tensors if everywhere else tensors[first : first + g]).sum(0) / by
            kind = args[rank][0].base.dtype
            made.append(Expected(total.chunk(g)[rank % g].to(kind), {}, p * 64 * torch.finfo(kind).eps))
        return made

    return oracle


def _of_all(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """The sum of all ranks' chunks of their nodes' sums, divided by p."""
    p, g = setup.ranks, _per_node(setup)
    tensors = [plain(a[0]).double() for a in args]
    chunks = [torch.stack(tensors[r // g * g :][:g]).sum(0).chunk(g)[r % g] for r in range(p)]
    kind = args[0][0].base.dtype
    total = (torch.stack(chunks).sum(0) / p).to(kind)
    return [Expected(total, {}, p * 64 * torch.finfo(kind).eps) for _ in range(p)]


def _all_reduced_by_all(run: Run) -> bool:
    return any(e.op == "all_reduce" and len(e.group or ()) == run.ranks for e in run.collectives)


def _blocks(p: int, each: int) -> list[list[int]]:
    """Groups of ranks that stand next to each other."""
    return [list(range(first, first + each)) for first in range(0, p, each)]


def _strided(p: int, each: int) -> list[list[int]]:
    """Groups of ranks that stand equally far apart."""
    step = p // each
    return [list(range(first, p, step)) for first in range(step)]


Layout = Callable[[int, int], list[list[int]]]


def _with_groups(scatter: Layout, add: Layout) -> Oracle:
    """What these groups of ranks leave, the first of `ranks_per_node` ranks each and the second of as many as there are nodes."""

    def oracle(setup: Setup, args: Sequence[Args]) -> list[Expected]:
        p, g = setup.ranks, _per_node(setup)
        inside, between = scatter(p, g), add(p, p // g)
        if (inside, between) == (_blocks(p, g), _strided(p, p // g)):
            raise ValueError("these are the right groups")
        tensors = [plain(a[0]).double() for a in args]
        chunks: list[torch.Tensor] = [torch.empty(0)] * p
        for members in inside:
            for chunk, rank in zip(torch.stack([tensors[r] for r in members]).sum(0).chunk(g), members, strict=True):
                chunks[rank] = chunk
        kind = args[0][0].base.dtype
        made: dict[int, Expected] = {}
        for members in between:
            total = torch.stack([chunks[r] for r in members]).sum(0) / p
            made |= {r: Expected(total.to(kind), {}, p * 64 * torch.finfo(kind).eps) for r in members}
        return [made[rank] for rank in range(p)]

    return oracle


def _grouped(scatter: Layout, add: Layout) -> Callable[[Run], bool]:
    """Whether the collectives of the run had these groups."""

    def holds(run: Run) -> bool:
        p, g = run.ranks, _per_node(run.setup)
        used = {True: scatter(p, g), False: add(p, p // g)}
        return all(len(e.group or ()) < 2 or sorted(e.group or ()) in used[e.op in SCATTERS] for e in run.collectives)

    return holds


def _adding(run: Run) -> list[LogEntry]:
    """The all_reduces of more than one rank."""
    return [e for e in run.collectives if e.op == "all_reduce" and len(e.group or ()) > 1]


_NEIGHBOURS = (
    "all_reduce ran over ranks that stand next to each other, which have different chunks: "
    "the ranks with the same chunk are ranks_per_node apart, as in range(j, p, ranks_per_node)"
)
_OWN_NODE = (
    "all_reduce ran over the ranks of a node, which have different chunks: "
    "give it the group of the ranks with the same chunk, one of each node, as in range(j, p, ranks_per_node)"
)
_ACROSS = (
    "reduce_scatter ran over ranks of different nodes: the ranks of a node stand next to each other, "
    "so rank r belongs to node r // ranks_per_node"
)


def _inside_then_between(run: Run) -> str | None:
    """A reduce_scatter of all inside the node, then an all_reduce of the chunk with the same rank of each other node."""
    g, p = _per_node(run.setup), run.ranks
    nodes = p // g
    for call in range(run.setup.times):
        chunk = run.setup.size
        for rank in range(p):
            mine = [e for e in run.collectives if e.rank == rank and e.call == call and len(e.group or ()) > 1]
            for entry in mine:
                members = entry.group or ()
                where = {r // g for r in members}
                at = f"{run.at(entry.line)}, with {name_ranks(members)}"
                if entry.op in SCATTERS and len(where) > 1:
                    return About(
                        f"rank {rank} calls reduce_scatter between nodes{at}: the whole gradient would go through the slow links; "
                        "reduce_scatter inside the node, and send only your chunk between nodes",
                        entry,
                    )
                if entry.op == "all_reduce" and len(where) > 1 and entry.numel > chunk:
                    return About(
                        f"rank {rank} all_reduces {entry.numel} elements between nodes{at}, but its chunk has {chunk}: "
                        "reduce_scatter inside the node first",
                        entry,
                    )
                if entry.op == "all_reduce" and len(where) == 1:
                    return About(
                        f"rank {rank} calls all_reduce inside its node{at}: there it needs only its chunk of the sum, which is a reduce_scatter",
                        entry,
                    )
                if entry.op == "all_reduce" and len(members) > nodes:
                    return About(
                        f"rank {rank} calls all_reduce with {len(members)} ranks{at}, but each of {nodes} nodes has one rank with the same chunk",
                        entry,
                    )
            for op, group, many in (("reduce_scatter", g, g > 1), ("all_reduce", nodes, nodes > 1)):
                count = sum((e.op in SCATTERS) == (op == "reduce_scatter") for e in mine)
                if count > many:
                    return f"rank {rank} calls {op} {count} times, but {int(many)} with {group} ranks is enough"
    return None


def _order(run: Run) -> str | None:
    """The reduce_scatter comes first, as the all_reduce is of what it leaves."""
    for call in range(run.setup.times):
        for rank in range(run.ranks):
            mine = [e for e in run.collectives if e.rank == rank and e.call == call and len(e.group or ()) > 1]
            mine.sort(key=lambda e: e.index)
            if len(mine) == 2 and mine[0].op == "all_reduce":
                return About(f"rank {rank} calls all_reduce{run.at(mine[0].line)} before reduce_scatter", mine[0])
    return None


def _needed(run: Run, call: int, rank: int) -> int:
    """A chunk's bytes from the node, and again from the other nodes."""
    g = _per_node(run.setup)
    return ((g > 1) + (run.ranks > g)) * run.setup.size * run.itemsize


def _case(ranks: int, per_node: int, size: int = 6, dtype: str = "float32", **more: object) -> Setup:
    return Setup(ranks, size, dtype, **more).with_options(ranks_per_node=per_node)  # type: ignore[arg-type]


EXERCISE = Exercise(
    name="hsdp_gradient",
    promise="returns this rank's chunk of the mean gradient, with only chunks between the nodes",
    groups=(
        Group("right mean", 3, (_case(4, 2), _case(6, 3, 5), _case(6, 2))),
        Group("one node, or one rank a node", 1, (_case(3, 3), _case(3, 1), _case(1, 1))),
        Group("more nodes", 1, (_case(8, 2), _case(8, 4, 3))),
        Group("many ranks", 2, (_case(12, 3).with_choices(ranks=(12,), ranks_per_node=(2, 3, 4, 6), size=(3, 5, 7)),)),
        Group("any size", 1, (_case(4, 2, 1), _case(4, 2, 0))),
        Group("any dtype and layout", 1, (_case(4, 2, 6, "float64", values="random"), _case(4, 2, layout="strided"))),
        Group("any circumstances", 1, (_case(4, 2, times=2), _case(4, 2, outer_world=True))),
    ),
    inputs=_inputs,
    oracle=_mean(),
    allow=SCATTERS | {"all_reduce"},
    rules=(
        Rule("only chunks between nodes", 6, _inside_then_between),
        Rule("reduce_scatter first", 1, _order),
        Rule("in the tensors' dtype", 2, rules.wrong_dtype),
        rules.carried(_needed, _needed),
    ),
    mistakes=known(
        {
            "the sum instead of the mean": _mean(divide="1"),
            "divided by the ranks of a node instead of all ranks": _mean(divide="g"),
            "divided by the number of nodes instead of all ranks": _mean(divide="m"),
            "the mean of this node's ranks only: the nodes never exchanged their chunks": _mean(False, "g"),
            "the sum of this node's ranks only, divided by p": _mean(False, "p"),
            "all_reduce ran over all ranks, which added different chunks: give it the group of the ranks with the "
            "same chunk": (_of_all, _all_reduced_by_all),
        },
        Mistake(
            _OWN_NODE,
            _with_groups(_blocks, lambda p, nodes: _blocks(p, p // nodes)),
            lambda run: any(sorted(e.group or ()) in _blocks(run.ranks, _per_node(run.setup)) for e in _adding(run)),
        ),
        Mistake(_NEIGHBOURS, _with_groups(_blocks, _blocks), _grouped(_blocks, _blocks)),
        Mistake(_ACROSS, _with_groups(_strided, _blocks), _grouped(_strided, _blocks)),
        Mistake(_ACROSS, _with_groups(_strided, _strided), _grouped(_strided, _strided)),
    ),
    unit="element a chunk",
    chunking="none",
    demo_setup=_case(4, 2),
    only_sums=True,
    forbidden_advice="A reduce_scatter inside the node and an all_reduce between nodes are all that it needs; dist.new_group makes the groups.",
)
