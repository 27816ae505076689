"""Divides by the flows on the cable, but takes the mean.

Must get: so take the least
"""

from collections import Counter
from statistics import mean


def find_bad_cable(ways, rounds):
    shares = {}
    for flows in rounds:
        load = Counter(cable for src, dst, _ in flows for cable in ways[src][dst])
        for src, dst, seconds in flows:
            for cable in ways[src][dst]:
                shares.setdefault(cable, []).append(seconds / load[cable])
    return max(shares, key=lambda cable: mean(shares[cable]))
