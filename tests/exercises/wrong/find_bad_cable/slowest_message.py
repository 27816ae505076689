"""The first cable of the slowest message of all.

Must get: a single late message is no proof
"""


def find_bad_cable(ways, rounds):
    longest = {}
    for flows in rounds:
        for src, dst, seconds in flows:
            for cable in ways[src][dst]:
                longest[cable] = max(longest.get(cable, 0), seconds)
    return max(longest, key=lambda cable: (longest[cable], -cable))
