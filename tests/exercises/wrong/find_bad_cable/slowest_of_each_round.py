"""The cable that is most often on the way of a round's slowest message.

Must get: the slowest message of a round may be late
"""

from collections import Counter


def find_bad_cable(ways, rounds):
    count = Counter()
    for flows in rounds:
        src, dst, _ = max(flows, key=lambda flow: flow[2])
        count.update(ways[src][dst])
    return min(count, key=lambda cable: (-count[cable], cable))
