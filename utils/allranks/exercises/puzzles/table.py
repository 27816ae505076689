"""The ten puzzles: what each asks for, its inputs and right results, and its rules on messages."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from itertools import pairwise

from allranks.base.errors import name_ranks
from allranks.exercises.puzzles.moves import Move, Moves
from allranks.exercises.puzzles.vector import cuts
from allranks.ranks.wire.state import Op
from allranks.ranks.wire.wait import outermost

Inputs = list[list[float]]
Breach = tuple[str, int | None]  # what is wrong, in a sentence, and the line


@dataclass(frozen=True)
class Rule:
    """A rule on messages: `breach` says how a run breaks it, or None. `text` stands below the code."""

    code: str
    text: str
    breach: Callable[[Moves], Breach | None]


@dataclass(frozen=True)
class Puzzle:
    """One puzzle. `kind` is what the result is made of: "sum", "copy" (of `source`, or of each rank's left) or "numbers"."""

    id: str
    title: str
    short: str
    task: str
    function: str
    starter: str
    hint: str
    kind: str
    right: str  # what must be right, below the code
    expected: Callable[[Inputs], list[list[float]]]
    rules: tuple[Rule, ...] = ()
    counts: tuple[int, ...] = (4, 2, 3, 5, 8)  # the first one is shown
    sizes: Callable[[int], tuple[int, ...]] = lambda p: (3 * p,)  # the first one is shown
    inputs: Callable[[int, int, random.Random], Inputs] = field(default=lambda p, n, chance: _whole(p, n, chance))
    chunked: bool = False
    source: int | None = None
    nodes: bool = False
    returns: bool = False  # the result must be returned; else it may also stand in x

    def node_size(self, ranks: int) -> int | None:
        """How many ranks are on one node; None if nodes do not matter."""
        return ranks // 2 if self.nodes else None


# ------------------------------------------------------------------------------------------------ inputs and results


def _whole(p: int, n: int, chance: random.Random) -> Inputs:
    """Whole numbers that differ from each other and from their sums."""
    return [[float(chance.randrange(1, 1000) + 1000 * rank) for _ in range(n)] for rank in range(p)]


def _logits(p: int, n: int, chance: random.Random) -> Inputs:
    """Numbers whose exp is infinite, or zero. In long ones a middle rank's are far larger, so that no other number serves."""
    high = chance.choice((1000.0, 9000.0, -9000.0))
    above = [200.0 * (n > 5 and rank == p // 2) for rank in range(p)]
    return [[high + more + chance.randrange(-16, 17) / 4 for _ in range(n)] for more in above]  # exact in float32


def _waited(p: int, n: int, chance: random.Random) -> Inputs:
    """Seconds that each rank waited for the others, step by step: the straggler hardly waits, another one seldom."""
    slow = chance.randrange(p)
    made = [[round(chance.uniform(0.7, 1.0), 2) for _ in range(n)] for _ in range(p)]
    made[slow] = [round(chance.uniform(0.05, 0.2), 2) for _ in range(n)]
    made[slow][chance.randrange(n)] = 1.1  # once, another rank was late
    for rank in range(p):
        if rank != slow:
            made[rank][chance.randrange(n)] = 0.01
    return made


def _sum(x: Inputs) -> list[list[float]]:
    return [[sum(column) for column in zip(*x, strict=True)]] * len(x)


def _own_chunk_of_sum(x: Inputs) -> list[list[float]]:
    total = _sum(x)[0]
    return [total[start:end] for start, end in pairwise(cuts(len(total), len(x)))]


def _softmax(x: Inputs) -> list[list[float]]:
    high = max(max(row) for row in x)
    below = sum(math.exp(v - high) for row in x for v in row)
    return [[math.exp(v - high) / below for v in row] for row in x]


def _straggler(x: Inputs) -> list[list[float]]:
    sums = [sum(row) for row in x]
    return [[float(sums.index(min(sums)))]] * len(x)


# ------------------------------------------------------------------------------------------------------------- rules


def _line(move: Move) -> int | None:
    return outermost(move.send.line)


def _beyond(run: Moves, most: int, key: Callable[[Op], Hashable], told: Callable[[Op, int], str]) -> Breach | None:
    """A breach at the move with which the moves of one key pass `most` numbers; those whose key is None do not count.

    `told` says it, of the move's send and of all numbers that go under its key.
    """
    sent: Counter[Hashable] = Counter()
    for move in run.moves:
        its = key(move.send)
        sent[its] += move.send.numel
        if its is not None and sent[its] > most:
            total = sum(m.send.numel for m in run.moves if key(m.send) == its)
            return told(move.send, total), _line(move)
    return None


def _not_beside(run: Moves) -> Breach | None:
    for move in run.moves:
        src, dst = move.send.rank, move.send.peer or 0
        if (src - dst) % run.ranks not in (1, run.ranks - 1):
            beside = name_ranks(sorted({(src - 1) % run.ranks, (src + 1) % run.ranks}))
            return f"Rank {src} sends to rank {dst}; its neighbours on the ring are {beside}.", _line(move)
    return None


def _bytes(share: int, formula: str) -> Rule:
    """Each rank sends at most `share` times (p-1)/p of the numbers, rounded up to whole chunks."""

    def breach(run: Moves) -> Breach | None:
        most = share * (run.ranks - 1) * -(-run.size // run.ranks)

        def told(send: Op, total: int) -> str:
            sends = f"rank {send.rank} sends {4 * total} bytes"
            return f"The values are right, but {sends}; {formula} of x are {4 * most}."

        return _beyond(run, most, lambda send: send.rank, told)

    return Rule("bytes", f"{formula} of the bytes", breach)


def _rounds(limit: Callable[[int], int], formula: str) -> Rule:
    def breach(run: Moves) -> Breach | None:
        most = limit(run.ranks)
        if run.count <= most:
            return None
        late = next(move for move in run.moves if move.step >= most)
        rounds = f"{formula} = {most} are enough" if formula != str(most) else f"{most} are enough"
        return f"The values are right, but it takes {run.count} rounds, one after the other; {rounds}.", _line(late)

    return Rule("rounds", f"{formula} rounds", breach)


def _few_numbers(run: Moves) -> Breach | None:
    """No rank may send more than 2(p-1) numbers."""
    most = 2 * (run.ranks - 1)

    def told(send: Op, total: int) -> str:
        return f"The values are right, but rank {send.rank} sends {total} numbers; 2(p-1) = {most} are enough."

    return _beyond(run, most, lambda send: send.rank, told)


def _over_the_slow_link(run: Moves) -> Breach | None:
    """At most x once passes between the nodes, in each direction."""

    def way(send: Op) -> str | None:
        src, dst = send.rank // (run.ranks // 2), (send.peer or 0) // (run.ranks // 2)
        return f"node {src} to node {dst}" if src != dst else None

    def told(send: Op, total: int) -> str:
        passes = f"{4 * total} bytes pass from {way(send)}"
        return f"The sums are right, but {passes}; x has {4 * run.size}, and once is enough."

    return _beyond(run, run.size, way, told)


def _each_link_once(run: Moves) -> Breach | None:
    """Each rank passes the message on once; it may do so in parts."""

    def told(send: Op, _: int) -> str:
        sends = f"rank {send.rank} sends rank {send.peer} more than the message"
        return f"The values are right, but {sends}; once is enough."

    return _beyond(run, run.size, lambda send: (send.rank, send.peer), told)


_NEIGHBOURS = Rule("neighbours", "neighbours only", _not_beside)
_TWICE = "2(p\N{MINUS SIGN}1)"

PUZZLES = (
    Puzzle(
        "pass",
        "Pass it right",
        "Pass it right",
        "Rank 0 has the message. Each rank gets it from its left and passes it on to its right; in the end every rank returns it.",
        "pass_on",
        "def pass_on(x):\n    # x: on rank 0 the message, on the others something else\n    # rank, world_size, send(x, to), recv(x, from)\n    if rank < world_size - 1:\n        send(x, rank + 1)\n    return x\n",
        "Every rank but rank 0 receives first, into x: recv(x, rank - 1). Every rank but the last one then sends.",
        "copy",
        "rank 0's message",
        lambda x: [x[0]] * len(x),
        (_NEIGHBOURS, Rule("bytes", "once over each link", _each_link_once)),
        source=0,
        returns=True,
    ),
    Puzzle(
        "sum",
        "Everybody has the sum",
        "The sum",
        "Each rank has a vector x. In the end x holds the sum of all of them, on every rank. Four lines do it, slowly.",
        "all_sum",
        "def all_sum(x):\n    mine, new = clone(x), empty_like(x)\n    for other in range(world_size):\n        if other != rank:\n            # send mine to the other, receive into new, and add it to x\n            # out = isend(x, to) sends and does not wait; wait(out) does\n            pass\n",
        "Send your own numbers, mine, never the sum so far: out = isend(mine, other); recv(new, other); x += new; wait(out).",
        "sum",
        "the right sum",
        _sum,
        sizes=lambda p: (4, 1),
    ),
    Puzzle(
        "circle",
        "Break the circle",
        "Break the circle",
        "Each rank sends x to its right and returns what comes from its left. A send waits until it is received.",
        "pass_right",
        'def pass_right(x):\n    p = world_size\n    y = empty_like(x)\n    print("rank", rank, "sends")\n    send(x, (rank + 1) % p)\n    recv(y, (rank - 1) % p)\n    return y\n',
        "isend begins to send and does not wait: out = isend(x, right), then recv, then wait(out). Or let one rank receive first.",
        "copy",
        "the left one's vector",
        lambda x: [x[rank - 1] for rank in range(len(x))],
        (_NEIGHBOURS,),
        sizes=lambda p: (4,),
        returns=True,
    ),
    Puzzle(
        "tree",
        "A tree",
        "A tree",
        "Rank 0 has the message, and every rank must have it in x after \N{LEFT CEILING}lg p\N{RIGHT CEILING} rounds, p = world_size: who has it passes it on at once.",
        "broadcast",
        "def broadcast(x):\n    if rank == 0:\n        for other in range(1, world_size):\n            send(x, other)\n    else:\n        recv(x, 0)\n",
        "In the round with distance d = 1, 2, 4, ... every rank below d sends to rank + d, if there is one, and that one receives.",
        "copy",
        "rank 0's message",
        lambda x: [x[0]] * len(x),
        (_rounds(lambda p: math.ceil(math.log2(p)), "\N{LEFT CEILING}lg p\N{RIGHT CEILING}"),),
        counts=(4, 2, 3, 5, 8, 7),
        sizes=lambda p: (4,),
        source=0,
    ),
    Puzzle(
        "ring",
        "A ring in chunks",
        "A ring in chunks",
        f"Everybody has the sum, and nobody sends more than {_TWICE}/p of x.",
        "all_reduce",
        "def all_reduce(x):\n    p = world_size\n    right, left = (rank + 1) % p, (rank - 1) % p\n    c = tensor_split(x, p)\n    new = empty_like(c[0])\n\n    for s in range(p - 1):            # add\n        out = isend(c[(rank - s) % p], right)\n        recv(new, left)\n        c[(rank - s - 1) % p] += new\n        wait(out)\n\n    for s in range(p - 1):            # hand out\n        out = isend(c[(rank - s) % p], right)\n        recv(c[(rank - s - 1) % p], left)\n        wait(out)\n",
        "After the first loop one chunk of each rank is complete: the one that it added last, chunk rank + 1. Hand out that one first.",
        "sum",
        "the right sum",
        _sum,
        (_NEIGHBOURS, _bytes(2, f"{_TWICE}/p"), _rounds(lambda p: 2 * (p - 1), _TWICE)),
        chunked=True,
    ),
    Puzzle(
        "anysize",
        "Any size",
        "Any size",
        "The same ring, where p does not divide the size of x: the chunks differ, and some may be empty.",
        "all_reduce",
        "def all_reduce(x):\n    p = world_size\n    right, left = (rank + 1) % p, (rank - 1) % p\n    n = numel(x) // p\n    c = [x[i * n:(i + 1) * n] for i in range(p)]\n    new = empty_like(c[0])\n\n    for s in range(p - 1):            # add\n        out = isend(c[(rank - s) % p], right)\n        recv(new, left)\n        c[(rank - s - 1) % p] += new\n        wait(out)\n\n    for s in range(p - 1):            # hand out\n        out = isend(c[(rank + 1 - s) % p], right)\n        recv(c[(rank - s) % p], left)\n        wait(out)\n",
        "tensor_split(x, p) cuts x into p chunks of almost equal size. What is received must be as long as the chunk that comes.",
        "sum",
        "the right sum",
        _sum,
        (_NEIGHBOURS, _bytes(2, f"{_TWICE}/p"), _rounds(lambda p: 2 * (p - 1), _TWICE)),
        sizes=lambda p: (3 * p - 1 - (p == 2), 2 * p + 1, p - 1, 3 * p) if p > 2 else (5, 1, 6),
        chunked=True,
    ),
    Puzzle(
        "half",
        "Half of it",
        "Half of it",
        "Reduce-scatter: rank r returns the sum of chunk r only, and nobody sends more than (p\N{MINUS SIGN}1)/p of x.",
        "reduce_scatter",
        "def reduce_scatter(x):\n    p = world_size\n    right, left = (rank + 1) % p, (rank - 1) % p\n    c = tensor_split(x, p)\n    for s in range(p - 1):\n        new = empty_like(c[(rank - s - 1) % p])\n        out = isend(c[(rank - s) % p], right)\n        recv(new, left)\n        c[(rank - s - 1) % p] += new\n        wait(out)\n    return c[rank]\n",
        "The chunk that a rank adds to last is the one that it completes: begin one chunk earlier, so that this is chunk rank.",
        "sum",
        "the sum of chunk r",
        _own_chunk_of_sum,
        (_NEIGHBOURS, _bytes(1, "(p\N{MINUS SIGN}1)/p"), _rounds(lambda p: p - 1, "p\N{MINUS SIGN}1")),
        sizes=lambda p: (3 * p, 3 * p + 1),
        chunked=True,
        returns=True,
    ),
    Puzzle(
        "softmax",
        "Softmax over ranks",
        "Softmax",
        f"x is a part of one long row. Return the softmax of the row for your part; each rank sends {_TWICE} numbers at most. The numbers are large.",
        "softmax",
        "def softmax(x):\n    e = exp(x)\n    total = e.sum()\n    # total is that of your part only\n    return e / total\n",
        "First the largest number of all ranks, then exp(x - largest), then the sum of all ranks: two numbers to each other rank.",
        "numbers",
        "the right softmax",
        _softmax,
        (Rule("numbers", f"{_TWICE} numbers", _few_numbers),),
        sizes=lambda p: (5, 17),
        inputs=_logits,
        returns=True,
    ),
    Puzzle(
        "straggler",
        "Find the straggler",
        "The straggler",
        f"x: the seconds that this rank waited for the others, step by step. Who is slow? Every rank returns that rank's number; each sends {_TWICE} numbers at most.",
        "straggler",
        "def straggler(x):\n    mine = x.sum()\n    sums = zeros(world_size)\n    # every rank needs the sums of all ranks\n    return argmax(sums)\n",
        "Who is late in every step waits for nobody: the straggler has the smallest sum, not the largest.",
        "numbers",
        "the slow rank",
        _straggler,
        (Rule("numbers", f"{_TWICE} numbers", _few_numbers),),
        sizes=lambda p: (8, 19),
        inputs=_waited,
        returns=True,
    ),
    Puzzle(
        "nodes",
        "A ring on two nodes",
        "Two nodes",
        "Ranks 0 to node_size\N{MINUS SIGN}1 are on one node, the others on a second; the link between the nodes is slow. Everybody has the sum, and x passes over it once each way.",
        "all_reduce",
        "def all_reduce(x):\n    p = world_size\n    right, left = (rank + 1) % p, (rank - 1) % p\n    c = tensor_split(x, p)\n    new = empty_like(c[0])\n    for s in range(p - 1):\n        out = isend(c[(rank - s) % p], right)\n        recv(new, left)\n        c[(rank - s - 1) % p] += new\n        wait(out)\n    for s in range(p - 1):\n        out = isend(c[(rank + 1 - s) % p], right)\n        recv(c[(rank - s) % p], left)\n        wait(out)\n",
        "Reduce-scatter inside the node, in node_size chunks; then swap the chunk with the rank of the same place on the other node; then all-gather inside.",
        "sum",
        "the right sum",
        _sum,
        (Rule("slow", "x once over the slow link", _over_the_slow_link), _bytes(2, f"{_TWICE}/p")),
        counts=(4, 2, 8, 6),
        sizes=lambda p: (3 * p,),
        chunked=True,
        nodes=True,
    ),
)
