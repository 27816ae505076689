"""Finds the cable, and names the other direction.

Must get: in the other direction
"""

from collections import Counter


def find_bad_cable(ways, rounds):
    most = {}
    for flows in rounds:
        sharing = Counter(cable for src, dst, _ in flows for cable in ways[src][dst])
        for src, dst, seconds in flows:
            for cable in ways[src][dst]:
                most[cable] = min(most.get(cable, seconds), seconds / sharing[cable])
    return max(most, key=most.get) ^ 1
