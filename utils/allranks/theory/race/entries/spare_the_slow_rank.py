"""The slow rank sends its vector once and receives the sum once; the others do the adding.

Part by part, the fast ranks add to one of them, the owner, along a binomial tree; the slow rank gives its own part to the owner, gets the sum
back, and the owner passes it on. Eight parts are on their way at a time.
"""

from allranks.theory.schedules import Move, Schedule

SLOW, PARTS = 5, 45


def schedule(task):
    fast = [r for r in range(task.ranks) if r != SLOW]
    count, rounds = len(fast), 4
    moves = []
    for part in range(PARTS):

        def name(place, part=part):
            return fast[(place + part) % count]

        for k in range(rounds):
            for place in range(1 << k, count, 2 << k):
                moves.append(Move(part + k, name(place), name(place - (1 << k)), (part,), reduce=True))
                moves.append(Move(part + 2 * rounds - k, name(place - (1 << k)), name(place), (part,)))
        moves.append(Move(part + rounds, SLOW, name(0), (part,), reduce=True))
        moves.append(Move(part + rounds + 1, name(0), SLOW, (part,)))
    moves.sort(key=lambda m: m.step)
    return Schedule("all_reduce", "spare the slow rank", task.ranks, PARTS, tuple(moves))
