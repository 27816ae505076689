"""Adds up the seconds of all messages on each cable.

Must get: compare what one flow takes
"""


def find_bad_cable(ways, rounds):
    total = {}
    for flows in rounds:
        for src, dst, seconds in flows:
            for cable in ways[src][dst]:
                total[cable] = total.get(cable, 0) + seconds
    return max(total, key=total.get)
