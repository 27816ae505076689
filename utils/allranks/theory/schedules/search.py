"""A search for all-gathers on machines with direct links only, such as a DGX-1.

SCCL (Cai et al., PPoPP 2021) puts the question to a solver: is there an all-gather of so many chunks in so many steps, if each link carries
so many of them in each step? Here hill climbing looks for one. It can find a schedule, but never show that there is none.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from allranks.theory.schedules.core import Move, Schedule, ScheduleError, check_ranks

# what each receiver gets in one step: chunk -> sender
_Step = list[dict[int, int]]


def search_all_gather(
    lanes: Sequence[Sequence[int]], chunks: int, rounds: Sequence[int], seed: int = 0, tries: int = 10_000
) -> Schedule:
    """An all-gather over direct links, found by search, and proved.

    `lanes[a][b]` is how many lanes lead from rank a to rank b, 0 without a link. Each rank's part is cut into `chunks`, and in step s
    each lane carries up to `rounds[s]` of them. The same seed gives the same schedule.

    Raises ScheduleError if the rounds are too few for any schedule, or if `tries` tries find none.

    >>> line = [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
    >>> schedules.search_all_gather(line, chunks=1, rounds=(1, 1))
    <Schedule found all_gather: 3 ranks, 3 chunks, 2 steps, 6 messages>
    """
    check_ranks(len(lanes))
    search = _Search(lanes, chunks, rounds, random.Random(seed))
    if why := search.impossible():
        raise ScheduleError(f"no schedule has these steps: {why}")
    steps = search.climb(tries)
    if steps is None:
        raise ScheduleError(
            f"{tries} tries found no all-gather of {chunks} chunks a rank in rounds {tuple(rounds)}; {search.missing} chunks were missing "
            "at best. Try more rounds, another seed, or more tries"
        )
    moves = []
    for step, received in enumerate(steps):
        for dst, found in enumerate(received):
            for src in sorted(set(found.values())):
                moves.append(Move(step, src, dst, tuple(sorted(c for c, giver in found.items() if giver == src))))
    schedule = Schedule("all_gather", "found", len(lanes), len(lanes) * chunks, tuple(moves))
    schedule.verify()
    return schedule


class _Search:
    """Weights say which chunk a receiver prefers in which step; hill climbing changes a few at a time."""

    def __init__(self, lanes: Sequence[Sequence[int]], chunks: int, rounds: Sequence[int], draw: random.Random) -> None:
        self.lanes, self.chunks, self.rounds, self.draw = lanes, chunks, rounds, draw
        self.ranks = len(lanes)
        self.givers = [[a for a in range(self.ranks) if a != b and lanes[a][b]] for b in range(self.ranks)]
        self.missing = self.ranks * self.ranks * chunks

    def impossible(self) -> str | None:
        """Why no schedule can have these rounds: bytes into a rank, or steps between two ranks."""
        need, together = (self.ranks - 1) * self.chunks, sum(self.rounds)
        for rank, givers in enumerate(self.givers):
            room = together * sum(self.lanes[giver][rank] for giver in givers)
            if room < need:
                return f"{need} chunks must enter rank {rank}, and its links have room for {room}"
        for start in range(self.ranks):
            reached = {start}
            for _ in self.rounds:
                reached |= {b for b in range(self.ranks) if reached & set(self.givers[b])}
            if len(reached) < self.ranks:
                far = min(set(range(self.ranks)) - reached)
                return f"{len(self.rounds)} steps do not reach from rank {start} to rank {far}"
        return None

    def climb(self, tries: int) -> list[_Step] | None:
        """The first schedule in which nothing is missing; None if no try gives one."""
        number = self.ranks * self.chunks
        weights = [[[self.draw.random() for _ in range(number)] for _ in self.lanes] for _ in self.rounds]
        self.missing, steps = self.run(weights)
        for _ in range(tries):
            if not self.missing:
                return steps
            before = []
            for _ in range(1 + self.below(5) // 2):
                # the last step takes all that it can, whatever it prefers
                step, rank, chunk = self.below(max(1, len(self.rounds) - 1)), self.below(self.ranks), self.below(number)
                before.append((step, rank, chunk, weights[step][rank][chunk]))
                weights[step][rank][chunk] = self.draw.random()
            missing, tried = self.run(weights)
            if missing <= self.missing:
                self.missing, steps = missing, tried
            else:
                for step, rank, chunk, weight in reversed(before):
                    weights[step][rank][chunk] = weight
        return None if self.missing else steps

    def below(self, end: int) -> int:
        """A random whole number below `end`; only random() gives the same numbers in every version of Python."""
        return int(self.draw.random() * end)

    def run(self, weights: list[list[list[float]]]) -> tuple[int, list[_Step]]:
        """The chunks that are missing at the end, and what each rank receives in each step."""
        held = [set(range(rank * self.chunks, (rank + 1) * self.chunks)) for rank in range(self.ranks)]
        steps = []
        for room, preferred in zip(self.rounds, weights, strict=True):
            received = [self.match(rank, held, room, preferred[rank].__getitem__) for rank in range(self.ranks)]
            for rank, found in enumerate(received):
                held[rank] |= found.keys()
            steps.append(received)
        return sum(self.ranks * self.chunks - len(chunks) for chunks in held), steps

    def match(self, rank: int, held: list[set[int]], room: int, weight: Callable[[int], float]) -> dict[int, int]:
        """As many missing chunks as the links into `rank` can carry, each from one giver: a maximum matching."""
        givers = self.givers[rank]
        wanted = sorted(set().union(*(held[giver] for giver in givers)) - held[rank], key=weight)
        load: dict[int, list[int]] = {giver: [] for giver in givers}
        chosen: dict[int, int] = {}

        def place(chunk: int, asked: set[int]) -> bool:
            able = [giver for giver in givers if chunk in held[giver] and giver not in asked]
            for giver in able:
                if len(load[giver]) < room * self.lanes[giver][rank]:
                    load[giver].append(chunk)
                    chosen[chunk] = giver
                    return True
            for giver in able:  # another chunk may have another giver
                asked.add(giver)
                for other in list(load[giver]):
                    load[giver].remove(other)
                    if place(other, asked):
                        load[giver].append(chunk)
                        chosen[chunk] = giver
                        return True
                    load[giver].append(other)
            return False

        for chunk in wanted:
            place(chunk, set())
        return chosen
