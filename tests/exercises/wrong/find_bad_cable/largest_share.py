"""Divides by the flows on the cable, but takes the largest: that of a late message.

Must get: a single late message is no proof
"""

from collections import Counter


def find_bad_cable(ways, rounds):
    most = {}
    for flows in rounds:
        load = Counter(cable for src, dst, _ in flows for cable in ways[src][dst])
        for src, dst, seconds in flows:
            for cable in ways[src][dst]:
                most[cable] = max(most.get(cable, 0), seconds / load[cable])
    return max(most, key=most.get)
