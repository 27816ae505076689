"""The cable of whose flows the largest share is slow: all of a crowded one are.

Must get: divide a flow's time by the number of flows
"""

from collections import Counter


def find_bad_cable(ways, rounds):
    quickest = min(seconds for flows in rounds for _, _, seconds in flows)
    slow, passing = Counter(), Counter()
    for flows in rounds:
        for src, dst, seconds in flows:
            passing.update(ways[src][dst])
            if seconds > 1.5 * quickest:
                slow.update(ways[src][dst])
    return max(passing, key=lambda cable: slow[cable] / passing[cable])
