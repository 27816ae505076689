"""Looks only at flows that are alone on a cable, and forgets the other cables of their way.

Must get: may share another one of its way
"""

from statistics import mean


def find_bad_cable(ways, rounds):
    times = {}
    for flows in rounds:
        for src, dst, seconds in flows:
            for cable in ways[src][dst]:
                if sum(cable in ways[a][b] for a, b, _ in flows) == 1:
                    times.setdefault(cable, []).append(seconds)
    return max(times, key=lambda cable: mean(times[cable]))
