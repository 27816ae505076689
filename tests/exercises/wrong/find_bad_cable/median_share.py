"""Divides by the flows on the cable, and takes the median because of the late messages.

Must get: so take the least
"""

from collections import Counter
from statistics import median


def find_bad_cable(ways, rounds):
    shares = {}
    for flows in rounds:
        load = Counter(cable for src, dst, _ in flows for cable in ways[src][dst])
        for src, dst, seconds in flows:
            for cable in ways[src][dst]:
                shares.setdefault(cable, []).append(seconds / load[cable])
    return max(shares, key=lambda cable: median(shares[cable]))
