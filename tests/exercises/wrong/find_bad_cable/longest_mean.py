"""The cable whose flows take longest in the mean, however many share it.

Must get: divide a flow's time by the number of flows
"""

from statistics import mean


def find_bad_cable(ways, rounds):
    times = {}
    for flows in rounds:
        for src, dst, seconds in flows:
            for cable in ways[src][dst]:
                times.setdefault(cable, []).append(seconds)
    return max(times, key=lambda cable: mean(times[cable]))
